//! `numaloc import`: what another tool recorded, as a profile.
//!
//! A format is a variant of [`Format`], a way to recognise its files in [`Format::of`] and a module with
//! `fn import(&Args) -> Result<Profile, CliError>`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use numaloc_model::Profile;
use serde_json::json;

use crate::error::CliError;
use crate::ui::Ui;

mod perf;

/// Make a profile from what another tool recorded: perf.data of `perf mem`, `perf c2c`, `perf record -d`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  perf mem record -o perf.data -- ./app            (Intel, AMD, Arm with memory sampling)
  numaloc import perf.data -o app.numaloc
  numaloc import perf.data -o app.numaloc --process app --window 1ms
  numaloc show app.numaloc --layer sampled_line

  perf record -d -c 1 -e page-faults -- ./app      (any machine: who touches which page first)
  numaloc import perf.data -o touch.numaloc")]
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
    /// What the file is [default: recognised by its content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    perf: perf::PerfArgs,
}

/// A foreign format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// perf.data of Linux perf
    Perf,
}

impl Format {
    /// The format of a file, by its first bytes.
    fn of(file: &Path) -> Result<Self, CliError> {
        let mut start = Vec::new();
        File::open(file)
            .and_then(|opened| opened.take(8).read_to_end(&mut start))
            .map_err(|error| CliError::tool(format!("cannot read {}: {error}", file.display())))?;
        match start.as_slice() {
            b"PERFILE2" | b"2ELIFREP" => Ok(Self::Perf),
            _ => Err(CliError::tool(format!(
                "cannot import {}: no format known here begins with {}",
                file.display(),
                start.escape_ascii()
            ))
            .expected("perf.data, which begins with PERFILE2")),
        }
    }
}

impl Args {
    /// Reads the file and writes the profile.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let format = match self.format {
            Some(format) => format,
            None => Format::of(&self.file)?,
        };
        let profile = match format {
            Format::Perf => self.perf.import(&self.file)?,
        };
        numaloc_formats::profile::write(&profile, &self.output, self.force)?;
        for note in &profile.meta.notes {
            ui.remark(note);
        }
        ui.result(
            || summary(&profile, &self.output),
            || {
                json!({
                    "version": 1,
                    "profile": self.output,
                    "frontend": profile.meta.frontend,
                    "threads": profile.threads.len(),
                    "slices": profile.slices.len(),
                    "pages": profile.pages.pages().len(),
                    "accesses": profile.pages.total(),
                    "sampled": profile.meta.sampled,
                    "complete": profile.meta.complete,
                    "notes": profile.meta.notes,
                })
            },
        );
        Ok(0)
    }
}

fn summary(profile: &Profile, output: &Path) -> String {
    let layers: Vec<&str> = profile.layers().iter().map(|layer| layer.name()).collect();
    format!(
        "{}: {} threads, {} slices, {} pages, {} accesses; communication: {}\n",
        output.display(),
        profile.threads.len(),
        profile.slices.len(),
        profile.pages.pages().len(),
        profile.pages.total(),
        if layers.is_empty() {
            "none seen".to_owned()
        } else {
            layers.join(", ")
        }
    )
}
