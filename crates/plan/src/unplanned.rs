//! Results without a plan, with which every plan is compared.

use numaloc_model::{Mapping, Placement};
use numaloc_topology::Topology;

use crate::accesses::BeyondCaches;
use crate::options::Options;
use crate::subject::Subject;
use crate::threads;

/// First touch with unbound threads, and with threads bound in the order of their creation, in even blocks over the
/// machine ([`Mapping::blocks`]). Accesses are those beyond private caches, as in `show`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unplanned {
    /// Remote share of the page accesses if the kernel moves threads between nodes (`numaloc_analysis::local`).
    pub free: f64,
    /// Accesses to remote pages with bound threads, and all accesses.
    pub bound: (u64, u64),
    /// Communication between nodes with bound threads, and all communication.
    pub communication: (f64, f64),
}

impl Unplanned {
    /// What is expected of the request's threads on its machine.
    pub(crate) fn of(
        subject: &Subject,
        machine: &Topology,
        options: &Options,
        accesses: &BeyondCaches,
    ) -> Self {
        let input = threads::problem(subject.communication(), machine, options);
        let bound = Mapping::blocks(input.tasks(), machine.pus().len());
        let value = numaloc_mapping::evaluate(&input, &bound);
        let untouched = Placement {
            node: vec![None; subject.profile().pages().pages().len()],
        };
        Self {
            free: accesses.unbound(&bound),
            bound: accesses.remote(&bound, &untouched),
            communication: (value.remote, value.total),
        }
    }
}
