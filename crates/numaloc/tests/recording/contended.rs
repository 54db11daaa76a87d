//! Contention: how often lines would move between caches if all threads ran at the same time, for patterns of sharing
//! whose answer is known, on whatever processors the test has (`docs/tracing.md#contention`).

use std::path::Path;

use numaloc_model::profile::ContendedLine;

use crate::support::{compile, is_full, numaloc, ok};

/// Patterns, those that each run tries first.
const PATTERNS: [&str; 17] = [
    "plain counter",
    "counters in lines",
    "one stores, all load",
    "a mutex",
    "compare and exchange",
    "counters apart",
    "atomic counter",
    "atomic counters in lines",
    "pairs in lines",
    "half of them count",
    "one stores next to what all load",
    "all load",
    "batches of sixteen",
    "a lock of its own",
    "bins of a histogram",
    "two lines in turn",
    "flags of four",
];
const FEW: usize = 6;
/// Share by which an estimate may be off.
const OFF: f64 = 0.2;

/// What a pattern prints: address and bytes of its lines, transfers and those by false sharing.
fn estimates(folder: &Path, program: &Path, pattern: &str, threads: u32) -> ([f64; 2], [f64; 2]) {
    let profile = folder.join("p.numaloc");
    let turns = (200_000 / threads).max(20_000);
    let mut record = numaloc(&["record", "--quiet", "--force", "--frontend", "native", "-o"]);
    record.arg(&profile).arg("--").arg(program);
    let said = ok(record.args([pattern, &threads.to_string(), &turns.to_string()]));
    let known: Vec<f64> = said
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let lines = known[0] as u64 / 64..(known[0] + known[1]) as u64 / 64;
    let profile = numaloc_formats::profile::read(&profile).unwrap();
    let found = profile.contended_lines().iter();
    let found: Vec<&ContendedLine> = found.filter(|row| lines.contains(&row.line)).collect();
    let sum = |of: fn(&ContendedLine) -> u64| found.iter().map(|row| of(row)).sum::<u64>() as f64;
    (
        [known[2], known[3]],
        [sum(|row| row.transfers), sum(|row| row.false_transfers)],
    )
}

#[test]
fn transfers_are_those_of_threads_that_run_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(
        dir.path(),
        "patterns",
        include_str!("../contended/patterns.c"),
        false,
    );
    let (patterns, threads): (&[&str], &[u32]) = match is_full() {
        true => (&PATTERNS, &[2, 8, 64]),
        false => (&PATTERNS[..FEW], &[8]),
    };
    for pattern in patterns {
        for &threads in threads {
            let (known, found) = estimates(dir.path(), &program, pattern, threads);
            let what = format!("{pattern}, {threads} threads: {found:?}, known {known:?}");
            println!("{what}");
            let most = OFF * known[0];
            let off = |at: usize| (found[at] - known[at]).abs();
            assert!(off(0) <= most && off(1) <= most, "{what}");
        }
    }
}
