//! The engine driven by threads of the system at once: no access is lost.

mod support;

use std::sync::Barrier;

use numaloc_model::Layer;
use numaloc_trace::Config;
use support::{Recorder, assembled};

const THREADS: usize = 2;
const ROUNDS: u64 = 20_000;
const LINES: u64 = 16;
const DATA: u64 = 0x10_0000;

#[test]
fn threads_at_once_lose_no_access() {
    let recorder = Recorder::new(Config::default());
    let engine = recorder.engine();
    let mut tracers = vec![engine.first_thread(1)];
    for tid in 2..=THREADS as u32 {
        let newborn = tracers[0].newborn(0);
        tracers[0].threads_created += 1;
        tracers.push(engine.welcome(newborn, tid));
    }
    let together = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for (me, mut tracer) in tracers.into_iter().enumerate() {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                for round in 0..ROUNDS {
                    // One's own line, one that both write, one that is only read, and an atomic word.
                    let line = |line: u64| DATA + line % LINES * 64;
                    tracer.access::<false, false>(line(round % 5), 8);
                    tracer.access::<true, false>(line(8 + me as u64), 8);
                    tracer.access::<true, false>(line(round % 4) + 8 * me as u64, 8);
                    tracer.update::<true>(line(12), 8);
                }
                tracer.end(0);
            });
        }
    });
    engine.finish();
    let profile = assembled(recorder.folder());
    assert_eq!(profile.threads.len(), THREADS);
    // An update is a read and a write.
    for thread in &profile.threads {
        assert_eq!(thread.accesses, 5 * ROUNDS);
    }
    assert_eq!(profile.pages.total(), 5 * ROUNDS * THREADS as u64);
    let events = |layer| -> u64 {
        let rows = profile.communication.iter();
        let rows = rows.filter(|row| row.layer == layer);
        rows.map(|row| row.events).sum()
    };
    // A read has one event at most.
    let all = events(Layer::WriteRead);
    assert!((1..=2 * ROUNDS * THREADS as u64).contains(&all), "{all}");
    assert!(events(Layer::FalseSharing) <= all);
}
