//! `personality`: while `READ_IMPLIES_EXEC` is set, memory that the program maps, protects or adds to its heap may be
//! executed where it may be read. Lisp systems set it. The kernel clears it when a program of 64 bits is executed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::plain;

/// Whether memory that may be read may be executed.
static IMPLIED: AtomicBool = AtomicBool::new(false);

/// Argument that only asks.
const ASK: u32 = u32::MAX;

/// `personality`.
pub fn personality(a: [u64; 6]) -> i64 {
    let result = plain(libc::SYS_personality, a);
    if result >= 0 && a[0] as u32 != ASK {
        IMPLIED.store(a[0] & libc::READ_IMPLIES_EXEC as u64 != 0, Relaxed);
    }
    result
}

/// The protection that the kernel gives memory for which the program wants `prot`.
pub fn given(prot: u64) -> u64 {
    let is_readable = prot & libc::PROT_READ as u64 != 0;
    if is_readable && IMPLIED.load(Relaxed) {
        prot | libc::PROT_EXEC as u64
    } else {
        prot
    }
}
