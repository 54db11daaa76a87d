//! Calls by which the kernel writes the program's code: to files from which it is mapped, to the process's memory as a
//! file, to memory by its addresses.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::plain;
use crate::cache::ENGINE;
use crate::changes::FileId;
use crate::{guest, invalidate, sys};

/// Whether the program has opened its own memory for writing.
static OWN_MEMORY: AtomicBool = AtomicBool::new(false);

/// A regular file.
pub struct File {
    /// Which one.
    pub id: FileId,
    /// Number of its names.
    pub links: u64,
    /// Whether the kernel makes it up: it has no size and no device.
    made_up: bool,
}

/// The regular file of a descriptor.
pub fn file(descriptor: u64) -> Option<File> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    let arguments = [descriptor, found.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: fills the structure.
    let found = unsafe {
        let status = sys::call(libc::SYS_fstat, arguments);
        (status == 0).then(|| found.assume_init())?
    };
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(File {
        id: (found.st_dev, found.st_ino),
        links: found.st_nlink,
        made_up: found.st_size == 0 && libc::major(found.st_dev) == 0,
    })
}

/// Whether a descriptor may be written to.
pub fn may_write(descriptor: u64) -> bool {
    let arguments = [descriptor, libc::F_GETFL as u64, 0, 0, 0, 0];
    // SAFETY: changes nothing.
    let flags = unsafe { sys::call(libc::SYS_fcntl, arguments) };
    flags >= 0 && flags & i64::from(libc::O_ACCMODE) != i64::from(libc::O_RDONLY)
}

/// A file has been opened with this result.
pub fn opened(result: i64) {
    let Some(descriptor) = u64::try_from(result).ok().filter(|&at| may_write(at)) else {
        return;
    };
    let Some(file) = file(descriptor) else { return };
    if file.made_up && is_own_memory(descriptor) {
        OWN_MEMORY.store(true, Relaxed);
    }
    let mut engine = ENGINE.lock();
    for range in engine.source.changes.opened(file.id) {
        invalidate::rewritten(&mut engine, range.start, range.end);
    }
}

/// Whether a descriptor's file is the memory of this process.
fn is_own_memory(descriptor: u64) -> bool {
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{descriptor}")) else {
        return false;
    };
    // SAFETY: no preconditions.
    let pid = unsafe { sys::call(libc::SYS_getpid, [0; 6]) };
    let file = path.strip_prefix(format!("/proc/{pid}"));
    file.is_ok_and(|file| file.file_name().is_some_and(|name| name == "mem"))
}

fn rewritten(start: u64, len: u64) {
    let end = start.saturating_add(len);
    let mut engine = ENGINE.lock();
    if engine.source.regions.overlap(start, end) {
        invalidate::rewritten(&mut engine, start, end);
    }
}

/// `write` and its relatives.
pub fn write(number: i64, a: [u64; 6]) -> i64 {
    let result = plain(number, a);
    if result > 0 && OWN_MEMORY.load(Relaxed) && is_own_memory(a[0]) {
        let by_offset = matches!(number, libc::SYS_pwrite64 | libc::SYS_pwritev)
            || number == libc::SYS_pwritev2 && a[3] != u64::MAX;
        let start = if by_offset {
            a[3]
        } else {
            let arguments = [a[0], 0, libc::SEEK_CUR as u64, 0, 0, 0];
            // SAFETY: changes nothing.
            let now = unsafe { sys::call(libc::SYS_lseek, arguments) };
            now.saturating_sub(result) as u64
        };
        rewritten(start, result as u64);
    }
    result
}

/// `process_vm_writev`.
pub fn write_memory(a: [u64; 6]) -> i64 {
    const MOST: u64 = 1024;
    if !is_own_thread(a[0]) {
        return plain(libc::SYS_process_vm_writev, a);
    }
    let parts = (0..a[4].min(MOST)).map_while(|n| guest::read::<[u64; 2]>(a[3] + 16 * n));
    let parts: Vec<[u64; 2]> = parts.collect();
    // Before the call the pages become writable; after it other threads may have translated what was there.
    parts.iter().for_each(|&[start, len]| rewritten(start, len));
    let result = plain(libc::SYS_process_vm_writev, a);
    parts.iter().for_each(|&[start, len]| rewritten(start, len));
    result
}

/// Whether a number is that of a thread of this process.
fn is_own_thread(number: u64) -> bool {
    let path = format!("/proc/self/task/{}\0", number as i32);
    let arguments = [path.as_ptr() as u64, libc::F_OK as u64, 0, 0, 0, 0];
    // SAFETY: the path lives.
    unsafe { sys::call(libc::SYS_access, arguments) == 0 }
}

/// `madvise`: some advice replaces the contents.
pub fn madvise(a: [u64; 6]) -> i64 {
    const DONTNEED_LOCKED: i32 = 24;
    const GUARD_INSTALL: i32 = 102;
    let result = plain(libc::SYS_madvise, a);
    let replaces = matches!(
        a[2] as i32,
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | DONTNEED_LOCKED | GUARD_INSTALL
    );
    if replaces {
        rewritten(a[0], a[1]);
    }
    result
}

/// `remap_file_pages`.
pub fn remap(a: [u64; 6]) -> i64 {
    let result = plain(libc::SYS_remap_file_pages, a);
    rewritten(a[0], a[1]);
    result
}
