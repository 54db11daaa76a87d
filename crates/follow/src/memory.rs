//! Reads the program from inside its process: memory, mappings, files.
//!
//! The program's addresses are those of its process: qemu-user does not shift those of a 64-bit guest (`guest_base` 0).

use std::ffi::{OsString, c_void};
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use numaloc_trace::faults::model::{FileId, Mode, Policy};
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

/// The identity of the file behind a descriptor of the program.
pub(crate) fn file_id(descriptor: u64) -> Option<FileId> {
    file_id_of(format!("/proc/self/fd/{}", descriptor as i32).as_ref())
}

/// The identity of the file at `path`.
pub(crate) fn file_id_of(path: &Path) -> Option<FileId> {
    let found = std::fs::metadata(path).ok()?;
    Some(FileId {
        device: found.dev(),
        inode: found.ino(),
    })
}

/// log2 of the bytes of the pages of a file of hugetlbfs, 0 for other files.
pub(crate) fn huge_file(descriptor: i32) -> u8 {
    const HUGETLBFS: i64 = 0x9584_58f6;
    // SAFETY: a structure of numbers, for which all bytes are values.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is valid for writing.
    let status = unsafe { libc::fstatfs(descriptor, &raw mut found) };
    match status == 0 && found.f_type == HUGETLBFS {
        true => (found.f_bsize as u64).max(1).ilog2() as u8,
        false => 0,
    }
}

/// Which pages of `length` bytes of a file, from `offset` on, are in the page cache: one byte for each.
pub(crate) fn in_page_cache(descriptor: i32, offset: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|&length| length > 0)?;
    let mut pages = vec![0; length.div_ceil(4096)];
    let (nowhere, flags) = (std::ptr::null_mut(), libc::MAP_SHARED);
    // SAFETY: a new mapping, which no other memory is replaced by; it is only asked about.
    let at = unsafe {
        libc::mmap(
            nowhere,
            length,
            libc::PROT_NONE,
            flags,
            descriptor,
            offset as i64,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above, and a byte for each of its pages.
    let status = unsafe { libc::mincore(at, length, pages.as_mut_ptr()) };
    // SAFETY: the mapping made above.
    unsafe { libc::munmap(at, length) };
    (status == 0).then_some(pages)
}

/// The first 64 bits of a mask of nodes with `bits`.
pub(crate) fn node_mask(address: u64, bits: u64) -> u64 {
    let mask = match address {
        0 => 0,
        _ => word(address).unwrap_or(0),
    };
    match bits {
        0..64 => mask & ((1 << bits) - 1),
        _ => mask,
    }
}

/// The 4-byte signed number at `address`.
pub(crate) fn half(address: u64) -> Option<i32> {
    let mut bytes = [0; 4];
    read(address, &mut bytes)?;
    Some(i32::from_le_bytes(bytes))
}

/// The memory policy of the calling thread; `None` for the default, and where the kernel does not say.
pub(crate) fn own_policy() -> Option<Policy> {
    let (mut mode, mut mask) = (0i32, [0u64; 16]);
    // SAFETY: both are valid for writing, and the mask has as many bits as are said.
    let status = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            1024,
            0,
            0,
        )
    };
    match status {
        0 => whole(Policy::of(mode as u64, mask[0])),
        _ => None,
    }
}

/// A policy that interleaves over all nodes of this machine does so on any; one that allows all of several nodes is
/// first touch.
pub(crate) fn whole(policy: Option<Policy>) -> Option<Policy> {
    let policy = policy?;
    let nodes = online_nodes();
    if policy.nodes & nodes != nodes {
        return Some(policy);
    }
    match policy.mode {
        Mode::Interleave | Mode::Weighted => Some(Policy {
            nodes: u64::MAX,
            ..policy
        }),
        Mode::Bind | Mode::PreferredMany if nodes.count_ones() > 1 => Policy::of(4, 0),
        _ => Some(policy),
    }
}

/// Mask of this machine's nodes.
fn online_nodes() -> u64 {
    let text = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    let mut mask = 0;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            (first..=last.min(63)).for_each(|node| mask |= 1 << node);
        }
    }
    mask.max(1)
}
