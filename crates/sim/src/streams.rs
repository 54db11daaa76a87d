//! Streams of loads, as a prefetcher recognises them: found once when a trace is complete, because they depend on
//! the order of a thread's loads alone.

/// Number of streams that are followed for each thread: the prefetchers of Intel's second-level caches follow 32 pages.
const STREAMS: usize = 32;
/// Number of lines after which a stream is recognised.
const CONFIRMED: u8 = 2;
/// Largest distance between consecutive lines of a stream.
const FARTHEST: i32 = 2;

/// The streams of a thread, the most recent first.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Last line of each.
    last: [u32; STREAMS],
    /// Distance of its last two lines, and the number of lines seen since its first, up to [`CONFIRMED`].
    steps: [(i8, u8); STREAMS],
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            last: [NO_LINE; STREAMS],
            steps: [(0, 0); STREAMS],
        }
    }
}

/// Last line of a stream that is not there: far from every line, of which there are fewer than 2^31.
const NO_LINE: u32 = u32::MAX - 64;

impl Streams {
    /// Whether `line` continues a recognised stream; records it in either case.
    #[inline]
    pub(crate) fn is_continued(&mut self, line: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_direction_are_a_stream() {
        let mut streams = Streams::default();
        let streamed: Vec<bool> = [100, 500, 101, 499, 102, 498, 103, 900, 104]
            .map(|line| streams.is_continued(line))
            .to_vec();
        let expected = [false, false, false, false, true, true, true, false, true];
        assert_eq!(streamed, expected);
    }
}
