//! `make bench-simulate`: measures the speed of the simulation.
//!
//! A synthetic program of 64 threads that stream through private memory, read shared lines at random, write some of
//! them, and meet at a barrier at intervals; on machines with four nodes, under several placements. Prints M records
//! per second of CPU time for each simulation alone, then for all of them at once on every PU, and the peak memory. CPU
//! time, because other programs may run on this machine. Each row has a digest of all predicted figures: versions of
//! the simulator with the same model have the same. With `CASE=n`, only the row of that number, from 0; with
//! `CASE=all`, only all at once. `QUANTUM_NS` is the limit by which a PU's clock is ahead, 100 if not given.

use std::time::Instant;

use numaloc_model::trace::{Action, Event};
use numaloc_model::{LogicalNode, LogicalPu, ThreadIdx};
use numaloc_sim::{
    Machine, Outcome, Pages, Parameters, Setup, Threads, Trace, TraceBuilder, simulate,
};

const THREADS: u64 = 64;
/// Records of each thread between two barriers.
const ROUND: u64 = 2000;

fn made_up(records: u64) -> Trace {
    let paths: Vec<String> = (0..THREADS).map(|at| format!("r{at}")).collect();
    let mut builder = TraceBuilder::new(paths.iter().map(String::as_str), 64, 4096)
        .expect("pages hold whole lines");
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for at in 0..records / THREADS {
        for thread in 0..THREADS {
            let mut push = |action| {
                let event = Event {
                    time: at,
                    work: 6,
                    action,
                    after: 0,
                };
                builder.push(ThreadIdx(thread as u32), &event);
            };
            let own = (thread + 1) << 20;
            match at % ROUND {
                0 if at > 0 => (0..4).for_each(|word| push(Action::Acquire(word))),
                last if last == ROUND - 1 => push(Action::Release(thread % 4)),
                _ => match random() % 8 {
                    0 => push(Action::Read(random() % (1 << 18))),
                    1 => push(Action::Write(random() % (1 << 12))),
                    2 => push(Action::WriteBack(own + at.saturating_sub(4096) % (1 << 18))),
                    _ => push(Action::Read(own + at % (1 << 18))),
                },
            }
        }
    }
    builder.finish().expect("it fits")
}

/// CPU time of the calling thread, in seconds.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

/// FNV-1a of the outcome's debug representation.
fn digest(outcome: &Outcome) -> u64 {
    let bytes = format!("{outcome:?}").into_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, &byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

/// A simulation: machine, PU of each thread, page policy and its name.
type Case<'a> = (&'a Machine, Vec<LogicalPu>, &'static str, Pages);

/// Two mappings with three page policies on each machine.
fn cases(machines: &[Machine]) -> Vec<Case<'_>> {
    let pages = || {
        [
            ("first touch", Pages::FirstTouch),
            ("interleave", Pages::Interleave),
            ("one node", Pages::Node(LogicalNode(0))),
        ]
    };
    let mut cases = Vec::new();
    for machine in machines {
        for spread in [1, 5] {
            let pus = machine.pus.len() as u64;
            let pu = |thread| LogicalPu((thread * spread % pus) as u32);
            let threads: Vec<LogicalPu> = (0..THREADS).map(pu).collect();
            for (name, pages) in pages() {
                cases.push((machine, threads.clone(), name, pages));
            }
        }
    }
    cases
}

fn run(case: &Case<'_>, trace: &Trace) -> Outcome {
    let setup = Setup {
        threads: Threads::Pinned(&case.1),
        pages: &case.3,
    };
    simulate(case.0, trace, &setup, case.0.private_bytes).expect("it fits")
}

/// Every other case alone, or the row `only`.
fn print_rows(cases: &[Case<'_>], trace: &Trace, repeats: u64, only: &str) {
    let records = trace.records() as f64;
    println!(
        "machine      pages         simulated ms    M records per CPU second (median, spread)  figures"
    );
    let rows = cases.iter().step_by(2).enumerate();
    for (_, case) in rows.filter(|(at, _)| only.is_empty() || only == at.to_string()) {
        let mut rates: Vec<f64> = Vec::new();
        let (mut time, mut figures) = (0, 0);
        for _ in 0..repeats {
            let start = cpu_seconds();
            let outcome = run(case, trace);
            rates.push(records / 1e6 / (cpu_seconds() - start));
            (time, figures) = (outcome.time, digest(&outcome));
        }
        rates.sort_by(f64::total_cmp);
        println!(
            "{:<12} {:<12} {:>13.3} {:>8.1} ({:.1} to {:.1})  {figures:016x}",
            case.0.name,
            case.2,
            time as f64 / 1e9,
            rates[rates.len() / 2],
            rates[0],
            rates[rates.len() - 1]
        );
    }
}

/// All cases on every PU.
fn print_all_at_once(cases: &[Case<'_>], trace: &Trace) {
    let records = trace.records() as f64;
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let start = Instant::now();
    let work = || {
        let start = cpu_seconds();
        while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            run(case, trace);
        }
        cpu_seconds() - start
    };
    let on_cpus: f64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a simulation does not panic"))
            .sum()
    });
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "all {} at once on {workers} PUs: {seconds:.1} s, {on_cpus:.1} s of CPU time, {:.1} M records/s of CPU time, peak {} MiB",
        cases.len(),
        records / 1e6 * cases.len() as f64 / on_cpus,
        peak_mib()
    );
}

fn main() {
    let number = |name, standard| {
        let given = std::env::var(name)
            .ok()
            .and_then(|given| given.parse().ok());
        given.unwrap_or(standard)
    };
    let (millions, repeats) = (number("RECORDS_M", 20), number("REPEATS", 3));
    let start = Instant::now();
    let trace = made_up(millions * 1_000_000);
    let records = trace.records() as f64;
    println!(
        "{:.1} M records of {} threads, {} MiB of pages; made in {:.1} s, peak {} MiB",
        records / 1e6,
        trace.threads(),
        trace.pages().len() >> 8,
        start.elapsed().as_secs_f64(),
        peak_mib()
    );
    let parameters = Parameters {
        quantum_ns: number("QUANTUM_NS", 100) as f64,
        ..Parameters::default()
    };
    let machines: Vec<Machine> = ["skylake-4s", "xeon-x7550"]
        .iter()
        .map(|name| {
            let topology = numaloc_topology::resolve(name).expect("it is described");
            Machine::new(&topology, parameters.clone()).expect("it has figures")
        })
        .collect();
    let cases = cases(&machines);
    let only = std::env::var("CASE").unwrap_or_default();
    if only != "all" {
        print_rows(&cases, &trace, repeats, &only);
    }
    if matches!(only.as_str(), "" | "all") {
        print_all_at_once(&cases, &trace);
    }
}
