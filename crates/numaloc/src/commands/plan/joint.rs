//! `--threads joint` or `--pages joint`: both decided together, from the answers of all thread policies.

use std::time::Instant;

use numaloc_mapping::Mapped;
use numaloc_model::profile::Amount;
use numaloc_model::{Layer, Profile};
use numaloc_placement::PlaceInput;
use numaloc_placement::joint::{Candidate, Weights, joint};
use numaloc_topology::Topology;

use super::{Args, PageAnswer, ThreadAnswer};
use crate::error::CliError;

/// The policy's name on the command line and in plans.
pub const NAME: &str = "joint";

impl Args {
    /// The joint answer for pages; its mapping becomes the first of `threads`.
    pub(super) fn decide_jointly(
        &self,
        threads: &mut Vec<ThreadAnswer>,
        profile: &Profile,
        layer: Layer,
        machine: &Topology,
    ) -> Result<PageAnswer, CliError> {
        let start = Instant::now();
        let events = profile.matrix(layer, Amount::Events).map_err(|error| {
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
            page_size: self.page_size.unwrap_or(profile.pages.page_size()),
            seed: self.seed,
            min_exclusivity: self.min_exclusivity,
            ..PlaceInput::new(&profile.pages, first.mapping, machine)
        };
        let weights = Weights {
            in_flight: self.in_flight,
            ..Weights::of(machine)
        };
        let answer = joint(&input, &events, &candidates, weights).map_err(CliError::usage)?;
        let seconds = start.elapsed().as_secs_f64();
        let (remote, accesses) = numaloc_placement::remote_accesses(
            profile,
            machine,
            &answer.mapping,
            &answer.placed.placement,
        );
        let mapped = Mapped::plain(answer.mapping.pu);
        let (value, between_hosts) = self.with_input(profile, layer, machine, false, |input| {
            let mapping = &mapped.mapping;
            Ok((
                numaloc_mapping::evaluate(input, mapping),
                numaloc_mapping::between_hosts(input, mapping),
            ))
        })?;
        threads.insert(
            0,
            ThreadAnswer {
                policy: NAME,
                mapped,
                value,
                between_hosts,
                seconds,
            },
        );
        Ok(PageAnswer {
            policy: NAME,
            placement: answer.placed.placement,
            spilled: answer.placed.spilled,
            remarks: answer.placed.diagnostics,
            remote,
            accesses,
            seconds,
        })
    }
}
