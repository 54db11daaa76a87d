//! Samples one running thread: for following a program that runs already, thread by thread.
//!
//! Memory: 16 KiB of ring per thread and event. What the ring has no room for is counted as lost.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::ring::RawRecord;
use super::sys::{self, Attr, Ring};
use crate::events::MemoryEvent;
use crate::record::kind;

/// TID, TIME, ADDR.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 3;
/// Pages of a ring's data: a power of two, small because there is a ring for each thread.
const DATA_PAGES: usize = 4;

pub use super::sys::{monotonic_ns, thread_ns};

/// The samples of a thread.
#[derive(Debug)]
pub struct ThreadSampler {
    ring: Ring,
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
        let attr = Attr::sampling(event, event.period(period), SAMPLE_TYPE, false);
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
            _leader: leader,
        })
    }

    /// Passes the time (ns of `CLOCK_MONOTONIC`) and address of each sample since the last call to `take`.
    pub fn read(&mut self, mut take: impl FnMut(u64, u64)) -> Read {
        let mut read = Read::default();
        self.ring.drain(|record| match sample(record) {
            Some(Record::Sample { time_ns, address }) => {
                read.samples += 1;
                take(time_ns, address);
            }
            Some(Record::Lost(count)) => read.lost += count,
            None => {}
        });
        read
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Record {
    Sample { time_ns: u64, address: u64 },
    Lost(u64),
}

/// A record of use; addresses of the kernel and samples without address are none.
fn sample(record: RawRecord<'_>) -> Option<Record> {
    let word = |at: usize| {
        let bytes = record.body.get(at * 8..at * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    match record.kind {
        kind::SAMPLE => {
            let (time_ns, address) = (word(1)?, word(2)?);
            (address != 0 && address >> 63 == 0).then_some(Record::Sample { time_ns, address })
        }
        kind::LOST => Some(Record::Lost(word(1)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_addresses_of_the_program_are_read() {
        let read = |kind, words: &[u64]| {
            let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            sample(RawRecord {
                kind,
                misc: 2,
                body: &body,
            })
        };
        let expected = Record::Sample {
            time_ns: 5,
            address: 0x1000,
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
        let read = sampler.read(|_, address| {
            if range.contains(&address) {
                pages.insert(address / 4096);
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
