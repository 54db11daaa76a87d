//! Exports plans to the notations of other launchers: one target, one file, one line in [`TARGETS`].
//!
//! None of them can place single pages, and some cannot distinguish threads; every loss yields a warning.

use numaloc_model::Plan;
use numaloc_model::roles::RolesPlan;
use std::collections::BTreeSet;

mod cgroup;
mod docker;
mod gomp;
mod hwloc_bind;
mod jvm;
mod kmp;
mod kubernetes;
mod likwid_pin;
mod memkind;
mod numactl;
mod omp_places;
mod roles;
mod sysfs_weights;
mod systemd;
mod taskset;

/// A foreign notation for where a program should run.
pub trait Target: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// The exported text: environment assignments (one per line, for `env`), a command line prefix, or a file.
    /// `threads` are the PUs (kernel numbers) of the main process's threads in the order of their creation.
    fn write(&self, threads: &[u32], plan: &Plan) -> String;
    /// Whether it can give each thread its own PU.
    fn pins_threads(&self) -> bool;
    /// Whether it places threads at all; one that does not is for memory alone.
    fn has_threads(&self) -> bool {
        true
    }
    /// What it cannot express of this order of PUs although it pins threads, as a warning.
    fn loses(&self, _threads: &[u32]) -> Option<String> {
        None
    }
    /// What must be installed or set before this plan runs, as a warning.
    fn needs(&self, _plan: &Plan) -> Option<String> {
        None
    }
    /// Whether it holds for all processes of the program: `threads` are then the PUs of all threads.
    fn has_all_processes(&self) -> bool {
        false
    }
    /// Whether its text may begin with a comment: what it cannot express is also written there.
    fn has_comments(&self) -> bool {
        false
    }
    /// A plan by role, if it can express any of it.
    fn write_roles(&self, _plan: &RolesPlan) -> Option<String> {
        None
    }
    /// Whether it takes a plan by role as one for the whole program.
    fn is_for_roles(&self) -> bool {
        false
    }
    /// Whether it distinguishes roles.
    fn has_roles(&self) -> bool {
        false
    }
    /// How it expresses memory placement, `None` if it cannot.
    fn memory(&self) -> Option<&'static str> {
        None
    }
}

/// How cpusets express memory placement.
const CPUSET_MEMORY: &str = "the set of nodes that may be used, pages by first touch";

/// Every target.
pub const TARGETS: &[&dyn Target] = &[
    &omp_places::OmpPlaces,
    &gomp::Gomp,
    &kmp::Kmp,
    &likwid_pin::LikwidPin,
    &hwloc_bind::HwlocBind,
    &taskset::Taskset,
    &numactl::Numactl,
    &systemd::Systemd,
    &cgroup::Cgroup,
    &docker::Docker,
    &kubernetes::Kubernetes,
    &jvm::Jvm,
    &memkind::Memkind,
    &sysfs_weights::SysfsWeights,
];

/// A plan in another notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The text for the other launcher, with a final newline.
    pub text: String,
    /// What the target cannot express, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a plan cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It leaves threads as they are, or all its threads belong to later processes.
    #[error(
        "cannot export to {target}: the plan maps no thread of its first process (path 0), which leaves nothing to do"
    )]
    NoThread {
        /// Name of the target.
        target: &'static str,
    },
    /// It is a plan by role, of which the target can express nothing, or which leaves all as it is.
    #[error(
        "cannot export to {target}: the plan is one by role, for which there are taskset, numactl, systemd and cgroup, or it leaves all roles as they are"
    )]
    ByRole {
        /// Name of the target.
        target: &'static str,
    },
    /// It is a plan by role that binds some roles, and the target binds only the whole program.
    #[error(
        "cannot export to {target}: it binds the whole program, and the plan leaves roles as they are ({}): add --role \"*=0\" for all of them on node 0",
        left.join(", ")
    )]
    RolesLeft {
        /// Name of the target.
        target: &'static str,
        /// The roles that are left.
        left: Vec<String>,
    },
    /// It places no pages, and the target is for memory alone.
    #[error("cannot export to {target}: the plan places no pages, which leaves nothing to do")]
    NoPage {
        /// Name of the target.
        target: &'static str,
    },
}

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static dyn Target> {
    TARGETS.iter().copied().find(|target| target.name() == name)
}

/// Writes a plan for a target.
///
/// # Errors
/// [`ExportError`]
pub fn export(plan: &Plan, target: &dyn Target) -> Result<Exported, ExportError> {
    let name = target.name();
    if !plan.roles.is_empty() {
        return by_role(&plan.roles, target);
    }
    let (threads, others) = match (target.has_threads(), target.has_all_processes()) {
        (false, _) => (Vec::new(), Vec::new()),
        (_, true) => (plan.threads.iter().map(|t| t.os_pu.0).collect(), Vec::new()),
        (_, false) => first_process(plan),
    };
    if !target.has_threads() && plan.pages.is_empty() {
        return Err(ExportError::NoPage { target: name });
    }
    if target.has_threads() && threads.is_empty() {
        return Err(ExportError::NoThread { target: name });
    }
    let mut warnings = Vec::new();
    let distinct: BTreeSet<u32> = threads.iter().copied().collect();
    if !target.pins_threads() && threads.len() > 1 && distinct.len() > 1 {
        warnings.push(format!(
            "{name} binds the program to a set of PUs: which of {} threads runs on which PU is lost",
            threads.len()
        ));
    }
    warnings.extend(target.loses(&threads));
    if !others.is_empty() {
        warnings.push(format!(
            "{name} identifies threads by number, in the order the first thread creates them: {} threads \
             created by others are left out ({})",
            others.len(),
            others[..others.len().min(3)].join(", ")
        ));
    }
    if !plan.pages.is_empty() {
        let ranges = plan.pages.len();
        warnings.push(match target.memory() {
            Some(words) => {
                format!("{name} cannot place single pages: {ranges} ranges become {words}")
            }
            None => format!(
                "{name} cannot express memory placement: {ranges} page ranges are lost; `numaloc run` \
                 places them"
            ),
        });
    }
    warnings.extend(
        target
            .needs(plan)
            .map(|words| format!("{name} needs {words}")),
    );
    let mut text = target.write(&threads, plan) + "\n";
    if target.has_comments() && !warnings.is_empty() {
        text.insert_str(0, &format!("# {}\n", warnings.join("; ")));
    }
    Ok(Exported { text, warnings })
}

fn by_role(plan: &RolesPlan, target: &dyn Target) -> Result<Exported, ExportError> {
    let target_name = target.name();
    let text = target.write_roles(plan);
    let text = text.ok_or_else(|| match roles::left(plan) {
        left if target.is_for_roles() && left.len() < plan.roles.len() => ExportError::RolesLeft {
            target: target_name,
            left,
        },
        _ => ExportError::ByRole {
            target: target_name,
        },
    })?;
    let warnings = match target.has_roles() {
        true => roles::warnings(plan, target_name),
        false => vec![format!(
            "{target_name} holds for the whole program: which role runs where is lost; `numaloc run` binds each"
        )],
    };
    let mut text = text + "\n";
    // Prefixes of command lines have no comments.
    if (target.has_comments() || target.has_roles()) && !warnings.is_empty() {
        text.insert_str(0, &format!("# {}\n", warnings.join("; ")));
    }
    Ok(Exported { text, warnings })
}

/// PUs of threads `0`, `0.1`, `0.2`, ... in this order, and the paths of all others.
fn first_process(plan: &Plan) -> (Vec<u32>, Vec<String>) {
    let mut numbered = Vec::new();
    let mut others = Vec::new();
    for thread in &plan.threads {
        let number = match thread.path.as_str() {
            "0" => Some(0),
            path => path.strip_prefix("0.").and_then(|n| n.parse::<u32>().ok()),
        };
        match number {
            Some(number) => numbered.push((number, thread.os_pu.0)),
            None => others.push(thread.path.clone()),
        }
    }
    numbered.sort_unstable();
    (numbered.into_iter().map(|(_, pu)| pu).collect(), others)
}

/// `1,0,3`.
fn commas(numbers: impl IntoIterator<Item = u32>) -> String {
    let words: Vec<String> = numbers.into_iter().map(|n| n.to_string()).collect();
    words.join(",")
}

/// Distinct PUs, ascending.
fn set(threads: &[u32]) -> Vec<u32> {
    let set: BTreeSet<u32> = threads.iter().copied().collect();
    set.into_iter().collect()
}

/// Ascending numbers as the kernel writes lists: `0-3,8`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        Some(match run.len() {
            1 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Nodes with planned pages, ascending kernel numbers.
fn memory_nodes(plan: &Plan) -> Vec<u32> {
    let nodes: BTreeSet<u32> = plan.pages.iter().map(|pages| pages.os_node.0).collect();
    nodes.into_iter().collect()
}
