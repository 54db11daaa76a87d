//! `numaloc check`: whether the locality of a program got worse than a baseline, for continuous integration.

use std::path::{Path, PathBuf};

use numaloc_analysis::Characterisation;
use numaloc_report::gate::{self, Judged, Limit, NotALimit};
use serde_json::json;

use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Exit status if a limit is exceeded.
const EXCEEDED: u8 = 3;

/// Check that the locality of a program did not get worse than a baseline; prints a Markdown summary
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc check app.numaloc --against baseline.numaloc --max remote=+5%
  numaloc check run1.numaloc run2.numaloc run3.numaloc --against b1.numaloc --against b2.numaloc \\
      --max remote=+5% --max remote_communication=+0.02 --machine epyc-7501
  numaloc check app.numaloc --against baseline.numaloc --max remote=+5% >> \"$GITHUB_STEP_SUMMARY\"

Limits: NAME=+5% or NAME=+0.02 (largest increase), NAME=-5% or NAME=-0.02 (largest decrease),
NAME=0.3 (largest value). NAME is `remote`, the share of page accesses to another node under first
touch, or the key of a metric (numaloc show --json | jq .metrics).

With several profiles on a side, medians are compared, and a limit is exceeded only if the change is
also larger than the spread of the runs. Exit status: 0 if all limits are kept, 3 if one is exceeded,
1 if the profiles cannot be compared, 2 for wrong usage.")]
pub struct Args {
    /// Profiles to check: one, or several runs of the same program
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Profile of the baseline; may be given several times
    #[arg(long, value_name = "PROFILE", required = true)]
    against: Vec<PathBuf>,
    /// Limit of a figure; may be given several times
    #[arg(long = "max", value_name = "NAME=LIMIT", required = true, value_parser = limit, allow_hyphen_values = true)]
    limits: Vec<Limit>,
    #[command(flatten)]
    setting: SettingArgs,
}

fn limit(text: &str) -> Result<Limit, NotALimit> {
    Limit::parse(text)
}

/// A profile as it is checked.
struct Run<'a> {
    path: &'a Path,
    threads: usize,
    found: Characterisation,
}

impl Args {
    /// Compares and prints; the exit status says whether the limits are kept.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let mut setting = self.setting.clone();
        let mut assumed = None;
        let mut characterised = |path| {
            let profile = setting.open(path)?;
            let (found, resolved) = setting.characterise(&profile)?;
            // All profiles are characterised by the layer of the first.
            setting.layer = Some(found.layer.name().to_owned());
            assumed.get_or_insert(resolved.assumed);
            Ok::<_, CliError>(Run {
                path,
                threads: profile.threads().len(),
                found,
            })
        };
        let before = self
            .against
            .iter()
            .map(|path| characterised(path))
            .collect::<Result<Vec<_>, _>>()?;
        let after = self
            .profiles
            .iter()
            .map(|path| characterised(path))
            .collect::<Result<Vec<_>, _>>()?;
        say_other_threads(&before, &after, ui);
        let judged = self
            .limits
            .iter()
            .map(|limit| judged(limit, &before, &after))
            .collect::<Result<Vec<_>, _>>()?;
        let page = gate::markdown(&judged, &assumed.unwrap_or_default());
        ui.result(|| page.clone(), || self.json(&judged, &page));
        Ok(if gate::passed(&judged) { 0 } else { EXCEEDED })
    }

    fn json(&self, judged: &[Judged], page: &str) -> serde_json::Value {
        let figures = judged.iter().map(|one| {
            json!({
                "name": one.name(),
                "unit": one.unit(),
                "before": one.before,
                "after": one.after,
                "worse_by": one.worse_by,
                "allowed": one.allowed,
                "spread": one.spread,
                "outcome": one.outcome.name(),
            })
        });
        json!({
            "version": 1,
            "passed": gate::passed(judged),
            "profiles": self.profiles,
            "against": self.against,
            "figures": figures.collect::<Vec<_>>(),
            "markdown": page,
        })
    }
}

/// Applies a limit; an error if a run lacks the figure, because a check that sees nothing must not pass.
fn judged(limit: &Limit, before: &[Run], after: &[Run]) -> Result<Judged, CliError> {
    let values = |runs: &[Run]| -> Result<Vec<f64>, CliError> {
        let value = |run: &Run| {
            limit.value(&run.found).ok_or_else(|| {
                CliError::tool(format!(
                    "cannot check {} of {}: it was not observed",
                    limit.name(),
                    run.path.display()
                ))
                .hint("numaloc show --json PROFILE | jq .metrics lists what was observed")
            })
        };
        runs.iter().map(value).collect()
    };
    let judged = limit.judge(&values(before)?, &values(after)?);
    judged.ok_or_else(|| CliError::tool(format!("cannot check {}: no runs", limit.name())))
}

fn say_other_threads(before: &[Run], after: &[Run], ui: &Ui) {
    let Some(first) = before.first() else { return };
    let other = before
        .iter()
        .chain(after)
        .find(|run| run.threads != first.threads);
    if let Some(other) = other {
        ui.remark(format!(
            "{} has {} threads, {} has {}: figures of other numbers of threads differ for that reason alone",
            first.path.display(),
            first.threads,
            other.path.display(),
            other.threads
        ));
    }
}
