//! Whether this machine and its sandbox permit what applying a plan needs. Everything is tried; nothing is changed.

use std::ffi::OsString;
use std::io;

use numaloc_sys::{balancing, memory};

use crate::launch::{fork, may_trace};
use crate::ptrace;

/// Whether a program that we start can be followed with ptrace.
///
/// # Errors
/// The kernel's, or one that names the seccomp filter that kills processes for the call.
pub fn tracing() -> io::Result<()> {
    if !may_trace() {
        return Err(io::Error::other(
            "the seccomp filter in force kills processes that call ptrace",
        ));
    }
    // It is not released, so it ends without executing the program.
    let waiting = fork(&[OsString::from("true")])?;
    let pid = waiting.pid;
    let seized = ptrace::seize(pid);
    if seized.is_ok() {
        ptrace::kill_thread(pid, libc::SIGKILL)?;
    }
    drop(waiting);
    loop {
        // As a tracee it stops before it ends.
        match ptrace::wait(pid)? {
            (_, ptrace::Wait::Exited(_) | ptrace::Wait::Killed(_)) => return seized,
            _ => ptrace::resume(pid, ptrace::Resume::Cont, 0).or_else(gone)?,
        }
    }
}

/// A tracee may have been killed while it was stopped.
fn gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(()),
        _ => Err(error),
    }
}

/// Whether the calls that place pages are permitted.
///
/// # Errors
/// The kernel's.
pub fn placing() -> io::Result<()> {
    let page = 4096;
    // An empty range has no policy to change.
    memory::prefer(page, 0, 0).map_err(|error| named("mbind", &error))?;
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    memory::locate_pages(own, &[page as u64]).map_err(|error| named("move_pages", &error))?;
    Ok(())
}

fn named(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

/// Whether automatic NUMA balancing is on; `None` if the kernel has none.
#[must_use]
pub fn balancing() -> Option<bool> {
    balancing::is_on()
}

#[cfg(test)]
mod tests {
    #[test]
    fn trying_leaves_no_process_behind() {
        // Sandboxes may forbid both calls; neither may hang or leave a child.
        let _ = super::tracing();
        let _ = super::placing();
        let children = std::fs::read_to_string("/proc/thread-self/children");
        assert_eq!(children.unwrap_or_default(), "");
    }
}
