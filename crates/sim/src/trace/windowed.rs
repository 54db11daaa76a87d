//! Builds traces that have the requests of windows only.

use numaloc_model::ThreadIdx;
use numaloc_model::trace::TracePart;

use super::{TraceBuilder, TraceError};
use crate::event::{Packed, Step, WORK_BITS};
use crate::windows::{Collector, only_work};

impl TraceBuilder {
    /// Begins a part of a trace with windows.
    pub(super) fn begin(&mut self, thread: ThreadIdx, part: TracePart) {
        self.note_requests(thread);
        let threads = self.threads.len();
        let windows = self.windows.get_or_insert_with(|| Collector::new(threads));
        if !windows.begin(thread.index(), part) {
            self.error.get_or_insert(TraceError::TooManyIntervals);
        }
    }

    /// Notes the requests that a thread of a trace with windows made before its next event.
    pub(super) fn note_requests(&mut self, thread: ThreadIdx) {
        if let Some(windows) = &mut self.windows {
            let events = &self.threads[thread.index()].events;
            windows.note_requests(thread.index(), events.len());
        }
    }

    /// Adds an event to a trace with windows: requests apart, their work and everything else as events.
    pub(super) fn push_windowed(
        &mut self,
        thread: ThreadIdx,
        (step, after): (Step, u8),
        work: u64,
        value: u32,
    ) {
        let Some(windows) = &mut self.windows else {
            return;
        };
        let mut takes_time = true;
        let at = thread.index();
        if step.has_line() {
            let mut small = work;
            if work >= 1 << WORK_BITS {
                small = 0;
                only_work(work).for_each(|event| {
                    windows.add(at, event);
                });
            }
            takes_time = windows.add(at, Packed::new(step, small, value).after(after));
            self.records += u64::from(takes_time);
        } else {
            only_work(work).for_each(|event| {
                windows.add(at, event);
            });
            if matches!(step, Step::Acquire | Step::Release) {
                // The requests before it are complete when the thread goes on.
                windows.add(at, Packed::new(step, 0, value));
            }
        }
        let events = &mut self.threads[at].events;
        if takes_time {
            match events.last_mut() {
                Some(last)
                    if last.step() == Step::Work && u64::from(last.value()) + work < 1 << 32 =>
                {
                    *last = Packed::new(Step::Work, 0, last.value() + work as u32);
                }
                _ => events.extend(only_work(work)),
            }
        }
        if !step.has_line() && step != Step::Work {
            windows.note_requests(at, events.len());
            events.push(Packed::new(step, 0, value));
            self.records += 1;
        }
    }
}
