//! What numaloc predicts of a kernel: it is recorded, judged and planned as any program would be, for this machine.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use numaloc_analysis::outlook::Way;
use numaloc_analysis::verdict::{Likelihood, Measure};
use numaloc_formats::profile::{Parts, read_parts};
use numaloc_launch::Stop;
use numaloc_model::Profile;
use numaloc_plan::worth::Worth;
use numaloc_plan::{Choice, Options, PlanRequest, Reference, Scope, Subject, Unobserved};
use numaloc_topology::Topology;

use super::machine::finished;
use super::program::Program;
use super::variants::Variant;
use crate::commands::compare::own;

/// A verdict of `show`.
pub(super) struct Verdict {
    pub measure: Measure,
    pub likelihood: Likelihood,
    pub reason: String,
    /// The variant that does what it recommends or, for binding, what it is about.
    pub variant: Option<Variant>,
}

/// What is expected of a variant.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// Modelled seconds of the recorded run, and of the program as it is.
    pub seconds: f64,
    /// See `seconds`.
    pub as_it_is_s: f64,
    /// Share of the lines from memory that come from another node; `None` if no lines do.
    pub remote_share: Option<f64>,
}

impl Expected {
    fn of(worth: &Worth, as_it_is: &Worth) -> Self {
        Self {
            seconds: worth.seconds,
            as_it_is_s: as_it_is.seconds,
            remote_share: (worth.lines >= 1.0).then(|| worth.remote_lines / worth.lines),
        }
    }

    /// Time over that of the program as it is.
    pub fn ratio(&self) -> f64 {
        self.seconds / self.as_it_is_s.max(f64::MIN_POSITIVE)
    }
}

/// A variant that is planned.
pub(super) struct Planned {
    pub variant: Variant,
    /// The policies.
    pub threads: String,
    pub pages: String,
    /// The plan's file; `None` for what is only predicted.
    pub file: Option<PathBuf>,
    /// `None` where the model does not apply.
    pub expected: Option<Expected>,
}

/// A recording, and what follows from it.
pub(super) struct Recorded {
    /// Wall seconds of the recording.
    pub seconds: f64,
    /// Loads and stores that were counted.
    pub accesses: u64,
    pub verdicts: Vec<Verdict>,
    /// What `show` says of the whole, in a clause.
    pub answer: String,
    /// Every variant of which something is predicted.
    pub planned: Vec<Planned>,
}

/// Records a kernel with these options of `record`, and plans for `machine`.
pub(super) fn record(
    program: &Program<'_>,
    options: &[&str],
    machine: &Topology,
    folder: &Path,
    stop: &Stop,
) -> Result<Recorded, String> {
    let path = folder.join("kernel.numaloc");
    let mut command = own().map_err(|error| error.message)?;
    command
        .args(["--quiet", "record", "--force", "-o"])
        .arg(&path);
    command.args(options).arg("--").args(program.words());
    let start = Instant::now();
    finished(&mut command, stop)?;
    let seconds = start.elapsed().as_secs_f64();
    let profile = read_parts(&path, Parts { page_slices: true }).map_err(|why| why.to_string())?;
    let judged = judge(&profile, machine)?;
    let planned = planned(&profile, judged.ways, machine, folder)?;
    Ok(Recorded {
        seconds,
        accesses: profile.threads().iter().map(|thread| thread.accesses).sum(),
        verdicts: judged.verdicts,
        answer: judged.answer,
        planned,
    })
}

/// What `show` says of a profile.
struct Judged {
    verdicts: Vec<Verdict>,
    answer: String,
    /// The ways that verdicts recommend: variant, thread policy, page policy.
    ways: Vec<(Variant, String, String)>,
}

/// The verdicts on a profile, and the first problem.
fn judge(profile: &Profile, machine: &Topology) -> Result<Judged, String> {
    let reference = Reference::machine(profile.threads().len(), None, machine.clone());
    let found = reference
        .characterise(profile)
        .map_err(|why| why.to_string())?;
    let mut ways: Vec<(Variant, String, String)> = Vec::new();
    let mut verdicts = Vec::new();
    for verdict in &found.verdicts {
        let way = match &verdict.recommended {
            Some(Way::Mapped(policy)) => Some((Variant::Mapped, &policy[..], FIRST_TOUCH)),
            Some(Way::Placed(policy)) => Some((Variant::Placed, IN_ORDER, &policy[..])),
            _ => None,
        };
        let about_binding = (verdict.measure == Measure::BindThreads).then_some(Variant::Pinned);
        verdicts.push(Verdict {
            measure: verdict.measure,
            likelihood: verdict.likelihood,
            reason: verdict.sentence(),
            variant: way.map(|way| way.0).or(about_binding),
        });
        let known = |way: &(Variant, &str, &str)| ways.iter().any(|known| known.0 == way.0);
        if let Some(way) = way.filter(|way| !known(way)) {
            ways.push((way.0, way.1.to_owned(), way.2.to_owned()));
        }
    }
    let answer = match found.problems.first() {
        Some(problem) => format!("{}: {}", problem.what, problem.remedy),
        None => "nothing to change".to_owned(),
    };
    Ok(Judged {
        verdicts,
        answer,
        ways,
    })
}

/// Thread policy of the variants that bind threads in the order of their creation.
const IN_ORDER: &str = "in-order";
/// Page policy that leaves pages where they are touched first.
const FIRST_TOUCH: &str = "first-touch";

/// Plans and predictions: the program as it is, interleaved, pinned, as verdicts recommend, and the best by the model.
fn planned(
    profile: &Profile,
    ways: Vec<(Variant, String, String)>,
    machine: &Topology,
    folder: &Path,
) -> Result<Vec<Planned>, String> {
    let failed = |why: &dyn std::fmt::Display| why.to_string();
    let subject =
        Subject::new(Cow::Borrowed(profile), &Scope::default()).map_err(|e| failed(&e))?;
    let named =
        |variant, threads: &str, pages: &str| (variant, threads.to_owned(), pages.to_owned());
    let mut wanted = vec![
        named(Variant::Interleave, "os", "interleave"),
        named(Variant::Pinned, IN_ORDER, FIRST_TOUCH),
        named(Variant::Plan, "", ""),
    ];
    wanted.extend(ways);
    let options = Options::default();
    let mut found: Vec<Planned> = Vec::new();
    for (variant, threads, pages) in wanted {
        let choice = match variant {
            Variant::Plan => Choice::open(None, None),
            _ => Choice::new(&threads, &pages),
        };
        let choice = choice.map_err(|e| failed(&e))?;
        let request = PlanRequest {
            subject: &subject,
            machine,
            choice: &choice,
            options: &options,
        };
        let planned = numaloc_plan::plan(request, &Unobserved).map_err(|e| failed(&e))?;
        let ranking = planned.ranking();
        if let Some(ranking) = ranking.as_ref().filter(|_| found.is_empty()) {
            found.push(Planned {
                variant: Variant::None,
                threads: "os".to_owned(),
                pages: FIRST_TOUCH.to_owned(),
                file: None,
                expected: Some(Expected::of(&ranking.as_it_is, &ranking.as_it_is)),
            });
        }
        let plan = planned.assemble().plan;
        // Pages of the whole process are interleaved, not those of known objects alone.
        let file = match variant {
            Variant::Interleave => None,
            _ => {
                let file = folder.join(format!("{}.json", variant.name()));
                numaloc_formats::plan::write(&plan, &file, true).map_err(|e| failed(&e))?;
                Some(file)
            }
        };
        found.push(Planned {
            variant,
            threads: plan.provenance.thread_policy.clone(),
            pages: plan.provenance.page_policy.clone(),
            file,
            expected: ranking.map(|ranking| Expected::of(ranking.plan(), &ranking.as_it_is)),
        });
    }
    Ok(found)
}
