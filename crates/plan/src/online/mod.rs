//! Online placement: decides from observed accesses of a running program which of its threads and pages move.
//!
//! OPT (2015) does this with page faults that it causes (sections 6.1 to 6.3). The conditions, the comparison of gain
//! and cost and the policies are those of planned moves ([`mod@crate::dynamic`]). What differs: the future is not
//! known ([`lengths`]). A gain below [`LEAST_GAIN`] of the phase's time is taken for noise.
//!
//! | module | does |
//! |---|---|
//! | [`autopin`] | tries mappings instead: the baseline that knows nothing of accesses |
//! | [`estimates`] | decaying estimates of page use and communication |
//! | [`detect`] | recognises new phases |
//! | [`lengths`] | for how long a phase is expected to go on |
//! | [`options`] | the constants |
//! | [`policies`] | any thread and page policy, applied to estimates |
//!
//! No clock and no I/O: the caller brings observations with their times, and carries decisions out. The same
//! observations give the same decisions.

pub mod autopin;
pub mod detect;
pub mod estimates;
pub mod lengths;
pub mod options;
pub mod policies;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use numaloc_analysis::beyond_caches::HOT;
use numaloc_analysis::communication;
use numaloc_model::pages::{PageHead, PageUsage, ThreadAccess};
use numaloc_model::{Access, CommMatrix, Layer, LogicalNode, LogicalPu, PageNumber, ThreadIdx};
use numaloc_placement::joint::Weights;
use numaloc_topology::Topology;

use crate::dynamic::ways::{Occasion, Policies, Ways};
use crate::dynamic::{Phase, Unmet};
use crate::error::PlanError;
use lengths::Lengths;

pub use detect::{Changes, Detector, Window};
pub use estimates::Estimates;
pub use options::{Amounts, Constants, Evidence};

/// Least share of the phase's time for memory and communication that moves must gain.
pub const LEAST_GAIN: f64 = 0.05;
/// Accesses that a window must have, or else it is open for up to [`MOST_WINDOWS`] times its length.
const LEAST_LOAD: f64 = 64.0;
const MOST_WINDOWS: f64 = 40.0;
/// A mapping made from few observations may be a wrong one: it is checked again when there are this many times as many.
const MORE: u64 = 4;
/// A phase is decided about after [`SETTLING_S`], when it has this many observations or has lasted this many seconds:
/// what moves before most threads are in their places must move once more.
const DECISIVE: (u64, f64) = (1024, 2.0);
/// Time in which a phase begins, in seconds: threads are created, memory is initialised.
const SETTLING_S: f64 = 1.0;
/// Time of a phase in which pages wait for threads to be mapped, in seconds: a thread that moves makes moves of pages
/// to where it was superfluous.
const THREADS_FIRST_S: f64 = 3.0;
const PAGE: u64 = 4096;

/// Where the program is now.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// The PU of each thread that lives, by its number.
    pub threads: BTreeMap<usize, LogicalPu>,
    /// The node of each page that was asked about and exists, by its number.
    pub pages: BTreeMap<u64, LogicalNode>,
}

/// What moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Threads and the PUs to which they are bound from now on.
    pub threads: Vec<(usize, LogicalPu)>,
    /// Pages and their new nodes.
    pub pages: Vec<(u64, LogicalNode)>,
    /// Predicted gain in seconds, if the phase goes on as long as assumed.
    pub gain_s: f64,
    /// Predicted cost in seconds.
    pub cost_s: f64,
    /// Why threads do not move to another mapping; `None` if they do.
    pub unmet: Option<Unmet>,
}

/// The present phase as estimated.
struct Estimated {
    phase: Phase,
    /// The node of each of its pages.
    nodes: Vec<Option<LogicalNode>>,
    /// Time for accesses to pages that are left out of it, because caches are assumed to serve them, in seconds.
    cached_s: f64,
}

/// The threads that make most accesses to one of `pages`, by index in the phase.
fn users_of(phase: &Phase, pages: &[(u32, LogicalNode)]) -> BTreeSet<usize> {
    let all = phase.usage.pages();
    let users = pages.iter().filter_map(|(at, _)| {
        let accesses = phase.usage.accesses(&all[*at as usize]).iter();
        accesses.max_by_key(|access| access.total())
    });
    users.map(|access| access.thread.index()).collect()
}

/// The rate of the page by which half of all observations are reached, the pages with most of them first: one page that
/// faults all the time, as a guard page does, does not make the others rare.
fn usual_rate(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(|a, b| b.total_cmp(a));
    let half = rates.iter().sum::<f64>() / 2.0;
    let mut so_far = 0.0;
    let usual = rates.into_iter().find(|rate| {
        so_far += rate;
        so_far >= half
    });
    usual.unwrap_or(0.0)
}

/// Decides which threads and pages of a running program move; see the module.
pub struct Online<'a> {
    policies: &'a dyn Policies,
    machine: &'a Topology,
    constants: Constants,
    /// Page use, and which threads are active.
    estimates: Estimates,
    /// Communication, if it is estimated from other accesses than page use is.
    partners: Option<Estimates>,
    changes: Changes,
    window: Window,
    window_end_s: Option<f64>,
    phase_start_s: Option<f64>,
    lengths: Lengths,
    phases: u64,
    /// Why threads did not move at the last decision.
    stayed: Option<Unmet>,
    /// Threads have not been mapped for this phase.
    pending: bool,
    /// Observations of this phase from which threads were mapped last.
    mapped_from: Option<u64>,
    bound: BTreeMap<usize, LogicalPu>,
    threads_moved_s: Option<f64>,
    pages_moved_s: Option<f64>,
    decided_s: Option<f64>,
}

impl<'a> Online<'a> {
    /// Nothing observed yet.
    #[must_use]
    pub fn new(policies: &'a dyn Policies, machine: &'a Topology, constants: Constants) -> Self {
        let least_difference = constants.dynamics.least_difference;
        let separate = constants.communication_by != constants.pages_by;
        Self {
            policies,
            machine,
            constants,
            estimates: Estimates::new(constants.half_life_s),
            partners: separate.then(|| Estimates::new(constants.half_life_s)),
            changes: Changes::new(
                constants.detector,
                constants.windows.max(1),
                least_difference,
            ),
            window: Window::default(),
            window_end_s: None,
            phase_start_s: None,
            lengths: Lengths::default(),
            phases: 0,
            stayed: None,
            pending: true,
            mapped_from: None,
            bound: BTreeMap::new(),
            threads_moved_s: None,
            pages_moved_s: None,
            decided_s: None,
        }
    }

    /// Notes an access of a thread, by a number of the caller's.
    pub fn observe(&mut self, thread: usize, access: &Access, time_s: f64) {
        let connects = self.constants.communication_by.counts(access);
        let uses = self.constants.pages_by.counts(access);
        if !connects && !uses {
            return;
        }
        self.advance(time_s);
        self.phase_start_s.get_or_insert(time_s);
        let page = access.address / PAGE;
        let seen = uses.then(|| self.estimates.note(thread, page, time_s));
        let last = match &mut self.partners {
            None => seen,
            Some(partners) => connects.then(|| partners.note(thread, page, time_s)),
        };
        let Some(last) = last else { return };
        let samples = self.samples();
        let few = |from: &u64| samples >= from * MORE;
        if self.mapped_from.as_ref().is_some_and(few) {
            self.pending = true;
            self.mapped_from = None;
        }
        self.window
            .add(thread.min(estimates::MOST_THREADS - 1), last.as_slice());
    }

    /// A thread has ended; its number may be given to another one.
    pub fn ended(&mut self, thread: usize) {
        self.estimates.ended(thread);
        if let Some(partners) = &mut self.partners {
            partners.ended(thread);
        }
        self.bound.remove(&thread);
    }

    /// The estimates of communication.
    fn partners(&self) -> &Estimates {
        self.partners.as_ref().unwrap_or(&self.estimates)
    }

    /// Observations of this phase by which threads are mapped.
    fn samples(&self) -> u64 {
        self.partners().samples()
    }

    /// Phases recognised so far, after the first.
    #[must_use]
    pub fn phases(&self) -> u64 {
        self.phases
    }

    /// Why threads did not move to another mapping at the last decision; `None` if they did.
    #[must_use]
    pub fn stayed(&self) -> Option<Unmet> {
        self.stayed
    }

    /// Closes the windows that end by `now_s`.
    pub fn advance(&mut self, now_s: f64) {
        let window_s = self.constants.window_s;
        let end_s = *self.window_end_s.get_or_insert(now_s + window_s);
        if now_s < end_s {
            return;
        }
        // Few accesses show no pattern: the window stays open for more.
        let open_s = now_s - end_s + window_s;
        if self.window.load() < LEAST_LOAD && open_s < MOST_WINDOWS * window_s {
            return;
        }
        // Of a long silence, as many windows as are compared.
        let passed = ((now_s - end_s) / window_s) as usize + 1;
        self.window_end_s = Some(end_s + passed as f64 * window_s);
        let mut window = std::mem::take(&mut self.window);
        for _ in 0..passed.min(2 * self.constants.windows) {
            if let Some(ago) = self.changes.push(std::mem::take(&mut window)) {
                // What was observed before says nothing of this phase.
                self.estimates = Estimates::new(self.constants.half_life_s);
                if let Some(partners) = &mut self.partners {
                    *partners = self.estimates.clone();
                }
                let start_s = now_s - ago as f64 * window_s;
                let length_s = self.phase_start_s.map(|before_s| start_s - before_s);
                length_s.into_iter().for_each(|s| self.lengths.note(s));
                self.phase_start_s = Some(start_s);
                self.pending = true;
                self.mapped_from = None;
                self.phases += 1;
            }
        }
    }

    /// The pages (addresses) whose nodes a decision needs; `None` if there is nothing to decide now.
    #[must_use]
    pub fn due(&self, now_s: f64) -> Option<Vec<u64>> {
        let recently = self
            .decided_s
            .is_some_and(|decided| now_s - decided < self.constants.decision_s);
        let samples = self.samples().max(self.estimates.samples());
        let phase_s = now_s - self.phase_start_s.unwrap_or(now_s);
        let few = samples < DECISIVE.0 && phase_s < DECISIVE.1;
        let early = few || phase_s < SETTLING_S;
        if recently || early || samples < self.constants.least_samples {
            return None;
        }
        let since_pages_s = self.pages_moved_s.map(|moved| now_s - moved);
        let pages = self.constants.dynamics.allows_pages(since_pages_s);
        let pages = pages.then(|| self.estimates.uses(now_s));
        let pages: Vec<u64> = pages
            .into_iter()
            .flatten()
            .map(|(page, _)| page * PAGE)
            .collect();
        (self.pending || !pages.is_empty()).then_some(pages)
    }

    /// Decides what moves. `None`: nothing.
    ///
    /// # Errors
    /// [`PlanError`] of a policy.
    pub fn decide(&mut self, now_s: f64, present: &Present) -> Result<Option<Decision>, PlanError> {
        self.decided_s = Some(now_s);
        let mut active = self.estimates.active(now_s);
        active.extend(self.partners().active(now_s));
        active.sort_unstable();
        active.dedup();
        active.retain(|thread| present.threads.contains_key(thread));
        let threads = active;
        if threads.len() < 2 {
            return Ok(None);
        }
        let phase_s = now_s - self.phase_start_s.unwrap_or(now_s);
        let Estimated {
            phase,
            nodes,
            cached_s,
        } = self.phase(now_s, &threads, present)?;
        let mut ways = Ways::new(
            self.policies,
            self.machine,
            &self.constants.dynamics,
            nodes.len(),
        );
        ways.pu = self.settled(&threads, present);
        ways.node = nodes;
        ways.each_page_pays = true;
        ways.threads_moved_s = self.threads_moved_s;
        ways.pages_moved_s = self.pages_moved_s;
        let occasion = Occasion {
            phase_changed: self.pending,
            pages_may_move: true,
        };
        let (step, seconds) = ways.step(0, occasion, &phase)?;
        self.stayed = step.unmet;
        let stay_s = seconds - step.cost_s + step.gain_s + cached_s;
        let moves = !step.threads.is_empty() || !step.pages.is_empty();
        if step.unmet == Some(Unmet::SameMapping) {
            self.mapped();
        }
        if !moves || step.gain_s < LEAST_GAIN * stay_s {
            return Ok(None);
        }
        if step.threads.is_empty() && self.awaits_threads(step.unmet) && phase_s < THREADS_FIRST_S {
            // Where threads go next, other pages would be near them.
            return Ok(None);
        }
        if !step.threads.is_empty() {
            self.threads_moved_s = Some(now_s);
            self.mapped();
        }
        if !step.pages.is_empty() {
            self.pages_moved_s = Some(now_s);
        }
        let mapped = threads.iter().copied().zip(step.mapping.pu.iter().copied());
        // Without another mapping only threads are bound for whose sake a page moves: the kernel may move the others.
        let users = users_of(&phase, &step.pages);
        let all = !step.threads.is_empty();
        let bound: Vec<(usize, LogicalPu)> = mapped
            .enumerate()
            .filter(|(at, _)| all || users.contains(at))
            .map(|(_, bound)| bound)
            .filter(|(thread, pu)| self.bound.get(thread) != Some(pu))
            .collect();
        self.bound.extend(bound.iter().copied());
        let pages = step.pages.iter();
        let number = |at: u32| phase.usage.pages()[at as usize].number.0;
        Ok(Some(Decision {
            threads: bound,
            pages: pages.map(|&(at, node)| (number(at) * PAGE, node)).collect(),
            gain_s: step.gain_s,
            cost_s: step.cost_s,
            unmet: step.unmet,
        }))
    }

    /// Whether threads may still move in this phase, once more is observed: `unmet` is why they do not move now.
    fn awaits_threads(&self, unmet: Option<Unmet>) -> bool {
        self.pending && !matches!(unmet, Some(Unmet::SameMapping | Unmet::NotWorthIt { .. }))
    }

    /// Threads are where the policy wants them, by what has been observed so far.
    fn mapped(&mut self) {
        self.pending = false;
        self.mapped_from = Some(self.samples());
    }

    /// The present phase as estimated: threads by their index in `threads`, pages that exist, with their nodes.
    fn phase(
        &self,
        now_s: f64,
        threads: &[usize],
        present: &Present,
    ) -> Result<Estimated, PlanError> {
        let start_s = self.phase_start_s.unwrap_or(now_s);
        let length_s = self.lengths.remaining_s(now_s - start_s);
        let length_s = length_s.max(self.constants.window_s);
        let per_sample = match self.constants.amounts {
            Amounts::PerSample(accesses) => accesses,
            Amounts::PerThreadSecond(rate) => {
                rate * threads.len() as f64 / self.estimates.samples_per_s(now_s).max(1e-9)
            }
        };
        let amount = |per_s: f64| per_s * length_s * per_sample;
        let pairs = self.partners().pairs_per_s(threads, now_s).into_iter();
        // Policies and costs look at both directions together.
        let cells = pairs.flat_map(|(one, other, per_s)| {
            let half = amount(per_s) / 2.0;
            [(one, other, half), (other, one, half)]
        });
        let weights = CommMatrix::from_cells(threads.len(), cells.filter(|cell| cell.2 > 0.0))?;
        let (mut usage, mut nodes) = (PageUsage::new(PAGE), Vec::new());
        let waits_for_none = self.waits_for_none(now_s, threads);
        let mut cached = 0;
        for (page, uses) in self.estimates.uses(now_s) {
            let Some(&node) = present.pages.get(&page) else {
                continue;
            };
            let accesses = uses.iter().filter_map(|&(thread, per_s)| {
                let thread = threads.binary_search(&thread).ok()?;
                Some(ThreadAccess {
                    thread: ThreadIdx(thread as u32),
                    reads: (amount(per_s).round() as u64).max(1),
                    writes: 0,
                })
            });
            let accesses: Vec<ThreadAccess> = accesses.collect();
            let total: u64 = accesses.iter().map(ThreadAccess::total).sum();
            let Some(most) = accesses.iter().max_by_key(|of| of.total()) else {
                continue;
            };
            let is_alone = most.total() * HOT >= total * (HOT - 1);
            if is_alone && waits_for_none[most.thread.index()] {
                cached += total;
                continue;
            }
            let head = PageHead {
                number: PageNumber(page),
                object: None,
                object_page: 0,
                first_touch: None,
                first_touch_time: 0,
                policy: None,
            };
            usage.push(head, accesses);
            nodes.push(Some(node));
        }
        let layer = Layer::WriteRead;
        let phase = Phase {
            slices: 0..0,
            // Times since the last moves are counted from the beginning of the phase: here, from now.
            start_s: now_s,
            length_s,
            heterogeneity: communication::heterogeneity(&weights, layer),
            events_per_s: communication::amount(&weights, layer) / length_s,
            lines: weights.clone(),
            weights,
            page: (0..nodes.len() as u32).collect(),
            usage,
        };
        let latency_s = Weights::of(self.machine).local_latency_s;
        Ok(Estimated {
            phase,
            nodes,
            cached_s: cached as f64 * latency_s / threads.len() as f64,
        })
    }

    /// Which of `threads` wait for none of the memory that they alone use, as far as is seen
    /// ([`Constants::writes_only_beyond`]).
    fn waits_for_none(&self, now_s: f64, threads: &[usize]) -> Vec<bool> {
        let Some(cache) = self.constants.writes_only_beyond else {
            return vec![false; threads.len()];
        };
        let mut rates = vec![Vec::new(); threads.len()];
        for (_, uses) in self.estimates.uses(now_s) {
            for (thread, per_s) in uses {
                if let Ok(thread) = threads.binary_search(&thread) {
                    rates[thread].push(per_s);
                }
            }
        }
        let fits = |rates: Vec<f64>| {
            // Not what the thread used once: when it began, or for others.
            let usual = usual_rate(rates.clone());
            let used = rates.iter().filter(|&&rate| rate * HOT as f64 >= usual);
            used.count() as u64 * PAGE <= cache
        };
        rates.into_iter().map(fits).collect()
    }

    /// The PU of each of `threads`: the one that it is bound to, or else the one that it runs on, or else a free one,
    /// of the same node if possible. If there are more threads than PUs, they stay where they run.
    fn settled(&self, threads: &[usize], present: &Present) -> Vec<LogicalPu> {
        let bound = threads.iter().map(|thread| self.bound.get(thread).copied());
        let bound: Vec<Option<LogicalPu>> = bound.collect();
        let mut taken = vec![false; self.machine.pus().len()];
        bound
            .iter()
            .flatten()
            .for_each(|pu| taken[pu.index()] = true);
        let mut settled = Vec::new();
        for (thread, bound) in threads.iter().zip(bound) {
            let runs = present.threads.get(thread).copied().unwrap_or(LogicalPu(0));
            let free = || {
                let all = (0..taken.len() as u32).map(LogicalPu);
                let free: Vec<LogicalPu> = all.filter(|pu| !taken[pu.index()]).collect();
                let node = self.machine.node_of(runs);
                let near = free.iter().find(|pu| self.machine.node_of(**pu) == node);
                near.or(free.first()).copied()
            };
            let pu = match bound {
                Some(pu) => pu,
                None if !taken[runs.index()] => runs,
                None => free().unwrap_or(runs),
            };
            taken[pu.index()] = true;
            settled.push(pu);
        }
        settled
    }
}
