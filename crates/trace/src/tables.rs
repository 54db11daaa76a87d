//! The shadow tables of a process.

use crate::memory::Detail;
use crate::readers::Readers;
use crate::shadow::Shadow;
use crate::sites::Stores;
use numaloc_journal::settings::Config;
use numaloc_model::Layer;

/// log2 of the bytes that share one synchronisation clock: a futex word.
const CLOCK_SHIFT: u32 = 2;
/// Bytes that share one.
pub(crate) const CLOCK: u64 = 1 << CLOCK_SHIFT;

/// What is known about lines, pages and words of the process's memory.
pub(crate) struct Tables {
    /// State of each line ([`crate::line`]).
    pub lines: Shadow,
    /// Reader bits beyond the line's word.
    pub readers: Readers,
    /// What is known of each page ([`numaloc_page_faults::State`]).
    pub touched: Shadow,
    /// Latest clock at which a word was released. One clock per word, not per line: the counters of a barrier share a
    /// line, and a thread that leaves late must not take the clocks of threads already at the next barrier.
    pub clocks: Shadow,
    /// Mask of the bytes written in a tracked line's present tenure.
    pub written: Shadow,
    /// Places of the stores by which threads last took lines.
    pub stores: Stores,
    /// The last two accessors of a line; `None` unless layer `last_two` is recorded.
    pub last_two: Option<Shadow>,
}

impl Tables {
    /// Reserves the tables of a recording with these settings.
    ///
    /// # Errors
    /// The system's error when address space cannot be reserved.
    pub fn reserve(config: &Config) -> std::io::Result<Self> {
        let tables = [
            Shadow::reserve(config.line_shift)?,
            Shadow::reserve(crate::pages::PAGE_SHIFT)?,
            Shadow::reserve(CLOCK_SHIFT)?,
            Shadow::reserve(config.line_shift)?,
        ];
        // Who placed pages remains known to children, which share them.
        tables[1].keep_on_fork();
        Self::with(tables, Stores::reserve()?, config)
    }

    fn with(tables: [Shadow; 4], stores: Stores, config: &Config) -> std::io::Result<Self> {
        let [lines, touched, clocks, written] = tables;
        let last_two = match config.layers.contains(&Layer::LastTwo) {
            true => Some(Shadow::reserve(config.line_shift)?),
            false => None,
        };
        Ok(Self {
            lines,
            readers: Readers::new(config.line_shift),
            touched,
            clocks,
            written,
            stores,
            last_two,
        })
    }

    /// The tables of a forked child: the same address space, cleared, except that pages remain those of the ancestors'
    /// threads that placed them.
    ///
    /// # Errors
    /// As [`Tables::reserve`].
    pub fn forked(&self, config: &Config) -> std::io::Result<Self> {
        let tables = [self.lines, self.touched, self.clocks, self.written];
        for table in [&self.lines, &self.clocks, &self.written] {
            table.clear();
        }
        self.stores.clear();
        Self::with(tables, self.stores, config)
    }

    /// The synchronisation clock of the word at `address`. With `shared` clocks all words have 2^20 of them: a thread
    /// may take a later clock than necessary, never an earlier one.
    #[inline(always)]
    pub fn clock(&self, address: u64, shared: bool) -> &std::sync::atomic::AtomicU64 {
        if !shared {
            return self.clocks.word(address);
        }
        let word = (address >> CLOCK_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        self.clocks.word(word << CLOCK_SHIFT)
    }

    /// Frees the memory of a detail that is no longer recorded.
    pub fn drop_detail(&self, detail: Detail) {
        match detail {
            Detail::FalseSharing => self.written.clear(),
            Detail::Clocks => self.clocks.clear(),
            // Each thread drops its own counters at the end of its slice.
            Detail::Pages => {}
            Detail::Readers => self.readers.clear(),
        }
    }

    /// Clears the state of memory that was unmapped or replaced.
    pub fn forget(&self, address: u64, length: u64) {
        self.lines.forget(address, length);
        self.written.forget(address, length);
        self.touched.forget(address, length);
        self.readers.forget(address, length);
        self.clocks.forget(address, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_have_clocks_of_their_own_unless_they_share_them() {
        let tables = Tables::reserve(&Config::default()).unwrap();
        let at = |address, shared| std::ptr::from_ref(tables.clock(address, shared));
        assert_ne!(at(0x1000, false), at(0x1004, false));
        assert_eq!(at(0x1001, true), at(0x1003, true));
        assert_ne!(at(0x1000, true), at(0x1004, true));
        // The shared clocks are the first 2^20.
        let last = std::ptr::from_ref(tables.clocks.word((1 << 22) - 1));
        assert!((0..1000u64).all(|word| at(word << 40 | word << 2, true) <= last));
    }

    #[test]
    fn memory_that_was_unmapped_has_no_state() {
        let tables = Tables::reserve(&Config::default()).unwrap();
        let words = || {
            let (lines, touched) = (tables.lines.word(0x5000), tables.touched.word(0x5000));
            [
                lines,
                touched,
                tables.written.word(0x5000),
                tables.clock(0x5000, false),
            ]
        };
        for word in words() {
            word.store(9, Relaxed);
        }
        assert!(tables.readers.mark(0x5000, 70));
        tables.forget(0x5000, 0x1000);
        assert_eq!(words().map(|word| word.load(Relaxed)), [0; 4]);
        assert!(tables.readers.mark(0x5000, 70));
        assert!(tables.last_two.is_none());
    }
}
