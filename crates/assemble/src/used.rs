//! Which bytes of its objects a process has used.

use std::collections::HashMap;

/// Ranges of offsets in objects, by the object's number.
#[derive(Default)]
pub(crate) struct Used(HashMap<usize, Vec<(u64, u64)>>);

impl Used {
    /// Collects ranges: object, first offset, offset after the last byte.
    pub(crate) fn of(ranges: impl Iterator<Item = (usize, u64, u64)>) -> Self {
        let mut used: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
        for (object, from, to) in ranges {
            let known = used.entry(object).or_default();
            match known.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => known.push((from, to)),
            }
        }
        for ranges in used.values_mut() {
            ranges.sort_unstable();
            let mut furthest = 0;
            // Ends ascend as beginnings do, for the search: one that a range before reaches over decides nothing.
            for (_, to) in ranges {
                furthest = furthest.max(*to);
                *to = furthest;
            }
        }
        Self(used)
    }

    /// Whether anything of an object was used.
    pub(crate) fn contains(&self, object: usize) -> bool {
        self.0.contains_key(&object)
    }

    /// Whether a byte of `from..to` was used.
    pub(crate) fn overlaps(&self, object: usize, from: u64, to: u64) -> bool {
        self.0.get(&object).is_some_and(|ranges| {
            let at = ranges.partition_point(|range| range.1 <= from);
            ranges.get(at).is_some_and(|range| range.0 < to)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_used_where_a_range_has_them() {
        let pages = [
            (1, 8192, 12288),
            (1, 0, 4096),
            (1, 4096, 8192),
            (2, 64, 128),
            (1, 20480, 24576),
        ];
        let used = Used::of(pages.into_iter().chain([(1, 100, 200)]));
        assert!(used.contains(1) && used.contains(2) && !used.contains(3));
        for (object, from, to, expected) in [
            (1, 0, 1, true),
            (1, 150, 160, true),
            (1, 4000, 9000, true),
            (1, 12288, 20480, false),
            (1, 12287, 12289, true),
            (1, 24575, 30000, true),
            (1, 24576, 30000, false),
            (2, 0, 64, false),
            (2, 127, 128, true),
            (3, 0, 64, false),
        ] {
            assert_eq!(
                used.overlaps(object, from, to),
                expected,
                "{object}: {from}..{to}"
            );
        }
    }
}
