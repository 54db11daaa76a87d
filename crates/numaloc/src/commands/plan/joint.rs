//! `--threads joint` or `--pages joint`: both decided together, from the answers of all thread policies.

use std::time::Instant;

use numaloc_mapping::Mapped;
use numaloc_placement::PlaceInput;
use numaloc_placement::joint::{Candidate, Weights, joint};

use super::{Args, PageAnswer, Problem, Progress, ThreadAnswer};
use crate::commands::policies::{JOINT, ThreadPolicy};
use crate::error::CliError;
use crate::ui::Ui;

/// Maximum number of threads for MPIPP; beyond it, MPIPP takes longer than everything else together.
const MPIPP_THREADS: usize = 64;

/// The policies whose answers the joint policy starts from, for this many threads.
pub(super) fn starts(all: Vec<ThreadPolicy>, threads: usize) -> Vec<ThreadPolicy> {
    let slow = |policy: &ThreadPolicy| policy.name() == "mpipp" && threads > MPIPP_THREADS;
    all.into_iter().filter(|policy| !slow(policy)).collect()
}

impl Args {
    /// Computes the joint placement of pages; the mapping that belongs to it becomes the first of `threads`.
    pub(super) fn decide_jointly(
        &self,
        threads: &mut Vec<ThreadAnswer>,
        problem: &Problem,
        ui: &Ui,
    ) -> Result<PageAnswer, CliError> {
        let (profile, machine) = (problem.profile, problem.machine);
        let progress = Progress::new(ui);
        let start = Instant::now();
        let lines = profile.matrix_in_lines(problem.layer).map_err(|error| {
            CliError::tool(format!("cannot use {}: {error}", self.profile.display()))
        })?;
        let candidates: Vec<Candidate> = threads
            .iter()
            .map(|answer| Candidate {
                policy: answer.policy,
                mapping: &answer.mapped.mapping,
            })
            .collect();
        let Some(first) = candidates.first() else {
            return Err(CliError::tool("no thread policy answered"));
        };
        let input = PlaceInput {
            page_slices: &profile.page_slices,
            slow_loads: profile.slow_loads.as_ref(),
            page_size: self.page_size.unwrap_or(profile.pages.page_size()),
            seed: self.seed,
            min_exclusivity: self.min_exclusivity,
            ..PlaceInput::new(&profile.pages, first.mapping, machine)
        };
        let weights = Weights {
            in_flight: self.in_flight,
            ..Weights::of(machine)
        };
        let answer = joint(&input, &lines, &candidates, weights, &|what| {
            progress.now(what)
        })
        .map_err(CliError::usage)?;
        let seconds = start.elapsed().as_secs_f64();
        let (remote, accesses) = numaloc_placement::remote_accesses(
            profile,
            machine,
            &answer.mapping,
            &answer.placed.placement,
        );
        let mapped = Mapped::plain(answer.mapping.pu);
        let (value, between_hosts) = self.with_input(&problem.as_recorded(), |input| {
            let mapping = &mapped.mapping;
            Ok((
                numaloc_mapping::evaluate(input, mapping),
                numaloc_mapping::between_hosts(input, mapping),
            ))
        })?;
        threads.insert(
            0,
            ThreadAnswer {
                policy: JOINT,
                mapped,
                value,
                between_hosts,
                seconds,
            },
        );
        Ok(PageAnswer {
            policy: JOINT,
            placement: answer.placed.placement,
            spilled: answer.placed.spilled,
            remarks: answer.placed.diagnostics,
            remote,
            accesses,
            seconds,
        })
    }
}
