//! Lines, work and pages of traces.

use super::*;

fn event(work: u64, action: Action) -> Event {
    Event {
        time: 0,
        work,
        action,
        after: 0,
    }
}

#[test]
fn lines_are_numbered_by_the_addresses_of_their_pages() {
    let mut builder = TraceBuilder::new(["0", "0.1"], 64, 4096).unwrap();
    let (first, second) = (ThreadIdx(0), ThreadIdx(1));
    builder.push(first, &event(3, Action::Create(1)));
    builder.push(first, &event(1, Action::Write(64 * 900 + 5)));
    builder.push(second, &event(1, Action::Read(64 * 7 + 63)));
    builder.push(second, &event(1, Action::Acquire(4)));
    builder.push(first, &event(1, Action::Release(4)));
    builder.push(second, &event((1 << 33) + 9, Action::Acquire(4)));
    builder.push(second, &event(2, Action::End));
    let trace = builder.finish().unwrap();
    assert_eq!(trace.pages(), [7, 900]);
    assert_eq!((trace.records(), trace.accesses()), (7, (1 << 33) + 18));
    let steps = |thread: usize| -> Vec<(Step, u64, u32)> {
        let unpack = |event: &Packed| (event.step(), event.work(), event.value());
        trace.threads[thread].events.iter().map(unpack).collect()
    };
    assert_eq!(
        steps(0),
        [
            (Step::Create, 3, 1),
            (Step::Write, 1, 64 + 5),
            (Step::Release, 1, 0)
        ]
    );
    let rest = ((1u64 << 33) + 9) - 2 * u64::from(u32::MAX);
    assert_eq!(
        steps(1),
        [
            (Step::Read, 1, 63),
            (Step::Work, 0, 1),
            (Step::Work, 0, u32::MAX),
            (Step::Work, 0, u32::MAX),
            (Step::Work, 0, rest as u32),
            (Step::Acquire, 0, 0),
            (Step::Work, 0, 2)
        ]
    );
    assert_eq!(trace.acquires, [(0, 1)]);
    assert!(trace.threads[1].is_created && !trace.threads[0].is_created);
}

#[test]
fn impossible_amounts_of_work_are_refused() {
    let mut builder = TraceBuilder::new(["0"], 64, 4096).unwrap();
    builder.push(ThreadIdx(0), &event(u64::MAX, Action::Read(1)));
    builder.push(ThreadIdx(0), &event(u64::MAX, Action::End));
    assert_eq!(builder.finish().unwrap_err(), TraceError::TooLong);
}

#[test]
fn lines_keep_their_addresses_on_larger_pages() {
    let mut builder = TraceBuilder::new(["0"], 64, 4096).unwrap();
    let lines = [64 * 8 + 5, 64 * 11, 64 * 12 + 63, 64 * 100];
    for line in lines {
        builder.push(ThreadIdx(0), &event(1, Action::Read(line)));
    }
    builder.push(ThreadIdx(0), &event(1, Action::Acquire(3)));
    let small = builder.finish().unwrap();
    assert_eq!(small.pages(), [8, 11, 12, 100]);
    let large = small.clone().on_pages_of(16 << 10).unwrap();
    assert_eq!(
        (large.pages(), large.page_bytes()),
        (&[2, 3, 25][..], 16 << 10)
    );
    let events = &large.threads[0].events;
    for (event, line) in events.iter().zip(lines) {
        let page = large.pages()[(event.value() >> 8) as usize];
        assert_eq!(page << 8 | u64::from(event.value()) & 255, line);
    }
    assert_eq!(events[4], small.threads[0].events[4]);
    assert_eq!(
        small.clone().on_pages_of(4096).unwrap().pages(),
        small.pages()
    );
    assert!(small.clone().on_pages_of(2048).is_err() && small.on_pages_of(12 << 10).is_err());
}

#[test]
fn pages_hold_whole_lines() {
    assert!(TraceBuilder::new(["0"], 64, 4096 + 64).is_err());
    assert!(TraceBuilder::new(["0"], 64, 32).is_err());
}
