//! Calls that mean all memory of the process, present or future: locking it in memory, merging equal pages. They change
//! the program's memory only. The kernel would also lock or search the tables of a recording, which are terabytes of
//! addresses of which few take memory.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::{error, maps, plain};
use crate::sys::{self, page_up};
use numaloc_trace::locked::limit;

const CURRENT: u64 = libc::MCL_CURRENT as u64;
const FUTURE: u64 = libc::MCL_FUTURE as u64;
const ON_FAULT: u64 = libc::MCL_ONFAULT as u64;

/// How memory that the program maps is locked: 0, [`FUTURE`], or that with [`ON_FAULT`].
static LOCKS: AtomicU64 = AtomicU64::new(0);
/// Whether equal pages of the program are merged.
static MERGES: AtomicBool = AtomicBool::new(false);

fn host(number: i64, a: [u64; 3]) -> i64 {
    // SAFETY: does not change the contents of memory.
    unsafe { sys::call(number, [a[0], a[1], a[2], 0, 0, 0]) }
}

/// Locks a range of the program's memory.
fn lock(start: u64, end: u64, flags: u64) -> i64 {
    let on_fault = u64::from(flags & ON_FAULT != 0);
    host(libc::SYS_mlock2, [start, end - start, on_fault])
}

/// `mlockall`.
pub fn lock_all(flags: u64) -> i64 {
    if flags == 0 || flags == ON_FAULT || flags & !(CURRENT | FUTURE | ON_FAULT) != 0 {
        return error(libc::EINVAL);
    }
    let limit = limit();
    let ranges = maps::of_the_program();
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if limit == 0 {
        return error(libc::EPERM);
    }
    if flags & CURRENT != 0 && total > limit {
        return error(libc::ENOMEM);
    }
    let later = match flags & FUTURE {
        0 => 0,
        _ => flags & !CURRENT,
    };
    LOCKS.store(later, Relaxed);
    if flags & CURRENT != 0 {
        for range in ranges {
            // As in the kernel, what cannot be read into memory is not.
            lock(range.start, range.end, flags);
        }
    }
    0
}

/// `munlockall`. None of the engine's memory is locked.
pub fn unlock_all(a: [u64; 6]) -> i64 {
    LOCKS.store(0, Relaxed);
    plain(libc::SYS_munlockall, a)
}

/// Flags of `mmap` for memory that the program maps with these.
pub fn flags(flags: u64) -> u64 {
    match LOCKS.load(Relaxed) {
        FUTURE => flags | libc::MAP_LOCKED as u64,
        _ => flags,
    }
}

/// Treats memory that the program has mapped like all its memory. Fails if it may not be locked.
///
/// # Errors
/// The kernel's error, for memory without other contents.
pub fn mapped(start: u64, end: u64) -> Result<(), i64> {
    if MERGES.load(Relaxed) {
        host(
            libc::SYS_madvise,
            [start, end - start, libc::MADV_MERGEABLE as u64],
        );
    }
    let flags = LOCKS.load(Relaxed);
    if flags & ON_FAULT != 0
        && lock(start, end, flags) == error(libc::ENOMEM)
        && is_over_limit(end - start)
    {
        return Err(error(libc::EAGAIN));
    }
    Ok(())
}

/// Treats shared memory that the program has attached like all its memory.
pub fn attached(start: u64, end: u64) {
    let flags = LOCKS.load(Relaxed);
    if flags != 0 {
        lock(start, end, flags);
    }
}

/// Whether that many bytes more than are locked exceed the limit.
fn is_over_limit(more: u64) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let locked = locked.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    (locked.unwrap_or(0) << 10).saturating_add(more) > limit()
}

/// `brk`.
pub fn set_break(a: [u64; 6]) -> i64 {
    let flags = LOCKS.load(Relaxed);
    if flags == 0 {
        return plain(libc::SYS_brk, a);
    }
    let before = host(libc::SYS_brk, [0; 3]);
    let now = host(libc::SYS_brk, [a[0], 0, 0]);
    if let (Some(start), Some(end)) = (page_up(before as u64), page_up(now as u64))
        && start < end
        && lock(start, end, flags) == error(libc::ENOMEM)
        && is_over_limit(end - start)
    {
        return host(libc::SYS_brk, [before as u64, 0, 0]);
    }
    now
}

/// The process is a forked one: its memory is not locked.
pub fn forked() {
    LOCKS.store(0, Relaxed);
}

const SET_MERGE: i32 = 67;
const GET_MERGE: i32 = 68;

/// Whether the kernel merges equal pages of the whole process; `None` if it does not know this.
fn is_merged() -> Option<bool> {
    let merged = host(libc::SYS_prctl, [GET_MERGE as u64, 0, 0]);
    (merged >= 0).then_some(merged != 0)
}

/// The part of `prctl` that means all memory; `None` for others.
pub fn prctl(a: [u64; 6]) -> Option<i64> {
    let [what, value, rest @ ..] = a;
    let set = what as i32 == SET_MERGE;
    if !set && what as i32 != GET_MERGE {
        return None;
    }
    if is_merged().is_none() || rest[..3] != [0; 3] || !set && value != 0 {
        return Some(error(libc::EINVAL));
    }
    if !set {
        return Some(i64::from(MERGES.load(Relaxed)));
    }
    merge(value != 0);
    Some(0)
}

fn merge(merges: bool) {
    MERGES.store(merges, Relaxed);
    let advice = match merges {
        true => libc::MADV_MERGEABLE,
        false => libc::MADV_UNMERGEABLE,
    };
    for range in maps::of_the_program() {
        host(
            libc::SYS_madvise,
            [range.start, range.end - range.start, advice as u64],
        );
    }
}

/// Takes over what the process was started with, as services are whose memory is merged: for the program alone.
pub fn take_over() {
    if is_merged() == Some(true) {
        host(libc::SYS_prctl, [SET_MERGE as u64, 0, 0]);
        merge(true);
    }
}

/// Passes it on to a program that is about to be executed, or, if that failed, takes it back.
pub fn pass_on(executes: bool) {
    if MERGES.load(Relaxed) {
        host(libc::SYS_prctl, [SET_MERGE as u64, u64::from(executes), 0]);
        merge(true);
    }
}
