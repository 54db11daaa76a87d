//! The engine against a model of `write_read` and `false_sharing`, written from docs/tracing.md and sharing no code
//! with it.
//!
//! Accesses of threads are interleaved in any order. The model keeps for each line everything its definition names,
//! without regard to time or memory.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::Layer;
use numaloc_trace::Config;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::{Recorder, assembled};

/// A few threads, and more threads than have a reader bit in the word.
const THREADS: [usize; 2] = [4, 48];
/// Few enough lines that each has its own slot for undecided events and none evicts another.
const LINES: u64 = 6;
const DATA: u64 = 0x10_0000;

#[derive(Clone, Copy, Debug)]
struct Access {
    thread: usize,
    write: bool,
    address: u64,
    size: u64,
}

fn access(threads: usize) -> impl Strategy<Value = Access> {
    let size = prop::sample::select(vec![1u64, 2, 4, 8]);
    (0..threads, any::<bool>(), 0..LINES, 0u64..64, size).prop_map(
        |(thread, write, line, within, size)| Access {
            thread,
            write,
            // Inside one line.
            address: DATA + line * 64 + within / size * size,
            size,
        },
    )
}

#[derive(Default)]
struct Line {
    writer: Option<usize>,
    /// Threads that have read since the last write, the writer included.
    readers: BTreeSet<usize>,
    /// Whether threads have communicated through the line.
    shared: bool,
    /// Whether they had when the present tenure began, so that all bytes written in it are known.
    known: bool,
    /// Bytes written in the present tenure.
    written: BTreeSet<u64>,
    /// Events of this tenure that no read has made true: reader and writer.
    undecided: BTreeMap<usize, usize>,
}

/// Events by (writer, reader): all, and those that are false sharing.
type Events = BTreeMap<(usize, usize), (u64, u64)>;

/// `write_read`: the first read by a thread since another thread's last write. It is false sharing if none of the
/// thread's reads until the next tenure uses a byte written in this one; those of the tenure of a line's first event
/// are true.
fn model(accesses: &[Access]) -> Events {
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    let mut events = Events::new();
    let decide = |line: &mut Line, events: &mut Events| {
        for (reader, writer) in std::mem::take(&mut line.undecided) {
            events.entry((writer, reader)).or_default().1 += 1;
        }
    };
    for access in accesses {
        let line = lines.entry(access.address / 64).or_default();
        let bytes = access.address % 64..access.address % 64 + access.size;
        if access.write {
            // A tenure begins when another thread takes the line, or its writer writes again after it was read.
            let others = line
                .readers
                .iter()
                .any(|&reader| Some(reader) != line.writer);
            if line.writer != Some(access.thread) || others {
                decide(line, &mut events);
                line.written.clear();
                line.known = line.shared;
            }
            line.writer = Some(access.thread);
            line.readers = BTreeSet::from([access.thread]);
            if line.shared {
                line.written.extend(bytes);
            }
            continue;
        }
        let overlaps = bytes.clone().any(|byte| line.written.contains(&byte));
        if overlaps {
            line.undecided.remove(&access.thread);
        }
        let fresh = line.readers.insert(access.thread);
        let Some(writer) = line
            .writer
            .filter(|&writer| fresh && writer != access.thread)
        else {
            continue;
        };
        events.entry((writer, access.thread)).or_default().0 += 1;
        if line.known && !overlaps {
            line.undecided.insert(access.thread, writer);
        }
        line.shared = true;
    }
    for line in lines.values_mut() {
        decide(line, &mut events);
    }
    events
}

/// The engine's counts for the same accesses.
fn counted(recorder: &Recorder, count: usize, accesses: &[Access]) -> Events {
    let engine = recorder.engine();
    let mut threads = vec![engine.first_thread(1)];
    for tid in 2..=count as u32 {
        let pending_thread = threads[0].pending_thread(0);
        threads[0].creator.count_thread();
        threads.push(engine.attach(pending_thread, tid));
    }
    for access in accesses {
        let thread = &mut threads[access.thread];
        match access.write {
            true => thread.access::<true, false>(access.address, access.size as u32),
            false => thread.access::<false, false>(access.address, access.size as u32),
        }
        // The next access may be another thread's, and comes later.
        thread.flush_pending();
    }
    for thread in &mut threads {
        thread.end(0);
    }
    engine.finish();
    let mut events = Events::new();
    for row in assembled(recorder.folder()).communication() {
        let cell = events
            .entry((row.src.index(), row.dst.index()))
            .or_default();
        match row.layer {
            Layer::WriteRead => cell.0 += row.events,
            Layer::FalseSharing => cell.1 += row.events,
            _ => {}
        }
    }
    events
}

/// A write, two reads of it, a write of another word by a reader, and a read of the first word.
#[test]
fn the_model_is_right_in_a_case_worked_by_hand() {
    let access = |thread, write, within| Access {
        thread,
        write,
        address: DATA + within,
        size: 8,
    };
    let accesses = [
        access(0, true, 0),
        access(1, false, 0),
        access(2, false, 0),
        access(1, true, 8),
        // Thread 1 wrote the line last, but not this word: false.
        access(0, false, 0),
        // Not an event for thread 0, but now it uses what was written: true after all.
        access(0, false, 8),
        access(2, false, 0),
    ];
    let found = model(&accesses);
    let expected = [
        ((0, 1), (1, 0)),
        // Not the first event on the line, but the bytes written before the line was tracked are unknown.
        ((0, 2), (1, 0)),
        ((1, 0), (1, 0)),
        ((1, 2), (1, 1)),
    ];
    assert_eq!(found, Events::from(expected));
}

#[test]
fn every_interleaving_counts_as_defined() {
    let recorder = Recorder::new(Config::default());
    for threads in THREADS {
        let config = ProptestConfig {
            cases: 200,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let interleavings = prop::collection::vec(access(threads), 1..400);
        let checked = TestRunner::new(config).run(&interleavings, |accesses| {
            let found = counted(&recorder, threads, &accesses);
            prop_assert_eq!(found, model(&accesses));
            Ok(())
        });
        if let Err(error) = checked {
            panic!("{threads} threads: {error}");
        }
    }
}
