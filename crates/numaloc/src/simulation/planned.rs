//! Cases before the trace is loaded: threads on PUs, pages of the profile on nodes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use numaloc_identity::ThreadPath;
use numaloc_model::plan::Plan;
use numaloc_model::{LogicalNode, LogicalPu, Profile};
use numaloc_sim::{Pages, Trace};
use numaloc_topology::Topology;

use super::pages;
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
            Homes::Placed(nodes) => Pages::Placed(pages::on_trace(&nodes, trace, profile)),
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

/// Fails for a plan by role: only a run has members, and shows them to a reader of its report.
pub fn refuse_roles(plan: &Plan, path: &Path) -> Result<(), CliError> {
    match plan.roles.is_empty() {
        true => Ok(()),
        false => Err(CliError::tool(format!(
            "{} is a plan by role, which only `numaloc run`, `compare` and `lab` carry out",
            path.display()
        ))
        .hint("`numaloc plan` without --by-role makes one for the threads and pages of a profile")),
    }
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
    refuse_roles(plan, path)?;
    check_threads(plan, path, profile)?;
    let mut case =
        of_plan(plan, target, profile).unwrap_or_else(|| left_alone(plan, target, profile));
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
        homes: Homes::Placed(pages::placed(plan, &plan.pages, profile)),
        schedule: schedule::due(plan, profile),
    })
}

/// A plan that leaves threads to the operating system, and perhaps its pages.
fn left_alone(plan: &Plan, target: usize, profile: &Profile) -> Unloaded {
    Unloaded {
        target,
        threads: plan.provenance.thread_policy.clone(),
        pages: plan.provenance.page_policy.clone(),
        mapped: Mapped::Os { seed: 1 },
        homes: Homes::Placed(pages::placed(plan, &plan.pages, profile)),
        schedule: Vec::new(),
    }
}

/// Display name of a plan: its file name.
fn plan_name(path: &Path, plan: &Plan) -> String {
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    name.unwrap_or_else(|| plan.provenance.thread_policy.clone())
}
