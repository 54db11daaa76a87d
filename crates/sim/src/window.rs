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
const FARTHEST: i32 = 2;

/// The streams of a core, the most recent first.
#[derive(Clone, Debug)]
struct Streams {
    /// Last line of each.
    last: [u32; STREAMS],
    /// Distance of its last two lines, and the number of lines seen since its first, up to [`CONFIRMED`].
    steps: [(i8, u8); STREAMS],
}

/// Last line of a stream that is not there: far from every line, of which there are fewer than 2^31.
const NO_LINE: u32 = u32::MAX - 64;

impl Streams {
    /// Whether `line` continues a recognised stream; records it in either case.
    #[inline]
    fn is_continued(&mut self, line: u32) -> bool {
        let distance = |last: u32| line.wrapping_sub(last) as i32;
        let mut near = 0u32;
        for (at, &last) in self.last.iter().enumerate() {
            let is_near = distance(last).wrapping_add(FARTHEST) as u32 <= 2 * FARTHEST as u32;
            near |= u32::from(is_near && line != last) << at;
        }
        while near != 0 {
            let at = near.trailing_zeros() as usize;
            near &= near - 1;
            let (step, seen) = self.steps[at];
            let distance = distance(self.last[at]) as i8;
            if seen == 0 || step == distance {
                let seen = (seen + 1).min(CONFIRMED);
                self.put_first(at, line, (distance, seen));
                return seen == CONFIRMED;
            }
        }
        self.put_first(STREAMS - 1, line, (0, 0));
        false
    }

    /// Moves the streams before `at` back by one, over the one there, and puts one in front.
    #[inline]
    fn put_first(&mut self, at: usize, last: u32, step: (i8, u8)) {
        if at > 0 {
            self.last.copy_within(..at, 1);
            self.steps.copy_within(..at, 1);
        }
        self.last[0] = last;
        self.steps[0] = step;
    }
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
    streams: Streams,
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
            streams: Streams {
                last: [NO_LINE; STREAMS],
                steps: [(0, 0); STREAMS],
            },
        }
    }

    /// Whether `line` continues a stream; records it in either case.
    #[inline]
    pub(crate) fn is_streamed(&mut self, line: u32) -> bool {
        self.most_streamed != 0 && self.streams.is_continued(line)
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
