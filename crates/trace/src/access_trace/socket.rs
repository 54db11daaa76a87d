//! The traced process's end of the socket to the recorder, and the address where the recorder listens.
//!
//! A `SOCK_SEQPACKET` socket keeps messages whole, so threads send without a lock and a killed process leaves no
//! partial message. Like the journal's, the descriptor has a high number and is checked before each use.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The socket's name in the recorder's work folder.
const NAME: &str = "accesses.socket";

/// Bytes that the socket should buffer: the default limit for processes without privileges.
const BUFFER: libc::c_int = 212_992;

/// The address of the socket in `folder`, which must stay open while it is used: socket paths are short, folder paths
/// need not be.
pub(super) fn address(folder: &File) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    for (to, from) in address.sun_path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    (address, size_of::<libc::sockaddr_un>() as libc::socklen_t)
}

/// A new socket.
pub(super) fn socket() -> std::io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let made = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if made < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor with no other owner.
    let made = unsafe { OwnedFd::from_raw_fd(made) };
    hold(made.as_raw_fd(), BUFFER);
    Ok(made)
}

/// Asks for a socket buffer of `bytes` bytes. A smaller one is slower, not wrong.
fn hold(socket: RawFd, bytes: libc::c_int) {
    // SAFETY: the option's value is the integer pointed to.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// A connection to the recorder.
pub(super) struct Socket {
    descriptor: AtomicI32,
    identity: (u64, u64),
}

impl Socket {
    /// Connects to the recorder that listens in `folder`.
    pub fn connect(folder: &Path) -> std::io::Result<Self> {
        let folder = File::open(folder)?;
        let made = socket()?;
        let (address, length) = address(&folder);
        // SAFETY: an address of that length.
        if unsafe { libc::connect(made.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let made = numaloc_journal::out_of_the_way(made);
        let identity = identity(made.as_raw_fd()).ok_or_else(std::io::Error::last_os_error)?;
        Ok(Self {
            descriptor: AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(made)),
            identity,
        })
    }

    /// Sends one message; waits while the recorder is behind.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        loop {
            let descriptor = self.descriptor.load(Relaxed);
            // Some programs close descriptors that they never opened, and open others in their place.
            if descriptor < 0 || identity(descriptor) != Some(self.identity) {
                return Err(std::io::ErrorKind::NotConnected.into());
            }
            // SAFETY: the length is the slice's.
            let sent = unsafe {
                libc::send(
                    descriptor,
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Simulates a system that allows a smaller buffer.
    #[cfg(test)]
    pub fn hold(&self, bytes: libc::c_int) {
        hold(self.descriptor.load(Relaxed), bytes);
    }

    /// Closes this process's descriptor.
    pub fn close(&self) {
        let descriptor = self.descriptor.swap(-1, Relaxed);
        numaloc_journal::descriptors::unlist(descriptor);
        if descriptor >= 0 && identity(descriptor) == Some(self.identity) {
            // SAFETY: our own descriptor, which is not used from now on.
            unsafe { libc::close(descriptor) };
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Device and inode of a descriptor's file.
fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: a structure of integers, for which zero is a value; the call fills it.
    let (known, data) = unsafe {
        let mut data: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut data), data)
    };
    (known == 0).then_some((data.st_dev, data.st_ino))
}
