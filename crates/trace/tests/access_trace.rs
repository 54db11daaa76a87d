//! The access trace end to end: threads of an engine, the socket, and a recorder that keeps the messages.

mod support;

use std::sync::{Arc, Mutex};

use numaloc_access_trace::columns::Columns;
use numaloc_access_trace::message::Message;
use numaloc_access_trace::{Kind, Record};
use numaloc_trace::access_trace::Filter;
use numaloc_trace::access_trace::receive::{Receiver, Sink};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::assembled;

/// A sink that keeps up to a number of messages.
#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<Vec<u8>>>>, usize);

impl Sink for Kept {
    fn take(&self, message: &[u8]) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.push(message.to_vec());
        kept.len() < self.1
    }
}

fn recorder(folder: &std::path::Path, most: usize) -> (Receiver, Kept) {
    let kept = Kept(Arc::default(), most);
    let sink = kept.clone();
    (
        Receiver::listen(folder, 1, move || sink.clone()).unwrap(),
        kept,
    )
}

fn started(folder: &std::path::Path) -> (&'static Engine, Box<ThreadTracer>) {
    let config = Config {
        folder: folder.to_owned(),
        trace: Some(Filter::default()),
        ..Config::default()
    };
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "test").unwrap()));
    (engine, engine.first_thread(1))
}

/// The records of a thread, and the number of accesses stated by its blocks.
fn records(kept: &Kept, thread: u32) -> (Vec<Record>, u64) {
    let mut records = Vec::new();
    let mut accesses = 0;
    for message in kept.0.lock().unwrap().iter() {
        if let Message::Block(block, columns) = Message::decode(message).unwrap()
            && block.thread == thread
        {
            assert_eq!(block.first, records.len() as u64, "no gap");
            accesses += block.accesses;
            let mut columns = Columns::new(columns.to_vec(), block.count as usize).unwrap();
            records.extend(columns.by_ref());
            assert!(columns.done());
        }
    }
    (records, accesses)
}

#[test]
fn misses_synchronisation_and_all_work_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, kept) = recorder(folder.path(), usize::MAX);
    let (engine, mut one) = started(folder.path());
    const DATA: u64 = 0x10_0000;
    const FLAG: u64 = 0x20_0000;
    for at in 0..16 {
        one.access::<true, false>(DATA + at * 8, 8);
    }
    let pending_thread = one.pending_thread(0);
    one.creator.count_thread();
    let mut two = engine.attach(pending_thread, 2);
    one.access::<true, false>(DATA, 8);
    one.synchronise::<true, false>(FLAG, 4);
    two.synchronise::<false, false>(FLAG, 4);
    two.access::<false, false>(DATA, 8);
    two.access::<false, false>(DATA + 8, 8);
    // Unaligned: the end of this line and the beginning of the next one.
    two.access::<false, false>(DATA + 60, 8);
    two.end(0);
    one.end(0);
    engine.finish();
    receiver.finish();

    let sent = |thread| {
        let (records, accesses) = records(&kept, thread);
        assert_eq!(records.iter().map(|r| r.work).sum::<u64>(), accesses);
        let sent: Vec<_> = records
            .iter()
            .map(|r| (r.kind(), r.value(), r.work))
            .collect();
        sent
    };
    let (data, flag) = (DATA >> 6, FLAG >> 6);
    assert_eq!(
        sent(0),
        [
            (Kind::Write, data, 1),
            (Kind::Write, data + 1, 8),
            (Kind::Create, 1, 7),
            (Kind::Write, flag, 2),
            (Kind::Release, FLAG >> 2, 0),
        ]
    );
    // The second began at clock 16, the first released at 18.
    assert_eq!(
        sent(1),
        [
            (Kind::Read, flag, 1),
            (Kind::Clock, 1, 0),
            (Kind::Acquire, FLAG >> 2, 0),
            (Kind::Read, data, 1),
            (Kind::Read, data + 1, 2),
        ]
    );
    let messages = kept.0.lock().unwrap();
    assert!(matches!(
        Message::decode(&messages[0]),
        Ok(Message::Head(head)) if head.pid == std::process::id() && head.path == "0"
    ));
    let last = messages.last().unwrap();
    assert_eq!(Message::decode(last), Ok(Message::End));
}

#[test]
fn a_long_trace_comes_in_blocks_without_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, kept) = recorder(folder.path(), usize::MAX);
    let (engine, mut one) = started(folder.path());
    // Writes 4 MiB twice: four times the size of the caches.
    for at in 0..2 * (4 << 20) / 8u64 {
        one.access::<true, false>(0x10_0000 + at * 8 % (4 << 20), 8);
    }
    one.end(0);
    engine.finish();
    receiver.finish();
    let (records, accesses) = records(&kept, 0);
    let count = |kind| records.iter().filter(|r| r.kind() == kind).count();
    let lines = 2 * (4 << 20) / 64;
    assert_eq!(count(Kind::Write), lines);
    assert_eq!(count(Kind::WriteBack), lines - (1 << 20) / 64);
    assert_eq!(accesses, 8 * lines as u64);
}

#[test]
fn one_access_to_more_lines_than_a_block_has_records_takes_several() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, kept) = recorder(folder.path(), usize::MAX);
    let (engine, mut one) = started(folder.path());
    one.access::<true, false>(0x10_0000, 4 << 20);
    one.end(0);
    engine.finish();
    receiver.finish();
    let (records, accesses) = records(&kept, 0);
    let count = |kind| records.iter().filter(|r| r.kind() == kind).count();
    let lines = (4 << 20) / 64;
    assert_eq!(count(Kind::Write), lines);
    assert_eq!(count(Kind::WriteBack), lines - (1 << 20) / 64);
    assert_eq!(accesses, 1);
}

#[test]
fn a_recorder_that_takes_no_more_gets_no_more_and_the_profile_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, kept) = recorder(folder.path(), 3);
    let (engine, mut one) = started(folder.path());
    for at in 0..(64 << 20) / 64u64 {
        one.access::<true, false>(0x10_0000 + at * 64, 8);
    }
    one.end(0);
    engine.finish();
    receiver.finish();
    assert_eq!(kept.0.lock().unwrap().len(), 3);
    let profile = assembled(folder.path());
    assert_eq!(profile.threads()[0].accesses, 1 << 20);
    assert!(profile.meta().complete);
}

#[test]
fn without_a_recorder_there_is_a_profile_and_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut one) = started(folder.path());
    one.access::<true, false>(0x10_0000, 8);
    one.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    let notes = &profile.meta().notes;
    assert!(
        notes.len() == 1 && notes[0].starts_with("no access trace of process 0: "),
        "{notes:?}"
    );
}
