//! Reads hand-written ring buffers, laid out as in `perf_event_open(2)`, up to a profile.

use numaloc_model::Layer;

use super::SAMPLE_TYPE;
use super::feed::Feed;
use super::ring::{RawRecord, drain};
use crate::collect::{Collector, Options, Origin, Source};
use crate::record::kind;

const LOAD: u64 = 2;
const STORE: u64 = 4;
/// The kernel's ids of the two events.
const IDS: [u64; 2] = [71, 72];

/// A buffer filled as by the kernel.
struct Kernel {
    data: Vec<u8>,
    head: u64,
    tail: u64,
}

impl Kernel {
    /// An empty buffer whose positions are `at`, as after a long run.
    fn new(size: usize, at: u64) -> Self {
        Self {
            data: vec![0xee; size],
            head: at,
            tail: at,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = (self.head % self.data.len() as u64) as usize;
            self.data[at] = byte;
            self.head += 1;
        }
        assert!(self.head - self.tail <= self.data.len() as u64, "overrun");
    }

    fn header(&mut self, kind: u32, misc: u16, size: u16) {
        self.bytes(&kind.to_ne_bytes());
        self.bytes(&misc.to_ne_bytes());
        self.bytes(&size.to_ne_bytes());
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.header(kind, misc, 8 + body.len() as u16);
        self.bytes(body);
    }

    /// Writes a record that is no sample, followed by its `sample_id_all` fields: TID, TIME, IDENTIFIER.
    fn other(&mut self, kind: u32, misc: u16, body: &[u8], (pid, tid): (u32, u32), time: u64) {
        let behind = [words32(&[pid, tid]), words(&[time, IDS[0]])].concat();
        self.record(kind, misc, &[body, &behind].concat());
    }

    fn fork(&mut self, kind: u32, of: [u32; 4], time: u64) {
        let [pid, _, tid, _] = of;
        let body = [words32(&of), words(&[time])].concat();
        self.other(kind, 0, &body, (pid, tid), time);
    }

    fn exec(&mut self, pid: u32, name: &[u8; 8], time: u64) {
        let body = [&words32(&[pid, pid])[..], name].concat();
        self.other(kind::COMM, 1 << 13, &body, (pid, pid), time);
    }

    fn map(&mut self, pid: u32, time: u64) {
        let body = [
            words32(&[pid, pid]),
            words(&[0x7000_0000, 0x1000, 0, 8, 9, 10]),
            words32(&[5, 2]),
            b"libx.so\0".to_vec(),
        ];
        self.other(kind::MMAP2, 2, &body.concat(), (pid, pid), time);
    }

    /// IDENTIFIER, TID, TIME, ADDR, PERIOD, WEIGHT, DATA_SRC.
    fn sample(&mut self, id: u64, (pid, tid): (u32, u32), time: u64, address: u64, source: u64) {
        let body = [
            words(&[id]),
            words32(&[pid, tid]),
            words(&[time, address, 10, 200, source]),
        ];
        self.record(kind::SAMPLE, 2, &body.concat());
    }

    /// Reads all records and frees their space.
    fn drain(&mut self, take: impl FnMut(RawRecord<'_>)) -> u64 {
        let copy = |at: usize, to: &mut [u8]| to.copy_from_slice(&self.data[at..at + to.len()]);
        let size = self.data.len() as u64;
        let drained = drain(size, self.tail, self.head, &mut Vec::new(), copy, take);
        assert_eq!(drained.tail, self.head);
        self.tail = drained.tail;
        drained.broken
    }
}

fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words32(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn feed() -> Feed {
    let source = |name: &str| Source {
        name: name.to_owned(),
        period: Some(10),
        faults: false,
        meaning: None,
    };
    let sources = vec![source("loads"), source("stores")];
    let ids = vec![(IDS[0], 0), (IDS[1], 1)];
    Feed::new(Collector::new(Options::default(), sources), ids)
}

#[test]
fn records_are_found_wherever_the_ring_ends() {
    // Records of 24 and 16 bytes: every multiple of 8 is tried as the point where the ring wraps.
    for start in (0..128).step_by(8) {
        let mut kernel = Kernel::new(128, (1 << 40) + start);
        for round in 0..40_u64 {
            for of in 0..3 {
                kernel.record(40 + of, of as u16, &words(&[round, u64::from(of)]));
            }
            let mut seen = Vec::new();
            let broken = kernel.drain(|r| seen.push((r.kind, r.misc, r.body.to_owned())));
            let expected = [0, 1, 2].map(|of| (40 + of, of as u16, words(&[round, u64::from(of)])));
            assert_eq!(
                (broken, seen.as_slice()),
                (0, expected.as_slice()),
                "{start}"
            );
        }
    }
}

#[test]
fn a_ring_may_be_full_and_positions_may_be_the_largest() {
    let mut kernel = Kernel::new(64, 8);
    kernel.record(1, 0, &words(&[1, 2, 3]));
    kernel.record(2, 0, &words(&[4, 5, 6]));
    let mut kinds = Vec::new();
    assert_eq!(kernel.drain(|record| kinds.push(record.kind)), 0);
    assert_eq!(kinds, [1, 2]);
    let data = kernel.data;
    let copy = |at: usize, to: &mut [u8]| to.copy_from_slice(&data[at..at + to.len()]);
    // The two records again, 8 bytes into the ring, at positions that pass 2^64.
    let tail = 0_u64.wrapping_sub(56);
    let mut count = 0;
    let drained = drain(64, tail, 8, &mut Vec::new(), copy, |_| count += 1);
    assert_eq!((count, drained.tail, drained.broken), (2, 8, 0));
}

#[test]
fn bytes_that_are_no_record_are_skipped_and_counted() {
    type Write = fn(&mut Kernel);
    let cases: [(&str, Write); 6] = [
        ("size 0", |kernel| kernel.header(9, 0, 0)),
        ("a size below the header's", |kernel| kernel.header(9, 0, 4)),
        ("a size that is no multiple of 8", |kernel| {
            kernel.header(9, 0, 12);
            kernel.bytes(&[1; 8]);
        }),
        ("a record beyond the head", |kernel| kernel.header(9, 0, 24)),
        ("a size larger than the ring", |kernel| {
            kernel.header(9, 0, 0xfff8);
            kernel.bytes(&[1; 40]);
        }),
        ("half a header", |kernel| kernel.bytes(&[1; 4])),
    ];
    for (what, write) in cases {
        let mut kernel = Kernel::new(128, 120);
        kernel.record(1, 0, &words(&[1]));
        let good = kernel.head;
        write(&mut kernel);
        let expected = kernel.head - good;
        let mut kinds = Vec::new();
        let broken = kernel.drain(|record| kinds.push(record.kind));
        assert_eq!((kinds.as_slice(), broken), (&[1][..], expected), "{what}");
        // Records that the kernel writes afterwards are read.
        kernel.head = kernel.head.next_multiple_of(8);
        kernel.tail = kernel.head;
        kernel.record(2, 0, &[]);
        assert_eq!(kernel.drain(|record| kinds.push(record.kind)), 0, "{what}");
        assert_eq!(kinds, [1, 2], "{what}");
    }
    // Invalid positions: a head that overran the ring or went backwards.
    let copy = |_: usize, _: &mut [u8]| panic!("nothing there can be read");
    for (tail, head) in [(0, 136), (64, 0)] {
        let drained = drain(128, tail, head, &mut Vec::new(), copy, |_| panic!());
        assert_eq!((drained.tail, drained.broken), (head, 128));
    }
}

#[test]
fn rings_of_two_cpus_become_a_profile() {
    let (main, second, child) = ((100, 100), (100, 101), (200, 200));
    let mut feed = feed();
    // Small rings, so that records wrap; the second one's positions are large.
    let mut rings = [Kernel::new(512, 456), Kernel::new(512, (7 << 32) + 500)];
    let round = |rings: &mut [Kernel; 2], feed: &mut Feed, safe| {
        for ring in rings {
            assert_eq!(ring.drain(|record| feed.record(record)), 0);
        }
        feed.flush_until(safe);
    };
    // CPU 0 has the start-up records; CPU 1 runs the new thread, and its ring is read after its records.
    rings[0].exec(100, b"app\0\0\0\0\0", 1000);
    rings[0].map(100, 1100);
    rings[0].fork(kind::FORK, [100, 100, 101, 100], 2000);
    rings[1].sample(IDS[0], second, 5000, 0x1_0040, LOAD);
    round(&mut rings, &mut feed, 1000);
    rings[0].sample(IDS[1], main, 4000, 0x1_0040, STORE);
    rings[0].other(kind::LOST, 0, &words(&[IDS[0], 17]), main, 4100);
    rings[0].other(kind::THROTTLE, 0, &words(&[4200, IDS[0], 3]), main, 4200);
    round(&mut rings, &mut feed, 4500);
    rings[0].fork(kind::FORK, [200, 100, 200, 100], 6000);
    rings[1].sample(IDS[0], child, 7000, 0x2_0000, LOAD);
    rings[1].sample(IDS[0], child, 7001, 0xffff_8000_0000_0000, LOAD);
    rings[0].fork(kind::EXIT, [100, 100, 101, 100], 8000);
    rings[0].other(kind::LOST, 0, &words(&[IDS[0], 5]), main, 8100);
    round(&mut rings, &mut feed, u64::MAX);

    let origin = Origin {
        command: vec!["app".to_owned()],
        complete: true,
        ..Origin::default()
    };
    let profile = feed.into_collector().finish(origin).unwrap();
    let threads: Vec<(&str, u64)> = profile
        .threads()
        .iter()
        .map(|thread| (thread.path.as_str(), thread.accesses))
        .collect();
    assert_eq!(threads, [("0", 10), ("0.1", 10), ("0/1", 10)]);
    let cells: Vec<_> = profile
        .communication()
        .iter()
        .filter(|row| row.layer == Layer::WriteRead)
        .map(|row| (row.src.index(), row.dst.index(), row.events))
        .collect();
    assert_eq!(cells, [(0, 1, 10)]);
    let pages: Vec<(u64, u64)> = profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let accesses = profile.pages().accesses(page).iter();
            let both = accesses.fold((0, 0), |sum, a| (sum.0 + a.reads, sum.1 + a.writes));
            assert!(page.number.0 == 0x10 || both == (10, 0), "{page:?}");
            both
        })
        .collect();
    assert_eq!(pages, [(10, 10), (10, 0)]);
    // 17 and 5 records that the kernel dropped.
    let notes = profile.meta().notes.join("\n");
    assert!(notes.contains("22 records"), "{notes}");
}

#[test]
fn a_record_shorter_than_its_type_is_left_out() {
    let mut feed = feed();
    let mut kernel = Kernel::new(512, 0);
    kernel.exec(100, b"app\0\0\0\0\0", 1000);
    kernel.sample(IDS[0], (100, 100), 2000, 0x1000, LOAD);
    kernel.record(kind::SAMPLE, 2, &words(&[IDS[0], 1]));
    kernel.record(kind::LOST, 0, &words(&[1]));
    kernel.record(kind::FORK, 0, &[]);
    assert_eq!(kernel.drain(|record| feed.record(record)), 0);
    feed.record_broken();
    feed.flush_until(u64::MAX);
    let profile = feed.into_collector().finish(Origin::default()).unwrap();
    assert_eq!(profile.threads()[0].accesses, 10);
    assert!(
        profile
            .meta()
            .notes
            .iter()
            .any(|note| note.contains("1 record"))
    );
    assert_eq!(
        SAMPLE_TYPE.count_ones(),
        7,
        "`Kernel::sample` writes all fields"
    );
}
