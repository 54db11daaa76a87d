//! Records plain loads and stores, as announced by gcc and clang.

use std::ffi::c_void;

use numaloc_trace::ThreadTracer;
use numaloc_trace::thread::WORD;

use super::ranges::range;
use crate::{current, slot};

/// `fn $name(address)`: called by instrumented code before an access of `$size` bytes, or a load and a store.
/// `$aligned` is what the compiler assumes.
#[cfg(target_arch = "x86_64")]
macro_rules! accesses {
    (aligned $aligned:literal; $($name:ident: $($write:literal)+, $size:literal;)*) => {$(
        slot::entry!(
            $name,
            [$($write),+].len() * words($size),
            recording::<$size, { [$($write),+].len() == 2 }, { [$($write),+][0] }, $aligned>,
            sampled::<$size, { [$($write),+].len() == 2 }, { [$($write),+][0] }>
        );
    )*};
}

/// The same on hosts without [`slot::entry`].
#[cfg(not(target_arch = "x86_64"))]
macro_rules! accesses {
    (aligned $aligned:literal; $($name:ident: $($write:literal)+, $size:literal;)*) => {$(
        /// Called by instrumented code before the access.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(address: *const c_void) {
            const BOTH: bool = [$($write),+].len() == 2;
            const WRITE: bool = [$($write),+][0];
            let tracer = slot::recording();
            if !tracer.is_null() {
                recording::<$size, BOTH, WRITE, $aligned>(address as u64, tracer, std::ptr::null());
            } else if !slot::skip(address as u64, (1 + u64::from(BOTH)) * words($size) as u64) {
                sampled::<$size, BOTH, WRITE>(address as u64, tracer, std::ptr::null());
            }
        }
    )*};
}

/// Records an access with a tracer that records every access; mostly without a call.
extern "C" fn recording<
    const SIZE: u32,
    const BOTH: bool,
    const WRITE: bool,
    const ALIGNED: bool,
>(
    address: u64,
    tracer: *mut ThreadTracer,
    caller: *const u64,
) {
    // SAFETY: a tracer in its slot belongs to this thread and is in use by nothing but a `recording` that a signal has
    // interrupted, which leaves it fit for use at any moment; it is not freed while the thread can be in one
    // (`end_on_signal`).
    let tracer = unsafe { &mut *tracer };
    for_words::<SIZE>(address, |address| {
        let counted = if BOTH {
            tracer.fast_update::<ALIGNED>(address, word(SIZE))
        } else {
            tracer.fast::<WRITE, ALIGNED>(address, word(SIZE))
        };
        if !counted && current::engine().is_some() {
            slow::<SIZE, BOTH, WRITE>(address, caller);
        }
    });
}

/// Records an access to a sampled line with a tracer that samples; also called when there is no tracer, or it is in
/// use.
extern "C" fn sampled<const SIZE: u32, const BOTH: bool, const WRITE: bool>(
    address: u64,
    _: *mut ThreadTracer,
    caller: *const u64,
) {
    for_words::<SIZE>(address, |address| {
        let counted = slot::sampled(|tracer| {
            if BOTH {
                tracer.fast_sampled_update(address, word(SIZE))
            } else {
                tracer.fast_sampled::<WRITE>(address, word(SIZE))
            }
        });
        if !counted && current::engine().is_some() {
            slow::<SIZE, BOTH, WRITE>(address, caller);
        }
    });
}

/// Number of accesses that one of `size` bytes counts as.
const fn words(size: u32) -> usize {
    size.div_ceil(WORD as u32) as usize
}

/// Bytes of each of these accesses: sizes are powers of two.
const fn word(size: u32) -> u32 {
    if size > WORD as u32 {
        WORD as u32
    } else {
        size
    }
}

/// Calls `count` with the address of each of these accesses.
#[inline(always)]
fn for_words<const SIZE: u32>(address: u64, mut count: impl FnMut(u64)) {
    for at in 0..words(SIZE) as u64 {
        count(address + at * WORD);
    }
}

/// The code that has made the call whose return address is at `caller`: an address within the call instruction, or 0
/// if `caller` is null.
pub(super) fn place(caller: *const u64) -> u64 {
    // SAFETY: null, or where the return address of a function lies that has not returned.
    unsafe { caller.as_ref() }.map_or(0, |address| address.wrapping_sub(1))
}

/// Records any other access, of a word at most: a load and a store (`BOTH`), or one of them. Never unwinds, so that
/// its callers need no landing pad.
#[inline(never)]
extern "C" fn slow<const SIZE: u32, const BOTH: bool, const WRITE: bool>(
    address: u64,
    caller: *const u64,
) {
    current::with(|tracer| {
        tracer.set_place(place(caller));
        if BOTH {
            tracer.slow::<false, false>(address, word(SIZE));
            tracer.slow::<true, false>(address, word(SIZE));
        } else {
            tracer.slow::<WRITE, false>(address, word(SIZE));
        }
    });
}

accesses! {
    aligned true;
    __tsan_read1: false, 1;
    __tsan_read2: false, 2;
    __tsan_read4: false, 4;
    __tsan_read8: false, 8;
    __tsan_read16: false, 16;
    __tsan_write1: true, 1;
    __tsan_write2: true, 2;
    __tsan_write4: true, 4;
    __tsan_write8: true, 8;
    __tsan_write16: true, 16;
    __tsan_read_write1: false true, 1;
    __tsan_read_write2: false true, 2;
    __tsan_read_write4: false true, 4;
    __tsan_read_write8: false true, 8;
    __tsan_read_write16: false true, 16;
    __tsan_volatile_read1: false, 1;
    __tsan_volatile_read2: false, 2;
    __tsan_volatile_read4: false, 4;
    __tsan_volatile_read8: false, 8;
    __tsan_volatile_read16: false, 16;
    __tsan_volatile_write1: true, 1;
    __tsan_volatile_write2: true, 2;
    __tsan_volatile_write4: true, 4;
    __tsan_volatile_write8: true, 8;
    __tsan_volatile_write16: true, 16;
    __tsan_vptr_read: false, 8;
}

accesses! {
    aligned false;
    __tsan_unaligned_read2: false, 2;
    __tsan_unaligned_read4: false, 4;
    __tsan_unaligned_read8: false, 8;
    __tsan_unaligned_read16: false, 16;
    __tsan_unaligned_write2: true, 2;
    __tsan_unaligned_write4: true, 4;
    __tsan_unaligned_write8: true, 8;
    __tsan_unaligned_write16: true, 16;
    __tsan_unaligned_read_write2: false true, 2;
    __tsan_unaligned_read_write4: false true, 4;
    __tsan_unaligned_read_write8: false true, 8;
    __tsan_unaligned_read_write16: false true, 16;
    __tsan_unaligned_volatile_read2: false, 2;
    __tsan_unaligned_volatile_read4: false, 4;
    __tsan_unaligned_volatile_read8: false, 8;
    __tsan_unaligned_volatile_read16: false, 16;
    __tsan_unaligned_volatile_write2: true, 2;
    __tsan_unaligned_volatile_write4: true, 4;
    __tsan_unaligned_volatile_write8: true, 8;
    __tsan_unaligned_volatile_write16: true, 16;
}

/// Called when a constructor or destructor sets an object's vtable pointer.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_vptr_update(address: *const c_void, _new: *const c_void) {
    current::with(|tracer| tracer.access::<true, false>(address as u64, 8));
}

/// Called before a load of many bytes: structure copies.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_read_range(address: *const c_void, size: usize) {
    range::<false>(address, size);
}

/// Called before a store of many bytes: structure copies.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_write_range(address: *const c_void, size: usize) {
    range::<true>(address, size);
    crate::libc::copies::announced(address, size);
}

/// Called at a function's entry; nothing to count.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_func_entry(_caller: *const c_void) {}

/// Called at a function's exit; nothing to count.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_func_exit() {}

/// Marks a program that carries this library: `numaloc record` looks for the section.
#[unsafe(link_section = ".numaloc")]
static MARK: u32 = 1;

/// Called by a constructor of every instrumented file; the first call starts the recording.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_init() {
    // Keeps the mark in the program.
    std::hint::black_box(&MARK);
    crate::libc::threads::start();
}
