//! Our own policy: a good construction, then refinement on the true distances.
//!
//! The published policies lack the last step: they fix groups top-down (Scotch, KaHIP) or bottom-up (TreeMatch,
//! EagerMap) and never evaluate J again. Here:
//!
//! 1. [`bisect`]: recursive multilevel bisection down the tree, to exact sizes, each bisection the best
//!    of several; or the most local answer of the other policies ([`portfolio`]), or on a torus of hosts the best
//!    cuboids of a grid of tasks ([`cuboids`]), where these cost less;
//! 2. [`blocks`]: whole cores, nodes and hosts are swapped;
//! 3. [`anneal`]: swaps and moves of single tasks at low temperature, with incremental gains on the
//!    true distances (tree levels or a node matrix), then descent to a local optimum;
//! 4. with a load vector, [`balance`]: the same search again with a price on unequal node loads; the price is raised
//!    until no more locality may be given up;
//! 5. [`portfolio`]: the choice among all of these and the other policies' answers, such that none of
//!    those is better in J, remote communication and load at once, and of equals the order of creation wins;
//! 6. [`apart`]: tasks that exchange nothing leave shared cores while others are empty.
//!
//! Tasks with a load compute, and a sibling slows them down: while there are as many cores as tasks, each has a core
//! ([`Spread::Cores`]), whatever the J of answers that share cores.
//!
//! Levelling minimises the standard deviation of the nodes' loads over their mean plus the loss of locality (mean of J
//! and remote communication, a per cent for a per cent), with J and remote communication each at most `1 + give` times
//! the values of locality alone. `give` is 4 %, times [`Numaloc::balance`]; on described machines it shrinks if links
//! are narrow ([`tolerated_loss`]). Only a load vector is levelled: without one (or with `balance` 0) the answer is
//! pure locality. Groups of concurrent communication are amounts of communication, not load on memory, and are not
//! used.
//!
//! The amount of work is fixed by the number of tasks, so results are reproducible for any number of threads (the other
//! policies run while our construction does; above 8,192 tasks both halves of a split, and its tries, run concurrently,
//! and step 3 only descends). With a budget the search continues, reheating from the best mapping so far, until the
//! caller stops it. Cost: O(E log P) for construction, O(degree) per proposal (O(levels) if tasks have many partners),
//! 20 to 2,000 proposals per task, and the other policies'. Memory: O(E + P x levels). Labels only matter for ties.

mod anneal;
mod apart;
mod balance;
mod bisect;
mod blocks;
mod clusters;
mod cuboids;
mod portfolio;
mod tables;

use fastrand::Rng;
use numaloc_model::{LogicalPu, Mapping, number};

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::{Slots, Spread};
use anneal::{EMPTY_SEAT, Metric, Problem, Rows, Schedule, Seating, Side};
use balance::{Levelling, Loads};
use portfolio::{Candidate, Worth, most_level, most_local};
use tables::Tables;

/// The policy; see the module documentation.
pub struct Numaloc {
    /// Share of the tolerated loss of locality that may be used to level loads: 1 all, 0 none.
    pub balance: f64,
}

/// Highest and lowest temperature, in mean costs of a cell.
const HOT: f64 = 2.0;
const COLD: f64 = 0.4;

/// Effort for a problem of this many tasks: proposals per task, bisections tried for each split.
fn effort(tasks: usize) -> (usize, usize) {
    match tasks {
        0..=128 => (600, 2),
        129..=512 => (500, 3),
        513..=2048 => (900, 4),
        2049..=8192 => (1500, 3),
        _ => (150, 4),
    }
}

/// Limit of proposals times partners per task, because an accepted swap visits the partners of both tasks; matters from
/// 1,024 tasks with all-to-all communication on.
const MOST_CELLS: usize = 1 << 28;

/// The same for each round that levels loads: there are [`LEVELLING_ROUNDS`] of them, for two variants.
const MOST_LEVELLED_CELLS: usize = 1 << 22;

/// Above this many tasks the first search only descends, with this many proposals per task: annealing would take longer
/// than the construction and gain less than another try of every split.
const ANNEALED_TASKS: usize = 8192;
const DESCENT: usize = 20;

/// Problems up to half this size are also searched from random starts.
const FEW_TASKS: usize = 64;

/// Number of prices tried for unequal node loads.
const LEVELLING_ROUNDS: usize = 14;

impl MappingPolicy for Numaloc {
    fn name(&self) -> &'static str {
        "numaloc"
    }

    fn summary(&self) -> &'static str {
        "multilevel construction, then annealed swaps on the true distances"
    }

    fn source(&self) -> &'static str {
        "ours"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let tasks = input.tasks();
        if tasks == 0 {
            return Ok(Mapped::plain(Vec::new()));
        }
        let load = input.load().filter(|load| load.iter().any(|&l| l > 0.0));
        let apart = input.clone().with_spread(Spread::Cores);
        // Tasks with a load compute, and slow down a sibling.
        let input = match load {
            Some(_) if input.spread() == Spread::Auto => &apart,
            _ => input,
        };
        let mut rng = Rng::with_seed(input.seed());
        let slots = input.slots(Spread::Auto);
        let problem = problem(input, &slots);
        let (proposals, tries) = effort(tasks);
        let search = Search {
            problem: &problem,
            proposals: (proposals * tasks)
                .min(MOST_CELLS / (problem.to.len() / tasks).max(1))
                .max(10_000),
            hot: HOT,
        };

        let (mut best, constructed, mut candidates) =
            start(input, &problem, tries, portfolio::others, &mut rng);
        let regrouped = blocks::regroup(&problem, &mut best, constructed, &mut rng);
        let (cost, rounds) = search.rounds(input, &mut best, regrouped, &mut rng);
        let mut diagnostics = vec![
            ("construction", constructed),
            ("after blocks", regrouped),
            ("after swaps", cost),
            ("rounds", f64::from(rounds)),
        ];
        // The order of creation first, so that equal cost shuffles no tasks; then our own mapping.
        candidates.insert(
            candidates.len().min(1),
            Candidate::new(self.name(), input, problem.mapping(&best)),
        );
        let mut chosen = most_local(&candidates).unwrap_or(0);
        let local = candidates[chosen].worth;
        let give = self.balance * tolerated_loss(input);
        let mut remarks = Vec::new();
        if let (Some(load), true) = (load, give > 0.0) {
            let loads = Loads::new(load, input.topology().nodes().len());
            let from = fit(&problem, &candidates[chosen].mapping).unwrap_or(best);
            for seats in search.level(input, &loads, &from, &local, give, &mut rng) {
                let mapping = problem.mapping(&seats);
                candidates.push(Candidate::new(self.name(), input, mapping));
            }
            chosen = most_level(&candidates, &local, give).unwrap_or(chosen);
            let worth = candidates[chosen].worth;
            diagnostics.extend([
                ("unlevel before", local.unlevel),
                ("unlevel after", worth.unlevel),
                ("J given up", ratio(worth.cost, local.cost)),
                ("remote given up", ratio(worth.remote, local.remote)),
            ]);
            remarks.push(traded(&worth, &local));
        }
        let mut chosen = candidates.swap_remove(chosen);
        apart::silent_tasks_apart(input, &mut chosen.mapping);
        if chosen.policy != self.name() {
            remarks.push(format!(
                "the answer of {}: nothing better was found",
                chosen.policy
            ));
        }
        Ok(Mapped {
            diagnostics,
            remarks,
            ..Mapped::plain(chosen.mapping.pu)
        })
    }
}

/// Relative growth of a sum from `from` to `now`.
fn ratio(now: f64, from: f64) -> f64 {
    if from > 0.0 { now / from - 1.0 } else { 0.0 }
}

/// A sentence on what levelling gained and gave up.
fn traded(now: &Worth, local: &Worth) -> String {
    let percent = |share: f64| number::fixed(100.0 * share, 1);
    if now == local {
        let deviation = percent(local.unlevel);
        return format!(
            "not levelled: no mapping has so much less load deviation ({deviation} % of the mean) that it is worth the locality"
        );
    }
    format!(
        "levelled: load deviation {} % -> {} % of the mean; given up: {} % of cost, {} % of remote communication",
        percent(local.unlevel),
        percent(now.unlevel),
        percent(ratio(now.cost, local.cost)),
        percent(ratio(now.remote, local.remote)),
    )
}

/// Share of J and of remote communication that may be given up for equal loads: 4 %. If the machine is described and
/// its links are slower than a memory controller, remote traffic congests links first, and the share shrinks in
/// proportion.
fn tolerated_loss(input: &MapInput) -> f64 {
    let base = 0.04;
    let Some(hardware) = input.topology().hardware() else {
        return base;
    };
    let links = hardware.links.iter().map(|link| link.bandwidth_bytes_per_s);
    let narrowest = links.fold(f64::INFINITY, f64::min);
    base * (narrowest / hardware.memory_bandwidth_bytes_per_s).min(1.0)
}

fn problem<'a>(input: &'a MapInput, slots: &Slots) -> Problem<'a> {
    let tasks = input.graph();
    let mut start = Vec::with_capacity(tasks.tasks() + 1);
    let mut to = Vec::with_capacity(tasks.stored_cells());
    let mut weight = Vec::with_capacity(tasks.stored_cells());
    start.push(0);
    for task in 0..tasks.tasks() {
        let (partners, weights) = tasks.neighbours(task);
        to.extend_from_slice(partners);
        weight.extend_from_slice(weights);
        start.push(to.len() as u32);
    }
    let topology = input.topology();
    let mut seat_pu = Vec::new();
    let mut before = vec![0];
    for (pu, &seats) in slots.capacity().iter().enumerate() {
        seat_pu.extend(std::iter::repeat_n(pu as u32, seats as usize));
        before.push(seat_pu.len() as u32);
    }
    let metric = match input.distances().codes() {
        Some(codes) => Metric::Codes {
            code: &codes.code,
            by_bit: codes.by_bit,
        },
        None => Metric::Any(input.distances()),
    };
    let node = |&pu: &u32| topology.node_of(LogicalPu(pu)).0;
    Problem {
        start,
        to,
        weight,
        blocks: block_levels(input, &before),
        seat_node: seat_pu.iter().map(node).collect(),
        seat_pu,
        metric,
    }
}

/// Seat ranges of the objects of every depth, deepest first, without those that equal the next deeper ones, hold one
/// seat each, or hold all seats.
fn block_levels(input: &MapInput, before: &[u32]) -> Vec<Vec<(u32, u32)>> {
    let objects = input.topology().objects();
    let seats = before[before.len() - 1];
    let deepest = objects.iter().map(|o| o.depth).max().unwrap_or(0);
    let mut at_depth = vec![Vec::new(); deepest as usize + 1];
    for object in objects {
        let range = (
            before[object.pus.start as usize],
            before[object.pus.end as usize],
        );
        if range.0 < range.1 {
            at_depth[object.depth as usize].push(range);
        }
    }
    let mut levels: Vec<Vec<(u32, u32)>> = Vec::new();
    // Seats without an object at a depth (uneven trees) are blocks of their own.
    let mut last: Vec<(u32, u32)> = (0..seats).map(|s| (s, s + 1)).collect();
    for ranges in at_depth.iter().rev() {
        let mut level = last.clone();
        for &(from, to) in ranges {
            level[from as usize..to as usize].fill((from, to));
        }
        if level != last && level.iter().any(|&range| range != (0, seats)) {
            levels.push(level.clone());
        }
        last = level;
    }
    levels
}

/// The best of three constructions, its cost, and the other policies' answers: our bisection, the most local of those
/// answers that fits the slots (computed concurrently on another thread if that is worthwhile), and cuboids on a torus.
/// So the result is never worse than Scotch's mapping, for instance.
fn start(
    input: &MapInput,
    problem: &Problem,
    tries: usize,
    others: impl Fn(&MapInput) -> Vec<Candidate> + Sync,
    rng: &mut Rng,
) -> (Seating, f64, Vec<Candidate>) {
    let cuboids = cuboids::mapping(input).and_then(|mapping| fit(problem, &mapping));
    // Where there are cuboids, bisections of many tasks are worth one try: they take most of the time, and lose.
    let tries = match cuboids.is_some() && input.tasks() > ANNEALED_TASKS {
        true => 1,
        false => tries,
    };
    let (ours, others) = match input.tasks() {
        0..=31 => (construct(input, problem, tries, rng), others(input)),
        _ => std::thread::scope(|scope| {
            let others = scope.spawn(|| others(input));
            let ours = construct(input, problem, tries, rng);
            (ours, others.join().unwrap_or_default())
        }),
    };
    let cost = problem.cost(&ours);
    let theirs = most_local(&others).and_then(|at| fit(problem, &others[at].mapping));
    let (cost, start) = [theirs, cuboids]
        .into_iter()
        .flatten()
        .map(|other| (problem.cost(&other), other))
        .fold(
            (cost, ours),
            |best, other| if other.0 < best.0 { other } else { best },
        );
    (start, cost, others)
}

/// Recursive bisection. With fewer tasks than seats it fills the first ones; later moves use the others.
fn construct(input: &MapInput, problem: &Problem, tries: usize, rng: &mut Rng) -> Seating {
    let slots = input.slots(Spread::Auto).first(input.tasks());
    let graph = bisect::Graph::new(input.graph());
    let pu = bisect::construct(graph, input.topology(), slots.capacity(), tries, rng);
    seating(problem, pu.into_iter())
}

/// Puts every task on a random seat.
fn shuffle(seating: &mut Seating, rng: &mut Rng) {
    rng.shuffle(&mut seating.task_at);
    for (seat, &task) in seating.task_at.iter().enumerate() {
        if task != EMPTY_SEAT {
            seating.seat_of[task as usize] = seat as u32;
        }
    }
}

/// Seats of tasks on these PUs, in order.
fn seating(problem: &Problem, pu: impl Iterator<Item = u32>) -> Seating {
    let pus = problem.seat_pu.last().map_or(0, |&last| last as usize + 1);
    let mut next = vec![0; pus];
    for (seat, &pu) in problem.seat_pu.iter().enumerate().rev() {
        next[pu as usize] = seat as u32;
    }
    let mut seating = Seating {
        task_at: vec![EMPTY_SEAT; problem.seat_pu.len()],
        seat_of: Vec::new(),
    };
    for (task, pu) in pu.enumerate() {
        let seat = next[pu as usize];
        next[pu as usize] += 1;
        seating.seat_of.push(seat);
        seating.task_at[seat as usize] = task as u32;
    }
    seating
}

/// Seats of a mapping; `None` if it has more tasks on a PU than there are seats.
fn fit(problem: &Problem, mapping: &Mapping) -> Option<Seating> {
    let mut free = vec![0_u32; problem.seat_pu.last().map_or(0, |&last| last as usize + 1)];
    for &pu in &problem.seat_pu {
        free[pu as usize] += 1;
    }
    for pu in &mapping.pu {
        let free = free.get_mut(pu.index())?;
        *free = free.checked_sub(1)?;
    }
    Some(seating(problem, mapping.pu.iter().map(|pu| pu.0)))
}

/// Improves a mapping that fits the input's slots: anneals with this many proposals per task from this temperature (in
/// mean costs of a cell; [`Numaloc`] itself starts at 0.3), and returns the better of the two mappings. For benchmarks
/// that determine how good a mapping can get.
#[must_use]
pub fn polish(input: &MapInput, mapping: &Mapping, proposals: usize, hot: f64) -> Mapping {
    let problem = problem(input, &input.slots(Spread::Auto));
    let mut rng = Rng::with_seed(input.seed());
    let mut seats = seating(&problem, mapping.pu.iter().map(|pu| pu.0));
    let cost = problem.cost(&seats);
    let search = Search {
        problem: &problem,
        proposals: proposals * input.tasks(),
        hot,
    };
    search.refine(&mut seats, cost, &mut (), &mut rng);
    problem.mapping(&seats)
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    proposals: usize,
    hot: f64,
}

impl Search<'_> {
    /// Refines `best`, whose cost is `cost`, from other starting points too if there are few tasks, and until the time
    /// of `input` is over. Returns the cost reached and the number of rounds.
    fn rounds(&self, input: &MapInput, best: &mut Seating, cost: f64, rng: &mut Rng) -> (f64, u32) {
        let tasks = input.tasks();
        let descent = Search {
            proposals: DESCENT * tasks,
            hot: 0.0,
            ..*self
        };
        let first = if tasks > ANNEALED_TASKS {
            &descent
        } else {
            self
        };
        let mut cost = first.refine(best, cost, &mut (), rng);
        for _ in 1..(FEW_TASKS / tasks).clamp(1, 9) {
            // With few tasks, other starting points are cheap.
            let mut again = best.clone();
            shuffle(&mut again, rng);
            self.run(&mut again, self.problem.unit(cost), &mut (), rng);
            let reached = self.problem.cost(&again);
            if reached < cost {
                (*best, cost) = (again, reached);
            }
        }
        let mut rounds = 1;
        while input.expired().is_some_and(|expired| !expired()) {
            let mut again = best.clone();
            let reached = self.refine(&mut again, cost, &mut (), rng);
            if reached < cost {
                (*best, cost) = (again, reached);
            }
            rounds += 1;
        }
        (cost, rounds)
    }

    /// Anneals and descends; returns a cost of at most `cost`, the current cost of `seating` (with a side cost, the
    /// caller has to ensure that).
    fn refine(&self, seating: &mut Seating, cost: f64, side: &mut impl Side, rng: &mut Rng) -> f64 {
        let before = seating.clone();
        self.run(seating, self.problem.unit(cost), side, rng);
        let reached = self.problem.cost(seating);
        if reached <= cost {
            return reached;
        }
        *seating = before;
        cost
    }

    fn run(&self, seating: &mut Seating, unit: f64, side: &mut impl Side, rng: &mut Rng) {
        let warm = Schedule {
            proposals: self.proposals,
            hot: self.hot * unit,
            cold: COLD * unit,
        };
        let descent = Schedule {
            proposals: match self.hot > 0.0 {
                true => self.proposals / 5,
                false => self.proposals,
            },
            hot: 0.0,
            cold: 0.0,
        };
        let problem = self.problem;
        match Tables::new(problem, seating) {
            Some(mut tables) => {
                if self.hot > 0.0 {
                    problem.anneal(seating, &mut tables, side, warm, rng);
                }
                problem.anneal(seating, &mut tables, side, descent, rng);
            }
            None => {
                let mut rows = Rows::new(problem, seating);
                if self.hot > 0.0 {
                    problem.anneal(seating, &mut rows, side, warm, rng);
                }
                problem.anneal(seating, &mut rows, side, descent, rng);
            }
        }
    }

    /// Raises the price of unequal node loads until J or remote communication would exceed `1 + give` times those of
    /// `local`, then narrows down that price. Returns the mappings found within the limit.
    fn level(
        &self,
        input: &MapInput,
        loads: &Loads,
        from: &Seating,
        local: &Worth,
        give: f64,
        rng: &mut Rng,
    ) -> Vec<Seating> {
        let problem = self.problem;
        let partners = (problem.to.len() / problem.tasks()).max(1);
        let short = Search {
            proposals: self
                .proposals
                .min((MOST_LEVELLED_CELLS / partners).max(10_000)),
            ..*self
        };
        let unit = problem.unit(problem.cost(from));
        let mut found = Vec::new();
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut price = 0.01 * unit / loads.unit().max(f64::MIN_POSITIVE);
        for _ in 0..LEVELLING_ROUNDS {
            let mut seats = from.clone();
            // Clusters of partners move first, then single tasks.
            for size in [8, 4, 2] {
                clusters::trade(&short, loads, &mut seats, size, price, rng);
            }
            let mut side = Levelling::new(loads, problem, &seats, price);
            short.run(&mut seats, unit, &mut side, rng);
            let worth = Worth::of(input, &problem.mapping(&seats));
            if worth.lost(local) <= give {
                low = price;
                found.push(seats);
            } else {
                high = price;
            }
            price = if high.is_finite() {
                (f64::max(low, high / 64.0) * high).sqrt()
            } else {
                price * 8.0
            };
        }
        found
    }
}
