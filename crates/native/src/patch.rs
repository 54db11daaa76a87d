//! Writes to the code cache and its tables.
#![allow(unsafe_code)]

/// Writes a word of a table.
pub fn write64(at: u64, value: u64) {
    // SAFETY: callers name words of the tables.
    unsafe { (at as *mut u64).write_volatile(value) };
}

/// Reads a word of a table.
pub fn read64(at: u64) -> u64 {
    // SAFETY: as in `write64`.
    unsafe { (at as *const u64).read_volatile() }
}

/// Writes new code.
pub fn write(at: u64, code: &[u8]) {
    // SAFETY: callers name room of the cache that no thread executes.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
}

/// Changes the target of a jump while others may execute it: its displacement, at this address, lies in an aligned word
/// of eight bytes ([`jump`](crate::jump)).
pub fn retarget(displacement: u64, to: u64) {
    let distance = to.wrapping_sub(displacement + 4) as i32;
    // SAFETY: the displacement of a jump in the cache; one store, wherever it lies in its word.
    unsafe {
        std::arch::asm!("mov dword ptr [{}], {:e}", in(reg) displacement, in(reg) distance,
            options(nostack, preserves_flags));
    }
}
