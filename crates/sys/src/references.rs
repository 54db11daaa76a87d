//! Clears the marks by which the kernel knows which pages of a process were used, so that the next use of each page is
//! seen. The processor sets the mark at the next access, without a page fault: no thread notices.
//!
//! The kernel goes by the same marks when memory is short and it chooses pages to give up: while they are cleared again
//! and again, pages in use look less used than they are.

use libc::pid_t;
use std::fs::File;
use std::io::{self, Write};

/// The value for marks of all pages (`Documentation/filesystems/proc.rst`, `clear_refs`).
const ALL: &[u8] = b"1\n";

/// Clears the marks of all pages of process `pid`.
///
/// # Errors
/// The kernel's: `ENOENT` or `ESRCH` if there is no such process, `EACCES` for a process of another user.
pub fn clear(pid: pid_t) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .open(format!("/proc/{pid}/clear_refs"))?;
    file.write_all(ALL)
}

/// Whether this kernel shows the marks and lets them be cleared. Tried on this process, of which nothing is cleared.
#[must_use]
pub fn is_supported() -> bool {
    let smaps = std::fs::read("/proc/self/smaps").unwrap_or_default();
    let shown = String::from_utf8_lossy(&smaps).contains("\nReferenced:");
    shown
        && File::options()
            .write(true)
            .open("/proc/self/clear_refs")
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(clear(0).is_err());
        if is_supported() {
            clear(std::process::id() as pid_t).unwrap();
        }
    }
}
