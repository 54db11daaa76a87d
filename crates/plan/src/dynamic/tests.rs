//! Schedules whose moves, gains and costs are worked out by hand.

use std::borrow::Cow;

use numaloc_model::pages::{PageHead, PageUsage, ThreadAccess};
use numaloc_model::profile::{
    Clock, CommRow, Meta, Object, ObjectKind, PageSlice, Profile, ProfileBuilder, Slice, Thread,
};
use numaloc_model::{
    CommMatrix, Layer, LogicalNode, LogicalPu, Mapping, ObjectIdx, PageNumber, Placement, SliceIdx,
    ThreadIdx,
};
use numaloc_topology::{Topology, resolve};

use super::schedule::{Schedule, Static, schedule};
use super::ways::Policies;
use super::{Detector, Dynamics, Phase, Unmet, dynamic};
use crate::{Choice, Options, PlanError, PlanRequest, Scope, Subject, Unobserved, plan};

/// Neighbours communicate, or threads at a distance of two, or nobody.
const NEIGHBOURS: &[(usize, usize)] = &[(0, 1), (2, 3)];
const DISTANT: &[(usize, usize)] = &[(0, 2), (1, 3)];

/// Two nodes of two PUs.
fn machine() -> Topology {
    resolve("numa:2 core:2 pu:1").unwrap()
}

fn pus(of: [u32; 4]) -> Vec<LogicalPu> {
    of.map(LogicalPu).into()
}

/// Page, thread, accesses that leave private caches.
type Uses<'a> = &'a [(u32, u32, u64)];

/// A phase in which `pairs` exchange `events` lines in each direction.
fn phase(
    slices: std::ops::Range<usize>,
    (start_s, length_s): (f64, f64),
    pairs: &[(usize, usize)],
    events: f64,
    uses: Uses,
) -> Phase {
    let cells = pairs
        .iter()
        .flat_map(|&(a, b)| [(a, b, events), (b, a, events)]);
    let weights = CommMatrix::from_cells(4, cells).unwrap();
    let mut usage = PageUsage::new(4096);
    for &(page, thread, reads) in uses {
        let head = PageHead {
            number: PageNumber(page.into()),
            object: None,
            object_page: 0,
            first_touch: Some(ThreadIdx(thread)),
            first_touch_time: 0,
            policy: None,
        };
        let access = ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        };
        usage.push(head, vec![access]);
    }
    let communication = numaloc_analysis::communication::heterogeneity(&weights, Layer::WriteRead);
    Phase {
        slices,
        start_s,
        length_s,
        heterogeneity: communication,
        events_per_s: weights.total() * 2.0 / 16.0 / length_s,
        lines: weights.clone(),
        weights,
        page: uses.iter().map(|(page, ..)| *page).collect(),
        usage,
    }
}

/// Partners on one node, each page on the node of its only user.
struct Best;

impl Policies for Best {
    fn map(&self, phase: &Phase) -> Result<Mapping, PlanError> {
        let distant = phase.weights.get(0, 2) > 0.0;
        let pu = if distant { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        Ok(Mapping { pu: pus(pu) })
    }

    fn place(
        &self,
        usage: &PageUsage,
        mapping: &Mapping,
    ) -> Result<Vec<Option<LogicalNode>>, PlanError> {
        let machine = machine();
        let user = |page| usage.accesses(page)[0].thread.index();
        let pages = usage.pages().iter();
        Ok(pages
            .map(|page| Some(machine.node_of(mapping.pu[user(page)])))
            .collect())
    }
}

/// The schedule compared with one mapping of the threads and all 8 pages on one node.
fn scheduled_against(pu: [u32; 4], node: u32, phases: &[Phase], dynamics: &Dynamics) -> Schedule {
    let mapping = Mapping { pu: pus(pu) };
    let placement = Placement {
        node: vec![Some(LogicalNode(node)); 8],
    };
    let whole_run = Static {
        mapping: &mapping,
        placement: &placement,
    };
    schedule(phases, &Best, &machine(), whole_run, dynamics).unwrap()
}

/// The schedule compared with neighbours on one node and all pages on node 0.
fn scheduled(phases: &[Phase], dynamics: &Dynamics) -> Schedule {
    scheduled_against([0, 1, 2, 3], 0, phases, dynamics)
}

fn close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= expected.abs() * 1e-9,
        "{found} {expected}"
    );
}

/// Seconds that the four threads lose to an exchange of `events` lines between nodes instead of within: each waits for
/// its partner's lines at the distance's share of 90 ns, and both pairs use the link of 20 GB/s.
fn lost_s(events: f64) -> f64 {
    let machine = machine();
    let distance = |to: u32| machine.distance(LogicalPu(0), LogicalPu(to));
    events * 9e-9 * (distance(2) - distance(1)) + 2.0 * events * 64.0 / 20e9
}

#[test]
fn the_second_phase_gets_its_mapping_with_gain_and_cost_as_by_hand() {
    let phases = [
        phase(0..10, (0.0, 2.0), NEIGHBOURS, 1e6, &[]),
        phase(10..20, (2.0, 2.0), DISTANT, 1e6, &[]),
    ];
    let found = scheduled(&phases, &Dynamics::default());
    assert!(found.moves);
    assert_eq!(found.mapping.pu, pus([0, 1, 2, 3]));
    let [step] = &found.steps[..] else {
        panic!("{:?}", found.steps)
    };
    assert_eq!((step.phase, &step.mapping.pu), (1, &pus([0, 2, 1, 3])));
    assert_eq!((&step.threads[..], &step.unmet), (&[1, 2][..], &None));
    close(step.gain_s, lost_s(1e6));
    close(step.cost_s, 2.0 * 400e-6);
    close(found.static_s - found.dynamic_s, lost_s(1e6) - 2.0 * 400e-6);
}

#[test]
fn a_phase_too_short_to_win_its_moves_back_has_none() {
    let gain = |events| {
        let phases = [
            phase(0..10, (0.0, 0.5), NEIGHBOURS, 1e6, &[]),
            phase(10..20, (0.5, 0.5), DISTANT, events, &[]),
        ];
        let found = scheduled(&phases, &Dynamics::default());
        (found.moves, found.steps[0].unmet)
    };
    // The moves cost 0.8 ms.
    let break_even = 800e-6 / lost_s(1.0);
    assert_eq!(gain(break_even * 1.001), (true, None));
    let (moves, unmet) = gain(break_even * 0.999);
    let Some(Unmet::NotWorthIt { gain_s, cost_s }) = unmet else {
        panic!("{unmet:?}")
    };
    assert!(!moves);
    close(gain_s, 800e-6 * 0.999);
    close(cost_s, 800e-6);
}

#[test]
fn threads_do_not_move_twice_within_their_interval() {
    let phases = [
        (NEIGHBOURS, 0.0),
        (DISTANT, 0.6),
        (NEIGHBOURS, 1.2),
        (NEIGHBOURS, 1.6),
    ]
    .map(|(pairs, start)| phase(0..1, (start, 0.6), pairs, 1e6, &[]));
    // The mapping compared with has no partners of either phase on one node.
    let against = |dynamics: &Dynamics| scheduled_against([0, 2, 3, 1], 0, &phases, dynamics);
    let found = against(&Dynamics::default());
    let unmet: Vec<_> = found.steps.iter().map(|step| step.unmet).collect();
    let soon = |found: f64, of: Option<Unmet>| match of {
        Some(Unmet::TooSoon {
            found: since,
            least,
        }) => {
            close(since, found);
            assert_eq!(least, 1.0);
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(unmet[0], None);
    soon(0.6, unmet[1]);
    // A second after the first move.
    assert_eq!(unmet[2], None);
    let often = Dynamics {
        thread_interval_s: 0.0,
        ..Dynamics::default()
    };
    let unmet: Vec<_> = against(&often)
        .steps
        .iter()
        .map(|step| step.unmet)
        .collect();
    assert_eq!(unmet, [None, None, Some(Unmet::SameMapping)]);
}

#[test]
fn a_run_begins_with_the_mapping_of_its_first_phase_with_communication() {
    let phases = [
        phase(0..1, (0.0, 0.1), &[], 0.0, &[]),
        phase(1..10, (0.1, 2.0), DISTANT, 1e6, &[]),
        phase(10..20, (2.1, 2.0), NEIGHBOURS, 1e6, &[]),
    ];
    let found = scheduled(&phases, &Dynamics::default());
    assert_eq!(found.mapping.pu, pus([0, 2, 1, 3]));
    assert_eq!(found.steps[0].unmet, Some(Unmet::SameMapping));
    assert_eq!(found.steps[1].mapping.pu, pus([0, 1, 2, 3]));
}

#[test]
fn pages_follow_their_users_if_their_accesses_win_the_move_back() {
    // Pages 0 and 1 are thread 0's, then thread 2's; page 2 is first used in the second phase.
    let phases = [
        phase(
            0..10,
            (0.0, 2.0),
            NEIGHBOURS,
            1e6,
            &[(0, 0, 100), (1, 0, 100)],
        ),
        phase(
            10..20,
            (2.0, 2.0),
            NEIGHBOURS,
            1e6,
            &[(0, 2, 100_000), (1, 2, 1), (2, 2, 10)],
        ),
    ];
    let found = scheduled(&phases, &Dynamics::default());
    assert_eq!(found.steps[0].pages, [(0, LogicalNode(1))]);
    // 4 KiB at 20 GB/s and 2 us.
    close(found.steps[0].cost_s, 4096.0 / 20e9 + 2e-6);
    let node = |page: usize| found.placement.node[page].map(|node| node.0);
    assert_eq!(
        [node(0), node(1), node(2), node(7)],
        [Some(0), Some(0), Some(1), Some(0)]
    );
}

#[test]
fn pages_do_not_move_twice_within_their_interval() {
    let uses = |thread| [(0, thread, 1_000_000)];
    let phases = [(0.0, 0), (2.0, 2), (11.0, 0), (12.0, 0)]
        .map(|(start, user)| phase(0..1, (start, 1.0), NEIGHBOURS, 1e6, &uses(user)));
    let moved = |dynamics: &Dynamics| -> Vec<usize> {
        let found = scheduled_against([0, 1, 2, 3], 1, &phases, dynamics);
        found.steps.iter().map(|step| step.pages.len()).collect()
    };
    assert_eq!(moved(&Dynamics::default()), [1, 0, 1]);
    let often = Dynamics {
        page_interval_s: 0.0,
        ..Dynamics::default()
    };
    assert_eq!(moved(&often), [1, 1, 0]);
}

#[test]
fn one_mapping_for_the_whole_run_remains_if_moving_is_no_faster() {
    let phases = [
        phase(0..10, (0.0, 2.0), NEIGHBOURS, 1e6, &[]),
        phase(10..20, (2.0, 2.0), NEIGHBOURS, 1e6, &[]),
    ];
    let found = scheduled(&phases, &Dynamics::default());
    assert!(!found.moves);
    assert_eq!(found.steps[0].unmet, Some(Unmet::SameMapping));
    assert_eq!(found.placement.node, [Some(LogicalNode(0)); 8]);
    close(found.dynamic_s, found.static_s);
}

/// Four threads for 200 slices of 10 ms: neighbours, then distant pairs. Each of five pages of an object is used by
/// thread 0 in the first half and, but for the third, by thread 3 in the second.
fn two_phases() -> Profile {
    let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Wall), 4096);
    let paths = ["0", "0.1", "0.2", "0.3"];
    tables.threads = paths
        .map(|path| Thread {
            end: 2_000_000_000,
            ..Thread::new(path)
        })
        .into();
    tables.slices = Slice::even(10_000_000, 2_000_000_000).collect();
    tables.objects = vec![Object {
        kind: ObjectKind::Mapping,
        name: "[anon]".to_owned(),
        size: 5 * 4096,
        order: 0,
        thread: Some(ThreadIdx(0)),
        base: 4096 * 100,
        variables: Vec::new(),
    }];
    let mut usage = PageUsage::new(4096);
    for page in 0..5u64 {
        let head = PageHead {
            number: PageNumber(100 + page),
            object: Some(ObjectIdx(0)),
            object_page: page,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let access = |thread, accesses: u64| ThreadAccess {
            thread: ThreadIdx(thread),
            reads: accesses,
            writes: accesses,
        };
        let later = if page == 2 { 0 } else { 3 };
        usage.push(head, vec![access(0, 500_000), access(later, 500_000)]);
    }
    tables.usage(&usage);
    for slice in 0..200u32 {
        let pairs = if slice < 100 { NEIGHBOURS } else { DISTANT };
        for (a, b) in pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
            tables.communication.push(CommRow {
                slice: SliceIdx(slice),
                src: ThreadIdx(a as u32),
                dst: ThreadIdx(b as u32),
                layer: Layer::WriteRead,
                events: 10_000,
                bytes: 80_000,
            });
        }
        for page in 0..5u64 {
            let thread = if slice < 100 || page == 2 { 0 } else { 3 };
            tables.page_slices.push(PageSlice {
                slice: SliceIdx(slice),
                page: PageNumber(100 + page),
                thread: ThreadIdx(thread),
                accesses: 10_000,
            });
        }
    }
    tables.build().unwrap()
}

fn plan_of(
    profile: Profile,
    dynamics: &Dynamics,
    look: impl FnOnce(super::Dynamic, numaloc_model::Plan),
) {
    let subject = Subject::new(Cow::Owned(profile), &Scope::default()).unwrap();
    let (machine, options) = (machine(), Options::default());
    let choice = Choice::new("numaloc", "locality").unwrap();
    let request = PlanRequest {
        subject: &subject,
        machine: &machine,
        choice: &choice,
        options: &options,
    };
    let planned = plan(request, &Unobserved).unwrap();
    let found = dynamic(&planned, dynamics).unwrap();
    let plan = found.assemble(&planned).plan;
    look(found, plan);
}

#[test]
fn a_recorded_change_of_partners_becomes_a_plan_with_a_schedule() {
    plan_of(two_phases(), &Dynamics::default(), |found, plan| {
        plan.check().unwrap();
        assert_eq!(found.phases.len(), 2, "{:?}", found.phases);
        let machine = machine();
        let mut node: Vec<LogicalNode> =
            plan.threads.iter().map(|t| machine.node_of(t.pu)).collect();
        assert!(node[0] == node[1] && node[2] == node[3] && node[0] != node[2]);
        let [moves] = &plan.schedule[..] else {
            panic!("{:?}", plan.schedule)
        };
        assert!((moves.at - 0.5).abs() < 0.01, "{}", moves.at);
        for thread in &moves.threads {
            let at = plan
                .threads
                .iter()
                .position(|t| t.path == thread.path)
                .unwrap();
            node[at] = machine.node_of(thread.pu);
        }
        assert_eq!(moves.threads.len(), 2);
        assert!(node[0] == node[2] && node[1] == node[3] && node[0] != node[1]);
        let predicted = moves.predicted.unwrap();
        assert!(predicted.gain_s > predicted.cost_s);
        let named = |name: &str| {
            plan.provenance
                .parameters
                .iter()
                .any(|(known, _)| known == name)
        };
        assert!(named("h_min") && named("phases_by"));
    });
}

#[test]
fn ranges_of_moved_pages_leave_out_those_that_stay() {
    plan_of(two_phases(), &Dynamics::default(), |found, plan| {
        let step = &found.schedule.steps[0];
        let moved: Vec<u32> = step.pages.iter().map(|(page, _)| *page).collect();
        let ranges: Vec<(u64, u64)> = plan.schedule[0]
            .pages
            .iter()
            .map(|range| (range.first_page, range.pages))
            .collect();
        // A page follows thread 3 only if it pays; the third, which thread 0 keeps, never moves.
        assert!(!moved.contains(&2));
        let within: u64 = ranges.iter().map(|(_, pages)| pages).sum();
        assert_eq!(within, moved.len() as u64, "{ranges:?} {moved:?}");
    });
}

#[test]
fn phases_of_equal_heterogeneity_are_seen_by_pattern_only() {
    let by = |detector| {
        let dynamics = Dynamics {
            detector,
            ..Dynamics::default()
        };
        super::phases::detected(&two_phases(), Layer::WriteRead, &dynamics)
    };
    assert_eq!(by(Detector::Pattern), [0..100, 100..200]);
    assert_eq!(by(Detector::Heterogeneity), std::slice::from_ref(&(0..200)));
    for (name, detector) in Detector::ALL {
        assert_eq!(Detector::by_name(name), Some(detector));
        assert_eq!(detector.name(), name);
        let found = by(detector);
        assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((found[0].start, found[found.len() - 1].end), (0, 200));
    }
}

#[test]
fn policies_that_leave_threads_to_others_have_no_schedule() {
    let subject = Subject::new(Cow::Owned(two_phases()), &Scope::default()).unwrap();
    let (machine, options) = (machine(), Options::default());
    for threads in ["os", "joint"] {
        let choice = Choice::new(threads, "locality").unwrap();
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice: &choice,
            options: &options,
        };
        let planned = plan(request, &Unobserved).unwrap();
        let error = dynamic(&planned, &Dynamics::default()).unwrap_err();
        assert!(error.to_string().contains(threads), "{error}");
    }
}
