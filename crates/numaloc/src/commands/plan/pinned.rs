//! Results without a plan: the rows `unbound` and `pinned`, with which every plan is compared.

use numaloc_mapping::Spread;
use numaloc_model::Placement;
use serde_json::{Value, json};

use super::{Args, Problem};
use crate::error::CliError;

/// Binds threads in the order of their creation.
const IN_ORDER: &str = "packed";

/// First touch with unbound threads, and with threads bound in the order of their creation, evenly over the machine.
pub(super) struct Unplanned {
    /// Remote share of the page accesses if the kernel moves threads between nodes (`numaloc_analysis::outlook`).
    pub free: f64,
    /// Accesses to remote pages with bound threads, and all accesses.
    pub bound: (u64, u64),
    /// Communication between nodes with bound threads, and all communication.
    pub communication: (f64, f64),
}

impl Args {
    /// `None` if threads cannot be bound in order.
    pub(super) fn unplanned(&self, problem: &Problem) -> Result<Option<Unplanned>, CliError> {
        let Some(policy) = numaloc_mapping::by_name(IN_ORDER) else {
            return Ok(None);
        };
        let (profile, machine) = (problem.profile, problem.machine);
        self.with_input(&problem.as_recorded(), |input| {
            let input = input.clone().with_spread(Spread::Spread);
            let Ok(mapped) = numaloc_mapping::map(policy, &input) else {
                return Ok(None);
            };
            let value = numaloc_mapping::evaluate(&input, &mapped.mapping);
            let untouched = Placement {
                node: vec![None; profile.pages.pages().len()],
            };
            Ok(Some(Unplanned {
                free: 1.0 - 1.0 / machine.nodes_with_pus().len().max(1) as f64,
                bound: numaloc_placement::remote_accesses(
                    profile,
                    machine,
                    &mapped.mapping,
                    &untouched,
                ),
                communication: (value.remote, value.total),
            }))
        })
    }
}

impl Unplanned {
    pub(super) fn json(&self) -> Value {
        let (remote, accesses) = self.bound;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        json!({
            "unbound": {"remote_share": if accesses > 0 { self.free } else { 0.0 }},
            "pinned": {
                "remote_accesses": remote,
                "accesses": accesses,
                "remote_share": share(remote as f64, accesses as f64),
                "remote_communication_share": share(self.communication.0, self.communication.1),
            },
        })
    }
}
