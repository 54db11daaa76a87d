//! Refinement: annealed swaps and moves on the true distances, with incremental gains.
//!
//! A state seats tasks: a PU of capacity c has c seats, and a move is a swap with an empty seat. A proposal moves a
//! random task towards a random partner: to a seat in a block of the machine (core, cache, node, host) that contains
//! the partner but not the task. The change of J is summed over the neighbours of both ([`Rows`]), or, if tasks have
//! many, read from tables that are updated with every accepted swap ([`super::tables`]).

use fastrand::Rng;
use numaloc_model::{LogicalPu, Mapping};

/// Marks an empty seat.
pub(super) const EMPTY_SEAT: u32 = u32::MAX;

/// Temperature steps of one annealing.
const STEPS: usize = 128;

/// The data of a problem that every search needs, in flat arrays.
pub(super) struct Problem<'a> {
    /// Communication, compressed rows, both directions of every pair.
    pub start: Vec<u32>,
    pub to: Vec<u32>,
    pub weight: Vec<f64>,
    /// PU of every seat, ascending.
    pub seat_pu: Vec<u32>,
    pub metric: Metric<'a>,
    /// By level, deepest first, and seat: where the block around the seat starts and ends.
    pub blocks: Vec<Vec<(u32, u32)>>,
    /// Position of the NUMA node of every seat.
    pub seat_node: Vec<u32>,
}

/// Distances by a number stored for every task: a code of its PU, or the PU itself.
// One value per search, used in the hot loop; a Box would add an indirection.
#[allow(clippy::large_enum_variant)]
#[derive(Clone)]
pub(super) enum Metric<'a> {
    Codes { code: &'a [u32], by_bit: [f64; 33] },
    Any(&'a crate::Distances<'a>),
}

impl Metric<'_> {
    #[inline]
    fn place(&self, pu: u32) -> u32 {
        match self {
            Self::Codes { code, .. } => code[pu as usize],
            Self::Any(_) => pu,
        }
    }

    #[inline]
    pub(super) fn distance(&self, a: u32, b: u32) -> f64 {
        match self {
            Self::Codes { by_bit, .. } => by_bit[(32 - (a ^ b).leading_zeros()) as usize],
            Self::Any(distances) => distances.mean(a as usize, b as usize),
        }
    }
}

/// Assignment of tasks to seats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seating {
    pub task_at: Vec<u32>,
    pub seat_of: Vec<u32>,
}

/// Duration and temperatures of an annealing.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pub proposals: usize,
    pub hot: f64,
    pub cold: f64,
}

/// A cost in addition to J that depends on the nodes of tasks.
pub(super) trait Side {
    /// Whether a task may gain by moving away from all its partners.
    const MAY_LEAVE_PARTNERS: bool;
    /// Change when `u` moves from seat `su` to `sv` and `v` (or none) back.
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64;
    /// Updates the state for an accepted swap.
    fn apply(&mut self, u: u32, v: u32, su: u32, sv: u32);
}

/// J alone.
impl Side for () {
    const MAY_LEAVE_PARTNERS: bool = false;
    #[inline]
    fn delta(&self, _: u32, _: u32, _: u32, _: u32) -> f64 {
        0.0
    }
    #[inline]
    fn apply(&mut self, _: u32, _: u32, _: u32, _: u32) {}
}

/// Computes the change of J.
pub(super) trait Gains {
    /// Change of J when `u` and `v` (or none) swap seats `su` and `sv`.
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64;
    /// Updates the state for an accepted swap.
    fn apply(&mut self, u: u32, v: u32, su: u32, sv: u32);
}

/// Gains summed over the rows of both tasks: O(degree) to compute, O(1) to apply.
pub(super) struct Rows<'a> {
    problem: &'a Problem<'a>,
    place: Vec<u32>,
    /// PUs x PUs distances (then `place` are PUs), if they fit the caches: two loads per neighbour.
    table: Vec<f64>,
    pus: usize,
}

/// Up to this many PUs distances are read from a table (128 KiB).
const TABLE_PUS: usize = 128;
/// The same where a distance is not computed from two codes: a lookup in the topology takes longer than a load from a
/// table that only the outer caches hold (8 MiB).
const TABLE_PUS_ANY: usize = 1024;

impl<'a> Rows<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, seating: &Seating) -> Self {
        let pus = problem.seat_pu.last().map_or(0, |&last| last as usize + 1);
        let mut rows = Self {
            problem,
            place: Vec::new(),
            table: Vec::new(),
            pus,
        };
        let most = match problem.metric {
            Metric::Codes { .. } => TABLE_PUS,
            Metric::Any(_) => TABLE_PUS_ANY,
        };
        if pus <= most {
            let place = |pu: usize| problem.metric.place(pu as u32);
            let distance = |at: usize| problem.metric.distance(place(at / pus), place(at % pus));
            rows.table = (0..pus * pus).map(distance).collect();
        }
        rows.place = seating.seat_of.iter().map(|&s| rows.place(s)).collect();
        rows
    }

    #[inline]
    fn place(&self, seat: u32) -> u32 {
        match self.table.is_empty() {
            true => self.problem.place(seat),
            false => self.problem.seat_pu[seat as usize],
        }
    }

    #[inline]
    fn half(&self, task: u32, from: u32, to: u32, other: u32) -> f64 {
        let problem = self.problem;
        let row = problem.start[task as usize] as usize..problem.start[task as usize + 1] as usize;
        let neighbours = problem.to[row.clone()].iter().zip(&problem.weight[row]);
        let mut sum = 0.0;
        if !self.table.is_empty() {
            let near_from = &self.table[from as usize * self.pus..][..self.pus];
            let near_to = &self.table[to as usize * self.pus..][..self.pus];
            for (&t, &w) in neighbours {
                if t != other {
                    let there = self.place[t as usize] as usize;
                    sum += w * (near_to[there] - near_from[there]);
                }
            }
            return sum;
        }
        for (&t, &w) in neighbours {
            if t != other {
                let there = self.place[t as usize];
                let metric = &problem.metric;
                sum += w * (metric.distance(to, there) - metric.distance(from, there));
            }
        }
        sum
    }
}

impl Gains for Rows<'_> {
    #[inline]
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64 {
        let (from, to) = (self.place(su), self.place(sv));
        let mut delta = self.half(u, from, to, v);
        if v != EMPTY_SEAT {
            delta += self.half(v, to, from, u);
        }
        delta
    }

    #[inline]
    fn apply(&mut self, u: u32, v: u32, su: u32, sv: u32) {
        self.place[u as usize] = self.place(sv);
        if v != EMPTY_SEAT {
            self.place[v as usize] = self.place(su);
        }
    }
}

impl Problem<'_> {
    #[inline]
    pub(super) fn place(&self, seat: u32) -> u32 {
        self.metric.place(self.seat_pu[seat as usize])
    }

    pub(super) fn tasks(&self) -> usize {
        self.start.len() - 1
    }

    /// PUs of the tasks.
    pub(super) fn mapping(&self, seating: &Seating) -> Mapping {
        let pu = |&seat: &u32| LogicalPu(self.seat_pu[seat as usize]);
        Mapping {
            pu: seating.seat_of.iter().map(pu).collect(),
        }
    }

    /// J from scratch.
    pub(super) fn cost(&self, seating: &Seating) -> f64 {
        let place: Vec<u32> = seating.seat_of.iter().map(|&s| self.place(s)).collect();
        let mut sum = 0.0;
        for t in 0..self.tasks() {
            for at in self.start[t] as usize..self.start[t + 1] as usize {
                let other = place[self.to[at] as usize];
                sum += self.weight[at] * self.metric.distance(place[t], other);
            }
        }
        sum / 2.0
    }

    /// The mean cost of a stored cell: the natural unit of temperatures.
    pub(super) fn unit(&self, cost: f64) -> f64 {
        cost / self.to.len().max(1) as f64
    }

    /// Anneals in place, from `hot` to `cold` times the unit; a schedule that is cold from the start only accepts
    /// improvements. Returns the number of accepted swaps.
    pub(super) fn anneal<S: Side>(
        &self,
        seating: &mut Seating,
        gains: &mut impl Gains,
        side: &mut S,
        schedule: Schedule,
        rng: &mut Rng,
    ) -> usize {
        if self.tasks() < 2 || (self.to.is_empty() && !S::MAY_LEAVE_PARTNERS) {
            return 0;
        }
        // -ln of evenly spaced probabilities: computing a logarithm per proposal would cost more than most gains.
        let chance: Vec<f64> = (0..1024)
            .map(|i| -((f64::from(i) + 0.5) / 1024.0).ln())
            .collect();
        let mut accepted = 0;
        for step in 0..STEPS {
            let share = step as f64 / (STEPS - 1) as f64;
            let temperature = match schedule.hot > 0.0 {
                true => schedule.hot * (schedule.cold / schedule.hot).powf(share),
                false => 0.0,
            };
            for _ in 0..schedule.proposals.div_ceil(STEPS) {
                let Some((u, v, su, sv)) = self.propose::<S>(seating, rng) else {
                    continue;
                };
                let limit = temperature * chance[rng.usize(0..1024)];
                let delta = gains.delta(u, v, su, sv) + side.delta(u, v, su, sv);
                // At zero temperature ties are rejected, or the search would drift for ever.
                if delta < limit {
                    gains.apply(u, v, su, sv);
                    side.apply(u, v, su, sv);
                    seating.swap(u, v, su, sv);
                    accepted += 1;
                }
            }
        }
        accepted
    }

    /// A task, the task on its target seat, and both seats.
    #[inline]
    fn propose<S: Side>(&self, seating: &Seating, rng: &mut Rng) -> Option<(u32, u32, u32, u32)> {
        let u = rng.u32(0..self.tasks() as u32);
        let first = self.start[u as usize];
        let degree = self.start[u as usize + 1] - first;
        let su = seating.seat_of[u as usize];
        let anywhere = |rng: &mut Rng| {
            let sv = rng.u32(0..self.seat_pu.len() as u32);
            (sv != su).then(|| (u, seating.task_at[sv as usize], su, sv))
        };
        if S::MAY_LEAVE_PARTNERS && (degree == 0 || rng.u8(0..4) == 0) {
            return anywhere(rng);
        }
        if degree == 0 {
            return None;
        }
        let partner = self.to[(first + rng.u32(0..degree)) as usize];
        let sp = seating.seat_of[partner as usize];
        let mut apart = 0;
        while apart < self.blocks.len() {
            let (from, to) = self.blocks[apart][sp as usize];
            if su >= from && su < to {
                break;
            }
            apart += 1;
        }
        let (from, to) = match apart {
            0 if self.blocks.is_empty() => (0, self.seat_pu.len() as u32),
            0 => return None,
            1 => self.blocks[0][sp as usize],
            _ => self.blocks[rng.usize(0..apart)][sp as usize],
        };
        let sv = rng.u32(from..to);
        let v = seating.task_at[sv as usize];
        (v != partner && sv != su).then_some((u, v, su, sv))
    }
}

impl Seating {
    /// Moves `u` from seat `su` to `sv`, and `v` (or none) back.
    #[inline]
    pub(super) fn swap(&mut self, u: u32, v: u32, su: u32, sv: u32) {
        self.seat_of[u as usize] = sv;
        self.task_at[sv as usize] = u;
        self.task_at[su as usize] = v;
        if v != EMPTY_SEAT {
            self.seat_of[v as usize] = su;
        }
    }
}
