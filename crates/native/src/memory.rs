//! The C library's functions that copy, fill and compare memory, for the engine.
//!
//! The C library chooses versions that use all of the vector registers. While an access is recorded, the upper parts of
//! these registers are the program's ([`crate::crossing`]), so the engine has versions of its own that use general
//! registers, and the lower parts of vector registers where copying takes long.
#![allow(unsafe_code)]

use std::arch::asm;

/// Longest copies that are not made by a repeated instruction, which the processor takes long to begin.
const SHORT: usize = 1024;

/// A word at an address, which need not be aligned. In assembly, so that this is not compiled to a call of these
/// functions; a volatile load of a word that is not aligned would be one of each byte.
///
/// # Safety
/// The word can be read.
#[inline(always)]
unsafe fn word(at: *const u8) -> u64 {
    let word;
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov {}, [{}]", out(reg) word, in(reg) at,
            options(nostack, preserves_flags, readonly))
    };
    word
}

/// Stores a word.
///
/// # Safety
/// The word can be written.
#[inline(always)]
unsafe fn set_word(at: *mut u8, word: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov [{}], {}", in(reg) at, in(reg) word, options(nostack, preserves_flags));
    }
}

/// The half of a word at an address.
///
/// # Safety
/// It can be read.
#[inline(always)]
unsafe fn half(at: *const u8) -> u32 {
    let half;
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov {:e}, [{}]", out(reg) half, in(reg) at,
            options(nostack, preserves_flags, readonly))
    };
    half
}

/// Stores the half of a word.
///
/// # Safety
/// It can be written.
#[inline(always)]
unsafe fn set_half(at: *mut u8, half: u32) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov [{}], {:e}", in(reg) at, in(reg) half, options(nostack, preserves_flags));
    }
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
            let (first, last) = (half(from), half(from.add(len - HALF)));
            set_half(to, first);
            set_half(to.add(len - HALF), last);
            return;
        }
        for at in 0..len {
            to.add(at).write_volatile(from.add(at).read_volatile());
        }
    }
}

/// Bytes of the lower part of a vector register.
const VECTOR: usize = 16;

/// Copies at least [`VECTOR`] bytes, upward.
///
/// # Safety
/// As for [`memcpy`].
#[inline(always)]
unsafe fn copy_vectors(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises; the last part may contain bytes that were copied before.
    unsafe {
        asm!(
            "movups {last}, [{from} + {end}]",
            "2:",
            "movups {part}, [{from} + {at}]",
            "movups [{to} + {at}], {part}",
            "add {at}, 16",
            "cmp {at}, {end}",
            "jb 2b",
            "movups [{to} + {end}], {last}",
            to = in(reg) to,
            from = in(reg) from,
            end = in(reg) len - VECTOR,
            at = inout(reg) 0_usize => _,
            part = out(xmm_reg) _,
            last = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: as the caller promises; the last word may contain bytes that were copied before.
    unsafe {
        if (VECTOR..=SHORT).contains(&len) {
            copy_vectors(to, from, len);
            return to;
        }
        if len < WORD {
            copy_few(to, from, len);
            return to;
        }
        if len < VECTOR {
            let (first, last) = (word(from), word(from.add(len - WORD)));
            set_word(to, first);
            set_word(to.add(len - WORD), last);
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
