//! Moves clusters of tasks that communicate much, to balance loads without separating pairs.
//!
//! Inside every node the tasks are joined into clusters of 2, 4 or 8 by their exchange, and the clusters swap nodes at
//! the same price as single tasks do. The single swaps that follow choose the seats inside a node.

use fastrand::Rng;

use super::Search;
use super::anneal::{EMPTY_SEAT, Gains, Problem, Rows, Schedule, Seating};
use super::balance::{Levelling, Loads};
use super::tables::Tables;

/// Swaps clusters of `size`; does nothing if `size` does not divide the tasks of a node.
pub(super) fn trade(
    search: &Search,
    loads: &Loads,
    seating: &mut Seating,
    size: usize,
    price: f64,
    rng: &mut Rng,
) {
    let problem = search.problem;
    let nodes: Vec<&[u32]> = problem.seat_node.chunk_by(|a, b| a == b).collect();
    let divides = nodes.iter().all(|seats| seats.len() % size == 0);
    if !divides || problem.tasks() < problem.seat_pu.len() || problem.tasks() < 2 * size {
        return;
    }
    let mut clusters: Vec<Vec<u32>> = Vec::with_capacity(problem.tasks() / size);
    let mut first = 0;
    for seats in nodes {
        let tasks = &seating.task_at[first..first + seats.len()];
        clusters.extend(join(problem, tasks, size));
        first += seats.len();
    }
    let small = coarse(problem, &clusters, size);
    let here: Vec<u32> = (0..clusters.len() as u32).collect();
    let mut order = Seating {
        task_at: here.clone(),
        seat_of: here,
    };
    let merged = loads.merged(&clusters);
    let mut levelling = Levelling::new(&merged, &small, &order, price);
    match Tables::new(&small, &order) {
        Some(mut tables) => descend(search, &small, &mut order, &mut tables, &mut levelling, rng),
        None => {
            let mut rows = Rows::new(&small, &order);
            descend(search, &small, &mut order, &mut rows, &mut levelling, rng);
        }
    }
    for (cluster, tasks) in clusters.iter().enumerate() {
        let seat = order.seat_of[cluster] as usize * size;
        for (at, &task) in tasks.iter().enumerate() {
            seating.task_at[seat + at] = task;
            seating.seat_of[task as usize] = (seat + at) as u32;
        }
    }
}

/// Anneals clusters, then only accepts improvements.
fn descend(
    search: &Search,
    small: &Problem,
    order: &mut Seating,
    gains: &mut impl Gains,
    levelling: &mut Levelling,
    rng: &mut Rng,
) {
    let unit = small.unit(small.cost(order));
    let proposals = search.proposals * small.tasks() / search.problem.tasks();
    for hot in [unit, 0.0] {
        let schedule = Schedule {
            proposals,
            hot,
            cold: hot / 10.0,
        };
        small.anneal(order, gains, levelling, schedule, rng);
    }
}

/// Clusters of exactly `size`, each grown from the first free task by the largest exchange with it.
fn join(problem: &Problem, tasks: &[u32], size: usize) -> Vec<Vec<u32>> {
    let mut free: Vec<u32> = tasks.to_vec();
    let mut clusters = Vec::with_capacity(tasks.len() / size);
    let mut exchange = vec![0.0; problem.tasks()];
    while !free.is_empty() {
        let mut cluster = vec![free.remove(0)];
        while cluster.len() < size {
            let last = cluster[cluster.len() - 1] as usize;
            for at in problem.start[last] as usize..problem.start[last + 1] as usize {
                exchange[problem.to[at] as usize] += problem.weight[at];
            }
            let most = (0..free.len())
                .rev()
                .max_by(|&a, &b| {
                    f64::total_cmp(&exchange[free[a] as usize], &exchange[free[b] as usize])
                })
                .expect("sizes divide");
            cluster.push(free.remove(most));
        }
        for &task in &cluster {
            for at in
                problem.start[task as usize] as usize..problem.start[task as usize + 1] as usize
            {
                exchange[problem.to[at] as usize] = 0.0;
            }
        }
        clusters.push(cluster);
    }
    debug_assert!(tasks.iter().all(|&task| task != EMPTY_SEAT));
    clusters
}

fn coarse<'a>(problem: &'a Problem, clusters: &[Vec<u32>], size: usize) -> Problem<'a> {
    let mut cluster_of = vec![0u32; problem.tasks()];
    for (cluster, tasks) in clusters.iter().enumerate() {
        tasks
            .iter()
            .for_each(|&task| cluster_of[task as usize] = cluster as u32);
    }
    let (mut start, mut to, mut weight) = (vec![0], Vec::new(), Vec::new());
    for (cluster, tasks) in clusters.iter().enumerate() {
        let mut row = std::collections::BTreeMap::new();
        for &task in tasks {
            for at in
                problem.start[task as usize] as usize..problem.start[task as usize + 1] as usize
            {
                let other = cluster_of[problem.to[at] as usize];
                if other as usize != cluster {
                    *row.entry(other).or_insert(0.0) += problem.weight[at];
                }
            }
        }
        to.extend(row.keys());
        weight.extend(row.values());
        start.push(to.len() as u32);
    }
    let firsts = || (0..clusters.len()).map(|cluster| cluster * size);
    // Levels inside a cluster vanish, others shrink.
    let shrink = |level: &Vec<(u32, u32)>| -> Vec<(u32, u32)> {
        let by = size as u32;
        firsts()
            .map(|seat| (level[seat].0 / by, level[seat].1.div_ceil(by)))
            .collect()
    };
    let wide = |level: &&Vec<(u32, u32)>| {
        level
            .iter()
            .all(|&(from, to)| from % size as u32 == 0 && to % size as u32 == 0)
    };
    Problem {
        start,
        to,
        weight,
        seat_pu: firsts().map(|seat| problem.seat_pu[seat]).collect(),
        metric: problem.metric.clone(),
        blocks: problem.blocks.iter().filter(wide).map(shrink).collect(),
        seat_node: firsts().map(|seat| problem.seat_node[seat]).collect(),
    }
}
