//! Memory that takes longer to write than to read.

use crate::common::{LLC_LINES, SERVICE, machine, run, trace};
use numaloc_model::trace::Action;
use numaloc_sim::Pages;

#[test]
fn lines_that_are_written_occupy_a_controller_for_their_own_time() {
    let mut machine = machine(1, 1, 10);
    machine.write_service = vec![10 * SERVICE];
    // Twice the lines of the last-level cache: each is written back.
    let lines = 2 * LLC_LINES;
    let stores: Vec<Action> = (0..2 * lines).map(|at| Action::Write(at % lines)).collect();
    let slow = run(
        &machine,
        &trace(&[stores.clone()]),
        &[0],
        &Pages::FirstTouch,
    );
    let node = &slow.nodes[0];
    assert!(node.lines_written > lines / 2, "{}", node.lines_written);
    let expected = node.lines_read * SERVICE + node.lines_written * 10 * SERVICE;
    assert_eq!(node.busy, expected);
    machine.write_service = vec![SERVICE];
    let even = run(&machine, &trace(&[stores]), &[0], &Pages::FirstTouch);
    assert!(slow.time > even.time, "{} {}", slow.time, even.time);
}
