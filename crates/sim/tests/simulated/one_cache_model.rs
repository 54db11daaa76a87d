//! The model behind the DRAM ratio (`numaloc_analysis::dram`) and the simulator agree on which requests reach DRAM.
//!
//! The one takes events in recorded order and knows no time; the other has time, cores and a directory. Fed with events
//! whose order in simulated time is the recorded one, both must count the same lines, up to the two rules in which
//! they differ on purpose.

use std::collections::VecDeque;

use crate::common::{LINE, LLC_LINES, NS, PAGE_LINES, machine, pus};
use numaloc_analysis::dram::{DramModel, LastLevel};
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};
use numaloc_sim::{Pages, Setup, Threads, TraceBuilder, simulate};

const THREADS: u64 = 4;
const NODES: usize = 2;

/// Requests of private caches: of own and shared lines, more than the shared caches hold; written lines are written
/// back later.
fn requests(count: u64) -> Vec<(u64, Action)> {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut written = vec![VecDeque::new(); THREADS as usize];
    (0..count)
        .map(|at| {
            let thread = at % THREADS;
            let mine: &mut VecDeque<u64> = &mut written[thread as usize];
            if mine.len() > 300 && next() % 2 == 0 {
                return (thread, Action::WriteBack(mine.pop_front().unwrap()));
            }
            let line = match next() % 4 {
                0 => next() % 4096,
                _ => 8192 + thread * LLC_LINES + next() % LLC_LINES,
            };
            // The line leaves the private caches that have it written, or is clean there.
            for lines in &mut written {
                lines.retain(|&other| other != line);
            }
            if next() % 3 > 0 {
                return (thread, Action::Read(line));
            }
            written[thread as usize].push_back(line);
            (thread, Action::Write(line))
        })
        .collect()
}

#[test]
fn the_dram_ratios_model_and_the_simulator_agree_on_lines_from_dram() {
    let requests = requests(400_000);
    let level = LastLevel {
        bytes: LLC_LINES * LINE,
        ways: 16,
        count: NODES,
    };
    let page = LINE * PAGE_LINES;
    let mut untimed = DramModel::new(level, THREADS as usize, LINE, page);
    let paths: Vec<String> = (0..THREADS).map(|at| format!("r{at}")).collect();
    let mut trace = TraceBuilder::new(paths.iter().map(String::as_str), LINE, page).unwrap();
    for (&(thread, action), at) in requests.iter().zip(0..) {
        // A microsecond between two requests, longer than any takes: they end in the order of their start.
        let event = Event {
            time: at + 1,
            work: if at < THREADS { 1 + thread } else { THREADS },
            action,
            after: 0,
        };
        untimed.take(ThreadIdx(thread as u32), &event);
        trace.push(ThreadIdx(thread as u32), &event);
    }
    let mut timed = machine(NODES, 2, 10);
    timed.access = (1000 * NS) as f64;
    let trace = trace.finish().unwrap();
    let setup = Setup {
        threads: Threads::Pinned(&pus(&[0, 1, 2, 3])),
        pages: &Pages::Interleave,
    };
    let timed = simulate(&timed, &trace, &setup, timed.private_bytes).unwrap();
    let untimed = untimed.finish();
    let sum = |of: fn(&numaloc_analysis::dram::Requests) -> u64| -> u64 {
        untimed.threads.iter().map(of).sum()
    };
    let read: u64 = timed.nodes.iter().map(|node| node.lines_read).sum();
    let (fetches, transfers) = (sum(|of| of.fetches), sum(|of| of.transfers));
    assert!(
        fetches > 50_000 && transfers > 1000,
        "{fetches}, {transfers}"
    );
    let moved = timed.transfers_within + timed.transfers_between;
    // What a thread's own shared cache does not answer. Answering another cache's request counts as a use of the line
    // in the untimed model only, so that caches evict slightly different lines.
    let differ = |found: u64, expected: u64| (found as f64 / expected as f64 - 1.0).abs();
    assert!(
        differ(read + moved, fetches + transfers) < 0.005,
        "not answered by the own shared cache: {read} + {moved}, {fetches} + {transfers}"
    );
    // The simulator writes a line that moves between shared caches back to memory, which answers later requests. The
    // untimed model keeps it as newer than memory, so that the other cache answers them.
    assert!(
        read >= fetches && differ(read, fetches) < 0.01,
        "lines read from DRAM: {read}, {fetches}"
    );
}
