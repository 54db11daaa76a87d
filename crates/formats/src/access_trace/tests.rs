//! Writes traces, damages them, and reads them.

use std::path::{Path, PathBuf};

use numaloc_access_trace::message::{Block, CacheSize, Head, Message, Thread};
use numaloc_access_trace::{Kind, Record, columns};
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};
use proptest::prelude::*;

use super::*;

fn head() -> Message<'static> {
    let l1 = CacheSize {
        bytes: 32 << 10,
        ways: 8,
    };
    let l2 = CacheSize {
        bytes: 1 << 20,
        ways: 16,
    };
    let path = "0".to_owned();
    Message::Head(Head {
        pid: 7,
        image: 0,
        line_shift: 6,
        l1,
        l2,
        path,
        windows: None,
        marks_loads: false,
    })
}

fn thread(number: u32, clock: u64) -> Message<'static> {
    let path = format!("0.{number}");
    Message::Thread(Thread {
        number,
        clock,
        path,
    })
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn block(thread: u32, first: u64, clock: u64, records: &[Record]) -> Vec<u8> {
    let block = Block {
        thread,
        first,
        count: records.len() as u32,
        clock,
        accesses: records.iter().map(|record| record.work).sum(),
        l1_hits: 2,
        ..Block::default()
    };
    let mut packed = Vec::new();
    columns::encode(records, &mut packed);
    bytes_of(&Message::Block(block, &packed))
}

/// Two threads: one writes a line, the other waits for it and reads it.
fn messages() -> Vec<Vec<u8>> {
    let writes = [
        Record::new(Kind::Write, 100, 5),
        Record::new(Kind::Release, 7, 0),
    ];
    let later = [
        Record::new(Kind::WriteBack, 100, 10),
        Record::new(Kind::Clock, 0, 3),
    ];
    let reads = [
        Record::new(Kind::Read, 7, 2),
        Record::new(Kind::Clock, 2, 0),
        Record::new(Kind::Acquire, 7, 0),
        Record::new(Kind::Read, 100, 1),
    ];
    vec![
        bytes_of(&head()),
        bytes_of(&thread(0, 0)),
        bytes_of(&thread(1, 1)),
        block(0, 0, 0, &writes),
        block(1, 0, 1, &reads),
        block(0, 2, 5, &later),
        bytes_of(&Message::End),
    ]
}

fn written(folder: &Path, messages: &[Vec<u8>]) -> PathBuf {
    let path = folder.join("0.trace");
    let _ = std::fs::remove_file(&path);
    let writer = Writer::create(&path, Limit::new(1 << 30)).unwrap();
    for message in messages {
        assert!(writer.append(message));
    }
    path
}

fn thread_of(path: &str) -> Option<ThreadIdx> {
    let number = path.strip_prefix("0.")?.parse().ok()?;
    Some(ThreadIdx(number))
}

#[test]
fn events_are_read_in_the_order_of_clocks() {
    let folder = tempfile::tempdir().unwrap();
    let trace = AccessTrace::open(&written(folder.path(), &messages()), 0).unwrap();
    assert!(trace.complete && trace.cut.is_none() && trace.torn_bytes == 0);
    assert_eq!((trace.head.pid, trace.streams.len()), (7, 2));
    let tally = trace.tally();
    assert_eq!((tally.records, tally.accesses, tally.l1_hits), (8, 21, 6));
    let event = |time, work, action| Event {
        time,
        work,
        action,
        after: 0,
    };
    let traces = [trace];
    let order = Order::new(&traces, thread_of).unwrap();
    let events: Vec<(u32, Event)> = order
        .map(|event| event.map(|(thread, event)| (thread.0, event)).unwrap())
        .collect();
    assert_eq!(
        events,
        [
            (1, event(3, 2, Action::Read(7))),
            (0, event(5, 5, Action::Write(100))),
            (0, event(5, 0, Action::Release(7))),
            (1, event(5, 0, Action::Acquire(7))),
            (1, event(6, 1, Action::Read(100))),
            (1, event(6, 0, Action::End)),
            (0, event(15, 10, Action::WriteBack(100))),
            (0, event(18, 3, Action::End)),
        ]
    );
    // Another process image has different memory at the same addresses.
    let second = AccessTrace::open(&folder.path().join("0.trace"), 2).unwrap();
    let first = second.events(0).next().unwrap().unwrap();
    assert_eq!(first.action, Action::Write((2 << 46) + 100));
}

/// 64 lines of 64 bytes, or 1024 words, to a page of 4 KiB.
#[test]
fn lines_and_words_of_shared_memory_are_those_of_the_first_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &messages());
    let range = |first, known_as| SharedPages {
        first,
        pages: 1,
        known_as,
    };
    // Line 100 is the 37th of page 1; word 7 and line 7 are in page 0.
    let other = (1 << 40) + 50;
    let mut trace = AccessTrace::open(&path, 2).unwrap();
    trace.add_shared(&[range(1, other)]).unwrap();
    for trace in [trace, AccessTrace::open(&path, 2).unwrap()] {
        assert!(trace.complete && trace.torn_bytes == 0);
        let actions = |stream| trace.events(stream).map(|event| event.unwrap().action);
        let shared = (other << 6) + 36;
        assert_eq!(
            actions(0).collect::<Vec<_>>()[..2],
            [Action::Write(shared), Action::Release((2 << 50) + 7)]
        );
        assert_eq!(
            actions(1).collect::<Vec<_>>()[..3],
            [
                Action::Read((2 << 46) + 7),
                Action::Acquire((2 << 50) + 7),
                Action::Read(shared)
            ]
        );
    }
    // A second time, and behind an incomplete frame, which is removed.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(b"NAT1 and no more");
    std::fs::write(&path, bytes).unwrap();
    let mut torn = AccessTrace::open(&path, 2).unwrap();
    assert!(!torn.complete);
    torn.add_shared(&[range(2, 0)]).unwrap();
    AccessTrace::open(&path, 2)
        .unwrap()
        .add_shared(&[range(2, 1)])
        .unwrap();
    let error = AccessTrace::open(&path, 2).unwrap_err().to_string();
    assert!(error.contains("shared memory again"), "{error}");
}

#[test]
fn the_order_does_not_depend_on_the_order_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let events = |messages: &[Vec<u8>]| {
        let traces = [AccessTrace::open(&written(folder.path(), messages), 0).unwrap()];
        let order = Order::new(&traces, thread_of).unwrap();
        order.map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut other = messages();
    let as_sent = events(&other);
    other[1..6].reverse();
    assert_eq!(events(&other), as_sent);
}

#[test]
fn a_torn_tail_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &messages());
    let bytes = std::fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        match AccessTrace::open(&path, 0) {
            Ok(trace) => {
                assert!(!trace.complete, "cut at {cut}");
                for stream in 0..trace.streams.len() {
                    assert!(trace.events(stream).all(|event| event.is_ok()));
                }
            }
            // Not even the head is complete.
            Err(error) => assert!(
                error.to_string().contains("is not a numaloc access trace"),
                "cut at {cut}: {error}"
            ),
        }
    }
}

#[test]
fn a_block_that_is_missing_ends_its_thread_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut without = messages();
    without.remove(3);
    let trace = AccessTrace::open(&written(folder.path(), &without), 0).unwrap();
    assert!(!trace.complete);
    assert_eq!(trace.events(0).count(), 1, "the end alone");
    assert_eq!(trace.events(1).count(), 4);
}

#[test]
fn the_limit_ends_the_trace_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.trace");
    let limit = Limit::new(100);
    let writer = Writer::create(&path, std::sync::Arc::clone(&limit)).unwrap();
    let taken = messages().iter().take_while(|m| writer.append(m)).count();
    assert_eq!(taken, 3);
    assert!(!writer.append(&messages()[4]) && writer.failure().is_none());
    assert!(limit.written() <= 100);
    let trace = AccessTrace::open(&path, 0).unwrap();
    assert!(!trace.complete && trace.torn_bytes == 0);
    assert_eq!(
        trace.cut.as_deref(),
        Some("the limit of 100 bytes was reached")
    );
}

#[test]
fn invalid_messages_with_valid_checksums_are_errors_of_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let assert_error = |message: Vec<u8>, expected: &str| {
        let mut messages = messages();
        messages.insert(3, message);
        // As an attacker would: bypassing our own checks.
        let path = folder.path().join("0.trace");
        let mut file = Vec::new();
        for message in &messages {
            file.extend_from_slice(&MAGIC);
            file.extend_from_slice(&(message.len() as u32).to_le_bytes());
            file.extend_from_slice(&crc32fast::hash(message).to_le_bytes());
            file.extend_from_slice(message);
        }
        std::fs::write(&path, file).unwrap();
        let message_text = match AccessTrace::open(&path, 0) {
            Err(error) => error.to_string(),
            Ok(trace) => trace
                .events(0)
                .find_map(Result::err)
                .expect("an error")
                .to_string(),
        };
        assert!(
            message_text.contains(expected) && !message_text.contains('\n'),
            "{message_text}"
        );
    };
    assert_error(bytes_of(&head()), "a second head");
    assert_error(bytes_of(&thread(0, 9)), "a thread of the same number again");
    assert_error(vec![9], "found an unknown message");
    let mut newer = bytes_of(&head());
    newer[1] = 9;
    assert_error(newer, "format version 9, this numaloc reads up to 3");
    // Blocks whose columns are not compressed.
    assert_error(Vec::new(), "found an unknown message");
    assert_error(bytes_of(&thread(5, 0)), "zstd-compressed columns");
}

#[test]
fn a_block_that_unpacks_to_a_huge_size_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.trace");
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let block = Block {
        count: 16_384,
        ..Block::default()
    };
    let frames = [head(), thread(0, 0), Message::Block(block, &bomb)];
    let mut file = Vec::new();
    for message in frames.iter().map(bytes_of) {
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&(message.len() as u32).to_le_bytes());
        file.extend_from_slice(&crc32fast::hash(&message).to_le_bytes());
        file.extend_from_slice(&message);
    }
    std::fs::write(&path, file).unwrap();
    let trace = AccessTrace::open(&path, 0).unwrap();
    let error = trace.events(0).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("block at byte"), "{error}");
}

proptest! {
    /// Altered bytes give an error of one line, or events that end.
    #[test]
    fn altered_bytes_are_read_or_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        checksums_fixed: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &messages());
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if checksums_fixed {
            let mut at = 0;
            while let Some(head) = bytes.get(at..at + FRAME_HEAD) {
                let length = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
                let Some(message) = bytes.get(at + FRAME_HEAD..at + FRAME_HEAD + length) else { break };
                let crc = crc32fast::hash(message);
                bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
                at += FRAME_HEAD + length;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        match AccessTrace::open(&path, 0) {
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
            Ok(trace) => {
                let traces = [trace];
                if let Ok(order) = Order::new(&traces, thread_of) {
                    let mut last = 0;
                    for event in order {
                        let Ok((_, event)) = event else { break };
                        prop_assert!(event.time >= last);
                        last = event.time;
                    }
                }
            }
        }
    }
}
