//! The recorder's end: receives the messages of all traced processes, each on its own connection.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::socket;

/// Longest message received, in bytes; a longer one is truncated and then invalid.
const LONGEST: usize = 1 << 20;
/// How long a thread waits before it checks whether the recording has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How long processes that outlive the recording may still send.
const GRACE: Duration = Duration::from_secs(1);

/// Takes the messages of one process image. Called by several threads, with whole messages.
pub trait Sink: Send + Sync + 'static {
    /// Takes one message; returns false to take no more from this process.
    fn take(&self, message: &[u8]) -> bool;
}

/// Receives messages until the recording ends.
pub struct Receiver {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens in `folder`; `connected` makes a sink for each process image, which `threads` threads feed.
    ///
    /// # Errors
    /// The system's error.
    pub fn listen<S: Sink>(
        folder: &Path,
        threads: usize,
        connected: impl FnMut() -> S + Send + 'static,
    ) -> std::io::Result<Self> {
        let folder = File::open(folder)?;
        let listener = socket::socket()?;
        let (address, length) = socket::address(&folder);
        // SAFETY: an address of that length, and no pointers.
        let listening = unsafe {
            libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length) == 0
                && libc::listen(listener.as_raw_fd(), 1024) == 0
        };
        if !listening {
            return Err(std::io::Error::last_os_error());
        }
        let ending = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ending);
        let thread = std::thread::Builder::new()
            .name("trace-listen".to_owned())
            .spawn(move || accept(&listener, &stop, threads.max(1), connected))?;
        Ok(Self {
            ending,
            thread: Some(thread),
        })
    }

    /// Ends the recording: receives what was sent, and returns when the sinks have taken all of it. Processes that are
    /// still alive may send for one more second.
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.ending.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept<S: Sink>(
    listener: &OwnedFd,
    ending: &Arc<AtomicBool>,
    threads: usize,
    mut connected: impl FnMut() -> S,
) {
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    loop {
        // Read before waiting: a process that connected before the end is still accepted.
        let last = ending.load(Relaxed);
        if readable(listener, if last { Duration::ZERO } else { LOOK }) {
            // SAFETY: no address is asked for.
            let made = unsafe {
                libc::accept4(
                    listener.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            };
            if made >= 0 {
                // SAFETY: a new descriptor with no other owner.
                let connection = unsafe { OwnedFd::from_raw_fd(made) };
                let sink = connected();
                let ending = Arc::clone(ending);
                workers.retain(|worker| !worker.is_finished());
                workers.push(std::thread::spawn(move || {
                    // The first message introduces the process and must reach the sink first.
                    take(&connection, &sink, &ending, 1);
                    std::thread::scope(|scope| {
                        for _ in 0..threads {
                            scope.spawn(|| take(&connection, &sink, &ending, usize::MAX));
                        }
                    });
                }));
            }
        } else if last {
            break;
        }
    }
    for worker in workers {
        let _ = worker.join();
    }
}

/// Receives `count` messages, fewer if the process closes its end, the sink takes no more, or the recording ends.
fn take(connection: &OwnedFd, sink: &dyn Sink, ending: &AtomicBool, count: usize) {
    let mut buffer = vec![0u8; LONGEST];
    let mut until: Option<Instant> = None;
    let mut taken = 0;
    while taken < count {
        if ending.load(Relaxed) {
            let until = *until.get_or_insert_with(|| Instant::now() + GRACE);
            if Instant::now() > until {
                return close(connection);
            }
        }
        if !readable(connection, LOOK) {
            continue;
        }
        // SAFETY: the length is the buffer's.
        let length = unsafe {
            libc::recv(
                connection.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match length {
            1.. if sink.take(&buffer[..length as usize]) => taken += 1,
            0.. => return close(connection),
            _ => match std::io::Error::last_os_error().kind() {
                // Another thread was faster, or a signal came.
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {}
                _ => return close(connection),
            },
        }
    }
}

/// Closes the connection, so that the sender does not wait for us.
fn close(connection: &OwnedFd) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(connection.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Whether a message or the end of the connection can be read within `wait`.
fn readable(descriptor: &OwnedFd, wait: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, and the count says so.
    unsafe { libc::poll(&mut poll, 1, wait.as_millis() as libc::c_int) > 0 }
}
