//! The other two models of a machine's time against the simulator: the objective of the joint policy
//! (`numaloc_placement::joint`), which ranks threads and pages together, and the cost of a task's data
//! (`numaloc_task_plan::seconds_per_byte`).

use crate::common::{LINE, PAGE_LINES, pus};
use numaloc_model::pages::PageHead;
use numaloc_model::trace::{Action, Event};
use numaloc_model::{CommMatrix, LogicalNode, PageNumber, PageUsage, ThreadAccess, ThreadIdx};
use numaloc_placement::joint::{Objective, Weights};
use numaloc_sim::{Machine, Pages, Parameters, Setup, Threads, Trace, TraceBuilder, simulate};
use numaloc_topology::Topology;

const THREADS: u64 = 8;
const NODES: usize = 4;

/// The page and the line in it that a thread's access goes to.
type Access = fn(thread: u64, at: u64) -> (u64, u64);

/// Pages of each thread's own.
const OWN_PAGES: u64 = 128;

/// Lines in no order that a core would recognise as a stream; each line once.
fn scattered(at: u64) -> u64 {
    at * 2_531 % (OWN_PAGES * PAGE_LINES)
}

fn own(thread: u64, at: u64) -> (u64, u64) {
    let line = scattered(at);
    (thread * OWN_PAGES + line / PAGE_LINES, line % PAGE_LINES)
}

/// A third of the accesses to the next thread's pages, to lines that the other does not use.
fn neighbours(thread: u64, at: u64) -> (u64, u64) {
    let (_, line) = own(0, at);
    let page = scattered(at) / PAGE_LINES;
    let of = if at.is_multiple_of(3) {
        (thread + 1) % THREADS
    } else {
        thread
    };
    (of * OWN_PAGES + page, line)
}

/// All pages are first thread 0's, which uses a quarter of them more than the others do.
fn shared(thread: u64, at: u64) -> (u64, u64) {
    let line = scattered(at);
    let page = line / PAGE_LINES;
    let of = if thread == 0 || at.is_multiple_of(4) {
        0
    } else {
        thread % 3
    };
    (of * OWN_PAGES + page, line % PAGE_LINES)
}

/// `lines` accesses of each thread, and how often each thread uses each page.
fn program(access: Access, lines: u64) -> (Trace, PageUsage) {
    let paths: Vec<String> = (0..THREADS).map(|at| format!("r{at}")).collect();
    let names = paths.iter().map(String::as_str);
    let mut builder = TraceBuilder::new(names, LINE, LINE * PAGE_LINES).unwrap();
    let mut counts = std::collections::BTreeMap::<u64, [u64; THREADS as usize]>::new();
    for at in 0..lines {
        for thread in 0..THREADS {
            let (page, line) = access(thread, at);
            let action = Action::Read(page * PAGE_LINES + line);
            let event = Event {
                time: at + 1,
                work: 1,
                action,
                after: 0,
            };
            builder.push(ThreadIdx(thread as u32), &event);
            counts.entry(page).or_default()[thread as usize] += 1;
        }
    }
    let mut usage = PageUsage::new(LINE * PAGE_LINES);
    for (&page, counts) in &counts {
        let head = PageHead {
            number: PageNumber(page),
            object: None,
            object_page: 0,
            first_touch: None,
            first_touch_time: 0,
            policy: None,
        };
        let accesses = counts.iter().zip(0..).filter(|(reads, _)| **reads > 0);
        let accesses = accesses.map(|(&reads, thread)| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        });
        usage.push(head, accesses.collect());
    }
    (builder.finish().unwrap(), usage)
}

/// Spearman's rank correlation; values that differ by less than some half a percent are equal, and share their mean
/// rank.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let values: Vec<f64> = values
            .iter()
            .map(|value| (value.ln() * 200.0).round())
            .collect();
        let values = &values;
        let rank = |value: &f64| {
            let below = values.iter().filter(|other| *other < value).count();
            let equal = values.iter().filter(|other| *other == value).count();
            below as f64 + (equal as f64 - 1.0) / 2.0
        };
        values.iter().map(rank).collect()
    };
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let sum = |of: &dyn Fn(usize) -> f64| (0..a.len()).map(of).sum::<f64>();
    let both = sum(&|at| (a[at] - mean) * (b[at] - mean));
    let each = sum(&|at| (a[at] - mean).powi(2)) * sum(&|at| (b[at] - mean).powi(2));
    both / each.sqrt()
}

fn four_nodes(outstanding: usize) -> (Topology, Machine) {
    let topology = numaloc_topology::resolve("numa4x4").unwrap();
    let parameters = Parameters {
        outstanding,
        prefetched: 0,
        window_accesses: 1 << 12,
        thread_start_us: 0.0,
        ..Parameters::default()
    };
    let machine = Machine::new(&topology, parameters).unwrap();
    (topology, machine)
}

#[test]
fn the_joint_objective_ranks_candidates_as_simulated_time_does() {
    let threads: [&[u32]; 4] = [
        &[0, 1, 2, 3, 4, 5, 6, 7],
        &[0, 4, 8, 12, 1, 5, 9, 13],
        &[0, 1, 4, 5, 8, 9, 12, 13],
        &[12, 8, 4, 0, 13, 9, 5, 1],
    ];
    let programs: [(&str, Access); 3] =
        [("own", own), ("neighbours", neighbours), ("shared", shared)];
    let cases = programs
        .iter()
        .flat_map(|program| [1, 10].map(|in_flight| (*program, in_flight, true)));
    let without = [(programs[2], 1, false), (programs[2], 10, false)];
    for ((name, access), in_flight, has_llc) in cases.chain(without) {
        let (trace, usage) = program(access, 4_000);
        let (topology, mut machine) = four_nodes(in_flight);
        if !has_llc {
            machine.llc = crate::common::shape(16, 16);
        }
        let weights = Weights {
            memory_share: 1.0,
            in_flight: in_flight as f64,
            ..Weights::of(&topology)
        };
        let comm = CommMatrix::empty(THREADS as usize);
        let objective = Objective::new(&topology, &comm, weights);
        let (mut ranked, mut simulated) = (Vec::new(), Vec::new());
        for pu in threads {
            let pu = pus(pu);
            let home = |page: usize| {
                let page = &usage.pages()[page];
                let most = usage
                    .accesses(page)
                    .iter()
                    .max_by_key(|access| access.total());
                topology.node_of(pu[most.unwrap().thread.index()]).index()
            };
            let places: [&dyn Fn(usize) -> usize; 4] =
                [&home, &|_| 0, &|page| page % NODES, &|page| {
                    (home(page) + 1) % NODES
                }];
            for place in places {
                let node: Vec<Option<LogicalNode>> = (0..usage.pages().len())
                    .map(|page| Some(LogicalNode::from_index(place(page))))
                    .collect();
                ranked.push(objective.cost(&usage, &pu, &node).total());
                let of_page =
                    |number: &u64| node[usage.index_of(PageNumber(*number)).unwrap() as usize];
                let placed = trace.pages().iter().map(of_page).collect();
                let setup = Setup {
                    threads: Threads::Pinned(&pu),
                    pages: &Pages::Placed(placed),
                };
                let found = simulate(&machine, &trace, &setup, machine.private_bytes);
                simulated.push(found.unwrap().time as f64);
            }
        }
        let correlation = rank_correlation(&ranked, &simulated);
        let least = |values: &[f64]| {
            (0..values.len())
                .min_by(|&a, &b| values[a].total_cmp(&values[b]))
                .unwrap()
        };
        let chosen = simulated[least(&ranked)] / simulated[least(&simulated)];
        println!(
            "{name}, {in_flight} in flight, last-level caches {has_llc}: {correlation:.3}, chosen {chosen:.3}"
        );
        // Not met with dependent loads of shared pages: the choice takes 1.14 times the best's time. Threads of a
        // node find lines in its last-level cache that another one has fetched; for the objective, each access goes
        // to memory. Without these caches the choice is the best, and the other candidates' times are nearly equal.
        let (correlated, worst) = match (name, in_flight, has_llc) {
            ("shared", 1, true) => (0.5, 1.2),
            ("shared", 1, false) => (-1.0, 1.01),
            _ => (0.79, 1.05),
        };
        assert!(
            correlation > correlated,
            "{name}, {in_flight} in flight: {correlation:.3}"
        );
        assert!(
            chosen < worst,
            "{name}, {in_flight} in flight: {chosen:.3} times the best"
        );
    }
}

/// All cores of all nodes stream blocks of their own, from their own node's memory or from another's, with 64
/// lines outstanding for each core: bandwidth decides.
#[test]
fn the_cost_of_a_tasks_data_is_the_simulators_for_streams() {
    let (topology, machine) = four_nodes(64);
    let all = topology.pus().len();
    let cost = numaloc_task_plan::seconds_per_byte(&topology, all);
    let lines = 4_000u64;
    let threads: Vec<Vec<Action>> = (0..all as u64)
        .map(|thread| {
            (0..lines)
                .map(|at| Action::Read(thread << 20 | at))
                .collect()
        })
        .collect();
    let trace = crate::common::trace(&threads);
    let pu = pus(&(0..all as u32).collect::<Vec<_>>());
    let node_of = |thread: usize| topology.node_of(pu[thread]).index();
    for (what, far) in [("near", 0), ("far", 1)] {
        let placed = trace.pages().iter().map(|&page| {
            let thread = ((page * PAGE_LINES) >> 20) as usize;
            Some(LogicalNode::from_index((node_of(thread) + far) % NODES))
        });
        let setup = Setup {
            threads: Threads::Pinned(&pu),
            pages: &Pages::Placed(placed.collect()),
        };
        let found = simulate(&machine, &trace, &setup, machine.private_bytes).unwrap();
        let seconds = found.time as f64 * 1e-12;
        // A core of node 0.
        let expected = (lines * LINE) as f64 * cost[far];
        let ratio = seconds / expected;
        println!("{what}: simulated {seconds:.3e} s, task model {expected:.3e} s");
        assert!((ratio - 1.0).abs() < 0.03, "{what}: {ratio:.4}");
    }
}
