//! A plan as the report shows it: what it does to the recorded run's threads and pages.

use std::collections::HashMap;

use numaloc_analysis::mapping_cost::{imbalance, load_deviation, node_loads, remote_share};
use numaloc_analysis::{Characterisation, NodeAssignment, PageMetrics};
use numaloc_model::plan::{ObjectKey, Plan};
use numaloc_model::profile::Profile;
use numaloc_model::{LogicalNode, LogicalPu, Placement};
use numaloc_topology::Topology;

/// What a plan does to a profile.
#[derive(Clone, Debug)]
pub struct PlanView {
    /// Short name: the file's, or the policies'.
    pub name: String,
    /// Thread and page policy.
    pub policies: String,
    /// PU of every thread of the profile; `None` where the plan has no such thread.
    pub pus: Vec<Option<LogicalPu>>,
    /// Nodes of the threads; threads that are not in the plan stay where blocks would put them.
    pub assignment: NodeAssignment,
    /// Pages under the plan.
    pub pages: PageMetrics,
    /// Share of the communication between threads of different nodes.
    pub remote_share: f64,
    /// Communication load of the busiest node over the mean.
    pub imbalance: f64,
    /// Load_std (CMLB eq. 6) of the nodes' memory loads.
    pub load_deviation: f64,
    /// Threads of the profile that the plan does not name.
    pub missing_threads: usize,
}

/// Evaluates a profile under a plan for `machine`.
#[must_use]
pub fn view(
    name: &str,
    plan: &Plan,
    machine: &Topology,
    profile: &Profile,
    c: &Characterisation,
) -> PlanView {
    let by_path: HashMap<&str, LogicalPu> = plan
        .threads
        .iter()
        .map(|thread| (thread.path.as_str(), thread.pu))
        .collect();
    let pus: Vec<Option<LogicalPu>> = profile
        .threads()
        .iter()
        .map(|thread| by_path.get(thread.path.as_str()).copied())
        .map(|pu| pu.filter(|pu| pu.index() < machine.pus().len()))
        .collect();
    let (nodes, homes) = (machine.nodes().len(), machine.nodes_with_pus());
    let fallback = NodeAssignment::blocks(profile.threads().len(), homes.len());
    let assignment = NodeAssignment {
        nodes,
        of_thread: pus
            .iter()
            .enumerate()
            .map(|(t, pu)| pu.map_or(homes[fallback.node(t)], |pu| machine.node_of(pu)))
            .collect(),
        homes,
    };
    let placement = placement(plan, profile, nodes);
    let mut loads = vec![0.0; nodes];
    for (src, dst, amount) in c.weighed().cells() {
        loads[assignment.node(src)] += amount;
        loads[assignment.node(dst)] += amount;
    }
    PlanView {
        name: name.to_owned(),
        policies: format!(
            "{} + {}",
            plan.provenance.thread_policy, plan.provenance.page_policy
        ),
        missing_threads: pus.iter().filter(|pu| pu.is_none()).count(),
        pages: PageMetrics::of(profile.pages(), &assignment, &placement),
        remote_share: remote_share(c.weighed(), c.layer, &assignment),
        imbalance: imbalance(&assignment.of_homes(&loads)),
        load_deviation: load_deviation(&node_loads(&c.load.by_thread, &assignment)),
        pus,
        assignment,
    }
}

/// The plan's node of every page of the profile, found by object and page within it.
fn placement(plan: &Plan, profile: &Profile, nodes: usize) -> Placement {
    let planned: HashMap<&ObjectKey, u32> = plan
        .objects
        .iter()
        .enumerate()
        .map(|(at, key)| (key, at as u32))
        .collect();
    let in_plan: Vec<Option<u32>> = profile
        .objects()
        .iter()
        .map(|object| {
            let key = ObjectKey {
                kind: object.kind,
                name: object.name.clone(),
                creator: object
                    .thread
                    .and_then(|t| profile.threads().get(t.index()))
                    .map(|t| t.path.clone()),
                size: object.size,
                order: object.order,
            };
            planned.get(&key).copied()
        })
        .collect();
    let mut ranges: Vec<_> = plan.pages.iter().collect();
    ranges.sort_by_key(|range| (range.object, range.first_page));
    let size = profile.pages().page_size();
    let node = profile.pages().pages().iter().map(|page| {
        let object = in_plan[page.object?.index()]?;
        // Plans count in their own page size.
        let at = page.object_page * size / plan.page_size.max(1);
        let after = ranges.partition_point(|r| (r.object, r.first_page) <= (object, at));
        let range = ranges.get(after.checked_sub(1)?)?;
        let hit = range.object == object && at < range.first_page + range.pages;
        (hit && range.node.index() < nodes).then_some(LogicalNode(range.node.0))
    });
    Placement {
        node: node.collect(),
    }
}
