//! Flags of events, found once when a trace is complete: loads that continue a stream, and lines of pages that one
//! thread uses.

use super::Thread;
use crate::event::{PRIVATE, Packed, STREAMED, Step};
use crate::streams::Streams;
use crate::windows::Windowed;

/// No thread uses the page.
const NOBODY: u32 = u32::MAX - 1;
/// The page is used by several threads.
const SEVERAL: u32 = u32::MAX;

/// The only thread that uses each page, or [`NOBODY`] or [`SEVERAL`].
struct Users {
    threads: Vec<u32>,
    page_shift: u32,
}

impl Users {
    fn add(&mut self, thread: u32, line: u32) {
        let user = &mut self.threads[(line >> self.page_shift) as usize];
        *user = match *user {
            NOBODY => thread,
            same if same == thread => thread,
            _ => SEVERAL,
        };
    }

    fn add_all(&mut self, thread: u32, events: &[Packed]) {
        for event in events.iter().filter(|event| event.step().has_line()) {
            self.add(thread, event.value());
        }
    }

    /// Sets the flags of a thread's events.
    fn set_flags(&self, streams: &mut Streams, events: &mut [Packed]) {
        for event in events.iter_mut().filter(|event| event.step().has_line()) {
            event.0 &= !(STREAMED | PRIVATE);
            if event.step() == Step::Read && streams.is_continued(event.value()) {
                event.0 |= STREAMED;
            }
            if self.threads[(event.value() >> self.page_shift) as usize] != SEVERAL {
                event.0 |= PRIVATE;
            }
        }
    }
}

/// Sets the flags of all events; returns the only user of each page, or a number that no thread has.
pub(super) fn set_flags(
    threads: &mut [Thread],
    mut windowed: Option<&mut Windowed>,
    pages: usize,
    page_shift: u32,
) -> Vec<u32> {
    let mut users = Users {
        threads: vec![NOBODY; pages],
        page_shift,
    };
    for (thread, at) in threads.iter().zip(0u32..) {
        users.add_all(at, &thread.events);
    }
    if let Some(windowed) = &windowed {
        for slice in windowed.windows.iter().flatten() {
            users.add_all(slice.thread, &slice.warm);
            users.add_all(slice.thread, &slice.detail);
        }
        for touch in &windowed.touches {
            users.add(touch.thread, touch.line);
        }
    }
    let mut streams = vec![Streams::default(); threads.len()];
    for (thread, streams) in threads.iter_mut().zip(&mut streams) {
        users.set_flags(streams, &mut thread.events);
    }
    if let Some(windowed) = &mut windowed {
        for slice in windowed.windows.iter_mut().flatten() {
            let streams = &mut streams[slice.thread as usize];
            users.set_flags(streams, &mut slice.warm);
            users.set_flags(streams, &mut slice.detail);
        }
    }
    users.threads
}
