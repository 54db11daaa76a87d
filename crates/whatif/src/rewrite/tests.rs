//! Rewritten events of small runs that are known by hand.

use numaloc_model::{Named, ObjectIdx};

use super::*;
use crate::facts::tests::event;

/// Lines of a page.
const LINES: u64 = 4;

const MEMORY: Named = Named {
    object: ObjectIdx(0),
    variable: None,
};

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
        memory: vec![MEMORY],
        first: ThreadIdx(0),
        beginnings: Vec::new(),
        constant: vec![MEMORY],
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
fn what_the_first_thread_computes_while_it_begins_stays_with_it() {
    let mut events = recorded();
    // The page that goes to thread 1: its first line is the result of a long computation, the second of none.
    events[LINES as usize].1.work = 1000;
    events[LINES as usize + 1].1.work = 16;
    let found = rewritten(&events, Change::TouchByUsers(0), &[0, 1]);
    let stayed = found[0][0];
    assert_eq!((stayed.action, stayed.work), (Action::Omitted(0), 936));
    let passed: Vec<u64> = found[1][..2].iter().map(|event| event.work).collect();
    assert_eq!(passed, [64, 16]);
    let work = |events: &[Event]| events.iter().map(|event| event.work).sum::<u64>();
    let all: u64 = events.iter().map(|(_, event)| event.work).sum();
    assert_eq!(work(&found[0]) + work(&found[1]), all);
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
    other.push(Action::Release(FIRST_COPY_WORD + 1));
    other.extend((0..LINES).map(|within| Action::Read(line(5, within))));
    other.push(Action::Read(line(4, 0)));
    assert_eq!(actions(&found[1]), other);
    assert_eq!(found[0].len() as u64, 2 * LINES + 1 + 4 * LINES + 1 + LINES);
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
    // Thread 0 waits for the copy that thread 1 makes.
    let word = FIRST_COPY_WORD + 1;
    let waits = |events: &[Event]| {
        events
            .iter()
            .position(|e| e.action == Action::Acquire(word))
    };
    assert_eq!(waits(&found[0]), Some(2 * LINES as usize + 1));
    assert_eq!(waits(&found[1]), None);
    assert!(actions(&found[1]).contains(&Action::Release(word)));
}

#[test]
fn lines_of_the_original_are_written_back() {
    let mut events = recorded();
    events.push((ThreadIdx(0), event(Action::WriteBack(1))));
    let found = rewritten(&events, Change::Replicate(0), &[0, 1]);
    assert_eq!(actions(&found[0]).last(), Some(&Action::WriteBack(1)));
}

#[test]
fn a_thread_that_creates_others_begins_after_the_last() {
    let mut events = recorded();
    // Thread 0 meets the part, and a lock of its own, before it has created all threads.
    let own = Action::Acquire(7);
    let at = events.len() - LINES as usize;
    for action in [Action::Read(LINES), own, Action::Create(2)]
        .into_iter()
        .rev()
    {
        events.insert(at, (ThreadIdx(0), event(action)));
    }
    let found = rewritten(&events, Change::TouchByUsers(0), &[0, 1]);
    let mut expected = vec![
        Action::Create(1),
        Action::Read(LINES),
        own,
        Action::Create(2),
    ];
    expected.extend((0..LINES).map(Action::Write));
    expected.push(Action::Acquire(FIRST_WORD));
    expected.extend((0..LINES).map(Action::Read));
    assert_eq!(actions(&found[0]), expected);

    // A word of another thread orders the two: its share comes first.
    events[at + 1] = (ThreadIdx(0), event(Action::Acquire(8)));
    events.insert(at, (ThreadIdx(1), event(Action::Release(8))));
    let found = rewritten(&events, Change::TouchByUsers(0), &[0, 1]);
    let position = |action| actions(&found[0]).iter().position(|one| *one == action);
    assert!(position(Action::Write(0)) < position(Action::Acquire(8)));
    assert!(position(Action::Acquire(8)) < position(Action::Create(2)));
}

#[test]
fn what_the_first_thread_computes_with_its_pages_stays_with_it() {
    // Thread 0 writes both pages; once thread 1 uses page 1, thread 0 writes page 0 again, which thread 1 then reads.
    let found = |with_memory: bool| {
        let mut facts = Facts::new(LINES);
        if with_memory {
            facts = facts.with_memory([(0, MEMORY), (1, MEMORY)]);
        }
        let mut add = |thread, action| facts.add(ThreadIdx(thread), &event(action));
        (0..2 * LINES).for_each(|line| add(0, Action::Write(line)));
        add(1, Action::Read(LINES));
        (0..LINES).for_each(|line| add(0, Action::Own(line)));
        (0..LINES).for_each(|line| add(1, Action::Read(line)));
        facts.page(0).unwrap().main_users()
    };
    assert_eq!(found(true), [ThreadIdx(0)]);
    assert_eq!(found(false), [ThreadIdx(1)]);
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

#[test]
fn values_in_registers_need_no_accesses() {
    // Two threads make 100 accesses each, 50 of them to the counter in line 9.
    let memory = ContendedMemory {
        visits: 50,
        atomics: 50,
        threads: 2,
        ..crate::lines::tests::memory(vec![9])
    };
    let mut events = Vec::new();
    for thread in [0, 1] {
        let actions = [(2, Action::Own(9)), (98, Action::Read(20))];
        events.extend(actions.map(|(work, action)| {
            let event = Event {
                work,
                ..event(action)
            };
            (ThreadIdx(thread), event)
        }));
    }
    let mut facts = Facts::new(LINES).with_contended(std::slice::from_ref(&memory));
    for (thread, event) in &events {
        facts.add(*thread, event);
    }
    let left = |left: f64| {
        let rewriter = Rewriter::new(&[], (&facts, &[]), &[&memory], 64, &[0, 0]);
        let mut rewriter = rewriter.with_registers(0, &memory, left);
        let mut work = [0; 2];
        for (thread, event) in &events {
            rewriter.push(*thread, *event, &mut |by, event| {
                work[by.index()] += event.work
            });
        }
        work
    };
    assert_eq!(left(1.0), [100; 2]);
    // 100 accesses of 200 go, each thread's at the same rate.
    assert_eq!(left(0.0), [50; 2]);
    assert_eq!(left(0.5), [75; 2]);
}
