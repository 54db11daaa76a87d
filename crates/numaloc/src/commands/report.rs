//! `numaloc report`: one self-contained HTML file.

use std::path::{Path, PathBuf};

use numaloc_analysis::{Characterisation, PageMetrics};
use numaloc_files::FileOutput;
use numaloc_formats::plan;
use numaloc_model::{Plan, Profile};
use numaloc_placement::PlaceInput;
use numaloc_plan::candidates;
use numaloc_report::figures::{Paint, PolicyPages};
use numaloc_report::html::{self, Report};
use numaloc_report::markdown;
use numaloc_report::plan::view;
use numaloc_report::png::{Painter, PngError};
use numaloc_report::runs::Run;
use numaloc_report::simulation::{self, Row};
use numaloc_topology::Topology;
use serde_json::json;

use crate::browser;
use crate::commands::advise;
use crate::error::CliError;
use crate::setting::{SettingArgs, equal_nodes};
use crate::simulation::planned::refuse_roles;
use crate::ui::Ui;

/// Write a report: one HTML file with figures, verdict and metrics; needs no network
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc report app.numaloc
  numaloc report app.numaloc plan.json -o report.html
  numaloc report app.numaloc --machine epyc-7501 locality.json deloc.json -o report.html
  numaloc report app.numaloc --simulation simulated.json -o report.html
  numaloc report app.numaloc --svg figures/
  numaloc report app.numaloc --png figures/
  numaloc report small.numaloc --compare-with medium.numaloc large.numaloc -o sizes.html

Plans must be for one machine; it is taken from the first plan unless --machine says otherwise.")]
pub struct Args {
    /// Profile folder written by `numaloc record` or `numaloc import`
    profile: PathBuf,
    /// Plans to compare with the recorded run (up to 4)
    #[arg(num_args = 0..=4)]
    plans: Vec<PathBuf>,
    /// Other profiles to compare with this one, with a bar for each in every overview chart (up to 31)
    #[arg(long, alias = "beside", value_name = "PROFILE", num_args = 1..=31)]
    compare_with: Vec<PathBuf>,
    /// Simulated runs to show: a file with the output of `numaloc simulate --json`
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// Report file to write; `-` is standard output [default: the profile's name with .html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing report or existing figures
    #[arg(long)]
    force: bool,
    /// Show the report in the browser
    #[arg(long, conflicts_with_all = ["svg", "png", "md"])]
    open: bool,
    /// Write every figure as an SVG file into this folder instead of a report
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output"])]
    svg: Option<PathBuf>,
    /// Write every figure as a PNG file into this folder instead of a report
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "svg"])]
    png: Option<PathBuf>,
    /// Print verdict and metrics as Markdown instead of writing a report
    #[arg(long, conflicts_with_all = ["output", "svg", "png"])]
    md: bool,
    #[command(flatten)]
    setting: SettingArgs,
}

/// Largest file of simulated runs that is read.
const MOST_SIMULATED_BYTES: u64 = 1 << 30;

/// The machine of the report, if `plan` was made for it.
fn machine_of<'a>(
    plan: &Plan,
    path: &Path,
    machine: Option<&'a Topology>,
) -> Result<&'a Topology, CliError> {
    let machine = machine.ok_or_else(|| {
        CliError::usage("plans need a machine")
            .hint("--machine with the machine the plans were made for, instead of --nodes")
    })?;
    if plan.fingerprint == machine.fingerprint() {
        return Ok(machine);
    }
    Err(CliError::tool(format!(
        "plan {} was made for {} [{}], the report is for {} [{}]",
        path.display(),
        plan.machine,
        plan.fingerprint,
        machine.name(),
        machine.fingerprint()
    ))
    .hint("make one report per machine, or name the plan's machine with --machine"))
}

impl Args {
    /// The plans to compare with, none of them by role.
    fn read_plans(&self) -> Result<Vec<(&PathBuf, Plan)>, CliError> {
        let mut plans = Vec::new();
        for path in &self.plans {
            let plan = plan::read(path)?;
            refuse_roles(&plan, path)?;
            plans.push((path, plan));
        }
        Ok(plans)
    }

    /// Writes the report or its figures.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(base_name(&self.profile)).with_extension("html"));
        let is_page = self.svg.is_none() && self.png.is_none() && !self.md;
        let output = is_page
            .then(|| ui.output(&output, self.force))
            .transpose()?;
        if self.open && output.as_ref().is_some_and(FileOutput::is_stdout) {
            return Err(CliError::usage(
                "--open needs a file, the report goes to standard output",
            ));
        }
        let profile = self.setting.open(&self.profile)?;
        let plans = self.read_plans()?;
        let mut setting = self.setting.clone();
        if setting.machine.is_none()
            && setting.nodes.is_none()
            && let Some((_, first)) = plans.first()
        {
            setting.machine = Some(first.machine.clone());
        }
        let (found, resolved) = advise::characterise(&setting, &self.profile, &profile, ui)?;
        let machine = resolved.machine.as_ref();
        let views = plans
            .iter()
            .map(|(path, plan)| {
                let machine = machine_of(plan, path, machine)?;
                Ok(view(&stem(path), plan, machine, &profile, &found))
            })
            .collect::<Result<Vec<_>, CliError>>()?;
        let title = base_name(&self.profile);
        let policies = policies(&profile, &found, machine)?;
        let runs = self.runs(&setting, &title, &found)?;
        let simulated = self.simulated()?;
        let next = resolved.next(&self.profile, &profile, &found, &self.plans);
        let report = Report {
            profile: &profile,
            found: &found,
            assumed: &resolved.assumed,
            machine,
            plans: &views,
            policies: &policies,
            compared: &runs,
            simulated: &simulated,
            next: &next,
            title: &title,
            written: &written(),
        };
        if self.md {
            let text = markdown::page(&title, &profile, &found, &resolved.assumed, &views, &next);
            ui.result(|| text.clone(), || json!({"version": 1, "markdown": text}));
            return Ok(0);
        }
        if let Some(folder) = &self.svg {
            let drawn = html::figures(&report, Paint::file());
            let files = drawn.into_iter().map(|f| (f.name, f.svg.into_bytes()));
            return figures(folder, "svg", files.collect(), self.force, ui);
        }
        if let Some(folder) = &self.png {
            let painter = Painter::with_system_fonts().map_err(|error| {
                CliError::tool(error)
                    .hint("install a font (Debian: fonts-dejavu-core), or use --svg")
            })?;
            let files = html::figures(&report, Paint::file())
                .into_iter()
                .map(|f| Ok((f.name, painter.paint(f.name, &f.svg)?)))
                .collect::<Result<_, PngError>>()
                .map_err(CliError::tool)?;
            return figures(folder, "png", files, self.force, ui);
        }
        if let Some(output) = output {
            self.write(&report, &output, ui)?;
        }
        Ok(0)
    }

    /// Writes the page, and shows it if that is asked for.
    fn write(&self, report: &Report<'_>, output: &FileOutput, ui: &Ui) -> Result<(), CliError> {
        let page = html::page(report);
        output.write(page.as_bytes())?;
        ui.written(
            output,
            || format!("{}\n", output.path().display()),
            || json!({"version": 1, "report": output.path(), "size_bytes": page.len()}),
        );
        if self.open {
            browser::open(output.path(), ui);
        }
        Ok(())
    }

    /// The rows of `--simulation`; empty without it.
    fn simulated(&self) -> Result<Vec<Row>, CliError> {
        let Some(path) = &self.simulation else {
            return Ok(Vec::new());
        };
        let cannot = |why: String| {
            CliError::tool(format!("cannot show {}: {why}", path.display()))
                .hint("numaloc simulate PROFILE --machine MACHINE --json > FILE writes such a file")
        };
        let text = numaloc_files::input::read_text(path, MOST_SIMULATED_BYTES)
            .map_err(|error| cannot(error.to_string()))?;
        simulation::read(&text).map_err(|error| cannot(error.to_string()))
    }

    /// This run and those of `--compare-with`, read one after the other; empty without others.
    fn runs(
        &self,
        setting: &SettingArgs,
        title: &str,
        found: &Characterisation,
    ) -> Result<Vec<Run>, CliError> {
        if self.compare_with.is_empty() {
            return Ok(Vec::new());
        }
        let mut runs = vec![Run::of(title, found)];
        for path in &self.compare_with {
            let profile = setting.open(path)?;
            // Each profile with its own default layer unless `--layer` is given.
            let (found, _) = setting.characterise(&profile)?;
            runs.push(Run::of(&base_name(path), &found));
        }
        Ok(runs)
    }
}

/// Page policies that the papers compare, evaluated for the setting's assignment of threads.
const COMPARED: [&str; 6] = [
    "first-touch",
    "random",
    "interleave",
    "locality",
    "balanced",
    "mixed",
];

/// Results of page policies; empty if no page use was recorded or the machine has one node.
fn policies(
    profile: &Profile,
    found: &Characterisation,
    machine: Option<&Topology>,
) -> Result<Vec<PolicyPages>, CliError> {
    let assignment = &found.assignment;
    if found.pages.pages == 0 || assignment.nodes < 2 {
        return Ok(Vec::new());
    }
    let assumed;
    let machine = match machine {
        Some(machine) => machine,
        None => {
            assumed = equal_nodes(assignment.nodes, 1)?;
            &assumed
        }
    };
    let Some(mapping) = candidates::on_nodes(machine, assignment) else {
        return Ok(Vec::new());
    };
    let input = PlaceInput::new(profile.pages(), &mapping, machine);
    COMPARED
        .iter()
        .filter_map(|name| numaloc_placement::policy(name))
        .map(|policy| {
            let placed = numaloc_placement::place(policy, &input).map_err(CliError::tool)?;
            Ok(PolicyPages {
                name: policy.name().to_owned(),
                pages: PageMetrics::of(profile.pages(), assignment, &placed.placement),
            })
        })
        .collect()
}

/// Writes figures into a folder, each under its name: all of them, or none if one already exists.
fn figures(
    folder: &Path,
    extension: &str,
    drawn: Vec<(&str, Vec<u8>)>,
    force: bool,
    ui: &Ui,
) -> Result<u8, CliError> {
    std::fs::create_dir_all(folder).map_err(|error| {
        CliError::tool(format!(
            "cannot create folder {}: {error}",
            folder.display()
        ))
    })?;
    let names: Vec<PathBuf> = drawn
        .iter()
        .map(|(name, _)| folder.join(name).with_extension(extension))
        .collect();
    let outputs = names
        .iter()
        .map(|path| FileOutput::check(path, force))
        .collect::<Result<Vec<_>, _>>()?;
    for (output, (_, bytes)) in outputs.iter().zip(&drawn) {
        output.write(bytes)?;
    }
    ui.result(
        || {
            names
                .iter()
                .map(|name| format!("{}\n", name.display()))
                .collect()
        },
        || json!({"version": 1, "figures": names}),
    );
    Ok(0)
}

/// `runs/app.numaloc` as `app`.
pub(crate) fn base_name(profile: &Path) -> String {
    let name = profile.file_name().map_or_else(
        || "profile".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    name.strip_suffix(".numaloc").unwrap_or(&name).to_owned()
}

fn stem(plan: &Path) -> String {
    plan.file_stem().map_or_else(
        || "plan".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Tool version and date; `SOURCE_DATE_EPOCH` (seconds) makes the output reproducible.
pub(crate) fn written() -> String {
    format!(
        "Written by numaloc {} on {}.",
        env!("CARGO_PKG_VERSION"),
        today()
    )
}

/// Today's date, or that of `SOURCE_DATE_EPOCH`.
pub(crate) fn today() -> String {
    let seconds = std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
        });
    let (year, month, day) = date(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Year, month and day of a day since 1970 (Gregorian, after Howard Hinnant's algorithm).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_dates() {
        // 2000-02-29 is day 11016; 2026-11-21 is day 20778.
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_778), (2026, 11, 21));
    }
}
