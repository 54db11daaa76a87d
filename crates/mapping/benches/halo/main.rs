//! `make bench-mpi-mapping`: 65,536 MPI ranks of a 3-D halo exchange on 1,024 hosts of 4 NUMA nodes of 16 cores, 32
//! hosts under each of 32 switches. Each policy runs in its own process, which reports its time and peak memory.
//!
//! 64 x 32 x 32 ranks, each with a block of 32^3 doubles and 26 neighbours (open borders), in the
//! row-major order MPI_Cart_create gives: a face is 8,192 bytes, an edge 256, a corner 8. `packed` is a
//! launcher's block layout, `scatter` its cyclic one.
//!
//! Options: `--policies NAMES`, `--shuffle` (rank numbers unrelated to the grid), `--repeat N`.

mod instance;

use std::process::Command;
use std::time::Instant;

use numaloc_mapping::policies::scotch::{Scotch, Strategy};
use numaloc_mapping::{MapInput, MappingPolicy, by_name, evaluate, map};

use crate::instance::{HOST, cluster, halo, share_between_hosts};

const GRID: [usize; 3] = [64, 32, 32];
/// Hosts under a leaf switch, and leaf switches under the spine.
const SWITCH: usize = 32;
const HOSTS: usize = SWITCH * SWITCH;

fn main() {
    let mut policies = "numaloc,scotch-hosts,scotch-kway-hosts,packed,scatter".to_owned();
    let (mut shuffle, mut repeat, mut only) = (false, 1, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .unwrap_or_else(|| panic!("{word} needs a value"))
        };
        match word.as_str() {
            "--policies" => policies = value(),
            "--repeat" => repeat = value().parse().expect("a number"),
            "--shuffle" => shuffle = true,
            // Used when this program runs itself.
            "--only" => only = Some(value()),
            // Cargo passes this to every bench.
            "--bench" => {}
            _ => panic!("unknown option {word}"),
        }
    }
    if let Some(policy) = only {
        println!("{}", measured(&policy, shuffle));
        return;
    }
    let order = if shuffle { "shuffled" } else { "row-major" };
    println!("65,536 ranks, {GRID:?} halo, {order} rank numbers, 32 x 32 hosts of {HOST}");
    println!("policy             inter-host  inter-node          J   wall s   CPU s  peak MiB");
    let own = std::env::current_exe().expect("this program has a path");
    for policy in policies.split(',') {
        for _ in 0..repeat {
            let mut command = Command::new(&own);
            command.args(["--only", policy]);
            if shuffle {
                command.arg("--shuffle");
            }
            let output = command.output().expect("this program runs again");
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// One line of the table, measured in this process from the matrix to the mapping.
fn measured(policy: &str, shuffle: bool) -> String {
    // `-hosts`: maps ranks to hosts only, which is less work and gives no figures for nodes and J.
    let (name, hosts_only) = match policy.strip_suffix("-hosts") {
        Some(name) => (name, true),
        None => (policy, false),
    };
    let topology = cluster(SWITCH, if hosts_only { "core:1 pu:1" } else { HOST });
    let comm = halo(GRID, shuffle);
    let begun = Instant::now();
    let input = MapInput::new(&comm, &topology);
    let kway = Scotch {
        strategy: Strategy::Default,
    };
    let chosen: &dyn MappingPolicy = match name {
        "scotch-kway" => &kway,
        name => by_name(name).expect("a policy of this name"),
    };
    let mapped = match map(chosen, &input) {
        Ok(mapped) => mapped,
        Err(error) => return format!("{policy:<18} {error}"),
    };
    let wall = begun.elapsed().as_secs_f64();
    let hosts = share_between_hosts(&input, &mapped.mapping, HOSTS);
    let (nodes, j) = if hosts_only {
        ("-".to_owned(), "-".to_owned())
    } else {
        let found = evaluate(&input, &mapped.mapping);
        (
            format!("{:.4}", found.remote / found.total),
            format!("{:.4e}", found.cost),
        )
    };
    format!(
        "{policy:<18} {hosts:>10.4} {nodes:>11} {j:>10} {wall:>8.2} {:>7.2} {:>9}",
        cpu_seconds(),
        peak_kib() / 1024,
    )
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    // USER_HZ is 100 on every Linux that this runs on.
    ticks.map(|t| t.parse().unwrap_or(0.0)).sum::<f64>() / 100.0
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
