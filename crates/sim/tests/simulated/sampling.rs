//! Simulations of a sample of the records, compared with those of all.

use crate::common::{LINE, PAGE_LINES, machine};
use numaloc_model::trace::{Action, Event};
use numaloc_model::{LogicalPu, ThreadIdx};
use numaloc_sim::{
    Extras, Machine, Outcome, Pages, Sample, Setup, Threads, Trace, TraceBuilder, simulate_with,
};

const THREADS: u64 = 4;
const FILTER: u64 = 1 << 30;

/// Threads that read lines at random in all memory, with barriers, and a second half that reads in order.
fn trace() -> Trace {
    let names: Vec<String> = (1..THREADS).map(|n| format!("0.{n}")).collect();
    let paths = std::iter::once("0").chain(names.iter().map(String::as_str));
    let mut builder = TraceBuilder::new(paths, LINE, LINE * PAGE_LINES).unwrap();
    let mut push = |thread: u64, time, action| {
        let event = Event {
            time,
            work: 3,
            action,
            after: 0,
        };
        builder.push(ThreadIdx(thread as u32), &event);
    };
    for child in 1..THREADS {
        push(0, child, Action::Create(child));
    }
    let (mut random, mut time) = (7u64, THREADS);
    for round in 0..200u64 {
        for step in 0..500 {
            time += 1;
            for thread in 0..THREADS {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let line = match round < 100 {
                    true => (random >> 33) % 100_000,
                    false => thread * 25_000 + (round * 500 + step) % 25_000,
                };
                let action = match random >> 60 {
                    0 => Action::Write(line),
                    _ => Action::Read(line),
                };
                push(thread, time, action);
            }
        }
        for thread in 0..THREADS {
            push(thread, time, Action::Release(round));
        }
        for thread in 0..THREADS {
            push(thread, time + 1, Action::Acquire(round));
        }
        time += 1;
    }
    builder.finish().unwrap()
}

fn run(machine: &Machine, trace: &Trace, sample: Option<Sample>) -> Outcome {
    let pus: Vec<LogicalPu> = (0..THREADS as u32).map(LogicalPu).collect();
    let setup = Setup {
        threads: Threads::Pinned(&pus),
        pages: &Pages::FirstTouch,
    };
    let extras = Extras { moves: &[], sample };
    simulate_with(machine, trace, &setup, FILTER, &extras).unwrap()
}

#[test]
fn a_sample_with_warm_caches_has_the_time_and_counts_of_the_whole() {
    let (machine, trace) = (machine(2, 2, 4), trace());
    let whole = run(&machine, &trace, None);
    assert_eq!(whole.sampled, None);
    let sample = Sample {
        share: 0.05,
        warmed: 1.0,
    };
    let found = run(&machine, &trace, Some(sample));
    let sampled = found.sampled.unwrap();
    let share = sampled.detailed as f64 / sampled.records as f64;
    assert!((0.04..0.08).contains(&share), "{sampled:?}");
    assert!(sampled.windows >= 10 && sampled.error < 0.1, "{sampled:?}");
    let off = found.time as f64 / whole.time as f64 - 1.0;
    assert!(off.abs() < 0.05, "{off} {sampled:?}");
    // Caches see the same requests in a slightly different order.
    let misses = found.llc_misses() as f64 / whole.llc_misses() as f64 - 1.0;
    assert!(misses.abs() < 0.02, "{misses}");
    assert_eq!(found.accesses, whole.accesses);
    assert_eq!(found, run(&machine, &trace, Some(sample)), "deterministic");
}

#[test]
fn skipped_records_place_pages_and_count_as_work() {
    let (machine, trace) = (machine(2, 2, 4), trace());
    let whole = run(&machine, &trace, None);
    let sample = Sample {
        share: 0.05,
        warmed: 0.2,
    };
    let found = run(&machine, &trace, Some(sample));
    let sampled = found.sampled.unwrap();
    let seen = (sampled.detailed + sampled.warmed) as f64 / sampled.records as f64;
    assert!((0.2..0.3).contains(&seen), "{sampled:?}");
    let off = found.time as f64 / whole.time as f64 - 1.0;
    assert!(off.abs() < 0.2, "{off}");
    let pages = |outcome: &Outcome| outcome.nodes.iter().map(|node| node.pages).sum::<u64>();
    assert_eq!(pages(&found), pages(&whole));
}
