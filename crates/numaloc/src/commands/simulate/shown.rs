//! Output of `simulate`.

use numaloc_model::number;
use numaloc_sim::outcome::Timeline;
use numaloc_sim::{Machine, NS, Outcome};
use serde_json::{Value, json};

use super::Answer;
use crate::access_trace::dependent_in_words;
use crate::simulation::sensitivity::Uncertainty;
use crate::simulation::{Case, Mapped, Target};

/// A line of the table: one case, or the median of several draws that differ only in their seed.
struct Row<'a> {
    case: &'a Case,
    outcome: &'a Outcome,
    /// Indexes of the cases it stands for.
    cases: Vec<usize>,
    /// Number of draws, and the times of the fastest and the slowest draw.
    draws: Option<(usize, u64, u64)>,
}

/// Rows of a machine, the fastest first; equally fast ones in the requested order.
fn rows(answer: &Answer, target: usize) -> Vec<Row<'_>> {
    let of_target: Vec<usize> = (0..answer.rows.len())
        .filter(|&at| answer.rows[at].0.target == target)
        .collect();
    let is_same = |&a: &usize, &b: &usize| {
        let (a, b) = (&answer.rows[a].0, &answer.rows[b].0);
        let drawn = |case: &Case| matches!(case.mapped, Mapped::Os { .. });
        drawn(a) && drawn(b) && a.pages == b.pages
    };
    let time = |at: usize| answer.rows[at].1.time;
    let mut rows: Vec<Row<'_>> = of_target
        .chunk_by(is_same)
        .map(|draws| {
            let mut by_time = draws.to_vec();
            by_time.sort_by_key(|&at| time(at));
            let (case, outcome) = &answer.rows[by_time[(by_time.len() - 1) / 2]];
            let (least, most) = (time(by_time[0]), time(by_time[by_time.len() - 1]));
            Row {
                case,
                outcome,
                draws: (by_time.len() > 1).then_some((by_time.len(), least, most)),
                cases: by_time,
            }
        })
        .collect();
    rows.sort_by_key(|row| row.outcome.time);
    rows
}

/// How sure it is that a row is slower than the best row of its machine; `None` without `--sensitivity`.
fn uncertainty(answer: &Answer, row: &Row<'_>, best: &Row<'_>) -> Option<Uncertainty> {
    let variants = answer.varied.get(row.case.target)?;
    let median = |cases: &[usize], times: &[u64]| {
        let mut of_row: Vec<u64> = cases.iter().map(|&case| times[case]).collect();
        of_row.sort_unstable();
        of_row[(of_row.len() - 1) / 2]
    };
    let varied = variants
        .iter()
        .map(|(_, times)| (median(&row.cases, times), median(&best.cases, times)));
    Some(Uncertainty::of(
        (row.outcome.time, best.outcome.time),
        varied,
    ))
}

/// One line for each machine: which rows do not differ from the best, and the preset that matters most.
fn sensitivity_text(answer: &Answer, rows: &[Row<'_>]) -> String {
    let Some(best) = rows.first() else {
        return String::new();
    };
    let mut out = String::new();
    let name = |row: &Row<'_>| format!("{} with {}", row.case.threads, row.case.pages);
    for row in &rows[1..] {
        let Some(found) = uncertainty(answer, row, best) else {
            return String::new();
        };
        let ratio = row.outcome.time as f64 / best.outcome.time.max(1) as f64;
        let verdict = match found.is_different(ratio) {
            true => "slower",
            false => "no difference",
        };
        let by = &answer.varied[row.case.target][found.by].0;
        out += &format!(
            "  {}: {verdict} ({} x best, +- {} with {} {})\n",
            name(row),
            number::fixed(ratio, 3),
            number::fixed(found.change, 3),
            by.preset,
            by.value,
        );
    }
    match out.is_empty() {
        true => out,
        false => format!(
            "  compared with {}, presets at both ends of their ranges:\n{out}",
            name(best)
        ),
    }
}

fn page_bytes(answer: &Answer, target: &Target) -> u64 {
    answer.traces.of(target).page_bytes()
}

/// How often cores walk through page tables in the fastest row.
fn walks_text(rows: &[Row<'_>]) -> String {
    let best = rows.first().map(|row| row.outcome);
    let Some((walks, accesses)) = best.and_then(|best| Some((best.walks?, best.accesses))) else {
        return String::new();
    };
    let rate = walks.count as f64 / accesses.max(1) as f64;
    format!(
        "  page walks of the fastest: {} ({} of 1,000 accesses), {} ns each\n",
        number::count(walks.count as f64),
        number::fixed(1000.0 * rate, 2),
        number::fixed(walks.mean() / NS as f64, 1),
    )
}

/// What the times of a sampled simulation were extrapolated from, and their largest estimated error.
fn sampled_text(rows: &[Row<'_>]) -> String {
    let sampled = rows.iter().filter_map(|row| row.outcome.sampled);
    let Some(widest) = sampled.max_by(|a, b| a.error.total_cmp(&b.error)) else {
        return String::new();
    };
    let percent = |part: u64| 100.0 * part as f64 / widest.records.max(1) as f64;
    format!(
        "  sampled: {} % of the records in detail, {} % to keep caches warm, {} windows; their spread: +- {} % or less\n",
        number::fixed(percent(widest.detailed), 1),
        number::fixed(percent(widest.warmed), 1),
        widest.windows,
        number::fixed(100.0 * widest.error, 1),
    )
}

fn ms(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1e9
}

/// Busy time of the busiest controller, in percent of the run.
fn busiest(outcome: &Outcome) -> f64 {
    let busy = outcome
        .nodes
        .iter()
        .map(|node| node.busy)
        .max()
        .unwrap_or(0);
    100.0 * busy as f64 / outcome.time.max(1) as f64
}

/// Reads, and those of them that wait for others if the trace says so.
fn dependent_loads(answer: &Answer) -> (u64, Option<u64>) {
    let (reads, dependent) = answer.traces.recorded().dependent_loads();
    (reads, answer.marks_loads.then_some(dependent))
}

/// A table for each machine.
pub(super) fn text(answer: &Answer) -> String {
    let trace = answer.traces.recorded();
    let mut out = format!(
        "{}, {:.2} M records of {:.2} M accesses below private caches of {}; {} in {:.1} s\n",
        number::plural(trace.threads(), "thread"),
        trace.records() as f64 / 1e6,
        trace.accesses() as f64 / 1e6,
        answer.filter,
        number::plural(answer.rows.len(), "simulation"),
        answer.seconds
    );
    let (reads, dependent) = dependent_loads(answer);
    out += &format!("{}\n", dependent_in_words(reads, dependent));
    for (target, found) in answer.targets.iter().enumerate() {
        let machine = &found.machine;
        let pages = match machine.parameters.tlb {
            Some(_) => format!(
                ", pages of {}",
                number::page_size(page_bytes(answer, found))
            ),
            None => String::new(),
        };
        out += &format!(
            "\nmachine: {} ({}){pages}\n",
            machine.name,
            found.topology.summary()
        );
        out += &format!(
            "  {:<14} {:<19} {:>11} {:>8} {:>9} {:>9} {:>10} {:>7} {:>9} {:>9}\n",
            "threads",
            "pages",
            "time",
            "x best",
            "LLC miss",
            "remote",
            "queue wait",
            "busiest",
            "links",
            "energy"
        );
        let rows = rows(answer, target);
        let best = rows.first().map_or(1, |row| row.outcome.time.max(1));
        for Row { case, outcome, .. } in &rows {
            let remote = outcome.remote_percent();
            out += &format!(
                "  {:<14} {:<19} {:>8} ms {:>8} {:>7} M {:>9} {:>7} ns {:>5} % {:>6} MB {:>7} J\n",
                case.threads,
                case.pages,
                number::fixed(ms(outcome.time), 3),
                number::fixed(outcome.time as f64 / best as f64, 3),
                number::fixed(outcome.llc_misses() as f64 / 1e6, 3),
                remote.map_or("-".to_owned(), |remote| number::fixed(remote, 1) + " %"),
                number::fixed(outcome.mean_wait() / NS as f64, 1),
                number::fixed(busiest(outcome), 0),
                number::fixed(outcome.link_bytes() as f64 / 1e6, 1),
                number::fixed(outcome.energy(machine).total(), 3),
            );
        }
        for Row { case, draws, .. } in &rows {
            if let Some((draws, least, most)) = draws {
                out += &format!(
                    "  {} with {}: the median of {draws} draws, which take {} to {} ms\n",
                    case.threads,
                    case.pages,
                    number::fixed(ms(*least), 3),
                    number::fixed(ms(*most), 3),
                );
            }
        }
        out += &walks_text(&rows);
        out += &sampled_text(&rows);
        out += &sensitivity_text(answer, &rows);
    }
    out += "\n  LLC miss: requests that no cache of the thread's node answered; remote: lines to and from DRAM of another node;\n";
    out += "  queue wait: mean wait at memory controllers; busiest: busy time of the busiest controller; energy: an estimate\n";
    out
}

fn timeline(line: &Timeline) -> Value {
    json!({ "interval_ns": line.width as f64 / NS as f64, "sums": line.sums })
}

fn energy(outcome: &Outcome, machine: &Machine) -> Value {
    let parts = outcome.energy(machine);
    json!({
        "static": parts.static_j,
        "dram": parts.dram_j,
        "llc": parts.llc_j,
        "links": parts.links_j,
    })
}

fn row(case: &Case, outcome: &Outcome, machine: &Machine, page_bytes: u64) -> Value {
    let nodes: Vec<Value> = outcome
        .nodes
        .iter()
        .map(|node| {
            json!({
                "pages": node.pages,
                "lines_read": node.lines_read,
                "lines_written": node.lines_written,
                "busy_ns": node.busy as f64 / NS as f64,
                "mean_wait_ns": node.mean_wait() / NS as f64,
                "longest_wait_ns": node.longest_wait as f64 / NS as f64,
                "busy_ps_over_time": timeline(&node.busy_over_time),
                "wait_ps_over_time": timeline(&node.wait_over_time),
            })
        })
        .collect();
    let links: Vec<Value> = outcome
        .links
        .iter()
        .map(|link| {
            json!({
                "from": link.from,
                "to": link.to,
                "bytes": link.bytes,
                "busy_ns": link.busy as f64 / NS as f64,
                "waited_ns": link.waited as f64 / NS as f64,
                "bytes_over_time": timeline(&link.over_time),
            })
        })
        .collect();
    json!({
        "machine": machine.name,
        "threads": case.threads,
        "pages": case.pages,
        "seed": match case.mapped {
            Mapped::Os { seed } => Some(seed),
            Mapped::Pinned(_) => None,
        },
        "time_ns": outcome.time as f64 / NS as f64,
        "parallel_ns": outcome.parallel as f64 / NS as f64,
        "thread_ends_ns": outcome.thread_ends.iter().map(|end| *end as f64 / NS as f64).collect::<Vec<_>>(),
        "remote_percent": outcome.remote_percent(),
        "llc_hits": outcome.groups.iter().map(|group| group.hits).sum::<u64>(),
        "llc_misses": outcome.llc_misses(),
        "llc_misses_by_cache": outcome.groups.iter().map(|group| group.misses).collect::<Vec<_>>(),
        "llc_misses_by_node": outcome.llc_misses_by_node(machine),
        "mean_queue_wait_ns": outcome.mean_wait() / NS as f64,
        "busiest_controller_percent": busiest(outcome),
        "link_bytes": outcome.link_bytes(),
        "requests_by_node_pair": outcome.requests_by_node_pair.chunks(outcome.nodes.len().max(1)).collect::<Vec<_>>(),
        "remote_requests_percent": outcome.remote_requests_percent(),
        "sampled": outcome.sampled.map(|sampled| json!({
            "detailed_records": sampled.detailed,
            "warmed_records": sampled.warmed,
            "records": sampled.records,
            "windows": sampled.windows,
            "error": sampled.error,
        })),
        "lines_by_node_pair": outcome.lines_by_node_pair.chunks(outcome.nodes.len().max(1)).collect::<Vec<_>>(),
        "invalidations": outcome.invalidations,
        "transfers_within_cache": outcome.transfers_within,
        "transfers_between_caches": outcome.transfers_between,
        "thread_switches": outcome.switches,
        "thread_moves": outcome.thread_moves,
        "page_faults": outcome.page_faults,
        "page_moves": outcome.page_moves,
        "page_bytes": page_bytes,
        "page_walks": outcome.walks.map(|walks| walks.count),
        "mean_page_walk_ns": outcome.walks.map(|walks| walks.mean() / NS as f64),
        "energy_j": outcome.energy(machine).total(),
        "energy_parts_j": energy(outcome, machine),
        "nodes": nodes,
        "links": links,
    })
}

/// The comparison with the best row of each machine, over all presets at both ends of their ranges.
fn sensitivity(answer: &Answer) -> Vec<Value> {
    let of_target = |target| -> Option<Value> {
        let variants = answer.varied.get(target)?;
        let rows = rows(answer, target);
        let best = rows.first()?;
        let of_row = |row: &Row<'_>| {
            let found = uncertainty(answer, row, best)?;
            let ratio = row.outcome.time as f64 / best.outcome.time.max(1) as f64;
            Some(json!({
                "threads": row.case.threads,
                "pages": row.case.pages,
                "times_best": ratio,
                "uncertainty": found.change,
                "by": [variants[found.by].0.preset, variants[found.by].0.value],
                "is_different": found.is_different(ratio),
            }))
        };
        Some(json!({
            "machine": answer.targets[target].machine.name,
            "best": { "threads": best.case.threads, "pages": best.case.pages },
            "rows": rows.iter().skip(1).filter_map(of_row).collect::<Vec<_>>(),
        }))
    };
    (0..answer.targets.len()).filter_map(of_target).collect()
}

/// JSON, with rows in the requested order.
pub(super) fn json(answer: &Answer) -> Value {
    let trace = answer.traces.recorded();
    let rows: Vec<Value> = answer
        .rows
        .iter()
        .map(|(case, outcome)| {
            let target = &answer.targets[case.target];
            row(case, outcome, &target.machine, page_bytes(answer, target))
        })
        .collect();
    let (reads, dependent) = dependent_loads(answer);
    let mut value = json!({
        "version": 1,
        "accesses": trace.accesses(),
        "records": trace.records(),
        "reads": reads,
        "dependent_reads": dependent,
        "private_cache": answer.filter.to_string(),
        "page_bytes": trace.page_bytes(),
        "rows": rows,
    });
    if !answer.varied.is_empty() {
        value["sensitivity"] = sensitivity(answer).into();
    }
    value
}
