//! The `numaloc` command: typed arguments, the registry of commands, and nothing else.

#![forbid(unsafe_code)]

mod access_trace;
mod browser;
mod commands;
mod error;
mod generate;
mod help;
mod panics;
mod program_line;
mod setting;
mod simulation;
mod size;
mod ui;
mod usage;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::commands::{ANSWER, HOST_FOLDER, KERNEL, MERGE_SHARE};
use crate::generate::GENERATE;
use crate::ui::Ui;

/// Version, and the git commit of a release build.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("NUMALOC_BUILD"));

/// Make parallel programs run where their data is.
///
/// numaloc profiles an unmodified parallel program, explains how its threads communicate and use
/// memory pages, decides where to place threads and pages on a NUMA machine, puts them there, and
/// measures the gain.
#[derive(Parser)]
#[command(version = VERSION, max_term_width = 100, after_help = EXAMPLES, override_usage = USAGE)]
struct Cli {
    /// Print one JSON object on stdout instead of text, or with =FILE write it to a file, which is replaced (names of
    /// fields contain their units)
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, require_equals = true, display_order = 1000)]
    json: Option<Option<std::path::PathBuf>>,
    /// Print only errors on stderr: no progress and no remarks
    #[arg(long, short, global = true, display_order = 1000)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

/// A program in the place of a command is recorded ([`program_line`]).
const USAGE: &str = "\
numaloc [OPTIONS] <COMMAND>
       numaloc [OPTIONS] PROGRAM [ARGS]...    records the program";

const EXAMPLES: &str = "\
Examples:
  numaloc ./app --size 1000
  numaloc record -o app.numaloc -- ./app --size 1000
  numaloc show app.numaloc
  numaloc plan app.numaloc --threads deloc --pages locality -o plan.json
  numaloc run --plan plan.json -- ./app --size 1000
  numaloc report app.numaloc plan.json -o report.html

Exit status: 0 ok, 1 tool error, 2 usage, 3 plan not fully applied or a limit of `check` exceeded;
record and run pass on the program's own status and use 125, 126 and 127 for their own failures as
env does.";

/// Hidden argument: this process is the child that reads hwloc XML for its parent.
const READ_XML: &str = "read-hwloc-xml";

fn main() -> std::process::ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == READ_XML) {
        let served = numaloc_topology::serve_xml(std::io::stdin(), std::io::stdout());
        return served.map_or(1.into(), |()| 0.into());
    }
    if words.first().is_some_and(|word| word == MERGE_SHARE) {
        return commands::merge_share(&words[1..]);
    }
    if words.first().is_some_and(|word| word == HOST_FOLDER) {
        return commands::host_folder(&words[1..]);
    }
    if words.first().is_some_and(|word| word == GENERATE) {
        return generated(&words[1..]);
    }
    if let [command, option, words @ ..] = &words[..]
        && command == "validate"
        && option == KERNEL
    {
        return commands::run_kernel(words);
    }
    numaloc_topology::isolate_xml(|| {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(READ_XML);
        command
    });
    if words.first().is_some_and(|word| word == ANSWER) {
        return commands::answer_of(&words[1..]);
    }
    let declare: fn() -> clap::Command = || help::with_short_texts(Cli::command());
    commands::declare(declare);
    let declared = declare();
    let line = match program_line::completed(&words, &declared) {
        Ok(line) => line,
        Err(error) => {
            ui::stderr(&error.text());
            return std::process::ExitCode::from(error.status);
        }
    };
    let tool = std::env::args_os().take(1);
    let all: Vec<OsString> = tool.chain(line.words).collect();
    commands::set_words(all.clone(), line.remark);
    let parsed = declared.try_get_matches_from(all);
    let cli = match parsed.and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        // `-V` prints the first line alone.
        Err(answer)
            if answer.kind() == ErrorKind::DisplayVersion
                && words.iter().any(|word| word == "--version") =>
        {
            return printed(&format!("numaloc {VERSION}\n{}", commands::frontends()));
        }
        Err(answer) => return help_or_usage(&answer, &words),
    };
    numaloc_files::roles::keep_apart();
    let own_failure = cli.command.own_failure();
    let json = cli.json.as_ref().map(Option::as_deref);
    let ui = match Ui::new(json, cli.quiet) {
        Ok(ui) => ui,
        Err(error) => {
            ui::stderr(&error.text());
            return std::process::ExitCode::from(own_failure);
        }
    };
    let status = panics::contained(|| finished(cli.command, &ui, own_failure));
    std::process::ExitCode::from(status.unwrap_or(own_failure))
}

/// Runs a command and reports its failures; the exit status.
fn finished(command: Command, ui: &Ui, own_failure: u8) -> u8 {
    match (command.run(ui), ui.failure()) {
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
    }
}

/// Writes to standard output.
fn printed(text: &str) -> std::process::ExitCode {
    match numaloc_files::stdout::write(text.as_bytes()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failed) => {
            let error = error::CliError::tool(format!("cannot write standard output: {failed}"));
            ui::stderr(&error.text());
            std::process::ExitCode::from(error.status)
        }
    }
}

/// Writes man pages or completions.
fn generated(words: &[OsString]) -> std::process::ExitCode {
    match generate::run(Cli::command(), words) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(why) => {
            let error = error::CliError::tool(format!("cannot generate: {why}"));
            ui::stderr(&error.text());
            std::process::ExitCode::from(error.status)
        }
    }
}

/// Prints clap's answer if there is no command to run: help, the version or a usage error.
fn help_or_usage(answer: &clap::Error, words: &[OsString]) -> std::process::ExitCode {
    let status = u8::try_from(answer.exit_code()).unwrap_or(error::USAGE);
    let is_help = answer.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if let Some(error) = usage::explained(answer, &Cli::command(), words).filter(|_| !is_help) {
        ui::stderr(&error.text());
        return std::process::ExitCode::from(status);
    }
    match answer.print() {
        Err(failed) if !answer.use_stderr() && failed.kind() != std::io::ErrorKind::BrokenPipe => {
            let error = error::CliError::tool(format!("cannot write standard output: {failed}"));
            ui::stderr(&error.text());
            std::process::ExitCode::from(error.status)
        }
        _ => std::process::ExitCode::from(status),
    }
}
