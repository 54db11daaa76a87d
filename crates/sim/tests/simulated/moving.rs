//! Pages and threads that move while the program runs, compared with answers computed by hand.

use crate::common::*;
use numaloc_model::trace::Action;
use numaloc_sim::outcome::Outcome;
use numaloc_sim::{Machine, Pages, Setup, Threads, Trace, simulate};

/// Costs of faults and moves in round numbers, and a scan each 100 microseconds.
fn two_nodes(cores: usize) -> Machine {
    let mut machine = machine(2, cores, 1);
    machine.parameters.page_costs.fault_us = 1.0;
    machine.parameters.page_costs.move_us = 3.0;
    machine.parameters.page_costs.scan_period_ms = 0.1;
    machine
}

/// Thread `0` touches `pages` pages and creates a thread, which reads all their lines `rounds` times.
fn initialised_by_the_main_thread(pages: u64, rounds: u64) -> Trace {
    let mut events: Vec<(u32, Action)> = (0..pages)
        .map(|page| (0, Action::Read(page * PAGE_LINES)))
        .collect();
    events.push((0, Action::Create(1)));
    let reads = chase(0, pages * PAGE_LINES, rounds);
    events.extend(reads.into_iter().map(|read| (1, read)));
    creator_and_created(&events)
}

#[test]
fn next_touch_moves_pages_initialised_by_the_main_thread_once() {
    let program = initialised_by_the_main_thread(512, 3);
    let of = |policy: &Pages| run(&two_nodes(1), &program, &[0, 1], policy);
    let (stays, follows) = (of(&Pages::FirstTouch), of(&Pages::NextTouch));
    assert_eq!((stays.page_moves, stays.nodes[0].pages), (0, 512));
    assert_eq!((follows.page_moves, follows.page_faults), (512, 512));
    assert_eq!((follows.nodes[0].pages, follows.nodes[1].pages), (0, 512));
    // Copying is the only remote traffic: each line of each page once.
    let copied = 512 * PAGE_LINES;
    assert_eq!(follows.lines_by_node_pair[2], copied);
    let copied_bytes: u64 = follows.links.iter().map(|link| link.bytes).sum();
    assert_eq!(copied_bytes, copied * 80);
    assert!(stays.remote_percent().unwrap() > 99.0);
}

/// One page, one read: first touch by the creator, then the fault, the move and the copy, then the local read.
#[test]
fn a_page_that_moves_costs_its_fault_its_move_and_its_copy() {
    let events = [
        (0, Action::Read(0)),
        (0, Action::Create(1)),
        (1, Action::Read(1)),
    ];
    let program = creator_and_created(&events);
    let end = |policy: &Pages| run(&two_nodes(1), &program, &[0, 1], policy).thread_ends[1];
    let remote = MEMORY + REQUEST + DATA + 2 * HOP;
    assert_eq!(end(&Pages::FirstTouch), remote);
    // The link is the slowest part of the copy: 8 ns a line against 4 ns at the controllers.
    let copy = PAGE_LINES * DATA + HOP;
    assert_eq!(end(&Pages::NextTouch), 4000 * NS + copy + MEMORY);
}

#[test]
fn numa_balancing_moves_pages_to_the_only_thread_that_uses_them() {
    let program = initialised_by_the_main_thread(512, 40);
    let of = |policy: &Pages| run(&two_nodes(1), &program, &[0, 1], policy);
    let (stays, follows) = (of(&Pages::FirstTouch), of(&Pages::AutoNuma));
    assert_eq!(stays.page_moves, 0);
    assert_eq!(follows.page_moves, 512, "each page once, none comes back");
    assert_eq!(follows.nodes[1].pages, 512);
    assert!(follows.page_faults >= follows.page_moves);
    assert!(
        follows.time < stays.time,
        "{} ps, {} ps with pages that stay",
        follows.time,
        stays.time
    );
}

#[test]
fn numa_balancing_does_nothing_in_a_run_shorter_than_its_period() {
    let program = initialised_by_the_main_thread(64, 3);
    let mut machine = two_nodes(1);
    machine.parameters.page_costs.scan_period_ms = 1000.0;
    let of = |policy: &Pages| run(&machine, &program, &[0, 1], policy);
    assert_eq!(of(&Pages::AutoNuma), of(&Pages::FirstTouch));
}

/// Pages used alternately by threads of two nodes: after the early scans a page moves only when two consecutive faults
/// come from one node.
#[test]
fn numa_balancing_leaves_shared_pages_alone_more_often_than_not() {
    let mut events = vec![(0, Action::Create(1))];
    for at in 0..200_000u64 {
        let line = at * 67 % (256 * PAGE_LINES);
        events.push((0, Action::Read(line)));
        events.push((
            1,
            Action::Read((line + 128 * PAGE_LINES) % (256 * PAGE_LINES)),
        ));
    }
    let program = creator_and_created(&events);
    let outcome = run(&two_nodes(1), &program, &[0, 1], &Pages::AutoNuma);
    assert!(outcome.page_faults > 10 * 256, "{}", outcome.page_faults);
    let moved = outcome.page_moves as f64 / outcome.page_faults as f64;
    assert!(moved < 0.6, "{moved}");
}

fn under_the_system(machine: &Machine, program: &Trace, seed: u64) -> Outcome {
    let setup = Setup {
        threads: Threads::Os { seed },
        pages: &Pages::FirstTouch,
    };
    simulate(machine, program, &setup, 0).unwrap()
}

#[test]
fn the_system_spreads_threads_over_nodes_and_cores() {
    let mut machine = machine(4, 2, 1);
    machine.parameters.os_disturbance_ms = 1e6;
    let lines = LLC_LINES * 2;
    let program = |threads: u64| {
        let of_thread = |at| chase(at * lines, lines, 1);
        trace(&(0..threads).map(of_thread).collect::<Vec<_>>())
    };
    for seed in 0..20 {
        let four = under_the_system(&machine, &program(4), seed);
        assert!(
            four.nodes.iter().all(|node| node.lines_read == lines),
            "one thread on each node: {four:?}"
        );
        assert_eq!((four.thread_moves, four.switches), (0, 0));
        let eight = under_the_system(&machine, &program(8), seed);
        assert!(eight.nodes.iter().all(|node| node.lines_read == 2 * lines));
    }
}

/// Three threads on two PUs: an idle PU takes the one that waits.
#[test]
fn an_idle_pu_takes_a_thread_that_waits() {
    let two = machine(1, 2, 1);
    let lines = LLC_LINES * 2;
    let of_thread = |at: u64| chase(at * lines, lines, if at == 2 { 4 } else { 2 });
    let program = trace(&(0..3).map(of_thread).collect::<Vec<_>>());
    let pinned = run(&two, &program, &[0, 1, 1], &Pages::FirstTouch);
    let moved = under_the_system(&two, &program, 1);
    assert!(moved.thread_moves > 0);
    // Eight rounds of work on two PUs; pinned, six of them are on one.
    assert!(moved.time < pinned.time * 9 / 10);
}

#[test]
fn equal_choices_are_drawn_by_seed_and_only_by_seed() {
    let four = machine(4, 2, 1);
    let mut with_disturbances = four.clone();
    with_disturbances.parameters.os_disturbance_ms = 0.1;
    let lines = LLC_LINES * 2;
    // Threads in pairs that share lines: which of them meet on a node decides the time.
    let program = trace(
        &(0..6)
            .map(|at| chase(at / 2 * lines, lines, 2))
            .collect::<Vec<_>>(),
    );
    for machine in [&four, &with_disturbances] {
        let of = |seed| under_the_system(machine, &program, seed);
        assert_eq!(of(3), of(3));
        let times: std::collections::BTreeSet<u64> = (0..20).map(|seed| of(seed).time).collect();
        assert!(times.len() > 1, "{times:?}");
    }
    assert!(under_the_system(&with_disturbances, &program, 1).thread_moves > 0);
}
