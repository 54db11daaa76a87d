//! Long work between requests, in which other threads make theirs.

use crate::common::{LINE, MEMORY, NS, PAGE_LINES, machine, run};
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};
use numaloc_sim::machine::Place;
use numaloc_sim::{Pages, Trace, TraceBuilder};

/// Threads that start at once: for each, reads of lines of its own with these accesses before each.
fn reads(threads: &[&[u64]]) -> Trace {
    let paths: Vec<String> = (0..threads.len()).map(|at| format!("r{at}")).collect();
    let paths = paths.iter().map(String::as_str);
    let mut builder = TraceBuilder::new(paths, LINE, LINE * PAGE_LINES).unwrap();
    for (thread, works) in threads.iter().enumerate() {
        let (mut time, own) = (0, thread as u64 * 64 * PAGE_LINES);
        for (&work, line) in works.iter().zip(0..) {
            time += work;
            let event = Event {
                time,
                work,
                action: Action::Read(own + line),
                after: 0,
            };
            builder.push(ThreadIdx::from_index(thread), &event);
        }
    }
    builder.finish().unwrap()
}

/// Threads that compute for a millisecond between two requests never have them at the same time, so none waits.
#[test]
fn requests_after_long_work_do_not_delay_those_made_meanwhile() {
    let works: Vec<Vec<u64>> = (0..16)
        .map(|thread| vec![1_000_000 + 10_007 * thread; 20])
        .collect();
    let works: Vec<&[u64]> = works.iter().map(Vec::as_slice).collect();
    let mut machine = machine(1, 16, 1);
    machine.access = NS as f64;
    let pus: Vec<u32> = (0..16).collect();
    let outcome = run(&machine, &reads(&works), &pus, &Pages::FirstTouch);
    for (thread, end) in outcome.thread_ends.iter().enumerate() {
        // All misses but the last are complete before the next one.
        let alone = 20 * (1_000_000 + 10_007 * thread as u64) * NS + MEMORY;
        assert!(end.abs_diff(alone) < 20 * NS, "{thread}: {end} {alone}");
    }
}

/// Two threads of one core: each runs at half speed while the other one runs, and at full speed afterwards.
#[test]
fn a_thread_runs_faster_once_the_other_one_of_its_core_has_ended() {
    let mut machine = machine(1, 1, 1);
    let one = Place {
        core: 0,
        group: 0,
        node: 0,
    };
    machine.pus = vec![one, one];
    machine.access = NS as f64;
    machine.parameters.smt_slowdown = 2.0;
    let program = reads(&[&[1_000_000], &[3_000_000]]);
    let outcome = run(&machine, &program, &[0, 1], &Pages::FirstTouch);
    for (end, ms) in outcome.thread_ends.iter().zip([2, 4]) {
        let expected = ms * 1_000_000 * NS + MEMORY;
        // The speed is looked up every 10 us.
        assert!(end.abs_diff(expected) < 50_000 * NS, "{end} {expected}");
    }
}
