//! Visits to contended lines: the time of threads that want one line is that of its transfers, however they ran in the
//! recording.

use crate::common::*;
use numaloc_model::ThreadIdx;
use numaloc_model::profile::{ContendedVisits, VisitedKind};
use numaloc_model::trace::{Action, Event};
use numaloc_sim::{Machine, Pages, Trace, TraceBuilder};

/// The contended line, in a page of its own, and its first word.
const SHARED: u64 = 1 << 20;
const WORD: u64 = SHARED * LINE / 4;
const THREADS: usize = 4;
const FOUR: [u32; THREADS] = [0, 1, 2, 3];
/// A written line from another core below the same cache.
const TRANSFER: u64 = LLC + PRIVATE;

/// A machine whose cores take a nanosecond an access.
fn one_node() -> Machine {
    Machine {
        access: 1000.0,
        ..machine(1, THREADS, 10)
    }
}

fn visits(thread: u32, accesses: u64, visits: u64, kind: VisitedKind) -> ContendedVisits {
    ContendedVisits {
        line: SHARED,
        thread: ThreadIdx(thread),
        from: 0,
        until: accesses,
        visits,
        writes: visits,
        atomics: if kind == VisitedKind::Data { 0 } else { visits },
        held: 0,
        kind,
    }
}

/// Four threads of some accesses each. As recorded they change the line one after the other, in parts of their work:
/// each continues when the one before it has made its part.
fn recorded(accesses: u64, parts: u64, rows: &[ContendedVisits]) -> Trace {
    let paths: Vec<String> = (0..THREADS).map(|at| format!("r{at}")).collect();
    let builder = TraceBuilder::new(paths.iter().map(String::as_str), LINE, LINE * PAGE_LINES);
    let mut builder = builder.unwrap().with_visits(rows);
    let mut time = 0;
    for _ in 0..parts {
        for thread in 0..THREADS {
            for (action, work) in [
                (Action::Acquire(WORD), 0),
                (Action::Write(SHARED), 1),
                (Action::Release(WORD), accesses / parts - 1),
            ] {
                time += work;
                let event = Event {
                    time,
                    work,
                    action,
                    after: 0,
                };
                builder.push(ThreadIdx::from_index(thread), &event);
            }
        }
    }
    builder.finish().unwrap()
}

fn of_all(accesses: u64, number: u64, kind: VisitedKind) -> Vec<ContendedVisits> {
    (0..THREADS as u32)
        .map(|thread| visits(thread, accesses, number, kind))
        .collect()
}

fn time(accesses: u64, parts: u64, rows: &[ContendedVisits]) -> u64 {
    time_on(&one_node(), accesses, parts, rows)
}

fn time_on(machine: &Machine, accesses: u64, parts: u64, rows: &[ContendedVisits]) -> u64 {
    let trace = recorded(accesses, parts, rows);
    run(machine, &trace, &FOUR, &Pages::FirstTouch).time
}

/// Whether a time is off by at most that share, in percent.
fn is_near(time: u64, expected: u64, percent: u64) -> bool {
    100 * time.abs_diff(expected) <= percent * expected
}

#[test]
fn a_counter_takes_a_transfer_for_each_change_in_whichever_order_the_host_ran_the_threads() {
    let (accesses, changes) = (10_000, 1000);
    let rows = of_all(accesses, changes, VisitedKind::Counter);
    for parts in [1, 10, 500] {
        let time = time(accesses, parts, &rows);
        let expected = THREADS as u64 * changes * TRANSFER;
        assert!(is_near(time, expected, 5), "{parts} parts: {time} ps");
    }
    // As recorded, one thread after the other makes its accesses.
    let serial = time(accesses, 1, &[]);
    assert!(
        is_near(serial, THREADS as u64 * accesses * NS, 5),
        "{serial} ps"
    );
}

/// Cores that wait take the line from each other by lot: one of four takes it from its neighbour in a third of cases.
/// Were it in the order in which they came first, that would be the half here, and none in another order.
#[test]
fn a_core_takes_a_line_from_any_of_those_that_wait() {
    let machine = Machine {
        access: 1000.0,
        ..machine(2, 2, 10)
    };
    let changes = 1000;
    let rows = of_all(10_000, changes, VisitedKind::Counter);
    let alone = |other: usize| {
        let two = [rows[0].clone(), rows[other].clone()];
        time_on(&machine, 10_000, 10, &two) / (2 * changes)
    };
    let (within, between) = (alone(1), alone(2));
    assert!(between > 3 * within, "{within} and {between} ps");
    let time = time_on(&machine, 10_000, 10, &rows);
    let expected = THREADS as u64 * changes * (within + 2 * between) / 3;
    assert!(is_near(time, expected, 5), "{time} of {expected} ps");
}

#[test]
fn plain_stores_take_a_transfer_for_what_a_core_does_while_it_waits() {
    // Every other access is to the line: 32 of them in the window of 64. Nothing orders the threads here.
    let accesses = 20_000;
    let mut rows = of_all(accesses, accesses / 2, VisitedKind::Data);
    rows.push(visits(0, accesses, 1, VisitedKind::Counter));
    let time = time(accesses, 1, &rows);
    let transfers = THREADS as u64 * accesses / 64;
    assert!(is_near(time, transfers * TRANSFER, 15), "{time} ps");
}

/// What waits long at a contended line makes its next request after the others' until then. Were controllers and links
/// asked at once for times to come, all others would be late there, and wait longer the later they are.
#[test]
fn hundreds_of_cores_that_wait_for_lines_ask_memory_in_the_order_of_their_times() {
    let (nodes, cores, lines, accesses) = (8, 48, 16, 2_000);
    let machine = Machine {
        access: 1000.0,
        ..machine(nodes, cores, 10)
    };
    let threads = nodes * cores;
    let mut rows = Vec::new();
    for line in SHARED..SHARED + lines {
        let stored = accesses / 2 / lines;
        let all = (0..threads as u32).map(|at| visits(at, accesses, stored, VisitedKind::Data));
        // Its lines have no recorded order.
        let counted = visits(0, accesses, 1, VisitedKind::Counter);
        rows.extend(
            all.chain([counted])
                .map(|row| ContendedVisits { line, ..row }),
        );
    }
    let paths: Vec<String> = (0..threads).map(|at| format!("r{at}")).collect();
    let builder = TraceBuilder::new(paths.iter().map(String::as_str), LINE, LINE * PAGE_LINES);
    let mut builder = builder.unwrap().with_visits(&rows);
    for part in 0..accesses / 20 {
        for thread in 0..threads {
            let own = 2 * SHARED + 1000 * PAGE_LINES * thread as u64;
            let event = Event {
                time: 20 * part,
                work: 20,
                action: Action::Read(own + part),
                after: 0,
            };
            builder.push(ThreadIdx::from_index(thread), &event);
        }
    }
    let pus: Vec<u32> = (0..threads as u32).collect();
    let trace = builder.finish().unwrap();
    let outcome = run(&machine, &trace, &pus, &Pages::FirstTouch);
    // One transfer for a window of accesses, by way of the line's home. Reading a line that nobody else reads waits for
    // no more than a few others.
    let longest = 2 * LLC + 3 * (HOP + DATA);
    let transfers = threads as u64 * accesses / 64;
    assert!(outcome.time < transfers * longest, "{} ps", outcome.time);
    let reads = threads as u64 * accesses / 20;
    let waited: u64 = outcome.nodes.iter().map(|node| node.waited).sum();
    assert!(waited < 4 * SERVICE * reads, "{} ps", waited / reads);
}

/// Two threads on each of two PUs: a visit waits for those of others that come before it, but not for the end of its
/// thread's time slice.
#[test]
fn threads_that_share_a_pu_visit_lines_until_their_time_slice_ends() {
    let accesses = 20_000;
    let mut rows = of_all(accesses, accesses / 2, VisitedKind::Data);
    rows.push(visits(0, accesses, 1, VisitedKind::Counter));
    let trace = recorded(accesses, 1, &rows);
    let mut machine = one_node();
    machine.parameters.time_slice_us = 5.0;
    let outcome = run(&machine, &trace, &[0, 0, 1, 1], &Pages::FirstTouch);
    assert!(outcome.switches > 4, "{} switches", outcome.switches);
    let work = accesses * NS * THREADS as u64 / 2;
    assert!(outcome.time > work, "{} ps", outcome.time);
}

#[test]
fn a_lock_is_held_by_one_thread_at_a_time() {
    let (accesses, sections, held) = (30_000, 100, 200);
    let mut rows = of_all(accesses, sections, VisitedKind::Lock);
    for row in &mut rows {
        row.held = held;
    }
    let time = time(accesses, 10, &rows);
    let expected = THREADS as u64 * sections * (held * NS + TRANSFER);
    assert!(is_near(time, expected, 5), "{time} ps");
}

#[test]
fn a_line_that_one_thread_visits_or_all_load_costs_nothing() {
    let accesses = 10_000;
    let alone = [visits(2, accesses, 1000, VisitedKind::Counter)];
    let time_alone = time(accesses, 500, &alone);
    assert!(is_near(time_alone, accesses * NS, 5), "{time_alone} ps");
    let mut loads = of_all(accesses, 1000, VisitedKind::Counter);
    for row in &mut loads {
        (row.writes, row.atomics) = (0, 0);
    }
    // A core that waits for each load.
    let mut machine = one_node();
    machine.parameters.window_accesses = 1;
    let time_loads = time_on(&machine, accesses, 500, &loads);
    assert!(is_near(time_loads, accesses * NS, 5), "{time_loads} ps");
}

#[test]
fn data_keeps_the_order_of_its_synchronisation() {
    let accesses = 10_000;
    let rows = of_all(accesses, 1, VisitedKind::Data);
    let time = time(accesses, 1, &rows);
    assert!(time > 3 * accesses * NS, "{time} ps");
}
