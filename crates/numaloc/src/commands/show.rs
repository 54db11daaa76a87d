//! `numaloc show`: displays a profile in the terminal or its numbers as JSON.

mod trace;

use std::path::PathBuf;

use numaloc_analysis::characterise::default_layer;
use numaloc_formats::matrix::write_matrix_to;
use numaloc_model::CommMatrix;
use numaloc_model::profile::{Amount, Profile};
use numaloc_report::heatmap::Style;
use numaloc_report::json;
use numaloc_report::text::{self, Depth, Detail, Page};
use serde_json::Value;

use crate::commands::advise;
use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::Ui;

/// Show what is wrong, where, what to do and what it gives; on request the reasons and every figure
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc show app.numaloc
  numaloc show app.numaloc --why
  numaloc show app.numaloc --all --machine epyc-7501
  numaloc show app.numaloc --matrix csv > matrix.csv
  numaloc show app.numaloc --matrix csv --cluster 2 --amount bytes
  numaloc show app.numaloc --trace --llc 8M/16x4
  numaloc show app.numaloc --json | jq .metrics.communication_heterogeneity

--matrix csv prints one row per thread, thread 0 first, no header; cell (row, column) is the
communication from the row's thread (writer, sender) to the column's (reader, receiver).")]
pub struct Args {
    /// Profile folder written by `numaloc record` or `numaloc import`
    profile: PathBuf,
    #[command(flatten)]
    setting: SettingArgs,
    /// Print only the communication matrix, in this format
    #[arg(long, value_name = "FORMAT")]
    matrix: Option<MatrixFormat>,
    /// What the cells of --matrix count
    #[arg(
        long,
        value_name = "AMOUNT",
        default_value = "events",
        requires = "matrix"
    )]
    amount: MatrixAmount,
    /// Print the matrix of one cluster of concurrent communication (numbered from 1) instead of the
    /// whole run
    #[arg(long, value_name = "N", requires = "matrix")]
    cluster: Option<usize>,
    /// Show the access trace that `record --trace` kept and the results of the cache model for it
    #[arg(long, conflicts_with = "matrix")]
    trace: bool,
    /// Last-level caches of the cache model: size, ways and number of caches; consecutive blocks of
    /// threads share one cache
    #[arg(long, value_name = "SIZE/WAYS[xN]", default_value = "32M/16x1", requires = "trace",
        value_parser = crate::access_trace::llc_size)]
    llc: crate::access_trace::LlcSize,
    /// Also show the verdict on each measure with its reasons, and what each step gives
    #[arg(long, conflicts_with_all = ["matrix", "trace"])]
    why: bool,
    /// Show everything: verdicts, communication matrix, metrics, memory by object, code, threads
    #[arg(long, conflicts_with_all = ["matrix", "trace"])]
    all: bool,
    /// Show everything, and list every thread, not only the first 16
    #[arg(long)]
    threads: bool,
    /// Count the work of run-time helper threads (label `runtime helper`) for their creators
    #[arg(long)]
    exclude_helpers: bool,
    /// Use ASCII instead of block characters [default: ASCII unless the locale is UTF-8]
    #[arg(long)]
    ascii: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MatrixFormat {
    Csv,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MatrixAmount {
    Events,
    Bytes,
}

impl Args {
    /// Prints the profile.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let mut profile = self.setting.open(&self.profile)?;
        if self.exclude_helpers {
            profile = numaloc_analysis::hybrid::without_helpers(profile)?;
        }
        if self.matrix.is_some() {
            let matrix = self.matrix(&profile)?;
            ui.result(|| csv(&matrix), || matrix_json(&matrix));
            return Ok(0);
        }
        if self.trace {
            return trace::show(&self.profile, &profile, self.llc, self.threads, ui);
        }
        let (found, resolved) = advise::characterise(&self.setting, &self.profile, &profile, ui)?;
        let style = Style {
            unicode: !self.ascii && locale_is_utf8(),
            colour: true,
        };
        let detail = Detail {
            threads: if self.threads { usize::MAX } else { 16 },
            columns: ui.columns(),
        };
        let next = resolved.next(&self.profile, &profile, &found, &[]);
        ui.result(
            || {
                let page = Page {
                    profile: &profile,
                    found: &found,
                    assumed: &resolved.assumed,
                    next: &next,
                };
                text::page(page, self.depth(), detail, style)
            },
            || {
                json::object(&json::Shown {
                    profile: &profile,
                    found: &found,
                    assumed: &resolved.assumed,
                    next: &next,
                })
            },
        );
        Ok(0)
    }

    fn depth(&self) -> Depth {
        match (self.all || self.threads, self.why) {
            (true, _) => Depth::All,
            (false, true) => Depth::Why,
            (false, false) => Depth::Answer,
        }
    }

    fn matrix(&self, profile: &Profile) -> Result<CommMatrix, CliError> {
        let layer = self
            .setting
            .layer(profile)?
            .unwrap_or_else(|| default_layer(profile));
        let amount = match self.amount {
            MatrixAmount::Events => Amount::Events,
            MatrixAmount::Bytes => Amount::Bytes,
        };
        let matrix = match self.cluster {
            None => profile.matrix(layer, amount),
            Some(number) => {
                let clusters = numaloc_analysis::concurrency_groups(profile, layer).clusters;
                let cluster = number
                    .checked_sub(1)
                    .and_then(|at| clusters.get(at))
                    .ok_or_else(|| {
                        CliError::usage(format!("the run has no cluster {number}"))
                            .expected(format!("1 to {}", clusters.len()))
                    })?;
                let slices = cluster.first.0..cluster.last.0 + 1;
                profile.matrix_of_slices(layer, amount, slices)
            }
        };
        matrix.map_err(CliError::tool)
    }
}

/// Whether the locale is UTF-8, so that the terminal can show more than ASCII.
pub fn locale_is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    set("LC_ALL")
        .or_else(|| set("LC_CTYPE"))
        .or_else(|| set("LANG"))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

fn csv(matrix: &CommMatrix) -> String {
    let mut out = Vec::new();
    write_matrix_to(&mut out, matrix, numaloc_formats::matrix::MatrixFormat::Csv)
        .expect("memory takes what is written");
    String::from_utf8(out).expect("numbers are text")
}

fn matrix_json(matrix: &CommMatrix) -> Value {
    let threads = matrix.threads();
    let dense = matrix.to_dense();
    serde_json::json!({
        "version": 1,
        "threads": threads,
        "matrix": dense.chunks(threads.max(1)).collect::<Vec<_>>(),
    })
}
