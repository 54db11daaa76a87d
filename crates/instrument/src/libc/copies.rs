//! `memcpy` and similar functions: copies and fills of the C library, recorded as the ranges they read and write.
//!
//! No compiler announces them (gcc and clang up to 14 leave them to the sanitizer's interceptors), though they may be
//! much of a program's traffic: both compilers turn loops that fill or copy arrays into such calls. Their accesses
//! count for the calling thread, whether the program or a library calls them, and under whatever name. The C library
//! does the work.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::current;
use crate::real::{self, real};
use crate::tsan::ranges::range;

/// Addresses of the C library's functions, 0 until they are looked up: the look-up may itself copy.
static MEMCPY: AtomicUsize = AtomicUsize::new(0);
static MEMMOVE: AtomicUsize = AtomicUsize::new(0);
static MEMSET: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Target and size of the last structure copy announced.
    static ANNOUNCED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Looks up the C library's functions; called once, before the program has threads.
pub(crate) fn find() {
    for (cache, name) in [
        (&MEMCPY, c"memcpy"),
        (&MEMMOVE, c"memmove"),
        (&MEMSET, c"memset"),
    ] {
        real::address(cache, name);
    }
}

/// Notes that the compiler has announced a store of `size` bytes at `to`, which it may make by a call.
pub(crate) fn announced(to: *const c_void, size: usize) {
    ANNOUNCED.set((to as usize, size));
}

/// Records a copy, unless the compiler has announced it or it is the recorder's own.
fn copied(to: *const c_void, from: *const c_void, size: usize) {
    if current::is_ours() {
        return;
    }
    if ANNOUNCED.replace((0, 0)) != (to as usize, size) {
        range::<false>(from, size);
        range::<true>(to, size);
    }
}

/// Records a fill, unless the compiler has announced it or it is the recorder's own.
fn filled(to: *const c_void, size: usize) {
    if current::is_ours() {
        return;
    }
    if ANNOUNCED.replace((0, 0)) != (to as usize, size) {
        range::<true>(to, size);
    }
}

/// Copies without the C library.
///
/// # Safety
/// As for `memmove`.
unsafe fn copy_alone(to: *mut c_void, from: *const c_void, size: usize) {
    let overlap_ahead = (to as usize).wrapping_sub(from as usize) < size;
    // SAFETY: reads and writes `size` bytes, valid as the caller guarantees; the direction flag is clear again at the
    // end.
    unsafe {
        if overlap_ahead && size > 0 {
            std::arch::asm!("std", "rep movsb", "cld",
                inout("rcx") size => _,
                inout("rdi") to.byte_add(size - 1) => _,
                inout("rsi") from.byte_add(size - 1) => _,
                options(nostack));
        } else {
            std::arch::asm!("rep movsb",
                inout("rcx") size => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        }
    }
}

type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type Fill = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;

/// Copies with the function in `cache`.
///
/// # Safety
/// As for that function.
unsafe fn copy_by(
    cache: &AtomicUsize,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> *mut c_void {
    match cache.load(Relaxed) {
        0 => {
            // SAFETY: guaranteed by the caller.
            unsafe { copy_alone(to, from, size) };
            to
        }
        address => {
            // SAFETY: the address is that of the C library's function, which has this type; the rest is guaranteed by
            // the caller.
            unsafe { std::mem::transmute::<usize, Copy>(address)(to, from, size) }
        }
    }
}

/// Copies.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, size: usize) -> *mut c_void {
    copied(to, from, size);
    // SAFETY: guaranteed by the caller.
    unsafe { copy_by(&MEMCPY, to, from, size) }
}

/// Copies ranges that may overlap.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, size: usize) -> *mut c_void {
    copied(to, from, size);
    // SAFETY: guaranteed by the caller.
    unsafe { copy_by(&MEMMOVE, to, from, size) }
}

/// Fills.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut c_void, value: c_int, size: usize) -> *mut c_void {
    filled(to, size);
    match MEMSET.load(Relaxed) {
        0 => {
            // SAFETY: writes `size` bytes, valid as the caller guarantees.
            unsafe {
                std::arch::asm!("rep stosb",
                    inout("rcx") size => _, inout("rdi") to => _, in("al") value as u8,
                    options(nostack, preserves_flags));
            }
            to
        }
        // SAFETY: as in `copy_by`.
        address => unsafe { std::mem::transmute::<usize, Fill>(address)(to, value, size) },
    }
}

/// Copies; returns the end of the copy.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mempcpy(to: *mut c_void, from: *const c_void, size: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { memcpy(to, from, size).byte_add(size) }
}

/// Compares; records the bytes read up to the first difference.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const c_void, b: *const c_void, size: usize) -> c_int {
    let real = real!(memcmp: fn(*const c_void, *const c_void, usize) -> c_int);
    // SAFETY: guaranteed by the caller.
    let order = unsafe { real(a, b, size) };
    if current::engine().is_some() && !current::is_ours() {
        let mut read = size;
        if order != 0 {
            // SAFETY: they differ within `size` bytes, so no byte beyond is read.
            let same = |at: usize| unsafe { *a.cast::<u8>().add(at) == *b.cast::<u8>().add(at) };
            read = (0..size).take_while(|&at| same(at)).count() + 1;
        }
        range::<false>(a, read);
        range::<false>(b, read);
    }
    order
}

/// Compares for equality: clang's name for a `memcmp` whose order is not needed.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const c_void, b: *const c_void, size: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { memcmp(a, b, size) }
}

/// Fills with zero.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bzero(to: *mut c_void, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { memset(to, 0, size) };
}

/// `fn $name(to, second, size, room)`: the fortified form of `$plain`.
macro_rules! fortified {
    ($($name:ident: $plain:ident($second:ty);)*) => {$(
        /// The same, in a program built with `_FORTIFY_SOURCE`: ends the program if it would write beyond `room`
        /// bytes.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: *mut c_void, second: $second, size: usize, room: usize) -> *mut c_void {
            if size > room {
                let real = real!($name: fn(*mut c_void, $second, usize, usize) -> *mut c_void);
                // SAFETY: guaranteed by the caller; it does not return.
                return unsafe { real(to, second, size, room) };
            }
            // SAFETY: guaranteed by the caller.
            unsafe { $plain(to, second, size) }
        }
    )*};
}

fortified! {
    __memcpy_chk: memcpy(*const c_void);
    __memmove_chk: memmove(*const c_void);
    __mempcpy_chk: mempcpy(*const c_void);
    __memset_chk: memset(c_int);
}

/// `fn $name`: the name by which instrumented code of clang 15 and later calls `$plain`.
macro_rules! instrumented {
    ($($name:ident: $plain:ident($second:ty);)*) => {$(
        /// The same, called by instrumented code.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: *mut c_void, second: $second, size: usize) -> *mut c_void {
            // SAFETY: guaranteed by the caller.
            unsafe { $plain(to, second, size) }
        }
    )*};
}

instrumented! {
    __tsan_memcpy: memcpy(*const c_void);
    __tsan_memmove: memmove(*const c_void);
    __tsan_memset: memset(c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_before_the_look_up_are_those_of_the_c_library() {
        for (to, from) in [(0usize, 5usize), (5, 0), (3, 3), (20, 0)] {
            let mut alone: Vec<u8> = (0..40).collect();
            let mut real = alone.clone();
            let at = alone.as_mut_ptr();
            // SAFETY: within the vector.
            unsafe { copy_alone(at.add(to).cast(), at.add(from).cast(), 16) };
            real.copy_within(from..from + 16, to);
            assert_eq!(alone, real, "{from} to {to}");
        }
    }
}
