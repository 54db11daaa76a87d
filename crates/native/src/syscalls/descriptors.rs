//! Hides the engine's descriptors ([`numaloc_trace::descriptors`]) from the program, which may close what it never
//! opened, or list what it has open.

use std::os::fd::RawFd;

use numaloc_trace::descriptors::{is_kept, kept};

use super::{error, plain};
use crate::{guest, sys};

/// Numbers below this are not ours, except under the lowest limits.
const LOWEST: u64 = 8;

/// Answers a call that refers to a descriptor of ours.
pub fn before(number: i64, a: [u64; 6]) -> Option<i64> {
    let kept = |descriptor: u64| descriptor >= LOWEST && is_kept(descriptor as RawFd);
    match number {
        libc::SYS_close_range => Some(close_range(a)),
        libc::SYS_close
        | libc::SYS_fcntl
        | libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_fstat
        | libc::SYS_ioctl
        | libc::SYS_lseek
        | libc::SYS_read
        | libc::SYS_write
        | libc::SYS_fchdir
        | libc::SYS_flock
            if kept(a[0]) =>
        {
            Some(error(libc::EBADF))
        }
        _ => None,
    }
}

/// `close_range`: all but ours.
fn close_range(a: [u64; 6]) -> i64 {
    let [first, last, flags, ..] = a;
    // The kernel's numbers have 32 bits.
    let (first, last) = (u64::from(first as u32), u64::from(last as u32));
    let mut ours: Vec<u64> = kept().map(|descriptor| descriptor as u64).collect();
    ours.retain(|descriptor| (first..=last).contains(descriptor));
    if first > last || ours.is_empty() {
        return plain(libc::SYS_close_range, a);
    }
    ours.sort_unstable();
    let mut from = first;
    // The last part begins after the last of ours.
    for end in ours.into_iter().chain([last + 1]) {
        if from < end {
            let result = plain(libc::SYS_close_range, [from, end - 1, flags, 0, 0, 0]);
            if result < 0 {
                return result;
            }
        }
        from = end + 1;
    }
    0
}

/// Whether an open folder lists the descriptors of this process.
fn lists_descriptors(folder: u64) -> bool {
    const PROC: i64 = 0x9fa0;
    let mut data = [0_u64; 15];
    // SAFETY: the call fills a structure of 120 bytes.
    let known = unsafe {
        let call = [folder, data.as_mut_ptr() as u64, 0, 0, 0, 0];
        sys::call(libc::SYS_fstatfs, call)
    };
    if known != 0 || data[0] as i64 != PROC {
        return false;
    }
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{folder}")) else {
        return false;
    };
    let path = path.into_os_string().into_encoded_bytes();
    let Some(rest) = path.strip_prefix(b"/proc/") else {
        return false;
    };
    let own = std::process::id().to_string().into_bytes();
    let of = rest.strip_prefix(&own[..]).unwrap_or_default();
    of == b"/fd" || of == b"/fdinfo" || (of.starts_with(b"/task/") && of.ends_with(b"/fd"))
}

/// Takes ours out of the entries that `getdents64` has written. Returns their length without them.
pub fn listed(a: [u64; 6], result: i64) -> i64 {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    if result <= 0 || !lists_descriptors(a[0]) {
        return result;
    }
    let Some(entries) = guest::bytes(a[1], result as usize) else {
        return result;
    };
    let mut left = Vec::new();
    let mut rest = &entries[..];
    while let Some(length) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some((entry, others)) = rest.split_at_checked(length.max(NAME_AT)) else {
            break;
        };
        let name = entry[NAME_AT..].split(|&byte| byte == 0).next();
        let number = name.and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
        if !number.is_some_and(is_kept) {
            left.extend(entry);
        }
        rest = others;
    }
    if left.is_empty() {
        // The end would be 0: the rest of the folder follows.
        return listed(a, plain(libc::SYS_getdents64, a));
    }
    match guest::write_bytes(a[1], &left) {
        true => left.len() as i64,
        false => result,
    }
}
