//! String instructions (`rep movsb` and its kind): what they move counts once for each word, as it does for the loops and vector
//! instructions that other implementations of the same `memcpy` and `memset` use.
//!
//! An emulator reports each iteration. What follows on in the same word is only added to it; the word is counted when it is left, or
//! when the thread does anything else ([`ThreadTracer::flush_pending`]).

use super::ThreadTracer;

/// Most bytes that are one access.
pub const WORD: u64 = 8;

/// Bytes of one word that a string instruction has loaded, or stored, and that are not counted yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    start: u64,
    /// 0 when there is nothing to count.
    size: u32,
}

impl Piece {
    /// Adds an access that follows on, upward or downward, in the same word; says whether it does.
    #[inline(always)]
    fn extend(&mut self, address: u64, size: u32) -> bool {
        let (low, high) = (
            self.start.min(address),
            self.end().max(address + u64::from(size)),
        );
        let follows = address == self.end() || address + u64::from(size) == self.start;
        let extends = self.size != 0 && follows && low / WORD == (high - 1) / WORD;
        if extends {
            (self.start, self.size) = (low, (high - low) as u32);
        }
        extends
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.size)
    }
}

impl ThreadTracer {
    /// One load (`WRITE` false) or store of `size` bytes, a word at most, by an instruction that repeats itself.
    #[inline(always)]
    pub fn string<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if !self.strings[usize::from(WRITE)].extend(address, size) {
            self.next_word::<WRITE>(Piece {
                start: address,
                size,
            });
        }
    }

    /// A string instruction comes to another word: counts the one before.
    #[inline(never)]
    fn next_word<const WRITE: bool>(&mut self, next: Piece) {
        if self.strings.iter().all(|piece| piece.size == 0) {
            self.flush_pending();
        }
        let last = std::mem::replace(&mut self.strings[usize::from(WRITE)], next);
        // Nothing else waits, and what does need not be settled for this.
        self.pending = false;
        self.reset_fast_threshold();
        self.count_piece::<WRITE>(last);
        self.fast_threshold = u64::MAX;
        self.pending = true;
    }

    /// Counts what string instructions have moved.
    pub(super) fn flush_strings(&mut self) {
        let [loaded, stored] = std::mem::take(&mut self.strings);
        self.count_piece::<false>(loaded);
        self.count_piece::<true>(stored);
    }

    #[inline(always)]
    fn count_piece<const WRITE: bool>(&mut self, piece: Piece) {
        if piece.size != 0 {
            self.access::<WRITE, false>(piece.start, piece.size);
        }
    }
}
