//! Which of a thread's fetches a value comes from, for loads whose address is such a value.
//!
//! The frontend keeps, for each register, the number of the last fetch that its value comes from. This keeps the same
//! for memory: lines that were fetched a short time ago, so that other loads from them wait for the same fetch, and
//! words that registers were stored in a short time ago. Both tables are small and forget: what they forget counts as
//! arrived.

/// Entries of each table; more fetches than a core can have under way.
const ENTRIES: usize = 64;

/// What a thread's fetches bring. The number of a fetch counts from 1; 0 stands for none.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Number of the last fetch.
    last: u64,
    /// By line: the line, and the fetch that brings it.
    lines: [(u64, u64); ENTRIES],
    /// By word: its address, and the fetch that its value comes from.
    words: [(u64, u64); ENTRIES],
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            lines: [(u64::MAX, 0); ENTRIES],
            words: [(u64::MAX, 0); ENTRIES],
        }
    }

    /// A line is fetched; returns how many fetches ago that with the number `after` was, 0 for none.
    #[inline(always)]
    pub(super) fn fetch(&mut self, line: u64, after: u64) -> u64 {
        self.last += 1;
        self.lines[line as usize % ENTRIES] = (line, self.last);
        if after == 0 { 0 } else { self.last - after }
    }

    /// The fetch that a value comes from which a load of a word in a line has found; `after`: the one of its address.
    #[inline(always)]
    pub(super) fn loaded(&self, line: u64, address: u64, after: u64) -> u64 {
        let of = |(key, fetch): (u64, u64), wanted: u64| if key == wanted { fetch } else { 0 };
        let line = of(self.lines[line as usize % ENTRIES], line);
        let word = of(self.words[address as usize / 8 % ENTRIES], address);
        after.max(line).max(word)
    }

    /// A value that comes from fetch `after` is stored in a word.
    #[inline(always)]
    pub(super) fn store(&mut self, address: u64, after: u64) {
        self.words[address as usize / 8 % ENTRIES] = (address, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_from_the_last_fetch_of_its_address_its_line_and_its_word() {
        let mut arrivals = Arrivals::new();
        assert_eq!(arrivals.fetch(5, 0), 0);
        let node = arrivals.loaded(5, 5 << 6, 0);
        assert_eq!(node, 1);
        // The next node, and one more field of it.
        assert_eq!(arrivals.fetch(9, node), 1);
        assert_eq!(arrivals.loaded(9, 9 << 6 | 8, node), 2);
        // A field of a line that arrived long ago, at an address that has not.
        assert_eq!(arrivals.loaded(1000, 1000 << 6, 2), 2);
        assert_eq!(arrivals.loaded(1000, 1000 << 6, 0), 0);
    }

    #[test]
    fn a_stored_value_is_found_again_until_another_is_stored() {
        let mut arrivals = Arrivals::new();
        arrivals.fetch(5, 0);
        arrivals.store(0x7000, 1);
        assert_eq!(arrivals.loaded(0x7000 >> 6, 0x7000, 0), 1);
        assert_eq!(arrivals.loaded(0x7000 >> 6, 0x7008, 0), 0);
        arrivals.store(0x7000, 0);
        assert_eq!(arrivals.loaded(0x7000 >> 6, 0x7000, 0), 0);
    }
}
