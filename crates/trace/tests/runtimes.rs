//! How the code of run-time libraries affects the clock.

mod support;

use std::sync::{Mutex, PoisonError};

use numaloc_trace::thread::{Values, follow_values};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::assembled;

const DATA: u64 = 0x4000_0000;
const FLAG: u64 = 0x5000_0000;

/// Held by tests that set which values carry clocks: one at a time.
static VALUES: Mutex<()> = Mutex::new(());

/// Two threads; the second is created after the first has stored once, to its stack.
fn two(
    folder: &std::path::Path,
    share: u32,
) -> (&'static Engine, Box<ThreadTracer>, Box<ThreadTracer>) {
    let config = Config {
        folder: folder.to_owned(),
        frontend: "test".to_owned(),
        line_share_ppm: share,
        ..Config::default()
    };
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "test").unwrap()));
    let mut first = engine.first_thread(1);
    first.access::<true, false>(0x7000_0000, 8);
    let pending_thread = first.pending_thread(0);
    first.creator.count_thread();
    let mut second = engine.attach(pending_thread, 2);
    second.access::<true, false>(0x7800_0000, 8);
    (engine, first, second)
}

#[test]
fn accesses_of_run_time_code_are_counted_and_take_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut first, mut second) = two(folder.path(), 1_000_000);
    let before = first.time();
    for round in 0..100_000 {
        first.access::<false, true>(DATA + round % 64 * 8, 8);
    }
    for _ in 0..1000 {
        first.synchronise::<true, true>(DATA, 4);
    }
    assert_eq!(first.time(), before);
    for cell in 0..100 {
        first.access::<true, false>(DATA + 4096 + cell * 8, 8);
    }
    assert_eq!(first.time(), before + 100);
    second.end(0);
    first.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    assert_eq!(profile.threads()[0].accesses, 1 + 100_000 + 1000 + 100);
    let pages: u64 = profile.pages().total();
    assert_eq!(pages, 2 + 100_000 + 1000 + 100);
    assert_eq!(profile.threads()[0].end, before + 100);
}

#[test]
fn a_reader_of_a_run_time_value_is_no_earlier_than_its_last_writer() {
    let _alone = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    follow_values(Values::All);
    // With the line sampled and not: clocks are also kept where lines are sampled.
    for share in [1_000_000, 1] {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut first, mut second) = two(folder.path(), share);
        for cell in 0..5000 {
            first.access::<true, false>(DATA + cell * 8, 8);
        }
        // The program's own values carry no clocks.
        second.access::<false, false>(DATA, 8);
        first.access::<true, true>(FLAG, 8);
        first.access::<true, true>(FLAG + 8, 8);
        assert_eq!(second.time(), 3);
        second.access::<true, true>(FLAG + 8, 8);
        second.access::<false, true>(FLAG + 8, 8);
        assert_eq!(
            second.time(),
            3,
            "the second thread has written that word itself since"
        );
        second.access::<false, true>(FLAG, 8);
        assert_eq!(second.time(), first.time());
        assert_eq!(first.time(), 5001);
    }
}

#[test]
fn with_guarded_values_only_pointers_written_near_a_lock_carry_clocks() {
    let _alone = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    follow_values(Values::Guarded);
    let folder = tempfile::tempdir().unwrap();
    let (_, mut first, mut second) = two(folder.path(), 1_000_000);
    let lock = FLAG + 64;
    first.access::<true, false>(DATA, 8);
    first.access::<true, false>(DATA, 8);
    first.access::<true, true>(FLAG, 8);
    second.access::<false, true>(FLAG, 8);
    assert_eq!(second.time(), 2, "no lock was near");
    first.synchronise::<true, true>(lock, 4);
    first.access::<true, true>(FLAG + 8, 4);
    second.access::<false, true>(FLAG + 8, 4);
    assert_eq!(second.time(), 2, "no pointer");
    first.access::<true, true>(FLAG, 8);
    second.access::<false, true>(FLAG, 8);
    assert_eq!(second.time(), first.time());
    assert_eq!(first.time(), 3);
}

#[test]
fn a_clock_is_handed_over_before_that_of_others_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut first, mut second) = two(folder.path(), 1_000_000);
    for cell in 0..100 {
        first.access::<true, false>(DATA + cell * 8, 8);
    }
    first.announce();
    first.hand_over(FLAG);
    second.announce();
    second.hand_over(FLAG);
    second.synchronise::<false, true>(FLAG, 4);
    assert_eq!(second.time(), first.time());
    first.synchronise::<false, true>(FLAG, 4);
    assert_eq!(second.time(), first.time(), "no later clock was left");
    // A thread that has recorded its store is not waited for.
    first.announce();
    first.store_recorded();
    second.synchronise::<false, true>(FLAG, 4);
}

#[test]
fn fast_loads_of_the_last_writer_end_where_another_thread_leaves_a_later_clock() {
    for way in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut first, mut second) = two(folder.path(), 1_000_000);
        first.synchronise::<true, false>(FLAG, 4);
        for cell in 0..100 {
            second.access::<true, false>(DATA + cell * 8, 8);
        }
        assert!(first.light_load(FLAG, 4));
        first.access::<false, false>(FLAG, 4);
        assert!(first.time() < second.time());
        match way {
            // A run-time library's store to another word does not change the last writer.
            0 => second.access::<true, true>(FLAG + 8, 4),
            1 => {
                second.access::<false, true>(FLAG + 16, 4);
                assert!(second.light_runtime_store(FLAG + 8, 4));
            }
            _ => {
                second.announce_at(FLAG + 8);
                second.hand_over(FLAG + 8);
            }
        }
        first.access::<false, false>(FLAG + 8, 4);
        assert_eq!(first.time(), second.time(), "{way}");
    }
}

#[test]
fn an_access_that_is_only_counted_takes_no_time_and_passes_no_clock() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut first, mut second) = two(folder.path(), 1_000_000);
    for cell in 0..1000 {
        first.access::<true, false>(DATA + cell % 64 * 8, 8);
    }
    let before = (first.time(), second.time());
    assert!(before.0 > before.1);
    // Even on a line used for synchronisation.
    first.mark_sync(FLAG);
    first.count_only::<true>(FLAG, 4);
    second.count_only::<false>(FLAG, 4);
    assert_eq!((first.time(), second.time()), before);
    second.end(0);
    first.end(0);
    engine.finish();
    let profile = assembled(folder.path());
    assert!(profile.communication().is_empty());
    assert_eq!(profile.threads()[0].accesses, 1 + 1000 + 1);
    assert_eq!(profile.pages().total(), 2 + 1000 + 2);
}
