//! Traces with windows, compared with the whole ones from which they were made.

use crate::common::{LINE, PAGE_LINES, machine};
use numaloc_access_trace::windows::{Mark, Part, Thinner, Windows};
use numaloc_access_trace::{Kind, Record};
use numaloc_model::trace::{Action, Event, TracePart};
use numaloc_model::{LogicalNode, LogicalPu, ThreadIdx};
use numaloc_sim::{
    Extras, Outcome, Pages, Sample, Setup, SetupError, Threads, Trace, TraceBuilder, simulate_with,
};

const THREADS: u64 = 4;
const FILTER: u64 = 1 << 30;
const ROUNDS: u64 = 200;

/// Records of each thread: reads at random in all memory, with barriers, and a second half that reads in order.
fn records() -> Vec<Vec<Record>> {
    let mut threads: Vec<Vec<Record>> = vec![Vec::new(); THREADS as usize];
    for child in 1..THREADS {
        threads[0].push(Record::new(Kind::Create, child, 1));
        threads[child as usize].push(Record::new(Kind::Clock, 0, THREADS - 1));
    }
    let mut random = 7u64;
    for round in 0..ROUNDS {
        for step in 0..500 {
            for (thread, records) in threads.iter_mut().enumerate() {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let line = match round < ROUNDS / 2 {
                    true => (random >> 33) % 100_000,
                    false => thread as u64 * 25_000 + (round * 500 + step) % 25_000,
                };
                let kind = match random >> 60 {
                    0 => Kind::Write,
                    _ => Kind::Read,
                };
                records.push(Record::new(kind, line, 20));
            }
        }
        for records in &mut threads {
            records.push(Record::new(Kind::Release, round, 1));
            records.push(Record::new(Kind::Acquire, round, 1));
        }
    }
    threads
}

/// The trace of these records, reduced to windows if there are any.
fn trace(windows: Option<Windows>) -> Trace {
    let names: Vec<String> = (1..THREADS).map(|n| format!("0.{n}")).collect();
    let paths = std::iter::once("0").chain(names.iter().map(String::as_str));
    let mut builder = TraceBuilder::new(paths, LINE, LINE * PAGE_LINES).unwrap();
    let mut events: Vec<(u64, bool, usize, Event)> = Vec::new();
    for (thread, records) in records().into_iter().enumerate() {
        let mut kept = records;
        if let Some(windows) = windows {
            let mut thinner = Thinner::new(windows, 6, 0);
            let mut out = Vec::new();
            thinner.thin(&kept, &mut out);
            thinner.flush(&mut out);
            kept = out;
        }
        let (mut time, mut work) = (0, 0);
        for record in kept {
            time += record.work;
            work += record.work;
            let value = record.value();
            let action = match record.kind() {
                Kind::Read => Action::Read(value),
                Kind::Write => Action::Write(value),
                Kind::Own => Action::Own(value),
                Kind::WriteBack => Action::WriteBack(value),
                Kind::Acquire => Action::Acquire(value),
                Kind::Release => Action::Release(value),
                Kind::Create => Action::Create(value),
                Kind::Clock => continue,
                Kind::Omitted => Action::Omitted(value),
                Kind::Part => {
                    let Mark { interval, part } = Mark::of(value).unwrap();
                    Action::Part(match part {
                        Part::Gap => TracePart::Gap(interval),
                        Part::Warm => TracePart::Warm(interval),
                        Part::Window => TracePart::Window(interval),
                    })
                }
            };
            let event = Event {
                time,
                work: std::mem::take(&mut work),
                action,
                after: 0,
            };
            events.push((time, matches!(action, Action::Acquire(_)), thread, event));
        }
        let end = Event {
            time,
            work,
            action: Action::End,
            after: 0,
        };
        events.push((time, false, thread, end));
    }
    events.sort_by_key(|&(time, acquires, thread, _)| (time, acquires, thread));
    for (_, _, thread, event) in events {
        builder.push(ThreadIdx::from_index(thread), &event);
    }
    builder.finish().unwrap()
}

const TENTH: Windows = Windows {
    share_ppm: 100_000,
    warm_lines: 1 << 15,
};

fn run(trace: &Trace, threads: Threads<'_>, pages: &Pages) -> Result<Outcome, SetupError> {
    let setup = Setup { threads, pages };
    simulate_with(&machine(2, 2, 4), trace, &setup, FILTER, &Extras::default())
}

fn pinned(trace: &Trace, pages: &Pages) -> Outcome {
    let pus: Vec<LogicalPu> = (0..THREADS as u32).map(LogicalPu).collect();
    run(trace, Threads::Pinned(&pus), pages).unwrap()
}

#[test]
fn windows_have_the_time_and_counts_of_the_whole() {
    let (whole, windowed) = (trace(None), trace(Some(TENTH)));
    assert!(windowed.is_windowed() && !whole.is_windowed());
    assert_eq!(windowed.accesses(), whole.accesses());
    assert_eq!(windowed.pages(), whole.pages());
    for pages in [
        Pages::FirstTouch,
        Pages::Interleave,
        Pages::Node(LogicalNode(1)),
    ] {
        let (expected, found) = (pinned(&whole, &pages), pinned(&windowed, &pages));
        let sampled = found.sampled.unwrap();
        assert_eq!(sampled.records, THREADS * ROUNDS * 500);
        let share = sampled.detailed as f64 / sampled.records as f64;
        assert!((0.08..0.13).contains(&share), "{sampled:?}");
        assert!(sampled.windows >= 10 && sampled.error < 0.15, "{sampled:?}");
        let off = found.time as f64 / expected.time as f64 - 1.0;
        println!("{pages:?}: {off:+.4} {sampled:?}");
        assert!(off.abs() < 0.05, "{pages:?}: {off} {sampled:?}");
        let misses = found.llc_misses() as f64 / expected.llc_misses() as f64 - 1.0;
        assert!(misses.abs() < 0.1, "{pages:?}: {misses}");
        let share = |outcome: &Outcome| outcome.remote_requests_percent().unwrap();
        assert!((share(&found) - share(&expected)).abs() < 3.0);
        let homes = |outcome: &Outcome| outcome.nodes.iter().map(|node| node.pages).sum::<u64>();
        assert_eq!(homes(&found), homes(&expected));
        assert_eq!(found, pinned(&windowed, &pages), "deterministic");
    }
}

/// With caches as they were left by the window before, the misses of a window are those of another time.
#[test]
fn last_requests_before_windows_keep_caches_as_they_would_be() {
    let cold = Windows {
        warm_lines: 0,
        ..TENTH
    };
    let misses = |trace: &Trace| pinned(trace, &Pages::FirstTouch).llc_misses() as f64;
    let whole = misses(&trace(None));
    let off = |windows| (misses(&trace(Some(windows))) / whole - 1.0).abs();
    assert!(off(TENTH) < off(cold), "{} {}", off(TENTH), off(cold));
}

#[test]
fn the_trace_is_the_same_on_larger_pages_and_has_a_fingerprint() {
    let windowed = trace(Some(TENTH));
    let other = trace(Some(Windows {
        share_ppm: 90_000,
        ..TENTH
    }));
    assert_ne!(windowed.fingerprint(), other.fingerprint());
    assert_eq!(windowed.fingerprint(), trace(Some(TENTH)).fingerprint());
    let large = windowed.clone().on_pages_of(LINE * PAGE_LINES * 4).unwrap();
    let of = |trace: &Trace| pinned(trace, &Pages::Node(LogicalNode(0)));
    assert_eq!(of(&large).time, of(&windowed).time);
}

#[test]
fn what_needs_all_requests_is_refused() {
    let windowed = trace(Some(TENTH));
    let pus: Vec<LogicalPu> = (0..THREADS as u32).map(LogicalPu).collect();
    let refused = |threads, pages: &Pages| run(&windowed, threads, pages).unwrap_err().to_string();
    let os = refused(Threads::Os { seed: 1 }, &Pages::FirstTouch);
    assert!(os.contains("thread policy os needs all"), "{os}");
    for pages in [Pages::AutoNuma, Pages::NextTouch] {
        let found = refused(Threads::Pinned(&pus), &pages);
        assert!(found.contains("page policy"), "{found}");
    }
    let setup = Setup {
        threads: Threads::Pinned(&pus),
        pages: &Pages::FirstTouch,
    };
    let extras = Extras {
        moves: &[],
        sample: Some(Sample {
            share: 0.1,
            warmed: 1.0,
        }),
    };
    let found = simulate_with(&machine(2, 2, 4), &windowed, &setup, FILTER, &extras);
    assert!(found.unwrap_err().to_string().contains("a sample"));
}
