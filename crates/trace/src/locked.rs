//! Locking all memory of the process, for frontends in whose process the program's calls are made as they are: all but
//! the tables, which are terabytes of addresses of which few take memory.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use crate::maps::{self, MapsLine};
use crate::reservation::{self, FUTURE_IS_LOCKED};

const CURRENT: i32 = libc::MCL_CURRENT;
const FUTURE: i32 = libc::MCL_FUTURE;
const ON_FAULT: i32 = libc::MCL_ONFAULT;

/// Makes a call that takes a number; a failure is an `errno`.
fn call(number: i64, arguments: [u64; 3]) -> Result<(), i32> {
    let [a, b, c] = arguments;
    // SAFETY: changes no contents of memory.
    match unsafe { libc::syscall(number, a, b, c) } {
        -1 => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EAGAIN)),
        _ => Ok(()),
    }
}

/// What is mapped except for the tables, if the process may lock it.
fn all_but_tables() -> Result<Vec<(u64, u64)>, i32> {
    let text = std::fs::read("/proc/self/maps").map_err(|_| libc::EAGAIN)?;
    let tables = reservation::all();
    let text = maps::text(text);
    let mappings = text.lines().filter_map(MapsLine::parse);
    let ranges = mappings.map(|mapping| (mapping.start, mapping.end));
    let ranges: Vec<(u64, u64)> = ranges
        .filter(|&(from, to)| !tables.iter().any(|&(start, end)| start < to && from < end))
        .collect();
    let sum: u64 = ranges.iter().map(|(start, end)| end - start).sum();
    match limit() {
        0 => Err(libc::EPERM),
        limit if sum > limit => Err(libc::ENOMEM),
        _ => Ok(ranges),
    }
}

/// `mlockall` for the program.
///
/// # Errors
/// An `errno`.
pub fn lock_all(flags: i32) -> Result<(), i32> {
    let valid = flags & (CURRENT | FUTURE) != 0 && flags & !(CURRENT | FUTURE | ON_FAULT) == 0;
    if !valid {
        return Err(libc::EINVAL);
    }
    let ranges = match flags & CURRENT {
        0 => Vec::new(),
        _ => all_but_tables()?,
    };
    if flags & FUTURE != 0 {
        // Before the call: meanwhile another thread may map memory for the engine.
        FUTURE_IS_LOCKED.store(true, Relaxed);
        call(libc::SYS_mlockall, [(flags & !CURRENT) as u64, 0, 0])?;
    } else if FUTURE_IS_LOCKED.swap(false, Relaxed) {
        call(libc::SYS_munlockall, [0; 3])?;
    }
    let on_fault = u64::from(flags & ON_FAULT != 0);
    for (start, end) in ranges {
        // As in the kernel, what cannot be read into memory is not.
        let _ = call(libc::SYS_mlock2, [start, end - start, on_fault]);
    }
    Ok(())
}

/// Bytes that the process may lock: any number with the capability, outside namespaces of users.
#[must_use]
pub fn limit() -> u64 {
    const IPC_LOCK: u32 = 14;
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let status = read("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let users = read("/proc/self/uid_map");
    let all = users.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    if all && effective.is_some_and(|mask| mask >> IPC_LOCK & 1 != 0) {
        return u64::MAX;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}

/// `munlockall` for the program. The tables are not locked.
///
/// # Errors
/// An `errno`.
pub fn unlock_all() -> Result<(), i32> {
    FUTURE_IS_LOCKED.store(false, Relaxed);
    call(libc::SYS_munlockall, [0; 3])
}

/// The process is a forked one: what it maps is not locked.
pub fn forked() {
    FUTURE_IS_LOCKED.store(false, Relaxed);
}
