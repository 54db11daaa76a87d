//! `numaloc run`: runs a program at native speed under a plan.

use numaloc_apply::online::run_online;
use numaloc_apply::preload;
use numaloc_apply::{LaunchError, Options, PageMode, check_machine};
use numaloc_model::conditions::{DEAL, VARIABLES};
use numaloc_model::outcome::{Applied, Outcome};
use numaloc_model::plan::Plan;
use numaloc_mpi::one_list::one_list;
use numaloc_mpi::{Launcher, RankMap};
use numaloc_topology::{Identity, Topology};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

mod by_role;

use super::online::{self, Flags};
use super::record::HostArgs;
use crate::error::CliError;
use crate::ui::Ui;

/// Exit status if less of the plan was applied than `--require` demands.
const NOT_FULLY_APPLIED: u8 = 3;
/// Exit status for our own failures, as in `env`.
const OURS: u8 = 125;

/// Run a program under a plan: bind threads, place pages, report how much of the plan was applied
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc run --plan plan.json -- ./app --size 1000
  numaloc run --plan plan.json --verify --require 99 -- ./app --size 1000
  numaloc run --json=report.json --plan plan.json -- ./app
  numaloc run --plan plan.json -- mpirun -n 16 ./app
  numaloc run --deal node -- ./app                     OpenMP loops: work stays with threads
  numaloc run --online -- ./app --size 1000

The program's input, output, signals and exit status pass through; the report goes to stderr.
Exit status: the program's own (128 + number for a signal); 3 if less than --require percent of the plan is
in place; 125 when numaloc itself fails, 126 when the program cannot be executed, 127 when there is no such
program.")]
pub struct Args {
    /// Plan made by `numaloc plan`
    #[arg(long, value_name = "FILE", required_unless_present_any = ["online", "deal"])]
    plan: Option<PathBuf>,
    /// Without a plan: place threads and pages by what the program does while it runs
    #[arg(long, conflicts_with_all = ["plan", "verify", "require", "enforce", "pages", "force_machine", "force_program", "machine"])]
    online: bool,
    /// Deal the iterations of OpenMP loops with a dynamic or guided schedule: each thread begins with the
    /// block of its rank, and takes from others, of its own node first, when it has finished; `none` does
    /// not [default: as the plan was recorded]
    #[arg(long, value_name = "BY", value_parser = ["node", "none"], conflicts_with = "online")]
    deal: Option<String>,
    /// Check at the end on which node each planned page is
    #[arg(long)]
    verify: bool,
    /// Fail with status 3 if fewer percent of the planned threads or pages are in place; threads that
    /// are not in the plan count as not in place. Implies --verify
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    require: Option<f64>,
    /// Override thread affinity that the program sets itself
    #[arg(long)]
    enforce: bool,
    /// Place pages: only on machines with several nodes (auto), even on one node (changes nothing), or
    /// never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pages: Pages,
    /// Apply a plan that was made for another machine; PUs and nodes are matched by kernel number
    #[arg(long)]
    force_machine: bool,
    /// Apply a plan that was made from a recording of another program
    #[arg(long)]
    force_program: bool,
    /// Under an MPI launcher: the cluster that the plan was made for [default: this machine]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// The program and its arguments; `--` in front is needed if one of them is also an option of numaloc
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    hosts: HostArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Pages {
    Auto,
    Always,
    Never,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 100".to_owned()),
    }
}

impl Args {
    /// Runs the program and reports.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        super::separated::check::<Self>(&self.command)?;
        let Some(plan) = &self.plan else {
            return match self.online {
                true => self.run_online(ui),
                false => self.run_dealt(),
            };
        };
        let plan = numaloc_formats::plan::read(plan)
            .map_err(|error| CliError::from(error).status(OURS))?;
        if Launcher::of_command(&self.command) != Launcher::None {
            let machine = numaloc_topology::from_this_machine()
                .map_err(|error| CliError::from(error).status(OURS))?;
            return self.run_ranks(&plan, &machine, ui);
        }
        self.hosts
            .refuse("run")
            .map_err(|error| error.status(OURS))?;
        let machine = numaloc_topology::identity_of_this_machine()
            .map_err(|error| CliError::from(error).status(OURS))?;
        let options = self.options();
        // If the plan is refused, no other remark matters.
        check_machine(&plan, &machine, &options).map_err(|error| explain(&error))?;
        remark_environment(&plan, ui);
        let outcome = numaloc_apply::run(&plan, &machine, &self.command, &options)
            .map_err(|error| explain(&error))?;
        self.report(&outcome, ui)
    }

    /// Runs the program without a plan.
    fn run_dealt(&self) -> Result<u8, CliError> {
        let missing = |error: numaloc_launch::FindError| {
            let status = if error.is_missing() { 127 } else { 126 };
            let program = error.program().display().to_string();
            CliError::tool(format!("cannot run {program}: {error}")).status(status)
        };
        let name = self.command.first().cloned().unwrap_or_default();
        let file = numaloc_launch::find(&name).map_err(missing)?;
        let mut command = std::process::Command::new(file);
        command.arg0(name).args(self.command.iter().skip(1));
        if self.deals() == Some(true) {
            let variables = preload::dealing(&self.command, preload::TAKING);
            let variables = variables.map_err(|why| {
                CliError::tool(format!("cannot deal the program's loops: {why}")).status(OURS)
            })?;
            command.envs(variables);
        }
        let status = super::record::child::passing_signals(command).map_err(|error| {
            let program = self.command.first().cloned().unwrap_or_default();
            let program = program.to_string_lossy();
            CliError::tool(format!("cannot run {program}: {error}")).status(126)
        })?;
        Ok(numaloc_launch::exit_status(status))
    }

    /// Whether loops are to be dealt, if the command line says.
    fn deals(&self) -> Option<bool> {
        self.deal.as_deref().map(|by| by != "none")
    }

    fn run_online(&self, ui: &Ui) -> Result<u8, CliError> {
        if Launcher::of_command(&self.command) != Launcher::None {
            return Err(
                CliError::usage("cannot place ranks online: they are started elsewhere")
                    .hint("numaloc run --plan, or mpirun ... numaloc run --online -- ./app"),
            );
        }
        let setup = self.flags.setup().map_err(|error| error.status(OURS))?;
        let (status, report) = self
            .flags
            .follow(&setup, |following, advisor| {
                run_online(&self.command, following, advisor)
            })?
            .map_err(|error| explain(&error))?;
        for line in report.lines() {
            ui.remark(line);
        }
        ui.result(String::new, || online::json(&report, Some(status)));
        Ok(u8::try_from(status & 0xff).unwrap_or(OURS))
    }

    fn options(&self) -> Options {
        Options {
            pages: match self.pages {
                Pages::Auto => PageMode::Auto,
                Pages::Always => PageMode::Always,
                Pages::Never => PageMode::Never,
            },
            verify: self.verify || self.require.is_some(),
            enforce: self.enforce,
            force_machine: self.force_machine,
            force_program: self.force_program,
            deal: self.deals(),
        }
    }

    /// Runs an MPI launcher, which places the ranks.
    fn run_ranks(&self, plan: &Plan, here: &Topology, ui: &Ui) -> Result<u8, CliError> {
        // A plan for a cluster names its machine file, a plan for this machine does not need to.
        let machine = match &self.machine {
            Some(machine) => &numaloc_topology::resolve(machine)
                .map_err(|error| CliError::from(error).status(OURS))?,
            None => here,
        };
        check_machine(plan, &Identity::from(machine), &self.options()).map_err(|error| {
            explain(&error).hint("--machine names the cluster the plan was made for")
        })?;
        let map = RankMap::from_plan(plan, machine)
            .map_err(|error| CliError::tool(error).status(OURS))?;
        let map = match Launcher::of_command(&self.command) {
            // These launchers have one list for all hosts.
            Launcher::Hydra | Launcher::Intel | Launcher::Slurm => {
                one_list(&map, machine).map_err(|why| super::ranks::unequal(why).status(OURS))?
            }
            _ => map,
        };
        remark_environment(plan, ui);
        let work = tempfile::Builder::new()
            .prefix(".numaloc-run-")
            .tempdir_in(".")
            .map_err(|error| {
                CliError::tool(format!("cannot write in this folder: {error}")).status(OURS)
            })?;
        let folder = work.path().join("ranks");
        let run = &super::record::child::passing_signals;
        let gathering = self.hosts.gathering();
        let outcome = numaloc_mpi::run::run(&self.command, &map, &folder, gathering.as_ref(), run)
            .map_err(|error| {
                let shown = CliError::tool(&error).status(error.status());
                match error.hint() {
                    Some(hint) => shown.hint(hint),
                    None => shown,
                }
            })?;
        if !plan.pages.is_empty() {
            ui.remark("pages are left to the kernel: ranks are placed by their launcher");
        }
        self.report(&outcome, ui)
    }

    fn report(&self, outcome: &Outcome, ui: &Ui) -> Result<u8, CliError> {
        for line in lines(outcome) {
            ui.remark(line);
        }
        ui.result(String::new, || json(outcome));
        if let Some(required) = self.require
            && let Some(short) = shortfall(outcome, required)
        {
            ui.remark(short);
            if outcome.status == 0 {
                return Ok(NOT_FULLY_APPLIED);
            }
        }
        Ok(u8::try_from(outcome.status & 0xff).unwrap_or(OURS))
    }
}

fn remark_environment(plan: &Plan, ui: &Ui) {
    for line in other_environment(plan) {
        ui.remark(line);
    }
}

fn explain(error: &LaunchError) -> CliError {
    let shown = CliError::tool(error).status(error.status());
    match error {
        LaunchError::OtherMachine { .. } => shown
            .expected("a plan for this machine")
            .hint("make one with `numaloc plan ... --machine this`, or use --force-machine"),
        LaunchError::Plan(_) => shown.hint("make the plan again with `numaloc plan`"),
        LaunchError::NotExecutable { .. } => {
            shown.hint("check the file's mode and that it is a program for this machine")
        }
        _ => shown,
    }
}

/// Variables that shaped the recording and have other values now, which also changes the threads.
fn other_environment(plan: &Plan) -> Vec<String> {
    let Some(recorded) = &plan.provenance.environment else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    // Loops are dealt as in the recording, whatever the variable is.
    for name in VARIABLES.into_iter().filter(|&name| name != DEAL) {
        let then = recorded.iter().find(|(known, _)| known == name);
        let then = then.map(|(_, value)| value.as_str());
        let now = std::env::var_os(name);
        let now = now.as_deref().map(|value| value.to_string_lossy());
        let shown = |value: Option<&str>| {
            value.map_or_else(|| "unset".to_owned(), |value| format!("{name}={value}"))
        };
        if then != now.as_deref() {
            lines.push(format!(
                "the plan was recorded with {}, now {}",
                match then {
                    Some(_) => shown(then),
                    None => format!("{name} unset"),
                },
                match then {
                    Some(_) if now.is_none() => "it is unset".to_owned(),
                    _ => shown(now.as_deref()),
                }
            ));
        }
    }
    lines
}

fn shortfall(outcome: &Outcome, required: f64) -> Option<String> {
    let short = |what: &str, applied: &Applied| {
        let held = applied.share() * 100.0;
        (held < required).then(|| {
            format!("only {held:.1} % of the planned {what} are in place, --require {required}")
        })
    };
    let Applied {
        planned,
        placed,
        unplanned,
        ..
    } = outcome.threads;
    let crowd = (unplanned > 0 && outcome.threads.share_of_all() * 100.0 < required).then(|| {
        format!(
            "only {placed} of {} threads ({planned} planned, {unplanned} not in the plan) are in place, --require {required}",
            planned + unplanned
        )
    });
    crowd
        .or_else(|| short("threads", &outcome.threads))
        .or_else(|| short("pages", &outcome.pages))
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let count = |what: &str, applied: &Applied| {
        let mut line = format!(
            "{what}: {} of {} where planned",
            applied.placed, applied.planned
        );
        if applied.not_found > 0 {
            line += &format!(", {} not found", applied.not_found);
        }
        if applied.unplanned > 0 {
            line += &format!(", {} more that are not in the plan", applied.unplanned);
        }
        for (errno, count) in &applied.refused {
            line += &format!(", {count} refused ({errno})");
        }
        line
    };
    let mut lines = vec![count("threads", &outcome.threads)];
    if outcome.pages.planned > 0 {
        lines.push(count("pages", &outcome.pages));
    }
    lines.extend(by_role::lines(outcome));
    lines.extend(outcome.notes.iter().cloned());
    lines
}

fn json(outcome: &Outcome) -> serde_json::Value {
    let counts = |applied: &Applied| {
        json!({
            "planned": applied.planned,
            "placed": applied.placed,
            "not_found": applied.not_found,
            "unplanned": applied.unplanned,
            "refused": applied.refused.iter()
                .map(|(errno, count)| (errno.clone(), json!(count)))
                .collect::<serde_json::Map<_, _>>(),
            "share": applied.share(),
        })
    };
    json!({
        "version": 1,
        "threads": counts(&outcome.threads),
        "pages": counts(&outcome.pages),
        "roles": by_role::roles(outcome),
        "segments": by_role::segments(outcome),
        "notes": outcome.notes,
        "wall_s": outcome.wall_s,
        "status": outcome.status,
    })
}
