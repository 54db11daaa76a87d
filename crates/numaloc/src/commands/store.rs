//! `numaloc store`: a data set of the profiles of many runs. The Python package does the work: its engines (Arrow,
//! DuckDB, Dask) are Python's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Subcommand;

use crate::error::CliError;
use crate::ui::Ui;

/// Names the interpreter that has the package.
const PYTHON: &str = "NUMALOC_PYTHON";
/// Ends with 0 if the package is there.
const HAS_PACKAGE: &str =
    "import importlib.util as u, sys; sys.exit(u.find_spec('numaloc') is None)";

/// Collect the profiles of many runs in a folder or an S3 bucket, and ask about all of them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc store add app.numaloc fleet --nodes 4
  numaloc store add run*.numaloc s3://bucket/profiles --commit \"$GITHUB_SHA\" --machine epyc-7501
  numaloc store ask fleet most-remote
  numaloc store ask fleet changes --since 2026-11-16
  numaloc store report fleet -o fleet.html

Needs the Python package, built and installed as docs/python.md describes; the variable
NUMALOC_PYTHON names an interpreter that has it, otherwise python3 is used.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add profiles to a store, which is created if it is not there; prints the identifier of each run
    Add {
        /// Profile folders, then the store: a folder or s3://BUCKET/PREFIX
        #[arg(value_name = "PROFILE... STORE", required = true, num_args = 2..)]
        paths: Vec<PathBuf>,
        /// Where the profiles were recorded [default: this host]
        #[arg(long)]
        host: Option<String>,
        /// Name of the program [default: the file name of the recorded command]
        #[arg(long)]
        program: Option<String>,
        /// Day of the recording, YYYY-MM-DD [default: that on which the profile was written]
        #[arg(long)]
        date: Option<String>,
        /// Version of the program [default: GIT_COMMIT, GITHUB_SHA or CI_COMMIT_SHA]
        #[arg(long)]
        commit: Option<String>,
        /// Machine that metrics are for, as in `show`
        #[arg(long, conflicts_with = "nodes")]
        machine: Option<String>,
        /// Number of nodes that metrics are for
        #[arg(long)]
        nodes: Option<u32>,
    },
    /// Answer a question about all profiles of a store
    Ask {
        /// The store
        store: PathBuf,
        /// The question
        #[arg(value_parser = ["runs", "most-remote", "changes", "badly-placed"])]
        question: String,
        /// `changes`: first day of the new runs, YYYY-MM-DD [default: six days before the latest run]
        #[arg(long)]
        since: Option<String>,
    },
    /// Write the answers of all questions as one HTML file
    Report {
        /// The store
        store: PathBuf,
        /// File to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
}

impl Args {
    /// Becomes the Python program; returns if that fails, or with the object that `--json` asks for.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
        let shown = python.to_string_lossy().into_owned();
        let cannot = |why: String| {
            CliError::tool(format!("cannot use a store with {shown}: {why}")).hint(format!(
                "docs/python.md to build and install the package in a virtual environment, and {PYTHON} set to its python"
            ))
        };
        let found = Command::new(&python)
            .args(["-c", HAS_PACKAGE])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| cannot(error.to_string()))?;
        if !found.success() {
            return Err(cannot("it has no package numaloc".to_owned()));
        }
        let mut command = Command::new(&python);
        command.args(["-m", "numaloc", "store"]);
        if !ui.wants_json() {
            let error = command.args(self.action.words(false)).exec();
            return Err(cannot(error.to_string()));
        }
        let done = command
            .args(self.action.words(true))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| cannot(error.to_string()))?;
        let object = serde_json::from_slice(&done.stdout);
        match object {
            Ok(object) if done.status.success() => ui.result(String::new, || object),
            Err(error) if done.status.success() => return Err(cannot(error.to_string())),
            // The package has reported why.
            _ => {}
        }
        Ok(numaloc_launch::exit_status(done.status))
    }
}

impl Action {
    fn words(&self, json: bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let json = json.then(|| OsString::from("--json"));
        let mut option = |name: &str, value: Option<&String>| {
            words.extend(value.map(|value| OsString::from(format!("--{name}={value}"))));
        };
        match self {
            Self::Add {
                paths,
                host,
                program,
                date,
                commit,
                machine,
                nodes,
            } => {
                let nodes = nodes.map(|nodes| nodes.to_string());
                for (name, value) in [
                    ("host", host),
                    ("program", program),
                    ("date", date),
                    ("commit", commit),
                    ("machine", machine),
                    ("nodes", &nodes),
                ] {
                    option(name, value.as_ref());
                }
                words.insert(0, "add".into());
                words.extend(json);
                words.push("--".into());
                words.extend(paths.iter().map(OsString::from));
            }
            Self::Ask {
                store,
                question,
                since,
            } => {
                option("since", since.as_ref());
                words.insert(0, "ask".into());
                words.extend(json);
                words.extend(["--".into(), store.into(), question.into()]);
            }
            Self::Report {
                store,
                output,
                force,
            } => {
                words.extend(["report".into(), "--output".into(), output.into()]);
                words.extend(force.then(|| "--force".into()));
                words.extend(json);
                words.extend(["--".into(), store.into()]);
            }
        }
        words
    }
}
