//! What a plan is worth: the seconds that a recorded run would take on a machine with its threads and pages in given
//! places. The one model behind the default plan, the refusal of plans that lose, and the verdicts of `show`.
//!
//! ```text
//! time       = sum over segments of (cores^P + controllers^P + links^P)^(1/P)        P = SMOOTH
//! cores      = busiest PU: its threads one after the other, each
//!              max(accesses x access time, waiting of streams, waiting of stores) with
//! waiting    = sum over lines of latency / lines outstanding at once
//! controllers, links = busiest one: lines x service time, messages x bytes / bandwidth
//! ```
//!
//! - The demand ([`demand`]) is that of the profile: segments follow its slices, so a part in which one thread works
//!   alone counts as such.
//! - Threads that share a core slow each other down ([`SMT_SLOWDOWN`](numaloc_placement::joint::SMT_SLOWDOWN)) and
//!   share what it has outstanding.
//! - Threads that are not bound share all PUs: a PU without work takes a waiting thread.
//! - Of a core's misses, as many overlap as its window of accesses contains, at most [`figures::OUTSTANDING`]; streams
//!   overlap up to [`figures::PREFETCHED`] lines.
//! - Last-level caches ([`caches`]) answer pages that their cores' threads used lately; only caches of cores that have
//!   threads count.
//! - An event of communication is a line that one core waits for: from the last-level cache that both share, or by way
//!   of its page's node ([`passages`]); from memory if the writer's cache has dropped it. Lines of swept pages are
//!   prefetched. A core goes on when it has a line of an atomic instruction, and the line that moves most is on one
//!   core at a time. How often lines move for which threads contend is estimated ([`contended`]).
//! - Threads that are not bound start on any of the nodes with fewest: where nodes are not equally far from each other,
//!   the time is the mean of several draws.
//! - Pages are where [`numaloc_analysis::local::home`] expects them.
//!
//! The constants are those of the simulator (`numaloc_sim::Parameters`), and the model is compared with it: the
//! command at [`ERROR`] measures how far ratios of two times are off.
//!
//! Cost: O(page rows) for a mapping, and again for each placement under it, plus O(segments x threads x nodes).

use std::borrow::Cow;
use std::collections::HashMap;

use numaloc_analysis::local::{Home, home};
use numaloc_model::{Layer, LogicalPu, Mapping, Placement, Profile, ThreadIdx};
use numaloc_topology::Topology;

mod caches;
pub mod changed;
mod contended;
mod demand;
pub mod figures;
mod passages;
#[cfg(test)]
pub(crate) mod tests;
mod time;

use caches::Overlap;
use demand::Demand;
use figures::{Figures, Seat};
use passages::Places;
use time::{Draws, Flows};

/// Margin by which one modelled time must be below another to count as a gain. Not a bound: compared with the
/// simulator, ratios to "as it is" are off by 5 % in the median and 24 % in nine of ten, but no default plan of 186
/// cells loses by more (`docs/commands/plan.md`).
pub const ERROR: f64 = 0.15;
/// Share (0..=1) of [`ERROR`] by which a gain is surer if all lines from other nodes become local: what the model says
/// of a line's way is exact.
const SURER: f64 = 0.5;
/// Share (0..=1) of all lines that become local, below which they are not what the gain comes from.
const MADE_LOCAL: f64 = 0.1;
/// Two plans whose modelled times differ by less are equally good.
pub const TIE: f64 = 0.02;

/// Draws of the nodes of threads that are not bound, on machines whose nodes are not equally far from each other.
const DRAWS: u64 = 3;

/// Numbers below `count` in an order that the draw determines.
fn shuffled(count: usize, draw: u64) -> Vec<usize> {
    let mut random = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut found: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        let drawn = random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        found.swap(at, drawn as usize % (at + 1));
    }
    found
}

/// What the model says of a run with threads and pages in given places. Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// The whole run.
    pub seconds: f64,
    /// The part that cores determine by their work, and by waiting for lines.
    pub working_s: f64,
    /// See `working_s`.
    pub waiting_s: f64,
    /// The part that the busiest memory controller determines.
    pub controllers_s: f64,
    /// The part that the busiest link determines.
    pub links_s: f64,
    /// Lines from memory.
    pub lines: f64,
    /// Those from another node than the thread's.
    pub remote_lines: f64,
}

impl Worth {
    /// Whether it takes longer than `other` by more than the error of the model.
    #[must_use]
    pub fn loses_to(&self, other: &Self) -> bool {
        self.loses_to_seconds(other.seconds)
    }

    /// Whether it takes longer than that many seconds by more than the error of the model.
    pub(crate) fn loses_to_seconds(&self, seconds: f64) -> bool {
        self.seconds > seconds * (1.0 + ERROR)
    }

    /// Share by which the ratio of `self`'s time to that of the program as it is may be off, for a gain: [`ERROR`],
    /// less if many lines that came from other nodes become local.
    #[must_use]
    pub fn error_of_gain(&self, as_it_is: &Self) -> f64 {
        let made_local = as_it_is.remote_lines - self.remote_lines;
        match made_local > MADE_LOCAL * as_it_is.lines {
            true => ERROR * (1.0 - SURER * (made_local / as_it_is.remote_lines).min(1.0)),
            false => ERROR,
        }
    }

    /// Whether it takes less time than the program as it is by more than the error.
    #[must_use]
    pub fn saves(&self, as_it_is: &Self) -> bool {
        as_it_is.seconds > self.seconds * (1.0 + self.error_of_gain(as_it_is))
    }

    /// Share of `self`'s time that `other` saves; negative if it takes longer.
    #[must_use]
    pub fn saved_by(&self, other: &Self) -> f64 {
        if self.seconds > 0.0 {
            1.0 - other.seconds / self.seconds
        } else {
            0.0
        }
    }

    /// What determines most of the time, in words.
    #[must_use]
    pub fn bound_by(&self) -> &'static str {
        most(self.parts())
    }

    /// Where most of the time goes by which `other` differs, in words.
    #[must_use]
    pub fn gain_by(&self, other: &Self) -> &'static str {
        let (own, others) = (self.parts(), other.parts());
        let sign = (self.seconds - other.seconds).signum();
        most(std::array::from_fn(|at| {
            ((own[at].0 - others[at].0) * sign, own[at].1)
        }))
    }

    fn plus(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            working_s: self.working_s + other.working_s,
            waiting_s: self.waiting_s + other.waiting_s,
            controllers_s: self.controllers_s + other.controllers_s,
            links_s: self.links_s + other.links_s,
            lines: self.lines + other.lines,
            remote_lines: self.remote_lines + other.remote_lines,
        }
    }

    fn over(self, count: f64) -> Self {
        Self {
            seconds: self.seconds / count,
            working_s: self.working_s / count,
            waiting_s: self.waiting_s / count,
            controllers_s: self.controllers_s / count,
            links_s: self.links_s / count,
            lines: self.lines / count,
            remote_lines: self.remote_lines / count,
        }
    }

    fn parts(&self) -> [(f64, &'static str); 4] {
        [
            (self.working_s, "the cores' work"),
            (self.waiting_s, "waiting for lines"),
            (self.controllers_s, "the busiest memory controller"),
            (self.links_s, "the busiest link between nodes"),
        ]
    }
}

/// The words of the largest part, the first of equals.
fn most(parts: [(f64, &'static str); 4]) -> &'static str {
    let first = parts[0];
    let larger = |most: (f64, &'static str), part: (f64, &'static str)| match part.0 > most.0 {
        true => part,
        false => most,
    };
    parts.into_iter().fold(first, larger).1
}

/// The model for a run on a machine.
pub struct Model<'a> {
    profile: &'a Profile,
    machine: &'a Topology,
    figures: Figures,
    demand: Demand,
}

impl<'a> Model<'a> {
    /// `None` if the model does not apply: to messages between ranks, to clusters, and without recorded accesses.
    #[must_use]
    pub fn of(profile: &'a Profile, layer: Layer, machine: &'a Topology) -> Option<Self> {
        let works = profile.pages().total() > 0;
        let ranks = profile.threads().iter().any(|thread| thread.rank.is_some());
        if !works || ranks || layer.is_message() || machine.hosts().len() > 1 {
            return None;
        }
        let figures = Figures::of(machine);
        let line = profile.meta().line_size.max(1);
        let demand = Demand::of(profile, layer, figures.private_bytes, line);
        Some(Self {
            profile,
            machine,
            figures,
            demand,
        })
    }

    /// The run.
    #[must_use]
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &'a Topology {
        self.machine
    }

    /// Seconds of a transfer of a line between two cores: within a last-level cache, the mean over pairs of nodes, and
    /// between the nodes that are furthest apart.
    #[must_use]
    pub fn transfer_s(&self) -> [f64; 3] {
        let pairs = &self.figures.transfer_s;
        let mean = pairs.iter().sum::<f64>() / pairs.len().max(1) as f64;
        let most = pairs.iter().copied().fold(mean, f64::max);
        [self.figures.shared_s.min(mean), mean, most]
    }

    /// [`Model::transfer_s`] between threads at their PUs, each pair as often as any other: the nearest pair, the mean,
    /// and the furthest.
    #[must_use]
    pub fn transfer_under_s(&self, mapping: &Mapping) -> [f64; 3] {
        let figures = &self.figures;
        let seats: Vec<_> = mapping
            .pu
            .iter()
            .map(|pu| figures.seats[pu.index()])
            .collect();
        let (mut sum, mut least, mut most) = (0.0, f64::INFINITY, 0.0_f64);
        for (at, from) in seats.iter().enumerate() {
            for to in &seats[..at] {
                let seconds = figures.between_s(*from, *to);
                (sum, least, most) = (sum + seconds, least.min(seconds), most.max(seconds));
            }
        }
        match seats.len() {
            0 | 1 => [figures.shared_s; 3],
            threads => [least, 2.0 * sum / (threads * (threads - 1)) as f64, most],
        }
    }

    /// The run with its threads at their PUs, for rating placements of its pages.
    ///
    /// # Panics
    /// If the mapping does not fit profile and machine.
    #[must_use]
    pub fn seated(&self, mapping: &Mapping) -> Seated<'_> {
        self.seated_with(mapping, Cow::Borrowed(&self.demand))
    }

    /// The run with its threads where the operating system starts them: it moves a thread that waits for a busy PU to
    /// an idle one.
    ///
    /// # Panics
    /// If the mapping does not fit profile and machine.
    #[must_use]
    pub fn unbound(&self, mapping: &Mapping) -> Seated<'_> {
        self.unbound_with(mapping, Cow::Borrowed(&self.demand))
    }

    fn unbound_with<'s>(&'s self, mapping: &Mapping, demand: Cow<'s, Demand>) -> Seated<'s> {
        let unbound = |mapping: &Mapping, demand| Seated {
            is_bound: false,
            ..self.seated_with(mapping, demand)
        };
        let others = self.other_nodes(mapping).into_iter();
        Seated {
            others: others
                .map(|other| unbound(&other, demand.clone()))
                .collect(),
            ..unbound(mapping, demand.clone())
        }
    }

    /// The same mapping with nodes exchanged for others: the operating system starts threads on any of those with
    /// fewest. None if all nodes are equally far from each other.
    fn other_nodes(&self, mapping: &Mapping) -> Vec<Mapping> {
        let (machine, figures) = (self.machine, &self.figures);
        let nodes = machine.nodes_with_pus();
        let pus = |node: usize| &machine.nodes()[nodes[node].index()].pus;
        let pair = |a: usize, b: usize| {
            figures.transfer_s[nodes[a].index() * figures.nodes + nodes[b].index()]
        };
        let count = nodes.len();
        let pairs = || {
            (0..count)
                .flat_map(|a| (0..count).map(move |b| (a, b)))
                .filter(|(a, b)| a != b)
        };
        let (least, most) = pairs().fold((f64::INFINITY, 0.0_f64), |(least, most), (a, b)| {
            (least.min(pair(a, b)), most.max(pair(a, b)))
        });
        let equal = (1..count).all(|node| pus(node).len() == pus(0).len());
        if most <= least * 1.01 || !equal {
            return Vec::new();
        }
        let place: HashMap<LogicalPu, (usize, usize)> = (0..count)
            .flat_map(|node| {
                pus(node)
                    .iter()
                    .enumerate()
                    .map(move |(at, &pu)| (pu, (node, at)))
            })
            .collect();
        (1..DRAWS)
            .map(|draw| {
                let order = shuffled(count, draw);
                let other = |pu: &LogicalPu| {
                    let (node, at) = place[pu];
                    pus(order[node])[at]
                };
                Mapping {
                    pu: mapping.pu.iter().map(other).collect(),
                }
            })
            .collect()
    }

    fn seated_with<'s>(&'s self, mapping: &Mapping, demand: Cow<'s, Demand>) -> Seated<'s> {
        let figures = &self.figures;
        let seats: Vec<Seat> = mapping
            .pu
            .iter()
            .map(|pu| figures.seats[pu.index()])
            .collect();
        assert_eq!(seats.len(), demand.threads, "one PU per thread");
        let pages = self.profile.pages().pages().len();
        let fetched = caches::fetched(&demand, &seats, figures.groups, pages, figures.shared_bytes);
        let overlaps = caches::overlaps(&demand, &fetched);
        Seated {
            model: self,
            is_bound: true,
            contends: true,
            others: Vec::new(),
            mapping: mapping.clone(),
            draws: Draws::of(&demand, &fetched, &overlaps),
            overlaps,
            demand,
            seats,
        }
    }
}

/// A run with its threads at their PUs.
pub struct Seated<'a> {
    model: &'a Model<'a>,
    /// The model's, or as a change of the program leaves it.
    demand: Cow<'a, Demand>,
    /// Whether a thread waits for its PU though others are idle.
    is_bound: bool,
    /// Whether threads wait for the lines that they contend for.
    contends: bool,
    /// Of threads that are not bound: the same on other nodes.
    others: Vec<Seated<'a>>,
    mapping: Mapping,
    seats: Vec<Seat>,
    draws: Draws,
    overlaps: Vec<Overlap>,
}

impl Seated<'_> {
    /// The same without the lines that threads contend for.
    #[must_use]
    pub fn without_contention(mut self) -> Self {
        self.contends = false;
        let others = std::mem::take(&mut self.others).into_iter();
        self.others = others.map(Self::without_contention).collect();
        self
    }

    /// What it is worth with its pages at `placement`.
    ///
    /// # Panics
    /// If the placement does not fit the profile.
    #[must_use]
    pub fn worth(&self, placement: &Placement) -> Worth {
        self.worth_with_copies(placement, &[])
    }

    /// The same if every node has a copy of some pages, from which its threads read; by page, none if empty.
    ///
    /// # Panics
    /// If the placement does not fit the profile.
    #[must_use]
    pub fn worth_with_copies(&self, placement: &Placement, is_copied: &[bool]) -> Worth {
        let figures = &self.model.figures;
        self.worth_by(figures, placement, is_copied)
    }

    fn worth_by(&self, figures: &Figures, placement: &Placement, is_copied: &[bool]) -> Worth {
        let others = self.others.iter();
        let of_others = others.map(|other| other.worth_by(figures, placement, is_copied));
        let sum = of_others.fold(self.own_worth(figures, placement, is_copied), Worth::plus);
        sum.over(1.0 + self.others.len() as f64)
    }

    fn own_worth(&self, figures: &Figures, placement: &Placement, is_copied: &[bool]) -> Worth {
        let model = self.model;
        let pages = model.profile.pages().pages();
        assert_eq!(placement.node.len(), pages.len(), "a node per page");
        let node_of = |thread: ThreadIdx| model.machine.node_of(self.mapping.pu[thread.index()]);
        let nodes = model.machine.nodes().len();
        let pages = pages.iter().zip(&placement.node);
        let homes: Vec<Home> = pages
            .map(|(page, &node)| home(model.profile, page, node, nodes, node_of))
            .collect();
        let places = Places {
            homes: &homes,
            is_copied,
            seats: &self.seats,
        };
        let (demand, overlaps) = (&*self.demand, &self.overlaps[..]);
        let flows = Flows::of(&self.draws, demand, &places, model.machine);
        let threads = time::Threads {
            mapping: &self.mapping,
            seats: &self.seats,
            is_bound: self.is_bound,
            contends: self.contends,
        };
        time::worth(demand, &flows, overlaps, figures, &threads)
    }
}
