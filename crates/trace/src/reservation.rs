//! The tables' address space: large mappings that the program under study neither sees nor is charged with.

use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Where this process's tables are, as (start, end).
static RESERVED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// The address ranges of all tables; empty if another thread is reserving one.
pub(crate) fn reserved() -> Vec<(u64, u64)> {
    RESERVED
        .try_lock()
        .map_or_else(|_| Vec::new(), |ranges| ranges.clone())
}

/// Maps `words` words that read as zero, backed by memory as they are touched; of `file`, shared with its other users, if one is
/// given. Never unmapped.
///
/// By the system call itself: in an instrumented program the C library's `mmap` is the frontend's, which would take the table for
/// memory of the program and forget the lines that lie there, which a window's fold makes lines of something else.
///
/// # Errors
/// The system's error when the address space cannot be had (for example under `ulimit -v`).
pub(crate) fn reserve(words: u64, file: Option<RawFd>) -> std::io::Result<*mut AtomicU64> {
    let bytes = (words * 8) as usize;
    let kind = match file {
        Some(_) => libc::MAP_SHARED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            0usize,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            kind | libc::MAP_NORESERVE,
            file.unwrap_or(-1),
            0usize,
        )
    };
    if base == -1 {
        return Err(std::io::Error::last_os_error());
    }
    if let Ok(mut reserved) = RESERVED.try_lock() {
        reserved.push((base as u64, base as u64 + bytes as u64));
    }
    let base = base as *mut AtomicU64;
    // SAFETY: the range was just mapped; advice cannot make it invalid. Core dumps of the program stay small.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTDUMP) };
    Ok(base)
}
