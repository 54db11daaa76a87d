//! Any thread and page policy, applied to estimates instead of a profile.

use numaloc_analysis::assignment::page_affinity;
use numaloc_mapping::policies::choice_map::ChoiceMap;
use numaloc_mapping::{Direction, MapInput, Spread};
use numaloc_model::pages::PageUsage;
use numaloc_model::{LogicalNode, Mapping};
use numaloc_placement::{PlaceInput, PlacementPolicy};
use numaloc_topology::Topology;

use super::Evidence;
use crate::dynamic::Phase;
use crate::dynamic::ways::Policies;
use crate::error::PlanError;
use crate::options::Options;
use crate::registry::{BASELINE, Choice, ThreadPolicy};

/// The thread policy `azimi`: the mapping of the default policy, by cache-to-cache transfers only ([`Evidence`]).
pub const AZIMI: &str = "azimi";
/// The page policy `marathe`: the node of most loads, of slow loads only.
pub const MARATHE: &str = "marathe";

/// The accesses by which these policies estimate communication and the use of pages.
#[must_use]
pub fn evidence(threads: &str, pages: &str) -> (Evidence, Evidence) {
    let communication = match threads {
        AZIMI => Evidence::CacheToCache,
        _ => Evidence::All,
    };
    let uses = match pages {
        MARATHE => Evidence::SlowLoads,
        _ => Evidence::All,
    };
    (communication, uses)
}

/// The policies of a running program.
pub struct Chosen<'a> {
    machine: &'a Topology,
    options: Options,
    threads: ThreadPolicy,
    pages: &'static dyn PlacementPolicy,
}

impl<'a> Chosen<'a> {
    /// The first thread policy and the last page policy of `choice`, as for planned moves.
    ///
    /// # Errors
    /// [`PlanError::NotDynamic`] for policies and machines without moves.
    pub fn new(
        choice: &Choice,
        machine: &'a Topology,
        options: Options,
    ) -> Result<Self, PlanError> {
        let not = |what: &str| PlanError::NotDynamic {
            what: what.to_owned(),
        };
        let (threads, pages) = match choice {
            Choice::Joint | Choice::Best(_) => return Err(not(crate::registry::JOINT)),
            Choice::Separate { threads, pages } => (threads.first(), pages.last()),
        };
        let threads = *threads.ok_or_else(|| not("online placement without thread policy"))?;
        if threads.name() == ThreadPolicy::Os.name() {
            return Err(not(threads.name()));
        }
        if machine.network().is_some() {
            return Err(not("a cluster"));
        }
        let pages = pages.copied().unwrap_or(BASELINE);
        let (usage, mapping) = (PageUsage::new(4096), Mapping { pu: Vec::new() });
        pages.check(&PlaceInput {
            weights: options.weights.as_deref(),
            capacity_bytes: options.capacity.as_deref(),
            ..PlaceInput::new(&usage, &mapping, machine)
        })?;
        Ok(Self {
            machine,
            options,
            threads,
            pages,
        })
    }
}

impl Policies for Chosen<'_> {
    fn map(&self, phase: &Phase) -> Result<Mapping, PlanError> {
        let input = |matrix| {
            MapInput::directed(matrix, Direction::Undirected, self.machine)
                .with_spread(self.options.spread)
                .with_seed(self.options.seed)
        };
        let mapped = match self.threads {
            ThreadPolicy::SharedPages => {
                let common = page_affinity(&phase.usage, phase.weights.threads());
                numaloc_mapping::map(&ChoiceMap, &input(&common))?
            }
            ThreadPolicy::Listed(policy) => {
                numaloc_mapping::map(policy, &input(&phase.weights.symmetrised()))?
            }
            ThreadPolicy::InOrder => {
                let pus = self.machine.pus().len();
                return Ok(Mapping::blocks(phase.weights.threads(), pus));
            }
            ThreadPolicy::OnePerCore => {
                let numaloc = numaloc_mapping::by_name("numaloc").expect("our own policy");
                let spread = input(&phase.weights.symmetrised()).with_spread(Spread::Spread);
                numaloc_mapping::map(numaloc, &spread)?
            }
            policy @ (ThreadPolicy::Os | ThreadPolicy::Launcher) => {
                return Err(PlanError::NotDynamic {
                    what: policy.name().to_owned(),
                });
            }
        };
        Ok(mapped.mapping)
    }

    fn place(
        &self,
        usage: &PageUsage,
        mapping: &Mapping,
    ) -> Result<Vec<Option<LogicalNode>>, PlanError> {
        let input = PlaceInput {
            page_size: usage.page_size(),
            seed: self.options.seed,
            min_exclusivity: self.options.min_exclusivity,
            weights: self.options.weights.as_deref(),
            ..PlaceInput::new(usage, mapping, self.machine)
        };
        Ok(numaloc_placement::place(self.pages, &input)?.placement.node)
    }
}
