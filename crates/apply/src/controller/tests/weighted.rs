//! Pages that the kernel distributes by the system's weights.

use super::*;

/// A plan of one mapping of 101 pages, dealt 3:1 over nodes 0 and 1, and the system's weights.
fn weighted() -> (Plan, Spread) {
    let size = 101 * 4096;
    let runs: Vec<(u64, u64, u32)> = (0..101)
        .map(|page| (page, 1, u32::from(page % 4 == 1)))
        .collect();
    let mut plan = plan(
        &[("0", 0)],
        &[(key(ObjectKind::Mapping, "[anon]", "0", size, 0), &runs)],
    );
    plan.provenance.page_policy = "weighted-interleave".to_owned();
    let index = PlanIndex::new(&plan, usize::MAX);
    let spread = Spread::of(&plan, &index, Ok([(0, 3), (1, 1)].into()));
    (plan, spread)
}

#[test]
fn the_kernel_distributes_whole_rounds_and_their_numbers_of_pages_are_read_back() {
    let (plan, spread) = weighted();
    let mut controller = controller(&plan, VERIFY).with_spread(spread);
    let mut act = Notes::default();
    controller.started(100, &mut act);
    controller.mapped(100, &anonymous(101 * 4096), 0x10_0000, &mut act);
    assert_eq!(act.weighted, [((0x10_0000, 0x16_4000), vec![0, 1])]);
    assert_eq!(act.bound, [(0x16_4000, 0x16_5000, 0)]);
    // The kernel begins its round elsewhere: 25 of 101 pages are on node 1, but others than planned.
    act.pages_at = (0..101)
        .map(|page| (0x10_0000 + page * 4096, i32::from(page % 4 == 3)))
        .collect();
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, true, 1.0, 0);
    assert_eq!((outcome.pages.planned, outcome.pages.placed), (101, 101));
    let notes = outcome.notes.join("\n");
    assert!(notes.contains("by the kernel's policy"), "{notes}");
    assert!(!notes.contains("another node"), "{notes}");
}

#[test]
fn pages_that_the_kernel_gave_to_other_nodes_are_counted() {
    let (plan, spread) = weighted();
    let mut controller = controller(&plan, VERIFY).with_spread(spread);
    let mut act = Notes::default();
    controller.started(100, &mut act);
    controller.mapped(100, &anonymous(101 * 4096), 0x10_0000, &mut act);
    act.pages_at = (0..101)
        .map(|page| (0x10_0000 + page * 4096, i32::from(page % 2 == 1)))
        .collect();
    controller.ending(100, &mut act);
    let outcome = controller.into_tally().outcome(&plan, true, 1.0, 0);
    // 50 of 101 pages on node 1 instead of 25.
    assert_eq!((outcome.pages.planned, outcome.pages.placed), (101, 76));
}

#[test]
fn a_kernel_that_refuses_the_policy_gets_every_page_by_itself() {
    let (plan, spread) = weighted();
    let mut controller = controller(&plan, VERIFY).with_spread(spread);
    let mut act = Notes {
        refuse_weights: libc::EINVAL,
        ..Notes::default()
    };
    controller.started(100, &mut act);
    controller.mapped(100, &anonymous(101 * 4096), 0x10_0000, &mut act);
    let on = |node| -> u64 {
        let on_node = act.bound.iter().filter(|range| range.2 == node);
        on_node.map(|(start, end, _)| (end - start) / 4096).sum()
    };
    assert_eq!((on(0), on(1)), (76, 25));
    let notes = controller.into_tally().outcome(&plan, true, 1.0, 0).notes;
    let said: Vec<&String> = notes
        .iter()
        .filter(|note| note.contains("weighted"))
        .collect();
    assert_eq!(said.len(), 1, "{notes:?}");
    assert!(
        said[0].contains("page by page: the kernel refuses its policy (EINVAL)"),
        "{said:?}"
    );
}
