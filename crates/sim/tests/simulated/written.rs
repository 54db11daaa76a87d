//! Memory that takes longer to write than to read.

use crate::common::{LLC_LINES, SERVICE, machine, run, trace};
use numaloc_model::trace::Action;
use numaloc_sim::{Machine, Pages, Parameters};

#[test]
fn lines_that_are_written_occupy_a_controller_for_their_own_time() {
    let mut machine = machine(1, 1, 10);
    machine.write_service = vec![10 * SERVICE];
    // Twice the lines of the last-level cache: each is written back.
    let lines = 2 * LLC_LINES;
    let stores: Vec<Action> = (0..2 * lines).map(|at| Action::Write(at % lines)).collect();
    let slow = run(
        &machine,
        &trace(std::slice::from_ref(&stores)),
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

#[test]
fn a_line_that_is_written_has_its_own_time_where_the_file_states_one() {
    let machine = |name: &str| {
        let topology = numaloc_topology::resolve(name).unwrap();
        Machine::new(&topology, Parameters::default()).unwrap()
    };
    let cxl = machine("xeon6-cxl");
    assert_eq!(cxl.write_service[0], cxl.service[0]);
    // 133 GB/s read, 66 GB/s written.
    let ratio = cxl.write_service[1] as f64 / cxl.service[1] as f64;
    assert!((ratio - 133.0 / 66.0).abs() < 0.01, "{ratio}");
    let epyc = machine("epyc-9575f-nps4");
    assert!(
        epyc.write_service
            .iter()
            .zip(&epyc.service)
            .all(|(written, read)| written > read)
    );
    assert_eq!(machine("grace-2n").nodes, 2);
}
