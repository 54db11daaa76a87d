//! Samples one running thread: for following a program that runs already, thread by thread.
//!
//! Memory: 16 KiB of ring per thread and event. What the ring has no room for is counted as lost.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::ring::RawRecord;
use super::sys::{self, Attr, Ring};
use crate::data_src::{DataSource, Level, Operation};
use crate::events::MemoryEvent;
use crate::record::kind;
use numaloc_model::{Access, Served};

/// TID, TIME, ADDR.
pub(super) const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 3;
/// WEIGHT, DATA_SRC: the cycles that an access took, and what served it. Page faults have neither.
const SOURCE_TYPE: u64 = 1 << 14 | 1 << 15;
/// Pages of a ring's data: a power of two, small because there is a ring for each thread.
const DATA_PAGES: usize = 4;

pub use super::sys::{monotonic_ns, thread_ns};

/// The samples of a thread.
#[derive(Debug)]
pub struct ThreadSampler {
    ring: Ring,
    /// Whether samples say what served the access.
    sources: bool,
    _leader: Option<OwnedFd>,
}

/// What was read from a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Samples with an address.
    pub samples: u64,
    /// Samples that the kernel dropped.
    pub lost: u64,
}

impl ThreadSampler {
    /// Samples every `period`-th `event` of thread `tid` from now on.
    ///
    /// # Errors
    /// The kernel's: `EACCES` or `EPERM` if it does not let this user sample, `ESRCH` if the thread has ended.
    pub fn open(event: &MemoryEvent, tid: i32, period: u64) -> io::Result<Self> {
        let leader = match event.leader {
            Some(config) => Some(sys::open_thread(
                &Attr::counting(event.kind, config).of_a_thread(),
                tid,
                None,
            )?),
            None => None,
        };
        let sources = !event.faults;
        let sample_type = SAMPLE_TYPE | if sources { SOURCE_TYPE } else { 0 };
        let attr = Attr::sampling(event, event.period(period), sample_type, false);
        let mut attr = attr.of_a_thread();
        let group = leader.as_ref().map(AsRawFd::as_raw_fd);
        let opened = sys::open_thread(&attr, tid, group).or_else(|error| {
            // IBS before Linux 6.13 cannot exclude the kernel; its addresses are left out below.
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
            attr.include_kernel();
            sys::open_thread(&attr, tid, group)
        });
        Ok(Self {
            ring: Ring::map(opened?, DATA_PAGES)?,
            sources,
            _leader: leader,
        })
    }

    /// Passes the time (ns of `CLOCK_MONOTONIC`) and the access of each sample since the last call to `take`.
    pub fn read(&mut self, mut take: impl FnMut(u64, Access)) -> Read {
        let mut read = Read::default();
        let sources = self.sources;
        self.ring.drain(|record| match sample(record, sources) {
            Some(Record::Sample { time_ns, access }) => {
                read.samples += 1;
                take(time_ns, access);
            }
            Some(Record::Lost(count)) => read.lost += count,
            None => {}
        });
        read
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Sample { time_ns: u64, access: Access },
    Lost(u64),
}

/// A record of use; addresses of the kernel, instruction fetches and samples without address are none.
pub(super) fn sample(record: RawRecord<'_>, sources: bool) -> Option<Record> {
    let word = |at: usize| {
        let bytes = record.body.get(at * 8..at * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    match record.kind {
        kind::SAMPLE => {
            let (time_ns, address) = (word(1)?, word(2)?);
            let mut access = Access::to(address);
            let mut fetch = false;
            if sources {
                let (cycles, source) = (word(3)?, DataSource(word(4)?));
                access.cycles = (cycles > 0).then_some(cycles);
                access.served = source.level().map(served);
                access.store = match source.operation() {
                    Operation::Load => Some(false),
                    Operation::Store => Some(true),
                    Operation::Unknown => None,
                };
                fetch = source.is_fetch();
            }
            let is_data = address != 0 && address >> 63 == 0 && !fetch;
            is_data.then_some(Record::Sample { time_ns, access })
        }
        kind::LOST => Some(Record::Lost(word(1)?)),
        _ => None,
    }
}

fn served(level: Level) -> Served {
    match level {
        Level::L1 | Level::FillBuffer | Level::L2 | Level::L3 => Served::OwnCache,
        Level::RemoteCache => Served::OtherCache,
        Level::LocalMemory | Level::RemoteMemory | Level::Other => Served::Memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(kind: u32, words: &[u64], sources: bool) -> Option<Record> {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let record = RawRecord {
            kind,
            misc: 2,
            body: &body,
        };
        sample(record, sources)
    }

    /// Records as kernels write them for `cpu/mem-loads/` (Xeon E5 v4), `cpu/mem-stores/` and `ibs_op//`.
    #[test]
    fn samples_of_a_pmu_say_what_served_the_access() {
        let access = |words: [u64; 2]| {
            let words = [1 << 32 | 1, 5, 0x1000, words[0], words[1]];
            match read_one(kind::SAMPLE, &words, true) {
                Some(Record::Sample { access, .. }) => Some(access),
                _ => None,
            }
        };
        let of = |store, served, cycles| {
            Some(Access {
                address: 0x1000,
                store: Some(store),
                served: Some(served),
                cycles,
            })
        };
        const HIT: u64 = 2;
        let load = |level: u64, number: u64, remote: u64| {
            2 | (HIT | level) << 5 | number << 33 | remote << 37
        };
        let cases = [
            ([7, load(0x8, 1, 0)], of(false, Served::OwnCache, Some(7))),
            (
                [60, load(0x40, 3, 0)],
                of(false, Served::OwnCache, Some(60)),
            ),
            (
                [320, load(0x400, 0xb, 1)],
                of(false, Served::OtherCache, Some(320)),
            ),
            (
                [210, load(0x80, 0xd, 0)],
                of(false, Served::Memory, Some(210)),
            ),
            (
                [390, load(0x100, 0xd, 1)],
                of(false, Served::Memory, Some(390)),
            ),
            ([0, 4 | (HIT | 0x8) << 5], of(true, Served::OwnCache, None)),
        ];
        for (words, expected) in cases {
            assert_eq!(access(words), expected);
        }
        // An instruction fetch; a record that is cut off.
        assert_eq!(access([9, 0x10]), None);
        assert_eq!(read_one(kind::SAMPLE, &[1, 5, 0x1000, 7], true), None);
    }

    #[test]
    fn samples_with_addresses_of_the_program_are_read() {
        let read = |kind, words: &[u64]| read_one(kind, words, false);
        let expected = Record::Sample {
            time_ns: 5,
            access: Access::to(0x1000),
        };
        assert_eq!(
            read(kind::SAMPLE, &[1 << 32 | 1, 5, 0x1000]),
            Some(expected)
        );
        assert_eq!(read(kind::SAMPLE, &[1, 5, 0]), None);
        assert_eq!(read(kind::SAMPLE, &[1, 5, 0xffff_8000_0000_0000]), None);
        assert_eq!(read(kind::SAMPLE, &[1, 5]), None);
        assert_eq!(read(kind::LOST, &[7, 12, 1, 5]), Some(Record::Lost(12)));
        assert_eq!(read(kind::COMM, &[7, 12]), None);
    }

    #[test]
    fn first_touches_of_this_thread_are_sampled() {
        // SAFETY-free way to this thread's id: the link of /proc.
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let tid: i32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let mut sampler = match ThreadSampler::open(&MemoryEvent::page_faults(), tid, 1) {
            Ok(sampler) => sampler,
            Err(error) => {
                eprintln!("this machine does not let us sample: {error}");
                return;
            }
        };
        let memory = vec![0_u8; 64 * 4096];
        let start = memory.as_ptr() as u64;
        let mut memory = std::hint::black_box(memory);
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        let mut pages = std::collections::BTreeSet::new();
        let range = start..start + 64 * 4096;
        let read = sampler.read(|_, access| {
            if range.contains(&access.address) {
                pages.insert(access.address / 4096);
            }
        });
        // Memory of an allocation of this size is new, unless huge pages are on.
        assert!(
            !pages.is_empty() && read.samples >= pages.len() as u64,
            "{read:?}"
        );
        assert_eq!(sampler.read(|_, _| {}).lost, 0);
    }
}
