//! Plans of policies, made from one profile for this machine.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use numaloc_formats::profile::{Parts, read_parts};
use numaloc_launch::Stop;
use numaloc_model::plan::Plan;
use numaloc_plan::{Choice, Options, PlanRequest, Scope, Subject, Unobserved};

use super::not_stopped;
use crate::commands::policies;
use crate::error::{CliError, TOOL};

/// Time between two looks at whether planning has ended.
const POLL: Duration = Duration::from_millis(5);

/// A variant that is planned.
pub(super) struct Wanted {
    pub name: String,
    pub choice: Choice,
    /// Seeds of random choices: a plan for each, used by the rounds in turn. `random` is drawn again for each round, as
    /// in the papers.
    pub seeds: Vec<u64>,
}

/// Writes all plans into `folder`; the name and the files of each variant.
pub(super) fn write(
    profile: PathBuf,
    wanted: Vec<Wanted>,
    folder: &Path,
    stop: &Stop,
) -> Result<Vec<(String, Vec<PathBuf>)>, CliError> {
    // Planning may take long. On a signal it is left behind: it writes nothing, and ends with this process.
    let planning = std::thread::spawn(move || plans(&profile, &wanted));
    let plans = wait(planning, stop)??;
    let mut variants = Vec::new();
    for (name, plans) in plans {
        let mut files = Vec::new();
        for (round, plan) in plans.iter().enumerate() {
            let file = folder.join(format!("{name}-{round}.json"));
            numaloc_formats::plan::write(plan, &file, false)?;
            files.push(file);
        }
        variants.push((name, files));
    }
    Ok(variants)
}

/// Waits for planning to end, or for a signal.
fn wait<T>(planning: JoinHandle<T>, stop: &Stop) -> Result<T, CliError> {
    while !planning.is_finished() {
        not_stopped("planning", stop)?;
        std::thread::sleep(POLL);
    }
    Ok(planning
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn plans(path: &Path, wanted: &[Wanted]) -> Result<Vec<(String, Vec<Plan>)>, CliError> {
    let page_slices = wanted
        .iter()
        .any(|wanted| wanted.choice.needs_page_slices());
    let profile = read_parts(path, Parts { page_slices })?;
    let machine = numaloc_topology::resolve("this")?;
    let failed = |error| policies::failed(path, error).status(TOOL);
    let subject = Subject::new(Cow::Owned(profile), &Scope::default()).map_err(failed)?;
    let plan = |choice: &Choice, seed: u64| -> Result<Plan, CliError> {
        let options = Options {
            seed,
            ..Options::default()
        };
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice,
            options: &options,
        };
        let planned = numaloc_plan::plan(request, &Unobserved).map_err(failed)?;
        Ok(planned.assemble().plan)
    };
    wanted
        .iter()
        .map(|wanted| {
            let seeds = wanted.seeds.iter();
            let plans = seeds.map(|&seed| plan(&wanted.choice, seed));
            Ok((wanted.name.clone(), plans.collect::<Result<_, CliError>>()?))
        })
        .collect()
}
