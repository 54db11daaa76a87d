//! QEMU's plugin interface, as far as we use it (QEMU documentation, "TCG plugins").
//!
//! Declared for API version 1 (QEMU 4.2 to 8.2). Later versions kept what we call, except `qemu_plugin_insn_data`
//! (see [`insn_bytes`]).

use std::ffi::{c_char, c_int, c_uint, c_void};

pub type PluginId = u64;
pub type MemInfo = u32;

/// A translation block; owned by QEMU, valid during the translation callback.
pub enum TranslationBlock {}
/// An instruction of one.
pub enum Insn {}

/// What QEMU says about itself when it loads a plugin.
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    /// Lowest API version it accepts.
    pub version_min: c_int,
    /// Its own API version.
    pub version_current: c_int,
    pub system_emulation: bool,
}

pub const NO_REGISTERS: c_int = 0;
pub const READ: c_int = 1;
pub const WRITE: c_int = 2;

pub type MemCallback = unsafe extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
pub type SyscallCallback =
    unsafe extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type SyscallReturnCallback = unsafe extern "C" fn(PluginId, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        callback: unsafe extern "C" fn(PluginId, *mut TranslationBlock),
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: MemCallback,
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: SyscallCallback);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, callback: SyscallReturnCallback);
    pub fn qemu_plugin_register_atexit_cb(
        id: PluginId,
        callback: unsafe extern "C" fn(PluginId, *mut c_void),
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const TranslationBlock) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const TranslationBlock, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, length: usize) -> *const c_void;
    fn qemu_plugin_mem_size_shift(info: MemInfo) -> c_uint;
}

/// First API version whose `qemu_plugin_insn_data` copies instead of returning an address.
const COPYING_INSN_DATA: c_int = 3;

/// The bytes of an instruction, and how many there are.
///
/// # Safety
/// `insn` must be an instruction of the block being translated; `version` that of the running QEMU.
pub unsafe fn insn_bytes(insn: *const Insn, version: c_int) -> ([u8; 16], usize) {
    let mut bytes = [0u8; 16];
    // SAFETY: `insn` is valid (caller). Versions below 3 ignore the two further arguments (C calling convention) and return
    // the address of the bytes; later ones fill the buffer they are given.
    let size = unsafe { qemu_plugin_insn_size(insn) }.min(16);
    // SAFETY: as above; the buffer has room for `size` bytes.
    let data = unsafe { qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), size) };
    if version < COPYING_INSN_DATA && !data.is_null() {
        // SAFETY: QEMU keeps `size` bytes there during translation.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), size) };
    }
    (bytes, size)
}

/// Bytes of the access that `info` describes.
#[inline(always)]
pub fn access_size(info: MemInfo) -> u32 {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    // The size depends on the low half of `info` alone (the high half says read or write), and QEMU's answer is a call through
    // two libraries: ask once for each value.
    static KNOWN: [AtomicU8; 1 << 16] = [const { AtomicU8::new(0) }; 1 << 16];
    let known = &KNOWN[info as usize & 0xffff];
    match known.load(Relaxed) {
        0 => {
            // SAFETY: a pure function of the number QEMU handed us.
            let size = 1u8 << unsafe { qemu_plugin_mem_size_shift(info) }.min(7);
            known.store(size, Relaxed);
            size.into()
        }
        size => size.into(),
    }
}
