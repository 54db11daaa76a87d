//! A plan's schedule in a simulation: which threads and pages move at which clock of the recording.
//!
//! A step with a trigger is due at the recorded passes of its mark, as in a native run; one without, or whose mark is
//! not in the profile, at its share of the recorded clock.

use std::collections::HashMap;

use numaloc_model::plan::{PhasePlan, Plan};
use numaloc_model::{LogicalNode, LogicalPu, Profile};
use numaloc_sim::{Moves, Trace};

use super::pages;

/// Moves that are due at a clock of the recording.
#[derive(Clone, Debug)]
pub struct Due {
    pub clock: u64,
    /// By index of the profile.
    threads: Vec<(u32, LogicalPu)>,
    /// Node of each page of the profile that moves.
    pages: Vec<Option<LogicalNode>>,
}

/// The steps of a plan, by their clocks.
pub fn due(plan: &Plan, profile: &Profile) -> Vec<Due> {
    let index: HashMap<&str, u32> = profile
        .threads()
        .iter()
        .zip(0..)
        .map(|(thread, at)| (&*thread.path, at))
        .collect();
    let mut due = Vec::new();
    for step in &plan.schedule {
        let threads = step.threads.iter();
        let threads = threads.filter_map(|t| Some((*index.get(&*t.path)?, t.pu)));
        let moves = Due {
            clock: 0,
            threads: threads.collect(),
            pages: pages::placed(plan, &step.pages, profile),
        };
        due.extend(clocks(step, profile).into_iter().map(|clock| Due {
            clock,
            ..moves.clone()
        }));
    }
    due.sort_by_key(|moves| moves.clock);
    due
}

/// The clocks at which a step is due.
fn clocks(step: &PhasePlan, profile: &Profile) -> Vec<u64> {
    let first = profile.threads().iter().find(|thread| thread.path == "0");
    let passes = step.trigger.iter().flat_map(|trigger| {
        profile.marks().iter().filter(move |row| {
            let thread = &profile.threads()[row.thread.index()];
            let is_due = row.occurrence == trigger.occurrence
                || trigger.after(row.occurrence.saturating_sub(1)) == Some(row.occurrence);
            is_due
                && row.place == trigger.place
                && first.is_some_and(|first| first.pid == thread.pid)
        })
    });
    let clocks: Vec<u64> = passes.map(|row| row.time).collect();
    if !clocks.is_empty() {
        return clocks;
    }
    let end = profile.slices().last().map_or(0, |slice| slice.end);
    vec![(step.at * end as f64) as u64]
}

/// The moves on the pages of a trace.
pub fn on_pages_of(due: &[Due], trace: &Trace, profile: &Profile) -> Vec<Moves> {
    let of_step = |moves: &Due| {
        let nodes = pages::on_trace(&moves.pages, trace, profile);
        let nodes = (0u32..).zip(nodes);
        Moves {
            clock: moves.clock,
            threads: moves.threads.clone(),
            pages: nodes
                .filter_map(|(page, node)| Some((page, node?)))
                .collect(),
        }
    };
    due.iter().map(of_step).collect()
}
