//! Samples the page faults of a process on all CPUs of the machine, whichever of its threads has them.
//!
//! An event of a thread costs about a microsecond in each switch to that thread and from it; an event of a CPU costs
//! nothing there, so a program whose threads wait for each other often is not slowed down. The faults of all other
//! processes are written to the rings too, and left out when they are read. The kernel allows this to root, or to all
//! users if `kernel.perf_event_paranoid` is 0 or less.
//!
//! Memory: 128 KiB of ring per CPU. What a ring has no room for is counted as lost.

use std::io;

use numaloc_model::Access;

use super::sys::{self, Attr, DATA_PAGES, Ring};
use super::thread::{self, Read, Record, SAMPLE_TYPE};
use crate::events::{MemoryEvent, cpu_list};

/// Page faults, from all CPUs that are online when it is opened.
#[derive(Debug)]
pub struct FaultSampler {
    rings: Vec<Ring>,
}

impl FaultSampler {
    /// Samples every page fault from now on.
    ///
    /// # Errors
    /// The kernel's: `EACCES` or `EPERM` if it does not let this user sample all processes.
    pub fn open() -> io::Result<Self> {
        let event = MemoryEvent::page_faults();
        let attr = Attr::sampling(&event, event.period(1), SAMPLE_TYPE, false).of_a_thread();
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let rings = cpu_list(&cpus)
            .into_iter()
            .map(|cpu| Ring::map(sys::open_system_wide(&attr, cpu, None)?, DATA_PAGES))
            .collect::<io::Result<Vec<Ring>>>()?;
        Ok(Self { rings })
    }

    /// Passes the time (ns of `CLOCK_MONOTONIC`), the thread and the access of each fault of process `pid` since the
    /// last call to `take`, by CPU. [`Read::lost`] counts faults of all processes.
    pub fn read(&mut self, pid: i32, mut take: impl FnMut(u64, i32, Access)) -> Read {
        let mut read = Read::default();
        for ring in &mut self.rings {
            ring.drain(|record| match thread::sample(record, false) {
                Some(Record::Sample { time_ns, access }) => {
                    if let Some(tid) = thread_of(record.body, pid) {
                        read.samples += 1;
                        take(time_ns, tid, access);
                    }
                }
                Some(Record::Lost(count)) => read.lost += count,
                None => {}
            });
        }
        read
    }
}

/// The thread that a sample is of, if it belongs to process `pid`: a sample begins with both numbers.
fn thread_of(body: &[u8], pid: i32) -> Option<i32> {
    let number = |at: usize| Some(i32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    (number(0)? == pid).then(|| number(4))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn samples_of_other_processes_are_left_out() {
        let body: Vec<u8> = [7_i32, 9].into_iter().flat_map(i32::to_ne_bytes).collect();
        assert_eq!(thread_of(&body, 7), Some(9));
        assert_eq!(thread_of(&body, 9), None);
        assert_eq!(thread_of(&body[..6], 7), None);
    }

    #[test]
    fn first_touches_of_two_threads_are_told_apart() {
        let mut sampler = match FaultSampler::open() {
            Ok(sampler) => sampler,
            Err(error) => {
                eprintln!("this machine does not let us sample all processes: {error}");
                return;
            }
        };
        let touch = || {
            let mut memory = std::hint::black_box(vec![0_u8; 64 * 4096]);
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            let memory = std::hint::black_box(memory);
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let tid: i32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let start = memory.as_ptr() as u64;
            (tid, start..start + 64 * 4096, memory)
        };
        let other = std::thread::spawn(touch).join().unwrap();
        let touched = [touch(), other];
        let mut faults: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
        sampler.read(std::process::id() as i32, |_, tid, access| {
            faults.entry(tid).or_default().push(access.address);
        });
        for (tid, range, _) in touched {
            // Memory of an allocation of this size is new, unless huge pages are on.
            let seen = faults.get(&tid).into_iter().flatten();
            assert!(
                seen.filter(|address| range.contains(address)).count() > 0,
                "{tid}: {faults:?}"
            );
        }
    }
}
