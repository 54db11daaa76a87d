//! A window of what runs already: a process with its descendants, a control group or a unit.

use std::path::PathBuf;
use std::time::Duration;

use numaloc_launch::Stop;
use numaloc_model::profile::WindowSource;
use numaloc_outside::target::{Target, TargetError};
use numaloc_outside::window::{self, Settings, WindowError};

use super::{Args, OWN_FAILURE};
use crate::error::{CliError, TOOL};
use crate::ui::Ui;

/// What runs already, and how long it is observed.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "What runs already")]
pub(in crate::commands) struct RunningArgs {
    /// Instead of running a program, look at this process and what it has created
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..),
        conflicts_with_all = ["cgroup", "unit"])]
    attach: Option<i32>,
    /// Look at the processes of this control group, by its path or its path below /sys/fs/cgroup
    #[arg(long, value_name = "PATH", conflicts_with = "unit")]
    cgroup: Option<PathBuf>,
    /// Look at the processes of this unit of systemd (`redis-server`, `user@1000.service`)
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
}

impl RunningArgs {
    /// What is observed; `None` if a program is to be run.
    pub fn target(&self) -> Result<Option<Target>, TargetError> {
        match (self.attach, &self.cgroup, &self.unit) {
            (Some(pid), ..) => Ok(Some(Target::Process(pid))),
            (_, Some(path), _) => Target::cgroup(path).map(Some),
            (_, _, Some(unit)) => Target::unit(unit).map(Some),
            _ => Ok(None),
        }
    }
}

/// Options of the window.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "What runs already")]
pub(super) struct WindowArgs {
    #[command(flatten)]
    running: RunningArgs,
    /// Length of the window (`60s`, `500ms`, `2min`) [default: until Ctrl-C or its end]
    #[arg(long = "for", value_name = "TIME", value_parser = length, conflicts_with = "command")]
    length: Option<Duration>,
    /// How accesses of what runs already are seen: pmu, hint-faults, soft-dirty, scan or page-faults
    /// [default: the first of these that works, but page-faults]
    #[arg(long, value_name = "SOURCE", value_parser = source, conflicts_with = "command")]
    source: Option<WindowSource>,
    /// Percent of the time in which what runs already may have to wait because numaloc reads
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent,
        conflicts_with = "command")]
    budget: f64,
}

/// Options that say what is observed.
pub(super) const RUNNING: [&str; 3] = ["attach", "cgroup", "unit"];

/// A time above 0, with its unit.
pub(in crate::commands) fn length(given: &str) -> Result<Duration, String> {
    match crate::commands::map::duration(given)? {
        Duration::ZERO => Err("expected a time above 0".to_owned()),
        length => Ok(length),
    }
}

fn source(name: &str) -> Result<WindowSource, String> {
    WindowSource::from_name(name).ok_or_else(|| {
        let names = WindowSource::ALL.map(WindowSource::name);
        format!("expected one of {}", names.join(", "))
    })
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("expected a percentage above 0, at most 100".to_owned()),
    }
}

/// The error of a target that is not there.
pub(in crate::commands) fn missing(error: &TargetError) -> CliError {
    let shown = CliError::tool(format!("cannot look at what runs: {error}"));
    match error {
        TargetError::NoProcess(_) => shown.hint("ps -e lists processes"),
        TargetError::NoUnit(name) => shown.hint(format!("systemctl status {name}")),
        _ => shown.hint("systemd-cgls lists control groups"),
    }
}

/// Records a window of what runs, if the options say so, and writes the profile.
///
/// # Errors
/// There is nothing to look at (status 1), or no way to (status 125).
pub(super) fn record(args: &Args, ui: &Ui) -> Result<Option<u8>, CliError> {
    let options = &args.window;
    let target = options.running.target().map_err(|error| missing(&error))?;
    let Some(target) = target else {
        let lonely = options.length.is_some() || options.source.is_some();
        return match lonely && args.command.is_empty() {
            true => Err(CliError::usage("--for and --source need what runs already")
                .expected("--attach PID, --cgroup PATH or --unit NAME")),
            false => Ok(None),
        };
    };
    target.roots().map_err(|error| missing(&error))?;
    let output = args.output.clone().unwrap_or_else(|| {
        let name = target.name();
        PathBuf::from(format!("{}.numaloc", name.replace(['/', ' '], "-")))
    });
    let output = args.checked(&output)?;
    let settings = Settings {
        length: options.length,
        source: options.source,
        period: args.period,
        budget: options.budget / 100.0,
        options: args.sampling(),
    };
    let stop = Stop::new().map_err(|error| {
        CliError::tool(format!("cannot catch signals: {error}")).status(OWN_FAILURE)
    })?;
    let of = target.words();
    ui.remark(match options.length {
        Some(length) => format!(
            "looking at {of} for {} s; Ctrl-C ends it earlier",
            length.as_secs_f64()
        ),
        None => format!("looking at {of} until it ends or Ctrl-C"),
    });
    let profile =
        window::record(target, &settings, &|| stop.asked()).map_err(|error| failure(&error))?;
    if let Some(window) = &profile.meta().window {
        for line in numaloc_report::window::lines(window) {
            ui.remark(line);
        }
    }
    args.write(ui, &profile, &output)?;
    Ok(Some(0))
}

fn failure(error: &WindowError) -> CliError {
    let shown = CliError::tool(error);
    match error {
        WindowError::Target(error) => missing(error).status(TOOL),
        WindowError::NoSource { .. } => shown.hint("run it as root").status(OWN_FAILURE),
        WindowError::Refused { .. } => shown
            .hint("run it as root, or as the user of the process")
            .status(OWN_FAILURE),
        WindowError::Nothing { .. } => shown
            .hint("a longer window, in which it works")
            .status(OWN_FAILURE),
        _ => shown.status(OWN_FAILURE),
    }
}
