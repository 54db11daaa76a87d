//! Sweeps: loads or stores of all bytes of a range, applied once per line.
//!
//! All bytes that a sweep reads of a line are one read: if any of them was written in the present tenure, the event is
//! true sharing.

use std::sync::atomic::Ordering::Relaxed;

use super::{LINE, Received, ThreadTracer};
use crate::line::{self, FAST_SHIFT};
use crate::memory::Detail;
use crate::sharing;

impl ThreadTracer {
    /// Applies loads (`WRITE` false) or stores of all bytes from `low` to `end`, in accesses of `size` bytes, to their
    /// lines.
    #[inline(always)]
    pub(super) fn sweep<const WRITE: bool>(&mut self, low: u64, end: u64, size: u32) {
        let mut received = (0, Received::default());
        let mut line = low & !(LINE - 1);
        loop {
            let mask = self.read_mask_in_page(low);
            line = self.fast.plain_until::<WRITE>(line, end, mask);
            if line >= end {
                break;
            }
            let word = self.fast.lines.word(line).load(Relaxed);
            let (first, last) = (line.max(low), end.min(line + LINE));
            match WRITE {
                true => self.sweep_written(word, first, last, size),
                false => self.sweep_read(word, first, last, size, &mut received),
            }
            line += LINE;
        }
        self.communication.add(received);
    }

    /// Applies stores of the bytes from `first` to `last`, within a line with this `word`.
    #[inline(always)]
    fn sweep_written(&mut self, word: u64, first: u64, last: u64, size: u32) {
        let mine = self.fast.owns(word);
        let odd = word & (line::SYNC | line::EXTENDED) != 0 || line::is_cross_process(word);
        let length = (last - first) as u32;
        let bytes = sharing::bytes(first, length, FAST_SHIFT);
        let tracked = word & line::TRACKED;
        if odd || self.first_store == 0 {
            self.line::<true, false>(first, size.min(length));
        } else if !mine {
            // As in `write_line`.
            let full = bytes == u64::MAX && tracked != 0;
            let now = self.fast.owned | if full { line::BYTES } else { tracked };
            self.fast.lines.word(first).store(now, Relaxed);
            self.keep_store(first);
            if line::writer(word) == 0 {
                self.settle::<true>(first);
            }
            if full {
                return;
            }
        }
        if tracked != 0 && self.engine.budget.keeps(Detail::FalseSharing) {
            let entry = self.engine.tables.written.word(first);
            let before = if mine || odd { entry.load(Relaxed) } else { 0 };
            entry.store(before | bytes, Relaxed);
        }
    }

    /// Applies loads of the bytes from `first` to `last`, within a line with this `word`. Counts from the same writer
    /// are summed in `gathered`.
    #[inline(always)]
    fn sweep_read(
        &mut self,
        word: u64,
        first: u64,
        last: u64,
        size: u32,
        gathered: &mut (u32, Received),
    ) {
        let writer = line::writer(word);
        let odd = word & (self.bit | line::SYNC | line::EXTENDED) != 0
            || writer == 0
            || writer == line::writer(self.fast.owned)
            || line::is_cross_process(word);
        let length = (last - first) as u32;
        let size = size.min(length);
        if !odd
            && self.engine.budget.keeps(Detail::FalseSharing)
            && self
                .fast
                .lines
                .word(first)
                .compare_exchange(
                    word,
                    word | self.bit | line::tracked(word),
                    Relaxed,
                    Relaxed,
                )
                .is_ok()
        {
            if gathered.0 != writer {
                let before = std::mem::replace(gathered, (writer, Received::default()));
                self.communication.add(before);
            }
            gathered.1.events += 1;
            gathered.1.bytes += u64::from(size);
            self.pass_event(writer, first);
            let tracked = word & line::TRACKED != 0;
            let overlaps = tracked.then(|| self.overlaps(word, first, length));
            if overlaps != Some(true) || !self.events.count_true(first / LINE) {
                self.classify(writer, first, size, overlaps);
            }
            return;
        }
        self.line::<false, false>(first, size);
        self.reread(self.fast.lines.word(first).load(Relaxed), first, length);
    }
}
