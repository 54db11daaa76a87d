//! The file that a program executes: opened and checked as the kernel does, with the kernel's errors.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use numaloc_launch::Interpreter;
use numaloc_launch::script::MAX_DEPTH;

use super::Request;
use crate::elf::{self, Kind};
use crate::syscalls::{error, view};
use crate::{files, loader, sys};

/// How a file is executed.
pub enum How {
    /// By another engine.
    Translated,
    /// By the emulator, if there is one, because a recording needs addresses of the program.
    Emulated,
    /// Natively, because it cannot be translated, for this reason.
    Native(String),
    /// Natively, because the process has as many files open as it may, so that it was not opened.
    Unopened,
}

/// An executable file.
pub struct Target {
    /// Open for reading; for running only if it cannot be read.
    file: Option<OwnedFd>,
    /// Its name, as the kernel calls it.
    pub name: Vec<u8>,
    /// How it is executed.
    pub how: How,
}

/// A file that may be executed, opened for reading if that is possible.
enum Opened {
    Readable(OwnedFd),
    Unreadable(OwnedFd),
}

impl Opened {
    fn descriptor(&self) -> RawFd {
        let (Self::Readable(file) | Self::Unreadable(file)) = self;
        file.as_raw_fd()
    }
}

impl Target {
    /// The file of a request.
    ///
    /// # Errors
    /// The kernel's, as `errno`.
    pub fn of(request: &Request) -> Result<Self, i32> {
        let opened = request.open()?;
        request.check(opened.descriptor())?;
        let name = request.name();
        let (file, how) = match opened {
            Opened::Unreadable(file) => (file, How::Native("not readable".to_owned())),
            Opened::Readable(file) => {
                let how = how(&file, request.is_closed_by_exec())?;
                (file, how)
            }
        };
        let file = Some(file);
        Ok(Self { file, name, how })
    }

    /// The file of a request, for which no descriptor is free. The kernel needs none, and the program's own may be
    /// closed when it is executed.
    ///
    /// # Errors
    /// The kernel's if this process may not execute it.
    pub fn unopened(request: &Request) -> Result<Self, i32> {
        may_run(request.folder, &request.path)?;
        Ok(Self {
            file: None,
            name: request.name(),
            how: How::Unopened,
        })
    }

    /// Number of the file; that of the running program if it was not opened.
    pub fn descriptor(&self) -> RawFd {
        let running = || files::program().unwrap_or(-1);
        self.file.as_ref().map_or_else(running, OwnedFd::as_raw_fd)
    }
}

/// Why a program is not recorded for which no descriptor is free.
pub fn no_descriptor(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    format!("{name} cannot be recorded: no descriptor is free")
}

impl Request {
    /// The name that the kernel gives to what is executed.
    fn name(&self) -> Vec<u8> {
        let path = self.path.to_bytes();
        if self.folder == libc::AT_FDCWD || path.starts_with(b"/") {
            return path.to_vec();
        }
        let mut name = format!("/dev/fd/{}", self.folder).into_bytes();
        if !path.is_empty() {
            name.push(b'/');
            name.extend(path);
        }
        name
    }

    /// Whether the name leads nowhere in the new program, so that an interpreter cannot open it.
    fn is_closed_by_exec(&self) -> bool {
        if self.folder == libc::AT_FDCWD || self.path.to_bytes().starts_with(b"/") {
            return false;
        }
        let arguments = [self.folder as u64, libc::F_GETFD as u64, 0, 0, 0, 0];
        // SAFETY: reads a flag.
        let flags = unsafe { sys::call(libc::SYS_fcntl, arguments) };
        flags >= 0 && flags & i64::from(libc::FD_CLOEXEC) != 0
    }

    fn open(&self) -> Result<Opened, i32> {
        if view::is_own_program(self.path.to_bytes())
            && let Some(program) = files::program()
        {
            return reopened(program, true);
        }
        if self.flags & libc::AT_EMPTY_PATH != 0 && self.path.is_empty() {
            return match self.folder {
                libc::AT_FDCWD => Err(libc::EACCES),
                folder => reopened(folder, false),
            };
        }
        let nofollow = match self.flags & libc::AT_SYMLINK_NOFOLLOW {
            0 => 0,
            _ => libc::O_NOFOLLOW,
        };
        at(self.folder, &self.path, nofollow)
    }

    /// Whether the kernel would execute the file now: rights, writers, and the length of arguments and environment.
    fn check(&self, file: RawFd) -> Result<(), i32> {
        const AT_EXECVE_CHECK: i32 = 0x10000;
        let flags = libc::AT_EMPTY_PATH | AT_EXECVE_CHECK;
        let empty = c"".as_ptr() as u64;
        let arguments = [file as u64, empty, self.argv, self.envp, flags as u64, 0];
        // SAFETY: executes nothing; the kernel checks the program's pointers.
        match unsafe { sys::call(libc::SYS_execveat, arguments) } {
            0 => Ok(()),
            // A kernel before 6.14.
            failed if failed == error(libc::EINVAL) => {
                may_run(file, c"")?;
                match is_written(file) {
                    true => Err(libc::ETXTBSY),
                    false => Ok(()),
                }
            }
            failed => Err(-failed as i32),
        }
    }
}

/// The file of a descriptor, which may have been opened for something else.
fn reopened(descriptor: RawFd, own: bool) -> Result<Opened, i32> {
    let again = CString::new(format!("/proc/self/fd/{descriptor}")).map_err(|_| libc::EBADF)?;
    match at(libc::AT_FDCWD, &again, 0) {
        // Without /proc: the descriptor itself, if it was opened for reading.
        Err(libc::ENOENT | libc::ENOTDIR | libc::EACCES) if own || is_open(descriptor) => {
            let copy = [descriptor as u64, libc::F_DUPFD_CLOEXEC as u64, 0, 0, 0, 0];
            // SAFETY: a new descriptor of the same file.
            let copy = unsafe { sys::call(libc::SYS_fcntl, copy) };
            if copy < 0 {
                return Err(-copy as i32);
            }
            // SAFETY: new, with no other owner.
            let copy = unsafe { std::os::fd::FromRawFd::from_raw_fd(copy as RawFd) };
            is_regular(&copy)?;
            let reads = File::from(copy);
            let mut byte = [0];
            let readable = reads.read_at(&mut byte, 0).is_ok();
            Ok(match readable {
                true => Opened::Readable(reads.into()),
                false => Opened::Unreadable(reads.into()),
            })
        }
        Err(libc::ENOENT) => Err(libc::EBADF),
        opened => opened,
    }
}

fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: reads a flag.
    unsafe {
        sys::call(
            libc::SYS_fcntl,
            [descriptor as u64, libc::F_GETFD as u64, 0, 0, 0, 0],
        ) >= 0
    }
}

/// Opens a regular file. What else it may be is not opened for reading, which could have effects.
fn at(folder: RawFd, path: &CStr, flags: i32) -> Result<Opened, i32> {
    let found = files::open(folder, path, libc::O_PATH | flags)?;
    is_regular(&found)?;
    match files::open(folder, path, libc::O_RDONLY | libc::O_NONBLOCK | flags) {
        Ok(file) => Ok(Opened::Readable(file)),
        Err(libc::EACCES | libc::EPERM) => Ok(Opened::Unreadable(found)),
        Err(errno) => Err(errno),
    }
}

/// # Errors
/// The kernel's for what is not a file.
fn is_regular(file: &OwnedFd) -> Result<(), i32> {
    match status(file.as_raw_fd())?.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFLNK => Err(libc::ELOOP),
        _ => Err(libc::EACCES),
    }
}

fn status(file: RawFd) -> Result<libc::stat, i32> {
    // SAFETY: zero is a value of the structure, which the call fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        match sys::call(
            libc::SYS_fstat,
            [file as u64, (&raw mut status) as u64, 0, 0, 0, 0],
        ) {
            0 => Ok(status),
            failed => Err(-failed as i32),
        }
    }
}

/// # Errors
/// The kernel's if this process may not execute the file.
fn may_run(folder: RawFd, path: &CStr) -> Result<(), i32> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    let path = path.as_ptr() as u64;
    let arguments = [folder as u64, path, libc::X_OK as u64, flags as u64, 0, 0];
    // SAFETY: asks only.
    match unsafe { sys::call(libc::SYS_faccessat2, arguments) } {
        0 => Ok(()),
        failed => Err(-failed as i32),
    }
}

/// Whether somebody has the file open for writing, as far as this process may know: the kernel gives a lease for
/// reading only if nobody has.
fn is_written(file: RawFd) -> bool {
    const F_SETSIG: i32 = 10;
    let control = |command: i32, value: i32| {
        let arguments = [file as u64, command as u64, value as u64, 0, 0, 0];
        // SAFETY: a descriptor of ours.
        unsafe { sys::call(libc::SYS_fcntl, arguments) }
    };
    // Ignored by default, if somebody opens the file just now.
    control(F_SETSIG, libc::SIGURG);
    let taken = control(libc::F_SETLEASE, libc::F_RDLCK);
    if taken == 0 {
        control(libc::F_SETLEASE, libc::F_UNLCK);
    }
    taken == error(libc::EAGAIN)
}

/// How a file is executed; `closed`: interpreters cannot open it.
fn how(file: &OwnedFd, closed: bool) -> Result<How, i32> {
    let mut file = File::from(file.try_clone().map_err(|_| libc::EMFILE)?);
    for depth in 0..=MAX_DEPTH {
        let mut head = Vec::new();
        let mut from_start = At(&file, 0);
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        (&mut from_start)
            .take(elf::HEAD as u64)
            .read_to_end(&mut head)
            .map_err(errno)?;
        let interpreter = match elf::kind(&head) {
            Kind::Program => return program(&file, &head),
            Kind::OtherProgram => return Ok(How::Native("not an x86-64 program".to_owned())),
            Kind::Neither => return Err(libc::ENOEXEC),
            Kind::Script => {
                let script = Interpreter::of(&head).filter(|script| !script.file.is_empty());
                let interpreter = script.ok_or(libc::ENOEXEC)?.file.as_bytes();
                CString::new(interpreter).map_err(|_| libc::ENOEXEC)?
            }
        };
        if depth == 0 && closed {
            return Err(libc::ENOENT);
        }
        let opened = at(libc::AT_FDCWD, &interpreter, 0)?;
        may_run(opened.descriptor(), c"")?;
        match opened {
            Opened::Readable(opened) => file = opened.into(),
            Opened::Unreadable(_) => return Ok(How::Native("not readable".to_owned())),
        }
    }
    Err(libc::ELOOP)
}

/// Reads a file from an offset, whatever its own position is.
struct At<'a>(&'a File, u64);

impl std::io::Read for &mut At<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.read_at(to, self.1)?;
        self.1 += length as u64;
        Ok(length)
    }
}

/// How an x86-64 program is executed.
fn program(file: &File, head: &[u8]) -> Result<How, i32> {
    if let Some(interpreter) = loader::interpreter(file, head).ok_or(libc::ENOEXEC)? {
        let interpreter = CString::new(interpreter).map_err(|_| libc::ENOEXEC)?;
        may_run(at(libc::AT_FDCWD, &interpreter, 0)?.descriptor(), c"")?;
    }
    if let Some(rights) = numaloc_launch::rights::gained(file) {
        return Ok(How::Native(rights.to_owned()));
    }
    Ok(match loader::collides(file, head) {
        true => How::Emulated,
        false => How::Translated,
    })
}
