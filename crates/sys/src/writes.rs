//! Makes the next write of a process to each of its pages a page fault, which costs the writing thread about a
//! microsecond and changes nothing that the program could notice.
//!
//! The kernel takes the right to write from the page tables, not from the memory: it gives it back in the fault, also
//! to its own writes on behalf of system calls, and whether or not the caller of this function lives. It keeps these
//! "soft-dirty" bits for checkpoints, so a program must not be checkpointed at the same time.

use libc::pid_t;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The value for soft-dirty bits (`Documentation/admin-guide/mm/soft-dirty.rst`).
const SOFT_DIRTY: &[u8] = b"4\n";

/// Takes the right to write from all pages of process `pid` until they are written to.
///
/// # Errors
/// The kernel's: `ENOENT` or `ESRCH` if there is no such process, `EACCES` for a process of another user.
pub fn watch(pid: pid_t) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .open(format!("/proc/{pid}/clear_refs"))?;
    file.write_all(SOFT_DIRTY)
}

/// Whether this kernel can ([`watch`] succeeds on others too, without effect). Tried on a page of this process.
#[must_use]
pub fn is_supported() -> bool {
    let page = vec![1_u8; 2 * 4096];
    let at = (page.as_ptr() as u64).next_multiple_of(4096);
    let written = || {
        let mut file = File::open("/proc/self/pagemap").ok()?;
        file.seek(SeekFrom::Start(at / 4096 * 8)).ok()?;
        let mut entry = [0; 8];
        file.read_exact(&mut entry).ok()?;
        Some(u64::from_le_bytes(entry) >> 55 & 1 == 1)
    };
    // Without the feature, the bit is never set.
    let supported = written() == Some(true);
    drop(std::hint::black_box(page));
    supported
}
