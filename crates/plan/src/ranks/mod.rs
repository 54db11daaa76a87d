//! What a mapping of ranks to the hosts of a cluster is worth: seconds of the recorded run, by the model of networks
//! ([`numaloc_network`]).
//!
//! ```text
//! time = computing + k x communicating + rest
//! ```
//!
//! - computing, communicating: of the mapping, phase by phase ([`demand`], [`numaloc_network::time`]);
//! - rest: what the recorded run took beyond the same model of the places where it was recorded: waiting that no
//!   mapping changes, such as that of uneven work, or of ranks that work one after the other;
//! - k: 1, unless the model says more than the recorded run took, and this ran where the launcher would start it on the
//!   cluster: then communication is scaled to what it took.
//!
//! Candidates are mappings in order of simplicity, the launcher's layout first ([`layout`]): as it is. Another is
//! chosen only if the least that it may save is more than [`TIE`] of the run. What it saves lies between what it saves
//! if ranks never compute while messages are on their way, and if all non-blocking messages are hidden behind
//! computation, each [`ERROR`] wider.

use numaloc_model::{Mapping, Profile};
use numaloc_network::time::Busy;
use numaloc_network::{Demand, Fabric, Seat, times};
use numaloc_placement::joint::SMT_SLOWDOWN;
use numaloc_topology::Topology;

use crate::options::Options;
use crate::subject::{Subject, Unit};

pub mod demand;
pub mod layout;
#[cfg(test)]
mod tests;

use layout::{Launched, launched};

/// Share by which a difference of two modelled times may be off, where the figures of links are stated: the limit that
/// `make check-rank-times` compares with real runs.
pub const ERROR: f64 = 0.2;
/// The same where they are those of an interconnect that is only assumed.
pub const ASSUMED_ERROR: f64 = 0.5;
/// Share of the run below which two mappings are equally good.
pub const TIE: f64 = 0.02;

/// Seconds of a run with its ranks in given places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankWorth {
    /// The whole run, if ranks do not compute while they communicate.
    pub seconds: f64,
    /// The same if all non-blocking messages are hidden behind computation.
    pub hidden_s: f64,
    /// The part in which the slowest rank of each phase computes.
    pub compute_s: f64,
    /// The busiest links, the busiest first.
    pub busiest: Vec<Busy>,
    /// Share (0..=1) of the bytes of messages that go between hosts.
    pub between_hosts: f64,
}

/// Seconds that a mapping saves; negative if it loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The model's answer.
    pub seconds: f64,
    /// Least that it may be.
    pub least: f64,
    /// Most that it may be.
    pub most: f64,
}

impl Gain {
    fn of(as_it_is: &RankWorth, then: &RankWorth, error: f64) -> Self {
        let seconds = as_it_is.seconds - then.seconds;
        let hidden = as_it_is.hidden_s - then.hidden_s;
        let ends = [1.0 - error, 1.0 + error].map(|share| [seconds * share, hidden * share]);
        let ends = ends.as_flattened().iter().copied();
        Self {
            seconds,
            least: ends.clone().fold(f64::INFINITY, f64::min),
            most: ends.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A candidate and its worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRated {
    /// Thread policy.
    pub policy: &'static str,
    /// What the model says of it.
    pub worth: RankWorth,
}

/// The candidates for ranks, and which of them was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRanking {
    /// The launcher's layout.
    pub as_it_is: RankWorth,
    /// That layout in words.
    pub layout: String,
    /// In order of simplicity; never empty.
    pub candidates: Vec<RankRated>,
    /// Index of the chosen one.
    pub chosen: usize,
    /// Whether the profile has times, so that the seconds are those of the whole run; otherwise of its messages alone.
    pub is_whole: bool,
    /// See [`ERROR`].
    pub error: f64,
    /// The interconnect, if it is only assumed.
    pub assumed: Option<&'static str>,
}

impl RankRanking {
    /// What the chosen candidate is worth.
    #[must_use]
    pub fn plan(&self) -> &RankWorth {
        &self.candidates[self.chosen].worth
    }

    /// What a candidate saves.
    #[must_use]
    pub fn gain_of(&self, worth: &RankWorth) -> Gain {
        Gain::of(&self.as_it_is, worth, self.error)
    }

    /// What the plan saves.
    #[must_use]
    pub fn gain(&self) -> Gain {
        self.gain_of(self.plan())
    }

    /// Whether the plan saves more than [`TIE`], whatever the error.
    #[must_use]
    pub fn saves(&self) -> bool {
        self.gain().least > TIE * self.as_it_is.seconds
    }

    /// Whether the plan loses more than [`TIE`], whatever the error.
    #[must_use]
    pub fn loses(&self) -> bool {
        -self.gain().most > TIE * self.as_it_is.seconds
    }

    /// The first candidate within [`TIE`] of the fastest of those that save; as it is, if none does.
    fn choose(&mut self) {
        let saves =
            |rated: &&RankRated| self.gain_of(&rated.worth).least > TIE * self.as_it_is.seconds;
        let saving = self.candidates.iter().filter(saves);
        let best = saving.fold(f64::INFINITY, |best, rated| best.min(rated.worth.seconds));
        let near = best * (1.0 + TIE);
        let mut candidates = self.candidates.iter();
        let found = candidates.position(|rated| saves(&rated) && rated.worth.seconds <= near);
        self.chosen = found.unwrap_or(0);
    }
}

/// The model of a run of ranks on a cluster.
pub struct RankModel<'a> {
    machine: &'a Topology,
    fabric: Fabric,
    demand: Demand,
    launched: Launched,
    as_it_is: Mapping,
    is_whole: bool,
    /// See the module.
    rest_s: f64,
    k: f64,
}

impl<'a> RankModel<'a> {
    /// `None` if the model does not apply: no messages of ranks in bytes (ranks recorded with their threads are mapped
    /// in cache lines), a machine of one host, or figures of links that do not fit its network.
    #[must_use]
    pub fn of(subject: &Subject, machine: &'a Topology, options: &Options) -> Option<Self> {
        let applies = subject.layer().is_message() && subject.unit() == Unit::Bytes;
        if !applies || subject.is_hybrid() || machine.hosts().len() < 2 {
            return None;
        }
        Self::of_profile(
            subject.profile(),
            subject.layer(),
            machine,
            options.ranks_per_host,
        )
    }

    pub(crate) fn of_profile(
        profile: &Profile,
        layer: numaloc_model::Layer,
        machine: &'a Topology,
        ranks_per_host: Option<usize>,
    ) -> Option<Self> {
        let fabric = Fabric::of(machine).ok()?;
        let (demand, recorded_s) = demand::of(profile, layer);
        let ranks = profile.threads().len();
        let launched = launched(&profile.meta().command, machine, ranks, ranks_per_host);
        let as_it_is = launched.mapping(machine, ranks);
        let mut model = Self {
            machine,
            fabric,
            demand,
            launched,
            as_it_is,
            is_whole: recorded_s > 0.0,
            rest_s: 0.0,
            k: 1.0,
        };
        if model.is_whole {
            model.fit(recorded_s);
        }
        Some(model)
    }

    /// Sets the rest and k by the seconds of the recorded run.
    fn fit(&mut self, recorded_s: f64) {
        let there = self.launched.is_recorded_there;
        let mut seats = self.seats(&self.as_it_is);
        for seat in &mut seats {
            // The recorded times of computation are those of where it ran.
            seat.slower = 1.0;
            if !there {
                (seat.host, seat.node) = (0, 0);
            }
        }
        let found = self.times(&seats);
        let communicating = found.seconds - found.compute_s;
        if there && found.seconds > recorded_s && communicating > 0.0 {
            self.k = ((recorded_s - found.compute_s) / communicating).max(0.0);
        } else {
            self.rest_s = (recorded_s - found.seconds).max(0.0);
        }
    }

    fn times(&self, seats: &[Seat]) -> numaloc_network::Times {
        times(&self.demand, &self.fabric, seats, |a, b| {
            let node = |at| numaloc_model::LogicalNode(at);
            self.machine.node_distance(node(a), node(b))
        })
    }

    /// The launcher's layout.
    #[must_use]
    pub fn as_it_is(&self) -> &Mapping {
        &self.as_it_is
    }

    /// Where each rank is, and how much slower it computes than where it was recorded.
    fn seats(&self, mapping: &Mapping) -> Vec<Seat> {
        let own = slower(mapping, self.machine);
        let recorded = match self.launched.is_recorded_there {
            true => slower(&self.as_it_is, self.machine),
            false => vec![1.0; own.len()],
        };
        let starts: Vec<u32> = layout::hosts(self.machine)
            .iter()
            .map(|pus| pus.start)
            .collect();
        let seats = mapping.pu.iter().zip(own.iter().zip(recorded));
        seats
            .map(|(pu, (own, recorded))| Seat {
                host: starts.partition_point(|start| *start <= pu.0) as u32 - 1,
                node: self.machine.node_of(*pu).0,
                slower: own / recorded,
            })
            .collect()
    }

    /// Seconds of the run with its ranks at their PUs.
    ///
    /// # Panics
    /// If the mapping is not one of the profile's ranks to PUs of the machine.
    #[must_use]
    pub fn worth(&self, mapping: &Mapping) -> RankWorth {
        let found = self.times(&self.seats(mapping));
        let with =
            |seconds: f64| found.compute_s + self.k * (seconds - found.compute_s) + self.rest_s;
        RankWorth {
            seconds: with(found.seconds),
            hidden_s: with(found.hidden_s),
            compute_s: found.compute_s,
            between_hosts: found.between_hosts / found.bytes.max(1.0),
            busiest: found.busiest,
        }
    }

    /// Rates candidates, in order of simplicity; the first is chosen.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn rank<'m>(
        &self,
        candidates: impl IntoIterator<Item = (&'static str, &'m Mapping)>,
    ) -> RankRanking {
        let rated = candidates.into_iter().map(|(policy, mapping)| RankRated {
            policy,
            worth: self.worth(mapping),
        });
        let links = self.machine.links();
        let assumed = links.is_assumed().then(|| links.interconnect().name);
        let candidates: Vec<RankRated> = rated.collect();
        assert!(!candidates.is_empty(), "a candidate");
        RankRanking {
            as_it_is: self.worth(&self.as_it_is),
            layout: self.launched.words(),
            candidates,
            chosen: 0,
            is_whole: self.is_whole,
            error: if assumed.is_some() {
                ASSUMED_ERROR
            } else {
                ERROR
            },
            assumed,
        }
    }

    /// The same, and chooses the best.
    ///
    /// # Panics
    /// If there are no candidates.
    #[must_use]
    pub fn best<'m>(
        &self,
        candidates: impl IntoIterator<Item = (&'static str, &'m Mapping)>,
    ) -> RankRanking {
        let mut ranking = self.rank(candidates);
        ranking.choose();
        ranking
    }
}

/// By rank: how much slower it computes than alone on its core. Ranks on one PU work one after the other, those on
/// several PUs of a core slow each other down.
fn slower(mapping: &Mapping, machine: &Topology) -> Vec<f64> {
    let mut of_pu = std::collections::HashMap::new();
    for pu in &mapping.pu {
        *of_pu.entry(*pu).or_insert(0.0) += 1.0;
    }
    let mut of_core = std::collections::HashMap::new();
    for pu in of_pu.keys() {
        *of_core.entry(machine.pus()[pu.index()].core).or_insert(0) += 1;
    }
    let factor = |pu: &numaloc_model::LogicalPu| {
        let smt = match of_core[&machine.pus()[pu.index()].core] {
            1 => 1.0,
            _ => SMT_SLOWDOWN,
        };
        of_pu[pu] * smt
    };
    mapping.pu.iter().map(factor).collect()
}
