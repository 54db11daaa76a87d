//! The access trace (`record --trace`): the accesses of each thread below its private caches, and where threads
//! synchronise, sent to the recorder while the program runs.
//!
//! [`caches`] filters the accesses, [`stream`] packs them into blocks, [`socket`] sends them; in the recorder
//! [`receive`] takes them. Compression and files are the recorder's task: the program gets neither a thread nor a
//! library of ours. Only the socket's buffer (about 200 KiB per process) can queue; when the recorder is slower than
//! the program, the program's threads wait.
//!
//! Memory: 8 bytes for each line touched (one more shadow table); for each thread the state of the filter caches
//! (about 25 bytes per line of both caches, 420 KiB with the default sizes), and a block, packed as it grows, with a
//! copy while it is sent: together about 80 to 200 KiB, as values repeat, and never more than 700.

mod arrivals;
pub mod caches;
pub mod receive;
mod socket;
pub mod stream;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use numaloc_access_trace::message::{Head, Message};
pub use numaloc_journal::settings::Filter;

use crate::shadow::Shadow;
use socket::Socket;

/// A process's connection to the recorder.
pub struct Outlet {
    filter: Filter,
    directory: Shadow,
    socket: Socket,
    /// The recorder takes no more messages.
    closed: AtomicBool,
}

impl Outlet {
    /// Connects to the recorder that works in `folder` and introduces this process.
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
            windows: filter.windows,
            marks_loads: filter.marks_loads,
        }));
        Ok(outlet)
    }

    /// The connection of a forked child to the same recorder. Closes the parent's connection in the child only.
    ///
    /// # Errors
    /// The system's error.
    pub fn forked(&self, folder: &Path, path: &str) -> std::io::Result<Self> {
        self.close();
        self.directory.clear();
        Self::with_directory(self.filter, folder, self.directory, (0, path))
    }

    /// Sends one message; after the first failure nothing more. Waits while the recorder is behind.
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

    /// Closes this process's connection.
    pub fn close(&self) {
        self.stop();
        self.socket.close();
    }

    /// Stops sending.
    pub fn stop(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether the recorder takes no more messages.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Sends the end of the trace. All threads have ended.
    pub fn finish(&self) {
        self.send(&Message::End);
    }

    /// Clears the directory for memory that was unmapped or replaced.
    pub fn forget(&self, address: u64, length: u64) {
        self.directory.forget(address, length);
    }
}
