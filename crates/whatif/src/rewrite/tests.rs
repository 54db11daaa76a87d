//! Rewritten events of small runs that are known by hand.

use numaloc_model::ObjectIdx;

use super::*;
use crate::facts::tests::event;

/// Lines of a page.
const LINES: u64 = 4;

/// Thread 0 writes pages 0 and 1; threads 0 and 1 read one each.
fn recorded() -> Vec<(ThreadIdx, Event)> {
    let mut events = Vec::new();
    for line in 0..2 * LINES {
        events.push((ThreadIdx(0), event(Action::Write(line))));
    }
    events.push((ThreadIdx(0), event(Action::Create(1))));
    for line in LINES..2 * LINES {
        events.push((ThreadIdx(1), event(Action::Read(line))));
    }
    events.push((ThreadIdx(1), event(Action::Read(0))));
    for line in 0..LINES {
        events.push((ThreadIdx(0), event(Action::Read(line))));
    }
    events
}

fn facts(events: &[(ThreadIdx, Event)]) -> Facts {
    let mut facts = Facts::new(LINES);
    for (thread, event) in events {
        facts.add(*thread, event);
    }
    facts
}

fn part(pages: Vec<u64>) -> Part {
    Part {
        objects: vec![ObjectIdx(0)],
        first: ThreadIdx(0),
        beginnings: Vec::new(),
        constant: vec![ObjectIdx(0)],
        constant_pages: pages.clone(),
        pages,
        own_pages: vec![2],
        beginners: vec![(1, ThreadIdx(1))],
        requests_of_others: 5,
    }
}

/// Events of each thread under a change of both pages.
fn rewritten(events: &[(ThreadIdx, Event)], change: Change, node_of: &[usize]) -> Vec<Vec<Event>> {
    let parts = [part(vec![0, 1])];
    let facts = facts(events);
    let mut rewriter = Rewriter::new(&[change], (&facts, &parts), &[], 64, node_of);
    let mut found = vec![Vec::new(); 2];
    for (thread, event) in events {
        rewriter.push(*thread, *event, &mut |to, event| {
            found[to.index()].push(*event)
        });
    }
    rewriter.finish(&mut |to, event| found[to.index()].push(*event));
    found
}

fn actions(events: &[Event]) -> Vec<Action> {
    events.iter().map(|event| event.action).collect()
}

#[test]
fn the_user_of_a_page_begins_with_it_as_soon_as_it_runs() {
    let found = rewritten(&recorded(), Change::TouchByUsers(0), &[0, 1]);
    // Thread 0 uses page 0 most, and keeps it; it begins when thread 1 does. Each waits once for the other.
    let (release, acquire) = (Action::Release(FIRST_WORD), Action::Acquire(FIRST_WORD));
    let mut own = vec![Action::Create(1)];
    own.extend((0..LINES).map(Action::Write));
    own.extend([release, acquire]);
    own.extend((0..LINES).map(Action::Read));
    assert_eq!(actions(&found[0]), own);
    let mut others: Vec<Action> = (LINES..2 * LINES).map(Action::Write).collect();
    others.extend([release, acquire]);
    others.extend((LINES..2 * LINES).map(Action::Read));
    others.push(Action::Read(0));
    assert_eq!(actions(&found[1]), others);
}

#[test]
fn no_request_is_lost_or_made() {
    let events = recorded();
    let found = rewritten(&events, Change::TouchByUsers(0), &[0, 1]);
    let mut all: Vec<String> = events
        .iter()
        .map(|(_, event)| format!("{event:?}"))
        .collect();
    let is_recorded =
        |event: &&Event| !matches!(event.action, Action::Acquire(_) | Action::Release(_));
    let mut now: Vec<String> = found
        .iter()
        .flatten()
        .filter(is_recorded)
        .map(|event| format!("{event:?}"))
        .collect();
    all.sort();
    now.sort();
    assert_eq!(all, now);
}

#[test]
fn each_node_reads_its_own_copy_made_once() {
    let found = rewritten(&recorded(), Change::Replicate(0), &[0, 1]);
    // Copies begin above page 1: two pages for node 0, then two for node 1.
    let line = |page: u64, within: u64| page * LINES + within;
    let mut other: Vec<Action> = (0..2)
        .flat_map(|page| (0..LINES).map(move |within| (page, within)))
        .flat_map(|(page, within)| {
            [
                Action::Read(line(page, within)),
                Action::Write(line(page + 4, within)),
            ]
        })
        .collect();
    other.extend((0..LINES).map(|within| Action::Read(line(5, within))));
    other.push(Action::Read(line(4, 0)));
    assert_eq!(actions(&found[1]), other);
    assert_eq!(found[0].len() as u64, 2 * LINES + 1 + 4 * LINES + LINES);
    assert_eq!(
        found[0].last().map(|event| event.action),
        Some(Action::Read(line(2, 3)))
    );
}

#[test]
fn threads_of_one_node_share_a_copy() {
    let found = rewritten(&recorded(), Change::Replicate(0), &[1, 1]);
    let written = |events: &[Event]| {
        let writes = events
            .iter()
            .filter(|event| matches!(event.action, Action::Write(_)));
        writes.count() as u64
    };
    assert_eq!(written(&found[0]), 2 * LINES);
    assert_eq!(written(&found[1]), 2 * LINES);
}

#[test]
fn distances_of_dependent_loads_skip_what_others_do_now() {
    // The latest fetch is in the lowest bit: fetches 1 and 3 back are another thread's.
    assert_eq!(nearer(1, 0b101), 0);
    assert_eq!(nearer(2, 0b101), 1);
    assert_eq!(nearer(4, 0b101), 2);
    assert_eq!(nearer(63, u64::MAX >> 2), 1);
    assert_eq!(nearer(5, 0), 5);
}

#[test]
fn pages_are_placed_by_those_who_begin_with_them_now() {
    let mut usage = PageUsage::new(4096);
    for number in 0..2 {
        let head = PageHead {
            number: numaloc_model::PageNumber(number),
            object: None,
            object_page: 0,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        usage.push(head, Vec::new());
    }
    let placed = placed_by(&usage, &[Change::TouchByUsers(0)], &[part(vec![0, 1])]);
    let touched: Vec<_> = placed.pages().iter().map(|page| page.first_touch).collect();
    assert_eq!(touched, [Some(ThreadIdx(0)), Some(ThreadIdx(1))]);
}

/// A counter in line 9 that both threads change.
#[test]
fn contended_lines_leave_their_work() {
    let memory = crate::lines::tests::memory(vec![9]);
    let facts = Facts::new(LINES);
    let mut rewriter = Rewriter::new(&[], (&facts, &[]), &[&memory], 64, &[0, 0]);
    let mut ordered = Vec::new();
    let word = 9 * 16 + 3;
    let actions = [
        Action::Own(9),
        Action::Acquire(word),
        Action::Release(word),
        Action::Read(10),
    ];
    for action in actions {
        rewriter.push(ThreadIdx(0), event(action), &mut |_, event| {
            ordered.push(*event)
        });
    }
    let gone = Action::Omitted(0);
    let found: Vec<Action> = ordered.iter().map(|event| event.action).collect();
    assert_eq!(found, [gone, actions[1], actions[2], actions[3]]);
    assert_eq!(ordered.iter().map(|event| event.work).sum::<u64>(), 4);
    let mut rewriter = rewriter.without_order(&memory);
    let mut found = Vec::new();
    for action in actions {
        rewriter.push(ThreadIdx(0), event(action), &mut |_, event| {
            found.push(event.action)
        });
    }
    assert_eq!(found, [gone, gone, gone, actions[3]]);
}
