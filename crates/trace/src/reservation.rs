//! Address space for the tables: large mappings that the program under study neither sees nor is charged for. Also
//! tells whether an address is mapped.
//!
//! Tables lie between 88 and 110 TiB, above the heaps of position-independent programs and below mappings, as long as
//! there is room, then between 32 and 80 TiB: Linux places nothing there by itself, and leaves the largest piece of
//! free addresses, that below 85 TiB, to programs that reserve much of it. At addresses of the kernel's choice, below
//! the program's mappings, tables would move the program's later mappings by terabytes: its addresses would differ
//! from those of an untraced run, and a shadow table's window would fold them onto its heap.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where tables lie, in the order in which the places are used: start and end.
const PLACES: [(u64, u64); 2] = [(88 << 40, 110 << 40), (32 << 40, 80 << 40)];
/// Preferred address of the next table in each.
static NEXT: [AtomicU64; 2] = [AtomicU64::new(PLACES[0].0), AtomicU64::new(PLACES[1].0)];
/// Memory of the frontends themselves: start and end. The break of a program begins up to 1.1 TiB below.
pub const FRONTENDS: (u64, u64) = (175 << 39, 88 << 40);

/// Preferred address of a table that takes `room` bytes, 0 for none.
fn place(room: u64) -> u64 {
    // ThreadSanitizer has its own tables there.
    if cfg!(feature = "small-window") {
        return 0;
    }
    let mut places = PLACES.iter().zip(&NEXT);
    let found = places.find_map(|(&(_, end), next)| {
        let taken = next.fetch_update(Relaxed, Relaxed, |at| (at + room <= end).then(|| at + room));
        taken.ok()
    });
    found.unwrap_or(0)
}

/// Preferred address of the first table, 0 for none.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Sets where the first table, that of the lines, is placed if there is room: frontends that generate code may have a
/// constant address there.
pub fn prefer(first: u64) {
    FIRST.store(first, Relaxed);
}

/// Called with the number of bytes before they are mapped.
static BEFORE: OnceLock<fn(u64)> = OnceLock::new();

/// Has `before` called with the size of each table before it is mapped: the program's limits may not count it.
pub fn announce(before: fn(u64)) {
    let _ = BEFORE.set(before);
}

/// Address ranges (start, end) of this process's tables.
static RESERVED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// The address ranges of all tables; empty if another thread is reserving one.
pub(crate) fn reserved() -> Vec<(u64, u64)> {
    RESERVED
        .try_lock()
        .map_or_else(|_| Vec::new(), |ranges| ranges.clone())
}

/// The address ranges of all tables.
pub(crate) fn all() -> Vec<(u64, u64)> {
    RESERVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Whether the kernel locks what is mapped ([`crate::locked`]): mappings of the engine must be exempted.
pub(crate) static FUTURE_IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Maps `bytes` bytes, readable and writable, at `wish` if there is room, of `file` if given; `flags` as for `mmap`.
///
/// Makes the system call directly: in an instrumented program the C library's `mmap` is the frontend's, which would
/// record the mapping as the program's and clear the lines there, which the window may fold onto lines of the program.
///
/// # Errors
/// The system's error when address space is not available (for example under `ulimit -v`).
pub fn map(wish: u64, bytes: usize, flags: i32, file: Option<RawFd>) -> std::io::Result<*mut u8> {
    if let Some(before) = BEFORE.get() {
        before(bytes as u64);
    }
    let usual = libc::PROT_READ | libc::PROT_WRITE;
    // The kernel would lock it, and read all of it into memory, unless it cannot be read.
    let exempts = FUTURE_IS_LOCKED.load(Relaxed);
    let first = if exempts { libc::PROT_NONE } else { usual };
    // SAFETY: a new mapping that replaces none: the kernel chooses another place if ours is not free.
    let base = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            wish,
            bytes,
            first,
            flags,
            file.unwrap_or(-1),
            0usize,
        )
    };
    if base == -1 {
        return Err(std::io::Error::last_os_error());
    }
    if exempts {
        // SAFETY: the mapping that was just made.
        unsafe {
            libc::munlock(base as *const _, bytes);
            libc::mprotect(base as *mut _, bytes, usual);
        }
    }
    Ok(base as *mut u8)
}

/// Maps `words` words that read as zero and are backed by memory as they are touched; of `file`, shared with its other
/// users, if given. Never unmapped.
///
/// # Errors
/// As [`map`].
pub(crate) fn reserve(words: u64, file: Option<RawFd>) -> std::io::Result<*mut AtomicU64> {
    reserve_behind(0, words, file)
}

/// Like [`reserve`], behind `before` bytes of memory, whole pages, which are the caller's and private. A forked process
/// gets a copy of such a table.
///
/// # Errors
/// As [`map`].
pub(crate) fn reserve_behind(
    before: usize,
    words: u64,
    file: Option<RawFd>,
) -> std::io::Result<*mut AtomicU64> {
    let bytes = before + (words * 8) as usize;
    let kind = match file {
        Some(_) => libc::MAP_SHARED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    };
    // Whole huge pages, and one more to separate tables.
    let room = (bytes as u64).next_multiple_of(2 << 20) + (2 << 20);
    let wish = match FIRST.swap(0, Relaxed) {
        0 => place(room),
        first => first,
    };
    let base = map(wish, bytes, kind | libc::MAP_NORESERVE, file)?;
    if let Ok(mut reserved) = RESERVED.try_lock() {
        reserved.push((base as u64, base as u64 + bytes as u64));
    }
    let advise = |advice| {
        // SAFETY: the range was just mapped, and the advice does not unmap it.
        unsafe { libc::madvise(base.cast(), bytes, advice) };
    };
    // Tables stay out of the program's core dumps and slow no fork: a child begins with empty tables. What the caller
    // has before a table is copied, and one advice for all keeps it one mapping.
    advise(libc::MADV_DONTDUMP);
    if file.is_none() && before == 0 {
        advise(libc::MADV_WIPEONFORK);
    }
    // SAFETY: within the mapping.
    Ok(unsafe { base.add(before) }.cast())
}

/// Whether anything is mapped at `address`; true if the kernel's answer is unclear.
pub(crate) fn is_mapped(address: u64) -> bool {
    let page = address & !4095;
    let mut resident = 0u8;
    // SAFETY: the kernel examines one page and writes one byte of ours; `mincore` does not touch the page.
    let answer = unsafe { libc::mincore(page as *mut _, 1, &raw mut resident) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}
