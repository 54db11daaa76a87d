//! Reads the program from inside its process: memory, mappings, files.
//!
//! The program's addresses are those of its process: qemu-user does not shift those of a 64-bit guest (`guest_base` 0).

use std::ffi::{OsString, c_void};
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;

use numaloc_trace::maps::{self, MapsLine};

/// Copies memory of the program; `None` if it cannot be read. Never faults.
pub fn read(address: u64, to: &mut [u8]) -> Option<()> {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast::<c_void>(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: to.len(),
    };
    // SAFETY: the kernel writes at most `to.len()` bytes to `to`, and reports unreadable source addresses.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (count == to.len() as isize).then_some(())
}

/// The 8-byte number at `address`.
pub fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes)?;
    Some(u64::from_le_bytes(bytes))
}

/// The NUL-terminated string at `address`, up to 128 KiB (the kernel's own limit for one argument).
pub fn text(address: u64) -> Option<OsString> {
    let mut bytes = Vec::new();
    while bytes.len() < 128 << 10 {
        // Never cross into the next page, which may not be mapped.
        let at = address + bytes.len() as u64;
        let mut part = vec![0; (4096 - (at & 4095)).min(256) as usize];
        read(at, &mut part)?;
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            bytes.extend_from_slice(&part[..end]);
            return Some(OsString::from_vec(bytes));
        }
        bytes.extend_from_slice(&part);
    }
    None
}

/// The NULL-terminated array of strings at `address`.
pub fn texts(address: u64) -> Option<Vec<OsString>> {
    let mut list = Vec::new();
    if address == 0 {
        return Some(list);
    }
    for index in 0..1 << 20 {
        match word(address + index * 8)? {
            0 => return Some(list),
            at => list.push(text(at)?),
        }
    }
    None
}

/// The content of a file that the program has mapped. It is mapped again: of large files little is read.
pub(crate) struct Content {
    at: *mut c_void,
    length: usize,
}

impl Content {
    /// The content of a file, unless it is empty or cannot be mapped.
    pub(crate) fn of(file: &str) -> Option<Self> {
        let open = File::open(file).ok()?;
        let length = usize::try_from(open.metadata().ok()?.len()).ok()?;
        let (nowhere, file) = (std::ptr::null_mut(), open.as_raw_fd());
        // SAFETY: a new mapping, which no other memory is replaced by.
        let at =
            unsafe { libc::mmap(nowhere, length, libc::PROT_READ, libc::MAP_PRIVATE, file, 0) };
        (at != libc::MAP_FAILED).then_some(Self { at, length })
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped until this is dropped.
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), self.length) }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made for this.
        unsafe { libc::munmap(self.at, self.length) };
    }
}

/// A line of `/proc/self/maps`.
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// Path of the file, a name like `[stack]`, or empty.
    pub file: String,
}

/// The mappings of this process, the frontend's and the program's.
pub fn mappings() -> Vec<Mapped> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps::text(maps)
        .lines()
        .filter_map(|line| {
            let found = MapsLine::parse(line)?;
            Some(Mapped {
                start: found.start,
                end: found.end,
                file: found.name.to_owned(),
            })
        })
        .collect()
}

/// Size in bytes of the first thread's stack: its limit, at least 8 MiB.
pub fn stack_size() -> u64 {
    const LEAST: u64 = 8 << 20;
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writing.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => LEAST,
        bytes => bytes.max(LEAST),
    }
}

/// The file behind a descriptor of the program.
pub fn file_of(descriptor: u64) -> String {
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor as i32))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}
