//! `numaloc import`: converts recordings of other tools to profiles.
//!
//! A format is a variant of [`Format`], a way to recognise its files in [`Format::of`] and a module with
//! `fn import(&Args) -> Result<Profile, CliError>`.

use std::io::Read;
use std::path::{Path, PathBuf};

use numaloc_formats::matrix::MatrixFormat;
use numaloc_model::Profile;
use numaloc_model::number::plural;
use serde_json::json;

use crate::error::CliError;
use crate::ui::Ui;

mod matrix;
mod perf;

/// Convert the recording of another tool to a profile: perf.data, or a communication matrix with pages
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  perf mem record -o perf.data -- ./app            (Intel, AMD, Arm with memory sampling)
  numaloc import perf.data -o app.numaloc
  numaloc import perf.data -o app.numaloc --process app --window 1ms
  numaloc show app.numaloc --layer sampled_line

  perf record -d -c 1 -e page-faults -- ./app      (any machine: who touches which page first)
  numaloc import perf.data -o touch.numaloc

  numaloc import app.full.6.comm.csv --format eagermap -o app.numaloc     (numalize, EagerMap)
  numaloc import app.full.6.comm.csv --format eagermap --pages app.full.page.csv -o app.numaloc
  numaloc import matrix.npy -o app.numaloc")]
pub struct Args {
    /// File to import
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Profile folder to write
    #[arg(long, short, value_name = "NAME.numaloc")]
    output: PathBuf,
    /// Replace the profile if it exists
    #[arg(long)]
    force: bool,
    /// Format of the file [default: detected from its content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    perf: perf::PerfArgs,
    #[command(flatten)]
    matrix: matrix::MatrixArgs,
}

/// A foreign format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// perf.data of Linux perf
    Perf,
    /// Matrix: n lines of n numbers, thread 0 first
    Csv,
    /// Matrix: CSV with the last thread first, as numalize writes and EagerMap reads it
    #[value(alias = "numalize")]
    Eagermap,
    /// Matrix: NumPy array
    Npy,
    /// Matrix: MatrixMarket
    Mtx,
    /// Matrix: `src dst [amount]` lines
    Edges,
}

impl Format {
    /// Format of a file by its first bytes; of a text matrix by its extension.
    fn of(file: &Path) -> Result<Self, CliError> {
        // The folder of `perf record --threads`.
        let header = numaloc_perf::header_in(file);
        let file = header.as_deref().unwrap_or(file);
        let mut start = Vec::new();
        numaloc_files::input::open(file)
            .and_then(|opened| opened.take(8).read_to_end(&mut start))
            .map_err(|error| CliError::tool(format!("cannot read {}: {error}", file.display())))?;
        match start.as_slice() {
            b"PERFILE2" | b"2ELIFREP" => Ok(Self::Perf),
            _ if start.starts_with(b"\x93NUMPY") => Ok(Self::Npy),
            _ if start.starts_with(b"%%Matrix") => Ok(Self::Mtx),
            _ if matches_ending(file, &["edges", "edgelist", "el"]) => Ok(Self::Edges),
            _ if matches_ending(file, &["csv"]) => Ok(Self::Csv),
            _ => Err(CliError::tool(format!(
                "cannot import {}: no format known here begins with {}",
                file.display(),
                start.escape_ascii()
            ))
            .expected(
                "perf.data, which begins with PERFILE2, or a matrix: .csv, .npy, .mtx, .edges",
            )),
        }
    }
}

impl Args {
    /// Reads the file and writes the profile.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = numaloc_formats::profile::output(&self.output, self.force)?;
        let format = match self.format {
            Some(format) => format,
            None => Format::of(&self.file)?,
        };
        let profile = match format {
            Format::Perf => self.perf.import(&self.file)?,
            Format::Csv => self.matrix(MatrixFormat::Csv, false, ui)?,
            Format::Eagermap => self.matrix(MatrixFormat::Csv, true, ui)?,
            Format::Npy => self.matrix(MatrixFormat::Npy, false, ui)?,
            Format::Mtx => self.matrix(MatrixFormat::MatrixMarket, false, ui)?,
            Format::Edges => self.matrix(MatrixFormat::Edges, false, ui)?,
        };
        numaloc_formats::profile::write_to(&profile, &[], &output)?;
        for note in &profile.meta().notes {
            ui.remark(note);
        }
        ui.result(
            || summary(&profile, &self.output),
            || {
                json!({
                    "version": 1,
                    "profile": self.output,
                    "frontend": profile.meta().frontend,
                    "threads": profile.threads().len(),
                    "slices": profile.slices().len(),
                    "pages": profile.pages().pages().len(),
                    "accesses": profile.pages().total(),
                    "sampled": profile.meta().sampled,
                    "complete": profile.meta().complete,
                    "notes": profile.meta().notes,
                })
            },
        );
        Ok(0)
    }
}

impl Args {
    fn matrix(&self, format: MatrixFormat, reversed: bool, ui: &Ui) -> Result<Profile, CliError> {
        self.matrix
            .import(&self.file, format, reversed, self.perf.page_size, ui)
    }
}

fn matches_ending(file: &Path, endings: &[&str]) -> bool {
    let ending = file.extension().map(|e| e.to_ascii_lowercase());
    ending.is_some_and(|e| endings.iter().any(|known| e == *known))
}

fn summary(profile: &Profile, output: &Path) -> String {
    let layers: Vec<&str> = profile.layers().iter().map(|layer| layer.name()).collect();
    format!(
        "{}: {}, {}, {}, {} accesses; communication: {}\n",
        output.display(),
        plural(profile.threads().len(), "thread"),
        plural(profile.slices().len(), "slice"),
        plural(profile.pages().pages().len(), "page"),
        profile.pages().total(),
        if layers.is_empty() {
            "none seen".to_owned()
        } else {
            layers.join(", ")
        }
    )
}
