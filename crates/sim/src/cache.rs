//! A set-associative cache of line numbers with true LRU.

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

const EMPTY: u32 = u32::MAX;
/// The line differs from memory.
const DIRTY: u32 = 1 << 31;
/// Largest line number that fits next to the mark.
pub(crate) const MOST_LINES: u64 = (1 << 31) - 1;

/// Tags of each set, the most recent first.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    tags: Vec<u32>,
    ways: usize,
    sets: u64,
}

impl Cache {
    pub(crate) fn new(shape: Shape) -> Self {
        let sets = (shape.lines / shape.ways).max(1);
        Self {
            tags: vec![EMPTY; (sets * shape.ways) as usize],
            ways: shape.ways as usize,
            sets,
        }
    }

    #[inline(always)]
    fn set(&mut self, line: u32) -> &mut [u32] {
        // A power of two is common, and a division is slow.
        let set = if self.sets.is_power_of_two() {
            u64::from(line) & (self.sets - 1)
        } else {
            u64::from(line) % self.sets
        };
        let start = set as usize * self.ways;
        &mut self.tags[start..start + self.ways]
    }

    /// Whether the line is cached; it becomes the most recent.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(at) = find(set, line) else {
            return false;
        };
        move_to_front(set, at);
        true
    }

    /// Makes the line the most recent, written or not; returns the evicted line, and whether it differs from memory.
    #[inline]
    pub(crate) fn put(&mut self, line: u32, dirty: bool) -> Option<(u32, bool)> {
        let mark = if dirty { DIRTY } else { 0 };
        let set = self.set(line);
        if let Some(at) = find(set, line) {
            move_to_front(set, at);
            set[0] |= mark;
            return None;
        }
        let last = set.len() - 1;
        let evicted = set[last];
        set.copy_within(..last, 1);
        set[0] = line | mark;
        (evicted != EMPTY).then_some((evicted & !DIRTY, evicted & DIRTY != 0))
    }

    /// Whether the line is cached and differs from memory.
    #[inline]
    pub(crate) fn is_dirty(&mut self, line: u32) -> bool {
        self.set(line).contains(&(line | DIRTY))
    }

    /// Marks the line as equal to memory.
    pub(crate) fn clean(&mut self, line: u32) {
        if let Some(tag) = self.set(line).iter_mut().find(|tag| **tag == line | DIRTY) {
            *tag = line;
        }
    }

    /// Removes the line; returns whether it was cached and differed from memory.
    pub(crate) fn remove(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(at) = find(set, line) else {
            return false;
        };
        let dirty = set[at] & DIRTY != 0;
        set[at] = EMPTY;
        set[at..].rotate_left(1);
        dirty
    }
}

/// Position of the line in its set.
#[inline(always)]
fn find(set: &[u32], line: u32) -> Option<usize> {
    set.iter().position(|&tag| tag & !DIRTY == line)
}

#[inline(always)]
fn move_to_front(set: &mut [u32], at: usize) {
    let tag = set[at];
    set.copy_within(..at, 1);
    set[0] = tag;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recent_line_of_a_set_is_evicted() {
        let mut cache = Cache::new(Shape { lines: 4, ways: 2 });
        assert_eq!(cache.put(0, true), None);
        assert_eq!(cache.put(2, false), None);
        assert!(cache.touch(0));
        assert_eq!(cache.put(4, false), Some((2, false)));
        assert_eq!(cache.put(6, false), Some((0, true)));
        assert!(!cache.touch(0));
        assert!(!cache.remove(4));
        assert!(!cache.touch(4));
    }

    proptest! {
        /// Compares with a list for each set that shares no code with the cache.
        #[test]
        fn it_holds_what_a_list_of_recent_lines_holds(
            steps in proptest::collection::vec((0u32..40, any::<bool>(), 0u8..4), 1..400),
        ) {
            let mut cache = Cache::new(Shape { lines: 12, ways: 4 });
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
    }
}
