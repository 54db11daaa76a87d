//! The tables' address space: large mappings that the program under study neither sees nor is charged with; and what else is mapped.
//!
//! They lie where Linux puts nothing by itself, between 32 and 80 TiB, as long as there is room. At addresses of the kernel's choice,
//! below what is mapped so far, they would drive apart what the program maps before and after, by terabytes: its addresses would not
//! be those of a run alone, and a shadow table's window would fold them onto its heap.

use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where tables begin; frontends may have memory of their own below.
pub const BEGIN: u64 = 32 << 40;
/// Where the next table should be.
static NEXT: AtomicU64 = AtomicU64::new(BEGIN);
/// Programs begin above (position-independent ones at 85.3 TiB).
const END: u64 = 80 << 40;

/// Where this process's tables are, as (start, end).
static RESERVED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// The address ranges of all tables; empty if another thread is reserving one.
pub(crate) fn reserved() -> Vec<(u64, u64)> {
    RESERVED
        .try_lock()
        .map_or_else(|_| Vec::new(), |ranges| ranges.clone())
}

/// Maps `bytes` new bytes that may be read and written, at `wish` if there is room, of `file` if one is given; `flags` as `mmap`'s.
///
/// By the system call itself: in an instrumented program the C library's `mmap` is the frontend's, which would take them for
/// memory of the program and forget the lines that lie there, which a window's fold makes lines of something else.
///
/// # Errors
/// The system's error when the address space cannot be had (for example under `ulimit -v`).
pub fn map(wish: u64, bytes: usize, flags: i32, file: Option<RawFd>) -> std::io::Result<*mut u8> {
    // SAFETY: a new mapping that replaces none: the kernel takes another place where ours is not free.
    let base = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            wish,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            file.unwrap_or(-1),
            0usize,
        )
    };
    match base {
        -1 => Err(std::io::Error::last_os_error()),
        base => Ok(base as *mut u8),
    }
}

/// Maps `words` words that read as zero, backed by memory as they are touched; of `file`, shared with its other users, if one is
/// given. Never unmapped.
///
/// # Errors
/// As [`map`].
pub(crate) fn reserve(words: u64, file: Option<RawFd>) -> std::io::Result<*mut AtomicU64> {
    let bytes = (words * 8) as usize;
    let kind = match file {
        Some(_) => libc::MAP_SHARED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    };
    // Of whole huge pages, and one that keeps tables apart.
    let room = (bytes as u64).next_multiple_of(2 << 20) + (2 << 20);
    let place = NEXT.fetch_add(room, Relaxed);
    // ThreadSanitizer has tables of its own there.
    let free = !cfg!(feature = "small-window") && place + room <= END;
    let wish = if free { place } else { 0 };
    let base = map(wish, bytes, kind | libc::MAP_NORESERVE, file)?;
    if let Ok(mut reserved) = RESERVED.try_lock() {
        reserved.push((base as u64, base as u64 + bytes as u64));
    }
    let advise = |advice| {
        // SAFETY: the range was just mapped; what is advised keeps it so.
        unsafe { libc::madvise(base.cast(), bytes, advice) };
    };
    // Core dumps of the program stay small, and a fork is as quick as without us: a child begins with empty tables.
    advise(libc::MADV_DONTDUMP);
    if file.is_none() {
        advise(libc::MADV_WIPEONFORK);
    }
    Ok(base.cast())
}

/// Whether anything is mapped at `address`, or the kernel does not say.
pub(crate) fn is_mapped(address: u64) -> bool {
    let page = address & !4095;
    let mut resident = 0u8;
    // SAFETY: the kernel looks at one page and writes one byte, of ours; `mincore` does not touch the page.
    let answer = unsafe { libc::mincore(page as *mut _, 1, &raw mut resident) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}
