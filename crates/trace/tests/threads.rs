//! Identities stay distinct: 4,096 live threads, a hundred thousand consecutive ones, and pages mapped again; progress.

mod support;

use numaloc_model::profile::Amount;
use numaloc_model::{Layer, Profile};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::assembled;

const DATA: u64 = 0x10_0000;

fn started(folder: &std::path::Path) -> (&'static Engine, Box<ThreadTracer>) {
    let config = Config {
        folder: folder.to_owned(),
        frontend: "test".to_owned(),
        ..Config::default()
    };
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "test").unwrap()));
    (engine, engine.first_thread(1))
}

fn child(engine: &'static Engine, parent: &mut ThreadTracer, tid: u32) -> Box<ThreadTracer> {
    let pending_thread = parent.pending_thread(0);
    parent.creator.count_thread();
    engine.attach(pending_thread, tid)
}

fn events(profile: &Profile) -> impl Fn(usize, usize) -> f64 {
    let matrix = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    move |src, dst| matrix.get(src, dst)
}

#[test]
fn four_thousand_and_ninety_six_live_threads_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut first) = started(folder.path());
    for line in 0..8 {
        first.access::<true, false>(DATA + line * 64, 8);
    }
    let mut threads: Vec<_> = (1..4096)
        .map(|at| child(engine, &mut first, at + 1))
        .collect();
    // All threads read the lines twice; the second read is no event.
    for _ in 0..2 {
        for thread in &mut threads {
            for line in 0..8 {
                thread.access::<false, false>(DATA + line * 64, 8);
            }
        }
    }
    // The last one writes, then all read again.
    threads[4094].access::<true, false>(DATA, 8);
    for thread in &mut threads {
        thread.access::<false, false>(DATA, 8);
        thread.end(0);
    }
    first.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    assert_eq!(profile.threads().len(), 4096);
    assert!(
        profile.meta().complete && profile.meta().notes.is_empty(),
        "{:?}",
        profile.meta().notes
    );
    let events = events(&profile);
    for thread in 1..4096 {
        assert_eq!(events(0, thread), 8.0, "{thread}");
        let received = f64::from(u8::from(thread != 4095));
        assert_eq!(events(4095, thread), received, "{thread}");
    }
}

#[test]
fn a_hundred_thousand_consecutive_threads_are_distinguished() {
    const THREADS: u32 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut first) = started(folder.path());
    first.access::<true, false>(DATA, 8);
    // A few of the threads live long.
    let mut long: Vec<_> = (0..3).map(|at| child(engine, &mut first, at + 2)).collect();
    for at in 0..THREADS - 3 {
        let mut thread = child(engine, &mut first, at + 5);
        // Reads what the first thread wrote once and what the thread before wrote.
        thread.access::<false, false>(DATA, 8);
        thread.access::<false, false>(DATA + 64, 8);
        thread.access::<true, false>(DATA + 64, 8);
        thread.end(0);
        if at % 1000 == 0 {
            for thread in &mut long {
                thread.access::<false, false>(DATA + 64, 8);
            }
        }
    }
    for mut thread in long {
        thread.end(0);
    }
    first.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    assert_eq!(profile.threads().len(), THREADS as usize + 1);
    assert!(
        profile.meta().complete && profile.meta().notes.is_empty(),
        "{:?}",
        profile.meta().notes
    );
    let events = events(&profile);
    assert_eq!(profile.threads()[77_777].path, "0.77777");
    for thread in 4..=THREADS as usize {
        assert_eq!(events(0, thread), 1.0, "{thread}");
        if thread > 4 {
            assert_eq!(events(thread - 1, thread), 1.0, "{thread}");
        }
    }
    // The long-lived threads read the line once for every thousandth thread.
    for (reader, round) in [(1, 0), (2, 50), (3, 99)] {
        assert_eq!(events(4 + round * 1000, reader), 1.0);
        assert_eq!(events(5 + round * 1000, reader), 0.0);
    }
}

#[test]
fn pages_mapped_again_are_touched_first_again() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut first) = started(folder.path());
    // Then the same thread uses one page, and another thread the other.
    for page in 0..2 {
        first.access::<false, false>(DATA + page * 4096, 8);
    }
    first.forget(DATA, 2 * 4096);
    let mut other = child(engine, &mut first, 2);
    first.access::<true, false>(DATA, 8);
    for page in 0..2 {
        other.access::<true, false>(DATA + page * 4096, 8);
    }
    other.end(0);
    first.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    let pages = profile.pages().pages().iter();
    let touched: Vec<_> = pages.map(|page| page.first_touch.unwrap().0).collect();
    assert_eq!(touched, [0, 1]);
}

#[test]
fn only_a_process_that_takes_a_while_shows_its_progress() {
    for (pause, files) in [(0, 1), (250, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let (engine, mut first) = started(folder.path());
        first.access::<true, false>(DATA, 8);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        first.end(0);
        engine.finish();
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            files,
            "{pause} ms"
        );
    }
}
