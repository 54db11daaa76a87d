//! Runs a program under the machine's memory events.
//!
//! Events are opened for the program on every CPU (the kernel shares a ring buffer of inherited events only
//! within a CPU), enabled by its `execve`, and inherited by every thread and process it creates. Records of
//! different CPUs are merged in time order: no record that arrives later can be older than the start of the previous
//! round. Memory: 128 KiB of ring per CPU and event, plus one round of records.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::Duration;

use numaloc_model::Profile;

use crate::collect::{Collector, Options, Origin, Source};
use crate::error::PerfError;
use crate::events::{MemoryEvent, cpu_list};

pub mod counting;
mod feed;
pub mod machine;
mod ring;
mod sys;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod watch;

use feed::Feed;
use sys::{Attr, Ring};

pub use sys::monotonic_ns;

/// TID, TIME, ADDR, PERIOD, WEIGHT, DATA_SRC, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 16;
/// Length of a round if no buffer fills up earlier.
const ROUND: Duration = Duration::from_millis(100);

/// A program that was started under its events.
#[derive(Debug)]
pub struct Session {
    child: Child,
    rings: Vec<Ring>,
    /// Events that only count, kept open for the group members they lead.
    _leaders: Vec<OwnedFd>,
    feed: Feed,
}

impl Session {
    /// Starts `command`; each of `events` takes one sample every `period` events.
    ///
    /// # Errors
    /// [`PerfError::Refused`] if the kernel does not let this user sample, [`PerfError::Spawn`] if the
    /// program cannot be run. In either case the program has not executed anything.
    pub fn start(
        command: Command,
        events: &[MemoryEvent],
        period: u64,
        options: &Options,
    ) -> Result<Self, PerfError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawn = |source| PerfError::Spawn {
            program: program.clone(),
            source,
        };
        let held = Held::spawn(command).map_err(spawn)?;
        let cpus = fs::read_to_string("/sys/devices/system/cpu/online").map_err(|error| {
            PerfError::io("read", Path::new("/sys/devices/system/cpu/online"), error)
        })?;
        let (mut rings, mut leaders, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for (source, event) in events.iter().enumerate() {
            for cpu in cpu_list(&cpus) {
                if !event.cpus.is_empty() && !event.cpus.contains(&cpu) {
                    continue;
                }
                let (ring, leader) = open(event, period, held.pid, cpu, source == 0)?;
                ids.push((ring.id, source));
                rings.push(ring);
                leaders.extend(leader);
            }
        }
        let sources = events
            .iter()
            .map(|event| Source {
                name: event.name.clone(),
                period: Some(event.period(period)),
                faults: event.faults,
                meaning: None,
            })
            .collect();
        Ok(Self {
            child: held.release().map_err(spawn)?,
            rings,
            _leaders: leaders,
            feed: Feed::new(Collector::new(options.clone(), sources), ids),
        })
    }

    /// The program's process id, for forwarding signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Samples until the program ends. Processes it leaves behind are no longer sampled.
    ///
    /// # Errors
    /// [`PerfError::NoAddresses`] if nothing was sampled; the program's status, the first half of the pair, is
    /// returned in any case.
    pub fn finish(
        mut self,
        origin: Origin,
    ) -> Result<(ExitStatus, Result<Profile, PerfError>), PerfError> {
        let failed = |error| PerfError::Io {
            action: "wait for the program".to_owned(),
            source: error,
        };
        let mut before = 0;
        loop {
            let ended = self.child.try_wait().map_err(failed)?;
            let now = sys::monotonic_ns();
            self.drain();
            let safe = if ended.is_some() { u64::MAX } else { before };
            self.feed.flush_until(safe);
            if let Some(status) = ended {
                return Ok((status, self.feed.into_collector().finish(origin)));
            }
            before = now;
            sys::wait_for_records(self.rings.iter(), ROUND);
        }
    }

    /// Reads what the kernel has written.
    fn drain(&mut self) {
        for ring in &mut self.rings {
            if ring.drain(|record| self.feed.record(record)) > 0 {
                self.feed.record_broken();
            }
        }
    }
}

/// Whether the kernel lets this user sample a program of its own. Tried with page faults, which every machine has.
///
/// # Errors
/// The kernel's: `EACCES` or `EPERM` if `perf_event_paranoid` or a sandbox forbids it.
pub fn permitted() -> io::Result<()> {
    let attr = Attr::sampling(&MemoryEvent::page_faults(), 1, SAMPLE_TYPE, false);
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let cpu = cpu_list(&cpus).first().copied().unwrap_or_default();
    sys::open(&attr, std::process::id(), cpu, None).map(drop)
}

/// A process that waits before its `execve` until it is released.
struct Held {
    pid: u32,
    go: io::PipeWriter,
    spawning: JoinHandle<io::Result<Child>>,
}

impl Held {
    fn spawn(mut command: Command) -> io::Result<Self> {
        let (mut pid_from_child, pid_to_parent) = io::pipe()?;
        let (wait, go) = io::pipe()?;
        // The child inherits copies of all ends; `hold` closes the copy that would keep its own pipe open.
        sys::hold(&mut command, &pid_to_parent, &wait, &go);
        // `spawn` returns only after `execve`, so it runs in a thread of its own.
        let spawning = std::thread::spawn(move || {
            let child = command.spawn();
            drop((pid_to_parent, wait));
            child
        });
        let mut pid = [0; 4];
        match io::Read::read_exact(&mut pid_from_child, &mut pid) {
            Ok(()) => Ok(Self {
                pid: u32::from_ne_bytes(pid),
                go,
                spawning,
            }),
            // The child failed earlier: the error of `spawn` gives the reason.
            Err(error) => match spawning.join() {
                Ok(Err(why)) => Err(why),
                _ => Err(error),
            },
        }
    }

    fn release(mut self) -> io::Result<Child> {
        io::Write::write_all(&mut self.go, &[1])?;
        drop(self.go);
        self.spawning
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")))
    }
}

/// Opens an event of a process on a CPU, together with its group leader if it needs one.
fn open(
    event: &MemoryEvent,
    period: u64,
    pid: u32,
    cpu: u32,
    first: bool,
) -> Result<(Ring, Option<OwnedFd>), PerfError> {
    let refused = |source: io::Error| PerfError::Refused {
        event: event.name.clone(),
        paranoid: fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
            .map_or_else(|_| "unreadable".to_owned(), |text| text.trim().to_owned()),
        source,
    };
    let leader = match event.leader {
        Some(config) => {
            let attr = Attr::counting(event.kind, config);
            Some(sys::open(&attr, pid, cpu, None).map_err(refused)?)
        }
        None => None,
    };
    let mut attr = Attr::sampling(event, event.period(period), SAMPLE_TYPE, first);
    let group = leader.as_ref().map(AsRawFd::as_raw_fd);
    let opened = sys::open(&attr, pid, cpu, group).or_else(|error| {
        // IBS before Linux 6.13 cannot exclude the kernel; its samples are dropped later.
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        attr.include_kernel();
        sys::open(&attr, pid, cpu, group)
    });
    let ring = opened
        .and_then(|fd| Ring::map(fd, sys::DATA_PAGES))
        .map_err(refused)?;
    Ok((ring, leader))
}
