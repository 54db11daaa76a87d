//! Samples of accesses below the private caches, as a PMU would deliver them: address, load or store, what served it.
//! Stores that take a line from other caches are among them: their requests leave the private cache, though no data
//! comes.
//!
//! They go to a socket that QEMU connects to a serial port of the guest. vCPUs never wait for it: what the guest does
//! not read in time is dropped and counted. The thread is not known here; the guest's kernel knows which thread runs on
//! which CPU. The reader is `numaloc-apply` (`online/virtual_pmu.rs`).
//!
//! Memory: at most [`MOST`] samples of [`BYTES`] bytes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cache::Served;

/// Bytes of a sample: address (8), vCPU (2), vCPU whose cache served it (maybe its own) plus 1 or 0 for memory (2),
/// node of the memory (1), 1 for a store (1), samples dropped before it (2); little endian.
pub const BYTES: usize = 16;
/// Samples that wait at most.
const MOST: usize = 1 << 14;
/// Time between two deliveries.
const PAUSE: Duration = Duration::from_millis(10);

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Virtual address.
    pub address: u64,
    /// The vCPU that made it.
    pub vcpu: u16,
    /// The node of the memory.
    pub node: u8,
    /// Whether it was a store.
    pub store: bool,
    /// What served it.
    pub served: Served,
}

impl Sample {
    fn bytes(&self, dropped: u16) -> [u8; BYTES] {
        let supplier = match self.served {
            Served::Other(vcpu) => vcpu as u16 + 1,
            Served::Upgrade => self.vcpu + 1,
            Served::Own | Served::Memory => 0,
        };
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.vcpu.to_le_bytes());
        bytes[10..12].copy_from_slice(&supplier.to_le_bytes());
        bytes[12] = self.node;
        bytes[13] = self.store.into();
        bytes[14..].copy_from_slice(&dropped.to_le_bytes());
        bytes
    }
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u16,
}

impl Waiting {
    fn push(&mut self, sample: Sample) {
        if self.bytes.len() >= MOST * BYTES {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let dropped = std::mem::take(&mut self.dropped);
        self.bytes.extend(sample.bytes(dropped));
    }
}

/// Where samples go.
pub struct Port(Arc<Mutex<Waiting>>);

impl Port {
    /// Delivers to this socket from a thread of its own, as soon as QEMU listens there.
    pub fn open(socket: PathBuf) -> Self {
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let from = Arc::clone(&waiting);
        std::thread::spawn(move || deliver(&socket, &from));
        Self(waiting)
    }

    /// Adds a sample.
    pub fn push(&self, sample: Sample) {
        self.0.lock().expect("no panic holds it").push(sample);
    }
}

fn deliver(socket: &Path, waiting: &Mutex<Waiting>) {
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    loop {
        std::thread::sleep(PAUSE);
        let bytes = std::mem::take(&mut waiting.lock().expect("no panic holds it").bytes);
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    const SAMPLE: Sample = Sample {
        address: 0x7f00_1234_5678,
        vcpu: 3,
        node: 1,
        store: true,
        served: Served::Other(6),
    };

    #[test]
    fn samples_arrive_at_the_socket_as_documented() {
        let folder = std::env::temp_dir().join(format!("numaloc-samples-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("samples");
        let port = Port::open(socket.clone());
        port.push(SAMPLE);
        let (mut stream, _) = UnixListener::bind(&socket).unwrap().accept().unwrap();
        let mut bytes = [0; BYTES];
        stream.read_exact(&mut bytes).unwrap();
        let expected = [
            0x78, 0x56, 0x34, 0x12, 0, 0x7f, 0, 0, 3, 0, 7, 0, 1, 1, 0, 0,
        ];
        assert_eq!(bytes, expected);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_not_read_is_dropped_and_counted() {
        let mut waiting = Waiting::default();
        (0..MOST + 5).for_each(|_| waiting.push(SAMPLE));
        assert_eq!((waiting.bytes.len(), waiting.dropped), (MOST * BYTES, 5));
        waiting.bytes.clear();
        waiting.push(SAMPLE);
        assert_eq!(waiting.bytes[14..], [5, 0]);
    }
}
