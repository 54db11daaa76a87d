//! A lab run as text and as JSON.

use numaloc_lab::{Ended, Machine, Matrix, Outcome, balance};
use numaloc_model::number;
use serde_json::{Value, json};

/// Version of the JSON object.
const VERSION: u32 = 1;
/// The kernel's counters of most interest.
const COUNTERS: &[&str] = &[
    "numa_hit",
    "numa_miss",
    "numa_other",
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "pgmigrate_success",
    "pgmigrate_fail",
];
/// Maximum number of lines of the table of controllers over time.
const MOMENTS: usize = 8;

/// 12345678 as 12.3 M.
pub fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{:.1} k", count as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} M", count as f64 / 1e6),
        _ => format!("{:.1} G", count as f64 / 1e9),
    }
}

fn table(matrix: &Matrix) -> String {
    let nodes = matrix.0.len();
    let mut out = format!("{:>16}", "CPUs of \\ memory");
    for node in 0..nodes {
        out += &format!(" {:>10}", format!("node {node}"));
    }
    out.push('\n');
    for (node, row) in matrix.0.iter().enumerate() {
        out += &format!("{:>16}", format!("node {node}"));
        for &count in row {
            out += &format!(" {:>10}", short(count));
        }
        out.push('\n');
    }
    out
}

/// Shares of the controllers in up to [`MOMENTS`] stretches of the run.
fn over_time(outcome: &Outcome) -> String {
    let slices = &outcome.slices;
    if slices.len() < 2 {
        return String::new();
    }
    let per = slices.len().div_ceil(MOMENTS);
    let mut out = String::from("  until     share of each controller\n");
    for chunk in slices.chunks(per) {
        let nodes = chunk[0].1.len();
        let sums: Vec<u64> = (0..nodes)
            .map(|n| chunk.iter().map(|s| s.1[n]).sum())
            .collect();
        let total = sums.iter().sum::<u64>().max(1) as f64;
        let shares: Vec<String> = sums
            .iter()
            .map(|&sum| format!("{:>6}", number::whole_percent(sum as f64 / total)))
            .collect();
        let end = chunk.last().map_or(0.0, |slice| slice.0);
        out += &format!("  {end:>6.1} s {}\n", shares.join(" "));
    }
    out
}

/// A run as text.
pub fn text(machine: &Machine, outcome: &Outcome) -> String {
    let seen = &outcome.accesses;
    let mut out = format!(
        "lab: {}; {}\n",
        machine.name,
        match outcome.ended {
            Ended::Exited(status) => format!("exited with status {status}"),
            Ended::Killed(signal) => format!("killed by signal {signal}"),
            Ended::Unreported => "ended; the machine ended before it could report how".to_owned(),
        }
    );
    out += &format!(
        "accesses: {} by the program, {} below the private caches, {} % of those remote\n",
        short(outcome.all_accesses.total()),
        short(seen.total()),
        number::fixed(100.0 * seen.remote_share(), 1)
    );
    out += &table(seen);
    out += &format!(
        "balance of the controllers: {} in all, {} over time (1 even, 0 one has all)\n",
        number::fixed(balance(&seen.controllers()), 3),
        number::fixed(outcome.balance_over_time(), 3)
    );
    out += &over_time(outcome);
    if let Some(pages) = outcome.last_pages() {
        let list: Vec<String> = pages
            .iter()
            .enumerate()
            .map(|(node, n)| format!("node {node}: {n}"))
            .collect();
        out += &format!("pages (4 KiB) in the last sample: {}\n", list.join(", "));
    }
    let counters: Vec<String> = COUNTERS
        .iter()
        .filter_map(|name| Some(format!("{name} {}", outcome.guest.counters.get(*name)?)))
        .collect();
    out += &format!("kernel: {}\n", counters.join(", "));
    out
}

/// A run as JSON.
pub fn json(machine: &Machine, outcome: &Outcome) -> Value {
    let seen = &outcome.accesses;
    json!({
        "version": VERSION,
        "machine": {
            "name": machine.name,
            "cpus_per_node": machine.cpus,
            "memory_bytes_per_node": machine.memory,
            "distances": machine.distances.chunks(machine.cpus.len()).collect::<Vec<_>>(),
        },
        "status": outcome.ended.status(),
        "signal": match outcome.ended { Ended::Killed(signal) => Some(signal), Ended::Exited(_) | Ended::Unreported => None },
        "remote_share": seen.remote_share(),
        "accesses": seen.0,
        "remote_accesses": seen.remote(),
        "total_accesses": seen.total(),
        "all_accesses": outcome.all_accesses.0,
        "all_remote_share": outcome.all_accesses.remote_share(),
        "unknown_accesses": outcome.counts.unknown,
        "controller_balance": balance(&seen.controllers()),
        "controller_balance_over_time": outcome.balance_over_time(),
        "slices": outcome.slices.iter().map(|(end_s, controllers, remote)| json!({
            "end_s": end_s, "controllers": controllers, "remote": remote,
        })).collect::<Vec<_>>(),
        "pages": outcome.guest.pages.iter().map(|(at_s, nodes)| json!({
            "at_s": at_s, "nodes": nodes,
        })).collect::<Vec<_>>(),
        "numa_maps": outcome.guest.maps.iter().map(|(pid, line)| json!({
            "pid": pid, "line": line,
        })).collect::<Vec<_>>(),
        "kernel_counters": outcome.guest.counters,
        "node_counters": outcome.guest.node_counters,
        "address_layout": outcome.counts.layout,
        "lab_seconds": outcome.seconds,
    })
}
