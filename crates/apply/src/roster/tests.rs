use super::*;
use numaloc_model::OsNode;
use numaloc_model::roles::{NodePlan, RolePlan, SegmentPlan};

fn own(name: &str) -> Called {
    Called {
        name: Some(name.to_owned()),
        is_own: true,
    }
}

/// As its program is called, until it has a title.
fn program() -> Called {
    Called {
        name: Some("server".to_owned()),
        is_own: false,
    }
}

/// The first thread, 3 clients of it on one node each, its writer on node 1, and threads of clients: many that run
/// `work`, one `log`.
fn plan() -> RolesPlan {
    let both = vec![LogicalNode(0), LogicalNode(1)];
    let role =
        |called: Option<&str>, routine: Option<&str>, parent, creator, members, seats| RolePlan {
            name: called.or(routine).unwrap_or("main thread").to_owned(),
            key: RoleKey {
                called: called.map(str::to_owned),
                routine: routine.map(str::to_owned),
                is_process: routine.is_none(),
                parent,
            },
            creator,
            members,
            memory: match seats {
                Seats::Left => RoleMemory::Left,
                _ => RoleMemory::Local,
            },
            seats,
        };
    let one = || Seats::Any(vec![LogicalNode(1)]);
    RolesPlan {
        nodes: [0, 1]
            .map(|node| NodePlan {
                node: LogicalNode(node),
                os_node: OsNode(node),
                os_pus: vec![2 * node, 2 * node + 1],
            })
            .into(),
        roles: vec![
            role(None, None, None, None, 1, Seats::Left),
            role(
                Some("s: client"),
                None,
                None,
                Some(0),
                3,
                Seats::Each(both.clone()),
            ),
            role(Some("s: writer"), None, None, Some(0), 1, one()),
            role(
                None,
                Some("work"),
                Some(1),
                Some(1),
                6,
                Seats::Each(both.clone()),
            ),
            role(None, Some("log"), Some(1), Some(1), 1, one()),
        ],
        segments: vec![SegmentPlan {
            name: "cache".to_owned(),
            kind: ObjectKind::Shared,
            memory: "[anon]".to_owned(),
            role: 0,
            bytes: (100, 200),
            pages: SegmentPages::Interleave(both),
        }],
    }
}

fn started() -> Roster {
    let mut roster = Roster::new(&plan());
    roster.born(1, 1, None, Called::default(), None);
    roster
}

#[test]
fn clients_are_dealt_at_birth_and_a_writer_goes_to_its_place_when_it_is_named() {
    let mut roster = started();
    let pus = |place: Place| place.pus;
    // All forks look equal: they are taken for clients, which the first thread made most.
    let births: Vec<_> = (2..=5)
        .map(|tid| pus(roster.born(tid, tid, Some(1), program(), None)))
        .collect();
    assert_eq!(births, [[0, 1], [2, 3], [0, 1], [2, 3]]);
    assert_eq!(roster.called(2, own("s: client")), []);
    let [(2, place)] = &roster.called(2, own("s: writer"))[..] else {
        panic!("the writer stays");
    };
    assert_eq!(place.pus, [2, 3]);
    // Its seat is free for the next client.
    assert_eq!(pus(roster.born(6, 6, Some(1), program(), None)), [0, 1]);
    assert_eq!(roster.called(6, own("s: client")), []);
    for (tid, mask) in [
        (2, [2, 3]),
        (3, [2, 3]),
        (4, [0, 1]),
        (5, [0, 9]),
        (6, [0, 1]),
    ] {
        roster.ended(tid, Some(&mask));
    }
    roster.close();
    let found = roster.outcome();
    let counts = |at: usize| {
        let role: &RoleOutcome = &found.roles[at];
        (
            role.members,
            role.by_name,
            role.placed,
            role.since_birth,
            role.elsewhere,
        )
    };
    assert_eq!(
        [counts(0), counts(1), counts(2)],
        [(1, 1, 0, 0, 0), (4, 1, 3, 3, 1), (1, 1, 1, 0, 0)]
    );
    assert!(found.unknown.is_empty());
}

#[test]
fn a_few_processes_that_never_had_a_title_do_not_hide_what_most_become() {
    let mut plan = plan();
    let mut untitled = plan.roles[2].clone();
    untitled.key.called = Some("server".to_owned());
    untitled.name = "server".to_owned();
    untitled.seats = Seats::Left;
    plan.roles.push(untitled);
    let mut roster = Roster::new(&plan);
    roster.born(1, 1, None, Called::default(), None);
    assert_eq!(roster.born(2, 2, Some(1), program(), None).pus, [0, 1]);
    assert_eq!(roster.called(2, own("s: client")), []);
    roster.ended(2, Some(&[0, 1]));
    let client = &roster.outcome().roles[1];
    assert_eq!((client.by_name, client.since_birth), (1, 1));
}

#[test]
fn threads_have_the_role_of_their_code_and_creator() {
    let mut roster = started();
    let routine = |name: &str| Some(name.to_owned());
    roster.born(2, 2, Some(1), own("s: client"), None);
    let log = roster.born(3, 2, Some(2), Called::default(), routine("log"));
    assert_eq!(log.pus, [2, 3]);
    let works = [4, 5].map(|tid| roster.born(tid, 2, Some(2), Called::default(), routine("work")));
    // The client is on node 0.
    assert_eq!(works.map(|place| place.pus), [[2, 3], [0, 1]]);
    // A pool: one that runs the same as its creator has its role.
    let deeper = roster.born(6, 2, Some(4), Called::default(), routine("work"));
    assert_eq!(deeper.pus, [2, 3]);
    // Without a routine: what the creator usually makes.
    let other = roster.born(7, 2, Some(2), Called::default(), None);
    assert_eq!(other.pus, [0, 1]);
    (2..=7).for_each(|tid| roster.ended(tid, None));
    assert_eq!(roster.outcome().roles[3].members, 4);
    assert_eq!(roster.outcome().roles[4].members, 1);
}

#[test]
fn what_the_plan_does_not_know_is_left_alone_and_named() {
    let mut roster = started();
    let place = roster.born(2, 2, Some(1), own("s: vacuum"), None);
    assert_eq!((place.pus.len(), place.memory), (0, RoleMemory::Left));
    // A forked process becomes another program.
    assert_eq!(roster.born(3, 3, Some(1), program(), None).pus, [0, 1]);
    let [(3, place)] = &roster.called(3, own("sh"))[..] else {
        panic!("it stays");
    };
    assert!(place.pus.is_empty() && !roster.seats(3));
    // Nor is anything known of what an unknown one creates, unless it says so.
    assert!(
        roster
            .born(4, 2, Some(2), Called::default(), None)
            .pus
            .is_empty()
    );
    assert_eq!(
        roster.born(5, 5, Some(2), own("s: writer"), None).pus,
        [2, 3]
    );
    for tid in [2, 3, 4, 5] {
        roster.ended(tid, Some(&[0, 1, 2, 3]));
    }
    let unknown = roster.outcome().unknown;
    let expected = [("s: vacuum", 1), ("sh", 1), ("thread without a name", 1)];
    assert_eq!(
        unknown,
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    // However many names there are.
    for tid in 10..1000 {
        roster.born(tid, tid, Some(1), own(&format!("other {tid}")), None);
        roster.ended(tid, None);
    }
    assert!(roster.outcome().unknown.len() <= NAMES + 1);
}

#[test]
fn segments_are_recognised_by_kind_name_size_and_role() {
    let mut roster = started();
    roster.born(2, 2, Some(1), own("s: client"), None);
    let both = Pages::Interleave(vec![0, 1]);
    assert_eq!(
        roster.segment(1, ObjectKind::Shared, "[anon]", 150),
        Some((0, both))
    );
    for (tid, kind, name, size) in [
        (2, ObjectKind::Shared, "[anon]", 150),
        (1, ObjectKind::Mapping, "[anon]", 150),
        (1, ObjectKind::Shared, "file", 150),
        (1, ObjectKind::Shared, "[anon]", 99),
        (1, ObjectKind::Shared, "[anon]", 201),
    ] {
        assert_eq!(roster.segment(tid, kind, name, size), None);
    }
    roster.mapped(0, 150, 0);
    roster.mapped(0, 150, libc::EPERM);
    let found = &roster.outcome().segments[0];
    assert_eq!((found.mappings, found.bytes), (2, 150));
    assert_eq!(found.refused, [("EPERM".to_owned(), 1)]);
}
