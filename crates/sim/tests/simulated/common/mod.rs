//! A machine with simple times, hand-made traces, and a function that runs both.

use numaloc_model::trace::{Action, Event};
use numaloc_model::{LogicalPu, ThreadIdx};
use numaloc_sim::machine::{LinkModel, Place};
use numaloc_sim::outcome::Outcome;
use numaloc_sim::{Machine, Pages, Parameters, Setup, Threads, Trace, TraceBuilder, simulate};

pub const NS: u64 = 1000;
pub const LINE: u64 = 64;
pub const PAGE_LINES: u64 = 64;
/// Lines of the test machine's last-level caches and of its private ones.
pub const LLC_LINES: u64 = 16_384;
pub const PRIVATE_LINES: u64 = 1024;

pub const PRIVATE: u64 = 5 * NS;
pub const LLC: u64 = 20 * NS;
pub const MEMORY: u64 = 80 * NS;
pub const HOP: u64 = 30 * NS;
/// 64 bytes at 16 GB/s.
pub const SERVICE: u64 = 4 * NS;
/// Picoseconds a byte of a link of 10 GB/s.
pub const BYTE: f64 = 100.0;
/// A request of 16 bytes and a line with a header of as many, on a link.
pub const REQUEST: u64 = 16 * 100;
pub const DATA: u64 = 80 * 100;

pub fn shape(lines: u64, ways: u64) -> numaloc_sim::machine::Shape {
    numaloc_sim::machine::Shape { lines, ways }
}

/// `nodes` nodes, all joined, with `cores` cores and a last-level cache each; instructions take no time.
pub fn machine(nodes: usize, cores: usize, outstanding: usize) -> Machine {
    let links: Vec<LinkModel> = (0..nodes * nodes)
        .map(|pair| (pair / nodes, pair % nodes))
        .filter(|(from, to)| from != to)
        .map(|(from, to)| LinkModel {
            from,
            to,
            ps_per_byte: BYTE,
            hop: HOP,
        })
        .collect();
    let routes = (0..nodes * nodes)
        .map(|pair| {
            let (from, to) = (pair / nodes, pair % nodes);
            let link = links
                .iter()
                .position(|link| (link.from, link.to) == (from, to));
            link.map(|link| link as u16).into_iter().collect()
        })
        .collect();
    let node_of = |core: usize| (core / cores) as u32;
    Machine {
        name: "test".to_owned(),
        line_bytes: LINE,
        page_bytes: None,
        pus: (0..nodes * cores)
            .map(|core| Place {
                core: core as u32,
                group: node_of(core),
                node: node_of(core),
            })
            .collect(),
        core_node: (0..nodes * cores).map(node_of).collect(),
        core_group: (0..nodes * cores).map(node_of).collect(),
        nodes,
        groups: nodes,
        private: shape(PRIVATE_LINES, 8),
        private_bytes: PRIVATE_LINES * LINE,
        llc: shape(LLC_LINES, 16),
        private_latency: PRIVATE,
        llc_latency: LLC,
        memory_latency: vec![MEMORY; nodes],
        service: vec![SERVICE; nodes],
        write_service: vec![SERVICE; nodes],
        links,
        routes,
        access: 0.0,
        parameters: Parameters {
            outstanding,
            prefetched: 0,
            thread_start_us: 0.0,
            ..Parameters::default()
        },
    }
}

/// Threads `0`, `0.1`, ... that all start at once, each with its events; the order of recording is one event of each in
/// turn.
pub fn trace(threads: &[Vec<Action>]) -> Trace {
    let paths: Vec<String> = (0..threads.len()).map(|at| format!("r{at}")).collect();
    let mut builder =
        TraceBuilder::new(paths.iter().map(String::as_str), LINE, LINE * PAGE_LINES).unwrap();
    let longest = threads.iter().map(Vec::len).max().unwrap_or(0);
    for time in 0..longest {
        for (thread, actions) in threads.iter().enumerate() {
            if let Some(&action) = actions.get(time) {
                let event = Event {
                    time: time as u64 + 1,
                    work: 1,
                    action,
                    after: 0,
                };
                builder.push(ThreadIdx::from_index(thread), &event);
            }
        }
    }
    builder.finish().unwrap()
}

pub fn pus(of: &[u32]) -> Vec<LogicalPu> {
    of.iter().copied().map(LogicalPu).collect()
}

pub fn run(machine: &Machine, trace: &Trace, threads: &[u32], pages: &Pages) -> Outcome {
    let threads = pus(threads);
    let setup = Setup {
        threads: Threads::Pinned(&threads),
        pages,
    };
    // The private caches of the machine are modelled: the traces here have every access.
    simulate(machine, trace, &setup, 0).unwrap()
}

/// Reads of `lines` lines in an order without streams, `rounds` times, from `first` on.
pub fn chase(first: u64, lines: u64, rounds: u64) -> Vec<Action> {
    let step = (lines / 2 + 1..).find(|step| gcd(*step, lines) == 1 && *step > 16 % lines);
    let step = step.expect("there is one");
    (0..lines * rounds)
        .map(|at| Action::Read(first + at * step % lines))
        .collect()
}

pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Thread `0` and thread `0.1`, which it creates, with their events in recorded order.
pub fn creator_and_created(events: &[(u32, Action)]) -> Trace {
    let mut builder = TraceBuilder::new(["0", "0.1"], LINE, LINE * PAGE_LINES).unwrap();
    for (&(thread, action), time) in events.iter().zip(1..) {
        let event = Event {
            time,
            work: 1,
            action,
            after: 0,
        };
        builder.push(ThreadIdx(thread), &event);
    }
    builder.finish().unwrap()
}
