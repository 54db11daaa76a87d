//! Times of small runs that are known by hand or by comparison.

use std::collections::BTreeMap;

use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    Clock, CommRow, ContendedLine, ContendedVisits, Meta, Object, ObjectKind, PageSlice, Profile,
    ProfileBuilder, SharedLine, Slice, Thread, VisitedKind,
};
use numaloc_model::{
    CodePlace, Layer, LogicalNode, LogicalPu, Mapping, ObjectIdx, PageNumber, PageUsage, Placement,
    SliceIdx, ThreadAccess, ThreadIdx,
};
use numaloc_placement::joint::SMT_SLOWDOWN;
use numaloc_topology::{Topology, resolve};

use super::figures::CYCLES_PER_ACCESS;
use super::{Model, Worth};

/// A use of a page: slice, page, thread, loads.
pub(crate) type Use = (u32, u32, u32, u64);

/// A profile of these uses, with pages touched first by their first user, and events between threads.
pub(crate) fn profile(threads: u32, uses: &[Use], events: &[(u32, u32, u32, u64)]) -> Profile {
    of_object(threads, uses, events, None)
}

/// The same, with all pages in an object of the first thread, and stores instead of loads if `is_written`.
pub(crate) fn table(threads: u32, uses: &[Use], is_written: bool) -> Profile {
    of_object(threads, uses, &[], Some(is_written))
}

fn of_object(
    threads: u32,
    uses: &[Use],
    events: &[(u32, u32, u32, u64)],
    is_written: Option<bool>,
) -> Profile {
    let tables = tables(threads, uses, events, is_written);
    tables.build().expect("a valid profile")
}

fn tables(
    threads: u32,
    uses: &[Use],
    events: &[(u32, u32, u32, u64)],
    is_written: Option<bool>,
) -> ProfileBuilder {
    let slices = uses.iter().map(|used| used.0).max().unwrap_or(0) + 1;
    let mut by_page: BTreeMap<u32, Vec<&Use>> = BTreeMap::new();
    for used in uses {
        by_page.entry(used.1).or_default().push(used);
    }
    let mut pages = PageUsage::new(4096);
    for (number, of_page) in by_page {
        let head = PageHead {
            number: PageNumber(u64::from(number)),
            object: is_written.map(|_| ObjectIdx(0)),
            object_page: u64::from(number),
            first_touch: of_page.first().map(|used| ThreadIdx(used.2)),
            first_touch_time: 0,
            policy: None,
        };
        let access = |used: &&Use| ThreadAccess {
            thread: ThreadIdx(used.2),
            reads: if is_written == Some(true) { 0 } else { used.3 },
            writes: if is_written == Some(true) { used.3 } else { 0 },
        };
        pages.push(head, of_page.iter().map(access).collect());
    }
    let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Virtual), 4096);
    tables.usage(&pages);
    if is_written.is_some() {
        tables.objects = vec![Object {
            kind: ObjectKind::Heap,
            name: "table".to_owned(),
            size: pages.pages().len() as u64 * 4096,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 0,
            variables: Vec::new(),
        }];
    }
    tables.threads = (0..threads)
        .map(|at| Thread {
            pid: 1,
            tid: at + 1,
            end: u64::from(slices) * 10,
            ..Thread::new(format!("0.{at}"))
        })
        .collect();
    tables.slices = Slice::even(10, u64::from(slices) * 10).collect();
    tables.communication = events
        .iter()
        .map(|&(slice, src, dst, events)| CommRow {
            slice: SliceIdx(slice),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer: Layer::WriteRead,
            events,
            bytes: events * 8,
        })
        .collect();
    tables.page_slices = uses
        .iter()
        .map(|&(slice, page, thread, accesses)| PageSlice {
            slice: SliceIdx(slice),
            page: PageNumber(u64::from(page)),
            thread: ThreadIdx(thread),
            accesses,
        })
        .collect();
    tables
}

fn worth(profile: &Profile, machine: &Topology, pu: &[u32], node: Option<u32>) -> Worth {
    let model = Model::of(profile, Layer::WriteRead, machine).expect("it applies");
    let mapping = Mapping {
        pu: pu.iter().copied().map(LogicalPu).collect(),
    };
    let node = vec![node.map(LogicalNode); profile.pages().pages().len()];
    model.seated(&mapping).worth(&Placement { node })
}

/// Seconds of an access on a machine without hardware figures: 2.5 GHz.
const ACCESS_S: f64 = CYCLES_PER_ACCESS / 2.5e9;

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.01
}

#[test]
fn a_transfer_takes_as_long_as_between_the_threads_where_they_are_bound() {
    let run = profile(3, &[(0, 0, 0, 10), (0, 1, 1, 10), (0, 2, 2, 10)], &[]);
    let machine = resolve("numa:2 core:2 pu:1").unwrap();
    let model = Model::of(&run, Layer::WriteRead, &machine).unwrap();
    let under = |pus: [u32; 3]| {
        model.transfer_under_s(&Mapping {
            pu: pus.map(LogicalPu).to_vec(),
        })
    };
    let [near, mean, far] = under([0, 1, 2]);
    assert!(near < far, "{near} {far}");
    // One pair of three is on one node.
    assert!((mean - (near + 2.0 * far) / 3.0).abs() < 1e-15, "{mean}");
    let together = under([0, 0, 1]);
    assert!(
        together.iter().all(|of| (of - near).abs() < 1e-15),
        "{together:?}"
    );
}

#[test]
fn work_that_stays_in_private_caches_takes_its_accesses() {
    // Two threads with a page each, a million accesses: 64 lines hardly count. On one PU one after the other, on two
    // PUs of a core each slowed down by the other.
    let run = profile(2, &[(0, 0, 0, 1_000_000), (0, 1, 1, 1_000_000)], &[]);
    let machine = resolve("numa:2 core:2 pu:2").unwrap();
    let seconds = |pu: [u32; 2]| worth(&run, &machine, &pu, None).seconds;
    let alone = 1e6 * ACCESS_S;
    assert!(close(seconds([0, 2]), alone), "{}", seconds([0, 2]));
    assert!(close(seconds([0, 1]), alone * SMT_SLOWDOWN));
    assert!(close(seconds([0, 0]), alone * 2.0));
}

#[test]
fn what_one_thread_does_alone_takes_its_own_time() {
    // Thread 0 works in slice 0, thread 1 in slice 1: one PU or two, it takes the same.
    let turns = profile(2, &[(0, 0, 0, 1_000_000), (1, 1, 1, 1_000_000)], &[]);
    let machine = resolve("numa:1 core:2 pu:1").unwrap();
    let (two, one) = (
        worth(&turns, &machine, &[0, 1], None).seconds,
        worth(&turns, &machine, &[0, 0], None).seconds,
    );
    assert!(close(two, 2e6 * ACCESS_S) && close(one, two), "{two} {one}");
}

/// Eight threads that sweep 2,000 pages of their own each, twice, slice after slice.
fn sweeps() -> Profile {
    let uses: Vec<Use> = (0..20_u32)
        .flat_map(|slice| {
            (0..8_u32).flat_map(move |thread| {
                (0..200_u32)
                    .map(move |at| (slice, thread * 2000 + slice % 10 * 200 + at, thread, 512))
            })
        })
        .collect();
    profile(8, &uses, &[])
}

#[test]
fn one_controller_is_slower_than_two_and_remote_memory_than_local() {
    let machine = resolve("numa:2 core:8 pu:1").unwrap();
    let run = sweeps();
    let pus: Vec<u32> = (0..8).map(|t| t % 2 * 8 + t / 2).collect();
    let local = worth(&run, &machine, &pus, None);
    let one = worth(&run, &machine, &pus, Some(0));
    let far = worth(&run, &machine, &[0, 1, 2, 3, 4, 5, 6, 7], Some(1));
    assert_eq!(local.remote_lines, 0.0);
    assert!((one.remote_lines / one.lines - 0.5).abs() < 1e-9);
    assert_eq!(far.remote_lines, far.lines);
    assert!(one.loses_to(&local), "{one:?} {local:?}");
    assert!(far.loses_to(&local), "{far:?} {local:?}");
    // Of the lines, half take 80 bytes of a link of 20 GB/s, all 64 bytes of a controller of 60 GB/s.
    assert_eq!(one.bound_by(), "the busiest link between nodes");
}

#[test]
fn a_last_level_cache_answers_what_its_threads_used_lately() {
    // One thread sweeps 400 pages again and again: 1.6 MB do not fit into the private cache of 256 KiB, but into the
    // 8 MiB of the last-level cache: memory is read once.
    let uses: Vec<Use> = (0..40_u32)
        .flat_map(|slice| (0..100_u32).map(move |at| (slice, slice % 4 * 100 + at, 0, 512)))
        .collect();
    let run = profile(1, &uses, &[]);
    let machine = resolve("numa:1 core:4 pu:1").unwrap();
    assert_eq!(worth(&run, &machine, &[0], None).lines, 400.0 * 64.0);
}

#[test]
fn threads_that_are_not_bound_take_turns_on_all_pus() {
    let run = profile(
        3,
        &[
            (0, 0, 0, 1_000_000),
            (0, 1, 1, 1_000_000),
            (0, 2, 2, 1_000_000),
        ],
        &[],
    );
    let machine = resolve("numa:1 core:2 pu:1").unwrap();
    let model = Model::of(&run, Layer::WriteRead, &machine).unwrap();
    let mapping = Mapping {
        pu: [0, 1, 0].map(LogicalPu).to_vec(),
    };
    let untouched = Placement {
        node: vec![None; 3],
    };
    let bound = model.seated(&mapping).worth(&untouched).seconds;
    let unbound = model.unbound(&mapping).worth(&untouched).seconds;
    assert!(close(bound, 2e6 * ACCESS_S) && close(unbound, 1.5e6 * ACCESS_S));
}

#[test]
fn lines_of_others_are_prefetched_where_their_pages_are_swept() {
    // Thread 0 writes 100 pages, thread 1 reads their lines: every word of them, or one word of each line.
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    let waiting = |accesses: u64| {
        let uses: Vec<Use> = (0..2_u32)
            .flat_map(|at| (0..100).map(move |page| (at, page, at, accesses)))
            .collect();
        let run = of_object(2, &uses, &[(1, 0, 1, 6400)], Some(true));
        worth(&run, &machine, &[0, 4], None).waiting_s
    };
    assert!(
        waiting(512) < 0.5 * waiting(64),
        "{} {}",
        waiting(512),
        waiting(64)
    );
}

#[test]
fn few_events_decide_nothing_and_many_do() {
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    let pages = [(0, 0, 0, 10_000_000), (0, 1, 1, 10_000_000)];
    let seconds = |events: u64, pu: [u32; 2]| {
        let run = profile(2, &pages, &[(0, 0, 1, events)]);
        worth(&run, &machine, &pu, None)
    };
    let (near, far) = (seconds(58, [0, 1]), seconds(58, [0, 4]));
    assert!(!far.loses_to(&near));
    let (near, far) = (seconds(1_000_000, [0, 1]), seconds(1_000_000, [0, 4]));
    assert!(far.loses_to(&near), "{far:?} {near:?}");
}

#[test]
fn a_line_that_another_wrote_comes_from_its_cache_or_from_memory_but_not_from_both() {
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    // One thread writes pages, then one of the other node updates them; pages are on the second's node.
    let of_pages = |pages: u32| {
        let uses: Vec<Use> = (0..2_u32)
            .flat_map(|at| (0..pages).map(move |page| (at, page, at, 64)))
            .collect();
        let lines = u64::from(pages) * 64;
        let run = of_object(2, &uses, &[(1, 0, 1, lines)], Some(true));
        let found = worth(&run, &machine, &[0, 4], Some(1));
        (
            found.lines / lines as f64,
            found.remote_lines / lines as f64,
        )
    };
    assert_eq!(
        of_pages(100),
        (2.0, 2.0),
        "the first thread's cache has them"
    );
    // 12 MB do not fit into the 8 MiB of the last-level cache: most lines are read from the second's own memory.
    let (lines, remote) = of_pages(3000);
    assert_eq!(lines, 2.0);
    assert!(remote < 1.75, "{remote}");
}

#[test]
fn a_line_of_another_cache_is_asked_for_at_the_node_of_its_page() {
    // Two threads store to a page in turn, a million times.
    let machine = resolve("numa:3 core:4 pu:1").unwrap();
    let run = of_object(
        2,
        &[(0, 0, 0, 1000), (0, 0, 1, 1000)],
        &[(0, 0, 1, 1_000_000)],
        Some(true),
    );
    let seconds = |node: u32| worth(&run, &machine, &[0, 4], Some(node)).seconds;
    let near = seconds(0).max(seconds(1));
    assert!(seconds(2) > 1.1 * near, "{} {near}", seconds(2));
}

#[test]
fn lines_that_others_fetch_are_written_back_to_the_memory_of_their_page() {
    // Memory of node 1 is slow: 24 threads of one socket write lines that 24 of the other one fetch.
    let machine = resolve("cxl-2s").unwrap();
    let (nodes, threads) = (machine.nodes(), 24_u32);
    let uses: Vec<Use> = (0..2 * threads)
        .map(|at| (0, at % threads, at, 1000))
        .collect();
    let events: Vec<(u32, u32, u32, u64)> = (0..threads)
        .map(|at| (0, at, at + threads, 100_000))
        .collect();
    let run = of_object(2 * threads, &uses, &events, Some(true));
    let of_node = |node: usize| nodes[node].pus.iter().map(|pu| pu.0).take(threads as usize);
    let pus: Vec<u32> = of_node(0).chain(of_node(2)).collect();
    let bound_by = |node| worth(&run, &machine, &pus, Some(node)).bound_by();
    assert_ne!(bound_by(0), "the busiest memory controller");
    assert_eq!(bound_by(1), "the busiest memory controller");
}

#[test]
fn lines_of_atomic_instructions_are_waited_for_one_after_the_other() {
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    let seconds = |lines: u64, atomics: u64| {
        let pages = [(0, 0, 0, 10_000), (0, 0, 1, 10_000)];
        let mut tables = tables(
            2,
            &pages,
            &[(0, 0, 1, 100_000), (0, 1, 0, 100_000)],
            Some(true),
        );
        let line = |at| ContendedLine {
            line: at,
            object: None,
            object_offset: 0,
            threads: 2,
            writers: 2,
            visits: 200_000 / lines,
            transfers: 200_000 / lines,
            false_transfers: 0,
            atomics: atomics / lines,
            samples: 100,
            writer: CodePlace::default(),
            reader: CodePlace::default(),
        };
        tables.contended_lines = (0..lines).map(line).collect();
        let run = tables.build().expect("a valid profile");
        worth(&run, &machine, &[0, 4], Some(0)).seconds
    };
    let (plain, atomic, one_line) = (seconds(10, 0), seconds(10, 200_000), seconds(1, 200_000));
    assert!(atomic > 5.0 * plain, "{atomic} {plain}");
    // Both threads wait for the same line: what one of them waits, the other one waits too.
    assert!(one_line > 1.5 * atomic, "{one_line} {atomic}");
}

#[test]
fn threads_wait_for_contended_lines_that_the_recording_did_not_move() {
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    // The host ran one thread after the other: a line moved once.
    let pages = [(0, 0, 0, 10_000), (0, 0, 1, 10_000)];
    let mut tables = tables(2, &pages, &[(0, 0, 1, 1)], Some(true));
    tables.contended_lines = vec![ContendedLine {
        threads: 2,
        writers: 2,
        visits: 20_000,
        transfers: 10_000,
        atomics: 20_000,
        samples: 100,
        ..ContendedLine::default()
    }];
    let run = tables.clone().build().expect("a valid profile");
    let without = worth(&run, &machine, &[0, 4], Some(0)).seconds;
    let visits = |thread| ContendedVisits {
        thread: ThreadIdx(thread),
        until: 10_000,
        visits: 10_000,
        writes: 10_000,
        atomics: 10_000,
        kind: VisitedKind::Counter,
        ..ContendedVisits::default()
    };
    tables.contended_visits = vec![visits(0), visits(1)];
    let run = tables.build().expect("a valid profile");
    let seconds = |pus: &[u32]| worth(&run, &machine, pus, Some(0)).seconds;
    let (apart, together) = (seconds(&[0, 4]), seconds(&[0, 1]));
    // Each transfer takes tens of nanoseconds.
    assert!(apart > without + 10_000.0 * 20e-9, "{apart} {without}");
    assert!(together < 0.7 * apart, "{together} {apart}");
    let model = Model::of(&run, Layer::WriteRead, &machine).unwrap();
    let mapping = Mapping {
        pu: [0, 4].map(LogicalPu).to_vec(),
    };
    let untouched = Placement {
        node: vec![None; run.pages().pages().len()],
    };
    let no_wait = model.unbound(&mapping).without_contention();
    assert!(no_wait.worth(&untouched).seconds <= 1.01 * without);
}

/// Who followed whom at the lines of a table is the choice of the host: no reason for a mapping, however many they are.
#[test]
fn who_followed_whom_at_contended_lines_decides_nothing() {
    let machine = resolve("numa:2 core:4 pu:1").unwrap();
    let pages: Vec<_> = (0..4).map(|thread| (0, 0, thread, 10_000)).collect();
    let (lines, events) = (200, 100);
    let pairs = [(0, 0, 1, lines * events / 2), (0, 2, 3, lines * events / 2)];
    let mut tables = tables(4, &pages, &pairs, Some(true));
    for line in 0..lines {
        tables.shared_lines.push(SharedLine {
            line,
            object: None,
            object_offset: 0,
            events,
            false_events: 0,
        });
        tables.contended_lines.push(ContendedLine {
            line,
            threads: 4,
            writers: 4,
            visits: 400,
            transfers: events,
            atomics: 400,
            samples: 100,
            ..ContendedLine::default()
        });
        tables
            .contended_visits
            .extend((0..4).map(|thread| ContendedVisits {
                line,
                thread: ThreadIdx(thread),
                until: 10_000,
                visits: 100,
                writes: 100,
                atomics: 100,
                kind: VisitedKind::Counter,
                ..ContendedVisits::default()
            }));
    }
    let run = tables.build().expect("a valid profile");
    let seconds = |pus: &[u32]| worth(&run, &machine, pus, Some(0)).seconds;
    let (followed, others) = (seconds(&[0, 1, 4, 5]), seconds(&[0, 4, 1, 5]));
    assert!(followed > 0.99 * others, "{followed} {others}");
}

#[test]
fn threads_that_are_not_bound_may_start_on_any_nodes() {
    // Some nodes are one link from each other, others two.
    let machine = resolve("opteron-6386").unwrap();
    let run = profile(
        2,
        &[(0, 0, 0, 1000), (0, 1, 1, 1000)],
        &[(0, 0, 1, 100_000)],
    );
    let model = Model::of(&run, Layer::WriteRead, &machine).unwrap();
    let untouched = Placement {
        node: vec![None; 2],
    };
    let first_of = |node: usize| machine.nodes()[node].pus[0];
    let on = |nodes: [usize; 2]| Mapping {
        pu: nodes.map(first_of).to_vec(),
    };
    let nodes = machine.nodes().len();
    let bound_s = |node| model.seated(&on([0, node])).worth(&untouched).seconds;
    let nearest_s = (1..nodes).map(bound_s).fold(f64::INFINITY, f64::min);
    let far = (1..nodes).max_by(|&a, &b| bound_s(a).total_cmp(&bound_s(b)));
    let far = far.expect("several nodes");
    let unbound_s = model.unbound(&on([0, far])).worth(&untouched).seconds;
    assert!(
        nearest_s <= unbound_s && unbound_s < bound_s(far),
        "{nearest_s} {unbound_s} {}",
        bound_s(far)
    );
    let uniform = resolve("numa:3 core:4 pu:1").unwrap();
    let model = Model::of(&run, Layer::WriteRead, &uniform).unwrap();
    let mapping = Mapping {
        pu: [0, 4].map(LogicalPu).to_vec(),
    };
    let seconds = |seated: &super::Seated| seated.worth(&untouched).seconds;
    assert_eq!(
        seconds(&model.unbound(&mapping)),
        seconds(&model.seated(&mapping))
    );
}

#[test]
fn a_gain_is_surer_if_it_comes_from_lines_that_become_local() {
    let as_it_is = Worth {
        seconds: 1.0,
        lines: 100.0,
        remote_lines: 80.0,
        ..Worth::default()
    };
    let plan = |seconds: f64, remote_lines: f64| Worth {
        seconds,
        remote_lines,
        ..as_it_is
    };
    assert!(plan(0.9, 0.0).saves(&as_it_is) && !plan(0.9, 75.0).saves(&as_it_is));
    assert!(!plan(0.95, 0.0).saves(&as_it_is) && plan(0.85, 80.0).saves(&as_it_is));
}

#[test]
fn the_model_does_not_apply_to_ranks_and_to_profiles_without_pages() {
    let machine = resolve("numa:2 core:2 pu:1").unwrap();
    let run = profile(2, &[(0, 0, 0, 10), (0, 1, 1, 10)], &[]);
    assert!(Model::of(&run, Layer::Message, &machine).is_none());
    let empty = profile(2, &[], &[(0, 0, 1, 9)]);
    assert!(Model::of(&empty, Layer::WriteRead, &machine).is_none());
}
