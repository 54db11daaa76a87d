//! The congestion that DeLoc is about: threads that communicate and stream much data, fewer than the machine has cores.
//! Mapping by locality alone puts them on one node, where they share one memory controller.

use crate::common::{LINE, PAGE_LINES};
use numaloc_mapping::{Direction, MapInput, by_name};
use numaloc_model::trace::{Action, Event};
use numaloc_model::{CommMatrix, GroupPair, LogicalPu, TaskGroup, ThreadIdx};
use numaloc_sim::{Machine, Pages, Parameters, Setup, Threads, Trace, TraceBuilder, simulate};
use numaloc_topology::Topology;

/// Fewer than Purple's 28 cores.
const THREADS: usize = 16;
/// Lines that each thread streams once.
const LINES: u64 = 30_000;
/// Accesses for each line: a thread alone needs some 5 GB/s, all together more than one controller's 60.
const WORK: u64 = 20;

/// Threads in pairs: each streams its own lines, and now and then writes a line that its partner reads.
fn program() -> Trace {
    let paths: Vec<String> = (0..THREADS).map(|at| format!("r{at}")).collect();
    let mut builder =
        TraceBuilder::new(paths.iter().map(String::as_str), LINE, LINE * PAGE_LINES).unwrap();
    for at in 0..LINES {
        for thread in 0..THREADS as u64 {
            let mut push = |work, action| {
                let event = Event {
                    time: at,
                    work,
                    action,
                    after: 0,
                };
                builder.push(ThreadIdx(thread as u32), &event);
            };
            push(WORK, Action::Read((thread + 1) << 24 | at));
            match at % 64 {
                0 => push(1, Action::Write(thread)),
                32 => push(1, Action::Read(thread ^ 1)),
                _ => (),
            }
        }
    }
    builder.finish().unwrap()
}

/// The pairs' communication, all of it at the same time, and a little between neighbouring pairs.
fn mapped(policy: &str, machine: &Topology) -> Vec<LogicalPu> {
    let pairs = (0..THREADS - 1).map(|a| (a, a + 1, if a % 2 == 0 { 1000.0 } else { 10.0 }));
    let matrix = CommMatrix::from_cells(THREADS, pairs.clone()).unwrap();
    let group = TaskGroup {
        pairs: pairs
            .map(|(a, b, amount)| GroupPair {
                a: ThreadIdx::from_index(a),
                b: ThreadIdx::from_index(b),
                in_group: amount,
                in_run: amount,
            })
            .collect(),
    };
    let groups = [group];
    let load = [LINES as f64; THREADS];
    let input = MapInput::directed(&matrix, Direction::Undirected, machine)
        .with_load(Some(&load))
        .with_groups(&groups);
    let policy = by_name(policy).expect("it is registered");
    numaloc_mapping::map(policy, &input).unwrap().mapping.pu
}

#[test]
fn locality_alone_is_slower_than_deloc_and_balance_unless_bandwidth_is_infinite() {
    let topology = numaloc_topology::resolve("purple").unwrap();
    // Cores that are limited by nothing but memory: whether two threads share one must not matter.
    let parameters = Parameters {
        smt_slowdown: 1.0,
        outstanding: 64,
        prefetched: 128,
        window_accesses: 1 << 12,
        ..Parameters::default()
    };
    let finite = Machine::new(&topology, parameters).unwrap();
    let mut infinite = finite.clone();
    infinite.service.iter_mut().for_each(|service| *service = 0);
    for link in &mut infinite.links {
        link.ps_per_byte = 0.0;
    }
    let program = program();
    let time = |machine: &Machine, policy: &str| {
        let threads = mapped(policy, &topology);
        let nodes: Vec<u32> = threads.iter().map(|&pu| machine.place(pu).node).collect();
        let on_first = nodes.iter().filter(|&&node| node == nodes[0]).count();
        let expected = if policy == "locality" {
            THREADS
        } else {
            THREADS / 2
        };
        assert_eq!(on_first, expected, "{policy}: {nodes:?}");
        let setup = Setup {
            threads: Threads::Pinned(&threads),
            pages: &Pages::FirstTouch,
        };
        let outcome = simulate(machine, &program, &setup, machine.private_bytes).unwrap();
        (outcome.time as f64, outcome.mean_wait())
    };
    // The table in docs/commands/simulate.md (`--nocapture`).
    for (bandwidth, machine) in [("finite", &finite), ("infinite", &infinite)] {
        for policy in ["locality", "deloc", "balance"] {
            let (time, wait) = time(machine, policy);
            println!(
                "{bandwidth} {policy}: {:.3} ms, mean wait {:.0} ns",
                time / 1e9,
                wait / 1e3
            );
        }
    }
    let (locality, waits) = time(&finite, "locality");
    for other in ["deloc", "balance"] {
        let (spread, waits_spread) = time(&finite, other);
        assert!(
            locality > 1.15 * spread,
            "{other}: {locality} ps against {spread} ps"
        );
        assert!(
            waits > 5.0 * waits_spread,
            "{other}: waits {waits} ps, {waits_spread} ps"
        );
    }
    let (locality, waits) = time(&infinite, "locality");
    assert_eq!(waits, 0.0);
    for other in ["deloc", "balance"] {
        let (spread, _) = time(&infinite, other);
        let change = locality / spread - 1.0;
        assert!(
            change.abs() < 0.02,
            "{other}: {change:+.4} without congestion"
        );
    }
}
