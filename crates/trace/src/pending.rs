//! Created threads that have not been attached yet: announced by their creators, attached by themselves.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A created thread that has not been attached yet.
pub struct PendingThread {
    pub(crate) path: String,
    pub(crate) clock: u64,
    pub(crate) routine: u64,
    pub(crate) clear_tid: u64,
    /// Part of `clock` that the host's order of threads has added while the creator created others.
    pub(crate) lag: u64,
}

/// The announced threads of a process, by kernel id.
#[derive(Default)]
pub(crate) struct Announced {
    threads: Mutex<HashMap<u32, PendingThread>>,
    changed: Condvar,
}

impl Announced {
    /// Announces a created thread.
    pub fn add(&self, tid: u32, thread: PendingThread) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.insert(tid, thread);
        self.changed.notify_all();
    }

    /// Takes what was announced of the thread with this kernel id; waits for it at most as long as `limit`.
    pub fn take(&self, tid: u32, limit: Duration) -> Option<PendingThread> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut threads, _) = self
            .changed
            .wait_timeout_while(threads, limit, |known| !known.contains_key(&tid))
            .unwrap_or_else(PoisonError::into_inner);
        threads.remove(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(clock: u64) -> PendingThread {
        PendingThread {
            path: "0.1".to_owned(),
            clock,
            routine: 0,
            clear_tid: 0,
            lag: 0,
        }
    }

    #[test]
    fn a_thread_takes_its_own_announcement_once() {
        let announced = Announced::default();
        announced.add(5, thread(50));
        announced.add(6, thread(60));
        let clock = |tid| {
            announced
                .take(tid, Duration::ZERO)
                .map(|thread| thread.clock)
        };
        assert_eq!((clock(6), clock(6), clock(5)), (Some(60), None, Some(50)));
    }

    #[test]
    fn a_thread_that_comes_first_waits_for_its_creator() {
        let announced = Announced::default();
        std::thread::scope(|scope| {
            // No limit: a busy host may delay the creator by any time.
            let waiting = scope.spawn(|| announced.take(7, Duration::MAX));
            announced.add(6, thread(60));
            announced.add(7, thread(70));
            assert_eq!(waiting.join().unwrap().map(|thread| thread.clock), Some(70));
        });
    }
}
