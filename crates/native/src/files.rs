//! Files that the engine keeps open, so that it needs no path to them after the start: its own executable, and the
//! program's. Their descriptors, like those of the recording, have numbers that the program does not use.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use numaloc_trace::descriptors;

use crate::sys;

/// A file that is open until the process ends, or the program closes it in spite of us.
struct Kept {
    descriptor: AtomicI32,
    inode: AtomicU64,
}

impl Kept {
    const fn none() -> Self {
        Self {
            descriptor: AtomicI32::new(-1),
            inode: AtomicU64::new(0),
        }
    }

    fn set(&self, file: OwnedFd) {
        let file = descriptors::out_of_the_way(file);
        self.inode.store(inode(file.as_raw_fd()), Relaxed);
        self.descriptor.store(file.into_raw_fd(), Relaxed);
    }

    fn get(&self) -> Option<RawFd> {
        let descriptor = self.descriptor.load(Relaxed);
        let same = descriptor >= 0 && inode(descriptor) == self.inode.load(Relaxed);
        same.then_some(descriptor)
    }
}

static ENGINE: Kept = Kept::none();
static PROGRAM: Kept = Kept::none();

/// The inode of an open file; 0 if it is not open.
fn inode(descriptor: RawFd) -> u64 {
    // SAFETY: zero is a value of the structure, which the call fills.
    unsafe {
        let mut data: libc::stat = std::mem::zeroed();
        match libc::fstat(descriptor, &raw mut data) {
            0 => data.st_ino,
            _ => 0,
        }
    }
}

/// Opens a file without the C library: `O_CLOEXEC` is set.
pub fn open(folder: RawFd, path: &std::ffi::CStr, flags: i32) -> Result<OwnedFd, i32> {
    let flags = flags | libc::O_CLOEXEC;
    let arguments = [folder as u64, path.as_ptr() as u64, flags as u64, 0, 0, 0];
    // SAFETY: the string lives; opens nothing that a flag would create.
    let file = unsafe { sys::call(libc::SYS_openat, arguments) };
    match file {
        // SAFETY: a new descriptor with no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(file as RawFd) }),
        failed => Err(-failed as i32),
    }
}

/// Keeps the engine's executable open: as the predecessor passed it on, or the running one.
pub fn keep_engine(passed: Option<RawFd>) {
    descriptors::beyond_the_limit();
    let file = match passed {
        // SAFETY: a descriptor that the predecessor meant for us.
        Some(passed) => Some(unsafe { OwnedFd::from_raw_fd(passed) }),
        None => open(libc::AT_FDCWD, c"/proc/self/exe", libc::O_PATH).ok(),
    };
    if let Some(file) = file {
        ENGINE.set(file);
    }
}

/// Keeps the program's file open.
pub fn keep_program(file: OwnedFd) {
    PROGRAM.set(file);
}

/// The engine's executable.
pub fn engine() -> Option<RawFd> {
    ENGINE.get()
}

/// The program's file.
pub fn program() -> Option<RawFd> {
    PROGRAM.get()
}
