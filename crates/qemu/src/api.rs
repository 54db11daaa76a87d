//! QEMU's plugin interface, as far as it is used here (QEMU documentation, "TCG plugins").
//!
//! Declared for API version 1 (QEMU 4.2 to 8.2). Later versions kept these functions, except `qemu_plugin_insn_data`
//! (see [`insn_bytes`]).

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

pub type PluginId = u64;
pub type MemInfo = u32;

/// A translation block; owned by QEMU, valid during the translation callback.
pub enum TranslationBlock {}
/// An instruction of a translation block.
pub enum Insn {}

/// QEMU's description of itself when it loads a plugin.
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
pub const READ_AND_WRITE: c_int = 3;
/// Selects one of the two accesses of an instruction that loads and stores: the load; in QEMU 7.2 the store (its
/// filter takes a load for a store, and a store for both).
pub const ONE_OF_TWO: c_int = 1;

pub type MemCallback = unsafe extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
pub type ExecutionCallback = unsafe extern "C" fn(c_uint, *mut c_void);
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
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: ExecutionCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut TranslationBlock,
        callback: ExecutionCallback,
        flags: c_int,
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
    fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
}

/// First API version whose `qemu_plugin_insn_data` copies instead of returning an address.
const COPYING_INSN_DATA: c_int = 3;

/// The bytes of an instruction, and their number.
///
/// # Safety
/// `insn` must be an instruction of the block being translated, and `version` that of the running QEMU.
pub unsafe fn insn_bytes(insn: *const Insn, version: c_int) -> ([u8; 16], usize) {
    let mut bytes = [0u8; 16];
    // SAFETY: `insn` is valid (caller). Versions below 3 ignore the two further arguments (C calling convention) and
    // return the address of the bytes; later ones fill the buffer.
    let size = unsafe { qemu_plugin_insn_size(insn) }.min(16);
    // SAFETY: as above; the buffer has room for `size` bytes.
    let data = unsafe { qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), size) };
    if version < COPYING_INSN_DATA && !data.is_null() {
        // SAFETY: QEMU keeps `size` bytes there during translation.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), size) };
    }
    (bytes, size)
}

/// The bits of `info` used by [`plain_info`].
pub const PLAIN_BITS: MemInfo = STORE_BIT | SIZE_BITS;
const STORE_BIT: MemInfo = 1 << 17;
const SIZE_BITS: MemInfo = 0x70;

/// The [`PLAIN_BITS`] of `info` for an access of `1 << shift` bytes, if [`info_is_plain`].
#[must_use]
pub const fn plain_info(store: bool, shift: u32) -> MemInfo {
    shift << 4 | if store { STORE_BIT } else { 0 }
}

/// Whether this QEMU encodes an access's size and direction as [`plain_info`] does. It has done so since plugins were
/// introduced, but the interface does not guarantee it; asking QEMU for each access is slower.
pub fn info_is_plain() -> bool {
    // Every size and direction, with each further bit set in turn.
    let kinds = (0..8u32).flat_map(|shift| [plain_info(false, shift), plain_info(true, shift)]);
    let others = (0..18)
        .map(|bit| 1 << bit)
        .filter(|bit| bit & PLAIN_BITS == 0);
    let mut infos = kinds.flat_map(|kind| others.clone().chain([0]).map(move |other| kind | other));
    infos.all(|info| {
        // SAFETY: pure functions of a number.
        let (shift, store) = unsafe {
            (
                qemu_plugin_mem_size_shift(info),
                qemu_plugin_mem_is_store(info),
            )
        };
        info & PLAIN_BITS == plain_info(store, shift & 7)
    })
}

/// Cached results of [`access_kind`] by the low 18 bits of `info`, on which they depend; 0 if not cached.
static KINDS: [AtomicU8; 1 << 18] = [const { AtomicU8::new(0) }; 1 << 18];

/// The cached result of [`access_kind`] for `info`, 0 if there is none.
#[inline(always)]
pub fn known_kind(info: MemInfo) -> u8 {
    KINDS[info as usize & 0x3ffff].load(Relaxed)
}

/// The size in bytes of the access described by `info`, with [`STORE`] set for a store.
pub fn access_kind(info: MemInfo) -> u8 {
    match known_kind(info) {
        0 => {
            // SAFETY: pure functions of the number QEMU passed.
            let (shift, store) = unsafe {
                (
                    qemu_plugin_mem_size_shift(info),
                    qemu_plugin_mem_is_store(info),
                )
            };
            let kind = 1u8 << shift.min(6) | if store { STORE } else { 0 };
            KINDS[info as usize & 0x3ffff].store(kind, Relaxed);
            kind
        }
        kind => kind,
    }
}

/// Flag in the result of [`access_kind`].
pub const STORE: u8 = 0x80;
