//! Write-back buffer of a core: written lines on their way to memory.
//!
//! A line leaves the buffer when its controller has served it. A core whose access evicts a written line while the
//! buffer is full waits for the entry that becomes free first: otherwise evictions could queue at a controller without
//! limit, because no core waits for their end.

/// The entries of one core's buffer.
#[derive(Clone, Debug)]
pub(crate) struct WriteBacks {
    /// For each entry, the time at which it is free, in picoseconds.
    free_at: Vec<u64>,
    /// The entry of the last admission.
    taken: usize,
}

impl WriteBacks {
    /// A buffer of `entries` lines, at least one.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            free_at: vec![0; entries.max(1)],
            taken: 0,
        }
    }

    /// Takes the entry that is free first; returns since when.
    #[inline]
    pub(crate) fn admit(&mut self) -> u64 {
        let mut first = 0;
        for (at, time) in self.free_at.iter().enumerate() {
            if *time < self.free_at[first] {
                first = at;
            }
        }
        self.taken = first;
        self.free_at[first]
    }

    /// The line admitted last is in memory at `done`.
    #[inline]
    pub(crate) fn sent(&mut self, done: u64) {
        self.free_at[self.taken] = done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_delays_until_its_first_entry_is_free() {
        let mut buffer = WriteBacks::new(2);
        for (free, done) in [(0, 50), (0, 30), (30, 90), (50, 95), (90, 120), (95, 130)] {
            assert_eq!(buffer.admit(), free);
            buffer.sent(done);
        }
    }

    #[test]
    fn a_buffer_has_at_least_one_entry() {
        let mut buffer = WriteBacks::new(0);
        assert_eq!(buffer.admit(), 0);
        buffer.sent(10);
        assert_eq!(buffer.admit(), 10);
    }
}
