//! The fast path: an access to a line whose state it does not change, on a page counted before.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::events::read_mask;
use super::{LINE, ThreadTracer};
use crate::line::{self, FAST_SHIFT};
use crate::memory::Detail;
use crate::pages::{self, PAGE_SHIFT};
use crate::shadow::Fixed;

/// What the fast path reads and changes of a thread's tracer: one cache line.
#[repr(C, align(64))]
pub(super) struct Fast {
    /// Accesses remaining in the quantum ([`ThreadTracer::end_quantum`]).
    pub remaining: u64,
    /// The fast path needs `remaining` above this: 1, or `u64::MAX` when every access must take the slow path and
    /// while accesses are pending (`batch`).
    pub threshold: u64,
    /// The word of a line that this thread has just written.
    pub owned: u64,
    /// A read is fast if the line's word equals `owned` in these bits: the thread's reader bit, and
    /// [`line::TRACKED`] while an event of this thread is undecided ([`crate::sharing`]).
    pub read_mask: u64,
    /// The line table, if lines have the usual size.
    pub lines: Fixed<FAST_SHIFT>,
    /// The thread's page counters.
    pub pages: Fixed<PAGE_SHIFT>,
    /// Bytes loaded by recorded accesses.
    pub read_bytes: u64,
    /// Bytes stored by recorded accesses.
    pub write_bytes: u64,
}

/// Offsets in a [`ThreadTracer`] of what the fast path uses, for frontends that generate its code. Such code makes the
/// tests of [`ThreadTracer::fast`] and counts as it does, or calls the tracer.
pub mod layout {
    use super::{Fast, ThreadTracer};
    use crate::thread::clock::Clock;
    use crate::thread::events::Events;
    use crate::thread::sampler::Sampler;
    use std::mem::offset_of;

    /// `u64`: accesses remaining in the quantum.
    pub const REMAINING: i32 = offset_of!(Fast, remaining) as i32;
    /// `u64`: the fast path needs more than this remaining.
    pub const THRESHOLD: i32 = offset_of!(Fast, threshold) as i32;
    /// `u64`: the word of a line that the thread has just written.
    pub const OWNED: i32 = offset_of!(Fast, owned) as i32;
    /// `u64`: a read is fast if the line's word equals `owned` in these bits, or is 0.
    pub const READ_MASK: i32 = offset_of!(Fast, read_mask) as i32;
    /// Address of the line table, one `u64` for each line of the window.
    pub const LINES: i32 = offset_of!(Fast, lines) as i32;
    /// Address of the thread's page counters, one `u64` for each page of the window.
    pub const PAGES: i32 = offset_of!(Fast, pages) as i32;
    /// `u64`: bytes loaded.
    pub const READ_BYTES: i32 = offset_of!(Fast, read_bytes) as i32;
    /// `u64`: bytes stored.
    pub const WRITE_BYTES: i32 = offset_of!(Fast, write_bytes) as i32;

    /// `u64`: 0 between bursts, when accesses are only counted down from [`REMAINING`], which must stay above 0.
    pub const SAMPLE_THRESHOLD: i32 =
        (offset_of!(ThreadTracer, sampler) + Sampler::THRESHOLD) as i32;

    /// `u64`: a line's word that equals [`OWNED`] in these bits is one that the thread has read. Such a read is fast
    /// also where [`READ_MASK`] says otherwise, if no event is undecided on a line with its mark.
    pub const READ_BITS: i32 = offset_of!(ThreadTracer, read_bits) as i32;
    /// `u8` for each mark: whether an event is undecided on a line that has it. The mark of line number `n` is
    /// `(n ^ n >> PLACE_SHIFT) & MARK_MASK`.
    pub const MARKS: i32 = (offset_of!(ThreadTracer, events) + Events::MARKS) as i32;
    /// See [`MARKS`].
    pub use crate::sharing::{MARK_MASK, PLACE_SHIFT};
    /// `u64`: virtual time at the end of the quantum; code that takes an access during which time stands still from
    /// [`REMAINING`] takes it from here as well.
    pub const QUANTUM_END: i32 = (offset_of!(ThreadTracer, clock) + Clock::QUANTUM_END) as i32;

    const _: () = assert!(offset_of!(ThreadTracer, fast) == 0);
}

impl Fast {
    /// The state of a new thread with this writer id and reader bit; `own_bit` is the bit that the thread's own writes
    /// set. Every access takes the slow path until a threshold is set.
    pub fn new(
        writer: u32,
        bit: u64,
        own_bit: u64,
        lines: Fixed<FAST_SHIFT>,
        pages: Fixed<PAGE_SHIFT>,
    ) -> Self {
        Self {
            remaining: 0,
            threshold: u64::MAX,
            owned: line::owned(writer, own_bit),
            read_mask: read_mask(bit, false),
            lines,
            pages,
            read_bytes: 0,
            write_bytes: 0,
        }
    }

    /// Whether `word` is that of a line that this thread wrote last and no other thread has read since.
    #[inline(always)]
    pub fn owns(&self, word: u64) -> bool {
        word & !line::BYTES == self.owned
    }

    /// Whether reads leave the state of a written line with this `word` unchanged.
    #[inline(always)]
    pub fn has_read(&self, word: u64) -> bool {
        (word ^ self.owned) & self.read_mask == 0
    }

    /// Whether loads, or stores, leave the state of a line with this `word` unchanged.
    #[inline(always)]
    pub fn is_plain_word<const WRITE: bool>(&self, word: u64) -> bool {
        self.is_plain_under::<WRITE>(word, self.read_mask)
    }

    /// [`Fast::is_plain_word`] with another [`Fast::read_mask`].
    #[inline(always)]
    pub fn is_plain_under<const WRITE: bool>(&self, word: u64, read_mask: u64) -> bool {
        match WRITE {
            true => word == self.owned || word == self.owned | line::BYTES,
            false => word == 0 || (word ^ self.owned) & read_mask == 0,
        }
    }

    /// The first line from `line` on, before `end` in the same page, whose state loads, or stores, may change; `end` or
    /// more if there is none. Both are addresses, `line` the first of a line. `read_mask` is [`Fast::read_mask`], or
    /// what it would be for these lines.
    #[inline(always)]
    pub fn plain_until<const WRITE: bool>(&self, line: u64, end: u64, read_mask: u64) -> u64 {
        let lines = end.saturating_sub(line).div_ceil(LINE) as usize;
        let words = self.lines.words(line, lines);
        let (owned, mask) = (self.owned, if WRITE { u64::MAX } else { read_mask });
        let plain = |word: &AtomicU64| self.is_plain_under::<WRITE>(word.load(Relaxed), read_mask);
        let mut at = 0;
        // Four at a time: nearly all lines are plain.
        while let Some(four) = words.get(at..at + 4) {
            let differs = |word: &AtomicU64| (word.load(Relaxed) ^ owned) & mask;
            if four.iter().fold(0, |all, word| all | differs(word)) != 0 && !four.iter().all(plain)
            {
                break;
            }
            at += 4;
        }
        at += words[at..].iter().take_while(|word| plain(word)).count();
        line + at as u64 * LINE
    }

    /// Adds `amount` to the page's counter and returns true; false for an access that crosses lines or is the page's
    /// first.
    #[inline(always)]
    pub fn count<const ALIGNED: bool>(&mut self, address: u64, size: u32, amount: u64) -> bool {
        let in_line = match ALIGNED {
            true => address & (u64::from(size) - 1) == 0,
            false => (address & (LINE - 1)) + u64::from(size) <= LINE,
        };
        if !in_line {
            std::hint::cold_path();
            return false;
        }
        let counter = self.pages.word(address);
        let count = counter.load(Relaxed);
        let fast = count != 0;
        if fast {
            counter.store(pages::marked(count, amount), Relaxed);
        }
        fast
    }
}

impl ThreadTracer {
    /// Counts an ordinary access and returns true; false if the access needs the slow path. Ordinary is an access to a
    /// line that this thread may read or write without a change of state, on a page counted before, and not the last
    /// of the quantum. Always false where lines are sampled, and between bursts. Not for run-time libraries, whose
    /// accesses carry clocks.
    ///
    /// Calls nothing, so the caller needs no frame. A signal handler that interrupts it may cost one count, nothing
    /// more.
    ///
    /// With `ALIGNED`, `size` is a power of two and only an `address` that is a multiple of it is fast: testing that
    /// takes fewer instructions.
    #[inline(always)]
    pub fn fast<const WRITE: bool, const ALIGNED: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) -> bool {
        self.fast_above::<WRITE, ALIGNED>(self.fast.threshold, address, size)
    }

    /// [`ThreadTracer::fast`] with the given threshold.
    #[inline(always)]
    pub(super) fn fast_above<const WRITE: bool, const ALIGNED: bool>(
        &mut self,
        threshold: u64,
        address: u64,
        size: u32,
    ) -> bool {
        if self.fast.remaining <= threshold {
            return false;
        }
        let word = self.fast.lines.word(address).load(Relaxed);
        let ours = if WRITE {
            self.fast.owns(word)
        } else {
            self.fast.has_read(word) || self.is_new_or_reread(word, address)
        };
        let amount = if WRITE { pages::WRITE } else { pages::READ };
        if !ours || !self.fast.count::<ALIGNED>(address, size, amount) {
            return false;
        }
        self.fast.remaining -= 1;
        if WRITE {
            self.fast.write_bytes += u64::from(size);
            if line::keeps_bytes(word) {
                self.track_fast(address, size);
            }
        } else {
            self.fast.read_bytes += u64::from(size);
        }
        true
    }

    /// Bytes stored by recorded accesses so far.
    #[inline(always)]
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.fast.write_bytes
    }

    /// Adds accesses that a frontend has counted, for their pages and the bytes stored as well, fewer than remain in
    /// the quantum; `loaded` are the bytes that they loaded. Takes them back where negative.
    #[inline(always)]
    pub fn add_counted(&mut self, accesses: i64, loaded: i64) {
        self.fast.remaining = self.fast.remaining.wrapping_sub(accesses as u64);
        self.fast.read_bytes = self.fast.read_bytes.wrapping_add(loaded as u64);
    }

    /// Whether a line with this word was never written, or is read again without effect ([`ThreadTracer::rereads`]).
    #[inline(always)]
    fn is_new_or_reread(&self, word: u64, address: u64) -> bool {
        // Tested last: most lines that a program reads have been written.
        std::hint::cold_path();
        word == 0 || self.rereads(word, address)
    }

    /// Counts a load and a store of `size` bytes at `address`, like [`ThreadTracer::fast`].
    #[inline(always)]
    pub fn fast_update<const ALIGNED: bool>(&mut self, address: u64, size: u32) -> bool {
        self.fast_update_above::<ALIGNED>(self.fast.threshold, address, size)
    }

    /// [`ThreadTracer::fast_update`] with the given threshold.
    #[inline(always)]
    pub(super) fn fast_update_above<const ALIGNED: bool>(
        &mut self,
        threshold: u64,
        address: u64,
        size: u32,
    ) -> bool {
        if self.fast.remaining <= threshold.saturating_add(1) {
            return false;
        }
        let word = self.fast.lines.word(address).load(Relaxed);
        // A read of the thread's own bytes decides no event: only another thread's writes make events for this one.
        let amount = pages::READ + pages::WRITE;
        if !self.fast.owns(word) || !self.fast.count::<ALIGNED>(address, size, amount) {
            return false;
        }
        self.fast.remaining -= 2;
        self.fast.read_bytes += u64::from(size);
        self.fast.write_bytes += u64::from(size);
        if line::keeps_bytes(word) {
            self.track_fast(address, size);
        }
        true
    }

    /// Adds the bytes written to the mask of their line, which has the usual size and holds all of them.
    #[inline(always)]
    fn track_fast(&mut self, address: u64, size: u32) {
        if self.engine.budget.keeps(Detail::FalseSharing) {
            let entry = self.engine.tables.written.word(address);
            let bytes = (u64::MAX >> (64 - size)) << (address & 63);
            let before = entry.load(Relaxed);
            if before | bytes != before {
                entry.store(before | bytes, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{ALL_READERS, EXTENDED, FULL, SYNC, TRACKED, reader_bit};
    use crate::shadow::Shadow;

    fn fast(bit: u64) -> Fast {
        let table = Shadow::reserve(FAST_SHIFT).unwrap();
        Fast::new(7, bit, bit, table.fixed().unwrap(), table.fixed().unwrap())
    }

    #[test]
    fn what_the_fast_path_uses_is_one_cache_line_at_the_start_of_a_tracer() {
        assert_eq!(size_of::<Fast>(), 64);
        assert_eq!(std::mem::offset_of!(ThreadTracer, fast), 0);
        assert_eq!(align_of::<ThreadTracer>(), 64);
    }

    #[test]
    fn reads_are_fast_where_the_thread_has_read_since_the_last_write() {
        let (mine, other) = (reader_bit(3), reader_bit(4));
        let one = fast(mine);
        assert!(one.has_read(9 | mine | other) && one.has_read(7 | mine | TRACKED));
        assert!(!one.has_read(9 | other) && !one.has_read(line::CROSS_PROCESS));
        // A line that was never written needs no event.
        assert!(!one.has_read(0) && one.is_plain_word::<false>(0));
    }

    #[test]
    fn reads_of_tracked_lines_are_slow_while_an_event_is_undecided() {
        let bit = reader_bit(3);
        let mut one = fast(bit);
        one.read_mask = read_mask(bit, true);
        assert!(one.has_read(9 | bit) && !one.has_read(9 | bit | TRACKED));
    }

    #[test]
    fn a_thread_without_a_reader_bit_reads_fast_only_what_it_wrote_last() {
        let one = fast(0);
        assert!(one.has_read(7) && one.has_read(7 | TRACKED));
        for word in [
            9,
            7 | SYNC,
            7 | EXTENDED,
            7 | FULL,
            7 | reader_bit(0),
            ALL_READERS,
            line::CROSS_PROCESS,
        ] {
            assert!(!one.has_read(word), "{word:#x}");
        }
        let mut undecided = fast(0);
        undecided.read_mask = read_mask(0, true);
        assert!(undecided.has_read(7) && !undecided.has_read(7 | TRACKED));
    }

    #[test]
    fn writes_are_fast_where_no_other_thread_has_read_since() {
        let one = fast(reader_bit(3));
        assert!(one.owns(one.owned) && one.owns(one.owned | TRACKED | FULL));
        assert!(!one.owns(one.owned | reader_bit(4)) && !one.owns(one.owned | SYNC));
        assert!(
            one.is_plain_word::<true>(one.owned) && !one.is_plain_word::<true>(one.owned | TRACKED)
        );
    }

    #[test]
    fn plain_lines_are_found_up_to_the_first_that_is_not() {
        let mine = reader_bit(3);
        let one = fast(mine);
        let set = |line: u64, word: u64| one.lines.word(0x5000 + line * 64).store(word, Relaxed);
        for line in 0..16 {
            set(line, one.owned);
        }
        set(2, one.owned | line::BYTES);
        set(3, 0);
        set(9, 9 | mine);
        set(12, 9);
        let until = |line: u64, end: u64| {
            let [line, end] = [line, end].map(|at| 0x5000 + at * 64);
            let reads = one.plain_until::<false>(line, end, one.read_mask);
            let writes = one.plain_until::<true>(line, end, one.read_mask);
            [reads, writes].map(|at| (at - 0x5000) / 64)
        };
        assert_eq!(until(0, 16), [12, 3]);
        assert_eq!(until(4, 16), [12, 9]);
        assert_eq!(until(4, 9), [9, 9]);
        assert_eq!(until(13, 16), [16, 16]);
        assert_eq!(until(5, 5), [5, 5]);
        (0..16).for_each(|line| set(line, 0));
    }

    #[test]
    fn a_first_access_to_a_page_and_one_across_lines_are_not_counted() {
        let mut one = fast(reader_bit(0));
        one.pages.word(0x5000).store(1, Relaxed);
        assert!(one.count::<false>(0x5038, 8, pages::READ));
        assert!(!one.count::<false>(0x5039, 8, pages::READ));
        assert!(!one.count::<true>(0x5004, 8, pages::READ));
        assert!(!one.count::<false>(0x9000, 8, pages::READ));
        let counted = one.pages.word(0x5000).load(Relaxed);
        assert_eq!(counted, pages::marked(1, pages::READ));
        one.pages.word(0x5000).store(0, Relaxed);
    }
}
