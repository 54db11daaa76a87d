//! A set-associative cache of line numbers, with true LRU or RRIP.

use crate::prefetch::prefetch;

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lines it holds.
    pub lines: u64,
    /// Lines of a set.
    pub ways: u64,
}

impl Shape {
    /// A cache of `bytes` with lines of `line_bytes`; at least one set.
    #[must_use]
    pub fn of_bytes(bytes: u64, ways: u32, line_bytes: u64) -> Self {
        let lines = (bytes / line_bytes).max(1);
        Self {
            lines,
            ways: u64::from(ways).clamp(1, lines),
        }
    }
}

/// Which line of a full set is evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used one.
    #[default]
    Lru,
    /// Static re-reference interval prediction with 2 bits and hit priority (SRRIP-HP; Jaleel and others, ISCA 2010): a
    /// new line is expected back late, one that was hit soon; the first one expected latest is evicted. Lines that are
    /// used once do not displace those used again.
    Rrip,
}

const EMPTY: u32 = u32::MAX;
/// The line differs from memory.
const DIRTY: u32 = 1 << 31;
/// Largest line number that fits next to the mark.
pub(crate) const MOST_LINES: u64 = (1 << 31) - 1;

/// Re-reference prediction values: of a new line, and of the line to evict.
const LONG: u8 = 2;
const DISTANT: u8 = 3;

/// Number of tags that are compared and moved at once.
const CHUNK: usize = 4;

/// Tags of each set: with LRU, the most recent first; then at least one that is always empty, so that all tags of a set
/// can be moved back by one in whole chunks.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    tags: Vec<[u32; CHUNK]>,
    /// With RRIP, the prediction value of each tag; empty with LRU.
    predictions: Vec<u8>,
    ways: usize,
    /// Chunks from set to set.
    chunks: usize,
    sets: u32,
    /// 2^64 / sets, rounded up, for a remainder by two multiplications.
    inverse: u64,
}

impl Cache {
    pub(crate) fn new(shape: Shape, replacement: Replacement) -> Self {
        let sets = (shape.lines / shape.ways).clamp(1, MOST_LINES);
        let ways = shape.ways as usize;
        let chunks = (ways + 1).div_ceil(CHUNK);
        let tags = sets as usize * ways;
        Self {
            tags: vec![[EMPTY; CHUNK]; sets as usize * chunks],
            predictions: match replacement {
                Replacement::Lru => Vec::new(),
                Replacement::Rrip => vec![DISTANT; tags],
            },
            ways,
            chunks,
            sets: sets as u32,
            inverse: (u64::MAX / sets).wrapping_add(1),
        }
    }

    /// The set of a line.
    #[inline(always)]
    fn number(&self, line: u32) -> usize {
        // Lemire, Kaser and Kurz 2019: the fraction of line / sets, times sets, is the remainder. With one set, the
        // inverse is 0, and so is the remainder.
        let fraction = self.inverse.wrapping_mul(u64::from(line));
        let set = (u128::from(fraction) * u128::from(self.sets)) >> 64;
        set as usize
    }

    #[inline(always)]
    fn set(&mut self, line: u32) -> &mut [[u32; CHUNK]] {
        let start = self.number(line) * self.chunks;
        &mut self.tags[start..start + self.chunks]
    }

    /// Asks the host for the line's set.
    #[inline(always)]
    pub(crate) fn prefetch(&self, line: u32) {
        let start = self.number(line) * self.chunks;
        prefetch(&self.tags, start);
        prefetch(&self.tags, start + self.chunks - 1);
    }

    /// The line that the next one in the set of `line` evicts, with LRU; none if the set is not full.
    #[inline(always)]
    pub(crate) fn last(&self, line: u32) -> Option<u32> {
        let at = self.ways - 1;
        let last = self.tags[self.number(line) * self.chunks + at / CHUNK][at % CHUNK];
        (last != EMPTY).then_some(last & !DIRTY)
    }

    /// The prediction values of the line's set, with RRIP.
    fn predictions(&mut self, line: u32) -> &mut [u8] {
        let start = self.number(line) * self.ways;
        &mut self.predictions[start..start + self.ways]
    }

    /// Whether the line is cached; records its use.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) -> bool {
        let is_lru = self.predictions.is_empty();
        let set = self.set(line);
        let Some(at) = find(set, line) else {
            return false;
        };
        if is_lru {
            move_to_front(set.as_flattened_mut(), at);
        } else {
            self.predictions(line)[at] = 0;
        }
        true
    }

    /// Caches the line, written or not, and records its use; returns the evicted line, and whether it differs from
    /// memory.
    #[inline]
    pub(crate) fn put(&mut self, line: u32, dirty: bool) -> Option<(u32, bool)> {
        let mark = if dirty { DIRTY } else { 0 };
        if !self.predictions.is_empty() {
            return self.put_by_prediction(line, mark);
        }
        let ways = self.ways;
        let set = self.set(line);
        if let Some(at) = find(set, line) {
            let set = set.as_flattened_mut();
            move_to_front(set, at);
            set[0] |= mark;
            return None;
        }
        unpack(shift_in(set, ways, line | mark))
    }

    /// [`Cache::put`] of a line that is not cached.
    #[inline]
    pub(crate) fn put_absent(&mut self, line: u32, dirty: bool) -> Option<(u32, bool)> {
        if !self.predictions.is_empty() {
            return self.put(line, dirty);
        }
        let mark = if dirty { DIRTY } else { 0 };
        let ways = self.ways;
        let set = self.set(line);
        debug_assert!(find(set, line).is_none());
        unpack(shift_in(set, ways, line | mark))
    }

    /// Whether the line is cached and differs from memory.
    #[inline]
    pub(crate) fn is_dirty(&mut self, line: u32) -> bool {
        self.set(line).as_flattened().contains(&(line | DIRTY))
    }

    /// Marks the line as equal to memory.
    pub(crate) fn clean(&mut self, line: u32) {
        let set = self.set(line).as_flattened_mut();
        if let Some(tag) = set.iter_mut().find(|tag| **tag == line | DIRTY) {
            *tag = line;
        }
    }

    /// Removes the line; returns whether it was cached and differed from memory.
    pub(crate) fn remove(&mut self, line: u32) -> bool {
        let is_lru = self.predictions.is_empty();
        let set = self.set(line);
        let Some(at) = find(set, line) else {
            return false;
        };
        let set = set.as_flattened_mut();
        let dirty = set[at] & DIRTY != 0;
        set[at] = EMPTY;
        if is_lru {
            set[at..].rotate_left(1);
        }
        dirty
    }

    /// [`Cache::put`] with RRIP.
    fn put_by_prediction(&mut self, line: u32, mark: u32) -> Option<(u32, bool)> {
        let (ways, start) = (self.ways, self.number(line));
        let set = &mut self.tags[start * self.chunks..(start + 1) * self.chunks];
        let set = &mut set.as_flattened_mut()[..ways];
        let predictions = &mut self.predictions[start * ways..(start + 1) * ways];
        put_by_prediction(set, predictions, line, mark)
    }
}

/// [`Cache::put`] with RRIP.
fn put_by_prediction(
    set: &mut [u32],
    predictions: &mut [u8],
    line: u32,
    mark: u32,
) -> Option<(u32, bool)> {
    if let Some(at) = set.iter().position(|&tag| tag & !DIRTY == line) {
        predictions[at] = 0;
        set[at] |= mark;
        return None;
    }
    let at = match set.iter().position(|&tag| tag == EMPTY) {
        Some(empty) => empty,
        None => {
            let latest = predictions.iter().copied().max().unwrap_or(DISTANT);
            for prediction in &mut *predictions {
                *prediction += DISTANT - latest;
            }
            let first = predictions.iter().position(|&value| value == DISTANT);
            first.unwrap_or(0)
        }
    };
    predictions[at] = LONG;
    unpack(std::mem::replace(&mut set[at], line | mark))
}

/// A tag's line, and whether it differs from memory.
#[inline(always)]
fn unpack(tag: u32) -> Option<(u32, bool)> {
    (tag != EMPTY).then_some((tag & !DIRTY, tag & DIRTY != 0))
}

/// Position of the line in its set. Chunks are compared as a whole.
#[inline(always)]
fn find(set: &[[u32; CHUNK]], line: u32) -> Option<usize> {
    let is_it = |tag: &u32| *tag & !DIRTY == line;
    for (at, chunk) in set.iter().enumerate() {
        if chunk.iter().fold(false, |found, tag| found | is_it(tag)) {
            let within = chunk.iter().position(is_it)?;
            return Some(CHUNK * at + within);
        }
    }
    None
}

/// Puts a tag in front of the others of a set of `ways`; returns the last, in whose place the always empty tag comes.
#[inline(always)]
fn shift_in(set: &mut [[u32; CHUNK]], ways: usize, tag: u32) -> u32 {
    let mut before = tag;
    for chunk in &mut *set {
        let [first, second, third, fourth] = *chunk;
        *chunk = [before, first, second, third];
        before = fourth;
    }
    std::mem::replace(&mut set[ways / CHUNK][ways % CHUNK], EMPTY)
}

#[inline(always)]
fn move_to_front(set: &mut [u32], at: usize) {
    let tag = set[at];
    shift(set, at);
    set[0] = tag;
}

/// Moves the tags before `at` back by one, four at a time: sets are too short for the library's function to be worth
/// its call.
#[inline(always)]
fn shift(set: &mut [u32], mut at: usize) {
    let set = &mut set[..=at];
    while at >= 4 {
        let four = [set[at - 4], set[at - 3], set[at - 2], set[at - 1]];
        set[at - 3..=at].copy_from_slice(&four);
        at -= 4;
    }
    while at > 0 {
        set[at] = set[at - 1];
        at -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recent_line_of_a_set_is_evicted() {
        let mut cache = Cache::new(Shape { lines: 4, ways: 2 }, Replacement::Lru);
        assert_eq!(cache.put(0, true), None);
        assert_eq!(cache.put(2, false), None);
        assert!(cache.touch(0));
        assert_eq!(cache.put(4, false), Some((2, false)));
        assert_eq!(cache.put(6, false), Some((0, true)));
        assert!(!cache.touch(0));
        assert!(!cache.remove(4));
        assert!(!cache.touch(4));
    }

    /// Two lines in use and a scan of others, in one set of four.
    #[test]
    fn a_scan_evicts_lines_in_use_with_lru_but_not_with_rrip() {
        let hits = |replacement| {
            let mut cache = Cache::new(Shape { lines: 4, ways: 4 }, replacement);
            let mut hits = 0;
            for round in 0..100 {
                for used in [0, 1] {
                    if cache.touch(used) {
                        hits += 1;
                    } else {
                        cache.put(used, false);
                        cache.touch(used);
                    }
                }
                for scanned in 0..4 {
                    cache.put(2 + round * 4 + scanned, false);
                }
            }
            hits
        };
        assert_eq!(hits(Replacement::Lru), 0);
        assert!(hits(Replacement::Rrip) > 150, "{}", hits(Replacement::Rrip));
    }

    #[test]
    fn remainders_are_exact() {
        for sets in [1u64, 2, 3, 7, 40_960, 47_616, 65_521, 2_147_483_646] {
            let shape = Shape {
                lines: sets,
                ways: 1,
            };
            let mut cache = Cache::new(Shape { lines: 1, ways: 1 }, Replacement::Lru);
            (cache.sets, cache.inverse) = (sets as u32, (u64::MAX / shape.lines).wrapping_add(1));
            for line in (0..1000).chain((0..1000).map(|at| (1u32 << 31) - 2 - at * 1_999_993)) {
                assert_eq!(
                    cache.number(line) as u64,
                    u64::from(line) % sets,
                    "{line} {sets}"
                );
            }
        }
    }

    proptest! {
        /// Compares with a list for each set that shares no code with the cache.
        #[test]
        fn it_holds_what_a_list_of_recent_lines_holds(
            steps in proptest::collection::vec((0u32..40, any::<bool>(), 0u8..4), 1..400),
        ) {
            let mut cache = Cache::new(Shape { lines: 12, ways: 4 }, Replacement::Lru);
            let mut lists: Vec<Vec<(u32, bool)>> = vec![Vec::new(); 3];
            for (line, dirty, step) in steps {
                let list = &mut lists[line as usize % 3];
                let at = list.iter().position(|(there, _)| *there == line);
                match step {
                    0 => {
                        prop_assert_eq!(cache.touch(line), at.is_some());
                        if let Some(at) = at {
                            let entry = list.remove(at);
                            list.insert(0, entry);
                        }
                    }
                    1 => {
                        let was = at.is_some_and(|at| list.remove(at).1);
                        prop_assert_eq!(cache.remove(line), was);
                    }
                    _ => {
                        let evicted = cache.put(line, dirty);
                        let was = at.is_some_and(|at| list.remove(at).1);
                        list.insert(0, (line, was || dirty));
                        let expected = if list.len() > 4 { list.pop() } else { None };
                        prop_assert_eq!(evicted, expected);
                        prop_assert_eq!(cache.is_dirty(line), was || dirty);
                    }
                }
            }
        }

        /// Compares RRIP with a list of lines and predictions for each set that ages by single steps.
        #[test]
        fn rrip_evicts_what_ageing_by_single_steps_evicts(
            steps in proptest::collection::vec((0u32..30, any::<bool>(), 0u8..4), 1..400),
        ) {
            let mut cache = Cache::new(Shape { lines: 12, ways: 4 }, Replacement::Rrip);
            // Line, written, prediction.
            let mut lists: Vec<[Option<(u32, bool, u8)>; 4]> = vec![[None; 4]; 3];
            for (line, dirty, step) in steps {
                let list = &mut lists[line as usize % 3];
                let at = list.iter().position(|way| way.is_some_and(|(there, ..)| there == line));
                match (step, at) {
                    (0, at) => {
                        prop_assert_eq!(cache.touch(line), at.is_some());
                        if let Some(way) = at.and_then(|at| list[at].as_mut()) {
                            way.2 = 0;
                        }
                    }
                    (1, at) => {
                        let was = at.and_then(|at| list[at].take()).is_some_and(|way| way.1);
                        prop_assert_eq!(cache.remove(line), was);
                    }
                    (_, Some(at)) => {
                        prop_assert_eq!(cache.put(line, dirty), None);
                        let was = list[at].is_some_and(|way| way.1);
                        list[at] = Some((line, was || dirty, 0));
                    }
                    (_, None) => {
                        let at = list.iter().position(Option::is_none).unwrap_or_else(|| loop {
                            if let Some(at) = list.iter().position(|way| way.is_some_and(|way| way.2 == 3)) {
                                break at;
                            }
                            list.iter_mut().flatten().for_each(|way| way.2 += 1);
                        });
                        let expected = list[at].map(|way| (way.0, way.1));
                        list[at] = Some((line, dirty, 2));
                        prop_assert_eq!(cache.put(line, dirty), expected);
                    }
                }
            }
        }
    }
}
