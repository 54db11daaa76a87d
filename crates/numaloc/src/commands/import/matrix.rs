//! A foreign communication matrix, with or without a page table.

use std::path::{Path, PathBuf};

use numaloc_formats::matrix::{MatrixFormat, looks_reversed, read_matrix};
use numaloc_formats::numalize_pages;
use numaloc_identity::ThreadPath;
use numaloc_model::pages::PageUsage;
use numaloc_model::profile::{Clock, CommRow, Meta, Profile, ProfileBuilder, Slice, Thread};
use numaloc_model::{CommMatrix, Layer, SliceIdx, ThreadIdx};

use crate::error::CliError;
use crate::ui::Ui;

/// Largest amount, and largest sum of amounts, in a profile.
const MOST_AMOUNT: f64 = (1u64 << 60) as f64;

/// Options of matrix formats.
#[derive(clap::Args)]
#[command(next_help_heading = "Matrix formats")]
pub struct MatrixArgs {
    /// Communication layer of the amounts [default: last_two if the matrix is symmetric, write_read if
    /// not]
    #[arg(long, value_name = "LAYER", value_parser = crate::commands::layer)]
    layer: Option<Layer>,
    /// Page table in numalize's column format
    #[arg(long, value_name = "FILE")]
    pages: Option<PathBuf>,
}

impl MatrixArgs {
    /// Reads matrix and page table.
    pub fn import(
        &self,
        file: &Path,
        format: MatrixFormat,
        reversed: bool,
        page_size: u64,
        ui: &Ui,
    ) -> Result<Profile, CliError> {
        let matrix = read_matrix(file, format, reversed)?;
        if format == MatrixFormat::Csv && !reversed && looks_reversed(&matrix) {
            ui.remark(format!(
                "{} looks as if its rows ran from the last thread to the first; if it comes from numalize, \
                 use --format eagermap",
                file.display()
            ));
        }
        // A matrix has no times, so there is one slice.
        let mut notes = vec![format!("imported from {}", file.display())];
        let table = self
            .pages
            .as_ref()
            .map(|path| numalize_pages::read(path, page_size))
            .transpose()?;
        if let Some(path) = &self.pages {
            notes.push(format!(
                "pages imported from {}; reads and writes are not distinguished",
                path.display()
            ));
        }
        build(&matrix, self.layer, table, page_size, notes).map_err(|found| {
            CliError::tool(format!("cannot import {}: {found}", file.display()))
                .expected("amounts whose sum is at most 2^60, as in every profile")
        })
    }
}

/// A factor that makes every cell a whole number, or close to one: 1 if they already are; `None` if the largest cell is
/// denormal.
fn whole_factor(matrix: &CommMatrix) -> f64 {
    if matrix.cells().all(|(_, _, v)| v.fract() == 0.0) {
        return 1.0;
    }
    // Keeps nine digits of the largest cell.
    10f64.powf((1e9 / matrix.max()).log10().floor()).max(1.0)
}

/// The cells as rows of the one slice: events, or bytes of one message for each pair of ranks.
fn rows(matrix: &CommMatrix, layer: Layer, factor: f64) -> Vec<CommRow> {
    let cells = matrix.cells().map(|(src, dst, amount)| {
        let amount = (amount * factor).round() as u64;
        let (events, bytes) = match layer {
            Layer::Message => (amount.min(1), amount),
            _ => (amount, 0),
        };
        CommRow {
            slice: SliceIdx(0),
            src: ThreadIdx::from_index(src),
            dst: ThreadIdx::from_index(dst),
            layer,
            events,
            bytes,
        }
    });
    cells.filter(|row| row.events > 0).collect()
}

fn build(
    matrix: &CommMatrix,
    layer: Option<Layer>,
    table: Option<numalize_pages::PageTable>,
    page_size: u64,
    mut notes: Vec<String>,
) -> Result<Profile, String> {
    let threads = matrix
        .threads()
        .max(table.as_ref().map_or(0, |t| t.threads));
    let layer = layer.unwrap_or(if matrix.is_symmetric() {
        Layer::LastTwo
    } else {
        Layer::WriteRead
    });
    // Messages are between ranks, and mapped by their bytes.
    let ranks = layer == Layer::Message;
    if ranks {
        notes.push(
            "amounts are bytes of messages; each pair of ranks counts as one message".to_owned(),
        );
    }
    let factor = whole_factor(matrix);
    if factor != 1.0 {
        notes.push(format!(
            "amounts were multiplied by {factor:e} to make them whole numbers"
        ));
    }
    let both = if layer.is_directed() || matrix.is_symmetric() {
        matrix.clone()
    } else {
        notes.push("the matrix was made symmetric: its layer has no direction".to_owned());
        matrix.symmetrised()
    };
    if let Some((src, dst, amount)) = both
        .cells()
        .find(|(_, _, amount)| amount * factor > MOST_AMOUNT)
    {
        return Err(format!("cell ({src}, {dst}) is {amount:e}"));
    }
    let sum: f64 = both.cells().map(|(_, _, amount)| amount * factor).sum();
    if sum > MOST_AMOUNT {
        return Err(format!("the sum of its cells is {sum:e}"));
    }
    let communication = rows(&both, layer, factor);
    let (pages, objects) = table.map_or_else(
        || (PageUsage::new(page_size), Vec::new()),
        |table| (table.pages, table.objects),
    );
    let mut accesses = vec![0u64; threads];
    for page in pages.pages() {
        for access in pages.accesses(page) {
            accesses[access.thread.index()] += access.total();
        }
    }
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["(imported)".to_owned()],
            notes,
            ..Meta::new("import", Clock::Virtual)
        },
        pages.page_size(),
    );
    tables.usage(&pages);
    tables.threads = accesses
        .iter()
        .enumerate()
        .map(|(at, &accesses)| Thread {
            end: 1,
            accesses,
            rank: ranks.then_some(at as u32),
            ..Thread::new(match at {
                _ if ranks => ThreadPath::of_rank(at as u32),
                0 => "0".to_owned(),
                _ => format!("0.{at}"),
            })
        })
        .collect();
    tables.slices = vec![Slice { start: 0, end: 1 }];
    tables.communication = communication;
    tables.objects = objects;
    tables.build().map_err(|error| error.to_string())
}
