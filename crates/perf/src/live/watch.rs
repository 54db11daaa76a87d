//! Samples programs that run already.
//!
//! Where the kernel lets this user sample the whole machine (root, or `kernel.perf_event_paranoid` of 0 or less), each
//! CPU has one event: it costs nothing when threads are switched, and the kernel reports each new thread and process.
//! Otherwise each thread has events of its own, and whoever calls finds new threads in `/proc`.
//!
//! Memory: 128 KiB of ring per CPU and event, or 16 KiB per thread and event, and one round of records.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::feed::parsed;
use super::sys::{self, Attr, Ring};
use super::{SAMPLE_TYPE, monotonic_ns};
use crate::events::{MemoryEvent, cpu_list};
use crate::record::Event;

/// Pages of a thread's ring.
const THREAD_PAGES: usize = 4;

/// Open events of programs that run already.
#[derive(Debug)]
pub struct Watch {
    events: Vec<MemoryEvent>,
    period: u64,
    /// Whether all CPUs are sampled, instead of threads.
    of_machine: bool,
    /// Rings with the thread of each; 0 for those of CPUs.
    rings: Vec<(i32, Ring)>,
    leaders: Vec<(i32, OwnedFd)>,
    ids: Vec<(u64, usize)>,
    pending: Vec<(u64, usize, Event)>,
    /// Start of the last round: what comes later is not older.
    before: u64,
}

impl Watch {
    /// Takes one sample every `period` events, of the whole machine if this user may.
    ///
    /// # Errors
    /// The kernel's, if this user may not even sample threads of their own.
    pub fn open(events: &[MemoryEvent], period: u64) -> io::Result<Self> {
        let mut watch = Self {
            events: events.to_vec(),
            period,
            of_machine: true,
            rings: Vec::new(),
            leaders: Vec::new(),
            ids: Vec::new(),
            pending: Vec::new(),
            before: monotonic_ns(),
        };
        if watch.open_machine().is_err() {
            watch.forget(|_| true);
            watch.of_machine = false;
            // Tried on a thread of this process.
            let own = std::process::id() as i32;
            watch.enter(own)?;
            watch.leave(own);
        }
        Ok(watch)
    }

    /// Whether the whole machine is sampled, and the kernel reports new threads.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        self.of_machine
    }

    fn open_machine(&mut self) -> io::Result<()> {
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        for (source, event) in self.events.clone().iter().enumerate() {
            for cpu in cpu_list(&cpus) {
                if !event.cpus.is_empty() && !event.cpus.contains(&cpu) {
                    continue;
                }
                let open = |attr: &Attr, group| sys::open_system_wide(attr, cpu, group);
                self.add(0, source, event, sys::DATA_PAGES, open)?;
            }
        }
        Ok(())
    }

    /// Samples thread `tid` from now on, unless the whole machine is sampled.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if the thread has ended.
    pub fn enter(&mut self, tid: i32) -> io::Result<()> {
        if self.of_machine {
            return Ok(());
        }
        for (source, event) in self.events.clone().iter().enumerate() {
            let open = |attr: &Attr, group| sys::open_thread(attr, tid, group);
            self.add(tid, source, event, THREAD_PAGES, open)?;
        }
        Ok(())
    }

    /// A thread has ended: what its ring still holds is kept.
    pub fn leave(&mut self, tid: i32) {
        if !self.of_machine {
            self.drain();
            self.forget(|of| of == tid);
        }
    }

    fn forget(&mut self, is: impl Fn(i32) -> bool) {
        let gone: Vec<u64> = self
            .rings
            .iter()
            .filter(|(tid, _)| is(*tid))
            .map(|(_, ring)| ring.id)
            .collect();
        self.rings.retain(|(tid, _)| !is(*tid));
        self.leaders.retain(|(tid, _)| !is(*tid));
        self.ids.retain(|(id, _)| !gone.contains(id));
    }

    fn add(
        &mut self,
        tid: i32,
        source: usize,
        event: &MemoryEvent,
        pages: usize,
        open: impl Fn(&Attr, Option<RawFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let leader = match event.leader {
            Some(config) => Some(open(
                &Attr::counting(event.kind, config).of_a_thread(),
                None,
            )?),
            None => None,
        };
        let tasks = self.of_machine && source == 0;
        let period = event.period(self.period);
        let attr = Attr::sampling(event, period, SAMPLE_TYPE, tasks).of_a_thread();
        let group = leader.as_ref().map(AsRawFd::as_raw_fd);
        let mut with_kernel = attr;
        with_kernel.include_kernel();
        // Faults of system calls belong to the program too; of accesses, the PMU's are the program's own. IBS before
        // Linux 6.13 cannot exclude the kernel; samples of its memory are left out later.
        let fd = match event.faults {
            true => open(&with_kernel, group).or_else(|_| open(&attr, group)),
            false => open(&attr, group).or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => open(&with_kernel, group),
                _ => Err(error),
            }),
        }?;
        let ring = Ring::map(fd, pages)?;
        self.ids.push((ring.id, source));
        self.rings.push((tid, ring));
        self.leaders.extend(leader.map(|leader| (tid, leader)));
        Ok(())
    }

    fn drain(&mut self) {
        let (pending, ids) = (&mut self.pending, &self.ids);
        for (_, ring) in &mut self.rings {
            let broken = ring.drain(|record| {
                if let Some((source, event)) = parsed(record, ids) {
                    pending.push((event.time(), source, event));
                }
            });
            if broken > 0 {
                pending.push((0, 0, Event::Lost(1)));
            }
        }
    }

    /// The events since the last call but those that later ones may precede, oldest first: the index of the event that
    /// sampled, and the event. `all`: those too, at the end.
    pub fn take(&mut self, all: bool) -> Vec<(usize, Event)> {
        let now = monotonic_ns();
        self.drain();
        let until = if all { u64::MAX } else { self.before };
        self.before = now;
        self.pending.sort_by_key(|&(at, ..)| at);
        let ready = self.pending.partition_point(|&(at, ..)| at < until);
        self.pending
            .drain(..ready)
            .map(|(_, source, event)| (source, event))
            .collect()
    }

    /// Waits until a ring is a quarter full, for at most `most`.
    pub fn wait(&self, most: Duration) {
        sys::wait_for_records(self.rings.iter().map(|(_, ring)| ring), most);
    }
}
