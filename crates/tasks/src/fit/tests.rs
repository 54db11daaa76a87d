//! Plans of sixteen parts in runs of other numbers.

use super::guard::WINDOW;
use super::*;
use numaloc_task_plan::{PlanBlock, PlanChild, PlanClass};

fn number(name: &str) -> u32 {
    ["main", "part"]
        .iter()
        .position(|&known| known == name)
        .unwrap() as u32
}

/// A root with 16 parts on four nodes in blocks, each with a data block.
fn sixteen() -> Fit {
    sixteen_on(|part| (part / 4) as u16)
}

/// The same with other nodes. The first and the last part have one slot less than the others.
fn sixteen_on(node: impl Fn(u32) -> u16) -> Fit {
    Fit::new(&plan_on(node), number)
}

fn plan_on(node: impl Fn(u32) -> u16) -> TaskPlan {
    let class = |template: &str, node| PlanClass {
        template: template.to_owned(),
        node,
        ..PlanClass::default()
    };
    let mut classes = vec![class("main", None)];
    for part in 0..16 {
        classes[0].children.push(PlanChild {
            position: part,
            template: "part".to_owned(),
            slots: slots(part),
            class: part + 1,
        });
        classes.push(PlanClass {
            blocks: vec![PlanBlock {
                position: 0,
                node: Some(node(part)),
                bytes: 10_000,
            }],
            ..class("part", Some(node(part)))
        });
    }
    TaskPlan {
        nodes: 4,
        classes,
        ..TaskPlan::default()
    }
}

fn slots(part: u32) -> u32 {
    if part.is_multiple_of(15) { 1 } else { 2 }
}

fn settle(fit: &Fit, kind: Kind, count: usize) -> Result<Settled, String> {
    let name = |_| "other".to_owned();
    fit.settle(0, true, std::iter::repeat_n(kind, count), 0, name)
}

#[test]
fn the_rank_of_a_part_is_scaled() {
    let part = (number("part"), 2);
    for (count, expected) in [
        (64, [8, 16, 32, 48].map(|rank| (rank, 1 + rank / 4))),
        (4, [(0, 2), (1, 5), (2, 9), (3, 13)]),
        (20, [(4, 4), (5, 5), (10, 9), (19, 15)]),
        (2, [(0, 2), (0, 2), (1, 9), (1, 9)]),
    ] {
        let fit = sixteen();
        let Ok(Settled::Ranks(counts)) = settle(&fit, part, count as usize) else {
            panic!("{count} parts are not scaled");
        };
        assert_eq!(counts[&part.0], count);
        for (rank, class) in expected {
            assert_eq!(
                fit.part(0, part, rank, count),
                Some(Part {
                    class,
                    in_order: true
                }),
                "{rank} of {count}"
            );
        }
    }
    let fit = sixteen();
    assert!(matches!(settle(&fit, part, 16), Ok(Settled::Positions)));
    assert!(matches!(fit.look_up(0), LookUp::Position), "not held again");
}

#[test]
fn a_plan_of_other_parts_or_sizes_does_not_fit() {
    let why = settle(&sixteen(), (77, 1), 16).err().unwrap();
    assert!(why.contains("16 tasks of template other"), "{why}");
    let fit = sixteen();
    // A hundred times as large, more or less: another problem size.
    for (part, bytes) in [(1, 1_000_000), (2, 1_200_000), (3, 400_000)] {
        assert_eq!(fit.check_size(part, 0, bytes), Ok(()));
    }
    let why = fit.check_size(4, 0, 10_000_000).unwrap_err();
    assert!(why.contains("40.00 to 1000.00 times"), "{why}");
}

/// At the edge, parts have fewer slots; where all exchange data with all, slots grow with the parts.
#[test]
fn a_part_has_the_class_of_one_with_as_many_slots_on_its_node() {
    let fit = sixteen();
    let class = |slots, rank| {
        fit.part(0, (number("part"), slots), rank, 32)
            .map(|part| part.class)
    };
    assert_eq!((class(1, 0), class(2, 0)), (Some(1), Some(2)));
    assert_eq!((class(1, 31), class(2, 31)), (Some(16), Some(15)));
    assert_eq!(class(1, 12), Some(7), "no other of this node has one slot");
    assert_eq!(class(33, 12), Some(7), "no part has 33");
    let grown = settle(&fit, (number("part"), 33), 16);
    assert!(matches!(grown, Ok(Settled::Ranks(_))), "other slots");
}

#[test]
fn a_plan_with_fewer_parts_than_nodes_serves_no_more_parts() {
    let of = |nodes| {
        let mut plan = plan_on(|part| (part / 4) as u16);
        plan.nodes = nodes;
        Fit::new(&plan, number)
    };
    let part = (number("part"), 2);
    let why = settle(&of(32), part, 64).err().unwrap();
    assert_eq!(why, "the run has 64 parts, the plan 16, for 32 nodes");
    assert!(settle(&of(32), part, 8).is_ok(), "fewer parts");
    assert!(settle(&of(16), part, 64).is_ok());
}

#[test]
fn parts_whose_nodes_do_not_follow_the_ranks_go_to_their_data() {
    let fit = sixteen_on(|part| (part * 7 % 4) as u16);
    let part = |rank| fit.part(0, (number("part"), 2), rank, 8).unwrap();
    for rank in 0..8 {
        let node = ((part(rank).class - 1) * 7 % 4) as u16;
        assert_eq!(
            (part(rank).in_order, node),
            (false, (rank / 2) as u16),
            "in blocks"
        );
    }
}

#[test]
fn a_plan_that_places_little_or_badly_is_dropped() {
    let longer = |bytes| bytes / 1000.0;
    let window = |planned, local, remote| {
        let fit = sixteen();
        (0..WINDOW).find_map(|_| fit.count(planned, local, remote, longer).err())
    };
    assert_eq!(window(true, 45, 55), None);
    assert!(window(true, 30, 70).unwrap().contains("70 % of the bytes"));
    assert!(window(false, 1, 0).unwrap().contains("128 of 128 tasks"));
    let why = window(true, 60, 0).unwrap();
    assert!(why.contains("it saves 4 % of their time at most"), "{why}");
    assert_eq!(window(true, 0, 0), None, "tasks without data say nothing");
}

#[test]
fn a_class_whose_data_wants_another_number_of_tasks_is_not_scaled() {
    let part = (number("part"), 2);
    let fit = sixteen();
    assert!(
        fit.agree(8, 8),
        "the first class has as many parts as planned"
    );
    assert!(matches!(settle(&fit, part, 12), Ok(Settled::Positions)));
}
