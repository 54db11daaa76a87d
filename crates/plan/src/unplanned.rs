//! Results without a plan, with which every plan is compared.

use numaloc_model::{Mapping, Placement};
use numaloc_topology::Topology;

use crate::options::Options;
use crate::subject::Subject;
use crate::threads;

/// First touch with unbound threads, and with threads bound in the order of their creation, in even blocks over the
/// machine ([`Mapping::blocks`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unplanned {
    /// Remote share of the page accesses if the kernel moves threads between nodes (`numaloc_analysis::outlook`).
    pub free: f64,
    /// Accesses to remote pages with bound threads, and all accesses.
    pub bound: (u64, u64),
    /// Communication between nodes with bound threads, and all communication.
    pub communication: (f64, f64),
}

impl Unplanned {
    /// What is expected of the request's threads on its machine.
    #[must_use]
    pub fn of(subject: &Subject, machine: &Topology, options: &Options) -> Self {
        let input = threads::problem(subject.communication(), machine, options);
        let bound = Mapping::blocks(input.tasks(), machine.pus().len());
        let value = numaloc_mapping::evaluate(&input, &bound);
        let profile = subject.profile();
        let untouched = Placement {
            node: vec![None; profile.pages().pages().len()],
        };
        Self {
            free: 1.0 - 1.0 / machine.nodes_with_pus().len().max(1) as f64,
            bound: numaloc_placement::remote_accesses(profile, machine, &bound, &untouched),
            communication: (value.remote, value.total),
        }
    }
}
