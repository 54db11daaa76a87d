//! The access trace (`record --trace`): what each thread asks of the memory system below its private caches, and where threads
//! synchronise, sent to the recorder while the program runs.
//!
//! [`caches`] lets through what they do not answer, [`stream`] makes blocks of it, [`socket`] sends them; in the recorder
//! [`receive`] takes them. Compression and files are the recorder's: the program gets neither a thread nor a library from us.
//! The socket's buffer (some 200 KiB a process) is all that waits; when the recorder is slower than the program, the
//! program's threads wait for it.
//!
//! Memory: 8 bytes for each line touched (one more shadow table), and for each thread the filter's lines
//! (some 25 bytes for each of both caches, 420 KiB with the default sizes) and a block, packed as it grows and once more while it is sent:
//! together some 80 to 200 KiB, as values repeat, and never more than 700.

pub mod caches;
mod level;
pub mod receive;
mod socket;
pub mod stream;
mod tags;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use numaloc_access_trace::message::{CacheSize, Head, Message};

use crate::shadow::Shadow;
use socket::Socket;

/// What filters the accesses of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// First level.
    pub l1: CacheSize,
    /// Second level, which holds all that the first does.
    pub l2: CacheSize,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            l1: CacheSize {
                bytes: 32 << 10,
                ways: 8,
            },
            l2: CacheSize {
                bytes: 1 << 20,
                ways: 16,
            },
        }
    }
}

/// A process's way to the recorder.
pub struct Outlet {
    filter: Filter,
    directory: Shadow,
    socket: Socket,
    /// The recorder takes no more.
    closed: AtomicBool,
}

impl Outlet {
    /// Connects to the recorder that works in `folder`, and says who this process is.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(
        filter: Filter,
        folder: &Path,
        line_shift: u32,
        image: (u32, &str),
    ) -> std::io::Result<Self> {
        Self::with_directory(filter, folder, Shadow::reserve(line_shift)?, image)
    }

    fn with_directory(
        filter: Filter,
        folder: &Path,
        directory: Shadow,
        (image, path): (u32, &str),
    ) -> std::io::Result<Self> {
        let outlet = Self {
            filter,
            directory,
            socket: Socket::connect(folder)?,
            closed: AtomicBool::new(false),
        };
        outlet.send(&Message::Head(Head {
            pid: std::process::id(),
            image,
            line_shift: directory.shift(),
            l1: filter.l1,
            l2: filter.l2,
            path: path.to_owned(),
        }));
        Ok(outlet)
    }

    /// In a forked child: its own way to the same recorder; the parent's is closed here, not in the parent.
    ///
    /// # Errors
    /// The system's error.
    pub fn forked(&self, folder: &Path, path: &str) -> std::io::Result<Self> {
        self.close();
        self.directory.clear();
        Self::with_directory(self.filter, folder, self.directory, (0, path))
    }

    /// Sends one message; nothing more after the first that could not be sent. Waits while the recorder is behind.
    fn send(&self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        if self.send_bytes(&bytes).is_err() {
            self.stop();
        }
    }

    fn send_bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        if self.closed() {
            return Ok(());
        }
        self.socket.send(bytes)
    }

    /// Closes this process's way to the recorder.
    pub fn close(&self) {
        self.stop();
        self.socket.close();
    }

    /// Sends nothing more.
    pub fn stop(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether the recorder takes no more.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// All threads have ended.
    pub fn finish(&self) {
        self.send(&Message::End);
    }

    /// Memory was unmapped or replaced: nobody has written it since.
    pub fn forget(&self, address: u64, length: u64) {
        self.directory.forget(address, length);
    }
}
