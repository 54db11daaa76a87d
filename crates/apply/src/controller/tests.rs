//! Tests the controller with an actuator that only records its calls.

mod weighted;

use super::*;
use numaloc_identity::MapCall;
use numaloc_model::plan::{ObjectKey, PagePlan, Plan, ThreadPlan};
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};

#[derive(Default)]
struct Notes {
    pinned: Vec<(i32, Vec<u32>)>,
    bound: Vec<(u64, u64, u32)>,
    interleaved: Vec<((u64, u64), Vec<u32>)>,
    weighted: Vec<((u64, u64), Vec<u32>)>,
    /// What the kernel answers to the policy by weights.
    refuse_weights: i32,
    policies: Vec<Vec<u32>>,
    relocated: Vec<(u64, i32)>,
    /// Node of every page for queries; pages not listed do not exist.
    pages_at: HashMap<u64, i32>,
    refuse_pu: Option<u32>,
}

impl Actuator for Notes {
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()> {
        if self.refuse_pu.is_some_and(|pu| pus == [pu]) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.pinned.push((tid, pus.to_vec()));
        Ok(())
    }
    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>> {
        let last = self.pinned.iter().rev().find(|(t, _)| *t == tid);
        Ok(last.map_or_else(Vec::new, |(_, pus)| pus.clone()))
    }
    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32> {
        self.bound.extend(ranges);
        vec![0; ranges.len()]
    }
    fn interleave(&mut self, range: (u64, u64), nodes: &[u32]) -> i32 {
        self.interleaved.push((range, nodes.to_vec()));
        0
    }
    fn interleave_by_weights(&mut self, range: (u64, u64), nodes: &[u32]) -> i32 {
        self.weighted.push((range, nodes.to_vec()));
        self.refuse_weights
    }
    fn own_policy(&mut self, nodes: &[u32]) -> i32 {
        self.policies.push(nodes.to_vec());
        0
    }
    fn relocate(&mut self, _: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
        self.relocated
            .extend(pages.iter().copied().zip(nodes.iter().copied()));
        Ok(nodes.to_vec())
    }
    fn locate(&mut self, _: i32, pages: &[u64]) -> io::Result<Vec<i32>> {
        let at = |page| self.pages_at.get(page).copied().unwrap_or(-libc::ENOENT);
        Ok(pages.iter().map(at).collect())
    }
}

fn key(kind: ObjectKind, name: &str, creator: &str, size: u64, order: u32) -> ObjectKey {
    ObjectKey {
        kind,
        name: name.to_owned(),
        creator: Some(creator.to_owned()),
        size,
        order,
    }
}

/// An object with its `(first page, pages, node)` runs.
type Placed<'a> = (ObjectKey, &'a [(u64, u64, u32)]);

/// Threads by path on PUs, and objects.
fn plan(threads: &[(&str, u32)], objects: &[Placed]) -> Plan {
    let pages = objects.iter().enumerate().flat_map(|(object, (_, runs))| {
        runs.iter().map(move |&(first_page, pages, node)| PagePlan {
            object: object as u32,
            first_page,
            pages,
            node: LogicalNode(node),
            os_node: OsNode(node),
        })
    });
    Plan {
        threads: threads
            .iter()
            .map(|&(path, pu)| ThreadPlan {
                path: path.to_owned(),
                pu: LogicalPu(pu),
                os_pu: OsPu(pu),
            })
            .collect(),
        pages: pages.collect(),
        objects: objects.iter().map(|(key, _)| key.clone()).collect(),
        ..Plan::by_hand("test", "test")
    }
}

fn controller(plan: &Plan, options: ApplyOptions) -> Controller {
    Controller::new(PlanIndex::new(plan, 1000), options, vec![0, 1, 2, 3])
}

fn anonymous(length: u64) -> MapCall<'static> {
    MapCall {
        length,
        protection: 3,
        flags: (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
        file: None,
    }
}

const VERIFY: ApplyOptions = ApplyOptions {
    verify: true,
    enforce: false,
};

#[test]
fn names_follow_the_order_of_creation_not_that_of_first_stops() {
    let plan = plan(&[("0", 0), ("0.1", 1), ("0.2", 2), ("0/1", 3)], &[]);
    let (mut controller, mut act) = (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(100, &mut act);
    controller.announced(100, 101, true);
    controller.announced(100, 102, true);
    controller.announced(100, 103, false);
    for (tid, same_process) in [(103, false), (102, true), (101, true)] {
        controller.created(100, tid, same_process, 0, &mut act);
    }
    let expected = [(100, 0), (103, 3), (102, 2), (101, 1)];
    assert_eq!(act.pinned, expected.map(|(tid, pu)| (tid, vec![pu])));
}

#[test]
fn threads_go_where_their_path_says_and_unknown_threads_anywhere() {
    let plan = plan(&[("0", 3), ("0.2", 1), ("0/1", 2)], &[]);
    let (mut controller, mut act) = (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(100, &mut act);
    controller.created(100, 101, true, 0, &mut act); // 0.1: not planned, must leave PU 3
    controller.created(100, 102, true, 0, &mut act); // 0.2
    controller.created(100, 103, false, 0, &mut act); // 0/1
    controller.created(101, 104, true, 0, &mut act); // 0.1.1: not planned
    let all = vec![0, 1, 2, 3];
    assert_eq!(
        act.pinned,
        [
            (100, vec![3]),
            (101, all.clone()),
            (102, vec![1]),
            (103, vec![2]),
            (104, all)
        ]
    );
    assert!(controller.hides_affinity(102) && !controller.hides_affinity(101));
    for tid in [104, 103, 102, 101, 100] {
        controller.ending(tid, &mut act);
    }
    let outcome = controller.into_tally().outcome(&plan, false, 1.0, 0);
    assert_eq!((outcome.threads.placed, outcome.threads.not_found), (3, 0));
    assert!(
        outcome.notes[0].contains("0.1, 0.1.1"),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn a_refused_pu_leaves_the_thread_to_the_kernel() {
    let plan = plan(&[("0", 9), ("0.1", 1)], &[]);
    let mut act = Notes {
        refuse_pu: Some(9),
        ..Notes::default()
    };
    let mut controller = controller(&plan, ApplyOptions::default());
    controller.started(100, &mut act);
    assert_eq!(act.pinned, [(100, vec![0, 1, 2, 3])]);
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, false, 1.0, 0);
    assert_eq!(outcome.threads.refused, [("EINVAL".to_owned(), 1)]);
    assert_eq!(outcome.threads.not_found, 1);
    assert!(outcome.notes[0].contains("P#9"));
}

#[test]
fn mappings_are_known_by_creator_size_and_order() {
    // The second 12 KiB mapping of thread 0.1: pages 0 and 1 on node 1, page 2 on node 0.
    let object = key(ObjectKind::Mapping, "[anon]", "0.1", 12288, 1);
    let plan = plan(&[("0", 0)], &[(object, &[(0, 2, 1), (2, 1, 0)])]);
    let (mut controller, mut act) = (controller(&plan, VERIFY), Notes::default());
    controller.started(100, &mut act);
    controller.created(100, 101, true, 0, &mut act);
    controller.mapped(101, &anonymous(12000), 0x10000, &mut act); // order 0
    controller.mapped(100, &anonymous(12000), 0x20000, &mut act); // another creator
    controller.mapped(101, &anonymous(8192), 0x30000, &mut act); // another size
    assert!(act.bound.is_empty());
    controller.mapped(101, &anonymous(12000), 0x40000, &mut act);
    assert_eq!(act.bound, [(0x40000, 0x42000, 1), (0x42000, 0x43000, 0)]);
    assert!(act.relocated.is_empty(), "nothing can be there yet");
    // Page 1 is on the wrong node, page 2 was never touched.
    act.pages_at = HashMap::from([(0x40000, 1), (0x41000, 0)]);
    controller.ending(101, &mut act);
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, true, 1.0, 0);
    assert_eq!((outcome.pages.placed, outcome.pages.planned), (1, 2));
    assert!(
        outcome
            .notes
            .iter()
            .any(|n| n.contains("1 planned pages were found on another node"))
    );
    assert!(
        outcome
            .notes
            .iter()
            .any(|n| n.contains("1 planned pages were not there"))
    );
}

#[test]
fn what_is_unmapped_is_read_back_first() {
    let object = key(ObjectKind::Mapping, "[anon]", "0", 8192, 0);
    let plan = plan(&[("0", 0)], &[(object, &[(0, 2, 1)])]);
    let (mut controller, mut act) = (controller(&plan, VERIFY), Notes::default());
    controller.started(100, &mut act);
    controller.mapped(100, &anonymous(8192), 0x40000, &mut act);
    act.pages_at = HashMap::from([(0x40000, 1), (0x41000, 1)]);
    assert!(
        controller.must_verify(100, 0x41000, 0x50000)
            && !controller.must_verify(100, 0x42000, 0x50000)
    );
    controller.unmapping(100, 0x40000, 0x42000, &mut act);
    act.pages_at.clear();
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, true, 1.0, 0);
    assert_eq!((outcome.pages.placed, outcome.pages.planned), (2, 2));
}

#[test]
fn a_thread_stack_belongs_to_the_thread_that_runs_on_it() {
    let object = key(ObjectKind::Stack, "[stack]", "0.1", 0x3000, 0);
    let plan = plan(&[("0", 0)], &[(object, &[(1, 2, 1)])]);
    let (mut controller, mut act) = (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(100, &mut act);
    controller.mapped(100, &anonymous(0x3000), 0x40000, &mut act);
    assert!(act.bound.is_empty(), "not a stack yet");
    assert!(controller.awaits_mappings(100), "the stack is planned");
    act.pages_at = HashMap::from([(0x41000, 0), (0x42000, 1)]);
    controller.created(100, 101, true, 0x42f00, &mut act);
    assert_eq!(act.bound, [(0x41000, 0x43000, 1)]);
    // The creator wrote to it already: what is on another node is moved.
    assert_eq!(act.relocated, [(0x41000, 1)]);
    assert!(!controller.awaits_mappings(100), "nothing else is planned");
}

#[test]
fn the_heap_is_bound_as_it_grows_and_mremap_keeps_the_object() {
    let heap = key(ObjectKind::Heap, "[heap]", "0", 0, 0);
    let map = key(ObjectKind::Mapping, "[anon]", "0", 8192, 0);
    let plan = plan(&[("0", 0)], &[(heap, &[(0, 3, 1)]), (map, &[(0, 4, 1)])]);
    let (mut controller, mut act) = (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(100, &mut act);
    controller.loaded(100, &[], None, Some((0x10000, 0x11000)), None, &mut act);
    controller.break_moved(100, 0x20000, &mut act);
    assert_eq!(act.bound, [(0x10000, 0x11000, 1), (0x11000, 0x13000, 1)]);
    assert_eq!(controller.planned_heap_end(100), Some(0x13000));
    act.bound.clear();
    controller.mapped(100, &anonymous(8192), 0x40000, &mut act);
    controller.remapped(100, (0x40000, 0x42000), (0x80000, 0x90000), &mut act);
    assert_eq!(act.bound, [(0x40000, 0x42000, 1), (0x82000, 0x84000, 1)]);
}

/// Constructors of libraries allocate memory before the program's entry point.
#[test]
fn a_heap_that_has_grown_while_libraries_were_loaded_is_bound() {
    let heap = key(ObjectKind::Heap, "[heap]", "0", 0, 0);
    let plan = plan(&[("0", 0)], &[(heap, &[(0, 2, 1), (2, 2, 0)])]);
    let (mut controller, mut act) = (controller(&plan, VERIFY), Notes::default());
    controller.started(100, &mut act);
    let empty = Some((0x10000, 0x10000));
    controller.loaded(100, &[], Some(&[]), empty, None, &mut act);
    assert!(act.bound.is_empty());
    act.pages_at = HashMap::from([(0x10000, 0), (0x12000, 0)]);
    let grown = Some((0x10000, 0x20000));
    controller.loaded(100, &[], None, grown, None, &mut act);
    assert_eq!(act.bound, [(0x10000, 0x12000, 1), (0x12000, 0x14000, 0)]);
    assert_eq!(act.relocated, [(0x10000, 1)]);
    controller.loaded(100, &[], None, grown, None, &mut act);
    assert_eq!(act.bound.len(), 2);
    act.pages_at = HashMap::from([(0x10000, 1), (0x12000, 0)]);
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, true, 1.0, 0);
    assert_eq!((outcome.pages.placed, outcome.pages.planned), (2, 2));
}

/// The dynamic linker maps a file first, then anonymous memory over the end of its `.bss`.
#[test]
fn a_section_is_placed_once_all_of_it_is_mapped() {
    let is_mapped = |ranges: &[(u64, u64)]| memory::is_within(ranges, 0x10800, 0x13000);
    let data = (0x10000, 0x11000);
    assert!(!is_mapped(&[]));
    assert!(!is_mapped(&[data]));
    assert!(!is_mapped(&[data, (0x12000, 0x20000)]));
    assert!(!is_mapped(&[(0x11000, 0x20000)]));
    assert!(is_mapped(&[data, (0x11000, 0x13000)]));
    assert!(is_mapped(&[(0, 0x10800), (0x10000, 0x20000)]));
}

#[test]
fn the_programs_own_affinity_is_reported_or_overruled() {
    let plan = plan(&[("0", 0)], &[]);
    let mut act = Notes::default();
    let mut lenient = controller(&plan, ApplyOptions::default());
    lenient.started(100, &mut act);
    assert!(lenient.may_set_affinity(100));
    act.pin(100, &[2, 3]).unwrap();
    lenient.ending(100, &mut act);
    let outcome = lenient.into_tally().outcome(&plan, false, 1.0, 0);
    assert_eq!(outcome.threads.placed, 0);
    assert!(outcome.notes[0].contains("0 (the program itself set its affinity to 2-3)"));
    let mut strict = controller(
        &plan,
        ApplyOptions {
            enforce: true,
            verify: false,
        },
    );
    strict.started(100, &mut act);
    assert!(!strict.may_set_affinity(100));
    let outcome = strict.into_tally().outcome(&plan, false, 1.0, 0);
    assert!(
        outcome.notes[0].contains("overruled 1"),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn exec_restarts_orders_under_the_same_path() {
    let object = key(ObjectKind::Mapping, "[anon]", "0", 8192, 0);
    let plan = plan(&[("0", 0), ("0.2", 1)], &[(object, &[(0, 2, 1)])]);
    let (mut controller, mut act) = (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(100, &mut act);
    controller.created(100, 101, true, 0, &mut act);
    controller.mapped(100, &anonymous(8192), 0x40000, &mut act);
    controller.executed(100, 100);
    // Orders restart; the count of created threads continues.
    controller.mapped(100, &anonymous(8192), 0x70000, &mut act);
    assert_eq!(act.bound, [(0x40000, 0x42000, 1), (0x70000, 0x72000, 1)]);
    controller.created(100, 102, true, 0, &mut act);
    assert_eq!(act.pinned.last(), Some(&(102, vec![1])));
}

#[test]
fn a_later_move_takes_threads_and_pages_to_their_new_places() {
    let mapping = key(ObjectKind::Mapping, "[anon]", "0", 16384, 0);
    let mut plan = plan(
        &[("0", 0), ("0.1", 1), ("0.2", 1)],
        &[(mapping, &[(0, 4, 0)])],
    );
    let at = |path: &str, pu| ThreadPlan {
        path: path.to_owned(),
        pu: LogicalPu(pu),
        os_pu: OsPu(pu),
    };
    plan.schedule = vec![numaloc_model::plan::PhasePlan {
        at: 0.5,
        trigger: Some(numaloc_model::plan::Trigger {
            place: numaloc_model::MarkPlace {
                kind: numaloc_model::MarkKind::User,
                name: "step".to_owned(),
            },
            occurrence: 2,
            every: None,
        }),
        predicted: None,
        threads: vec![at("0.1", 2), at("0.2", 3)],
        pages: vec![PagePlan {
            first_page: 1,
            pages: 2,
            node: LogicalNode(1),
            os_node: OsNode(1),
            ..plan.pages[0].clone()
        }],
    }];
    let moves = crate::moves::Moves::of(&plan, true);
    let mut controller = controller(&plan, VERIFY).with_moves(moves);
    let mut act = Notes::default();
    controller.started(100, &mut act);
    controller.created(100, 101, true, 0, &mut act);
    controller.mapped(100, &anonymous(16384), 0x10000, &mut act);
    let before = act.pinned.len();
    act.bound = Vec::new();
    let place = controller.moves().places()[0].clone();
    for of in controller.moves_mut().take_due(&place, 1, 2) {
        let pages = controller.carry_out(&of, 100, &mut act);
        assert_eq!(pages, [(0x11000, 1), (0x12000, 1)]);
        controller.move_batch(100, &pages, &mut act);
    }
    assert_eq!(act.pinned[before..], [(101, vec![2])]);
    assert_eq!(act.bound, [(0x11000, 0x13000, 1)]);
    assert_eq!(act.relocated, [(0x11000, 1), (0x12000, 1)]);
    // A thread that comes later begins where the move would have taken it.
    controller.created(100, 102, true, 0, &mut act);
    assert_eq!(act.pinned[before + 1], (102, vec![3]));
    // Read back by the nodes after the move.
    act.pages_at = [(0x10000, 0), (0x11000, 1), (0x12000, 1), (0x13000, 0)].into();
    for tid in [102, 101, 100] {
        controller.ending(tid, &mut act);
    }
    let outcome = controller.into_tally().outcome(&plan, true, 0.0, 0);
    assert_eq!(
        (outcome.pages.placed, outcome.threads.placed),
        (4, 3),
        "{outcome:?}"
    );
    let notes = outcome.notes.join("; ");
    assert!(
        notes.contains("1 of 1 made (1 times); 1 threads and 2 pages moved"),
        "{notes}"
    );
    assert!(notes.contains("1 threads were not there"), "{notes}");
}

#[test]
fn no_thread_is_bound_outside_the_inherited_mask() {
    let plan = plan(&[("0", 1), ("0.1", 9)], &[]);
    let (mut controller, mut notes) =
        (controller(&plan, ApplyOptions::default()), Notes::default());
    controller.started(10, &mut notes);
    controller.announced(10, 11, true);
    controller.created(10, 11, true, 0, &mut notes);
    // PU 9 is not among those that numaloc was started with: the thread may use all of these.
    assert_eq!(notes.pinned, [(10, vec![1]), (11, vec![0, 1, 2, 3])]);
}

/// Clients on one node each with local memory, their creator interleaved, and its shared memory.
fn by_role() -> numaloc_model::roles::RolesPlan {
    use numaloc_model::roles::{
        NodePlan, RoleKey, RoleMemory, RolePlan, RolesPlan, Seats, SegmentPages, SegmentPlan,
    };
    let both = || vec![LogicalNode(0), LogicalNode(1)];
    let role = |called: Option<&str>, creator, seats, memory| RolePlan {
        name: called.unwrap_or("main thread").to_owned(),
        key: RoleKey {
            called: called.map(str::to_owned),
            is_process: true,
            ..RoleKey::default()
        },
        creator,
        members: 2,
        seats,
        memory,
    };
    RolesPlan {
        nodes: [0, 1]
            .map(|node| NodePlan {
                node: LogicalNode(node),
                os_node: OsNode(node),
                os_pus: vec![2 * node, 2 * node + 1],
            })
            .into(),
        roles: vec![
            role(None, None, Seats::Left, RoleMemory::Interleave),
            role(
                Some("client"),
                Some(0),
                Seats::Each(both()),
                RoleMemory::Local,
            ),
        ],
        segments: vec![SegmentPlan {
            name: "cache".to_owned(),
            kind: ObjectKind::Shared,
            memory: "[anon]".to_owned(),
            role: 0,
            bytes: (4096, u64::MAX),
            pages: SegmentPages::Interleave(both()),
        }],
    }
}

#[test]
fn members_are_seated_with_their_memory_and_segments_spread_whatever_their_numbers() {
    let plan = Plan::by_hand("test", "test");
    let mut act = Notes::default();
    let mut controller = controller(&plan, ApplyOptions::default()).with_roles(&by_role(), true);
    controller.started(100, &mut act);
    assert_eq!(act.policies, [vec![0, 1]]);
    assert!(controller.awaits_mappings(100));
    let shared = MapCall {
        flags: (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64,
        ..anonymous(3 * 4096)
    };
    controller.mapped(100, &shared, 0x10_0000, &mut act);
    controller.mapped(100, &anonymous(8192), 0x20_0000, &mut act);
    assert_eq!(act.interleaved, [((0x10_0000, 0x10_3000), vec![0, 1])]);
    for tid in 101..=104 {
        controller.announced(100, tid, false);
        controller.created(100, tid, false, 0, &mut act);
    }
    let masks: Vec<&[u32]> = act.pinned[1..].iter().map(|(_, pus)| &pus[..]).collect();
    assert_eq!(masks, [[0, 1], [2, 3], [0, 1], [2, 3]]);
    // Each has its memory local again.
    assert_eq!(act.policies[1..], vec![Vec::<u32>::new(); 4]);
    for tid in 101..=103 {
        controller.ending(tid, &mut act);
    }
    // The last one sets its affinity itself.
    assert!(controller.may_set_affinity(104));
    act.pin(104, &[1]).unwrap();
    controller.ending(104, &mut act);
    let outcome = controller.into_tally().outcome(
        &Plan {
            roles: by_role(),
            ..plan
        },
        true,
        0.0,
        0,
    );
    let [main, clients] = &outcome.roles[..] else {
        panic!("{:?}", outcome.roles);
    };
    assert_eq!((main.members, main.is_left), (1, true));
    assert_eq!(
        (clients.members, clients.placed, clients.elsewhere),
        (4, 3, 1)
    );
    assert_eq!((outcome.threads.planned, outcome.threads.placed), (4, 3));
    assert_eq!(
        (outcome.segments[0].mappings, outcome.segments[0].bytes),
        (1, 12288)
    );
    assert!(
        outcome.notes.iter().any(|note| note.contains("--enforce")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn roles_on_pus_that_are_not_ours_are_refused_and_their_members_run_anywhere() {
    let plan = Plan::by_hand("test", "test");
    let mut act = Notes::default();
    let mut controller = Controller::new(
        PlanIndex::new(&plan, 10),
        ApplyOptions::default(),
        vec![0, 1],
    )
    .with_roles(&by_role(), false);
    controller.started(100, &mut act);
    for tid in [101, 102] {
        controller.created(100, tid, false, 0, &mut act);
    }
    assert_eq!(act.pinned[1..], [(101, vec![0, 1]), (102, vec![0, 1])]);
    assert!(act.policies.is_empty() && !controller.awaits_mappings(100));
    [101, 102]
        .iter()
        .for_each(|&tid| controller.ending(tid, &mut act));
    let outcome = controller.into_tally().outcome(
        &Plan {
            roles: by_role(),
            ..plan
        },
        false,
        0.0,
        0,
    );
    assert_eq!((outcome.roles[1].placed, outcome.roles[1].refused), (1, 1));
    assert_eq!(outcome.threads.refused, [("EINVAL".to_owned(), 1)]);
}
