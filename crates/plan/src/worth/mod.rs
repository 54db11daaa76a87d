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
//! - An event of communication is a line that one core waits for: from the last-level cache that both share, or over
//!   the links between their nodes; from memory if the writer's cache has dropped it meanwhile. Lines of swept pages
//!   are prefetched.
//! - Pages are where [`numaloc_analysis::local::home`] expects them.
//!
//! The constants are those of the simulator (`numaloc_sim::Parameters`), and the model is compared with it: the
//! command at [`ERROR`] measures how far ratios of two times are off.
//!
//! Cost: O(page rows) for a mapping, and again for each placement under it, plus O(segments x threads x nodes).

use std::borrow::Cow;

use numaloc_analysis::local::{Home, home};
use numaloc_model::{Layer, Mapping, Placement, Profile, ThreadIdx};
use numaloc_topology::Topology;

mod caches;
pub mod changed;
mod demand;
pub mod figures;
#[cfg(test)]
pub(crate) mod tests;
mod time;

use caches::Overlap;
use demand::Demand;
use figures::{Figures, Seat};
use time::{Draws, Flows, Places};

/// Margin by which one modelled time must be below another to count as a gain. Not a bound: compared with the
/// simulator, ratios to "as it is" are off by 5 % in the median and 30 % in nine of ten, but no default plan of 186
/// cells loses by more (`docs/commands/plan.md`).
pub const ERROR: f64 = 0.15;
/// Two plans whose modelled times differ by less are equally good.
pub const TIE: f64 = 0.02;

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
        Seated {
            is_bound: false,
            ..self.seated_with(mapping, demand)
        }
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
    mapping: Mapping,
    seats: Vec<Seat>,
    draws: Draws,
    overlaps: Vec<Overlap>,
}

impl Seated<'_> {
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
        let flows = Flows::of(&self.draws, &places, model.machine);
        let threads = time::Threads {
            mapping: &self.mapping,
            seats: &self.seats,
            is_bound: self.is_bound,
        };
        time::worth(demand, &flows, overlaps, figures, &threads)
    }
}
