//! Address translation: walks through page tables wait for memory as other loads do.

use crate::common::*;
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};
use numaloc_sim::outcome::Walks;
use numaloc_sim::{Machine, Outcome, Pages, Trace, TraceBuilder};

const TURNS: u64 = 4000;
const LATENCY: u64 = MEMORY / NS;

/// A machine with one core, memory without queues, and this many translations in its TLB.
fn translating(entries: u64) -> Machine {
    let mut one = machine(1, 1, 10);
    one.service = vec![0];
    one.parameters.tlb = Some(shape(entries, 4));
    one
}

/// Loads of one line on each of these pages, each `after` as many fetches.
fn loads(pages: impl Iterator<Item = u64>, after: u8) -> Trace {
    let mut builder = TraceBuilder::new(["r"], LINE, LINE * PAGE_LINES).unwrap();
    for (time, page) in pages.enumerate() {
        let event = Event {
            time: time as u64 + 1,
            work: 1,
            action: Action::Read(page * PAGE_LINES + page % PAGE_LINES),
            after,
        };
        builder.push(ThreadIdx::from_index(0), &event);
    }
    builder.finish().unwrap()
}

fn on(machine: &Machine, trace: &Trace) -> (u64, Walks) {
    let found: Outcome = run(machine, trace, &[0], &Pages::FirstTouch);
    (found.time / NS, found.walks.unwrap_or_default())
}

/// Pages whose entries lie in lines of their own, none twice, not in order.
fn scattered() -> impl Iterator<Item = u64> {
    (1..=TURNS).map(|turn| turn * 40_503 % (1 << 17) * 8)
}

fn near(found: u64, expected: u64) {
    let off = (found as f64 / expected as f64 - 1.0).abs();
    assert!(off < 0.05, "{found} ns, expected {expected}");
}

#[test]
fn a_chase_over_many_pages_waits_for_each_page_table_and_then_for_the_line() {
    let trace = loads(scattered(), 1);
    let (without, none) = on(&machine_without(), &trace);
    near(without, TURNS * LATENCY);
    assert_eq!(none, Walks::default());
    let (with, walks) = on(&translating(64), &trace);
    assert_eq!(walks.count, TURNS);
    near(with, without + walks.time / NS);
    near(walks.time / NS, TURNS * (LATENCY + PRIVATE / NS));
}

fn machine_without() -> Machine {
    let mut one = translating(64);
    one.parameters.tlb = None;
    one
}

#[test]
fn loads_that_do_not_wait_for_each_other_wait_for_a_walker() {
    let trace = loads(scattered(), 0);
    let (with, walks) = on(&translating(64), &trace);
    assert_eq!(walks.count, TURNS);
    near(with, TURNS * (LATENCY + PRIVATE / NS) / 2);
}

#[test]
fn pages_that_fit_are_walked_to_once_and_larger_ones_hardly() {
    let rounds = 100;
    let trace = loads((0..rounds).flat_map(|_| 0..64), 1);
    let (_, fits) = on(&translating(64), &trace);
    assert_eq!(fits.count, 64);
    let (_, large) = on(&translating(16), &trace);
    assert_eq!(large.count, 64 * rounds);
    let merged = trace.on_pages_of(LINE * PAGE_LINES * 512).unwrap();
    let (_, huge) = on(&translating(16), &merged);
    assert_eq!(huge.count, 1);
}
