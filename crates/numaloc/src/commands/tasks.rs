//! `numaloc tasks`: compiles, profiles, plans and runs OCR programs.

mod analyse;
mod cc;
mod profile;
mod run;

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use clap::Subcommand;
use numaloc_task_plan::FileError;

use crate::error::CliError;
use crate::ui::Ui;

/// Task programs (OCR): compile, profile once, make a plan, run where the data is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc tasks cc -O3 stencil2d.c -o stencil2d -lm
  numaloc tasks profile -o prof --machine skylake-4s -- ./stencil2d 1024 8 10 4
  numaloc tasks analyse prof -o plan --machine skylake-4s
  numaloc tasks run --plan plan --machine skylake-4s -- ./stencil2d 2048 8 10 1000
  numaloc tasks run --scheduler tbb --allocator tbb -- ./stencil2d 2048 8 10 1000")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Cc(cc::Cc),
    Run(run::Run),
    Profile(profile::Profile),
    // The spelling up to now; remains for one version.
    #[command(alias = "analyze")]
    Analyse(analyse::Analyse),
}

impl Args {
    /// Runs the subcommand.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        match &self.what {
            What::Cc(cc) => cc.run(),
            What::Run(run) => run.run(ui),
            What::Profile(profile) => profile.run(ui),
            What::Analyse(analyse) => analyse.run(ui),
        }
    }
}

/// Runs the program, signals passed on; with `--json` its output goes to stderr, because stdout has the JSON.
fn run_program(
    program: &[String],
    settings: &[(&str, String)],
    ui: &Ui,
) -> Result<ExitStatus, CliError> {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    for (name, value) in settings {
        command.env(format!("NUMALOC_OCR_{name}"), value);
    }
    if ui.json {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    numaloc_launch::passing_signals(command).map_err(|error| {
        let status = if error.kind() == std::io::ErrorKind::NotFound {
            127
        } else {
            126
        };
        CliError::tool(format!("cannot run {}: {error}", program[0])).status(status)
    })
}

fn absolute(path: &Path) -> Result<String, CliError> {
    std::path::absolute(path)
        .map(|path| path.display().to_string())
        .map_err(|error| CliError::tool(format!("cannot use {}: {error}", path.display())))
}

fn file_error(error: FileError) -> CliError {
    CliError::tool(error)
}
