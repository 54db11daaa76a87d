//! The PMU of `numaloc lab --samples`: samples of accesses that the virtual machine delivers through a serial port.
//!
//! A sample names the CPU and not the thread, so a thread gets the samples of a CPU only if no other thread of the
//! program was there in the same interval; all others count as lost. The format is that of `numaloc-lab-plugin`
//! (`samples.rs`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use numaloc_model::{Access, Served};

/// The port's name.
const PORT: &str = "numaloc.samples";
/// Where the kernel lists ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// Bytes of a sample.
const BYTES: usize = 16;

/// The open port.
#[derive(Debug)]
pub(super) struct VirtualPmu {
    port: File,
    /// What was read of the next sample.
    rest: Vec<u8>,
    /// The node of each CPU, by the kernel's number.
    node_of: BTreeMap<u32, u32>,
}

/// A sample of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The CPU that made the access.
    pub cpu: u32,
    /// The access.
    pub access: Access,
    /// Samples dropped before this one.
    pub dropped: u64,
}

/// The device of the port, if this machine has one.
pub(super) fn device() -> Option<PathBuf> {
    let ports = std::fs::read_dir(PORTS).ok()?.flatten();
    let mut ours = ports.filter(|port| {
        let name = std::fs::read_to_string(port.path().join("name"));
        name.is_ok_and(|name| name.trim() == PORT)
    });
    Some(Path::new("/dev").join(ours.next()?.file_name()))
}

impl VirtualPmu {
    /// Opens the port.
    ///
    /// # Errors
    /// The kernel's; `NotFound` if this machine has no such port.
    pub fn open(node_of: BTreeMap<u32, u32>) -> io::Result<Self> {
        let device = device().ok_or(io::ErrorKind::NotFound)?;
        let mut options = File::options();
        let port = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(device)?;
        Ok(Self {
            port,
            rest: Vec::new(),
            node_of,
        })
    }

    /// The samples since the last call.
    pub fn read(&mut self) -> Vec<Sample> {
        let mut buffer = [0; 1 << 16];
        let mut samples = Vec::new();
        // The end of the port, and nothing to read, are both no sample.
        while let Ok(count @ 1..) = self.port.read(&mut buffer) {
            self.rest.extend(&buffer[..count]);
            samples.extend(parse(&mut self.rest, &self.node_of));
        }
        samples
    }
}

/// Takes the complete samples off `bytes`.
fn parse(bytes: &mut Vec<u8>, node_of: &BTreeMap<u32, u32>) -> Vec<Sample> {
    let whole = bytes.len() / BYTES * BYTES;
    let samples = bytes[..whole].as_chunks::<BYTES>().0.iter().map(|sample| {
        let [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            cpu,
            cpu_high,
            from,
            from_high,
            _node,
            store,
            dropped,
            high,
        ] = *sample;
        let short = |low, high| u16::from_le_bytes([low, high]);
        let cpu = u32::from(short(cpu, cpu_high));
        let supplier = u32::from(short(from, from_high)).checked_sub(1);
        // A real PMU distinguishes only caches of the own package from others.
        let served = match supplier {
            None => Served::Memory,
            Some(other) if node_of.get(&other) == node_of.get(&cpu) => Served::OwnCache,
            Some(_) => Served::OtherCache,
        };
        let access = Access {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            store: Some(store != 0),
            served: Some(served),
            cycles: None,
        };
        Sample {
            cpu,
            access,
            dropped: short(dropped, high).into(),
        }
    });
    let samples = samples.collect();
    bytes.drain(..whole);
    samples
}

/// Which thread ran on each CPU since the last look.
#[derive(Debug, Default)]
pub(super) struct Occupants {
    /// CPU and run time in ns of each thread at the last look.
    seen: BTreeMap<usize, (u32, u64)>,
}

impl Occupants {
    /// Takes the CPU and run time of each thread now. Returns the thread of each CPU that only one was on.
    pub fn look(&mut self, now: BTreeMap<usize, (u32, u64)>) -> BTreeMap<u32, usize> {
        let mut by_cpu: BTreeMap<u32, Option<usize>> = BTreeMap::new();
        for (&thread, &(cpu, ran_ns)) in &now {
            let before = self.seen.get(&thread);
            if before.is_some_and(|&(_, earlier_ns)| earlier_ns == ran_ns) {
                continue;
            }
            let stayed = before.is_some_and(|&(earlier, _)| earlier == cpu);
            let mut note = |cpu, thread| {
                let of = by_cpu.entry(cpu).or_insert(thread);
                if *of != thread {
                    *of = None;
                }
            };
            note(cpu, stayed.then_some(thread));
            if let Some(&(earlier, _)) = before.filter(|_| !stayed) {
                note(earlier, None);
            }
        }
        self.seen = now;
        let known = by_cpu.into_iter();
        known
            .filter_map(|(cpu, thread)| Some((cpu, thread?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_name_what_served_them_and_a_part_waits_for_the_rest() {
        let node_of = BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)]);
        let sample = |supplier: u8, store: u8, dropped: u8| {
            let address = 0x7f00_1234_5678_u64.to_le_bytes();
            [&address[..], &[3, 0, supplier, 0, 1, store, dropped, 0]].concat()
        };
        let mut bytes = [sample(0, 0, 0), sample(3, 1, 5), sample(1, 0, 0)].concat();
        bytes.extend([1, 2, 3]);
        let read = parse(&mut bytes, &node_of);
        assert_eq!(bytes, [1, 2, 3]);
        let served: Vec<_> = read.iter().map(|sample| sample.access.served).collect();
        let expected = [Served::Memory, Served::OwnCache, Served::OtherCache];
        assert_eq!(served, expected.map(Some));
        let second = read[1];
        assert_eq!((second.cpu, second.access.address), (3, 0x7f00_1234_5678));
        assert_eq!((second.access.store, second.dropped), (Some(true), 5));
    }

    #[test]
    fn a_cpu_belongs_to_the_only_thread_that_ran_on_it() {
        let mut occupants = Occupants::default();
        let look = |of: &mut Occupants, now: &[(usize, u32, u64)]| {
            let now = now.iter().map(|&(thread, cpu, ran)| (thread, (cpu, ran)));
            of.look(now.collect()).into_iter().collect::<Vec<_>>()
        };
        // Nothing is known before the first interval.
        assert_eq!(
            look(&mut occupants, &[(0, 4, 10), (1, 5, 10), (2, 4, 10)]),
            []
        );
        // Thread 2 sleeps, 0 and 1 run.
        let now = [(0, 4, 20), (1, 5, 20), (2, 4, 10)];
        assert_eq!(look(&mut occupants, &now), [(4, 0), (5, 1)]);
        // Thread 2 wakes on the CPU of thread 0; thread 1 changes its CPU.
        let now = [(0, 4, 30), (1, 6, 30), (2, 4, 20)];
        assert_eq!(look(&mut occupants, &now), []);
    }
}
