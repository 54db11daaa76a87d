//! Accesses recorded by the light path, where it can, are counted as if none were.

mod support;

use numaloc_model::Profile;
use numaloc_trace::thread::{Values, follow_values};
use numaloc_trace::{Config, ThreadTracer};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use support::{Recorder, assembled};

const THREADS: usize = 3;
/// Address of the data: some lines of two pages.
const DATA: u64 = 0x5000_0000;

/// What a frontend may report.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Load,
    Store,
    Update,
    Atomic,
    Allocator,
    RuntimeLoad,
    RuntimeStore,
    RuntimeAtomic,
    SelectedLoad,
    SelectedStore,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    thread: usize,
    kind: Kind,
    address: u64,
    size: u32,
    /// Bits of the bytes that a mask register selects, where it does.
    selected: u64,
}

fn access() -> impl Strategy<Value = Access> {
    let kinds = prop_oneof![
        4 => Just(Kind::Load),
        4 => Just(Kind::Store),
        1 => Just(Kind::Update),
        1 => Just(Kind::Atomic),
        1 => Just(Kind::Allocator),
        3 => Just(Kind::RuntimeLoad),
        2 => Just(Kind::RuntimeStore),
        1 => Just(Kind::RuntimeAtomic),
        2 => Just(Kind::SelectedLoad),
        1 => Just(Kind::SelectedStore),
    ];
    let bytes = prop_oneof![
        (0..=64_u32).prop_map(|count| u64::MAX.checked_shr(64 - count).unwrap_or(0)),
        any::<u64>(),
    ];
    // Few lines, so that threads meet; on two pages.
    let place = (0..2_u64, 0..4_u64, 0..8_u64);
    let what = (0..5_u32, bytes, 0..8_u64);
    (0..THREADS, kinds, place, what).prop_map(
        |(thread, kind, (page, line, word), (size, selected, byte))| {
            let (widest, offset) = match kind {
                Kind::Load | Kind::Store => (16, 0),
                // At any address.
                Kind::SelectedLoad | Kind::SelectedStore => (8, byte),
                _ => (8, 0),
            };
            Access {
                thread,
                kind,
                address: DATA + 4096 * page + 64 * line + 8 * word + offset,
                size: widest.min(1 << size),
                selected,
            }
        },
    )
}

/// Offset and size of the words with a selected byte, from the first to the last in each.
fn words(mut selected: u64) -> impl Iterator<Item = (u64, u32)> {
    std::iter::from_fn(move || {
        let first = selected.trailing_zeros();
        let word = selected & 0xff_u64.checked_shl(first)?;
        selected &= !word;
        Some((first.into(), 64 - word.leading_zeros() - first))
    })
}

/// Records without the light path.
fn record(tracer: &mut ThreadTracer, access: Access) {
    let Access { address, size, .. } = access;
    match access.kind {
        // Frontends record wider accesses word by word.
        Kind::Load => {
            for at in (0..size).step_by(8) {
                tracer.access::<false, false>(address + u64::from(at), (size - at).min(8));
            }
        }
        Kind::Store => {
            for at in (0..size).step_by(8) {
                tracer.access::<true, false>(address + u64::from(at), (size - at).min(8));
            }
        }
        Kind::Update => tracer.update::<false>(address, size),
        Kind::RuntimeLoad => tracer.access::<false, true>(address, size),
        Kind::RuntimeStore => {
            tracer.access::<true, true>(address, size);
            tracer.store_recorded();
        }
        Kind::Allocator => {
            tracer.count_only::<false>(address, size);
            tracer.store_recorded();
            tracer.count_only::<true>(address, size);
        }
        Kind::Atomic => {
            tracer.hand_over(address);
            tracer.synchronise::<false, false>(address, size);
            tracer.synchronise::<true, false>(address, size);
        }
        Kind::RuntimeAtomic => {
            tracer.hand_over(address);
            tracer.synchronise::<false, true>(address, size);
            tracer.synchronise::<true, true>(address, size);
        }
        Kind::SelectedLoad => {
            for (offset, size) in words(access.selected) {
                tracer.access::<false, false>(address + offset, size);
            }
        }
        Kind::SelectedStore => {
            for (offset, size) in words(access.selected) {
                tracer.access::<true, false>(address + offset, size);
            }
        }
    }
}

/// Records by the light path if it can.
fn record_lightly(tracer: &mut ThreadTracer, access: Access) -> bool {
    let Access { address, size, .. } = access;
    match access.kind {
        Kind::Load => tracer.light_load(address, size),
        Kind::Store => tracer.light_store(address, size),
        Kind::Update => tracer.light_update(address, size),
        Kind::RuntimeLoad => tracer.light_runtime_load(address, size),
        Kind::RuntimeStore => tracer.light_runtime_store(address, size),
        Kind::Allocator => tracer.light_allocator(address, size),
        Kind::Atomic => tracer.light_atomic::<false>(address, size),
        Kind::RuntimeAtomic => tracer.light_atomic::<true>(address, size),
        Kind::SelectedLoad => tracer.light_selected::<false>(address, access.selected),
        Kind::SelectedStore => tracer.light_selected::<true>(address, access.selected),
    }
}

/// The profile of some accesses, the threads' times, and how many accesses the light path has recorded.
fn recorded(recorder: &Recorder, accesses: &[Access], light: bool) -> (Profile, Vec<u64>, usize) {
    let engine = recorder.engine();
    let mut threads = vec![engine.first_thread(1)];
    for tid in 2..=THREADS as u32 {
        threads[0].thread_created(tid, 0, 0);
        threads.push(engine.adopt(tid));
    }
    let mut lightly = 0;
    for (n, &access) in accesses.iter().enumerate() {
        let tracer = &mut *threads[access.thread];
        // What is held back between bursts is counted when it is given back.
        match light && n % 2 == 0 {
            true => tracer.hold_back(1),
            false => tracer.give_back(),
        }
        let announced = matches!(
            access.kind,
            Kind::Atomic | Kind::Allocator | Kind::RuntimeStore | Kind::RuntimeAtomic
        );
        if announced && !(light && tracer.light_announce(access.address)) {
            tracer.announce_at(access.address);
        }
        // Code that a frontend generates makes the tests of the fast path first.
        let fast = n % 3 == 0 && matches!(access.kind, Kind::Load);
        if light && !fast && record_lightly(tracer, access) {
            lightly += 1;
        } else {
            tracer.give_back();
            record(tracer, access);
        }
    }
    let times = threads.iter().map(|thread| thread.time()).collect();
    for thread in &mut threads {
        thread.end(0);
    }
    engine.finish();
    (assembled(recorder.folder()), times, lightly)
}

/// Everything that a profile says about accesses and communication.
fn facts(profile: &Profile) -> String {
    let pages = profile.pages();
    let counts: Vec<_> = pages
        .pages()
        .iter()
        .map(|page| (page.number, page.first_touch, pages.accesses(page).to_vec()))
        .collect();
    format!(
        "{counts:?} {:?} {:?} {:?} {:?}",
        profile.threads(),
        profile.communication(),
        profile.shared_lines(),
        profile.contended_lines()
    )
}

fn equal_for(values: Values, config: Config) {
    follow_values(values);
    let share = config.time_share_ppm;
    let recorder = Recorder::new(config);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut lightly = 0;
    // Few recordings: each reserves tables for the readers of synchronisation lines.
    for length in [20, 100, 400, 1000, 3000, 30_000] {
        let lists = proptest::collection::vec(access(), length);
        let accesses = lists.new_tree(&mut runner).unwrap().current();
        let (one, one_times, none) = recorded(&recorder, &accesses, false);
        let (other, other_times, light) = recorded(&recorder, &accesses, true);
        assert_eq!(none, 0);
        lightly += light;
        assert_eq!(one_times, other_times, "{values:?} {share}");
        assert_eq!(facts(&one), facts(&other), "{values:?} {share}");
    }
    // A thread's first atomic instructions are all sampled, which the light path leaves to others.
    assert!(lightly > 5000, "{lightly}");
}

// One test: which values are followed is a setting of the process.
#[test]
fn the_light_path_changes_no_count_and_no_clock() {
    for values in [Values::None, Values::All, Values::Guarded] {
        // All the time, and 5 % of it in bursts.
        for time_share_ppm in [1_000_000, 50_000] {
            let config = Config {
                time_share_ppm,
                memory: 1 << 32,
                ..Config::default()
            };
            equal_for(values, config);
        }
    }
}
