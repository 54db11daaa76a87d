//! The ways through a phase, and the best of them: to stay, to move threads, pages, or both.
//!
//! Used for planned moves ([`super::schedule`]) and for a running program (`online`).

use numaloc_model::pages::PageUsage;
use numaloc_model::{LogicalNode, LogicalPu, Mapping};
use numaloc_placement::joint::{Objective, Weights};
use numaloc_topology::Topology;

use super::align::{Moving, aligned};
use super::conditions::{Situation, Unmet};
use super::options::Dynamics;
use super::phases::{Phase, main_user};
use crate::error::PlanError;

/// The policies of a schedule.
pub trait Policies {
    /// Maps the threads by the communication of a phase.
    ///
    /// # Errors
    /// [`PlanError`] if the policy fails.
    fn map(&self, phase: &Phase) -> Result<Mapping, PlanError>;

    /// Chooses the node of each page of `usage`, with the threads at `mapping`; `None` leaves a page where it is first
    /// touched.
    ///
    /// # Errors
    /// [`PlanError`] if the policy fails.
    fn place(
        &self,
        usage: &PageUsage,
        mapping: &Mapping,
    ) -> Result<Vec<Option<LogicalNode>>, PlanError>;
}

/// The moves at the beginning of a phase, or why there are none.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index of the phase.
    pub phase: usize,
    /// The mapping in this phase.
    pub mapping: Mapping,
    /// Threads that move, by index in the profile.
    pub threads: Vec<usize>,
    /// Pages that move, by index in the profile, and their new nodes.
    pub pages: Vec<(u32, LogicalNode)>,
    /// Predicted time gained in the phase, in seconds.
    pub gain_s: f64,
    /// Predicted time of the moves, in seconds.
    pub cost_s: f64,
    /// Why the threads did not move; `None` if they did.
    pub unmet: Option<Unmet>,
}

/// Decides what moves, phase by phase, and knows where threads and pages are.
pub(crate) struct Ways<'a> {
    pub(super) policies: &'a dyn Policies,
    pub(super) machine: &'a Topology,
    pub(super) dynamics: &'a Dynamics,
    pub(crate) pu: Vec<LogicalPu>,
    /// The present node of each page of the profile; `None`: not used yet.
    pub(crate) node: Vec<Option<LogicalNode>>,
    /// Where each page is placed when it appears; `None` leaves it to first touch.
    pub(super) placement: Vec<Option<LogicalNode>>,
    pub(crate) threads_moved_s: Option<f64>,
    pub(crate) pages_moved_s: Option<f64>,
    /// Whether a page moves only if its own accesses win its move back, instead of all pages if that is best for all.
    pub(crate) each_page_pays: bool,
}

/// A way through a phase.
struct Way {
    pu: Vec<LogicalPu>,
    /// Node of each page of the phase.
    nodes: Vec<Option<LogicalNode>>,
    /// What the page policy chose for each page that the phase is the first to use.
    chosen: Vec<Option<LogicalNode>>,
    /// Time of the phase and of the moves, in seconds.
    phase_s: f64,
    cost_s: f64,
}

impl Way {
    fn total_s(&self) -> f64 {
        self.phase_s + self.cost_s
    }
}

/// What may move at the beginning of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion {
    /// Whether the phase is another one than at the last move of threads.
    pub phase_changed: bool,
    /// Whether pages may move at all.
    pub pages_may_move: bool,
}

impl<'a> Ways<'a> {
    /// For a number of pages, none of which is used yet, and threads that the caller puts in their places.
    pub(crate) fn new(
        policies: &'a dyn Policies,
        machine: &'a Topology,
        dynamics: &'a Dynamics,
        pages: usize,
    ) -> Self {
        Self {
            policies,
            machine,
            dynamics,
            pu: Vec::new(),
            node: vec![None; pages],
            placement: vec![None; pages],
            threads_moved_s: None,
            pages_moved_s: None,
            each_page_pays: false,
        }
    }

    /// Takes the best way through a phase; returns it and its time in seconds.
    pub(crate) fn step(
        &mut self,
        at: usize,
        occasion: Occasion,
        phase: &Phase,
    ) -> Result<(Step, f64), PlanError> {
        let objective = self.objective(phase);
        let stay = self.fresh(phase, &objective, self.pu.clone())?;
        let stay_s = stay.phase_s;
        let (unmet, new) = self.threads(occasion, phase, &objective)?;
        let mut ways = Vec::new();
        let may_move_pages =
            occasion.pages_may_move && self.dynamics.allows_pages(since(self.pages_moved_s, phase));
        if let Some(pu) = new {
            ways.push(self.fresh(phase, &objective, pu)?);
        }
        ways.insert(0, stay);
        if may_move_pages {
            let mut more = Vec::new();
            for way in &ways {
                more.extend(self.with_pages(phase, &objective, way)?);
            }
            ways.extend(more);
        }
        let cheapest = |ways: &[Way]| {
            let order = |a: &Way, b: &Way| a.total_s().total_cmp(&b.total_s());
            ways.iter()
                .enumerate()
                .min_by(|a, b| order(a.1, b.1))
                .map(|(at, _)| at)
        };
        // Of equal ones the first: it moves least.
        let best = ways.swap_remove(cheapest(&ways).unwrap_or(0));
        let not_worth = || {
            let moving = ways.iter().filter(|way| way.pu != self.pu);
            let least = moving.min_by(|a, b| a.total_s().total_cmp(&b.total_s()));
            least.map(|way| Unmet::NotWorthIt {
                gain_s: stay_s - way.phase_s,
                cost_s: way.cost_s,
            })
        };
        let moved = best.pu != self.pu;
        let step = Step {
            phase: at,
            unmet: match moved {
                true => None,
                false => unmet.or_else(not_worth),
            },
            threads: (0..self.pu.len())
                .filter(|&thread| best.pu[thread] != self.pu[thread])
                .collect(),
            pages: self.moved_pages(phase, &best.nodes),
            gain_s: stay_s - best.phase_s,
            cost_s: best.cost_s,
            mapping: Mapping {
                pu: best.pu.clone(),
            },
        };
        let seconds = best.total_s();
        self.take(phase, best, &step);
        Ok((step, seconds))
    }

    /// The mapping that threads may change to at the beginning of a phase, or why they may not.
    fn threads(
        &self,
        occasion: Occasion,
        phase: &Phase,
        objective: &Objective,
    ) -> Result<(Option<Unmet>, Option<Vec<LogicalPu>>), PlanError> {
        let mut situation = Situation {
            phase_changed: occasion.phase_changed,
            heterogeneity: phase.heterogeneity,
            events_per_s: phase.events_per_s,
            since_move_s: since(self.threads_moved_s, phase),
            mapping_differs: true,
        };
        // The mapping is computed last, because it takes longest.
        if let Some(unmet) = self.dynamics.forbids_threads(&situation) {
            return Ok((Some(unmet), None));
        }
        let new = self.policies.map(phase)?.pu;
        let moving = self.moving(phase, objective);
        let new = aligned(&self.pu, new, &phase.lines, self.machine, &moving);
        situation.mapping_differs = new != self.pu;
        match self.dynamics.forbids_threads(&situation) {
            Some(unmet) => Ok((Some(unmet), None)),
            None => Ok((None, Some(new))),
        }
    }

    /// What moves of threads take, and of the pages that are worth moving after them.
    fn moving(&self, phase: &Phase, objective: &Objective) -> Moving {
        let nodes = self.machine.nodes().len();
        let bytes = phase.usage.page_size() as f64;
        let move_s = |from: usize, to: usize| {
            let [from, to] = [from, to].map(|node| LogicalNode(node as u32));
            objective.copy_s(from, to, bytes) + self.dynamics.page_move_s
        };
        let far_s = objective.farther_s();
        // Pages by thread and node; a page of several threads in proportion to their accesses.
        let mut pages = vec![0.0; self.pu.len() * nodes];
        for (page, &number) in phase.usage.pages().iter().zip(&phase.page) {
            let uses = phase.usage.accesses(page);
            let total: f64 = uses.iter().map(|of| of.total() as f64).sum();
            let Some(from) = self.node[number as usize] else {
                continue;
            };
            if total * far_s <= self.dynamics.page_move_s {
                continue;
            }
            for of in uses {
                pages[of.thread.index() * nodes + from.index()] += of.total() as f64 / total;
            }
        }
        let to = |of: &[f64], to: usize| -> f64 {
            let from = of.iter().enumerate().filter(|(from, _)| *from != to);
            from.map(|(from, pages)| pages * move_s(from, to)).sum()
        };
        let threads = pages.chunks(nodes);
        Moving {
            thread_s: self.dynamics.thread_move_s,
            pages_s: threads
                .flat_map(|of| (0..nodes).map(move |node| to(of, node)))
                .collect(),
        }
    }

    pub(super) fn objective<'p>(&'p self, phase: &'p Phase) -> Objective<'p> {
        let weights = Weights {
            // The phase's accesses are those that leave the private caches.
            memory_share: 1.0,
            ..Weights::of(self.machine)
        };
        Objective::new(self.machine, &phase.lines, weights)
    }

    /// A phase with the threads at `pu`, the pages it is the first to use placed for it, and all others where they are.
    fn fresh(
        &self,
        phase: &Phase,
        objective: &Objective,
        pu: Vec<LogicalPu>,
    ) -> Result<Way, PlanError> {
        let mapping = Mapping { pu };
        let chosen = self.policies.place(&phase.usage, &mapping)?;
        let home =
            |thread: numaloc_model::ThreadIdx| self.machine.node_of(mapping.pu[thread.index()]);
        let pages = phase.usage.pages().iter().zip(&phase.page).zip(&chosen);
        let nodes: Vec<Option<LogicalNode>> = pages
            .map(|((page, &number), &planned)| {
                let user = || main_user(&phase.usage, page);
                self.node[number as usize]
                    .or(planned)
                    .or_else(|| page.first_touch.or_else(user).map(home))
            })
            .collect();
        let moved = mapping.pu.iter().zip(&self.pu).filter(|(a, b)| a != b);
        Ok(Way {
            phase_s: objective.cost(&phase.usage, &mapping.pu, &nodes).total(),
            // The threads that move are moved one after the other.
            cost_s: moved.count() as f64 * self.dynamics.thread_move_s,
            pu: mapping.pu,
            nodes,
            chosen,
        })
    }

    /// The same with pages moved to where the policy places them: all of them, and only those whose own accesses win
    /// their move back.
    fn with_pages(
        &self,
        phase: &Phase,
        objective: &Objective,
        way: &Way,
    ) -> Result<Vec<Way>, PlanError> {
        let bytes = phase.usage.page_size() as f64;
        let move_s = |from, to| objective.copy_s(from, to, bytes) + self.dynamics.page_move_s;
        let mut all = way.nodes.clone();
        let mut paying = way.nodes.clone();
        let (mut all_s, mut paying_s) = (0.0, 0.0);
        for (at, page) in phase.usage.pages().iter().enumerate() {
            let used_before = self.node[phase.page[at] as usize].is_some();
            let (Some(from), Some(to)) = (way.nodes[at], way.chosen[at]) else {
                continue;
            };
            if !used_before || from == to {
                continue;
            }
            let cost_s = move_s(from, to);
            all[at] = Some(to);
            all_s += cost_s;
            let uses = phase.usage.accesses(page);
            let wait_s = |node| objective.wait_s(uses, &way.pu, node);
            if wait_s(from) - wait_s(to) > cost_s {
                paying[at] = Some(to);
                paying_s += cost_s;
            }
        }
        let mut ways = Vec::new();
        for (nodes, pages_s, allowed) in
            [(paying, paying_s, true), (all, all_s, !self.each_page_pays)]
        {
            if allowed && nodes != way.nodes {
                ways.push(Way {
                    phase_s: objective.cost(&phase.usage, &way.pu, &nodes).total(),
                    cost_s: way.cost_s + pages_s,
                    pu: way.pu.clone(),
                    chosen: way.chosen.clone(),
                    nodes,
                });
            }
        }
        Ok(ways)
    }

    /// Pages used before that are on another node in `nodes`.
    fn moved_pages(&self, phase: &Phase, nodes: &[Option<LogicalNode>]) -> Vec<(u32, LogicalNode)> {
        let pages = phase.page.iter().zip(nodes);
        let moved = pages.filter_map(|(&page, &to)| {
            let (from, to) = (self.node[page as usize]?, to?);
            (from != to).then_some((page, to))
        });
        moved.collect()
    }

    /// Makes a way's mapping and placement the present ones.
    fn take(&mut self, phase: &Phase, way: Way, step: &Step) {
        for (at, &page) in phase.page.iter().enumerate() {
            let page = page as usize;
            if self.node[page].is_none() {
                self.placement[page] = way.chosen[at];
            }
            self.node[page] = way.nodes[at];
        }
        if !step.threads.is_empty() {
            self.threads_moved_s = Some(phase.start_s);
        }
        if !step.pages.is_empty() {
            self.pages_moved_s = Some(phase.start_s);
        }
        self.pu = way.pu;
    }
}

/// Seconds from a move to the beginning of a phase.
fn since(moved_s: Option<f64>, phase: &Phase) -> Option<f64> {
    moved_s.map(|moved| phase.start_s - moved)
}
