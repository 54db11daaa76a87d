//! Bind threads: the gain of binding alone, before any mapping or placement.

use numaloc_model::Profile;

use super::{
    Evidence, LOCAL_GAIN, LOCAL_GAIN_NEGLIGIBLE, Likelihood, Measure, REMOTE_GAIN,
    REMOTE_GAIN_NEGLIGIBLE, Verdict, Ways, percent,
};
use crate::outlook::{Scene, working_threads};

pub(super) fn verdict(evidence: &Evidence<'_>, scene: &Scene<'_>, ways: &Ways) -> Verdict {
    let verdict = |likelihood, reason| Verdict::plain(Measure::BindThreads, likelihood, reason);
    let nodes = evidence.assignment.homes.len();
    if nodes < 2 {
        let reason = "the machine has one NUMA node: threads cannot leave it";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    }
    if working_threads(evidence.profile) < 2 {
        let reason = "one thread does the work: the kernel has no reason to move it";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    }
    if let Some(why) = interpreted(evidence, scene.accesses.alone) {
        return verdict(Likelihood::Unlikely, why.to_owned());
    }
    let (free, bound) = (&ways.free, &ways.bound);
    let too_few = evidence.pages_do_not_matter();
    let pages = local_shares(evidence, ways);
    let touch = first_touch_gain(evidence, ways).unwrap_or(0.0);
    // With many stores, their cost decides: the gain must be present under both estimates.
    let at_least = pages
        .and_then(|(free, _)| Some(scene.local_if_stores_sweep(evidence.assignment)? - free))
        .map_or(touch, |swept| swept.min(touch));
    let communication_gain =
        if evidence.communication.events > 0.0 && !evidence.communicates_too_little() {
            free.remote - bound.remote
        } else {
            0.0
        };
    let mut figures = Vec::new();
    if let Some((free, bound)) = pages {
        figures.push(format!(
            "first touch makes {} of the accesses beyond private caches local if threads are bound in order of creation, \
             down to {} if the kernel moves those that do not work alone (to each of {nodes} nodes alike)",
            percent(bound),
            percent(free)
        ));
    } else if let Some(why) = too_few.filter(|_| evidence.pages.pages > 0) {
        figures.push(why);
    }
    if evidence.communication.events > 0.0 {
        figures.push(format!(
            "bound threads leave {} of the communication between nodes, an arbitrary mapping {}",
            percent(bound.remote),
            percent(free.remote)
        ));
    }
    if figures.is_empty() {
        let reason = "neither page use nor communication was observed";
        return verdict(Likelihood::CannotTell, reason.to_owned());
    }
    let figures = figures.join("; ");
    if at_least >= LOCAL_GAIN
        || (evidence.communicates_enough()
            && communication_gain >= REMOTE_GAIN
            && at_least > -LOCAL_GAIN_NEGLIGIBLE)
    {
        let action = if scene.layer.is_message() {
            "Bind ranks in their order (mpirun --bind-to core, or --threads packed --spread --pages first-touch)"
        } else if uses_openmp(evidence.profile) {
            "Bind threads in the order of their creation (OMP_PROC_BIND=true, or --threads in-order --pages first-touch)"
        } else {
            "Bind threads in the order of their creation (--threads in-order --pages first-touch)"
        };
        Verdict {
            action: Some(action.to_owned()),
            recommended: Some(ways.bound.way.clone()),
            ..verdict(Likelihood::Likely, figures)
        }
    } else if touch < LOCAL_GAIN_NEGLIGIBLE && communication_gain < REMOTE_GAIN_NEGLIGIBLE {
        let why = "binding alone, without mapping or placement, gains nothing";
        verdict(Likelihood::Unlikely, format!("{figures}: {why}"))
    } else {
        verdict(Likelihood::CannotTell, figures)
    }
}

/// Local shares by first touch with threads that the kernel moves and with bound ones, where pages matter.
fn local_shares(evidence: &Evidence<'_>, ways: &Ways) -> Option<(f64, f64)> {
    let matter = evidence.pages_do_not_matter().is_none();
    ways.free.local.zip(ways.bound.local).filter(|_| matter)
}

/// What binding adds to the local share by first touch, at most: if the kernel moves the threads otherwise.
pub(super) fn first_touch_gain(evidence: &Evidence<'_>, ways: &Ways) -> Option<f64> {
    local_shares(evidence, ways).map(|(free, bound)| bound - free)
}

/// Whether the program uses OpenMP: threads run functions that compilers outline from parallel regions.
#[must_use]
pub fn uses_openmp(profile: &Profile) -> bool {
    let outlined = |name: &str| name.contains("_omp_fn") || name.contains("omp_outlined");
    let threads = profile.threads().iter();
    let mut names = threads.filter_map(|thread| thread.role.label());
    names.any(|name| outlined(&name) || name.contains("OpenMP"))
        || profile
            .marks()
            .iter()
            .any(|mark| outlined(&mark.place.name))
}

/// Share of the accesses in slices in which several threads work: with more, an interpreter's global lock is not what
/// they wait for. Extensions of Python, such as numpy, release it while they work.
const TOGETHER: f64 = 0.2;

/// Whether slices show that threads work at the same time; `alone` as in [`crate::local::Accesses`].
fn work_together(profile: &Profile, alone: &[f64]) -> bool {
    let (mut together, mut all) = (0.0, 0.0);
    for (thread, alone) in profile.threads().iter().zip(alone) {
        let accesses = thread.accesses as f64;
        together += accesses * (1.0 - alone);
        all += accesses;
    }
    together > TOGETHER * all && !profile.accesses_by_slice().is_empty()
}

/// Why the order of creation says nothing about threads of an interpreter, if the program is one.
fn interpreted(evidence: &Evidence<'_>, alone: &[f64]) -> Option<&'static str> {
    let meta = evidence.profile.meta();
    if meta
        .conditions
        .open()
        .any(|(_, by)| by == "JNI_CreateJavaVM")
    {
        return Some(
            "the threads of a Java virtual machine are created and hand out work as it decides: binding them in order gains nothing",
        );
    }
    let program = meta.command.first()?;
    let file = program.rsplit('/').next().unwrap_or(program);
    // Builds without the lock have a `t` after their version.
    let locked = file.starts_with("python")
        && !file.ends_with('t')
        && !work_together(evidence.profile, alone);
    locked.then_some(
        "one thread of the interpreter works at a time (its global lock): binding gains nothing",
    )
}
