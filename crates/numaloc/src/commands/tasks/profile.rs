//! `numaloc tasks profile`: one run on one thread, in which tasks are tried with their data near and far.

use std::path::PathBuf;

use numaloc_task_plan::read_profile;
use numaloc_topology::resolve;
use serde_json::json;

use super::{absolute, code_of, file_error, run_program};
use crate::error::CliError;
use crate::ui::Ui;

/// Run an OCR program once, on one thread, and measure how its tasks depend on where their data is
///
/// Tasks are run several times with their data blocks near and far, and undone. A few iterations and a
/// smaller problem will do: classes of tasks are the same for any number of iterations. The number of
/// parts the problem is cut into must be that of the later run.
#[derive(clap::Args)]
pub(super) struct Profile {
    /// Folder for the profile (CSV files)
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// The machine whose nodes the program sees
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Replays per class of tasks at most; 0 records the structure only
    #[arg(long, value_name = "N", default_value_t = 32)]
    replays: u32,
    /// Seconds for all experiments together; what is not measured then goes by bytes
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    budget: u64,
    /// Seed of the order of experiments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

impl Profile {
    pub(super) fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        resolve(&self.machine)?;
        let settings = [
            ("PROFILE", absolute(&self.output)?),
            ("MACHINE", self.machine.clone()),
            ("REPLAYS", self.replays.to_string()),
            ("BUDGET", self.budget.to_string()),
            ("SEED", self.seed.to_string()),
            ("PLAN", String::new()),
            ("STATS", String::new()),
        ];
        if self.output.join("plan.csv").exists() {
            return Err(CliError::usage(format!(
                "{} holds a plan, which the profile would overwrite",
                self.output.display()
            ))
            .expected("another folder for the profile, as in -o prof"));
        }
        // A folder with run.csv is complete: an old one must not pass for new.
        let _ = std::fs::remove_file(self.output.join("run.csv"));
        let status = run_program(&self.program, &settings, ui)?;
        if !self.output.join("run.csv").is_file() {
            if status.success() {
                return Err(CliError::tool(format!(
                    "{} wrote no profile to {}",
                    self.program[0],
                    self.output.display()
                ))
                .hint("link it with -lnumaloc_ocr (numaloc tasks cc)")
                .status(125));
            }
            return Ok(code_of(status));
        }
        let profile = read_profile(&self.output).map_err(file_error)?;
        let marks: std::collections::BTreeMap<&str, usize> = profile
            .tasks
            .iter()
            .filter(|task| !task.mark.is_empty())
            .fold(Default::default(), |mut marks, task| {
                *marks.entry(task.mark.as_str()).or_default() += 1;
                marks
            });
        for (mark, tasks) in &marks {
            ui.remark(format!("{tasks} tasks not replayed: {mark}"));
        }
        let told = json!({
            "version": 1,
            "tasks": profile.tasks.len(),
            "blocks": profile.blocks.len(),
            "replays": profile.replays.len(),
            "method": profile.method,
            "nodes": profile.nodes,
            "not_replayed": marks,
        });
        if ui.json {
            ui.result(String::new, || told);
        } else {
            ui.remark(format!(
                "{}: {} tasks, {} data blocks, {} replays ({})",
                self.output.display(),
                profile.tasks.len(),
                profile.blocks.len(),
                profile.replays.len(),
                match profile.method.as_str() {
                    "relocate" => "data moved between nodes",
                    "evict" => "one node: data in and out of the caches stands for near and far",
                    _ => "structure only",
                }
            ));
        }
        Ok(code_of(status))
    }
}
