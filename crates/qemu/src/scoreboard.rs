//! QEMU's scoreboard: per-vCPU counters that translated code changes and tests without a call (QEMU 9.1 and later;
//! QEMU documentation, "TCG plugins").
//!
//! The functions are looked up by name, because an older QEMU could not load a plugin that links to them.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::api::{ExecutionCallback, NO_REGISTERS, TranslationBlock};

/// QEMU's opaque type.
enum Opaque {}

/// A counter of every vCPU, as passed to QEMU's functions.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    scoreboard: *mut Opaque,
    /// Offset in bytes in a vCPU's row.
    offset: usize,
}

type New = unsafe extern "C" fn(usize) -> *mut Opaque;
type Find = unsafe extern "C" fn(*mut Opaque, c_uint) -> *mut c_void;
type CallIf = unsafe extern "C" fn(
    *mut TranslationBlock,
    ExecutionCallback,
    c_int,
    c_int,
    Entry,
    u64,
    *mut c_void,
);
type Change = unsafe extern "C" fn(*mut TranslationBlock, c_int, Entry, u64);
type Count = unsafe extern "C" fn() -> c_int;

const ADD: c_int = 0;
const GREATER_OR_EQUAL: c_int = 7;

/// A row of counters for each vCPU, initially zero.
pub struct Scoreboard {
    scoreboard: *mut Opaque,
    /// Number of counters in a row.
    counters: usize,
    find: Find,
    call_if: CallIf,
    change: Change,
    vcpus: Count,
}

// SAFETY: QEMU's functions may be called by any thread; the pointer is only passed to them.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// A scoreboard with `counters` counters for each vCPU; `None` if the running QEMU has no scoreboards or no
    /// conditional calls.
    pub fn new(counters: usize) -> Option<Self> {
        // SAFETY: the types are those of QEMU's documentation; they have never changed.
        unsafe {
            let new: New = symbol(c"qemu_plugin_scoreboard_new")?;
            Some(Self {
                counters,
                find: symbol(c"qemu_plugin_scoreboard_find")?,
                call_if: symbol(c"qemu_plugin_register_vcpu_tb_exec_cond_cb")?,
                change: symbol(c"qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu")?,
                vcpus: symbol(c"qemu_plugin_num_vcpus")?,
                scoreboard: new(counters * size_of::<AtomicU64>()),
            })
        }
    }

    fn entry(&self, counter: u32) -> Entry {
        Entry {
            scoreboard: self.scoreboard,
            offset: counter as usize * size_of::<AtomicU64>(),
        }
    }

    /// Makes each execution of `block` decrement `counter`, and call `callback` with `data` if it was zero or less.
    ///
    /// # Safety
    /// `block` is being translated; `callback` takes `data`.
    pub unsafe fn count_down(
        &self,
        block: *mut TranslationBlock,
        counter: u32,
        callback: ExecutionCallback,
        data: *mut c_void,
    ) {
        // Larger than any count, and small enough for an immediate operand.
        const BELOW_ZERO: u64 = 1 << 30;
        let entry = self.entry(counter);
        // SAFETY: as the caller guarantees. QEMU executes both in this order; the comparison is unsigned.
        unsafe {
            (self.change)(block, ADD, entry, u64::MAX);
            (self.call_if)(
                block,
                callback,
                NO_REGISTERS,
                GREATER_OR_EQUAL,
                entry,
                BELOW_ZERO,
                data,
            );
        }
    }

    /// The counters of a running vCPU, for use in one of its callbacks.
    fn row(&self, vcpu: c_uint) -> &[AtomicU64] {
        // SAFETY: the row of a running vCPU is in the scoreboard, with the length it was made with. QEMU moves it only
        // while no vCPU is in a callback of its code.
        unsafe {
            std::slice::from_raw_parts((self.find)(self.scoreboard, vcpu).cast(), self.counters)
        }
    }

    /// A counter of a running vCPU, for use in one of its callbacks.
    pub fn counter(&self, vcpu: c_uint, counter: u32) -> &AtomicU64 {
        &self.row(vcpu)[counter as usize]
    }

    /// Zeroes the first `counters` of all vCPUs. No other vCPU may be running.
    pub fn clear(&self, counters: u32) {
        // SAFETY: no precondition.
        let vcpus = unsafe { (self.vcpus)() };
        for vcpu in 0..c_uint::try_from(vcpus).unwrap_or(0) {
            for counter in &self.row(vcpu)[..counters as usize] {
                counter.store(0, Relaxed);
            }
        }
    }
}

/// Looks up a function of QEMU.
///
/// # Safety
/// `F` is the type of that function's address.
unsafe fn symbol<F>(name: &CStr) -> Option<F> {
    // SAFETY: a constant name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: as the caller guarantees; both are an address.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}
