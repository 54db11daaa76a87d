//! What tests of `numaloc simulate` share, and those of its plans, samples and quantum.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{compile, numaloc, ok};

mod plans;
mod quantum;
mod windows;

/// Four threads that each clear and then read their own megabyte eight times; the first thread clears the second half
/// of it.
pub const PARTS: &str = r#"
#include <pthread.h>
#include <string.h>
enum { WORDS = 1 << 16 };
static long parts[4][WORDS];
static volatile long sums[4][64];
static pthread_barrier_t barrier;
static void *work(void *which)
{
    long me = (long)which, sum = 0;
    for (int i = 0; i < WORDS / 2; i++) parts[me][i] = i;
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < WORDS; i++) sum += parts[me][i];
    sums[me][0] = sum;
    return 0;
}
int main(void)
{
    pthread_t threads[4];
    pthread_barrier_init(&barrier, 0, 4);
    for (int part = 0; part < 4; part++)
        for (int i = WORDS / 2; i < WORDS; i++) parts[part][i] = i;
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// A machine of two nodes whose last-level caches hold half a part.
pub const MACHINE: &str = r#"
name = "small"
description = "two nodes with small caches"
synthetic = "numa:2(memory=4GiB) l3:1(size=256KiB) l2:2(size=64KiB) core:1 pu:1"
[hardware]
clock_hz = 2e9
line_bytes = 64
memory_latency_ns = 80
memory_bandwidth_bytes_per_s = 10e9
caches = [
  { level = 1, size_bytes = 32768, associativity = 8, latency_cycles = 4 },
  { level = 2, size_bytes = 65536, associativity = 8, latency_cycles = 12 },
  { level = 3, size_bytes = 262144, associativity = 16, latency_cycles = 40 },
]
links = [
  { from = 0, to = 1, bandwidth_bytes_per_s = 10e9, latency_ns = 60 },
  { from = 1, to = 0, bandwidth_bytes_per_s = 10e9, latency_ns = 60 },
]
"#;

/// A recording of these threads, and the machine's file.
pub fn recorded(dir: &Path) -> (PathBuf, PathBuf) {
    let program = compile(dir, "parts", PARTS, true);
    let (profile, machine) = (dir.join("parts.numaloc"), dir.join("small.toml"));
    ok(
        numaloc(&["record", "--quiet", "--trace", "--trace-l2", "64K/8", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program),
    );
    std::fs::write(&machine, MACHINE).unwrap();
    (profile, machine)
}

/// The row of a placement.
pub fn row<'a>(found: &'a Value, pages: &str) -> &'a Value {
    let rows = found["rows"].as_array().unwrap();
    let wanted = |row: &&Value| row["pages"].as_str().unwrap().starts_with(pages);
    rows.iter()
        .find(wanted)
        .unwrap_or_else(|| panic!("{pages}: {found}"))
}
