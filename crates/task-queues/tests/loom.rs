//! Model-checked tests: `make test-tasks-loom` (or `RUSTFLAGS="--cfg loom" cargo test -p numaloc-task-queues
//! --release`). Covers every interleaving that the memory model allows, for small cases.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use loom::thread;
use numaloc_task_queues::{Credits, Deque, Inbox, Latch, Linked, Steal};

fn number(at: usize) -> *mut u8 {
    at as *mut u8
}

/// Every element comes out exactly once, while the deque grows during a steal.
#[test]
fn deque_gives_each_element_once() {
    loom::model(|| {
        let deque = Arc::new(Deque::<u8>::new(2));
        let taken = Arc::new([
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        ]);
        let take = |taken: &[AtomicUsize; 3], item: *mut u8| {
            taken[item as usize - 1].fetch_add(1, Ordering::Relaxed);
        };
        let thief = {
            let (deque, taken) = (deque.clone(), taken.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Steal::Success(item) = deque.steal() {
                        take(&taken, item);
                    }
                }
            })
        };
        for at in 1..=3 {
            // SAFETY: this thread is the owner.
            unsafe { deque.push(number(at)) };
        }
        // SAFETY: as above.
        while let Some(item) = unsafe { deque.pop() } {
            take(&taken, item);
        }
        thief.join().unwrap();
        assert!(taken.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    });
}

/// The same with a thief that takes halves, while the owner pushes more (which grows the deque) and pops.
#[test]
fn deque_gives_each_element_once_to_a_thief_of_halves() {
    loom::model(|| {
        let deque = Arc::new(Deque::<u8>::new(2));
        let taken = Arc::new([
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        ]);
        let take = |taken: &[AtomicUsize; 4], item: *mut u8| {
            taken[item as usize - 1].fetch_add(1, Ordering::Relaxed);
        };
        for at in 1..=3 {
            // SAFETY: this thread is the owner.
            unsafe { deque.push(number(at)) };
        }
        let thief = {
            let (deque, taken) = (deque.clone(), taken.clone());
            thread::spawn(move || {
                let mut stolen = Vec::new();
                deque.steal_half(&mut stolen, 4);
                assert!(stolen.is_sorted(), "the oldest first");
                for item in stolen {
                    take(&taken, item);
                }
            })
        };
        // SAFETY: as above.
        unsafe {
            if let Some(item) = deque.pop() {
                take(&taken, item);
            }
            deque.push(number(4));
            while let Some(item) = deque.pop() {
                take(&taken, item);
            }
        }
        thief.join().unwrap();
        assert!(taken.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    });
}

struct Item {
    link: AtomicPtr<Item>,
    payload: AtomicUsize,
}

// SAFETY: the field is used for nothing else.
unsafe impl Linked for Item {
    fn link(&self) -> &AtomicPtr<Item> {
        &self.link
    }
}

/// Two threads push, one takes: no element is lost or duplicated, contents are visible, and order is oldest first.
#[test]
fn inbox_loses_nothing() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<Item>::new());
        let item = |payload| {
            Box::into_raw(Box::new(Item {
                link: AtomicPtr::new(std::ptr::null_mut()),
                payload: AtomicUsize::new(payload),
            })) as usize
        };
        let writers: Vec<_> = [vec![1, 2], vec![10]]
            .into_iter()
            .map(|payloads: Vec<usize>| {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    for payload in payloads {
                        // SAFETY: fresh, and freed only after it was taken.
                        unsafe { inbox.push(item(payload) as *mut Item) };
                    }
                })
            })
            .collect();
        let mut got = Vec::new();
        let mut take = || {
            for item in inbox.take_all() {
                // SAFETY: taken out, so ours alone.
                let item = unsafe { Box::from_raw(item) };
                got.push(item.payload.load(Ordering::Relaxed));
            }
        };
        take();
        for writer in writers {
            writer.join().unwrap();
        }
        take();
        let place = |n| got.iter().position(|&x| x == n).unwrap();
        assert!(got.len() == 3 && place(1) < place(2) && place(10) < 3);
    });
}

/// Two workers create and complete tasks of one scope: it fires once, and only when all are complete.
#[test]
fn latch_fires_once_and_last() {
    loom::model(|| {
        let latch = Arc::new(Latch::new(1));
        let done = Arc::new(AtomicUsize::new(0));
        let fired = Arc::new(AtomicUsize::new(0));
        let mut mine = Credits::default();
        // The scope's own task creates two, one of which another worker completes.
        mine.spend(&latch);
        mine.spend(&latch);
        let other = {
            let (latch, done, fired) = (latch.clone(), done.clone(), fired.clone());
            thread::spawn(move || {
                let mut credits = Credits::default();
                // It creates a grandchild, and completes both.
                credits.spend(&latch);
                for _ in 0..2 {
                    done.fetch_add(1, Ordering::Relaxed);
                    credits.regain(&latch);
                }
                if credits.return_all(&latch) {
                    assert_eq!(done.load(Ordering::Relaxed), 4);
                    fired.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // The scope's own task and the remaining child complete here.
        for _ in 0..2 {
            done.fetch_add(1, Ordering::Relaxed);
            mine.regain(&latch);
        }
        if mine.return_all(&latch) {
            assert_eq!(done.load(Ordering::Relaxed), 4);
            fired.fetch_add(1, Ordering::Relaxed);
        }
        other.join().unwrap();
        assert_eq!(fired.load(Ordering::Relaxed), 1);
    });
}
