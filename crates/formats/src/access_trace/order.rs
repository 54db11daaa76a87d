//! All threads of a recording in one order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};

use super::{AccessTrace, StreamEvents};
use crate::error::FormatError;

/// The events of all threads by their virtual clocks, so that whatever a thread did before it released a word comes before what
/// another does after it has acquired it: an acquiring thread's clock is not earlier than the releasing one's was, and moves
/// on with its next access. Events of one time come in the order of threads, acquires last; each thread's stay in its order. The order follows from
/// the events alone, not from how the file was written.
///
/// Memory: one unpacked block, some 100 KiB, for each thread.
#[derive(Debug)]
pub struct Order<'a> {
    streams: Vec<Waiting<'a>>,
    next: BinaryHeap<Place>,
    failed: bool,
}

/// Where a stream's next event belongs: time, whether it is an acquire, thread, stream.
type Place = Reverse<(u64, bool, ThreadIdx, usize)>;

/// A thread, its next event, and those after it.
#[derive(Debug)]
struct Waiting<'a> {
    thread: ThreadIdx,
    event: Option<Event>,
    events: StreamEvents<'a>,
}

impl<'a> Order<'a> {
    /// The threads of `traces`, where `thread_of` knows their paths; the others are left out.
    ///
    /// # Errors
    /// [`FormatError`] of the first events.
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
                    let place = order.advance(order.streams.len() - 1)?;
                    order.next.extend(place);
                }
            }
        }
        Ok(order)
    }

    /// Takes a stream's next event; its place in the order, if there is one.
    fn advance(&mut self, stream: usize) -> Result<Option<Place>, FormatError> {
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
            // One step down the heap instead of a pop and a push.
            Ok(Some(place)) => *self.next.peek_mut()? = place,
            Ok(None) => drop(self.next.pop()),
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        }
        Some(Ok((thread, event)))
    }
}
