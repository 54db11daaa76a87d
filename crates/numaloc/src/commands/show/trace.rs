//! `numaloc show --trace`: contents of the access trace of a profile, and results of the cache model for it.

use std::path::Path;

use numaloc_formats::access_trace::{AccessTrace, Tally};
use numaloc_model::{Profile, number};
use numaloc_report::text::wrapped;
use serde_json::{Value, json};

use crate::access_trace::{
    CacheModel, LlcSize, Modelled, dependent_in_words, in_words, incomplete, open, tally,
};
use crate::error::CliError;
use crate::ui::Ui;

/// Number of threads listed unless all are wanted.
const LISTED: usize = 16;
/// The kinds of records, in the order of [`Modelled::kinds`].
const KINDS: [&str; 7] = [
    "read",
    "write",
    "own",
    "write_back",
    "acquire",
    "release",
    "create",
];

/// Prints the trace of the profile in `folder`, all threads if `all`.
pub fn show(
    folder: &Path,
    profile: &Profile,
    llc: LlcSize,
    all: bool,
    ui: &Ui,
) -> Result<u8, CliError> {
    let traces = open(folder)?;
    let model = CacheModel {
        llc,
        page_size: profile.pages().page_size(),
    };
    let found = model.run(&traces, profile.threads())?;
    let threads = by_thread(&traces, profile);
    ui.result(
        || text(&traces, profile, &threads, &found, all),
        || to_json(&traces, profile, &threads, &found),
    );
    Ok(0)
}

/// Summary of the trace for each thread of the profile; a thread that executed several programs has a stream for each.
fn by_thread(traces: &[AccessTrace], profile: &Profile) -> Vec<Tally> {
    let mut sums = std::collections::HashMap::<&str, Tally>::new();
    for stream in traces.iter().flat_map(|trace| &trace.streams) {
        let sum = sums.entry(&stream.path).or_default();
        *sum = [*sum, stream.tally].into_iter().sum();
    }
    profile
        .threads()
        .iter()
        .map(|thread| sums.get(&*thread.path).copied().unwrap_or_default())
        .collect()
}

fn share(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn text(
    traces: &[AccessTrace],
    profile: &Profile,
    threads: &[Tally],
    found: &Modelled,
    all: bool,
) -> String {
    let sum = tally(traces);
    let kinds: Vec<String> = KINDS
        .iter()
        .zip(found.kinds)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut out = wrapped(&format!("access trace: {}", in_words(&sum)), 0);
    let again = number::count(sum.coherence_misses as f64);
    let size = number::bytes(sum.bytes as f64);
    let more =
        format!("{size} on disk; {again} misses because another thread had written the line");
    out += &wrapped(&more, 0);
    for line in traces.iter().filter_map(incomplete) {
        out += &wrapped(&format!("note: {line}"), 0);
    }
    out += &wrapped(&format!("records: {}", kinds.join(", ")), 0);
    out += &wrapped(&dependent_in_words(found.kinds[0], found.dependent), 0);
    out += &wrapped(&found.source, 0);
    out += "\nthread  accesses  records L1 hits L2 hits LLC hits transfers     DRAM  written\n";
    let total = found.total();
    let row = |name: &str, tally: &Tally, requests: &numaloc_analysis::dram::Requests| {
        format!(
            "{name:>6} {:>9} {:>8} {:>6}% {:>6}% {:>8} {:>9} {:>8} {:>8}\n",
            number::count(tally.accesses as f64),
            number::count(tally.records as f64),
            number::fixed(share(tally.l1_hits, tally.accesses), 1),
            number::fixed(share(tally.l2_hits, tally.accesses), 1),
            number::count(requests.llc_hits as f64),
            number::count(requests.transfers as f64),
            number::count(requests.fetches as f64),
            number::count(requests.write_backs as f64),
        )
    };
    let listed = if all { threads.len() } else { LISTED };
    for (at, (tally, requests)) in threads
        .iter()
        .zip(&found.found.threads)
        .enumerate()
        .take(listed)
    {
        out += &row(&at.to_string(), tally, requests);
    }
    if threads.len() > listed {
        out += &format!("    ... {} more (--threads)\n", threads.len() - listed);
    }
    out += &row("all", &sum, &total);
    out.push('\n');
    out += &wrapped(
        "Lines: found in the last-level cache; taken from another thread's caches or another last-level cache; read from DRAM; \
         written back to DRAM.",
        0,
    );
    let bytes: u64 = profile
        .threads()
        .iter()
        .map(|t| t.read_bytes + t.write_bytes)
        .sum();
    if bytes > 0 {
        let ratio = found.dram_bytes(&total) as f64 / bytes as f64;
        out += &format!("DRAM-to-memory ratio (DeLoc eq. 7): {ratio:.4}\n");
    }
    out
}

fn to_json(
    traces: &[AccessTrace],
    profile: &Profile,
    threads: &[Tally],
    found: &Modelled,
) -> Value {
    let tally_json = |tally: &Tally| {
        json!({
            "records": tally.records, "accesses": tally.accesses, "bytes": tally.bytes,
            "l1_hits": tally.l1_hits, "l2_hits": tally.l2_hits, "coherence_misses": tally.coherence_misses,
        })
    };
    let threads: Vec<Value> = threads
        .iter()
        .zip(&found.found.threads)
        .zip(profile.threads())
        .map(|((tally, requests), thread)| {
            json!({ "path": thread.path, "trace": tally_json(tally), "cache_model": found.json(requests) })
        })
        .collect();
    let kinds: serde_json::Map<String, Value> = KINDS
        .iter()
        .zip(found.kinds)
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    let head = &traces[0].head;
    json!({
        "version": 1,
        "complete": traces.iter().all(|trace| trace.complete),
        "notes": traces.iter().filter_map(incomplete).collect::<Vec<_>>(),
        "line_size_bytes": 1u64 << head.line_shift,
        "filter": {
            "l1_bytes": head.l1.bytes, "l1_ways": head.l1.ways,
            "l2_bytes": head.l2.bytes, "l2_ways": head.l2.ways,
        },
        "trace": tally_json(&tally(traces)),
        "records": kinds,
        "dependent_reads": found.dependent,
        "cache_model": { "source": found.source, "total": found.json(&found.total()) },
        "threads": threads,
        "pages": found.found.pages.iter().map(|(page, thread, lines)| json!({
            "page": page, "thread": thread.0, "dram_reads": lines,
        })).collect::<Vec<_>>(),
    })
}
