//! The engine driven by threads of the system at once: no access is lost, and (`make test-tsan`) nothing is a data race.
//!
//! Threads are waited for by `join` and by atomics: ThreadSanitizer does not see what the standard library's own code orders.

mod support;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::thread;

use numaloc_model::{Layer, Profile};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::{Recorder, assembled};

const THREADS: usize = 2;
const ROUNDS: u64 = 20_000;
const LINES: u64 = 16;
const DATA: u64 = 0x10_0000;

fn child(engine: &'static Engine, parent: &mut ThreadTracer, tid: u32) -> Box<ThreadTracer> {
    let newborn = parent.newborn(0);
    parent.threads_created += 1;
    engine.welcome(newborn, tid)
}

/// Runs `work` on a thread of the system for each thread of the engine, all at once.
fn at_once(engine: &'static Engine, work: fn(&'static Engine, usize, &mut ThreadTracer)) {
    let mut tracers = vec![engine.first_thread(1)];
    for tid in 2..=THREADS as u32 {
        let tracer = child(engine, &mut tracers[0], tid);
        tracers.push(tracer);
    }
    let begun: &AtomicUsize = Box::leak(Box::default());
    let threads = tracers.into_iter().enumerate().map(|(me, mut tracer)| {
        thread::spawn(move || {
            begun.fetch_add(1, AcqRel);
            while begun.load(Acquire) < THREADS {
                thread::yield_now();
            }
            work(engine, me, &mut tracer);
            tracer.end(0);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
}

fn events(profile: &Profile, layer: Layer) -> u64 {
    let rows = profile.communication.iter();
    let rows = rows.filter(|row| row.layer == layer);
    rows.map(|row| row.events).sum()
}

/// Own lines, lines that both write, one that is only read, and an atomic word.
fn accesses(_: &'static Engine, me: usize, tracer: &mut ThreadTracer) {
    let line = |line: u64| DATA + line % LINES * 64;
    for round in 0..ROUNDS {
        tracer.access::<false, false>(line(round % 5), 8);
        tracer.access::<true, false>(line(8 + me as u64), 8);
        tracer.access::<true, false>(line(round % 4) + 8 * me as u64, 8);
        tracer.update::<true>(line(12), 8);
    }
}

/// Locks, pages that come and go, threads that are created, and what run-time libraries do.
fn everything_else(engine: &'static Engine, me: usize, tracer: &mut ThreadTracer) {
    let me = me as u64;
    let mut tid = 100 * (me as u32 + 1);
    let lock = DATA + 0x1_0000;
    for round in 0..ROUNDS / 20 {
        tracer.synchronise::<false, true>(lock, 4);
        tracer.access::<true, false>(DATA + round % 64 * 64, 8);
        tracer.announce();
        tracer.hand_over(lock);
        tracer.synchronise::<true, true>(lock, 4);
        // A page that both use, forgotten by one while the other may use it.
        let page = DATA + 0x10_0000 + round % 8 * 4096;
        tracer.access::<false, false>(page + 8 * me, 8);
        tracer.access::<true, false>(page + 64 * me, 64);
        if round % 16 == me {
            tracer.forget(page, 4096);
            tid += 1;
            let mut short = child(engine, tracer, tid);
            short.access::<true, false>(page, 8);
            short.end(0);
        }
        tracer.count_only::<true>(DATA + 64 * me, 4);
        tracer.access::<true, true>(lock + 8, 8);
    }
}

#[test]
fn threads_at_once_lose_no_access() {
    let recorder = Recorder::new(Config::default());
    let engine = recorder.engine();
    at_once(engine, accesses);
    engine.finish();
    let profile = assembled(recorder.folder());
    assert_eq!(profile.threads.len(), THREADS);
    // An update is a read and a write.
    for thread in &profile.threads {
        assert_eq!(thread.accesses, 5 * ROUNDS);
    }
    assert_eq!(profile.pages.total(), 5 * ROUNDS * THREADS as u64);
    // A read has one event at most.
    let all = events(&profile, Layer::WriteRead);
    assert!((1..=2 * ROUNDS * THREADS as u64).contains(&all), "{all}");
    assert!(events(&profile, Layer::FalseSharing) <= all);
}

#[test]
fn threads_at_once_lock_forget_pages_and_record_every_layer() {
    let recorder = Recorder::new(Config {
        layers: vec![Layer::WriteRead, Layer::SharedLine, Layer::LastTwo],
        ..Config::default()
    });
    let engine = recorder.engine();
    at_once(engine, everything_else);
    engine.finish();
    let profile = assembled(recorder.folder());
    let short = (0..ROUNDS / 20).filter(|round| round % 16 < THREADS as u64);
    assert_eq!(profile.threads.len(), THREADS + short.count());
    assert!(profile.meta.complete, "{:?}", profile.meta.notes);
}
