//! Slices of the profile and spans of page counts: how long they are. Both double when there would be too many.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use numaloc_journal::settings::Config;

/// The present lengths, which all threads of a process share.
pub(crate) struct Slices {
    /// Length of the first slices.
    shortest: u64,
    /// Most slices of the profile.
    count: u64,
    /// Bytes of page counts per span at which the spans double.
    most_bytes: u64,
    /// Slices are `shortest << level` long.
    level: AtomicU32,
    /// Spans of page counts are `shortest << page_level` long.
    page_level: AtomicU32,
    /// Bytes of page counts written since the spans last doubled.
    page_bytes: AtomicU64,
}

impl Slices {
    /// The lengths at the start of a recording.
    pub fn new(config: &Config) -> Self {
        Self {
            shortest: config.slice,
            count: config.slices,
            most_bytes: config.page_bytes,
            level: AtomicU32::new(0),
            page_level: AtomicU32::new(0),
            page_bytes: AtomicU64::new(0),
        }
    }

    /// The present slice length. Doubles it while `time` lies beyond the last slice allowed.
    pub fn slice_length(&self, time: u64) -> u64 {
        loop {
            let level = self.level.load(Relaxed);
            let length = self.shortest << level;
            if time / length < self.count || level >= 40 {
                return length;
            }
            let _ = self
                .level
                .compare_exchange(level, level + 1, Relaxed, Relaxed);
        }
    }

    /// The present span of page counts, at least a slice.
    pub fn span_length(&self) -> u64 {
        let level = self.page_level.load(Relaxed).max(self.level.load(Relaxed));
        self.shortest << level.min(41)
    }

    /// Adds `bytes` to the size of the page counts written; doubles the spans when they exceed the limit.
    pub fn account_pages(&self, bytes: u64) {
        let total = self.page_bytes.fetch_add(bytes, Relaxed) + bytes;
        if total > self.most_bytes {
            let level = self.page_level.load(Relaxed).max(self.level.load(Relaxed)) + 1;
            if level <= 40 && self.page_level.fetch_max(level, Relaxed) < level {
                self.page_bytes.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices() -> Slices {
        Slices::new(&Config {
            slice: 100,
            slices: 10,
            page_bytes: 1000,
            ..Config::default()
        })
    }

    #[test]
    fn slices_double_until_the_time_is_in_the_last_one() {
        let slices = slices();
        assert_eq!(
            (slices.slice_length(999), slices.slice_length(1000)),
            (100, 200)
        );
        assert_eq!(slices.slice_length(7999), 800);
        // They never become shorter.
        assert_eq!(slices.slice_length(0), 800);
        assert_eq!(slices.span_length(), 800);
    }

    #[test]
    fn spans_double_with_the_bytes_written_but_are_no_shorter_than_slices() {
        let slices = slices();
        slices.account_pages(1000);
        assert_eq!(slices.span_length(), 100);
        slices.account_pages(1);
        assert_eq!(slices.span_length(), 200);
        slices.account_pages(1001);
        assert_eq!((slices.span_length(), slices.slice_length(0)), (400, 100));
        slices.slice_length(7999);
        assert_eq!(slices.span_length(), 800);
        slices.account_pages(1001);
        assert_eq!(slices.span_length(), 1600);
    }
}
