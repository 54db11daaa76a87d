//! Verdicts: which measures are likely to help this program, and why.
//!
//! The papers' claim (DeLoc III, OPT 4.3 and 5.4, data mapping II) is that measured behaviour shows which kind of
//! placement pays. They give directions (more is better), not thresholds; ours are the constants below, each with its
//! reason, and `docs/metrics.md` reports how often they were right, with a measurement for each kind of verdict. Gains
//! are shares of accesses or communication; where the caller has a model of time ([`Candidates::times`]), its seconds
//! decide (`timed`).
//!
//! Every verdict compares computed figures of two ways to run ([`crate::outlook`]), and recommends only a way that was
//! computed and has better figures:
//!
//! | measure | baseline |
//! |---|---|
//! | bind threads | threads moved freely by the kernel |
//! | thread mapping | threads bound in the order of their creation |
//! | congestion-aware mapping | the mapping that would be chosen without it |
//! | page placement | first touch with threads bound in order |
//!
//! `cannot tell` is an answer: between the thresholds, or if the deciding figure was not observed.

use numaloc_model::conditions::Repeatability;
use numaloc_model::profile::{Clock, Profile};
use numaloc_model::{CommMatrix, Layer, PageUsage, number};

use crate::assignment::NodeAssignment;
use crate::communication::CommunicationMetrics;
use crate::concurrency::Concurrency;
use crate::local::{Accesses, alone};
use crate::objects::ObjectUse;
use crate::outlook::{Candidates, Outlook, Scene, Way};
use crate::pages::PageMetrics;
use crate::sharing::Sharing;
use crate::sites::CodeSites;

pub use crate::seconds::time;
pub use binding::uses_openmp;
pub use problem::{Problem, Saves};
pub use shared::TRANSFER_S;
pub use waiting::BALANCE_RANKS;

mod binding;
mod congestion;
mod mapping;
mod placement;
mod problem;
mod problems;
mod shared;
mod source;
mod timed;
mod waiting;

/// Communication below this share of the accessed bytes cannot matter: even if all of it were remote at
/// three times the latency, the run would change by less than one per cent.
pub const RATIO_NEGLIGIBLE: f64 = 0.003;
/// Communication from this share on is worth placing.
pub const RATIO_WORTHWHILE: f64 = 0.01;
/// Share of the communication that must become local.
pub const REMOTE_GAIN: f64 = 0.15;
/// A smaller gain is noise of the search.
pub const REMOTE_GAIN_NEGLIGIBLE: f64 = 0.05;
/// Tasks that communicate at the same time (`CommC`) from which congestion is a risk.
pub const CONCURRENT: f64 = 0.5;
/// Communication load of the busiest node over the mean from which it is worth spreading.
pub const CONGESTED: f64 = 1.25;
/// Largest ratio of the busiest node's load to that under the mapping it replaces: less relief is noise.
pub const RELIEF: f64 = 0.9;
/// Share of the page accesses that must turn from remote to local.
pub const LOCAL_GAIN: f64 = 0.10;
/// Smaller gains are not worth a plan.
pub const LOCAL_GAIN_NEGLIGIBLE: f64 = 0.03;
/// Gain of access balance from which placement pays without making more accesses local: one controller then serves
/// fewer of the accesses that all threads wait for.
pub const EVENED: f64 = 0.20;
/// Smaller gains of balance are not worth a plan.
pub const EVENED_NEGLIGIBLE: f64 = 0.10;
/// Largest share of the page accesses that balancing may turn from local to remote.
pub const EVENED_COST: f64 = 0.05;
/// A smaller share of accesses beyond private caches cannot matter: at a hundred times the cost of a hit they would add
/// less than a third.
pub const BEYOND_NEGLIGIBLE: f64 = 0.003;
/// Upper bound of the cost of one message, for [`RATIO_NEGLIGIBLE`] if ranks send: a slow network with 10 us and 10 ns
/// per byte (100 MB/s). Messages that take less than that share of the run even there cannot matter.
pub const SLOW_MESSAGE_NS: f64 = 10_000.0;
/// Upper bound of the cost per byte.
pub const SLOW_BYTE_NS: f64 = 10.0;
/// Share of false sharing in the communication from which the program should be repaired first.
pub const FALSE_SHARE: f64 = 0.2;

/// Whether a measure is worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// All deciding metrics are in favour.
    Likely,
    /// One of the deciding metrics rules it out.
    Unlikely,
    /// Between the thresholds, or not observed.
    CannotTell,
}

impl Likelihood {
    /// Text for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Likely => "likely to help",
            Self::Unlikely => "unlikely to help",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// The measure that a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Keep threads on the nodes where they touched their pages first.
    BindThreads,
    /// Put threads that communicate on one node.
    ThreadMapping,
    /// Spread concurrent communication over the nodes (DeLoc).
    CongestionAware,
    /// Put pages on the nodes that use them.
    PagePlacement,
    /// Change the program so that threads contend less for lines.
    SharedLines,
}

impl Measure {
    /// Text for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::BindThreads => "bind threads",
            Self::ThreadMapping => "thread mapping",
            Self::CongestionAware => "congestion-aware mapping",
            Self::PagePlacement => "page placement",
            Self::SharedLines => "shared cache lines",
        }
    }

    /// Stable name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BindThreads => "bind_threads",
            Self::ThreadMapping => "thread_mapping",
            Self::CongestionAware => "congestion_aware_mapping",
            Self::PagePlacement => "page_placement",
            Self::SharedLines => "shared_cache_lines",
        }
    }
}

/// One verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The measure.
    pub measure: Measure,
    /// The answer.
    pub likelihood: Likelihood,
    /// The figures that decided.
    pub reason: String,
    /// The action for the user, if there is one.
    pub action: Option<String>,
    /// The way to run that it recommends, if any.
    pub recommended: Option<Way>,
}

impl Verdict {
    /// A verdict without an action.
    fn plain(measure: Measure, likelihood: Likelihood, reason: String) -> Self {
        Self {
            measure,
            likelihood,
            reason,
            action: None,
            recommended: None,
        }
    }

    /// Adds where in the code it is, unless the measure is unlikely to help.
    fn add(&mut self, place: Option<String>) {
        if let Some(place) = place.filter(|_| self.likelihood != Likelihood::Unlikely) {
            self.reason = format!("{}; {place}", self.reason);
        }
    }

    /// Reason and action in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.action {
            Some(action) => format!("{}. {action}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// Input of [`verdicts`].
pub struct Evidence<'a> {
    /// The run.
    pub profile: &'a Profile,
    /// Its communication.
    pub communication: &'a CommunicationMetrics,
    /// Concurrency of the communication.
    pub concurrency: &'a Concurrency,
    /// Communication, in the unit of its layer's weights.
    pub events: &'a CommMatrix,
    /// All page accesses, under first touch with the assignment below.
    pub pages: &'a PageMetrics,
    /// Page accesses that leave private caches.
    pub beyond: &'a PageUsage,
    /// Use by object, the most used first.
    pub objects: &'a [ObjectUse],
    /// False and true sharing of lines.
    pub sharing: &'a Sharing,
    /// Which code communicates and accesses memory.
    pub sites: &'a CodeSites,
    /// Threads to nodes if threads are bound in the order of their creation.
    pub assignment: &'a NodeAssignment,
    /// Answers of the policies.
    pub candidates: &'a Candidates,
    /// Total size of the machine's caches, if known (OPT eq. 7).
    pub cache_bytes: Option<u64>,
    /// Size of a core's private cache: for fewer pages than that, their placement does not matter.
    pub private_cache_bytes: u64,
}

/// The verdicts and the ways they compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// In the order of [`Measure`]; that on shared lines only where they may matter.
    pub verdicts: Vec<Verdict>,
    /// Threads free, bound, and as recommended.
    pub outlooks: Vec<Outlook>,
    /// What is wrong, most worth first; empty if there is nothing to change.
    pub problems: Vec<Problem>,
}

/// The verdicts.
#[must_use]
pub fn verdicts(evidence: &Evidence<'_>) -> Answer {
    let alone = alone(evidence.profile);
    let scene = Scene {
        events: evidence.events,
        layer: evidence.communication.layer,
        accesses: Accesses {
            profile: evidence.profile,
            beyond: evidence.beyond,
            alone: &alone,
            homes: evidence.assignment.homes.len(),
            memories: evidence.assignment.nodes,
        },
        homes: &evidence.assignment.homes,
    };
    let ways = Ways {
        free: scene.free(evidence.assignment),
        bound: scene.mapped(Way::Bound, evidence.assignment),
        mapped: mapping::outlooks(evidence, &scene),
        placed: placement::outlooks(evidence, &scene),
    };
    let mut mapping = mapping::verdict(evidence, &scene, &ways);
    let congestion = congestion::verdict(evidence, &ways, &mapping);
    mapping.add(evidence.sites.exchange_sentence());
    let mut placement = placement::verdict(evidence, &ways);
    placement.add(evidence.sites.access_sentence());
    let mut verdicts = [
        binding::verdict(evidence, &scene, &ways),
        mapping,
        congestion,
        placement,
    ];
    timed::decide(evidence, &ways, &mut verdicts);
    let recommended = |outlook: &&Outlook| {
        let way = Some(&outlook.way);
        verdicts
            .iter()
            .any(|verdict| verdict.recommended.as_ref() == way)
    };
    let policies = ways.mapped.iter().chain(&ways.placed);
    let outlooks = [&ways.free, &ways.bound]
        .into_iter()
        .chain(policies.filter(recommended))
        .cloned()
        .collect();
    let mut verdicts = Vec::from(verdicts);
    let contention = shared::contention(evidence);
    let shared = contention.as_ref();
    verdicts.extend(shared.map(|contention| shared::verdict(evidence, contention)));
    let shared = shared.map(|contention| shared::problem(evidence, contention));
    let problems = problems::problems(evidence, &ways, &verdicts, shared);
    Answer {
        verdicts,
        outlooks,
        problems,
    }
}

/// All ways that can be compared.
struct Ways {
    free: Outlook,
    bound: Outlook,
    /// One for each thread policy.
    mapped: Vec<Outlook>,
    /// One for each page policy.
    placed: Vec<Outlook>,
}

impl Evidence<'_> {
    /// Share of the accesses that is communication. A message costs more than an access, so its share of the accesses
    /// is not meaningful: messages count as all or nothing, by their share of the run time.
    fn ratio(&self) -> Option<f64> {
        if !self.communication.layer.is_message() {
            return self.communication.ratio;
        }
        let matters = self.communication.load_bytes > 0.0 && self.messages_take_time();
        Some(if matters { 1.0 } else { 0.0 })
    }

    /// Whether the ranks' messages would take a relevant share of the run on a slow network.
    fn messages_take_time(&self) -> bool {
        let slices = self.profile.slices();
        let start = slices.first().map_or(0, |slice| slice.start);
        let end = slices.last().map_or(0, |slice| slice.end);
        let run_ns = end.saturating_sub(start) as f64 * self.profile.threads().len() as f64;
        let c = self.communication;
        let slowest_ns = c.events * SLOW_MESSAGE_NS + c.load_bytes * SLOW_BYTE_NS;
        self.profile.meta().clock != Clock::Wall || slowest_ns >= RATIO_NEGLIGIBLE * run_ns
    }

    /// Amount of communication, as text.
    fn volume(&self) -> String {
        let c = self.communication;
        if !c.layer.is_message() {
            return c.ratio.map_or_else(
                || "how much of all accesses is communication was not observed".to_owned(),
                |ratio| format!("communication is {} of all bytes accessed", percent(ratio)),
            );
        }
        let rows = self.profile.communication().iter();
        let collective: u64 = rows
            .filter(|row| row.layer == Layer::Collective)
            .map(|row| row.bytes)
            .sum();
        let of_it = if c.layer == Layer::Sent {
            format!(
                ", {} of it in collectives",
                number::bytes(collective as f64)
            )
        } else {
            String::new()
        };
        format!(
            "the ranks sent {} in {} messages{of_it}",
            number::bytes(c.load_bytes),
            number::fixed(c.events, 0)
        )
    }

    /// Whether there is known to be so little communication that no mapping can matter.
    fn communicates_too_little(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio < RATIO_NEGLIGIBLE)
    }

    /// Whether communication is worth placing.
    fn communicates_enough(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio >= RATIO_WORTHWHILE)
    }

    /// The reason why a thread need not do the same work in another run, if known.
    fn handed_out(&self) -> Option<String> {
        let conditions = &self.profile.meta().conditions;
        match conditions.repeatability(self.profile.threads().len()) {
            Repeatability::Measured | Repeatability::Assumed => None,
            Repeatability::Differs => Some("several recordings differ".to_owned()),
            Repeatability::Dynamic => {
                let (kind, by) = conditions.open().next()?;
                let words = kind.words();
                Some(format!(
                    "work is handed out while the program runs ({words}: {by})"
                ))
            }
        }
    }

    /// The reason why page placement cannot matter, if known.
    fn pages_do_not_matter(&self) -> Option<String> {
        let mib = |bytes: u64| number::fixed(bytes as f64 / f64::from(1 << 20), 1);
        if let Some(caches) = self
            .cache_bytes
            .filter(|&caches| self.pages.memory_bytes() <= caches)
        {
            return Some(format!(
                "the program's {} MiB of pages fit into the machine's {} MiB of caches",
                mib(self.pages.memory_bytes()),
                mib(caches)
            ));
        }
        let share = self.beyond.total() as f64 / self.pages.accesses.max(1) as f64;
        (share < BEYOND_NEGLIGIBLE).then(|| {
            format!(
                "{} of the page accesses leave private caches of {} KiB: too few to matter, wherever the pages are",
                percent(share),
                self.private_cache_bytes >> 10
            )
        })
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 {
        number::fixed(percent, 0) + " %"
    } else if percent >= 0.095 {
        number::fixed(percent, 1) + " %"
    } else {
        "under 0.1 %".to_owned()
    }
}

#[cfg(test)]
mod tests;
