//! String instructions (such as `rep movsb`): they count once per word, like the loops and vector instructions of
//! other implementations of `memcpy` and `memset`.
//!
//! An emulator reports each iteration. Iterations that continue in the same word are merged; the word is counted when
//! the instruction leaves it, or when the thread does anything else ([`ThreadTracer::flush_pending`]).

use super::ThreadTracer;

/// Most bytes that count as one access.
pub const WORD: u64 = 8;

/// Bytes of one word that a string instruction has loaded, or stored, and that are not counted yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    start: u64,
    /// 0 if there is nothing to count.
    size: u32,
}

impl Piece {
    /// Merges an access that continues the piece, upward or downward, in the same word; returns whether it does.
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
    /// Records one load (`WRITE` false) or store of `size` bytes, at most a word, by a string instruction.
    #[inline(always)]
    pub fn string<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if !self.batch.strings[usize::from(WRITE)].extend(address, size) {
            self.next_word::<WRITE>(Piece {
                start: address,
                size,
            });
        }
    }

    /// Counts the word before, and begins the next one.
    #[inline(never)]
    fn next_word<const WRITE: bool>(&mut self, next: Piece) {
        if self.batch.strings.iter().all(|piece| piece.size == 0) {
            self.flush_pending();
        }
        let last = std::mem::replace(&mut self.batch.strings[usize::from(WRITE)], next);
        // Only string words are pending, and they need not be flushed for this.
        self.batch.pending = false;
        self.reset_threshold();
        self.count_piece::<WRITE>(last);
        self.set_pending();
    }

    /// Counts the bytes moved by string instructions.
    pub(super) fn flush_strings(&mut self) {
        let [loaded, stored] = std::mem::take(&mut self.batch.strings);
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
