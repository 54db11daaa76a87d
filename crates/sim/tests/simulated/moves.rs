//! Threads and pages that a schedule moves at points of the recorded clock.

use crate::common::{LINE, PAGE_LINES, machine};
use numaloc_model::trace::{Action, Event};
use numaloc_model::{LogicalNode, LogicalPu, ThreadIdx};
use numaloc_sim::{
    Extras, Machine, Moves, Outcome, Pages, Setup, Threads, Trace, TraceBuilder, simulate_with,
};

const LINES: u64 = 4 * PAGE_LINES;
const FILTER: u64 = 1 << 30;
const HALF: u64 = 2 * LINES;

/// A thread that reads different lines of page after page in one node's memory: `LINES` before the clock `HALF`, and as
/// many after it; each read is two accesses.
fn trace(points: Vec<u64>) -> Trace {
    let builder = TraceBuilder::new(["0"], LINE, LINE * PAGE_LINES).unwrap();
    let mut builder = builder.with_points(points);
    for line in 0..2 * LINES {
        let event = Event {
            time: 2 * (line + 1),
            work: 2,
            action: Action::Read(line),
            after: 0,
        };
        builder.push(ThreadIdx(0), &event);
    }
    builder.finish().unwrap()
}

fn run(machine: &Machine, moves: &[Moves], points: Vec<u64>) -> Outcome {
    let trace = trace(points);
    let pus = [LogicalPu(0)];
    let setup = Setup {
        threads: Threads::Pinned(&pus),
        pages: &Pages::Node(LogicalNode(0)),
    };
    let extras = Extras {
        moves,
        sample: None,
    };
    simulate_with(machine, &trace, &setup, FILTER, &extras).unwrap()
}

#[test]
fn a_thread_that_moves_reads_from_its_new_node_from_then_on() {
    let machine = machine(2, 2, 1);
    let stays = run(&machine, &[], vec![]);
    assert_eq!(stays.lines_by_node_pair, [2 * LINES, 0, 0, 0]);
    let moves = [Moves {
        clock: HALF + 2,
        threads: vec![(0, LogicalPu(2))],
        pages: vec![],
    }];
    let moved = run(&machine, &moves, vec![HALF + 2]);
    assert_eq!(moved.lines_by_node_pair, [LINES, 0, LINES, 0]);
    assert_eq!((moved.thread_moves, moved.page_moves), (1, 0));
    assert!(moved.time > stays.time);
}

#[test]
fn pages_move_at_their_cost_when_the_first_thread_reaches_the_point() {
    let machine = machine(2, 2, 1);
    // The pages of the second half, and one that was there already.
    let pages: Vec<(u32, LogicalNode)> = (4..8).map(|page| (page, LogicalNode(1))).collect();
    let moves = [Moves {
        clock: HALF + 2,
        threads: vec![(0, LogicalPu(2))],
        pages: [&pages[..], &[(0, LogicalNode(0))]].concat(),
    }];
    // All pages are touched before they move: otherwise nothing is copied.
    let untouched = run(&machine, &moves, vec![HALF + 2]);
    assert_eq!(untouched.lines_by_node_pair[1], 0);
    assert_eq!(
        untouched.page_moves, 4,
        "pages of a node are there from the start"
    );
    // Four pages are read from node 0 and written to node 1 by a core there; then all reads are local.
    assert_eq!(untouched.lines_by_node_pair[0], LINES);
    assert_eq!(untouched.lines_by_node_pair[2], 4 * PAGE_LINES);
    assert_eq!(untouched.lines_by_node_pair[3], 4 * PAGE_LINES + LINES);
    let at_least = 4 * (machine.parameters.page_costs.move_us * 1e6) as u64;
    let stays = run(&machine, &[], vec![]);
    assert!(untouched.time > stays.time + at_least);
}

#[test]
fn points_that_no_thread_reaches_change_nothing_and_others_are_refused() {
    let machine = machine(2, 2, 1);
    let moves = |clock, pu, page| {
        [Moves {
            clock,
            threads: vec![(0, LogicalPu(pu))],
            pages: vec![(page, LogicalNode(1))],
        }]
    };
    let late = run(&machine, &moves(1 << 40, 2, 0), vec![1 << 40]);
    assert_eq!(late, run(&machine, &[], vec![]));
    let refused = |moves: &[Moves]| {
        let trace = trace(vec![5]);
        let pus = [LogicalPu(0)];
        let setup = Setup {
            threads: Threads::Pinned(&pus),
            pages: &Pages::FirstTouch,
        };
        let extras = Extras {
            moves,
            sample: None,
        };
        let error = simulate_with(&machine, &trace, &setup, FILTER, &extras).unwrap_err();
        error.to_string()
    };
    assert!(refused(&moves(6, 2, 0)).contains("clock 6 is not a point"));
    assert!(refused(&moves(5, 99, 0)).contains("the machine has 4 PUs"));
    assert!(refused(&moves(5, 2, 99)).contains("a move of page 99"));
}
