//! The complete characterisation of a run, as used by `show`, `report` and `diff`.
//!
//! Cost: O(rows + page cells) and the searches of [`crate::assignment`]; memory O(T² + pages + slices).

use std::ops::Range;

use numaloc_model::profile::{Amount, Clock, Profile};
use numaloc_model::segments::SegmentRule;
use numaloc_model::{CommError, CommMatrix, Layer, PageUsage};

use crate::assignment::{Goal, NodeAssignment, assign, page_affinity};
use crate::beyond_caches::beyond_private_caches;
use crate::communication::CommunicationMetrics;
use crate::concurrency::{Concurrency, concurrency_groups};
use crate::load::{MemoryLoad, memory_load};
use crate::migrations::{Migrations, migrations};
use crate::objects::{ObjectUse, object_use};
use crate::outlook::{Candidates, Outlook, Recommended};
use crate::pages::{PageMetrics, exclusivity, first_touch, inherent_exclusivity};
use crate::pattern_phases::{PatternRule, message_window, pattern_phases};
use crate::phases::{PhaseRule, phases};
use crate::remark::Remark;
use crate::roles::{Role, roles};
use crate::segments::{Segment, segments};
use crate::sharing::{Sharing, sharing};
use crate::sites::{CodeSites, code_sites};
use crate::timeline::{Timeline, timeline};
use crate::verdict::{Evidence, Problem, Verdict, verdicts};

/// Page sizes of OPT's Figs. 6 and 7, in bytes.
pub const PAGE_SIZES: [u64; 3] = [4 << 10, 2 << 20, 64 << 20];

/// Parameters of a characterisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The layer that counts as communication; `None` selects the profile's most informative layer.
    pub layer: Option<Layer>,
    /// The node of every thread if threads are bound in the order of their creation.
    pub assignment: NodeAssignment,
    /// Total size of the machine's caches, if known.
    pub cache_bytes: Option<u64>,
    /// Size of a core's private cache.
    pub private_cache_bytes: u64,
    /// Rules that name segments of memory, in the order in which they are tried.
    pub segments: Vec<SegmentRule>,
}

/// Exclusivity with pages of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExclusivityAt {
    /// Bytes per page.
    pub page_size: u64,
    /// `E_app` with the setting's assignment.
    pub assigned: f64,
    /// Largest `E_app` found over assignments.
    pub most: f64,
    /// Smallest `E_app` found over assignments.
    pub least: f64,
    /// `E_app` with a node for every thread.
    pub inherent: f64,
}

/// The characterisation of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Characterisation {
    /// The layer counted as communication.
    pub layer: Layer,
    /// Threads x threads, events.
    pub events: CommMatrix,
    /// Threads x threads, bytes.
    pub bytes: CommMatrix,
    /// DeLoc's and OPT's communication metrics.
    pub communication: CommunicationMetrics,
    /// Concurrency of the communication.
    pub concurrency: Concurrency,
    /// Communication by slice.
    pub timeline: Timeline,
    /// Slices between changes of the heterogeneity (OPT eq. 4); for messages the same as
    /// `pattern_phases`.
    pub phases: Vec<Range<usize>>,
    /// Slices between changes of the communication partners.
    pub pattern_phases: Vec<Range<usize>>,
    /// Pages under first touch.
    pub pages: PageMetrics,
    /// By page size, from the profile's own upward; empty without pages.
    pub exclusivity: Vec<ExclusivityAt>,
    /// `None` when page use by slice was not recorded or not read.
    pub migrations: Option<Migrations>,
    /// Accesses over time and by thread and node.
    pub load: MemoryLoad,
    /// Clock of the run.
    pub clock: Clock,
    /// From the first slice's start to the last one's end, in the clock's unit.
    pub duration: u64,
    /// Size of all caches of the machine together, if known.
    pub cache_bytes: Option<u64>,
    /// Use by object, the most used first.
    pub objects: Vec<ObjectUse>,
    /// Threads and processes by what they do, the most accesses first.
    pub roles: Vec<Role>,
    /// Memory by segment, the most accesses first.
    pub segments: Vec<Segment>,
    /// False and true sharing of cache lines.
    pub sharing: Sharing,
    /// Which code communicates and accesses memory, from a sample.
    pub sites: CodeSites,
    /// Page accesses that leave private caches.
    pub beyond: PageUsage,
    /// Size of a core's private cache.
    pub private_cache_bytes: u64,
    /// The verdicts on what is likely to help.
    pub verdicts: Vec<Verdict>,
    /// The ways that the verdicts compare: threads free, bound, and as recommended.
    pub outlooks: Vec<Outlook>,
    /// What is wrong, most worth first; empty if there is nothing to change.
    pub problems: Vec<Problem>,
    /// The plan that is recommended if it saves time; `None` without a model of time.
    pub plan: Option<Recommended>,
    /// Seconds without any other node's memory, queue or line, under the best changes of the source; `None` where the
    /// caller has no model of time.
    pub bound_s: Option<f64>,
    /// Remarks about memory that save more than the error of the caller's model of time.
    pub memory: Vec<Remark>,
    /// The assignment that the figures are for.
    pub assignment: NodeAssignment,
}

impl Characterisation {
    /// The matrix in the unit of its layer's weights.
    #[must_use]
    pub fn weighed(&self) -> &CommMatrix {
        match Amount::of_layer(self.layer) {
            Amount::Bytes => &self.bytes,
            Amount::Events => &self.events,
        }
    }
}

/// The default layer for showing and mapping a profile: the one its frontend observes best. For MPI ranks, everything
/// they send, in their own messages and in collectives.
#[must_use]
pub fn default_layer(profile: &Profile) -> Layer {
    default_of(&profile.layers())
}

/// The default layer of a profile that has these, in the order of [`Layer::ALL`].
#[must_use]
pub fn default_of(layers: &[Layer]) -> Layer {
    let has = |layer| layers.contains(&layer);
    if !has(Layer::WriteRead) && has(Layer::Message) && has(Layer::Collective) {
        return Layer::Sent;
    }
    let preferred = [Layer::WriteRead, Layer::Message];
    preferred
        .into_iter()
        .find(|&layer| has(layer))
        .or_else(|| layers.first().copied())
        .unwrap_or(Layer::WriteRead)
}

/// Characterises a run.
///
/// # Errors
/// [`CommError::OutOfRange`] if a row names a thread the profile does not have.
///
/// # Panics
/// If the setting's assignment has another number of threads than the profile.
pub fn characterise(profile: &Profile, setting: &Setting) -> Result<Characterisation, CommError> {
    let assignment = &setting.assignment;
    let threads = profile.threads().len();
    assert_eq!(assignment.of_thread.len(), threads, "another profile's");
    let layer = setting.layer.unwrap_or_else(|| default_layer(profile));
    let (communication, memory) = summaries(profile, layer, assignment)?;
    let CommunicationSummary {
        events,
        bytes,
        communication,
        concurrency,
        timeline,
        phases,
        pattern_phases,
    } = communication;
    let MemorySummary {
        pages,
        exclusivity,
        migrations,
        load,
        objects,
    } = memory;
    let (sharing, sites) = (sharing(profile), code_sites(profile));
    let beyond = beyond_private_caches(
        profile.pages(),
        profile.page_slices(),
        threads,
        setting.private_cache_bytes,
        profile.meta().line_size,
    );
    let answer = verdicts(&Evidence {
        profile,
        communication: &communication,
        concurrency: &concurrency,
        events: match Amount::of_layer(layer) {
            Amount::Bytes => &bytes,
            Amount::Events => &events,
        },
        pages: &pages,
        beyond: &beyond,
        objects: &objects,
        sharing: &sharing,
        sites: &sites,
        assignment,
        candidates: &Candidates::default(),
        cache_bytes: setting.cache_bytes,
        private_cache_bytes: setting.private_cache_bytes,
    });
    Ok(Characterisation {
        layer,
        exclusivity,
        migrations,
        load,
        clock: profile.meta().clock,
        duration: duration(profile),
        cache_bytes: setting.cache_bytes,
        events,
        bytes,
        communication,
        concurrency,
        timeline,
        phases,
        pattern_phases,
        pages,
        objects,
        roles: roles(profile, &beyond, assignment),
        segments: segments(profile, &beyond, assignment, &setting.segments),
        sharing,
        sites,
        beyond,
        private_cache_bytes: setting.private_cache_bytes,
        verdicts: answer.verdicts,
        outlooks: answer.outlooks,
        problems: answer.problems,
        plan: None,
        bound_s: None,
        memory: Vec::new(),
        assignment: assignment.clone(),
    })
}

/// The figures of communication and those of memory, which are independent of each other up to the verdict.
fn summaries(
    profile: &Profile,
    layer: Layer,
    assignment: &NodeAssignment,
) -> Result<(CommunicationSummary, MemorySummary), CommError> {
    let (communication, memory) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| MemorySummary::of(profile, assignment));
        let communication = CommunicationSummary::of(profile, layer);
        (communication, memory.join())
    });
    let memory = memory.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok((communication?, memory))
}

/// Time from the start of the first slice to the end of the last.
fn duration(profile: &Profile) -> u64 {
    let start = profile.slices().first().map_or(0, |slice| slice.start);
    let end = profile.slices().last().map_or(0, |slice| slice.end);
    end.saturating_sub(start)
}

impl Characterisation {
    /// Computes the verdicts again with the answers of policies for this profile. Without them, as in [`characterise`],
    /// the only mapping is a grouping of our own and the only placement is every page on its main user's node.
    pub fn judge(&mut self, profile: &Profile, candidates: &Candidates) {
        let answer = verdicts(&Evidence {
            profile,
            communication: &self.communication,
            concurrency: &self.concurrency,
            events: self.weighed(),
            pages: &self.pages,
            beyond: &self.beyond,
            objects: &self.objects,
            sharing: &self.sharing,
            sites: &self.sites,
            assignment: &self.assignment,
            candidates,
            cache_bytes: self.cache_bytes,
            private_cache_bytes: self.private_cache_bytes,
        });
        self.verdicts = answer.verdicts;
        self.outlooks = answer.outlooks;
        self.problems = answer.problems;
        self.plan.clone_from(&candidates.plan);
        self.bound_s = candidates.bound_s;
        self.memory.clone_from(&candidates.memory);
    }
}

/// Figures computed from the communication table.
struct CommunicationSummary {
    events: CommMatrix,
    bytes: CommMatrix,
    communication: CommunicationMetrics,
    concurrency: Concurrency,
    timeline: Timeline,
    phases: Vec<Range<usize>>,
    pattern_phases: Vec<Range<usize>>,
}

impl CommunicationSummary {
    fn of(profile: &Profile, layer: Layer) -> Result<Self, CommError> {
        let events = profile.matrix(layer, Amount::Events)?;
        let bytes = profile.matrix(layer, Amount::Bytes)?;
        let concurrency = concurrency_groups(profile, layer);
        let timeline = timeline(profile, layer);
        let slices = profile.slices().len();
        let messages = [Layer::Message, Layer::Collective];
        let (phases, pattern_phases) = if layer.is_message() {
            let found = pattern_phases(
                profile,
                PatternRule {
                    layers: &messages,
                    window: message_window(slices),
                    by_chance: false,
                },
            );
            (found.clone(), found)
        } else {
            let rule = PhaseRule::for_slices(slices);
            (
                phases(&timeline.heterogeneity, rule),
                pattern_phases(
                    profile,
                    PatternRule {
                        layers: &[layer],
                        window: rule.window.max(2),
                        by_chance: true,
                    },
                ),
            )
        };
        Ok(Self {
            communication: CommunicationMetrics::of_matrices(
                layer,
                &events,
                &bytes,
                profile.threads(),
                &concurrency.groups,
            ),
            phases,
            pattern_phases,
            events,
            bytes,
            concurrency,
            timeline,
        })
    }
}

/// Figures computed from the page tables.
struct MemorySummary {
    pages: PageMetrics,
    exclusivity: Vec<ExclusivityAt>,
    migrations: Option<Migrations>,
    load: MemoryLoad,
    objects: Vec<ObjectUse>,
}

impl MemorySummary {
    fn of(profile: &Profile, assignment: &NodeAssignment) -> Self {
        Self {
            pages: PageMetrics::of(
                profile.pages(),
                assignment,
                &first_touch(profile.pages(), assignment),
            ),
            exclusivity: exclusivity_by_size(profile, assignment),
            migrations: migrations(profile, assignment),
            load: memory_load(profile, assignment),
            objects: object_use(profile, assignment),
        }
    }
}

/// OPT's Figs. 6 and 7: `E_app` by page size for the assignment and for the extremes found. The profile's
/// own size comes first, then the larger ones of [`PAGE_SIZES`] that are multiples of it.
#[must_use]
pub fn exclusivity_by_size(profile: &Profile, assignment: &NodeAssignment) -> Vec<ExclusivityAt> {
    let own = profile.pages().page_size();
    if profile.pages().pages().is_empty() || own == 0 {
        return Vec::new();
    }
    let larger = PAGE_SIZES
        .into_iter()
        .filter(|&size| size > own && size.is_multiple_of(own));
    std::iter::once(own)
        .chain(larger)
        .filter_map(|page_size| {
            let merged;
            let usage = if page_size == own {
                profile.pages()
            } else {
                merged = profile.pages().merged(page_size);
                &merged
            };
            let assigned = exclusivity(usage, assignment)?;
            let affinity = page_affinity(usage, profile.threads().len());
            let mut most = assigned;
            let mut least = assigned;
            for goal in [Goal::Together, Goal::Apart] {
                let found = exclusivity(usage, &assign(&affinity, assignment.homes.len(), goal))?;
                most = most.max(found);
                least = least.min(found);
            }
            Some(ExclusivityAt {
                page_size,
                assigned,
                most,
                least,
                inherent: inherent_exclusivity(usage)?,
            })
        })
        .collect()
}
