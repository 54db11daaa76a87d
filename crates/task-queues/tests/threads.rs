//! The queues with real elements on real threads: each element comes out once, with the contents written before it was
//! put in, and is freed once.
//! | `make miri` runs these tests too: there, loads may return any value that the memory model allows, and use after
//! free, data races and leaks are errors.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::thread;

use numaloc_task_queues::{Credits, Deque, Inbox, Latch, Linked, Steal};

const ELEMENTS: usize = if cfg!(miri) { 40 } else { 20_000 };
const THIEVES: usize = 2;

/// Written by one thread and read by another, without an atomic.
struct Item {
    link: AtomicPtr<Item>,
    number: usize,
}

// SAFETY: the field is used for nothing else.
unsafe impl Linked for Item {
    fn link(&self) -> &AtomicPtr<Item> {
        &self.link
    }
}

fn item(number: usize) -> *mut Item {
    let link = AtomicPtr::default();
    Box::into_raw(Box::new(Item { link, number }))
}

/// Frees an element taken from a queue, and counts it.
fn take(seen: &[AtomicUsize], item: *mut Item) {
    // SAFETY: made by `item`, and only who took it out has it.
    let item = unsafe { Box::from_raw(item) };
    seen[item.number].fetch_add(1, Relaxed);
}

fn none_seen() -> Vec<AtomicUsize> {
    (0..ELEMENTS).map(|_| AtomicUsize::new(0)).collect()
}

fn each_once(seen: &[AtomicUsize]) {
    assert!(seen.iter().all(|times| times.load(Relaxed) == 1));
}

#[test]
fn a_deque_that_grows_under_thieves_gives_each_element_once() {
    let (deque, seen) = (Deque::<Item>::new(2), none_seen());
    let remaining = AtomicUsize::new(ELEMENTS);
    thread::scope(|scope| {
        for _ in 0..THIEVES {
            scope.spawn(|| {
                while remaining.load(Relaxed) > 0 {
                    match deque.steal() {
                        Steal::Success(item) => {
                            take(&seen, item);
                            remaining.fetch_sub(1, Relaxed);
                        }
                        Steal::Retry | Steal::Empty => thread::yield_now(),
                    }
                }
            });
        }
        for number in 0..ELEMENTS {
            // SAFETY: this thread is the owner.
            unsafe { deque.push(item(number)) };
            if number % 3 == 0 {
                // SAFETY: as above.
                if let Some(item) = unsafe { deque.pop() } {
                    take(&seen, item);
                    remaining.fetch_sub(1, Relaxed);
                }
            }
        }
    });
    assert!(deque.is_empty());
    each_once(&seen);
}

#[test]
fn an_inbox_gives_each_element_once_and_those_of_one_thread_in_order() {
    let (inbox, seen) = (Inbox::<Item>::new(), none_seen());
    thread::scope(|scope| {
        for half in [0..ELEMENTS / 2, ELEMENTS / 2..ELEMENTS] {
            let inbox = &inbox;
            scope.spawn(move || {
                for number in half {
                    // SAFETY: fresh, and freed only after it was taken out.
                    unsafe { inbox.push(item(number)) };
                }
            });
        }
        let (mut taken, mut last) = (0, [None; 2]);
        while taken < ELEMENTS {
            for item in inbox.take_all() {
                // SAFETY: taken out, so ours alone.
                let number = unsafe { (*item).number };
                let last = &mut last[number / (ELEMENTS / 2)];
                assert!(*last < Some(number));
                *last = Some(number);
                take(&seen, item);
                taken += 1;
            }
            thread::yield_now();
        }
    });
    assert!(inbox.is_empty());
    each_once(&seen);
}

#[test]
fn a_latch_fires_once_after_everything_that_workers_did() {
    let (latch, fired) = (Latch::new(THIEVES as i64), AtomicUsize::new(0));
    let done: Vec<AtomicUsize> = (0..THIEVES).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for me in 0..THIEVES {
            let (latch, fired, done) = (&latch, &fired, &done);
            scope.spawn(move || {
                // The worker's own task creates the others; each takes one credit.
                let mut credits = Credits::default();
                for _ in 0..ELEMENTS {
                    credits.spend(latch);
                }
                for _ in 0..=ELEMENTS {
                    done[me].fetch_add(1, Relaxed);
                    credits.regain(latch);
                }
                if credits.return_all(latch) {
                    let all: usize = done.iter().map(|done| done.load(Relaxed)).sum();
                    assert_eq!(all, THIEVES * (ELEMENTS + 1));
                    fired.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(fired.load(Relaxed), 1);
}
