//! Output of `simulate`.

use numaloc_model::number;
use numaloc_sim::outcome::Timeline;
use numaloc_sim::{Machine, NS, Outcome};
use serde_json::{Value, json};

use super::{Answer, Case, Mapped};

/// A line of the table: one case, or the median of several draws that differ only in their seed.
struct Row<'a> {
    case: &'a Case,
    outcome: &'a Outcome,
    /// Number of draws, and the times of the fastest and the slowest draw.
    draws: Option<(usize, u64, u64)>,
}

/// Rows of a machine, the fastest first; equally fast ones in the requested order.
fn rows(answer: &Answer, target: usize) -> Vec<Row<'_>> {
    let of_target: Vec<_> = answer
        .rows
        .iter()
        .filter(|(case, _)| case.target == target)
        .collect();
    let is_same = |a: &&(Case, Outcome), b: &&(Case, Outcome)| {
        let drawn = |case: &Case| matches!(case.mapped, Mapped::Os { .. });
        drawn(&a.0) && drawn(&b.0) && a.0.pages == b.0.pages
    };
    let mut rows: Vec<Row<'_>> = of_target
        .chunk_by(is_same)
        .map(|draws| {
            let mut by_time = draws.to_vec();
            by_time.sort_by_key(|(_, outcome)| outcome.time);
            let (case, outcome) = by_time[(by_time.len() - 1) / 2];
            let (least, most) = (by_time[0].1.time, by_time[by_time.len() - 1].1.time);
            Row {
                case,
                outcome,
                draws: (by_time.len() > 1).then_some((by_time.len(), least, most)),
            }
        })
        .collect();
    rows.sort_by_key(|row| row.outcome.time);
    rows
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

/// A table for each machine.
pub(super) fn text(answer: &Answer) -> String {
    let trace = &answer.trace;
    let mut out = format!(
        "{} threads, {:.2} M records of {:.2} M accesses below private caches of {}; {} simulations in {:.1} s\n",
        trace.threads(),
        trace.records() as f64 / 1e6,
        trace.accesses() as f64 / 1e6,
        answer.filter,
        answer.rows.len(),
        answer.seconds
    );
    for (target, found) in answer.targets.iter().enumerate() {
        let machine = &found.machine;
        out += &format!(
            "\nmachine: {} ({})\n",
            machine.name,
            found.topology.summary()
        );
        out += &format!(
            "  {:<14} {:<18} {:>11} {:>8} {:>9} {:>9} {:>10} {:>7} {:>9} {:>9}\n",
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
                "  {:<14} {:<18} {:>8} ms {:>8} {:>7} M {:>9} {:>7} ns {:>5} % {:>6} MB {:>7} J\n",
                case.threads,
                case.pages,
                number::fixed(ms(outcome.time), 3),
                number::fixed(outcome.time as f64 / best as f64, 3),
                number::fixed(outcome.llc_misses() as f64 / 1e6, 3),
                remote.map_or("-".to_owned(), |remote| number::fixed(remote, 1) + " %"),
                number::fixed(outcome.mean_wait() / NS as f64, 1),
                number::fixed(busiest(outcome), 0),
                number::fixed(outcome.link_bytes() as f64 / 1e6, 1),
                number::fixed(outcome.energy(machine), 3),
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
    }
    out += "\n  LLC miss: requests that no cache of the thread's node answered; remote: lines to and from DRAM of another node;\n";
    out += "  queue wait: mean wait at memory controllers; busiest: busy time of the busiest controller; energy: an estimate\n";
    out
}

fn timeline(line: &Timeline) -> Value {
    json!({ "interval_ns": line.width as f64 / NS as f64, "sums": line.sums })
}

fn row(case: &Case, outcome: &Outcome, machine: &Machine) -> Value {
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
        "thread_ends_ns": outcome.thread_ends.iter().map(|end| *end as f64 / NS as f64).collect::<Vec<_>>(),
        "remote_percent": outcome.remote_percent(),
        "llc_hits": outcome.groups.iter().map(|group| group.hits).sum::<u64>(),
        "llc_misses": outcome.llc_misses(),
        "llc_misses_by_cache": outcome.groups.iter().map(|group| group.misses).collect::<Vec<_>>(),
        "mean_queue_wait_ns": outcome.mean_wait() / NS as f64,
        "busiest_controller_percent": busiest(outcome),
        "link_bytes": outcome.link_bytes(),
        "lines_by_node_pair": outcome.lines_by_node_pair.chunks(outcome.nodes.len().max(1)).collect::<Vec<_>>(),
        "invalidations": outcome.invalidations,
        "transfers_within_cache": outcome.transfers_within,
        "transfers_between_caches": outcome.transfers_between,
        "thread_switches": outcome.switches,
        "thread_moves": outcome.thread_moves,
        "page_faults": outcome.page_faults,
        "page_moves": outcome.page_moves,
        "energy_j": outcome.energy(machine),
        "nodes": nodes,
        "links": links,
    })
}

/// JSON, with rows in the requested order.
pub(super) fn json(answer: &Answer) -> Value {
    json!({
        "accesses": answer.trace.accesses(),
        "records": answer.trace.records(),
        "private_cache": answer.filter.to_string(),
        "page_bytes": answer.trace.page_bytes(),
        "rows": answer
            .rows
            .iter()
            .map(|(case, outcome)| row(case, outcome, &answer.targets[case.target].machine))
            .collect::<Vec<_>>(),
    })
}
