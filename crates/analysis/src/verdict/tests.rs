//! Hand-made profiles, small enough to compute every figure of a verdict on paper.

use numaloc_model::conditions::{Repeats, WorkSharing};
use numaloc_model::profile::{Clock, CommRow, Meta, PageSlice, ProfileBuilder, Slice, Thread};
use numaloc_model::{
    Layer, LogicalNode, PageNumber, PageUsage, Placement, Profile, SliceIdx, ThreadIdx,
};

use super::*;
use crate::characterise::{Characterisation, Setting, characterise};
use crate::outlook::Candidate;
use crate::pages::tests::usage_of;

mod interpreted;
mod policies;
mod shared;
mod timed;

/// Threads with this communication (events of 8 bytes, all in one slice), each with a million accesses.
fn profile(threads: u32, cells: &[(u32, u32, u64)], pages: PageUsage) -> Profile {
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["./test".into()],
            ..Meta::new("test", Clock::Virtual)
        },
        pages.page_size(),
    );
    tables.usage(&pages);
    tables.threads = (0..threads)
        .map(|at| Thread {
            pid: 1,
            tid: at + 1,
            end: 100,
            accesses: 1_000_000,
            read_bytes: 4_000_000,
            write_bytes: 4_000_000,
            ..Thread::new(format!("0.{at}"))
        })
        .collect();
    tables.slices = vec![Slice { start: 0, end: 100 }];
    tables.communication = cells
        .iter()
        .map(|&(src, dst, events)| CommRow {
            slice: SliceIdx(0),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer: Layer::WriteRead,
            events,
            bytes: 8 * events,
        })
        .collect();
    tables.build().unwrap()
}

/// The profile of a program that hands out work at run time.
fn handing_out(profile: Profile, kind: WorkSharing, by: &str) -> Profile {
    let sharing = vec![(kind, by.to_owned())];
    let changed = profile.changed(|tables| tables.meta.conditions.sharing = sharing);
    changed.unwrap()
}

fn no_pages() -> PageUsage {
    PageUsage::new(4096)
}

/// `count` pages, first touched by `first`, with these accesses by thread.
fn alike(count: usize, first: u32, uses: &[u64]) -> Vec<(u32, Vec<u64>)> {
    vec![(first, uses.to_vec()); count]
}

fn found(profile: &Profile, nodes: usize) -> Characterisation {
    let setting = Setting {
        layer: None,
        assignment: NodeAssignment::blocks(profile.threads().len(), nodes),
        cache_bytes: None,
        private_cache_bytes: 64 << 10,
        segments: Vec::new(),
    };
    characterise(profile, &setting).expect("rows name threads")
}

fn of(found: &Characterisation, measure: Measure) -> &Verdict {
    let verdict = found.verdicts.iter().find(|v| v.measure == measure);
    verdict.expect("there is one of each")
}

fn ring(threads: u32) -> Vec<(u32, u32, u64)> {
    (0..threads)
        .map(|t| (t, (t + 1) % threads, 100_000))
        .collect()
}

fn assignment(nodes: usize, of_thread: &[u32]) -> NodeAssignment {
    NodeAssignment {
        homes: (0..nodes).map(LogicalNode::from_index).collect(),
        nodes,
        of_thread: of_thread.iter().map(|&n| LogicalNode(n)).collect(),
    }
}

#[test]
fn binding_and_placement_are_separate_gains() {
    // Four threads on four nodes, each with 100 pages that it touched first: bound, all is local, free 1 of 4 is.
    let own: Vec<_> = (0..4)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t as usize] = 5000;
            alike(100, t, &uses)
        })
        .collect();
    let found = found(&profile(4, &[], usage_of(&own)), 4);
    let bind = of(&found, Measure::BindThreads);
    assert_eq!(bind.likelihood, Likelihood::Likely);
    assert!(bind.reason.contains("100 % of the accesses") && bind.reason.contains("down to 25 %"));
    // No gain remains for placement: 100 % stay 100 %.
    let pages = of(&found, Measure::PagePlacement);
    assert_eq!(pages.likelihood, Likelihood::Unlikely, "{}", pages.reason);
    let shares: Vec<_> = found
        .outlooks
        .iter()
        .map(|o| (o.way.clone(), o.local))
        .collect();
    assert_eq!(shares, [(Way::Free, Some(0.25)), (Way::Bound, Some(1.0))]);
}

#[test]
fn pages_touched_by_one_thread_are_placed_and_binding_alone_gains_nothing() {
    // Thread 0 touched all pages first, each is used by one thread: 25 % local, bound or free.
    let pages: Vec<_> = (0..4usize)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t] = 5000;
            alike(100, 0, &uses)
        })
        .collect();
    let found = found(&profile(4, &[], usage_of(&pages)), 4);
    assert_eq!(
        of(&found, Measure::BindThreads).likelihood,
        Likelihood::Unlikely
    );
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(verdict.likelihood, Likelihood::Likely);
    assert_eq!(verdict.recommended, Some(Way::Placed("locality".into())));
    assert!(
        verdict
            .action
            .as_deref()
            .is_some_and(|a| a.contains("--pages locality"))
    );
    let placed = found.outlooks.last().expect("the recommended way");
    assert_eq!(placed.local, Some(1.0));
    assert!(placed.balance.is_some_and(|balance| balance > 0.95));
}

#[test]
fn work_handed_out_at_run_time_does_not_stay_with_its_pages() {
    // Every thread uses the 100 pages that the previous thread touched: bound, nothing is local; placed, everything is;
    // the nodes are equally loaded in both cases.
    let pages: Vec<_> = (0..4u32)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t as usize] = 5000;
            alike(100, (t + 3) % 4, &uses)
        })
        .collect();
    let profile = profile(4, &[], usage_of(&pages));
    let judged = |profile: &Profile| {
        let verdict = of(&found(profile, 4), Measure::PagePlacement).clone();
        (verdict.likelihood, verdict.reason)
    };
    assert_eq!(judged(&profile).0, Likelihood::Likely);
    let by = "GOMP_parallel_loop_dynamic";
    let mut profile = handing_out(profile, WorkSharing::DynamicLoop, by);
    let (likelihood, reason) = judged(&profile);
    assert_eq!(likelihood, Likelihood::CannotTell);
    assert!(
        reason.contains("(loops with a dynamic or guided schedule: GOMP"),
        "{reason}"
    );
    // If recordings agree, it does not matter that work is handed out.
    profile.set_repeats(Repeats {
        runs: 2,
        correlation: Some(0.99),
        same_threads: true,
    });
    assert_eq!(judged(&profile).0, Likelihood::Likely);
}

#[test]
fn work_handed_out_at_run_time_still_gains_from_balanced_nodes() {
    // All pages on one node: independent of their users, three more nodes can serve accesses.
    let pages: Vec<_> = (0..4usize)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t] = 5000;
            alike(100, 0, &uses)
        })
        .collect();
    let profile = profile(4, &[], usage_of(&pages));
    let profile = handing_out(profile, WorkSharing::Stealing, "runtime.stealWork");
    let found = found(&profile, 4);
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    assert!(
        verdict.reason.contains("only the balance"),
        "{}",
        verdict.reason
    );
}

#[test]
fn a_few_pages_are_not_worth_a_plan() {
    // As above, but three pages in all: 12 KiB, a private cache holds 64.
    let pages: Vec<_> = (1..4usize)
        .map(|t| {
            let mut uses = vec![3000; 4];
            uses[t] = 90_000;
            (0, uses)
        })
        .collect();
    let found = found(&profile(4, &[], usage_of(&pages)), 4);
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(
        verdict.likelihood,
        Likelihood::Unlikely,
        "{}",
        verdict.reason
    );
    assert!(
        verdict.reason.contains("only 3 pages (12 KiB)"),
        "{}",
        verdict.reason
    );
}

#[test]
fn one_thread_has_nothing_to_bind_and_nothing_to_place() {
    let found = found(&profile(1, &[], usage_of(&alike(500, 0, &[9000]))), 4);
    for measure in [
        Measure::BindThreads,
        Measure::ThreadMapping,
        Measure::PagePlacement,
    ] {
        let verdict = of(&found, measure);
        assert_eq!(
            verdict.likelihood,
            Likelihood::Unlikely,
            "{}",
            verdict.reason
        );
    }
}

#[test]
fn accesses_served_by_caches_do_not_count() {
    // 16 hot pages private to each thread hide 200 pages that thread 0 touched and thread 3 uses. All accesses: 98 %
    // are local, so 2 % to gain; beyond the caches it is 200 x 500 of 16 x 4 x 64 + 200 x 500.
    let mut pages: Vec<_> = (0..4u32)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t as usize] = 80_000;
            alike(16, t, &uses)
        })
        .collect();
    pages.extend(alike(200, 0, &[0, 0, 0, 500]));
    let found = found(&profile(4, &[], usage_of(&pages)), 4);
    assert!(found.pages.local_share.is_some_and(|share| share > 0.95));
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
}

#[test]
fn only_uniform_communication_is_called_uniform() {
    let reason = |threads, cells: &[(u32, u32, u64)]| {
        let found = found(&profile(threads, cells, no_pages()), 4);
        of(&found, Measure::ThreadMapping).reason.clone()
    };
    let all: Vec<_> = (0..8)
        .flat_map(|a| (0..8).filter(move |&b| b != a).map(move |b| (a, b, 30_000)))
        .collect();
    assert!(reason(8, &all).contains("communication is uniform"));
    // A ring of as many threads as nodes, and two threads: nothing to group, but not uniform.
    for (threads, cells) in [(4, ring(4)), (2, vec![(0, 1, 100_000)])] {
        let reason = reason(threads, &cells);
        assert!(
            reason.contains("a node of its own") && !reason.contains("uniform"),
            "{reason}"
        );
    }
    // A star: no grouping helps, although one thread differs from the others.
    let star: Vec<_> = (1..8).map(|t| (0, t, 100_000)).collect();
    assert!(!reason(8, &star).contains("uniform"));
    // A ring of eight: blocks are optimal.
    let reason = reason(8, &ring(8));
    assert!(
        reason.contains("order of creation") && !reason.contains("uniform"),
        "{reason}"
    );
}

#[test]
fn mapping_is_judged_by_its_gain_over_bound_threads() {
    // Pairs (t, t + 4): in order of creation all of it is between nodes; grouped, none.
    let cells: Vec<_> = (0..4).map(|t| (t, t + 4, 100_000)).collect();
    let torn = found(&profile(8, &cells, no_pages()), 4);
    let verdict = of(&torn, Measure::ThreadMapping);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    // Pairs (2t, 2t + 1): with bound threads all of it is local already, which is the gain of binding.
    let cells: Vec<_> = (0..4).map(|t| (2 * t, 2 * t + 1, 100_000)).collect();
    let near = found(&profile(8, &cells, no_pages()), 4);
    assert_eq!(
        of(&near, Measure::ThreadMapping).likelihood,
        Likelihood::Unlikely
    );
    assert_eq!(
        of(&near, Measure::BindThreads).likelihood,
        Likelihood::Likely
    );
}

/// Thread 0 communicates with all others, and all others a little with each other.
fn star() -> Profile {
    let cells: Vec<_> = (1..8)
        .map(|t| (0, t, 100_000))
        .chain((1..8).flat_map(|a| (1..a).map(move |b| (a, b, 2000))))
        .collect();
    profile(8, &cells, no_pages())
}

fn with(found: &mut Characterisation, profile: &Profile, mappings: &[(&str, &[u32])]) {
    let mappings = mappings.iter().map(|(policy, nodes)| Candidate {
        policy: (*policy).to_owned(),
        answer: assignment(4, nodes),
    });
    found.judge(
        profile,
        &Candidates {
            times: None,
            mappings: mappings.collect(),
            placements: Vec::new(),
            plan: None,
            ..Candidates::default()
        },
    );
}

#[test]
fn congestion_recommends_only_what_its_own_figures_do_not_reject() {
    let profile = star();
    let mut found = found(&profile, 4);
    let present = found.outlooks[1].busiest.expect("bound threads have nodes");
    assert!(present > CONGESTED, "{present}");
    // All on two nodes: the busiest has more than with bound threads. The policy's name does not matter.
    let crowded: &[u32] = &[0, 0, 0, 0, 1, 1, 1, 1];
    with(&mut found, &profile, &[("deloc", crowded)]);
    let verdict = of(&found, Measure::CongestionAware);
    assert_eq!(
        verdict.likelihood,
        Likelihood::Unlikely,
        "{}",
        verdict.reason
    );
    assert!(verdict.reason.contains("threads by deloc") && verdict.action.is_none());
    // A policy that places thread 0 alone relieves the busiest node and is recommended.
    let alone: &[u32] = &[0, 1, 1, 2, 2, 3, 3, 3];
    with(&mut found, &profile, &[("balance", alone)]);
    let verdict = of(&found, Measure::CongestionAware);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    assert_eq!(verdict.recommended, Some(Way::Mapped("balance".into())));
    let relieved = found
        .outlooks
        .last()
        .and_then(|o| o.busiest)
        .expect("mapped");
    assert!(relieved < RELIEF * present, "{relieved} of {present}");
    assert!(
        verdict
            .action
            .as_deref()
            .is_some_and(|a| a.contains("--threads balance"))
    );
}

#[test]
fn uniformly_used_pages_are_balanced_if_a_policy_does_so() {
    // 400 pages that thread 0 touched and all read equally: no better node for locality, but one node serves
    // everything.
    // Thread 0's 470 stores count as a sweep of 59 lines, with 941 loads.
    let profile = profile(4, &[], usage_of(&alike(400, 0, &[1411, 1000, 1000, 1000])));
    let mut found = found(&profile, 4);
    // Every page's main user is a tie, so locality leaves the pages in place.
    assert_eq!(
        of(&found, Measure::PagePlacement).likelihood,
        Likelihood::Unlikely
    );
    let dealt = Placement {
        node: (0..400).map(|p| Some(LogicalNode(p % 4))).collect(),
    };
    let candidates = Candidates {
        times: None,
        mappings: Vec::new(),
        placements: vec![Candidate {
            policy: "mixed".into(),
            answer: dealt,
        }],
        plan: None,
        ..Candidates::default()
    };
    found.judge(&profile, &candidates);
    let verdict = of(&found, Measure::PagePlacement);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    assert!(
        verdict
            .action
            .as_deref()
            .is_some_and(|a| a.contains("--pages mixed"))
    );
}

#[test]
fn nodes_without_cpus_do_not_count() {
    // Four threads, two nodes with CPUs and two without: free threads are local in one of two.
    let own: Vec<_> = (0..4)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t as usize] = 5000;
            alike(100, t, &uses)
        })
        .collect();
    let profile = profile(4, &ring(4), usage_of(&own));
    let setting = Setting {
        layer: None,
        assignment: NodeAssignment {
            homes: vec![LogicalNode(0), LogicalNode(2)],
            ..assignment(4, &[0, 0, 2, 2])
        },
        cache_bytes: None,
        private_cache_bytes: 64 << 10,
        segments: Vec::new(),
    };
    let found = characterise(&profile, &setting).expect("rows name threads");
    assert_eq!(found.outlooks[0].local, Some(0.5));
    // Both nodes with CPUs carry the same communication.
    assert_eq!(found.outlooks[1].busiest, Some(1.0));
}

/// Eight ranks; each exchanges `bytes` with the rank four further on, half of them in collectives; a run of one second.
fn ranks(bytes: u64, clock: Clock) -> Profile {
    let cells: Vec<_> = (0..8).map(|rank| (rank, (rank + 4) % 8, 1)).collect();
    let mut tables = profile(8, &cells, no_pages()).into_builder();
    tables.meta.clock = clock;
    tables.slices[0].end = 1_000_000_000;
    for row in &mut tables.communication {
        row.layer = if row.src.0 % 2 == 0 {
            Layer::Message
        } else {
            Layer::Collective
        };
        row.bytes = bytes;
    }
    tables.build().unwrap()
}

#[test]
fn messages_matter_if_they_would_take_time_on_a_slow_network() {
    let verdict = |profile: &Profile| {
        let verdict = of(&found(profile, 4), Measure::ThreadMapping).clone();
        (verdict.likelihood, verdict.reason)
    };
    // 0.3 % of eight ranks' second is 24 ms: 8 messages of 10 us, and 8 x 299,000 bytes of 10 ns.
    let (likelihood, reason) = verdict(&ranks(299_000, Clock::Wall));
    assert_eq!(likelihood, Likelihood::Likely, "{reason}");
    let (likelihood, reason) = verdict(&ranks(298_999, Clock::Wall));
    assert_eq!(likelihood, Likelihood::Unlikely, "{reason}");
    let says = "the ranks sent 2.28 MiB in 8 messages, 1.14 MiB of it in collectives: too little to matter";
    assert!(
        reason.to_lowercase().contains(&says.to_lowercase()),
        "{reason}"
    );
    assert!(!reason.contains("of all bytes accessed"), "{reason}");
    // Another clock gives no duration of messages; empty messages transfer nothing.
    assert_eq!(verdict(&ranks(1, Clock::Virtual)).0, Likelihood::Likely);
    assert_eq!(verdict(&ranks(0, Clock::Virtual)).0, Likelihood::Unlikely);
}

#[test]
fn memory_served_by_one_node_is_spread_with_the_threads_that_touched_it() {
    // Threads 0 and 1 touched all pages first and share a node if bound in order, so its memory serves twice the mean.
    // Communication is negligible.
    let pages: Vec<_> = (0..2u32)
        .flat_map(|t| alike(100, t, &[2000, 2000, 2000, 2000]))
        .collect();
    let profile = profile(4, &[(0, 1, 1)], usage_of(&pages));
    let setting = Setting {
        layer: None,
        assignment: NodeAssignment::blocks(4, 2),
        cache_bytes: None,
        private_cache_bytes: 64 << 10,
        segments: Vec::new(),
    };
    let judged = |profile: &Profile, nodes: &[u32]| {
        let mut found = characterise(profile, &setting).unwrap();
        let candidates = Candidates {
            times: None,
            mappings: vec![Candidate {
                policy: "deloc".to_owned(),
                answer: assignment(2, nodes),
            }],
            placements: Vec::new(),
            plan: None,
            ..Candidates::default()
        };
        found.judge(profile, &candidates);
        of(&found, Measure::CongestionAware).clone()
    };
    let verdict = judged(&profile, &[0, 1, 0, 1]);
    assert_eq!(verdict.likelihood, Likelihood::Likely, "{}", verdict.reason);
    assert_eq!(verdict.recommended, Some(Way::Mapped("deloc".into())));
    let figures = "answers 2.00 times the mean of the accesses beyond private caches, with threads by deloc 1.00";
    assert!(verdict.reason.contains(figures), "{}", verdict.reason);
    // A mapping that keeps them together relieves nothing.
    let verdict = judged(&profile, &[1, 1, 0, 0]);
    assert_eq!(
        verdict.likelihood,
        Likelihood::Unlikely,
        "{}",
        verdict.reason
    );
    // If work is handed out at run time, other threads may touch the pages first in the next run.
    let handed_out = handing_out(profile, WorkSharing::Stealing, "runtime.stealWork");
    let verdict = judged(&handed_out, &[0, 1, 0, 1]);
    assert_eq!(
        verdict.likelihood,
        Likelihood::CannotTell,
        "{}",
        verdict.reason
    );
}

#[test]
fn a_thread_that_works_alone_is_not_moved() {
    // Thread 0 fills 100 pages in each of four slices while the others wait, then they read them: three quarters of the
    // accesses beyond private caches are its own.
    let usage = usage_of(&alike(100, 0, &[6000, 660, 660, 660]));
    let mut tables = profile(4, &[], usage).into_builder();
    let row = |slice, page, thread, accesses| PageSlice {
        slice: SliceIdx(slice),
        page: PageNumber(page),
        thread: ThreadIdx(thread),
        accesses,
    };
    tables.slices = (0..8)
        .map(|at| Slice {
            start: at,
            end: at + 1,
        })
        .collect();
    for slice in 0..8 {
        for page in 0..100 {
            match slice % 2 {
                0 => tables.page_slices.push(row(slice, page, 0, 1500)),
                _ => (1..4).for_each(|t| tables.page_slices.push(row(slice, page, t, 165))),
            }
        }
    }
    let profile = tables.build().unwrap();
    let alone = found(&profile, 4);
    let bind = of(&alone, Measure::BindThreads);
    assert_eq!(bind.likelihood, Likelihood::Unlikely, "{}", bind.reason);
    // Without slices it is not known that the others wait.
    let profile = profile
        .changed(|tables| tables.page_slices.clear())
        .unwrap();
    let together = found(&profile, 4);
    let bind = of(&together, Measure::BindThreads);
    assert_eq!(bind.likelihood, Likelihood::Likely, "{}", bind.reason);
}
