//! What is likely to help this program, and why.
//!
//! The papers' claim (DeLoc III, OPT 4.3 and 5.4, data mapping II) is that measured behaviour tells which
//! kind of placement pays. They give directions (more is better), not thresholds; ours are the constants
//! below, each with its reason, and `docs/metrics.md` says how often they were right on our own
//! workloads. Gains are shares of accesses or communication, never seconds: no clock is consulted.
//!
//! `cannot tell` is an answer: between the thresholds, or when what would decide was not observed.

use numaloc_model::profile::{Amount, Profile};
use numaloc_model::{CommError, CommMatrix, Layer, ThreadIdx, number};

use crate::assignment::{Goal, NodeAssignment, assign};
use crate::communication::{CommunicationMetrics, undirected};
use crate::concurrency::Concurrency;
use crate::mapping_cost::{imbalance, remote_share};
use crate::objects::ObjectUse;
use crate::pages::PageMetrics;
use crate::sharing::Sharing;

/// Communication below this share of the accessed bytes cannot matter: even if all of it were remote at
/// three times the latency, the run would change by less than one per cent.
pub const RATIO_NEGLIGIBLE: f64 = 0.003;
/// From this share on, communication is worth placing.
pub const RATIO_WORTHWHILE: f64 = 0.01;
/// Remote share of the communication that grouping must save over an arbitrary mapping.
pub const REMOTE_GAIN: f64 = 0.15;
/// Saving below this is noise of the grouping search.
pub const REMOTE_GAIN_NEGLIGIBLE: f64 = 0.05;
/// Tasks that communicate at the same time (`CommC`) from which congestion is a risk.
pub const CONCURRENT: f64 = 0.5;
/// Communication load of the busiest node over the mean, under the best grouping.
pub const CONGESTED: f64 = 1.25;
/// Share of the page accesses that placement must turn from remote to local.
pub const LOCAL_GAIN: f64 = 0.10;
/// Gains below this are not worth a plan.
pub const LOCAL_GAIN_NEGLIGIBLE: f64 = 0.03;
/// Access balance under first touch below which one controller answers far too much.
pub const UNBALANCED: f64 = 0.60;

/// Share of false sharing in the communication from which to repair the program comes first.
pub const FALSE_SHARE: f64 = 0.2;

/// Whether something is worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// The deciding metrics all speak for it.
    Likely,
    /// One of them rules it out.
    Unlikely,
    /// Between the thresholds, or not observed.
    CannotTell,
}

impl Likelihood {
    /// The words users read.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Likely => "likely to help",
            Self::Unlikely => "unlikely to help",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// What the verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Put threads that communicate on one node.
    ThreadMapping,
    /// Spread concurrent communication over the nodes (DeLoc).
    CongestionAware,
    /// Put pages on the nodes that use them.
    PagePlacement,
}

impl Measure {
    /// The words users read.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ThreadMapping => "thread mapping",
            Self::CongestionAware => "congestion-aware mapping",
            Self::PagePlacement => "page placement",
        }
    }

    /// Stable name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreadMapping => "thread_mapping",
            Self::CongestionAware => "congestion_aware_mapping",
            Self::PagePlacement => "page_placement",
        }
    }
}

/// One line of the verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// About what.
    pub measure: Measure,
    /// The answer.
    pub likelihood: Likelihood,
    /// The numbers that decided.
    pub reason: String,
    /// What a person can do about it, where there is something.
    pub action: Option<String>,
}

impl Verdict {
    /// Reason and action in one piece.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.action {
            Some(action) => format!("{}. {action}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// What [`verdicts`] looks at.
pub struct Evidence<'a> {
    /// The run.
    pub profile: &'a Profile,
    /// Its communication.
    pub communication: &'a CommunicationMetrics,
    /// What communicates at the same time.
    pub concurrency: &'a Concurrency,
    /// Pages under first touch with the assignment below.
    pub pages: &'a PageMetrics,
    /// Use by object, the most used first.
    pub objects: &'a [ObjectUse],
    /// False and true sharing of lines.
    pub sharing: &'a Sharing,
    /// Threads to nodes as they would be without a plan.
    pub assignment: &'a NodeAssignment,
    /// Size of all caches of the machine together, where known (OPT eq. 7).
    pub cache_bytes: Option<u64>,
}

/// The three verdicts, in the order of [`Measure`].
///
/// # Errors
/// [`CommError::OutOfRange`] if a row names a thread the profile does not have.
pub fn verdicts(evidence: &Evidence<'_>) -> Result<[Verdict; 3], CommError> {
    let matrix = evidence
        .profile
        .matrix(evidence.communication.layer, Amount::Events)?;
    let grouped = Grouped::of(&matrix, evidence);
    let mut mapping = thread_mapping(evidence, &grouped);
    if mapping.likelihood != Likelihood::Unlikely
        && let Some(repair) = false_sharing(evidence)
    {
        mapping.action = Some(match mapping.action {
            Some(action) => format!("{repair}. Then {}", lower_first(&action)),
            None => repair,
        });
    }
    Ok([
        mapping,
        congestion_aware(evidence, &grouped),
        page_placement(evidence),
    ])
}

/// What grouping by communication would do.
struct Grouped {
    /// Remote share of an arbitrary mapping: the mean over all of them.
    arbitrary: f64,
    /// Remote share of the best grouping found.
    best: f64,
    /// Largest node communication load over the mean under that grouping.
    imbalance: f64,
}

impl Grouped {
    fn of(matrix: &CommMatrix, evidence: &Evidence<'_>) -> Self {
        let layer = evidence.communication.layer;
        let nodes = evidence.assignment.nodes;
        let threads = matrix.threads();
        let common = undirected(matrix, layer);
        let best = assign(&common, nodes, Goal::Together);
        // Two threads of T are on one node with chance (s-1)/(T-1), s = T/N threads on each node.
        let arbitrary = if threads > 1 {
            1.0 - ((threads as f64 / nodes as f64) - 1.0).max(0.0) / (threads as f64 - 1.0)
        } else {
            0.0
        };
        let mut loads = vec![0.0; nodes];
        for (src, _, amount) in common.cells() {
            loads[best.node(src)] += amount;
        }
        Self {
            arbitrary,
            best: remote_share(matrix, layer, &best),
            imbalance: imbalance(&loads),
        }
    }
}

fn is_message(layer: Layer) -> bool {
    matches!(layer, Layer::Message | Layer::Collective)
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

fn thread_mapping(evidence: &Evidence<'_>, grouped: &Grouped) -> Verdict {
    let verdict = |likelihood, reason| Verdict {
        measure: Measure::ThreadMapping,
        likelihood,
        reason,
        action: None,
    };
    let c = evidence.communication;
    let nodes = evidence.assignment.nodes;
    if nodes < 2 {
        return verdict(
            Likelihood::Unlikely,
            "the machine has one NUMA node: no communication can be remote".to_owned(),
        );
    }
    if c.events == 0.0 {
        return verdict(
            Likelihood::Unlikely,
            "no communication was observed".to_owned(),
        );
    }
    let gain = grouped.arbitrary - grouped.best;
    let groups = format!(
        "grouping threads by communication leaves {} of it between {nodes} nodes; an arbitrary mapping \
         leaves {}",
        percent(grouped.best),
        percent(grouped.arbitrary)
    );
    // Messages are all the communication there is: their share of the memory accesses says nothing.
    let ratio = if is_message(c.layer) {
        Some(1.0)
    } else {
        c.ratio
    };
    let volume = ratio.map_or_else(
        || "how much of all accesses that is was not observed".to_owned(),
        |ratio| format!("communication is {} of all bytes accessed", percent(ratio)),
    );
    match ratio {
        Some(ratio) if ratio < RATIO_NEGLIGIBLE => verdict(
            Likelihood::Unlikely,
            format!("{volume}: too little to matter, wherever the threads are"),
        ),
        _ if gain < REMOTE_GAIN_NEGLIGIBLE => verdict(
            Likelihood::Unlikely,
            format!(
                "{groups}: everybody talks to everybody alike (heterogeneity {})",
                number::fixed(c.heterogeneity, 0)
            ),
        ),
        Some(ratio) if ratio >= RATIO_WORTHWHILE && gain >= REMOTE_GAIN => Verdict {
            action: Some("Put threads that talk on one node (--threads locality)".to_owned()),
            ..verdict(Likelihood::Likely, format!("{volume}, and {groups}"))
        },
        _ => verdict(Likelihood::CannotTell, format!("{volume}; {groups}")),
    }
}

/// What beats any mapping of false sharing: to end it in the source.
fn false_sharing(evidence: &Evidence<'_>) -> Option<String> {
    let share = evidence.sharing.false_share?;
    let most = evidence.sharing.memory.first()?;
    let applies = evidence.communication.layer == Layer::WriteRead && share >= FALSE_SHARE;
    applies.then(|| {
        format!(
            "{} of it is false sharing, most of it in `{}`: give each thread lines of its own first",
            percent(share),
            most.label(evidence.profile)
        )
    })
}

fn congestion_aware(evidence: &Evidence<'_>, grouped: &Grouped) -> Verdict {
    let verdict = |likelihood, reason| Verdict {
        measure: Measure::CongestionAware,
        likelihood,
        reason,
        action: None,
    };
    let c = evidence.communication;
    let Some(concurrency) = c.concurrency.filter(|_| evidence.assignment.nodes > 1) else {
        return verdict(
            Likelihood::Unlikely,
            "nothing communicates between nodes, so nothing can congest them".to_owned(),
        );
    };
    let k = evidence.concurrency.k;
    let worthwhile = is_message(c.layer) || c.ratio.is_some_and(|r| r >= RATIO_WORTHWHILE);
    let together = if k == 1 {
        format!(
            "{} of the threads communicate at the same time",
            percent(concurrency)
        )
    } else {
        format!(
            "in a cluster of concurrent communication ({k} in the run) {} of the threads take part",
            percent(concurrency)
        )
    };
    let busiest = format!(
        "with threads grouped by communication the busiest node has {} times the mean load",
        number::fixed(grouped.imbalance, 2)
    );
    match c.ratio {
        Some(ratio) if ratio < RATIO_NEGLIGIBLE && !is_message(c.layer) => verdict(
            Likelihood::Unlikely,
            format!(
                "communication is {} of all bytes accessed: it congests nothing",
                percent(ratio)
            ),
        ),
        _ if concurrency < CONCURRENT / 2.0 => verdict(
            Likelihood::Unlikely,
            format!("{together}: few communicate at the same time"),
        ),
        _ if worthwhile && concurrency >= CONCURRENT && grouped.imbalance >= CONGESTED => Verdict {
            action: Some("Spread concurrent pairs over the nodes (--threads deloc)".to_owned()),
            ..verdict(Likelihood::Likely, format!("{together}, and {busiest}"))
        },
        _ if grouped.imbalance < 1.0 + (CONGESTED - 1.0) / 2.0 => verdict(
            Likelihood::Unlikely,
            format!("{together}, but {busiest}: grouping already spreads the load"),
        ),
        _ => verdict(Likelihood::CannotTell, format!("{together}; {busiest}")),
    }
}

fn page_placement(evidence: &Evidence<'_>) -> Verdict {
    let verdict = |likelihood, reason, action| Verdict {
        measure: Measure::PagePlacement,
        likelihood,
        reason,
        action,
    };
    let p = evidence.pages;
    if evidence.assignment.nodes < 2 {
        return verdict(
            Likelihood::Unlikely,
            "the machine has one NUMA node: every page is local".to_owned(),
            None,
        );
    }
    let (Some(best), Some(local), Some(balance)) = (p.exclusivity, p.local_share, p.access_balance)
    else {
        return verdict(
            Likelihood::CannotTell,
            "page use was not observed in this profile".to_owned(),
            None,
        );
    };
    if let Some(caches) = evidence
        .cache_bytes
        .filter(|&caches| p.memory_bytes() <= caches)
    {
        return verdict(
            Likelihood::Unlikely,
            format!(
                "the program's {:.1} MiB of pages fit into the machine's {:.1} MiB of caches",
                p.memory_bytes() as f64 / f64::from(1 << 20),
                caches as f64 / f64::from(1 << 20)
            ),
            None,
        );
    }
    let gain = best - local;
    let today = format!(
        "first touch makes {} of the accesses local, the best node for every page {}; access balance {}",
        percent(local),
        percent(best),
        number::fixed(balance, 2)
    );
    if gain >= LOCAL_GAIN || balance < UNBALANCED {
        verdict(Likelihood::Likely, today, culprit(evidence))
    } else if gain < LOCAL_GAIN_NEGLIGIBLE {
        let reason = format!("{today}: first touch is already right");
        verdict(Likelihood::Unlikely, reason, None)
    } else {
        verdict(Likelihood::CannotTell, today, culprit(evidence))
    }
}

/// The sentence a person can act on: the object that loses most to first touch.
fn culprit(evidence: &Evidence<'_>) -> Option<String> {
    let lost = |o: &ObjectUse| (o.exclusivity - o.local_share) * o.accesses() as f64;
    let remote = |o: &ObjectUse| (1.0 - o.local_share) * o.accesses() as f64;
    // What placement can win; where every page is shared alike, what one node has to answer.
    let worst = evidence
        .objects
        .iter()
        .filter(|o| o.threads > 1 && o.first_toucher.is_some())
        .max_by(|a, b| (lost(a) + 0.1 * remote(a)).total_cmp(&(lost(b) + 0.1 * remote(b))))?;
    let (thread, _) = worst.first_toucher?;
    let label = evidence.profile.threads[thread.index()].label.as_deref();
    let who = match (thread, label) {
        (ThreadIdx(0), _) => "The main thread".to_owned(),
        (thread, Some(routine)) => format!("Thread {} ({routine})", thread.0),
        (thread, None) => format!("Thread {}", thread.0),
    };
    let name = match (
        worst.object(evidence.profile),
        worst.variable(evidence.profile),
    ) {
        (None, _) => "memory without a name".to_owned(),
        (Some(_), Some(variable)) => match &variable.source {
            Some(source) => format!("`{}` ({source})", variable.name),
            None => format!("`{}`", variable.name),
        },
        (Some(object), None) => {
            format!("{} `{}`", object.kind.name(), worst.label(evidence.profile))
        }
    };
    Some(format!(
        "{who} initialised {} of the {} pages of {name}, which {} threads then use: place {}",
        percent(worst.first_touch_share()),
        worst.pages,
        worst.threads,
        if worst.pages == 1 { "it" } else { "them" },
    ))
}
