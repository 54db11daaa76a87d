//! Accesses the program's memory safely: a bad address is an error, not a fault of the engine.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::crossing::native_copy;
use crate::sys::PAGE;

/// Reads a plain value; `None` if memory faults.
pub fn read<T: Copy>(at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: writes the value's bytes; faults of the source end the copy.
    let remaining =
        unsafe { native_copy(value.as_mut_ptr().cast(), at as *const u8, size_of::<T>()) };
    // SAFETY: all bytes were written; callers read numbers and arrays of them.
    (remaining == 0).then(|| unsafe { value.assume_init() })
}

/// Fills `to` with bytes; false if memory faults.
pub fn read_bytes(at: u64, to: &mut [u8]) -> bool {
    // SAFETY: writes into the slice; faults of the source end the copy.
    unsafe { native_copy(to.as_mut_ptr(), at as *const u8, to.len()) == 0 }
}

/// Writes a plain value; false if memory faults.
pub fn write<T: Copy>(at: u64, value: &T) -> bool {
    // SAFETY: reads the value's bytes; the target is an address given by the program, and faults are caught.
    unsafe { native_copy(at as *mut u8, (&raw const *value).cast(), size_of::<T>()) == 0 }
}

/// Writes bytes; false if memory faults.
pub fn write_bytes(at: u64, bytes: &[u8]) -> bool {
    // SAFETY: as in `write`.
    unsafe { native_copy(at as *mut u8, bytes.as_ptr(), bytes.len()) == 0 }
}

/// Reads bytes; `None` if memory faults.
pub fn bytes(at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: writes into the vector; faults of the source end the copy.
    let remaining = unsafe { native_copy(bytes.as_mut_ptr(), at as *const u8, len) };
    (remaining == 0).then_some(bytes)
}

/// Reads a string up to its NUL byte; `None` if memory faults, or beyond `limit` bytes.
pub fn string(at: u64, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at = at;
    while bytes.len() < limit {
        let len = (PAGE - at % PAGE) as usize;
        let start = bytes.len();
        bytes.resize(start + len, 0);
        // SAFETY: writes into the vector; faults of the source end the copy.
        let remaining = unsafe { native_copy(bytes.as_mut_ptr().add(start), at as *const u8, len) };
        if remaining != 0 {
            return None;
        }
        if let Some(end) = bytes[start..].iter().position(|&byte| byte == 0) {
            bytes.truncate(start + end);
            return Some(bytes);
        }
        at += len as u64;
    }
    None
}

/// Reads pointers up to a null pointer.
pub fn pointers(at: u64) -> Option<Vec<u64>> {
    let mut pointers = Vec::new();
    if at == 0 {
        return Some(pointers);
    }
    loop {
        let pointer: u64 = read(at + 8 * pointers.len() as u64)?;
        if pointer == 0 {
            return Some(pointers);
        }
        pointers.push(pointer);
    }
}
