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
    /// No progress and no remarks on stderr, only errors
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

/// Hidden argument: this process is the child that reads hwloc XML for its parent.
const READ_XML: &str = "read-hwloc-xml";

fn main() -> std::process::ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == READ_XML)
    {
        let served = numaloc_topology::serve_xml(std::io::stdin(), std::io::stdout());
        return served.map_or(1.into(), |()| 0.into());
    }
    numaloc_topology::isolate_xml(|| {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(READ_XML);
        command
    });
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return help_or_usage(&answer),
    };
    let ui = Ui::new(cli.json, cli.quiet);
    let own_failure = cli.command.own_failure();
    let status = match (cli.command.run(&ui), ui.failure()) {
        (Ok(status), None) => status,
        (Ok(status), Some(error)) => {
            ui::stderr(&error.text());
            // The program's own status takes precedence over our failure to print a result.
            if status == 0 { own_failure } else { status }
        }
        (Err(error), _) => {
            ui::stderr(&error.text());
            error.status
        }
    };
    std::process::ExitCode::from(status)
}

/// Prints clap's answer if there is no command to run: help, the version or a usage error.
fn help_or_usage(answer: &clap::Error) -> std::process::ExitCode {
    let status = u8::try_from(answer.exit_code()).unwrap_or(error::USAGE);
    match answer.print() {
        Err(failed) if !answer.use_stderr() && failed.kind() != std::io::ErrorKind::BrokenPipe => {
            let error = error::CliError::tool(format!("cannot write standard output: {failed}"));
            ui::stderr(&error.text());
            std::process::ExitCode::from(error.status)
        }
        _ => std::process::ExitCode::from(status),
    }
}
