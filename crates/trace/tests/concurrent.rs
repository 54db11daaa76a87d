//! The engine driven by concurrent threads: no access is lost, and (`make test-tsan`) there is no data race.
//!
//! The threads keep in step however busy the machine is, because a race between accesses far apart in time is not
//! detected. The variables that keep them in step are relaxed and order nothing.

mod support;

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use numaloc_model::{Layer, Profile};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::{Recorder, assembled};

const THREADS: usize = 2;
const ROUNDS: u64 = 20_000;
/// Most rounds that one thread may be ahead of another.
const STEP: u64 = 32;
const LINES: u64 = 16;
const DATA: u64 = 0x10_0000;

fn child(engine: &'static Engine, parent: &mut ThreadTracer, tid: u32) -> Box<ThreadTracer> {
    let pending_thread = parent.pending_thread(0);
    parent.creator.count_thread();
    engine.attach(pending_thread, tid)
}

/// The rounds that each concurrent thread has begun.
#[derive(Default)]
struct Steps([AtomicU64; THREADS]);

impl Steps {
    /// Begins a round; waits for threads that are far behind.
    fn begin(&self, me: usize, round: u64) {
        if round.is_multiple_of(STEP) {
            self.0[me].store(round + STEP, Relaxed);
            while self.0.iter().any(|begun| begun.load(Relaxed) < round) {
                thread::yield_now();
            }
        }
    }

    fn end(&self, me: usize) {
        self.0[me].store(u64::MAX, Relaxed);
    }
}

type Work = fn(&'static Engine, &Steps, usize, &mut ThreadTracer);

/// Runs `work` concurrently, on one system thread for each thread of the engine.
fn at_once(engine: &'static Engine, work: Work) {
    let mut tracers = vec![engine.first_thread(1)];
    for tid in 2..=THREADS as u32 {
        let tracer = child(engine, &mut tracers[0], tid);
        tracers.push(tracer);
    }
    let steps: &Steps = Box::leak(Box::default());
    let threads = tracers.into_iter().enumerate().map(|(me, mut tracer)| {
        thread::spawn(move || {
            work(engine, steps, me, &mut tracer);
            steps.end(me);
            tracer.end(0);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
}

fn events(profile: &Profile, layer: Layer) -> u64 {
    let rows = profile.communication().iter();
    let rows = rows.filter(|row| row.layer == layer);
    rows.map(|row| row.events).sum()
}

/// Own lines, lines that both threads write, one that is only read, and an atomic word.
fn accesses(_: &'static Engine, steps: &Steps, me: usize, tracer: &mut ThreadTracer) {
    let line = |line: u64| DATA + line % LINES * 64;
    for round in 0..ROUNDS {
        steps.begin(me, round);
        tracer.access::<false, false>(line(round % 5), 8);
        tracer.access::<true, false>(line(8 + me as u64), 8);
        tracer.access::<true, false>(line(round % 4) + 8 * me as u64, 8);
        // Other bytes of a line that this thread has just written, unless the other one took it.
        tracer.access::<true, false>(line(round % 4) + 32 + 8 * me as u64, 8);
        tracer.update::<true>(line(12), 8);
    }
}

/// Locks, pages that are forgotten, threads that are created, and accesses of run-time libraries.
fn everything_else(
    engine: &'static Engine,
    steps: &Steps,
    thread: usize,
    tracer: &mut ThreadTracer,
) {
    let me = thread as u64;
    let mut tid = 100 * (thread as u32 + 1);
    let lock = DATA + 0x1_0000;
    for round in 0..ROUNDS / 20 {
        steps.begin(thread, round);
        tracer.synchronise::<false, true>(lock, 4);
        tracer.access::<true, false>(DATA + round % 64 * 64, 8);
        tracer.announce();
        tracer.hand_over(lock);
        tracer.synchronise::<true, true>(lock, 4);
        // A page that both threads use, forgotten by one while the other may use it.
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
fn concurrent_threads_lose_no_access() {
    let recorder = Recorder::new(Config::default());
    let engine = recorder.engine();
    at_once(engine, accesses);
    engine.finish();
    let profile = assembled(recorder.folder());
    assert_eq!(profile.threads().len(), THREADS);
    // An update is a read and a write.
    for thread in profile.threads() {
        assert_eq!(thread.accesses, 6 * ROUNDS);
    }
    assert_eq!(profile.pages().total(), 6 * ROUNDS * THREADS as u64);
    // A read makes at most one event.
    let all = events(&profile, Layer::WriteRead);
    assert!((1..=2 * ROUNDS * THREADS as u64).contains(&all), "{all}");
    assert!(events(&profile, Layer::FalseSharing) <= all);
}

#[test]
fn concurrent_threads_lock_forget_pages_and_record_every_layer() {
    let recorder = Recorder::new(Config {
        layers: vec![Layer::WriteRead, Layer::SharedLine, Layer::LastTwo],
        ..Config::default()
    });
    let engine = recorder.engine();
    at_once(engine, everything_else);
    engine.finish();
    let profile = assembled(recorder.folder());
    let short = (0..ROUNDS / 20).filter(|round| round % 16 < THREADS as u64);
    assert_eq!(profile.threads().len(), THREADS + short.count());
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
}

/// A race that the sanitizer must report, or `make/tsan` fails.
#[test]
#[ignore = "a data race, for make/tsan"]
fn a_race_on_purpose() {
    struct Shared(UnsafeCell<u64>);
    // SAFETY: none, on purpose.
    unsafe impl Sync for Shared {}
    static SHARED: Shared = Shared(UnsafeCell::new(0));
    let steps = Steps::default();
    let add = |me| {
        for round in 0..ROUNDS {
            steps.begin(me, round);
            // SAFETY: as above.
            unsafe { *SHARED.0.get() += 1 };
        }
        steps.end(me);
    };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let add = &add;
            scope.spawn(move || add(me));
        }
    });
}
