//! The C library's functions that copy, fill and compare memory, for the engine.
//!
//! The C library chooses versions that use all of the vector registers. While an access is recorded, the upper parts of
//! these registers are the program's ([`crate::crossing`]), so the engine has versions of its own that use general
//! registers only.
#![allow(unsafe_code)]

use std::arch::asm;

/// Longest copies made word by word: the processor takes long to begin a repeated instruction.
const SHORT: usize = 128;

/// A word at an address. Volatile, as everywhere here, so that this is not compiled to a call of these functions.
///
/// # Safety
/// The word can be read.
unsafe fn word(at: *const u8) -> u64 {
    // SAFETY: as the caller promises.
    u64::from_ne_bytes(unsafe { at.cast::<[u8; WORD]>().read_volatile() })
}

/// Stores a word.
///
/// # Safety
/// The word can be written.
unsafe fn set_word(at: *mut u8, word: u64) {
    // SAFETY: as the caller promises.
    unsafe { at.cast::<[u8; WORD]>().write_volatile(word.to_ne_bytes()) };
}

const WORD: usize = size_of::<u64>();

/// Copies fewer bytes than a word has.
///
/// # Safety
/// As for [`memcpy`].
#[inline(always)]
unsafe fn copy_few(to: *mut u8, from: *const u8, len: usize) {
    const HALF: usize = WORD / 2;
    // SAFETY: as the caller promises.
    unsafe {
        if len >= HALF {
            let last = from.add(len - HALF).cast::<[u8; HALF]>().read_volatile();
            let first = from.cast::<[u8; HALF]>().read_volatile();
            to.cast::<[u8; HALF]>().write_volatile(first);
            to.add(len - HALF).cast::<[u8; HALF]>().write_volatile(last);
            return;
        }
        for at in 0..len {
            to.add(at).write_volatile(from.add(at).read_volatile());
        }
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: as the caller promises; the last word may contain bytes that were copied before.
    unsafe {
        if (WORD..=SHORT).contains(&len) {
            let last = word(from.add(len - WORD));
            let mut at = 0;
            while at + WORD < len {
                set_word(to.add(at), word(from.add(at)));
                at += WORD;
            }
            set_word(to.add(len - WORD), last);
            return to;
        }
        if len < WORD {
            copy_few(to, from, len);
            return to;
        }
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
    let mut rest = len;
    while rest >= WORD {
        rest -= WORD;
        // SAFETY: as the caller promises.
        unsafe { set_word(to.add(rest), word(from.add(rest))) };
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
        if (WORD..=SHORT).contains(&len) {
            let word = u64::from_ne_bytes([byte as u8; WORD]);
            let mut at = 0;
            while at + WORD < len {
                set_word(to.add(at), word);
                at += WORD;
            }
            set_word(to.add(len - WORD), word);
            return to;
        }
        asm!("rep stosb", inout("rdi") to => _, in("al") byte as u8, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    let mut same = 0;
    // SAFETY: as the caller promises.
    while same + WORD <= len && unsafe { word(one.add(same)) == word(other.add(same)) } {
        same += WORD;
    }
    for at in same..len {
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
