//! The quantum of simulations of recorded programs.

use std::path::{Path, PathBuf};

use numaloc_formats::access_trace::{AccessTrace, Order};
use numaloc_model::{LogicalPu, ThreadIdx};
use numaloc_sim::{
    Machine, Outcome, Pages, Parameters, Setup, Threads, Trace, TraceBuilder, simulate,
};

use crate::support::{chosen, numaloc, ok, workload};

/// Records a workload with eight threads; the trace, and the bytes of the private caches it was recorded with.
fn recorded(folder: &Path, name: &str, arguments: &[&str]) -> (Trace, u64) {
    let profile = folder
        .join(name.replace('/', "-"))
        .with_extension("numaloc");
    ok(
        numaloc(&["record", "--quiet", "--trace", "--trace-l2", "64K/8", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(workload(name))
            .args(arguments)
            .env("OMP_NUM_THREADS", "8")
            .env("OMP_WAIT_POLICY", "passive"),
    );
    let files = numaloc_formats::profile::traces::files(&profile).unwrap();
    let open = |file: &PathBuf| AccessTrace::open(file, 0).unwrap();
    let traces: Vec<AccessTrace> = files.iter().map(open).collect();
    let read = numaloc_formats::profile::read(&profile).unwrap();
    let paths: Vec<&str> = read.threads().iter().map(|thread| &*thread.path).collect();
    let of_path = |path: &str| {
        let at = paths.iter().position(|other| *other == path);
        at.map(ThreadIdx::from_index)
    };
    let line_bytes = 1 << traces[0].head.line_shift;
    let page_bytes = read.pages().page_size();
    let mut builder = TraceBuilder::new(paths.iter().copied(), line_bytes, page_bytes).unwrap();
    for event in Order::new(&traces, of_path).unwrap() {
        let (thread, event) = event.unwrap();
        builder.push(thread, &event);
    }
    (builder.finish().unwrap(), traces[0].head.l2.bytes)
}

fn simulated(trace: &Trace, filter: u64, pages: &Pages, quantum_ns: f64) -> Outcome {
    let topology = numaloc_topology::resolve("purple").unwrap();
    let parameters = Parameters {
        quantum_ns,
        ..Parameters::default()
    };
    let machine = Machine::new(&topology, parameters).unwrap();
    let pus: Vec<LogicalPu> = [0, 28, 2, 30, 4, 32, 6, 34].map(LogicalPu).to_vec();
    let setup = Setup {
        threads: Threads::Pinned(&pus[..trace.threads()]),
        pages,
    };
    simulate(&machine, trace, &setup, filter).unwrap()
}

/// The limit by which clocks of PUs may differ changes misses by less than 1 %, and times by less than 2 %, also where
/// threads do little but exchange lines. With 1 ns, nearly all requests come in the order of time: the usual limit is
/// less than 5 % from that.
#[test]
fn the_quantum_hardly_changes_the_times_of_recorded_workloads() {
    let folder = tempfile::tempdir().unwrap();
    let workloads = [
        ("stencil2d", &["256", "20"][..]),
        ("two_phase", &["2048", "100"]),
        ("transpose", &["256", "10"]),
        ("pairs", &["2048", "100"]),
        ("studies/cg", &["8000", "3"]),
        ("studies/multigrid", &["256", "1"]),
    ];
    for (name, arguments) in chosen(workloads, &[0, 3, 5]) {
        let (trace, filter) = recorded(folder.path(), name, arguments);
        for pages in [Pages::FirstTouch, Pages::Interleave] {
            let of = |quantum| simulated(&trace, filter, &pages, quantum);
            let usual = of(100.0);
            for (quantum, limit) in [(1.0, 0.05), (50.0, 0.02), (1000.0, 0.02)] {
                let found = of(quantum);
                let change = found.time as f64 / usual.time as f64 - 1.0;
                let misses = found.llc_misses() as f64 / usual.llc_misses() as f64 - 1.0;
                let shown = format!(
                    "{name}, {pages:?}, {quantum} ns: time {:+.3} %, misses {:+.3} %",
                    100.0 * change,
                    100.0 * misses
                );
                println!("{shown}");
                assert!(change.abs() < limit && misses.abs() < 0.01, "{shown}");
            }
        }
    }
}
