//! Merges all threads of a recording into one order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};

use super::{AccessTrace, StreamEvents};
use crate::error::FormatError;

/// The events of all threads, ordered by their virtual clocks. What a thread did before it released a word comes
/// before what another thread does after it has acquired it: the clock of an acquiring thread is not earlier than
/// that of the releasing one was, and advances with its next access. Simultaneous events are ordered by thread,
/// acquires last; the order within a thread is kept. The order depends only on the events, not on their order in the
/// file.
///
/// Memory: one unpacked block, some 100 KiB, per thread.
#[derive(Debug)]
pub struct Order<'a> {
    streams: Vec<Waiting<'a>>,
    next: BinaryHeap<SortKey>,
    failed: bool,
}

/// Sort key of a stream's next event: time, whether it is an acquire, thread, stream.
type SortKey = Reverse<(u64, bool, ThreadIdx, usize)>;

/// A thread, its next event, and the events after it.
#[derive(Debug)]
struct Waiting<'a> {
    thread: ThreadIdx,
    event: Option<Event>,
    events: StreamEvents<'a>,
}

impl<'a> Order<'a> {
    /// The threads of `traces` whose paths `thread_of` knows; others are left out.
    ///
    /// # Errors
    /// [`FormatError`] of reading the first events.
    pub fn new(
        traces: &'a [AccessTrace],
        thread_of: impl Fn(&str) -> Option<ThreadIdx>,
    ) -> Result<Self, FormatError> {
        let mut order = Self {
            streams: Vec::new(),
            next: BinaryHeap::new(),
            failed: false,
        };
        for trace in traces {
            for (at, stream) in trace.streams.iter().enumerate() {
                if let Some(thread) = thread_of(&stream.path) {
                    order.streams.push(Waiting {
                        thread,
                        event: None,
                        events: trace.events(at),
                    });
                    let key = order.advance(order.streams.len() - 1)?;
                    order.next.extend(key);
                }
            }
        }
        Ok(order)
    }

    /// Reads a stream's next event and returns its sort key; `None` at the end.
    fn advance(&mut self, stream: usize) -> Result<Option<SortKey>, FormatError> {
        let waiting = &mut self.streams[stream];
        waiting.event = waiting.events.next().transpose()?;
        Ok(waiting.event.as_ref().map(|event| {
            let acquires = matches!(event.action, Action::Acquire(_));
            Reverse((event.time, acquires, waiting.thread, stream))
        }))
    }
}

impl Iterator for Order<'_> {
    type Item = Result<(ThreadIdx, Event), FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let &Reverse((_, _, thread, stream)) = self.next.peek()?;
        let event = self.streams[stream].event.take()?;
        match self.advance(stream) {
            // Replaces the top of the heap instead of a pop and a push.
            Ok(Some(key)) => *self.next.peek_mut()? = key,
            Ok(None) => drop(self.next.pop()),
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        }
        Some(Ok((thread, event)))
    }
}
