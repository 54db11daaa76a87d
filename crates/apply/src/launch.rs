//! Starts the program in a child process that waits before `execve`.
#![allow(unsafe_code)]

use libc::{c_char, c_int};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A forked process that executes the program when released.
pub struct Waiting {
    /// Its process id.
    pub pid: i32,
    go: OwnedFd,
    failure: OwnedFd,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: pipe2 writes two descriptors into `fds`.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// As [`fork_with`], with the environment of this process.
pub fn fork(command: &[OsString]) -> io::Result<Waiting> {
    fork_with(command, None)
}

/// Forks. The child waits for [`Waiting::release`], with the affinity it inherits; it executes the program with
/// `environment`, or with that of this process.
///
/// # Errors
/// The kernel's error if no pipe or process can be created, `InvalidInput` for a NUL byte in an argument.
pub fn fork_with(command: &[OsString], environment: Option<&[CString]>) -> io::Result<Waiting> {
    let environment: Option<Vec<*const c_char>> = environment.map(|entries| {
        let entries = entries.iter().map(|entry| entry.as_ptr());
        entries.chain([std::ptr::null()]).collect()
    });
    let args: Vec<CString> = command
        .iter()
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<_, _>>()?;
    let mut argv: Vec<*const c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    argv.push(std::ptr::null());
    let (go_read, go_write) = pipe()?;
    let (failure_read, failure_write) = pipe()?;
    // SAFETY: the child makes only async-signal-safe calls on memory prepared above before it
    // executes the program or leaves with `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // Close the child's copy of the write end, or it would not notice when the parent dies.
        // SAFETY: a descriptor of this process; it is not used again here.
        unsafe { libc::close(go_write.as_raw_fd()) };
        // SAFETY: `argv` is a NULL-terminated array of C strings that live until execvp.
        unsafe {
            child(
                go_read.as_raw_fd(),
                failure_write.as_raw_fd(),
                argv.as_ptr(),
                environment
                    .as_ref()
                    .map_or(std::ptr::null(), |e| e.as_ptr()),
            )
        }
    }
    Ok(Waiting {
        pid,
        go: go_write,
        failure: failure_read,
    })
}

/// Runs in the child until `execve`.
///
/// # Safety
/// `argv` points to a NULL-terminated array of C strings, `environment` too or is null; only async-signal-safe calls
/// here.
unsafe fn child(
    go: c_int,
    failure: c_int,
    argv: *const *const c_char,
    environment: *const *const c_char,
) -> ! {
    let mut word = 0_u8;
    // SAFETY: reads one byte into `word`.
    let got = unsafe { libc::read(go, (&raw mut word).cast(), 1) };
    if got != 1 {
        // The parent died or gave up.
        // SAFETY: does not return.
        unsafe { libc::_exit(125) };
    }
    // SAFETY: restores what Rust's runtime changed; the caller keeps `argv` valid.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        match environment.is_null() {
            true => libc::execvp(*argv, argv),
            false => libc::execvpe(*argv, argv, environment),
        };
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: writes the bytes of `errno`; does not return.
    unsafe {
        libc::write(failure, (&raw const errno).cast(), size_of::<c_int>());
        libc::_exit(if errno == libc::ENOENT { 127 } else { 126 });
    }
}

/// A forked copy of this process.
pub struct Forked(i32);

impl Forked {
    /// Waits until it has ended.
    pub fn wait(&self) {
        // It ends when its pipe does; an error means that it was reaped already.
        let _ = crate::ptrace::wait(self.0);
    }
}

/// Forks a copy of this process that calls `work` with the reading end of a pipe and then ends; returns the writing
/// end, which only this process has. The copy has a session of its own. Must be called while this process has one
/// thread: `work` may then allocate memory.
///
/// # Errors
/// The kernel's error if no pipe or process can be created.
pub fn fork_reader(work: impl FnOnce(File)) -> io::Result<(File, Forked)> {
    let (read, write) = pipe()?;
    // SAFETY: this process has one thread (contract above), so no lock is held in the copy.
    let pid = unsafe { libc::fork() };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        drop(write);
        // SAFETY: takes no pointers. Signals of the terminal go to the session of the parent.
        unsafe { libc::setsid() };
        work(File::from(read));
        // SAFETY: does not return; nothing of the parent is cleaned up.
        unsafe { libc::_exit(0) };
    }
    Ok((File::from(write), Forked(pid)))
}

/// Whether a process of ours survives a `ptrace` call: a seccomp filter may kill the caller. Tried in a child process.
pub fn may_trace() -> bool {
    // SAFETY: the child makes two async-signal-safe calls.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes no pointers; `_exit` does not return.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::_exit(0);
        }
    }
    pid > 0
        && matches!(
            crate::ptrace::wait(pid),
            Ok((_, crate::ptrace::Wait::Exited(_)))
        )
}

impl Waiting {
    /// Lets the child execute the program. If it was killed meanwhile, this succeeds: `wait` reports how it ended.
    pub fn release(&self) -> io::Result<()> {
        // SAFETY: writes one byte from a live buffer.
        if unsafe { libc::write(self.go.as_raw_fd(), [1_u8].as_ptr().cast(), 1) } == 1 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Only the child holds the read end, so it is gone.
            error if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            error => Err(error),
        }
    }

    /// After the child has ended: the errno of its failed `execve`, if it failed.
    pub fn exec_failure(&self) -> Option<i32> {
        // Only the child holds the write end and it is gone, so this read cannot block.
        let mut errno = [0_u8; 4];
        // SAFETY: reads at most four bytes into `errno`.
        let got = unsafe { libc::read(self.failure.as_raw_fd(), errno.as_mut_ptr().cast(), 4) };
        (got == 4).then(|| i32::from_ne_bytes(errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptrace::{Wait, wait};

    #[test]
    fn a_program_killed_before_it_is_released_ends_as_killed() {
        let waiting = fork(&["true".into()]).unwrap();
        // SAFETY: a signal to a child of this process that has not been waited for.
        assert_eq!(unsafe { libc::kill(waiting.pid, libc::SIGKILL) }, 0);
        let (_, end) = wait(waiting.pid).unwrap();
        assert!(matches!(end, Wait::Killed(libc::SIGKILL)));
        waiting.release().unwrap();
        assert_eq!(waiting.exec_failure(), None);
    }
}
