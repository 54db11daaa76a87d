//! Memory-level parallelism: overlaps misses of a core.
//!
//! A load that misses does not stop an out-of-order core at once. The core continues for a window of accesses after its
//! oldest outstanding load, with a limited number of loads outstanding. Loads of a recognised stream were prefetched:
//! they wait only if the prefetcher has its maximum number of lines outstanding. Stores wait in a separate buffer.

use std::collections::VecDeque;

/// Number of streams that a core's prefetcher follows.
const STREAMS: usize = 16;
/// Number of lines after which a stream is recognised.
const CONFIRMED: u8 = 2;
/// Largest distance between consecutive lines of a stream.
const FARTHEST: i64 = 2;

#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u32,
    step: i64,
    seen: u8,
}

/// Outstanding lines of a core.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    accesses: u64,
    /// Loads: the number of the access, and the arrival time of its line.
    loads: VecDeque<(u64, u64)>,
    most_loads: usize,
    streamed: VecDeque<u64>,
    most_streamed: usize,
    stores: VecDeque<u64>,
    /// The most recent first.
    streams: Vec<Stream>,
}

impl Window {
    pub(crate) fn new(accesses: u64, outstanding: usize, prefetched: usize) -> Self {
        Self {
            accesses,
            loads: VecDeque::new(),
            most_loads: outstanding.max(1),
            streamed: VecDeque::new(),
            most_streamed: prefetched,
            stores: VecDeque::new(),
            streams: Vec::with_capacity(STREAMS),
        }
    }

    /// Whether `line` continues a stream; records it in either case.
    #[inline]
    pub(crate) fn is_streamed(&mut self, line: u32) -> bool {
        if self.most_streamed == 0 {
            return false;
        }
        let near = |stream: &Stream| {
            let step = i64::from(line) - i64::from(stream.last);
            step != 0 && step.abs() <= FARTHEST && (stream.seen == 0 || step == stream.step)
        };
        match self.streams.iter().position(near) {
            Some(at) => {
                self.streams[..=at].rotate_right(1);
                let stream = &mut self.streams[0];
                stream.step = i64::from(line) - i64::from(stream.last);
                stream.last = line;
                stream.seen = (stream.seen + 1).min(CONFIRMED);
                stream.seen == CONFIRMED
            }
            None => {
                if self.streams.len() == STREAMS {
                    self.streams.pop();
                }
                let stream = Stream {
                    last: line,
                    step: 0,
                    seen: 0,
                };
                self.streams.insert(0, stream);
                false
            }
        }
    }

    /// Time at which a load at `now`, the core's access number `at`, can be sent.
    #[inline]
    pub(crate) fn admit_load(&mut self, mut now: u64, at: u64) -> u64 {
        while let Some(&(asked, done)) = self.loads.front() {
            let must_wait = self.loads.len() >= self.most_loads || at - asked >= self.accesses;
            if done > now && !must_wait {
                break;
            }
            now = now.max(done);
            self.loads.pop_front();
        }
        now
    }

    pub(crate) fn add_load(&mut self, at: u64, done: u64) {
        self.loads.push_back((at, done));
    }

    /// Time at which a line of a stream can be requested.
    #[inline]
    pub(crate) fn admit_streamed(&mut self, now: u64) -> u64 {
        admit(&mut self.streamed, self.most_streamed, now)
    }

    pub(crate) fn add_streamed(&mut self, done: u64) {
        self.streamed.push_back(done);
    }

    /// Time at which a store can be sent.
    #[inline]
    pub(crate) fn admit_store(&mut self, now: u64) -> u64 {
        admit(&mut self.stores, self.most_loads, now)
    }

    pub(crate) fn add_store(&mut self, done: u64) {
        self.stores.push_back(done);
    }

    /// Time at which all requests outstanding at `now` are complete.
    pub(crate) fn drain(&mut self, now: u64) -> u64 {
        let loads = self.loads.drain(..).map(|(_, done)| done);
        let rest = self.streamed.drain(..).chain(self.stores.drain(..));
        loads.chain(rest).fold(now, u64::max)
    }
}

#[inline]
fn admit(outstanding: &mut VecDeque<u64>, most: usize, mut now: u64) -> u64 {
    while let Some(&done) = outstanding.front() {
        if done > now && outstanding.len() < most {
            break;
        }
        now = now.max(done);
        outstanding.pop_front();
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_overlap_up_to_their_number_and_the_window() {
        let mut window = Window::new(10, 2, 0);
        assert_eq!(window.admit_load(0, 1), 0);
        window.add_load(1, 100);
        assert_eq!(window.admit_load(1, 2), 1, "a second one overlaps");
        window.add_load(2, 101);
        assert_eq!(window.admit_load(2, 3), 100, "a third waits for the first");
        window.add_load(3, 200);
        assert_eq!(window.admit_load(110, 12), 110, "the second is long there");
        window.add_load(12, 210);
        assert_eq!(
            window.admit_load(111, 13),
            200,
            "ten accesses behind the oldest"
        );
        assert_eq!(window.drain(201), 210);
    }

    #[test]
    fn neighbours_in_one_direction_are_a_stream() {
        let mut window = Window::new(10, 2, 4);
        let streamed: Vec<bool> = [100, 500, 101, 499, 102, 498, 103, 900, 104]
            .map(|line| window.is_streamed(line))
            .to_vec();
        let expected = [false, false, false, false, true, true, true, false, true];
        assert_eq!(streamed, expected);
    }
}
