//! Cases before the trace is loaded: threads on PUs, pages of the profile on nodes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use numaloc_identity::ThreadPath;
use numaloc_model::plan::{ObjectKey, PagePlan, Plan};
use numaloc_model::{LogicalNode, LogicalPu, Profile};
use numaloc_sim::{Pages, Trace};
use numaloc_topology::Topology;

use super::schedule::{self, Due};
use super::{Case, Mapped};
use crate::error::CliError;

/// Placement of the profile's pages.
#[derive(Clone)]
pub enum Homes {
    /// Decided by a policy that acts while the program runs.
    Acting(Pages),
    /// Node of each page of the profile; other pages follow first touch.
    Placed(Vec<Option<LogicalNode>>),
}

/// A [`Case`] whose placement does not refer to pages of the trace yet.
pub struct Unloaded {
    pub target: usize,
    pub threads: String,
    pub pages: String,
    pub mapped: Mapped,
    pub homes: Homes,
    /// Later moves, by their clocks.
    pub schedule: Vec<Due>,
}

impl Unloaded {
    /// The case with the pages of the trace.
    pub fn on_pages_of(self, trace: &Trace, profile: &Profile) -> Case {
        let homes = match self.homes {
            Homes::Acting(policy) => policy,
            Homes::Placed(nodes) => Pages::Placed(on_trace(&nodes, trace, profile)),
        };
        Case {
            target: self.target,
            threads: self.threads,
            pages: self.pages,
            mapped: self.mapped,
            homes,
            moves: schedule::on_pages_of(&self.schedule, trace, profile),
        }
    }
}

/// Node of each page of the trace, from those of the profile's pages.
pub fn on_trace(
    nodes: &[Option<LogicalNode>],
    trace: &Trace,
    profile: &Profile,
) -> Vec<Option<LogicalNode>> {
    let factor = (trace.page_bytes() / profile.pages().page_size()).max(1);
    let mut known: HashMap<u64, Vec<LogicalNode>> = HashMap::new();
    for (page, node) in profile.pages().pages().iter().zip(nodes) {
        let parts = known.entry(page.number.0 / factor).or_default();
        parts.extend(node);
    }
    let home = |page: &u64| most_frequent(known.get(page)?);
    trace.pages().iter().map(home).collect()
}

/// The node of most parts of a page; of equally frequent ones, the lowest.
fn most_frequent(nodes: &[LogicalNode]) -> Option<LogicalNode> {
    let count = |node: LogicalNode| nodes.iter().filter(|other| **other == node).count();
    nodes
        .iter()
        .copied()
        .max_by_key(|&node| (count(node), std::cmp::Reverse(node)))
}

/// Positions of the profile's threads and pages under the plan in the file at `path`.
pub fn of_file(
    plan: &Plan,
    path: &Path,
    target: usize,
    profile: &Profile,
    machine: &Topology,
) -> Result<Unloaded, CliError> {
    if plan.fingerprint != machine.fingerprint() {
        return Err(CliError::tool(format!(
            "{} is a plan for {}, not for {}",
            path.display(),
            plan.machine,
            machine.name()
        ))
        .hint("numaloc plan PROFILE --machine MACHINE makes one"));
    }
    check_threads(plan, path, profile)?;
    let mut case = of_plan(plan, target, profile)
        .ok_or_else(|| CliError::tool(format!("{} plans no threads", path.display())))?;
    case.pages += &format!(" ({})", plan_name(path, plan));
    Ok(case)
}

/// Refuses a plan that was made for other threads.
fn check_threads(plan: &Plan, path: &Path, profile: &Profile) -> Result<(), CliError> {
    let of_profile: HashSet<&str> = profile.threads().iter().map(|t| &*t.path).collect();
    let of_plan: HashSet<&str> = plan.threads.iter().map(|t| &*t.path).collect();
    let left_out = &plan.provenance.left_out;
    let unknown = plan.threads.iter().map(|t| &*t.path);
    let unknown = unknown.filter(|path| !of_profile.contains(path)).min();
    let unplanned = profile.threads().iter().map(|t| &*t.path);
    let unplanned = unplanned
        .filter(|path| !of_plan.contains(path) && !left_out.iter().any(|out| out == path))
        .min();
    let why = match (unknown, unplanned) {
        (None, None) => return Ok(()),
        (Some(thread), _) => format!("it plans thread {thread}, which the profile does not have"),
        (None, Some(thread)) => format!("it does not plan thread {thread} of the profile"),
    };
    Err(CliError::tool(format!(
        "{} is a plan for {} threads, the profile has {}: {why}",
        path.display(),
        plan.threads.len(),
        profile.threads().len()
    ))
    .hint("numaloc plan PROFILE --machine MACHINE makes one for this profile"))
}

/// Positions of the profile's threads and pages under `plan`; `None` if it plans no threads. Threads that are not in
/// the plan run where their creators do, because affinity is inherited.
pub fn of_plan(plan: &Plan, target: usize, profile: &Profile) -> Option<Unloaded> {
    let planned: HashMap<&str, LogicalPu> = plan
        .threads
        .iter()
        .map(|thread| (&*thread.path, thread.pu))
        .collect();
    let first = plan.threads.first()?.pu;
    let of_path = |path: &str| {
        let mut ancestry = ThreadPath::new(path).ancestry();
        ancestry.find_map(|path| planned.get(path.as_str()).copied())
    };
    let mapping = profile
        .threads()
        .iter()
        .map(|thread| of_path(&thread.path).unwrap_or(first))
        .collect();
    Some(Unloaded {
        target,
        threads: plan.provenance.thread_policy.clone(),
        pages: plan.provenance.page_policy.clone(),
        mapped: Mapped::Pinned(mapping),
        homes: Homes::Placed(placed(plan, &plan.pages, profile)),
        schedule: schedule::due(plan, profile),
    })
}

/// Node of each page of the profile that is in `pages`, by the plan's objects.
pub fn placed(plan: &Plan, pages: &[PagePlan], profile: &Profile) -> Vec<Option<LogicalNode>> {
    let known: HashMap<&ObjectKey, u32> = plan.objects.iter().zip(0..).collect();
    // The plan's object of each object of the profile.
    let planned: Vec<Option<u32>> = profile
        .objects()
        .iter()
        .map(|object| {
            let creator = object
                .thread
                .map(|thread| profile.threads()[thread.index()].path.clone());
            let key = ObjectKey {
                kind: object.kind,
                name: object.name.clone(),
                creator,
                size: object.size,
                order: object.order,
            };
            known.get(&key).copied()
        })
        .collect();
    let mut ranges: Vec<Vec<&PagePlan>> = vec![Vec::new(); plan.objects.len()];
    for range in pages {
        ranges[range.object as usize].push(range);
    }
    let factor = (profile.pages().page_size(), plan.page_size);
    profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let object = planned[page.object?.index()]?;
            let at = page.object_page * factor.0 / factor.1;
            let holds = |range: &&&PagePlan| {
                (range.first_page..range.first_page + range.pages).contains(&at)
            };
            ranges[object as usize]
                .iter()
                .find(holds)
                .map(|range| range.node)
        })
        .collect()
}

/// Display name of a plan: its file name.
fn plan_name(path: &Path, plan: &Plan) -> String {
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    name.unwrap_or_else(|| plan.provenance.thread_policy.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_page_is_on_the_node_of_most_of_its_parts() {
        let of = |nodes: &[u32]| {
            most_frequent(&nodes.iter().map(|n| LogicalNode(*n)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2, 1, 1, 2]), Some(LogicalNode(1)));
        assert_eq!(of(&[0, 3, 3]), Some(LogicalNode(3)));
    }
}
