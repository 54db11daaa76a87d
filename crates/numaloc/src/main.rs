//! The `numaloc` command: typed arguments, the registry of commands, and nothing else.

#![forbid(unsafe_code)]

mod access_trace;
mod candidates;
mod commands;
mod error;
mod setting;
mod ui;

use clap::Parser;

use crate::commands::Command;
use crate::ui::Ui;

/// Make parallel programs run where their data is.
///
/// numaloc profiles an unmodified parallel program, explains how its threads communicate and use
/// memory pages, decides where threads and pages should live on a NUMA machine, puts them there, and
/// measures what that was worth.
#[derive(Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// One JSON object on stdout instead of text (field names carry their units)
    #[arg(long, global = true)]
    json: bool,
    /// No progress and no remarks on stderr; errors still appear
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  numaloc record -o app.numaloc -- ./app --size 1000
  numaloc show app.numaloc
  numaloc plan app.numaloc --threads deloc --pages locality -o plan.json
  numaloc run --plan plan.json -- ./app --size 1000
  numaloc report app.numaloc plan.json -o report.html

Exit status: 0 ok, 1 tool error, 2 usage, 3 plan not fully applied; record and run pass on the
program's own status and use 125, 126 and 127 for their own failures as env does.";

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let ui = Ui::new(cli.json, cli.quiet);
    match cli.command.run(&ui) {
        Ok(status) => std::process::ExitCode::from(status),
        Err(error) => {
            error.print();
            std::process::ExitCode::from(error.status)
        }
    }
}
