//! The plan that a schedule makes.

use std::collections::{BTreeMap, HashMap};

use numaloc_model::plan::{ObjectKey, PagePlan, PhasePlan, PredictedMove, ThreadPlan, Trigger};
use numaloc_model::{LogicalNode, ObjectIdx, Profile};
use numaloc_placement::{Assembled, object_key};
use numaloc_topology::Topology;

use super::triggers::{Marks, periodic};
use super::{Dynamic, Phase, Step};
use crate::plan::Planned;

/// What a schedule moves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// Phases that begin with moves.
    pub phases: usize,
    /// Moves of threads.
    pub threads: usize,
    /// Moves of pages.
    pub pages: usize,
    /// Predicted gain of all moves in seconds.
    pub gain_s: f64,
    /// Predicted cost of all moves in seconds.
    pub cost_s: f64,
}

/// The page moves of a step within an object: page of the object, node after the step, whether it moves.
type Placed = (u64, LogicalNode, bool);

impl Dynamic {
    /// The sums over all steps.
    #[must_use]
    pub fn moved(&self) -> Moved {
        let moving = self.schedule.steps.iter().filter(|step| is_move(step));
        moving.fold(Moved::default(), |sum, step| Moved {
            phases: sum.phases + 1,
            threads: sum.threads + step.threads.len(),
            pages: sum.pages + step.pages.len(),
            gain_s: sum.gain_s + step.gain_s,
            cost_s: sum.cost_s + step.cost_s,
        })
    }

    /// The plan: mapping and placement at the start, and the moves. Its predictions are those of the mapping and
    /// placement at the start.
    #[must_use]
    pub fn assemble(&self, planned: &Planned) -> Assembled {
        let schedule = &self.schedule;
        let mut assembled = planned.assemble_other(&schedule.mapping, &schedule.placement);
        let parameters = &mut assembled.plan.provenance.parameters;
        parameters.extend(self.parameters());
        let request = planned.request();
        let (profile, machine) = (request.subject.profile(), request.machine);
        let mut keys = assembled.plan.objects.iter().cloned().zip(0..).collect();
        let mut node = schedule.placement.node.clone();
        let marks = Marks::of(profile);
        let end_s = self.phases.last().map_or(0.0, |p| p.start_s + p.length_s);
        for step in schedule.steps.iter().filter(|step| is_move(step)) {
            for &(page, to) in &step.pages {
                node[page as usize] = Some(to);
            }
            let phase = &self.phases[step.phase];
            let plan = PhasePlan {
                at: (phase.start_s / end_s).clamp(0.0, 1.0),
                trigger: trigger(profile, &marks, phase),
                predicted: Some(PredictedMove {
                    gain_s: step.gain_s,
                    cost_s: step.cost_s,
                }),
                threads: moved_threads(profile, machine, step),
                pages: moved_pages(profile, machine, step, &node, &mut keys),
            };
            assembled.plan.schedule.push(plan);
        }
        let schedule = std::mem::take(&mut assembled.plan.schedule);
        assembled.plan.schedule = periodic(schedule);
        let mut objects: Vec<(ObjectKey, u32)> = keys.into_iter().collect();
        objects.sort_by_key(|(_, number)| *number);
        assembled.plan.objects = objects.into_iter().map(|(key, _)| key).collect();
        assembled
    }

    /// The constants, by the names of the options of `numaloc plan`.
    fn parameters(&self) -> Vec<(String, String)> {
        let of = &self.dynamics;
        [
            ("phases_by", of.detector.name().to_owned()),
            ("h_min", of.least_heterogeneity.to_string()),
            ("a_min", of.least_events_per_s.to_string()),
            ("thread_interval_s", of.thread_interval_s.to_string()),
            ("page_interval_s", of.page_interval_s.to_string()),
            ("accesses_per_s", of.accesses_per_s.to_string()),
            ("thread_move_s", of.thread_move_s.to_string()),
            ("page_move_s", of.page_move_s.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// The mark at the beginning of a phase.
fn trigger(profile: &Profile, marks: &Marks, phase: &Phase) -> Option<Trigger> {
    let first = profile.slices().get(phase.slices.start)?;
    let last = profile.slices().get(phase.slices.end.checked_sub(1)?)?;
    marks.at(first.start, last.end - first.start)
}

fn is_move(step: &Step) -> bool {
    !step.threads.is_empty() || !step.pages.is_empty()
}

fn moved_threads(profile: &Profile, machine: &Topology, step: &Step) -> Vec<ThreadPlan> {
    let moved = step.threads.iter().map(|&thread| {
        let pu = step.mapping.pu[thread];
        ThreadPlan {
            path: profile.threads()[thread].path.clone(),
            pu,
            os_pu: machine.pus()[pu.index()].os,
        }
    });
    moved.collect()
}

/// Ranges of the pages that move. Pages of the same object between them are included if no phase uses them, so that
/// ranges stay few; a page that stays ends a range. Pages of the page cache and of no known object cannot be moved.
fn moved_pages(
    profile: &Profile,
    machine: &Topology,
    step: &Step,
    node: &[Option<LogicalNode>],
    keys: &mut HashMap<ObjectKey, u32>,
) -> Vec<PagePlan> {
    let mut by_object: BTreeMap<ObjectIdx, Vec<Placed>> = BTreeMap::new();
    let mut moving = step.pages.iter().map(|(page, _)| *page as usize).peekable();
    for (at, page) in profile.pages().pages().iter().enumerate() {
        let moves = moving.next_if_eq(&at).is_some();
        let (Some(object), Some(node)) = (page.object, node[at]) else {
            continue;
        };
        if !profile.is_in_page_cache(page) {
            let placed = (page.object_page, node, moves);
            by_object.entry(object).or_default().push(placed);
        }
    }
    by_object.retain(|_, placed| placed.iter().any(|(.., moves)| *moves));
    let mut plans = Vec::new();
    for (object, mut placed) in by_object {
        placed.sort_unstable();
        let next = keys.len() as u32;
        let number = *keys.entry(object_key(profile, object)).or_insert(next);
        for range in placed.chunk_by(|a, b| (a.1, a.2) == (b.1, b.2)) {
            let (first, node, moves) = range[0];
            if moves {
                plans.push(PagePlan {
                    object: number,
                    first_page: first,
                    pages: range[range.len() - 1].0 - first + 1,
                    node,
                    os_node: machine.nodes()[node.index()].os,
                });
            }
        }
    }
    plans.sort_by_key(|plan| (plan.object, plan.first_page));
    plans
}
