//! What a thread writes to the journal: communication at the end of a slice, page counts at the end of a span, the
//! rest at its end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use numaloc_model::Layer;

use super::{Received, ThreadTracer, WORD};
use crate::extra::layer_index;
use crate::line;
use crate::memory::Detail;
use crate::pages::{self, PAGE_SHIFT};
use numaloc_journal::{Journal, Record};

/// Records of a thread that are not in the journal yet.
pub(super) struct Outgoing {
    /// A frame in preparation ([`Journal::begin`]).
    pub out: Vec<u8>,
    /// Accesses that the process's progress includes.
    pub reported: u64,
}

impl Outgoing {
    pub fn new() -> Self {
        let mut out = Vec::new();
        Journal::begin(&mut out);
        Self { out, reported: 0 }
    }
}

impl ThreadTracer {
    /// Writes the communication received in this slice or burst, by layer.
    pub(super) fn flush_comm(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.flush(
                self.number,
                self.clock.slice_start,
                self.clock.slice_length,
                &mut self.journal.out,
            );
        }
        if self.communication.is_empty() {
            return;
        }
        let start = match self.engine.bursts {
            Some(_) => self.sampler.burst,
            None => self.clock.slice_start,
        };
        let taken = self.communication.take().into_iter();
        let received: Vec<(u32, Received)> =
            taken.map(|(writer, cell)| (writer - 1, cell)).collect();
        let all = received.iter().map(|(w, h)| (*w, h.events, h.bytes));
        let disjoint = received
            .iter()
            .map(|(w, h)| (*w, h.false_events, h.false_bytes));
        for (layer, cells) in [
            (Layer::WriteRead, all.collect::<Vec<_>>()),
            (Layer::FalseSharing, disjoint.collect()),
        ] {
            let cells: Vec<_> = cells.into_iter().filter(|cell| cell.1 > 0).collect();
            if cells.is_empty() {
                continue;
            }
            Record::Comm {
                thread: self.number,
                layer: layer_index(layer),
                start,
                length: self.clock.slice_length,
                cells,
            }
            .encode(&mut self.journal.out);
        }
    }

    /// Writes the counts for each part of the sampled lines.
    pub(super) fn flush_groups(&mut self) {
        for ((layer, writer), counts) in self.communication.take_parts() {
            Record::Groups {
                thread: self.number,
                layer,
                src: writer - 1,
                counts: counts.to_vec(),
            }
            .encode(&mut self.journal.out);
        }
    }

    /// Writes the page counts of this span and the pages touched first.
    pub(super) fn flush_pages(&mut self) {
        let before = self.journal.out.len();
        if !self.pages.counters.counts() {
            self.pages.first_touched.clear();
            return;
        }
        let cells = self.pages.counters.take();
        self.write_pages(cells);
        if !self.pages.first_touched.is_empty() {
            Record::FirstTouch {
                thread: self.number,
                cells: std::mem::take(&mut self.pages.first_touched),
            }
            .encode(&mut self.journal.out);
        }
        self.engine
            .slices
            .account_pages((self.journal.out.len() - before) as u64);
    }

    fn write_pages(&mut self, cells: Vec<(u64, u64, u64)>) {
        if !cells.is_empty() {
            Record::Pages {
                thread: self.number,
                start: self.pages.span_start,
                length: self.pages.span_length,
                cells,
            }
            .encode(&mut self.journal.out);
        }
    }

    /// Clears the state of memory that was unmapped, replaced or freed; this thread's next access to one of its pages
    /// is a first one.
    pub fn forget(&mut self, address: u64, length: u64) {
        self.take_counts(address, length);
        self.engine.forget(address, length);
    }

    /// Writes this thread's counts of pages, so that its next access to one of them is a first one.
    pub(crate) fn take_counts(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        let pages = address >> PAGE_SHIFT..end.div_ceil(1 << PAGE_SHIFT);
        let cells = self.pages.counters.take_some(pages);
        if self.pages.counters.counts() {
            let before = self.journal.out.len();
            self.write_pages(cells);
            self.engine
                .slices
                .account_pages((self.journal.out.len() - before) as u64);
        }
    }

    /// Takes back this thread's last stores, to the words from `start` to `end` in one page, which only the emulator
    /// made it do. If it did nothing else to the page, the next thread touches the page first.
    pub fn take_back(&mut self, start: u64, end: u64) {
        self.flush_pending();
        let words = (end - start) / WORD;
        let page = start >> PAGE_SHIFT;
        if line::is_cross_process(self.lines.word(start).load(Relaxed)) {
            return;
        }
        let counters = &mut self.pages.counters;
        let Some(rest) = counters.take_back(start, words * pages::WRITE) else {
            return;
        };
        self.fast.write_bytes = self.fast.write_bytes.saturating_sub(end - start);
        // If its first touch is not written yet, neither are any of the counts since.
        let mine = self
            .pages
            .first_touched
            .iter()
            .rposition(|touch| touch.0 == page);
        if let (0, Some(touch)) = (rest, mine) {
            self.pages.first_touched.remove(touch);
            self.engine.forget(page << PAGE_SHIFT, 1 << PAGE_SHIFT);
        }
    }

    /// Counts the stores that `creator` (by number) made for this thread before it began, where no frontend records:
    /// one for each word in `ranges` of addresses.
    pub fn prepared(&mut self, creator: u32, ranges: &[(u64, u64)]) {
        if !self.pages.counters.counts() {
            return;
        }
        let now = self.time();
        let (mut words, mut first) = (BTreeMap::new(), Vec::new());
        for word in ranges
            .iter()
            .flat_map(|&(start, end)| (start..end).step_by(WORD as usize))
        {
            *words.entry(word >> PAGE_SHIFT).or_insert(0) += 1;
        }
        for &page in words.keys() {
            if self.engine.place(page, creator, 0) {
                first.push((page, now));
            }
        }
        let before = self.journal.out.len();
        Record::Pages {
            thread: creator,
            start: self.pages.span_start,
            length: self.pages.span_length,
            cells: words
                .into_iter()
                .map(|(page, words)| (page, 0, words))
                .collect(),
        }
        .encode(&mut self.journal.out);
        if !first.is_empty() {
            Record::FirstTouch {
                thread: creator,
                cells: first,
            }
            .encode(&mut self.journal.out);
        }
        self.engine
            .slices
            .account_pages((self.journal.out.len() - before) as u64);
    }

    /// Writes the thread's totals and hands everything written to the journal.
    pub(super) fn write_out(&mut self) {
        let accesses = self.clock.accesses + self.clock.spent(self.fast.remaining);
        Record::ThreadTotals {
            thread: self.number,
            time: self.time(),
            accesses,
            seen: if self.sampler.partial {
                self.sampler.sampled
            } else {
                self.seen()
            },
            read_bytes: self.fast.read_bytes,
            write_bytes: self.fast.write_bytes,
        }
        .encode(&mut self.journal.out);
        self.engine.journal.append(&mut self.journal.out);
        self.engine
            .report_progress(accesses - self.journal.reported);
        self.journal.reported = accesses;
    }

    /// Flushes all counts to the journal.
    pub fn flush(&mut self) {
        self.flush_pending();
        self.flush_comm();
        self.flush_groups();
        self.flush_pages();
        self.flush_sites();
        self.write_out();
        if let Some(stream) = &mut self.stream {
            stream.flush();
        }
    }

    /// Ends the thread: flushes its counts. `clear_tid` is the address that the kernel will clear and wake, or 0.
    pub fn end(&mut self, clear_tid: u64) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.flush_pending();
        if clear_tid != 0 {
            self.engine.keep_ended(clear_tid);
            self.mark_sync(clear_tid);
            self.release(clear_tid);
        }
        self.leave_process();
        self.store_recorded();
        if let Some(mut sharing) = self.events.take() {
            // Without masks no event can be classified.
            if self.engine.budget.keeps(Detail::FalseSharing) {
                for found in sharing.conclude() {
                    self.record_false_sharing(found);
                }
            }
            sharing.hand_over(&mut self.engine.shared_lines(), true);
        }
        self.flush();
        self.engine.population.remove(self.reader);
    }
}
