//! Records marks: called at the first instruction of functions that [`numaloc_follow::marks`] finds.
//!
//! QEMU 7.2 shows no registers. So the function of a parallel region is that of the first one which the thread enters
//! after the library's entry point, and the name of a user mark is at the address of the first byte that
//! `numaloc_mark` loads (`shims/include/numaloc.h`).

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use numaloc_follow::marks::{self, Function};
use numaloc_follow::usage::Use;
use numaloc_trace::marks::{MarkKind, NAME_BYTES, entry_points, region_entry};

use crate::api::{self, MemInfo, TranslationBlock};
use crate::{blocks, guest, known_thread};

/// Data of [`on_entry`]: the index of the entry point, or this for the function of a region, whose address follows in
/// the higher bits.
const REGION: u64 = 0xff;
const KIND_BITS: u32 = 8;

/// Registers the callbacks of the block that begins at `start`, if a mark's function does.
pub fn register(block: *mut TranslationBlock, start: u64, translation: &blocks::Translation) {
    let data = match marks::at(start) {
        None => return,
        Some(Function::Entry(MarkKind::User, _)) => return register_user(translation),
        Some(Function::Entry(_, name)) => {
            let Some(index) = entry_points().position(|entry| entry == name) else {
                return;
            };
            index as u64
        }
        Some(Function::Region) => start << KIND_BITS | REGION,
    };
    // SAFETY: the block is being translated; the callback is a function of this library, which QEMU does not unload.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(
            block,
            on_entry,
            api::NO_REGISTERS,
            std::ptr::without_provenance_mut(data as usize),
        );
    }
}

/// A thread begins to execute an entry point or the function of a region.
unsafe extern "C" fn on_entry(vcpu: c_uint, data: *mut c_void) {
    let Some(thread) = known_thread(vcpu) else {
        return;
    };
    let data = data.addr() as u64;
    if data & REGION == REGION {
        if let Some(entry) = thread.region.take() {
            let function = data >> KIND_BITS;
            thread.tracer.pass(MarkKind::Region, entry, function);
        }
        return;
    }
    let Some(name) = entry_points().nth(data as usize) else {
        return;
    };
    match MarkKind::of_symbol(name) {
        Some(MarkKind::Region) if marks::names_regions() => {
            thread.region = Some(region_entry(name));
        }
        Some(MarkKind::Region) => thread.tracer.pass(MarkKind::Region, region_entry(name), 0),
        Some(kind) => thread.tracer.pass(kind, name, 0),
        None => {}
    }
}

/// Registers a callback for the first byte that `numaloc_mark` loads.
fn register_user(translation: &blocks::Translation) {
    let mut instructions = translation.instructions.iter();
    let Some(load) = instructions.find(|one| one.usage == Use::Load(1)) else {
        return;
    };
    // SAFETY: as in `register`.
    unsafe {
        api::qemu_plugin_register_vcpu_mem_cb(
            load.insn,
            on_user_mark,
            api::NO_REGISTERS,
            api::READ_AND_WRITE,
            null_mut(),
        );
    }
}

/// A thread calls `numaloc_mark` with the name at `address`.
unsafe extern "C" fn on_user_mark(vcpu: c_uint, _: MemInfo, address: u64, _: *mut c_void) {
    if let Some(thread) = known_thread(vcpu)
        && let Some(name) = guest::text(address)
    {
        let mut name = name.to_string_lossy().into_owned();
        name.truncate(name.floor_char_boundary(NAME_BYTES));
        thread.tracer.pass(MarkKind::User, &name, 0);
    }
}
