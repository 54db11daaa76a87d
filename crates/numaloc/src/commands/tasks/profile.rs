//! `numaloc tasks profile`: one run on one thread, in which tasks are measured with their data near and far.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use numaloc_files::FolderOutput;
use numaloc_launch::exit_status;
use numaloc_task_plan::{PROFILE_FOLDER, read_profile};
use numaloc_topology::resolve;
use serde_json::json;

use super::{absolute, file_error, run_program};
use crate::error::CliError;
use crate::ui::Ui;

/// Run an OCR program once, on one thread, and measure how its tasks depend on where their data is
///
/// Tasks are run several times with their data blocks near and far, and their effects are undone. A few
/// iterations and a smaller problem suffice, because classes of tasks do not depend on the number of
/// iterations. The problem should be divided into as many parts as in the later run; other numbers
/// are scaled.
#[derive(clap::Args)]
pub(super) struct Profile {
    /// Folder for the profile (CSV files)
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// Replace an existing profile
    #[arg(long)]
    force: bool,
    /// The machine whose nodes the program sees
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Maximum number of replays per class of tasks; 0 records only the structure
    #[arg(long, value_name = "N", default_value_t = 32)]
    replays: u32,
    /// Time limit in seconds for all experiments; classes not measured are estimated from bytes
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
        let output = FolderOutput::check(&self.output, self.force, PROFILE_FOLDER)
            .map_err(|error| CliError::from(error).status(125))?;
        resolve(&self.machine)?;
        let mut ended = None;
        let filled = output.fill(|folder| self.profile_into(folder, &mut ended, ui));
        match (filled, ended) {
            (Ok(()), Some(status)) => self.show(status, ui),
            // The program failed without a profile and has reported why.
            (Err(_), Some(status)) if !status.success() => Ok(exit_status(status)),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Ok(0),
        }
    }

    /// Runs the program, which writes its profile into `folder`; `ended` receives how it ended.
    fn profile_into(
        &self,
        folder: &Path,
        ended: &mut Option<ExitStatus>,
        ui: &Ui,
    ) -> Result<(), CliError> {
        if self.replays > 0 {
            ui.remark(format!(
                "one run on one thread; experiments with its tasks take at most {} s more (--budget), at most {} replays of each class (--replays)",
                self.budget, self.replays
            ));
        }
        let progress = !ui.quiet && std::io::stderr().is_terminal();
        let settings = [
            ("PROGRESS", u8::from(progress).to_string()),
            ("PROFILE", absolute(folder)?),
            ("MACHINE", self.machine.clone()),
            ("REPLAYS", self.replays.to_string()),
            ("BUDGET", self.budget.to_string()),
            ("SEED", self.seed.to_string()),
            ("PLAN", String::new()),
            ("STATS", String::new()),
        ];
        *ended = Some(run_program(&self.program, &settings, ui)?);
        // This file is written last, so a folder that has it is complete.
        if folder.join(PROFILE_FOLDER.mark).is_file() {
            return Ok(());
        }
        Err(CliError::tool(format!(
            "{} wrote no profile to {}",
            self.program[0],
            self.output.display()
        ))
        .hint("link it with -lnumaloc_ocr (numaloc tasks cc)")
        .status(125))
    }

    /// Prints a summary of the profile.
    fn show(&self, status: ExitStatus, ui: &Ui) -> Result<u8, CliError> {
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
        let summary = json!({
            "version": 1,
            "tasks": profile.tasks.len(),
            "blocks": profile.blocks.len(),
            "replays": profile.replays.len(),
            "method": profile.method,
            "nodes": profile.nodes,
            "not_replayed": marks,
        });
        ui.result(String::new, || summary);
        if !ui.json {
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
        Ok(exit_status(status))
    }
}
