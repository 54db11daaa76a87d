//! `numaloc export`: a profile's matrix or pages for other tools.

use std::path::PathBuf;

use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::communication::undirected;
use numaloc_formats::matrix::{MatrixFormat, write_matrix_to};
use numaloc_formats::numalize_pages;
use numaloc_model::profile::{Amount, Profile};
use numaloc_model::{CommMatrix, Layer};
use serde_json::json;

use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Export the communication matrix or the page table for other tools
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc export app.numaloc -o matrix.csv
  numaloc export app.numaloc --format eagermap -o matrix.csv && eagermap matrix.csv 1,4,16
  numaloc export app.numaloc --format npy -o matrix.npy
  numaloc export app.numaloc --pages -o pages.csv

eagermap is CSV without direction, rows from the last thread to the first, as numalize writes and
EagerMap reads it. --pages writes numalize's columns, which are CSV.")]
pub struct Args {
    /// Profile folder
    profile: PathBuf,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// csv, eagermap, npy, mtx (MatrixMarket) or edges [default: by the file's extension, csv if it has
    /// none]
    #[arg(long, value_name = "FORMAT", conflicts_with = "pages")]
    format: Option<String>,
    /// Communication layer [default: write_read if the profile has it]
    #[arg(long, value_name = "LAYER", conflicts_with = "pages")]
    layer: Option<String>,
    /// Write bytes instead of events
    #[arg(long, conflicts_with = "pages")]
    bytes: bool,
    /// Export the page table instead of the matrix
    #[arg(long)]
    pages: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Content and format of the output.
#[derive(Clone, Copy)]
enum Content {
    /// The page table in numalize's columns.
    Pages,
    /// The matrix without direction, last row first, as CSV.
    EagerMap,
    /// The matrix.
    Matrix(MatrixFormat),
}

/// The same rows, last thread first.
fn reversed_rows(matrix: &CommMatrix) -> String {
    let n = matrix.threads();
    let dense = matrix.to_dense();
    let mut out = String::new();
    for row in dense.chunks(n.max(1)).rev() {
        let cells: Vec<String> = row.iter().map(f64::to_string).collect();
        out += &cells.join(",");
        out.push('\n');
    }
    out
}

impl Args {
    /// Format of `--format`, or of the file's extension.
    fn content(&self) -> Result<Content, CliError> {
        match self.format.as_deref() {
            Some("eagermap" | "numalize") => Ok(Content::EagerMap),
            Some(name) => MatrixFormat::from_name(name)
                .map(Content::Matrix)
                .ok_or_else(|| {
                    CliError::usage(format!("there is no matrix format {name:?}"))
                        .expected("csv, eagermap, npy, mtx or edges")
                }),
            None => match MatrixFormat::of_path(&self.output) {
                Some(MatrixFormat::Csv) if self.pages => Ok(Content::Pages),
                Some(format) if !self.pages => Ok(Content::Matrix(format)),
                _ => Err(self.unknown_ending()),
            },
        }
    }

    fn unknown_ending(&self) -> CliError {
        let (what, formats, hint): (_, &[MatrixFormat], _) = if self.pages {
            let hint = "-o with the ending .csv: the page table has one format";
            ("the page table", &[MatrixFormat::Csv], hint)
        } else {
            let hint = "--format FORMAT, with which the file may have any name";
            ("a matrix", &MatrixFormat::ALL, hint)
        };
        let endings: Vec<String> = formats
            .iter()
            .flat_map(|format| format.endings())
            .map(|ending| format!(".{ending}"))
            .collect();
        CliError::usage(format!(
            "cannot export {what} to {}: no format for it has the ending .{}",
            self.output.display(),
            self.output.extension().unwrap_or_default().display()
        ))
        .expected(format!("{}, or no ending for CSV", endings.join(", ")))
        .hint(hint)
    }

    /// Writes the file.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = ui.output(&self.output, self.force)?;
        let content = self.content()?;
        let profile = SettingArgs::read(&self.profile, false)?;
        let bytes = match content {
            Content::Pages => numalize_pages::to_csv(&profile).into_bytes(),
            Content::EagerMap => {
                let (matrix, layer) = self.matrix(&profile)?;
                reversed_rows(&undirected(&matrix, layer)).into_bytes()
            }
            Content::Matrix(format) => {
                let mut bytes = Vec::new();
                write_matrix_to(&mut bytes, &self.matrix(&profile)?.0, format)
                    .map_err(CliError::tool)?;
                bytes
            }
        };
        output.write(&bytes)?;
        ui.written(
            &output,
            || format!("{}\n", self.output.display()),
            || json!({"version": 1, "file": self.output, "size_bytes": bytes.len()}),
        );
        Ok(0)
    }

    fn matrix(&self, profile: &Profile) -> Result<(CommMatrix, Layer), CliError> {
        let asked = SettingArgs {
            layer: self.layer.clone(),
            ..SettingArgs::default()
        };
        let layer = asked
            .layer(profile)?
            .unwrap_or_else(|| default_layer(profile));
        let amount = if self.bytes {
            Amount::Bytes
        } else {
            Amount::Events
        };
        let matrix = profile.matrix(layer, amount).map_err(CliError::tool)?;
        Ok((matrix, layer))
    }
}
