//! `numaloc tasks run`: runs a task program under a plan, under its hints, or without both.

use std::path::PathBuf;

use clap::ValueEnum;
use numaloc_launch::exit_status;
use numaloc_topology::resolve;
use serde_json::Value;

use super::{absolute, file_error, run_program};
use crate::error::CliError;
use crate::ui::Ui;

#[derive(Clone, Copy, ValueEnum)]
enum Scheduler {
    /// Work stealing inside NUMA nodes
    Numa,
    /// oneTBB, which does not know about nodes
    Tbb,
    /// One thread, the same order in every run
    Single,
}

#[derive(Clone, Copy, ValueEnum)]
enum Allocator {
    /// Pools per node, bound
    Numa,
    /// The C library's: first touch
    System,
    /// oneTBB's scalable allocator: first touch
    Tbb,
}

#[derive(Clone, Copy, ValueEnum)]
enum Steal {
    /// Only inside their own node
    Node,
    /// Inside their own node, and from nodes that have more than they can do in the time that a task takes elsewhere
    Surplus,
    /// From other nodes when their own node has no work
    Any,
}

/// Run an OCR program, with a plan or without
///
/// Without a plan, tasks go where the program's hints say, else where their creator runs, and idle
/// workers may steal from other nodes. With a plan, tasks and data blocks go where the plan says; those
/// that are not in the plan follow the hints and are counted. A described machine is simulated.
#[derive(clap::Args)]
pub(super) struct Run {
    /// Plan folder written by `numaloc tasks analyse`
    #[arg(long, value_name = "FOLDER")]
    plan: Option<PathBuf>,
    /// Scheduler of ready tasks
    #[arg(long, value_enum, default_value = "numa")]
    scheduler: Scheduler,
    /// Allocator of data blocks
    #[arg(long, value_enum, default_value = "numa")]
    allocator: Allocator,
    /// Where idle workers may steal [default: any without a plan, as the plan says with one]
    #[arg(long, value_enum)]
    steal: Option<Steal>,
    /// Number of workers [default: one for each PU]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// `this`, or a described machine to simulate (see `numaloc machines`)
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Ignore the program's affinity hints
    #[arg(long)]
    no_hints: bool,
    /// Report errors of the program (stale GUIDs, double satisfaction, tasks that never ran)
    #[arg(long)]
    checked: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File to write statistics to (JSON)
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Replace an existing statistics file
    #[arg(long)]
    force: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

impl Run {
    pub(super) fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .stats
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()
            .map_err(|error| error.status(125))?;
        resolve(&self.machine)?;
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map_or(String::new(), |value| value.get_name().to_owned())
        };
        let folder = tempfile::Builder::new()
            .prefix("numaloc-tasks-")
            .tempdir()
            .map_err(|error| {
                CliError::tool(format!("cannot create a temporary folder: {error}")).status(125)
            })?;
        let stats = folder.path().join("stats.json");
        let mut settings = vec![
            ("SCHEDULER", name(&|| self.scheduler.to_possible_value())),
            ("ALLOCATOR", name(&|| self.allocator.to_possible_value())),
            ("MACHINE", self.machine.clone()),
            ("HINTS", u8::from(!self.no_hints).to_string()),
            ("CHECKED", u8::from(self.checked).to_string()),
            ("SEED", self.seed.to_string()),
            ("STATS", absolute(&stats)?),
            ("PROFILE", String::new()),
            ("PLAN", String::new()),
        ];
        if let Some(steal) = self.steal {
            settings.push(("STEAL", name(&|| steal.to_possible_value())));
        }
        if let Some(workers) = self.workers {
            settings.push(("WORKERS", workers.to_string()));
        }
        if let Some(plan) = &self.plan {
            numaloc_task_plan::read_plan(plan).map_err(|error| file_error(error).status(125))?;
            settings.push(("PLAN", absolute(plan)?));
        }
        let status = run_program(&self.program, &settings, ui)?;
        let stats_json = std::fs::read_to_string(&stats).ok();
        if let (Some(output), Some(text)) = (&output, &stats_json) {
            output
                .write(text.as_bytes())
                .map_err(|error| CliError::from(error).status(125))?;
        }
        let Some(stats_json) =
            stats_json.and_then(|text| serde_json::from_str::<Value>(&text).ok())
        else {
            if status.success() {
                ui.remark(format!(
                    "{} did not run tasks (is it linked with -lnumaloc_ocr?)",
                    self.program[0]
                ));
            }
            return Ok(exit_status(status));
        };
        ui.result(String::new, || stats_json.clone());
        if !ui.json {
            self.remark(ui, &stats_json);
        }
        Ok(exit_status(status))
    }

    fn remark(&self, ui: &Ui, stats_json: &Value) {
        let number = |name: &str| stats_json[name].as_f64().unwrap_or(0.0);
        if self.plan.is_some() {
            let (planned, open, unknown) = (
                number("planned"),
                number("planned_no_opinion"),
                number("unplanned"),
            );
            let all = (planned + open + unknown).max(1.0);
            ui.remark(format!(
                "plan: {planned} of {all} tasks placed ({:.2} %), {open} left open by the plan, {unknown} not in the plan",
                100.0 * planned / all
            ));
            if unknown > 0.5 * all {
                ui.remark(
                    "most tasks are not in the plan: was it made for this program, divided into as many parts?",
                );
            }
        }
        if stats_json["placement"] == "simulated" {
            ui.remark(format!(
                "simulated placement on {}: {:.1} % of bytes remote, {:.6} s by the model",
                stats_json["machine"].as_str().unwrap_or("?"),
                100.0 * number("remote_share"),
                number("simulated_seconds")
            ));
        }
        if number("bindings_refused") > 0.0 {
            ui.remark(format!(
                "the kernel refused to bind {} mappings to their node",
                number("bindings_refused")
            ));
        }
    }
}
