//! Events of lines that are tracked already: what a thread receives from the last writer.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use super::super::{LINE, ThreadTracer};
use crate::line;
use crate::memory::Detail;

/// What a load of one word is to a thread.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// No event, and it decides none.
    Quiet,
    /// The first load of what another thread has stored; whether it uses bytes written in the line's tenure. Another
    /// thread may change the mask at any time, so it is read once.
    Event { overlaps: bool },
}

impl ThreadTracer {
    /// Whether a load from a known line with this `word` decides no event, as [`ThreadTracer::reread`] would.
    #[inline(always)]
    pub(super) fn is_quiet(&self, word: u64, address: u64, size: u32) -> bool {
        word & line::TRACKED == 0
            || !self.events.holds(address)
            || line::writer(word) == line::writer(self.fast.owned)
            || !self.events.is_undecided(address / LINE)
            || !self.overlaps(word, address, size)
    }

    /// The first load of what another thread has stored to a line with this `word`, if
    /// [`ThreadTracer::light_received`] can count it.
    #[inline(always)]
    fn receives(&mut self, word: u64, address: u64, size: u32) -> Option<Load> {
        if word & line::TRACKED == 0
            || self.engine.watched.is_some()
            || !self.engine.budget.keeps(Detail::FalseSharing)
            || self.sites.until == 1
        {
            return None;
        }
        let overlaps = self.overlaps(word, address, size);
        let decided = self.events.counts(address / LINE, overlaps)?;
        self.communication.known(line::writer(word))?;
        if decided != 0 {
            self.communication.known(decided)?;
        }
        Some(Load::Event { overlaps })
    }

    /// Counts such a load: [`ThreadTracer::record_communication`] and [`ThreadTracer::classify`].
    #[inline(always)]
    pub(super) fn light_received(&mut self, word: u64, address: u64, size: u32, overlaps: bool) {
        let writer = line::writer(word);
        let found = self.events.count(address / LINE, writer, size, overlaps);
        if let Some(cell) = self.communication.known(writer) {
            cell.events += 1;
            // Two neighbouring sums would become one of a vector register, which belongs to the program.
            compiler_fence(SeqCst);
            cell.bytes += u64::from(size);
        }
        self.sites.until -= 1;
        if let Some(found) = found
            && let Some(cell) = self.communication.known(found.writer)
        {
            cell.false_events += 1;
            compiler_fence(SeqCst);
            cell.false_bytes += u64::from(found.size);
        }
        self.update_read_mask();
    }

    /// Whether a load of one word by the program from a line with this `word` is the first of what another thread has
    /// stored; `None` if the load cannot be recorded here.
    #[inline(always)]
    fn is_first(&self, word: u64, address: u64) -> Option<bool> {
        let (writer, me) = (line::writer(word), line::writer(self.fast.owned));
        if self.is_known(word) {
            return Some(false);
        }
        let shared = word & (line::SYNC | line::EXTENDED);
        if shared == 0 {
            return (self.bit != 0 && writer != 0 && writer != me).then_some(true);
        }
        if shared & line::SYNC == 0 || self.engine.config.consecutive {
            return None;
        }
        if writer == 0 || writer == me {
            return Some(false);
        }
        if !self.engine.budget.keeps(Detail::Readers) {
            return None;
        }
        // The readers of lines used for synchronisation are beyond their words.
        let read = self.engine.tables.readers.is_marked(address, self.reader)?;
        (!read || shared & line::EXTENDED != 0).then_some(!read)
    }

    /// What a load of one word by the program from a line with this `word` is, as [`ThreadTracer::read_line`] finds;
    /// `None` if the load cannot be recorded here.
    #[inline(always)]
    pub(super) fn light_event(&mut self, word: u64, address: u64, size: u32) -> Option<Load> {
        if line::is_cross_process(word) {
            return None;
        }
        match self.is_first(word, address)? {
            true => self.receives(word, address, size),
            false if self.is_quiet(word, address, size) => Some(Load::Quiet),
            false => None,
        }
    }

    /// Notes in a line with this `word` that the thread has read it; false if the line has changed.
    #[inline(always)]
    pub(super) fn light_read(&mut self, word: u64, address: u64) -> bool {
        let synchronises = word & line::SYNC != 0;
        let bit = match synchronises {
            true => line::EXTENDED,
            false => self.bit,
        };
        let entry = self.lines.word(address);
        let read = entry.compare_exchange(word, word | bit, Relaxed, Relaxed);
        if read.is_ok() && synchronises {
            self.engine.tables.readers.mark_found(address, self.reader);
        }
        read.is_ok()
    }
}
