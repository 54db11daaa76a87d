//! The callbacks of QEMU, and which instructions are instrumented with them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::api;
use crate::machine::{Machine, Options};
use crate::marker::Marker;
use crate::strings;

/// The interface version this plugin uses; QEMU reads it before anything else.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Address range of the agent's code (linked there, see `crates/lab/build.rs`).
const AGENT: std::ops::Range<u64> = 0x79f0_0000..0x7a40_0000;
/// End of the virtual addresses of user programs.
const USER_END: u64 = 1 << 47;
const SWAPGS: [u8; 3] = [0x0f, 0x01, 0xf8];

fn machine() -> &'static Machine {
    MACHINE.get().expect("set before callbacks are registered")
}

fn reported(info: api::MemInfo, vaddr: u64) -> Option<u64> {
    // SAFETY: called inside a memory callback with that callback's arguments, as QEMU requires; the handle
    // is used before the callback returns and checked for null.
    unsafe {
        let address = api::qemu_plugin_get_hwaddr(info, vaddr);
        if address.is_null() || api::qemu_plugin_hwaddr_is_io(address) {
            return None;
        }
        Some(api::qemu_plugin_hwaddr_phys_addr(address))
    }
}

extern "C" fn on_access(vcpu: c_uint, info: api::MemInfo, vaddr: u64, _: *mut c_void) {
    if vaddr >= USER_END {
        return; // an interrupt's frame, pushed during an instrumented instruction
    }
    // SAFETY: `info` is this callback's; we are on the vCPU's thread and in no other call for it.
    unsafe {
        let store = api::qemu_plugin_mem_is_store(info);
        machine().access(vcpu as usize, vaddr, store, || reported(info, vaddr));
    }
}

extern "C" fn on_string(vcpu: c_uint, info: api::MemInfo, vaddr: u64, _: *mut c_void) {
    if vaddr >= USER_END {
        return;
    }
    // SAFETY: as in `on_access`.
    unsafe {
        let store = api::qemu_plugin_mem_is_store(info);
        machine().string_access(vcpu as usize, vaddr, store, || reported(info, vaddr));
    }
}

extern "C" fn on_agent_access(vcpu: c_uint, info: api::MemInfo, vaddr: u64, _: *mut c_void) {
    if vaddr >= USER_END {
        return;
    }
    // SAFETY: we are on the vCPU's thread and in no other call for it.
    unsafe { machine().agent_access(vcpu as usize, || reported(info, vaddr)) }
}

extern "C" fn on_swapgs(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: we are on the vCPU's thread and in no other call for it.
    unsafe { machine().crosses_kernel(vcpu as usize) }
}

extern "C" fn on_marker(vcpu: c_uint, data: *mut c_void) {
    // SAFETY: `data` was leaked by `on_block` for this callback and is never freed.
    let (marker, host) = unsafe { *data.cast::<(Marker, u64)>() };
    // SAFETY: we are on the vCPU's thread and in no other call for it.
    unsafe { machine().on_marker(vcpu as usize, marker, host) }
}

extern "C" fn on_block(_: api::PluginId, block: *mut api::Block) {
    // SAFETY: the handles are valid during this callback and used only in it; `data` and `size` are those
    // of one instruction.
    unsafe {
        for at in 0..api::qemu_plugin_tb_n_insns(block) {
            let insn = api::qemu_plugin_tb_get_insn(block, at);
            let vaddr = api::qemu_plugin_insn_vaddr(insn);
            let code = std::slice::from_raw_parts(
                api::qemu_plugin_insn_data(insn),
                api::qemu_plugin_insn_size(insn),
            );
            if vaddr >= USER_END {
                if code == SWAPGS {
                    let none = std::ptr::null_mut();
                    api::qemu_plugin_register_vcpu_insn_exec_cb(
                        insn,
                        on_swapgs,
                        api::NO_REGS,
                        none,
                    );
                }
                continue;
            }
            let host = api::qemu_plugin_insn_haddr(insn) as u64;
            if let Some(marker) = Marker::decode(code) {
                // Leaked: 24 bytes per translation of one of the agent's few markers.
                let data = Box::into_raw(Box::new((marker, host))).cast();
                api::qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, api::NO_REGS, data);
                continue;
            }
            let callback: api::MemCallback = if AGENT.contains(&vaddr) {
                on_agent_access
            } else if machine().is_excluded(host) {
                continue;
            } else if strings::repeats(code) {
                on_string
            } else {
                on_access
            };
            api::qemu_plugin_register_vcpu_mem_cb(
                insn,
                callback,
                api::NO_REGS,
                api::READ_AND_WRITE,
                std::ptr::null_mut(),
            );
        }
    }
}

/// QEMU's entry point; any result but 0 makes QEMU exit.
///
/// # Safety
/// Called by QEMU with a valid `info` and `argc` strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::PluginId,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: guaranteed by QEMU, see above.
    let (system, vcpus) = unsafe { ((*info).system_emulation, (*info).max_vcpus) };
    if !system || vcpus <= 0 {
        eprintln!("numaloc-lab-plugin: this plugin is for whole-machine emulation");
        return 1;
    }
    let arguments: Vec<String> = (0..argc as usize)
        .map(|at| {
            // SAFETY: guaranteed by QEMU, see above.
            let text = unsafe { CStr::from_ptr(*argv.add(at)) };
            text.to_string_lossy().into_owned()
        })
        .collect();
    match Options::parse(arguments.iter().map(String::as_str)) {
        Ok(options) => drop(MACHINE.set(Machine::new(options, vcpus as usize))),
        Err(why) => {
            eprintln!("numaloc-lab-plugin: {why}");
            return 1;
        }
    }
    // SAFETY: `id` is ours and the callback has the signature QEMU expects.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_block) };
    0
}
