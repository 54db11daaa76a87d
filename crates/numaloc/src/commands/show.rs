//! `numaloc show`: displays a profile in the terminal or its numbers as JSON.

mod trace;

use std::path::PathBuf;

use numaloc_analysis::Characterisation;
use numaloc_analysis::characterise::default_layer;
use numaloc_formats::matrix::write_matrix_to;
use numaloc_model::profile::{Amount, Profile};
use numaloc_model::{CommMatrix, SliceIdx};
use numaloc_report::heatmap::Style;
use numaloc_report::metrics;
use numaloc_report::next::Step;
use numaloc_report::repeatability;
use numaloc_report::text::{self, Detail};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::setting::{Resolved, SettingArgs};
use crate::ui::Ui;

/// Show a profile: verdict, communication matrix, metrics, objects, threads
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc show app.numaloc
  numaloc show app.numaloc --machine epyc-7501
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
    /// List every thread
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
        let mut profile = SettingArgs::read(&self.profile, true)?;
        if self.exclude_helpers {
            profile = profile.without_helpers();
        }
        if self.matrix.is_some() {
            let matrix = self.matrix(&profile)?;
            ui.result(|| csv(&matrix), || matrix_json(&matrix));
            return Ok(0);
        }
        if self.trace {
            return trace::show(&self.profile, &profile, self.llc, self.threads, ui);
        }
        let (found, resolved) = self.setting.characterise(&profile)?;
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
            || text::page(&profile, &found, &resolved.assumed, &next, detail, style),
            || to_json(&profile, &found, &resolved, &next),
        );
        Ok(0)
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
    json!({
        "version": 1,
        "threads": threads,
        "matrix": dense.chunks(threads.max(1)).collect::<Vec<_>>(),
    })
}

/// Name -> value (null where not observed) and name -> unit of every metric.
pub fn metrics_json(found: &Characterisation) -> (Value, Value) {
    let mut values = serde_json::Map::new();
    let mut units = serde_json::Map::new();
    for metric in metrics::sections(found).into_iter().flat_map(|s| s.metrics) {
        values.insert(metric.key.to_owned(), json!(metric.value));
        units.insert(metric.key.to_owned(), json!(metric.unit.name()));
    }
    (values.into(), units.into())
}

/// The variables that shaped the recording, by name.
pub(crate) fn environment_json(profile: &Profile) -> Value {
    let known = profile.meta.conditions.environment.iter();
    let known: serde_json::Map<String, Value> = known
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    known.into()
}

/// Whether a thread plan is valid for another run, why, and what to do if not.
pub(crate) fn repeatability_json(profile: &Profile) -> Value {
    let conditions = &profile.meta.conditions;
    let found = conditions.repeatability(profile.threads.len());
    json!({
        "known": found.name(),
        "thread_plan_holds": found.holds(),
        "work_sharing": conditions.open().map(|(kind, by)| json!({"kind": kind.name(), "by": by})).collect::<Vec<_>>(),
        "runs": conditions.repeats.map(|r| r.runs),
        "least_correlation": conditions.repeats.and_then(|r| r.correlation),
        "same_threads": conditions.repeats.map(|r| r.same_threads),
        "reason": repeatability::sentence(profile),
        "advice": repeatability::advice(profile),
    })
}

fn to_json(
    profile: &Profile,
    found: &Characterisation,
    resolved: &Resolved,
    next: &[Step],
) -> Value {
    let (metrics, units) = metrics_json(found);
    let clusters: Vec<Value> = found
        .concurrency
        .clusters
        .iter()
        .zip(&found.concurrency.groups)
        .map(|(cluster, group)| {
            json!({
                "first_slice": cluster.first.0,
                "last_slice": cluster.last.0,
                "start": cluster.start,
                "end": cluster.end,
                "events": cluster.events,
                "bytes": cluster.bytes,
                "pairs": group.pairs.len(),
            })
        })
        .collect();
    let threads: Vec<Value> = profile
        .threads
        .iter()
        .enumerate()
        .map(|(at, t)| {
            json!({
                "thread": at, "path": t.path, "label": t.label, "rank": t.rank,
                "start": t.start, "end": t.end, "accesses": t.accesses,
                "read_bytes": t.read_bytes, "write_bytes": t.write_bytes, "dram_bytes": t.dram_bytes,
            })
        })
        .collect();
    let objects: Vec<Value> = found
        .objects
        .iter()
        .map(|use_| {
            let object = use_.object(profile);
            let variable = use_.variable(profile);
            json!({
                "kind": object.map(|o| o.kind.name()), "name": object.map(|o| &o.name),
                "size_bytes": object.map(|o| o.size),
                "variable": variable.map(|v| &v.name), "source": variable.map(|v| &v.source),
                "pages": use_.pages, "reads": use_.reads, "writes": use_.writes,
                "threads": use_.threads,
                "first_toucher": use_.first_toucher.map(|(t, _)| t.0),
                "first_touch_share": use_.first_touch_share(),
                "exclusivity": use_.exclusivity, "local_share": use_.local_share,
            })
        })
        .collect();
    let verdicts: Vec<Value> = found
        .verdicts
        .iter()
        .map(|v| {
            json!({
                "measure": v.measure.name(), "verdict": v.likelihood.words(),
                "reason": v.sentence(), "action": v.action,
                "policy": v.recommended.as_ref().and_then(|way| way.policy()),
            })
        })
        .collect();
    let ways: Vec<Value> = found
        .outlooks
        .iter()
        .map(|outlook| {
            json!({
                "way": outlook.way.name(), "policy": outlook.way.policy(),
                "remote_communication": outlook.remote, "busiest_node": outlook.busiest, "busiest_memory": outlook.controller,
                "local_accesses": outlook.local, "access_balance": outlook.balance,
            })
        })
        .collect();
    let phase = |slices: &std::ops::Range<usize>| {
        json!({
            "first_slice": slices.start, "last_slice": slices.end.saturating_sub(1),
            "start": profile.slices[slices.start].start,
        })
    };
    let cell_errors: Vec<Value> = profile
        .cell_errors
        .iter()
        .map(|e| {
            json!({
                "layer": e.layer.name(), "src": e.src.0, "dst": e.dst.0,
                "relative_error": e.relative_error,
            })
        })
        .collect();
    let sharing: Vec<Value> = found
        .sharing
        .memory
        .iter()
        .map(|m| {
            json!({
                "memory": m.label(profile), "lines": m.lines, "events": m.events,
                "false_events": m.false_events,
            })
        })
        .collect();
    let shared_lines: Vec<Value> = profile
        .shared_lines
        .iter()
        .map(|l| {
            json!({
                "address": l.line.wrapping_mul(profile.meta.line_size),
                "object": l.object.map(|o| o.0),
                "object_name": l.object.map(|o| profile.object(o).name.as_str()),
                "object_offset_bytes": l.object_offset, "events": l.events,
                "false_events": l.false_events,
            })
        })
        .collect();
    json!({
        "version": 1,
        "command": profile.meta.command,
        "frontend": profile.meta.frontend,
        "dram_source": profile.meta.dram_source,
        "complete": profile.meta.complete,
        "sampled_share": profile.meta.sampled,
        "notes": profile.meta.notes,
        "environment": environment_json(profile),
        "repeatability": repeatability_json(profile),
        "clock": profile.meta.clock.name(),
        "time_unit": profile.meta.clock.unit(),
        "line_size_bytes": profile.meta.line_size,
        "page_size_bytes": profile.pages.page_size(),
        "slices": profile.slices.len(),
        "layer": found.layer.name(),
        "layers": profile.layers().iter().map(|l| l.name()).collect::<Vec<_>>(),
        "nodes": found.assignment.nodes,
        "assumed": resolved.assumed,
        "metrics": metrics,
        "units": units,
        "verdicts": verdicts,
        "ways": ways,
        "private_cache_bytes": found.private_cache_bytes,
        "accesses_beyond_private_caches": found.beyond.total(),
        "next": next.iter().map(|step| &step.command).collect::<Vec<_>>(),
        "clusters": clusters,
        "phases": found.phases.iter().map(phase).collect::<Vec<_>>(),
        "pattern_phases": found.pattern_phases.iter().map(phase).collect::<Vec<_>>(),
        "cluster_of_slice": (0..profile.slices.len())
            .map(|s| found.concurrency.cluster_of(SliceIdx::from_index(s)).map(|c| c.0))
            .collect::<Vec<_>>(),
        "node_pages": found.pages.node_pages,
        "node_accesses": found.pages.node_accesses,
        "exclusivity_by_page_size": found.exclusivity.iter().map(|e| json!({
            "page_size_bytes": e.page_size, "assigned": e.assigned, "most": e.most, "least": e.least,
            "inherent": e.inherent,
        })).collect::<Vec<_>>(),
        "objects": objects,
        "threads": threads,
        "cell_errors": cell_errors,
        "sharing": sharing,
        "shared_lines": shared_lines,
    })
}
