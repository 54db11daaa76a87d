//! The C library's functions that copy, fill and compare memory, for the engine.
//!
//! The C library chooses versions that use all of the vector registers. While an access is recorded, the upper parts of
//! these registers are the program's ([`crate::crossing`]), so the engine has versions of its own that use general
//! registers only.
#![allow(unsafe_code)]

use std::arch::asm;

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: upward, no byte is overwritten before it is read.
        return unsafe { memcpy(to, from, len) };
    }
    const WORD: usize = size_of::<u64>();
    let mut rest = len;
    while rest >= WORD {
        rest -= WORD;
        // SAFETY: as the caller promises; volatile, so that this is not compiled to a call of this function.
        unsafe {
            let word = from.add(rest).cast::<[u8; WORD]>().read_volatile();
            to.add(rest).cast::<[u8; WORD]>().write_volatile(word);
        }
    }
    while rest > 0 {
        rest -= 1;
        // SAFETY: as above.
        unsafe { to.add(rest).write_volatile(from.add(rest).read_volatile()) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("rep stosb", inout("rdi") to => _, in("al") byte as u8, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: as the caller promises; volatile as above.
        let (one, other) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
    }
    0
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { memcmp(one, other, len) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: as the caller promises; volatile as above.
    while unsafe { string.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
