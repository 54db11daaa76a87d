//! Plans by role: roles to nodes, named memory to policies, for programs whose threads and processes come and go.
//!
//! | module | does |
//! |---|---|
//! | `found` | the roles and the shared memory of a profile, and how another run recognises them |
//! | [`words`] | what a user asks for: `io_thd_N=0`, `PostgreSQL shared_buffers=interleave` |
//! | `ways` | where threads and pages of the recorded run are under a way of placing its roles |
//! | `search` | which ways are tried, and which is taken |
//!
//! The model of worth rates the recorded run, with its number of members. A member on any PU of several nodes is rated
//! at the one with the least load, and stays there. Where a role that matters is left to the kernel, all threads are
//! rated as threads that it moves.

use numaloc_model::plan::{Plan, Predicted, Provenance};
use numaloc_model::roles::{NodePlan, RolePlan, RolesPlan, SegmentPlan};
use numaloc_model::segments::SegmentRule;
use numaloc_topology::Topology;

use crate::accesses::BeyondCaches;
use crate::error::PlanError;
use crate::options::Options;
use crate::registry::ThreadPolicy;
use crate::subject::Subject;
use crate::threads;
use crate::worth::{Model, Worth};

mod found;
mod search;
#[cfg(test)]
mod tests;
mod ways;
pub mod words;

pub use found::{FoundRole, FoundSegment};
pub use words::{Asked, NotFound};

/// Name of both policies of such plans.
pub const BY_ROLE: &str = "by-role";

/// A plan by role, and what it was chosen from.
#[derive(Clone, Debug)]
pub struct ByRole {
    /// The plan.
    pub plan: Plan,
    /// The roles of the profile, in the plan's order.
    pub roles: Vec<FoundRole>,
    /// The memory that threads share, the most accesses first, and its place among the plan's segments.
    pub segments: Vec<(FoundSegment, Option<usize>)>,
    /// The program as it is.
    pub as_it_is: Worth,
    /// The program under the plan.
    pub planned: Worth,
    /// Number of ways that were rated.
    pub rated: usize,
}

impl ByRole {
    /// Whether the plan takes longer than the program as it is, beyond the error of the model.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.planned.loses_to(&self.as_it_is)
    }

    /// Whether it leaves all roles and all memory as they are.
    #[must_use]
    pub fn leaves_as_it_is(&self) -> bool {
        let roles = &self.plan.roles;
        let is_left = |role: &RolePlan| role.seats.nodes().is_empty();
        !roles.has_memory() && roles.roles.iter().all(is_left)
    }
}

/// Why there is no plan by role.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ByRoleError {
    /// The model of worth does not apply: ranks, clusters, no recorded accesses.
    #[error(
        "cannot rate roles: the profile has MPI ranks or no page accesses, or the machine is a cluster"
    )]
    NotRated,
    /// What was asked for is not in the profile, or cannot be recognised in another run.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A mapping failed.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Makes a plan by role: what is asked for as asked, the rest as the model rates it best, or as it is. `rules` name
/// memory.
///
/// # Errors
/// [`ByRoleError`]
pub fn by_role(
    subject: &Subject,
    machine: &Topology,
    rules: &[SegmentRule],
    asked: &Asked,
    options: &Options,
) -> Result<ByRole, ByRoleError> {
    let profile = subject.profile();
    let model = Model::of(profile, subject.layer(), machine).ok_or(ByRoleError::NotRated)?;
    let found = found::Found::of(profile, rules);
    let fixed = words::fixed(asked, &found, machine)?;
    let input = threads::problem(subject.communication(), machine, options);
    let os = threads::run(ThreadPolicy::Os, &input, profile, options)?;
    let mut search = search::Search::new(&model, &found, &os.mapping, fixed);
    let chosen = search.run();
    let (mapping, placement) = search.places(&chosen.way);
    let value = numaloc_mapping::evaluate(&input, &mapping);
    let beyond = BeyondCaches::of(profile, machine);
    let (remote_accesses, accesses) = beyond.remote(&mapping, &placement);
    let mut segments = Vec::new();
    let mut planned = Vec::new();
    for (segment, pages) in found.segments.iter().zip(&chosen.way.segments) {
        let at = pages.as_ref().map(|pages| {
            planned.push(SegmentPlan {
                name: segment.name.clone(),
                kind: segment.kind,
                memory: segment.memory.clone(),
                role: segment.role as u32,
                bytes: segment.bytes.unwrap_or_default(),
                pages: pages.clone(),
            });
            planned.len() - 1
        });
        segments.push((segment.clone(), at));
    }
    let roles = found.roles.iter().zip(&chosen.way.roles);
    let roles = roles.map(|(role, (seats, memory))| RolePlan {
        name: role.name.clone(),
        key: role.key.clone(),
        creator: role.creator,
        members: role.threads.len() as u64,
        seats: seats.clone(),
        memory: *memory,
    });
    let meta = profile.meta();
    let plan = Plan {
        provenance: Provenance {
            thread_policy: BY_ROLE.to_owned(),
            page_policy: BY_ROLE.to_owned(),
            parameters: asked.parameters(options.seed),
            command: meta.command.clone(),
            tool: concat!("numaloc ", env!("CARGO_PKG_VERSION")).to_owned(),
            environment: (meta.frontend != "import").then(|| meta.conditions.environment.clone()),
            left_out: Vec::new(),
        },
        predicted: Predicted {
            cost: value.cost,
            remote: value.remote,
            total: value.total,
            node_imbalance: value.node_imbalance,
            remote_accesses,
            accesses,
        },
        page_size: profile.pages().page_size(),
        roles: RolesPlan {
            nodes: nodes(machine),
            roles: roles.collect(),
            segments: planned,
        },
        ..Plan::by_hand(machine.name(), &machine.fingerprint())
    };
    Ok(ByRole {
        plan,
        roles: found.roles,
        segments,
        as_it_is: chosen.as_it_is,
        planned: chosen.worth,
        rated: chosen.rated,
    })
}

/// The nodes with PUs.
fn nodes(machine: &Topology) -> Vec<NodePlan> {
    let nodes = machine.nodes_with_pus().into_iter();
    nodes
        .map(|node| {
            let own = &machine.nodes()[node.index()];
            let pus = own.pus.iter();
            NodePlan {
                node,
                os_node: own.os,
                os_pus: pus.map(|pu| machine.pus()[pu.index()].os.0).collect(),
            }
        })
        .collect()
}
