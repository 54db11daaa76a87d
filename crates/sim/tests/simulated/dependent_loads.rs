//! Loads whose address comes from another load wait for it; all others overlap.

use crate::common::*;
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};
use numaloc_sim::{Machine, Pages, Trace, TraceBuilder};

/// A load of the program: its line, its distance, and the accesses that it counts for.
type Load = (u64, u8, u64);

fn trace_of(threads: &[Vec<Load>]) -> Trace {
    let paths: Vec<String> = (0..threads.len()).map(|at| format!("r{at}")).collect();
    let mut builder =
        TraceBuilder::new(paths.iter().map(String::as_str), LINE, LINE * PAGE_LINES).unwrap();
    for time in 0..threads.iter().map(Vec::len).max().unwrap_or(0) {
        for (thread, loads) in threads.iter().enumerate() {
            if let Some(&(line, after, work)) = loads.get(time) {
                let event = Event {
                    time: time as u64 + 1,
                    work,
                    action: Action::Read(line),
                    after,
                };
                builder.push(ThreadIdx::from_index(thread), &event);
            }
        }
    }
    builder.finish().unwrap()
}

/// Nanoseconds of each of `turns`, on one core of a machine that has 10 lines outstanding, 20 of streams, and memory
/// without queues.
fn per_turn(turns: u64, loads: Vec<Load>) -> f64 {
    let mut one = machine(1, 1, 10);
    one.parameters.prefetched = 20;
    one.service = vec![0];
    time_on(&one, &[loads]) / turns as f64
}

fn time_on(machine: &Machine, threads: &[Vec<Load>]) -> f64 {
    let cores: Vec<u32> = (0..threads.len() as u32).collect();
    run(machine, &trace_of(threads), &cores, &Pages::FirstTouch).time as f64 / NS as f64
}

fn near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 0.03,
        "{found} ns, expected {expected}"
    );
}

/// Lines without streams, none twice.
struct Lines(u64);

impl Iterator for Lines {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 += 1;
        Some(self.0 * 40_503 % (1 << 20))
    }
}

const TURNS: u64 = 4000;
const LATENCY: f64 = (MEMORY / NS) as f64;

#[test]
fn a_chase_takes_the_latency_of_memory_a_hop() {
    let chase: Vec<Load> = Lines(0)
        .take(TURNS as usize)
        .map(|line| (line, 1, 1))
        .collect();
    near(per_turn(TURNS, chase.clone()), LATENCY);
    // Unmarked loads overlap.
    let free = chase.into_iter().map(|(line, _, work)| (line, 0, work));
    near(per_turn(TURNS, free.collect()), LATENCY / 10.0);
}

#[test]
fn a_chase_next_to_other_loads_keeps_its_latency_and_they_overlap() {
    for others in [1, 4, 8] {
        let mut lines = Lines(0);
        let mut loads = Vec::new();
        for _ in 0..TURNS {
            loads.push((lines.next().unwrap(), others + 1, 1));
            loads.extend((0..others).map(|_| (lines.next().unwrap(), 0, 1)));
        }
        near(per_turn(TURNS, loads), LATENCY);
    }
}

#[test]
fn a_chase_next_to_a_stream_keeps_its_latency() {
    let mut lines = Lines(0);
    let mut loads = Vec::new();
    for turn in 0..TURNS {
        loads.push((lines.next().unwrap(), 5, 1));
        loads.extend((0..4).map(|at| ((1 << 21) + turn * 4 + at, 0, 1)));
    }
    near(per_turn(TURNS, loads), LATENCY);
}

#[test]
fn the_values_of_a_list_overlap_with_its_next_node() {
    let mut lines = Lines(0);
    let mut loads = Vec::new();
    for _ in 0..TURNS {
        loads.push((lines.next().unwrap(), 2, 1));
        loads.push((lines.next().unwrap(), 1, 1));
    }
    near(per_turn(TURNS, loads), LATENCY);
}

/// Independent searches of four levels, with this work for each load.
fn searches(work: u64) -> Vec<Load> {
    let levels = Lines(0).take(4 * TURNS as usize).zip(0_u64..);
    levels
        .map(|(line, at)| (line, u8::from(at % 4 > 0), work))
        .collect()
}

#[test]
fn searches_in_a_tree_overlap_as_far_as_the_window_reaches() {
    // The window has 64 accesses. With 16 for a search, the fifth begins when the first ends.
    near(per_turn(TURNS, searches(4)), 4.0 * LATENCY / 5.0);
    // With 160, the next begins when the third of the four loads ends.
    near(per_turn(TURNS, searches(40)), 3.0 * LATENCY);
}

#[test]
fn probes_of_a_hash_join_overlap_up_to_the_outstanding_lines() {
    let mut lines = Lines(0);
    let mut loads = Vec::new();
    for _ in 0..TURNS {
        loads.push((lines.next().unwrap(), 0, 2));
        loads.push((lines.next().unwrap(), 1, 2));
    }
    near(per_turn(TURNS, loads), 2.0 * LATENCY / 10.0);
}

#[test]
fn a_gather_by_a_streamed_index_overlaps() {
    let mut lines = Lines(0);
    let mut loads = Vec::new();
    for turn in 0..TURNS {
        // Sixteen indexes in a line.
        if turn % 16 == 0 {
            loads.push(((1 << 21) + turn / 16, 0, 1));
        }
        loads.push((lines.next().unwrap(), (turn % 16 + 1) as u8, 2));
    }
    near(per_turn(TURNS, loads), LATENCY / 10.0);
}

#[test]
fn chases_of_several_cores_share_a_controller() {
    // 10 cores ask for 10 lines in 80 ns, of which the controller serves 20: they wait little, and equally.
    let one = machine(1, 10, 10);
    let chase = |core: u64| -> Vec<Load> {
        let lines = Lines(core * TURNS).take(TURNS as usize);
        lines.map(|line| (line, 1, 1)).collect()
    };
    let threads: Vec<Vec<Load>> = (0..10).map(chase).collect();
    let hop = time_on(&one, &threads) / TURNS as f64;
    assert!((LATENCY..1.06 * LATENCY).contains(&hop), "{hop}");
    // 40 cores ask for more than it serves.
    let one = machine(1, 40, 10);
    let threads: Vec<Vec<Load>> = (0..40).map(chase).collect();
    let hop = time_on(&one, &threads) / TURNS as f64;
    near(hop, 40.0 * (SERVICE / NS) as f64);
}
