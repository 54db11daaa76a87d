//! Swaps whole blocks of tasks, which single swaps cannot do at low temperature.
//!
//! The tasks of every core, node or host become one task of a smaller problem on the same machine, which is annealed
//! like any other. Matters most for the order of nodes in a node matrix (rings, twisted ladders), which recursive
//! bisection ignores.

use fastrand::Rng;

use super::anneal::{EMPTY_SEAT, Problem, Rows, Schedule, Seating};

/// Levels with more blocks than this are only refined by single swaps.
const MOST_BLOCKS: usize = 4096;
const PROPOSALS_A_BLOCK: usize = 100;

/// Swaps blocks at every level, smallest first; keeps results that lower J.
pub(super) fn regroup(
    problem: &Problem,
    seating: &mut Seating,
    mut cost: f64,
    rng: &mut Rng,
) -> f64 {
    for level in 0..problem.blocks.len() {
        let mut ranges = problem.blocks[level].clone();
        ranges.dedup();
        let width = |&(from, to): &(u32, u32)| to - from;
        let even = ranges.iter().all(|r| width(r) == width(&ranges[0]));
        if ranges.len() < 3 || ranges.len() > MOST_BLOCKS || !even {
            continue;
        }
        let moved = trade(problem, seating, &ranges, level, rng);
        let after = problem.cost(&moved);
        // Blocks of the same size may differ inside; the cost from scratch decides.
        if after < cost {
            *seating = moved;
            cost = after;
        }
    }
    cost
}

fn trade(
    problem: &Problem,
    seating: &Seating,
    ranges: &[(u32, u32)],
    level: usize,
    rng: &mut Rng,
) -> Seating {
    let small = quotient(problem, seating, ranges, level);
    let here: Vec<u32> = (0..ranges.len() as u32).collect();
    let mut order = Seating {
        task_at: here.clone(),
        seat_of: here,
    };
    let unit = small.unit(small.cost(&order));
    let mut rows = Rows::new(&small, &order);
    let proposals = PROPOSALS_A_BLOCK * ranges.len();
    for (proposals, hot) in [(proposals, 0.3 * unit), (proposals / 2, 0.0)] {
        let schedule = Schedule {
            proposals,
            hot,
            cold: hot / 10.0,
        };
        small.anneal(&mut order, &mut rows, &mut (), schedule, rng);
    }
    let mut moved = seating.clone();
    for (block, &(from, to)) in ranges.iter().enumerate() {
        let target = ranges[order.seat_of[block] as usize].0;
        for seat in from..to {
            let task = seating.task_at[seat as usize];
            moved.task_at[(target + seat - from) as usize] = task;
            if task != EMPTY_SEAT {
                moved.seat_of[task as usize] = target + seat - from;
            }
        }
    }
    moved
}

/// Blocks as tasks: their exchange, placed on the first seat of each.
fn quotient<'a>(
    problem: &'a Problem,
    seating: &Seating,
    ranges: &[(u32, u32)],
    level: usize,
) -> Problem<'a> {
    let mut block_at = vec![0u32; problem.seat_pu.len()];
    for (block, &(from, to)) in ranges.iter().enumerate() {
        block_at[from as usize..to as usize].fill(block as u32);
    }
    let mut start = vec![0];
    let (mut to, mut weight) = (Vec::new(), Vec::new());
    let mut seen = vec![usize::MAX; ranges.len()];
    for (block, &(first, end)) in ranges.iter().enumerate() {
        let row = to.len();
        for &task in &seating.task_at[first as usize..end as usize] {
            if task == EMPTY_SEAT {
                continue;
            }
            let cells =
                problem.start[task as usize] as usize..problem.start[task as usize + 1] as usize;
            for at in cells {
                let other = block_at[seating.seat_of[problem.to[at] as usize] as usize];
                if other as usize == block {
                    continue;
                }
                let known = seen[other as usize];
                if known != usize::MAX && known >= row {
                    weight[known] += problem.weight[at];
                } else {
                    seen[other as usize] = to.len();
                    to.push(other);
                    weight.push(problem.weight[at]);
                }
            }
        }
        start.push(to.len() as u32);
    }
    let firsts = || ranges.iter().map(|&(from, _)| from as usize);
    // Outer levels, in units of blocks.
    let outer = |level: &Vec<(u32, u32)>| -> Vec<(u32, u32)> {
        let number = |seat: u32| {
            block_at
                .get(seat as usize)
                .map_or(ranges.len() as u32, |&b| b)
        };
        firsts()
            .map(|seat| (number(level[seat].0), number(level[seat].1)))
            .collect()
    };
    Problem {
        start,
        to,
        weight,
        seat_pu: firsts().map(|seat| problem.seat_pu[seat]).collect(),
        metric: problem.metric.clone(),
        blocks: problem.blocks[level + 1..].iter().map(outer).collect(),
        seat_node: firsts().map(|seat| problem.seat_node[seat]).collect(),
    }
}
