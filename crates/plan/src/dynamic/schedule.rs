//! From the phases of a run to its moves: which threads and pages move at the beginning of which phase.
//!
//! The run starts with the mapping of the first phase that has communication by OPT's conditions. At each later phase
//! four ways are compared: to stay, to move threads, pages, or both. Threads may move if OPT's five conditions hold,
//! pages if they have not moved for their interval ([`super::conditions`]). The gain of a way is the reduction of the
//! phase's time by the objective of the joint policy
//! ([`numaloc_placement::joint::Objective`]), latency, controllers and links together; its cost is what the moves
//! take, during which the program is assumed to wait. The way with the least time is taken: what the phase is too
//! short to win back is not moved. If the result is no better than one mapping for the whole run, that one remains,
//! without moves.
//!
//! Pages that a phase is the first to use are placed for it when they appear, at no cost.

use numaloc_model::{LogicalNode, Mapping, Placement};
use numaloc_topology::Topology;

use super::conditions::Unmet;
use super::options::Dynamics;
use super::phases::{Phase, main_user};
use super::ways::{Occasion, Policies, Step, Ways};
use crate::error::PlanError;

/// The start of a run and its moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The mapping at the start.
    pub mapping: Mapping,
    /// The node of each page of the profile when it appears.
    pub placement: Placement,
    /// One step for each phase but the first.
    pub steps: Vec<Step>,
    /// Predicted time of all phases and moves, in seconds.
    pub dynamic_s: f64,
    /// The same with one mapping and placement for the whole run.
    pub static_s: f64,
    /// Whether moving is predicted to be faster. If not, mapping and placement are those for the whole run.
    pub moves: bool,
}

/// One mapping and placement for the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Static<'a> {
    /// The mapping.
    pub mapping: &'a Mapping,
    /// The node of each page of the profile.
    pub placement: &'a Placement,
}

/// Decides the moves between `phases`, which are in order.
///
/// # Errors
/// [`PlanError`] of a policy.
pub fn schedule(
    phases: &[Phase],
    policies: &dyn Policies,
    machine: &Topology,
    whole_run: Static,
    dynamics: &Dynamics,
) -> Result<Schedule, PlanError> {
    let pages = whole_run.placement.node.len();
    let mut planner = Ways::new(policies, machine, dynamics, pages);
    planner.pu = whole_run.mapping.pu.clone();
    let maps = |phase: &Phase| {
        phase.heterogeneity > dynamics.least_heterogeneity
            && phase.events_per_s > dynamics.least_events_per_s
    };
    if let Some(first) = phases.iter().find(|phase| maps(phase)) {
        planner.pu = policies.map(first)?.pu;
    }
    let mapping = Mapping {
        pu: planner.pu.clone(),
    };
    let (mut steps, mut dynamic_s, mut static_s) = (Vec::new(), 0.0, 0.0);
    for (at, phase) in phases.iter().enumerate() {
        let later = at > 0;
        let occasion = Occasion {
            phase_changed: later,
            pages_may_move: later,
        };
        let (step, seconds) = planner.step(at, occasion, phase)?;
        dynamic_s += seconds;
        static_s += static_s_of(&planner, phase, whole_run);
        if at > 0 {
            steps.push(step);
        }
    }
    let moves = dynamic_s < static_s;
    if !moves {
        return Ok(Schedule {
            mapping: whole_run.mapping.clone(),
            placement: whole_run.placement.clone(),
            steps: steps
                .into_iter()
                .map(|step| left_out(step, whole_run))
                .collect(),
            dynamic_s,
            static_s,
            moves,
        });
    }
    // A page that no phase uses stays as it is without moves.
    let placement = planner.placement.into_iter().zip(&planner.node);
    let placement = placement.zip(&whole_run.placement.node);
    let node = placement.map(|((planned, used), &static_node)| match used {
        Some(_) => planned,
        None => static_node,
    });
    Ok(Schedule {
        mapping,
        placement: Placement {
            node: node.collect(),
        },
        steps,
        dynamic_s,
        static_s,
        moves,
    })
}

/// The phase without its moves, in a run with one mapping and placement.
fn left_out(step: Step, whole_run: Static) -> Step {
    let moves = !step.threads.is_empty() || !step.pages.is_empty();
    let not_worth = Unmet::NotWorthIt {
        gain_s: step.gain_s,
        cost_s: step.cost_s,
    };
    Step {
        phase: step.phase,
        mapping: whole_run.mapping.clone(),
        threads: Vec::new(),
        pages: Vec::new(),
        gain_s: 0.0,
        cost_s: 0.0,
        unmet: if moves { Some(not_worth) } else { step.unmet },
    }
}

/// Time of a phase with one mapping and placement for the whole run, in seconds.
fn static_s_of(planner: &Ways, phase: &Phase, whole_run: Static) -> f64 {
    let pu = &whole_run.mapping.pu;
    let pages = phase.usage.pages().iter().zip(&phase.page);
    let nodes: Vec<Option<LogicalNode>> = pages
        .map(|(page, &number)| {
            let planned = whole_run.placement.node[number as usize];
            let toucher = page.first_touch.or_else(|| main_user(&phase.usage, page));
            planned.or_else(|| toucher.map(|thread| planner.machine.node_of(pu[thread.index()])))
        })
        .collect();
    planner
        .objective(phase)
        .cost(&phase.usage, pu, &nodes)
        .total()
}
