//! Gains from tables, for tasks with many partners.
//!
//! In a tree, the cost of a task at a PU is a sum over the blocks around that PU: the task's exchange with each block
//! times the distance saved relative to the next outer block. Keeping every task's exchange with every block makes a
//! proposal O(levels); an accepted swap costs O(degree x levels).

use super::anneal::{EMPTY_SEAT, Gains, Metric, Problem, Seating};

/// Up to this many tasks the weights are also kept as a full matrix (32 MiB).
const MATRIX_TASKS: usize = 2048;
/// Largest number of exchange values kept (256 MiB).
const EXCHANGE_LIMIT: usize = 1 << 25;
/// From this many partners per task on, tables are faster than summation.
const MANY_PARTNERS: usize = 24;

pub(super) struct Tables<'a> {
    problem: &'a Problem<'a>,
    /// By seat, `levels` block numbers each, deepest first.
    block: Vec<u32>,
    levels: usize,
    /// By level: distance inside its blocks minus distance inside the next ones out.
    nearer: Vec<f64>,
    /// Distance inside the deepest blocks.
    inside: f64,
    /// Blocks x tasks, so that a swap changes whole rows.
    exchange: Vec<f64>,
    matrix: Vec<f64>,
}

/// By level, deepest first: the block of each seat, from its first seat to the one after its last. The PU itself is the
/// deepest block if it has several seats.
fn ranges(problem: &Problem) -> Vec<Vec<(u32, u32)>> {
    let several = problem.seat_pu.windows(2).any(|w| w[0] == w[1]);
    let mut ranges: Vec<Vec<(u32, u32)>> = Vec::new();
    if several {
        let mut own = vec![(0, 0); problem.seat_pu.len()];
        for range in problem
            .seat_pu
            .chunk_by(|a, b| a == b)
            .scan(0, |at, chunk| {
                let from = *at;
                *at += chunk.len();
                Some(from..*at)
            })
        {
            own[range.clone()].fill((range.start as u32, range.end as u32));
        }
        ranges.push(own);
    }
    let blocks: Vec<_> = problem
        .blocks
        .iter()
        .filter(|b| !several || **b != ranges[0])
        .cloned()
        .collect();
    ranges.extend(blocks);
    ranges
}

impl<'a> Tables<'a> {
    /// `None` if rows are faster, or the machine is no tree of levels.
    pub(super) fn new(problem: &'a Problem<'a>, seating: &Seating) -> Option<Self> {
        let (tasks, seats) = (problem.tasks(), problem.seat_pu.len());
        if !matches!(problem.metric, Metric::Codes { .. })
            || problem.to.len() < MANY_PARTNERS * tasks
        {
            return None;
        }
        let ranges = ranges(problem);
        let levels = ranges.len();
        let mut block = vec![0; seats * levels];
        let mut blocks = 0;
        for (level, ranges) in ranges.iter().enumerate() {
            for seat in 0..seats {
                if ranges[seat].0 as usize == seat {
                    blocks += 1;
                }
                block[seat * levels + level] = blocks as u32 - 1;
            }
        }
        if levels == 0 || tasks * blocks > EXCHANGE_LIMIT {
            return None;
        }
        // The widest distance inside a block of the level: from its first to its last seat.
        let inside_of = |ranges: &[(u32, u32)]| {
            let apart = |&(from, to): &(u32, u32)| {
                problem
                    .metric
                    .distance(problem.place(from), problem.place(to - 1))
            };
            ranges.iter().map(apart).fold(0.0, f64::max)
        };
        let mut distance: Vec<f64> = ranges.iter().map(|r| inside_of(r)).collect();
        let root = problem
            .metric
            .distance(problem.place(0), problem.place(seats as u32 - 1));
        distance.push(root);
        let nearer = distance.windows(2).map(|d| d[0] - d[1]).collect();
        let mut tables = Self {
            problem,
            block,
            levels,
            nearer,
            inside: distance[0],
            exchange: vec![0.0; tasks * blocks],
            matrix: Vec::new(),
        };
        tables.fill(seating);
        Some(tables)
    }

    /// Sums what each task exchanges with each block, and with few tasks what it exchanges with each other task.
    fn fill(&mut self, seating: &Seating) {
        let (problem, tasks, levels) = (self.problem, self.problem.tasks(), self.levels);
        for task in 0..tasks {
            for at in problem.start[task] as usize..problem.start[task + 1] as usize {
                let seat = seating.seat_of[problem.to[at] as usize] as usize;
                for &block in &self.block[seat * levels..(seat + 1) * levels] {
                    self.exchange[block as usize * tasks + task] += problem.weight[at];
                }
            }
        }
        if tasks <= MATRIX_TASKS {
            self.matrix = vec![0.0; tasks * tasks];
            for task in 0..tasks {
                for at in problem.start[task] as usize..problem.start[task + 1] as usize {
                    self.matrix[task * tasks + problem.to[at] as usize] = problem.weight[at];
                }
            }
        }
    }

    #[inline]
    fn weight(&self, u: u32, v: u32) -> f64 {
        if !self.matrix.is_empty() {
            return self.matrix[u as usize * self.problem.tasks() + v as usize];
        }
        let row =
            self.problem.start[u as usize] as usize..self.problem.start[u as usize + 1] as usize;
        let found = self.problem.to[row.clone()].binary_search(&v);
        found.map_or(0.0, |at| self.problem.weight[row.start + at])
    }

    #[inline]
    fn around(&self, seat: u32) -> &[u32] {
        &self.block[seat as usize * self.levels..(seat as usize + 1) * self.levels]
    }

    #[inline]
    fn half(&self, task: u32, from: u32, to: u32) -> f64 {
        let tasks = self.problem.tasks();
        let exchange = |block: u32| self.exchange[block as usize * tasks + task as usize];
        let mut sum = 0.0;
        for ((&f, &t), nearer) in self
            .around(from)
            .iter()
            .zip(self.around(to))
            .zip(&self.nearer)
        {
            sum += nearer * (exchange(t) - exchange(f));
        }
        sum
    }

    fn carry(&mut self, task: u32, from: u32, to: u32) {
        for level in 0..self.levels {
            let (f, t) = (self.around(from)[level], self.around(to)[level]);
            if f == t {
                break;
            }
            self.add(task, f, -1.0);
            self.add(task, t, 1.0);
        }
    }

    /// Adds (or subtracts) the exchange of all tasks with `task` to a block.
    fn add(&mut self, task: u32, block: u32, sign: f64) {
        let (problem, task) = (self.problem, task as usize);
        let tasks = problem.tasks();
        let exchange = &mut self.exchange[block as usize * tasks..][..tasks];
        let row = problem.start[task] as usize..problem.start[task + 1] as usize;
        if !self.matrix.is_empty() && 2 * row.len() > tasks {
            let weights = &self.matrix[task * tasks..][..tasks];
            for (sum, weight) in exchange.iter_mut().zip(weights) {
                *sum += sign * weight;
            }
            return;
        }
        for (&other, weight) in problem.to[row.clone()].iter().zip(&problem.weight[row]) {
            exchange[other as usize] += sign * weight;
        }
    }
}

impl Gains for Tables<'_> {
    #[inline]
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64 {
        let mut delta = self.half(u, su, sv);
        if v != EMPTY_SEAT {
            // Each half assumed that the other task stays; in fact their distance does not change.
            let apart = self
                .problem
                .metric
                .distance(self.problem.place(su), self.problem.place(sv));
            delta += self.half(v, sv, su) + 2.0 * self.weight(u, v) * (apart - self.inside);
        }
        delta
    }

    fn apply(&mut self, u: u32, v: u32, su: u32, sv: u32) {
        self.carry(u, su, sv);
        if v != EMPTY_SEAT {
            self.carry(v, sv, su);
        }
    }
}
