//! A set-associative cache of line numbers, with true LRU or RRIP.

use crate::line::Line;
use crate::prefetch::prefetch;
use crate::tags::{Lanes, Narrow, Wide};

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

/// Largest number of lines: a tag of 32 bits has two marks, and one value that stands for no line.
pub(crate) const MOST_LINES: u64 = (1 << 30) - 1;

/// Re-reference prediction values: of a new line, and of the line to evict.
const LONG: u8 = 2;
const DISTANT: u8 = 3;

/// Words of a line of the host's caches.
const HOST_LINE: usize = 8;

/// An evicted line, and whether it differs from memory.
pub(crate) type Evicted = Option<(Line, bool)>;

/// What [`Cache::use_or_put`] found.
pub(crate) enum Used {
    /// The line.
    Hit,
    /// Not the line, which is there now.
    Put(Evicted),
}

/// Tags of each set: with LRU, the most recent first. A tag is a line's number divided by the number of sets, and
/// whether its page is private.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    words: Vec<u64>,
    /// With RRIP, the prediction value of each tag; empty with LRU.
    predictions: Vec<u8>,
    ways: usize,
    /// Where the first set begins.
    first: usize,
    /// Words of a set, and from set to set.
    used: usize,
    stride: usize,
    sets: u32,
    /// 2^64 / sets, rounded up, for a quotient by one multiplication.
    inverse: u64,
    /// Whether tags are too large for narrow lanes.
    is_wide: bool,
}

/// Calls a function of the cache for the size of its lanes.
macro_rules! by_lanes {
    ($cache:ident . $function:ident ( $($argument:expr),* )) => {
        match $cache.is_wide {
            false => $cache.$function::<Narrow>($($argument),*),
            true => $cache.$function::<Wide>($($argument),*),
        }
    };
}

impl Cache {
    /// An empty cache for lines with numbers below `lines`.
    pub(crate) fn new(shape: Shape, replacement: Replacement, lines: usize) -> Self {
        let sets = (shape.lines / shape.ways).clamp(1, MOST_LINES);
        let ways = shape.ways as usize;
        // A tag has two bits less than a lane, and not all of them are set.
        let is_wide = lines as u64 / sets >= Narrow::EMPTY / 2;
        let lanes = if is_wide { Wide::LANES } else { Narrow::LANES };
        let used = ways.div_ceil(lanes);
        // A set in as few lines of the host as possible, where that does not take more than a third more memory.
        let stride = match used.next_power_of_two() {
            power if power <= HOST_LINE && 3 * power <= 4 * used => power,
            _ => used,
        };
        let words = vec![u64::MAX; sets as usize * stride + HOST_LINE - 1];
        let first = words.as_ptr().align_offset(64);
        Self {
            // Without a number of words to the next line of the host, any will do.
            first: if first < HOST_LINE { first } else { 0 },
            words,
            predictions: match replacement {
                Replacement::Lru => Vec::new(),
                Replacement::Rrip => vec![DISTANT; sets as usize * ways],
            },
            ways,
            used,
            stride,
            sets: sets as u32,
            inverse: (u64::MAX / sets).wrapping_add(1),
            is_wide,
        }
    }

    /// The quotient of a line's number by the number of sets, and the remainder: its set.
    #[inline(always)]
    fn divide(&self, number: u32) -> (u32, u32) {
        if self.sets == 1 {
            return (number, 0);
        }
        // Lemire, Kaser and Kurz 2019: exact, because the error of the inverse times a number of 31 bits is below 1.
        let quotient = ((u128::from(self.inverse) * u128::from(number)) >> 64) as u32;
        (quotient, number - quotient * self.sets)
    }

    /// A line's set, and its tag.
    #[inline(always)]
    fn place<L: Lanes>(&self, line: Line) -> (u32, u64) {
        let (quotient, set) = self.divide(line.number());
        let mark = u64::from(line.is_private()) << (L::BITS - 2);
        (set, u64::from(quotient) | mark)
    }

    /// The line with that lane in a set, and whether it differs from memory.
    #[inline(always)]
    fn unpack<L: Lanes>(&self, set: u32, lane: u64) -> Evicted {
        if lane & L::EMPTY == L::EMPTY {
            return None;
        }
        let private = 1 << (L::BITS - 2);
        let number = (lane & (private - 1)) as u32 * self.sets + set;
        Some((Line::new(number, lane & private != 0), lane & L::DIRTY != 0))
    }

    #[inline(always)]
    fn set(&mut self, set: u32) -> &mut [u64] {
        let start = self.first + set as usize * self.stride;
        &mut self.words[start..start + self.used]
    }

    /// Asks the host for the line's set.
    #[inline(always)]
    pub(crate) fn prefetch(&self, line: Line) {
        let start = self.first + self.divide(line.number()).1 as usize * self.stride;
        prefetch(&self.words, start);
        if !self.stride.is_power_of_two() {
            prefetch(&self.words, start + self.used - 1);
        }
    }

    /// The line that the next one in the set of `line` evicts, with LRU; none if the set is not full.
    #[inline(always)]
    pub(crate) fn last(&self, line: Line) -> Option<Line> {
        by_lanes!(self.last_of(line))
    }

    #[inline(always)]
    fn last_of<L: Lanes>(&self, line: Line) -> Option<Line> {
        let (set, _) = self.place::<L>(line);
        let start = self.first + set as usize * self.stride;
        let lane = L::get(&self.words[start..start + self.used], self.ways - 1);
        self.unpack::<L>(set, lane).map(|(line, _)| line)
    }

    /// The prediction values of a set, with RRIP.
    fn predictions(&mut self, set: u32) -> &mut [u8] {
        let start = set as usize * self.ways;
        &mut self.predictions[start..start + self.ways]
    }

    /// Whether the line is cached; records its use.
    #[inline]
    pub(crate) fn touch(&mut self, line: Line) -> bool {
        by_lanes!(self.touch_in(line))
    }

    #[inline(always)]
    fn touch_in<L: Lanes>(&mut self, line: Line) -> bool {
        let is_lru = self.predictions.is_empty();
        let (number, tag) = self.place::<L>(line);
        let set = self.set(number);
        let Some(at) = L::find(set, tag) else {
            return false;
        };
        if is_lru {
            L::put_first(set, at, L::get(set, at));
        } else {
            self.predictions(number)[at] = 0;
        }
        true
    }

    /// Caches the line, written or not, and records its use; returns the evicted line, and whether it differs from
    /// memory.
    #[inline]
    pub(crate) fn put(&mut self, line: Line, dirty: bool) -> Evicted {
        match by_lanes!(self.put_in(line, dirty)) {
            Used::Hit => None,
            Used::Put(evicted) => evicted,
        }
    }

    /// Caches a line that is not there as unwritten, and records the use of one that is there.
    #[inline]
    pub(crate) fn use_or_put(&mut self, line: Line) -> Used {
        by_lanes!(self.put_in(line, false))
    }

    #[inline(always)]
    fn put_in<L: Lanes>(&mut self, line: Line, dirty: bool) -> Used {
        let mark = if dirty { L::DIRTY } else { 0 };
        let (number, tag) = self.place::<L>(line);
        if !self.predictions.is_empty() {
            return self.put_by_prediction::<L>(number, tag, mark);
        }
        let ways = self.ways;
        let set = self.set(number);
        if let Some(at) = L::find(set, tag) {
            L::put_first(set, at, L::get(set, at) | mark);
            return Used::Hit;
        }
        let last = L::shift_in(set, ways, tag | mark);
        Used::Put(self.unpack::<L>(number, last))
    }

    /// [`Cache::put`] of a line that is not cached.
    #[inline]
    pub(crate) fn put_absent(&mut self, line: Line, dirty: bool) -> Evicted {
        by_lanes!(self.put_absent_in(line, dirty))
    }

    #[inline(always)]
    fn put_absent_in<L: Lanes>(&mut self, line: Line, dirty: bool) -> Evicted {
        if !self.predictions.is_empty() {
            return self.put(line, dirty);
        }
        let mark = if dirty { L::DIRTY } else { 0 };
        let (number, tag) = self.place::<L>(line);
        let ways = self.ways;
        let set = self.set(number);
        debug_assert!(L::find(set, tag).is_none());
        let last = L::shift_in(set, ways, tag | mark);
        self.unpack::<L>(number, last)
    }

    /// Whether the line is cached and differs from memory.
    #[inline]
    pub(crate) fn is_dirty(&mut self, line: Line) -> bool {
        by_lanes!(self.is_dirty_in(line))
    }

    #[inline(always)]
    fn is_dirty_in<L: Lanes>(&mut self, line: Line) -> bool {
        let (number, tag) = self.place::<L>(line);
        let set = self.set(number);
        L::find(set, tag).is_some_and(|at| L::get(set, at) & L::DIRTY != 0)
    }

    /// Marks the line as equal to memory.
    pub(crate) fn clean(&mut self, line: Line) {
        by_lanes!(self.clean_in(line));
    }

    fn clean_in<L: Lanes>(&mut self, line: Line) {
        let (number, tag) = self.place::<L>(line);
        let set = self.set(number);
        if let Some(at) = L::find(set, tag) {
            L::set(set, at, tag);
        }
    }

    /// Removes the line; returns whether it was cached and differed from memory.
    pub(crate) fn remove(&mut self, line: Line) -> bool {
        by_lanes!(self.remove_in(line))
    }

    fn remove_in<L: Lanes>(&mut self, line: Line) -> bool {
        let is_lru = self.predictions.is_empty();
        let (number, tag) = self.place::<L>(line);
        let set = self.set(number);
        let Some(at) = L::find(set, tag) else {
            return false;
        };
        let dirty = L::get(set, at) & L::DIRTY != 0;
        if is_lru {
            L::take(set, at);
        } else {
            L::set(set, at, L::LANE);
        }
        dirty
    }

    /// [`Cache::put`] with RRIP.
    fn put_by_prediction<L: Lanes>(&mut self, number: u32, tag: u64, mark: u64) -> Used {
        let (ways, start) = (self.ways, self.first + number as usize * self.stride);
        let set = &mut self.words[start..start + self.used];
        let predictions = &mut self.predictions[number as usize * ways..][..ways];
        if let Some(at) = L::find(set, tag) {
            predictions[at] = 0;
            L::set(set, at, L::get(set, at) | mark);
            return Used::Hit;
        }
        let at = match L::find(set, L::EMPTY).filter(|&at| at < ways) {
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
        let last = L::get(set, at);
        L::set(set, at, tag | mark);
        Used::Put(self.unpack::<L>(number, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(number: u32) -> Line {
        Line::new(number, number.is_multiple_of(3))
    }

    #[test]
    fn the_least_recent_line_of_a_set_is_evicted() {
        let mut cache = Cache::new(Shape { lines: 4, ways: 2 }, Replacement::Lru, 10);
        assert_eq!(cache.put(numbered(0), true), None);
        assert_eq!(cache.put(numbered(2), false), None);
        assert!(cache.touch(numbered(0)));
        assert_eq!(cache.put(numbered(4), false), Some((numbered(2), false)));
        assert_eq!(cache.put(numbered(6), false), Some((numbered(0), true)));
        assert!(!cache.touch(numbered(0)));
        assert!(!cache.remove(numbered(4)));
        assert!(!cache.touch(numbered(4)));
    }

    /// Two lines in use and a scan of others, in one set of four.
    #[test]
    fn a_scan_evicts_lines_in_use_with_lru_but_not_with_rrip() {
        let hits = |replacement| {
            let mut cache = Cache::new(Shape { lines: 4, ways: 4 }, replacement, 1000);
            let mut hits = 0;
            for round in 0..100 {
                for used in [0, 1] {
                    if cache.touch(numbered(used)) {
                        hits += 1;
                    } else {
                        cache.put(numbered(used), false);
                        cache.touch(numbered(used));
                    }
                }
                for scanned in 0..4 {
                    cache.put(numbered(2 + round * 4 + scanned), false);
                }
            }
            hits
        };
        assert_eq!(hits(Replacement::Lru), 0);
        assert!(hits(Replacement::Rrip) > 150, "{}", hits(Replacement::Rrip));
    }

    #[test]
    fn quotients_and_remainders_are_exact() {
        for sets in [1u64, 2, 3, 7, 40_960, 47_616, 65_521, MOST_LINES] {
            let mut cache = Cache::new(Shape { lines: 1, ways: 1 }, Replacement::Lru, 1);
            (cache.sets, cache.inverse) = (sets as u32, (u64::MAX / sets).wrapping_add(1));
            let last = MOST_LINES as u32 - 1;
            for line in (0..1000).chain((0..1000).map(|at| last - at * 999_983)) {
                let expected = (line / sets as u32, line % sets as u32);
                assert_eq!(cache.divide(line), expected, "{line} {sets}");
            }
        }
    }

    proptest! {
        /// Compares with a list for each set that shares no code with the cache.
        #[test]
        fn it_holds_what_a_list_of_recent_lines_holds(
            // Narrow lanes and wide ones.
            lines in prop_oneof![Just(40usize), Just(1 << 20)],
            steps in proptest::collection::vec((0u32..40, any::<bool>(), 0u8..4), 1..400),
        ) {
            let mut cache = Cache::new(Shape { lines: 15, ways: 5 }, Replacement::Lru, lines);
            let mut lists: Vec<Vec<(u32, bool)>> = vec![Vec::new(); 3];
            for (line, dirty, step) in steps {
                let list = &mut lists[line as usize % 3];
                let at = list.iter().position(|(there, _)| *there == line);
                match step {
                    0 => {
                        prop_assert_eq!(cache.touch(numbered(line)), at.is_some());
                        if let Some(at) = at {
                            let entry = list.remove(at);
                            list.insert(0, entry);
                        }
                    }
                    1 => {
                        let was = at.is_some_and(|at| list.remove(at).1);
                        prop_assert_eq!(cache.remove(numbered(line)), was);
                    }
                    _ => {
                        let evicted = cache.put(numbered(line), dirty);
                        let was = at.is_some_and(|at| list.remove(at).1);
                        list.insert(0, (line, was || dirty));
                        let expected = if list.len() > 5 { list.pop() } else { None };
                        let expected = expected.map(|(line, was)| (numbered(line), was));
                        prop_assert_eq!(evicted, expected);
                        prop_assert_eq!(cache.is_dirty(numbered(line)), was || dirty);
                    }
                }
            }
        }

        /// Compares RRIP with a list of lines and predictions for each set that ages by single steps.
        #[test]
        fn rrip_evicts_what_ageing_by_single_steps_evicts(
            // Narrow lanes and wide ones.
            lines in prop_oneof![Just(40usize), Just(1 << 20)],
            steps in proptest::collection::vec((0u32..30, any::<bool>(), 0u8..4), 1..400),
        ) {
            let mut cache = Cache::new(Shape { lines: 15, ways: 5 }, Replacement::Rrip, lines);
            // Line, written, prediction.
            let mut lists: Vec<[Option<(u32, bool, u8)>; 5]> = vec![[None; 5]; 3];
            for (line, dirty, step) in steps {
                let list = &mut lists[line as usize % 3];
                let at = list.iter().position(|way| way.is_some_and(|(there, ..)| there == line));
                match (step, at) {
                    (0, at) => {
                        prop_assert_eq!(cache.touch(numbered(line)), at.is_some());
                        if let Some(way) = at.and_then(|at| list[at].as_mut()) {
                            way.2 = 0;
                        }
                    }
                    (1, at) => {
                        let was = at.and_then(|at| list[at].take()).is_some_and(|way| way.1);
                        prop_assert_eq!(cache.remove(numbered(line)), was);
                    }
                    (_, Some(at)) => {
                        prop_assert_eq!(cache.put(numbered(line), dirty), None);
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
                        let expected = list[at].map(|way| (numbered(way.0), way.1));
                        list[at] = Some((line, dirty, 2));
                        prop_assert_eq!(cache.put(numbered(line), dirty), expected);
                    }
                }
            }
        }
    }
}
