//! Lines that change hands: who wrote them last, who reads them, and whether the same bytes are used.

use std::sync::atomic::Ordering::Relaxed;

use numaloc_model::Layer;

use super::ThreadTracer;
use crate::line;
use crate::memory::Detail;
use crate::sharing;

impl ThreadTracer {
    /// Applies an access of `size` bytes at `address`, within one line, to the line's state.
    #[inline(always)]
    pub(super) fn line<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        let word = self.lines.word(address).load(Relaxed);
        if WRITE {
            if self.fast.owns(word) {
                if !RUNTIME && line::keeps_bytes(word) {
                    self.track(address, size, false);
                }
            } else {
                self.write_line::<RUNTIME>(address, word, size);
            }
        } else if word & self.bit == 0 && word != 0 {
            self.read_line::<RUNTIME>(address, word, size);
        } else if word & line::TRACKED != 0 {
            self.reread(word, address, size);
        }
    }

    /// Applies a store to a line that this thread does not own.
    #[cold]
    #[inline(never)]
    pub(super) fn write_line<const RUNTIME: bool>(&mut self, address: u64, word: u64, size: u32) {
        if self.first_store == 0 {
            self.first_store = address;
        }
        let shared = line::is_cross_process(word);
        if shared || line::writer(word) == 0 {
            self.settle::<true>(address);
        }
        if shared {
            return self.write_cross_process::<RUNTIME>(address, size);
        }
        if word & line::SYNC != 0 {
            self.release_by::<RUNTIME>(address);
        }
        if RUNTIME {
            return;
        }
        self.keep_store(address);
        if word & (line::SYNC | line::EXTENDED) == 0 {
            // A flag set by another thread at this moment may be lost; the next use of the line sets it again.
            let tracked = word & line::TRACKED;
            self.lines
                .word(address)
                .store(self.fast.owned | tracked, Relaxed);
            if tracked != 0 {
                self.track(address, size, true);
            }
            return;
        }
        if word & line::EXTENDED != 0 {
            self.engine.tables.readers.reset(address);
        }
        let new = if word & line::SYNC != 0 {
            self.synchronising(word)
        } else {
            self.fast.owned | word & line::TRACKED
        };
        if word != new {
            self.lines.word(address).store(new, Relaxed);
        }
        if new & line::TRACKED != 0 {
            self.track(address, size, word != new);
        }
    }

    /// The word after this thread's store to a line used for synchronisation, with this `word`. Its one reader bit is
    /// that of a last writer that has all clocks of the line.
    #[inline(always)]
    pub(super) fn synchronising(&self, word: u64) -> u64 {
        let me = u64::from(line::writer(self.fast.owned));
        me | line::SYNC | word & (line::TRACKED | self.bit)
    }

    /// Adds the bytes written to the line's mask; the first write of a tenure clears it.
    #[inline(never)]
    pub(super) fn track(&mut self, address: u64, size: u32, first: bool) {
        if !self.engine.budget.keeps(Detail::FalseSharing) {
            return;
        }
        let entry = self.engine.tables.written.word(address);
        let bytes = sharing::bytes(address, size, self.lines.shift());
        let before = if first { 0 } else { entry.load(Relaxed) };
        if first || before | bytes != before {
            entry.store(before | bytes, Relaxed);
        }
    }

    /// Whether a read uses bytes written in the present tenure of the line, which has this `word`.
    #[inline(always)]
    pub(super) fn overlaps(&self, word: u64, address: u64, size: u32) -> bool {
        let bytes = sharing::bytes(address, size, self.lines.shift());
        word & line::FULL != 0
            || self.engine.tables.written.word(address).load(Relaxed) & bytes != 0
    }

    /// Handles a repeated read since the last write: the event of the first read turns out to be true sharing if this
    /// one uses bytes written in the tenure. Not if the thread has written the line itself since.
    #[inline(always)]
    pub(super) fn reread(&mut self, word: u64, address: u64, size: u32) {
        let line = address >> self.lines.shift();
        if line::writer(word) != line::writer(self.fast.owned)
            && self.events.is_undecided(line)
            && self.overlaps(word, address, size)
        {
            self.resolve_true_sharing(address);
        }
    }

    /// Whether this thread has read the line since the last write and no event in its slot is undecided, so that the
    /// read has no effect. Used when reads of tracked lines are not fast.
    #[inline(always)]
    pub(super) fn rereads(&self, word: u64, address: u64) -> bool {
        word & self.bit != 0 && !self.events.holds(address)
    }

    /// Applies a load from a line that this thread has not read since the last write.
    #[cold]
    #[inline(never)]
    pub(super) fn read_line<const RUNTIME: bool>(
        &mut self,
        address: u64,
        mut word: u64,
        size: u32,
    ) {
        if self.batch.prerecording && (word & line::SYNC != 0 || line::is_cross_process(word)) {
            self.prerecord(address, size);
        }
        if line::is_cross_process(word) {
            return self.read_cross_process::<RUNTIME>(address, size);
        }
        if word & line::SYNC != 0 && (RUNTIME || !self.loads_its_own(word, address)) {
            self.acquire_by::<RUNTIME>(address);
        }
        let me = line::writer(self.fast.owned);
        let consecutive = self.engine.config.consecutive;
        if RUNTIME || line::writer(word) == 0 || line::writer(word) == me && !consecutive {
            return;
        }
        let entry = self.lines.word(address);
        loop {
            let writer = line::writer(word);
            if writer == 0 || word & self.bit != 0 || writer == me && !consecutive {
                return;
            }
            let track = match self.engine.budget.keeps(Detail::FalseSharing) {
                true => line::tracked(word),
                false => 0,
            };
            let in_word = self.bit != 0 && word & line::SYNC == 0;
            if !in_word && !self.engine.budget.keeps(Detail::Readers) {
                return;
            }
            let new = word | track | if in_word { self.bit } else { line::EXTENDED };
            if new != word
                && let Err(now) = entry.compare_exchange_weak(word, new, Relaxed, Relaxed)
            {
                word = now;
                continue;
            }
            let first = if consecutive {
                word & (line::ALL_READERS | line::EXTENDED) == 0 && writer != me
            } else {
                in_word || self.engine.tables.readers.mark(address, self.reader)
            };
            if first {
                self.record_communication(writer, address, size);
                if track != 0 {
                    let tracked = word & line::TRACKED != 0;
                    let overlaps = tracked.then(|| self.overlaps(word, address, size));
                    self.classify(writer, address, size, overlaps);
                }
            } else if word & line::TRACKED != 0 {
                self.reread(word, address, size);
            }
            return;
        }
    }

    /// Counts one event: this thread read what `writer` had written.
    pub(crate) fn record_communication(&mut self, writer: u32, address: u64, size: u32) {
        let cell = self.communication.of(writer);
        cell.events += 1;
        cell.bytes += u64::from(size);
        self.group(Layer::WriteRead, writer, address);
        self.pass_event(writer, address);
    }

    /// Counts an event of false sharing.
    pub(super) fn record_false_sharing(&mut self, found: sharing::False) {
        let sharing::False { line, writer, size } = found;
        let cell = self.communication.of(writer);
        cell.false_events += 1;
        cell.false_bytes += u64::from(size);
        self.group(Layer::FalseSharing, writer, line << self.lines.shift());
    }

    /// Counts an event for its part of the sampled lines.
    pub(super) fn group(&mut self, layer: Layer, writer: u32, address: u64) {
        if self.engine.watched.is_some() {
            let part = self.sampler.watched.group(address);
            self.communication.count_part(layer, writer, part);
        }
    }
}
