//! A thread's accesses to memory shared by processes: the rules of [`crate::thread`], applied to lines of the
//! cross-process table.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cross_process::table::Line;
use crate::cross_process::{Mapped, Table};
use crate::engine::Engine;
use crate::line;
use crate::memory::Detail;
use crate::sharing;
use crate::thread::ThreadTracer;
use numaloc_journal::{CROSS_PROCESS_NUMBER, Record};

const PAGE_SHIFT: u32 = 12;
/// Size of a thread's cache of pages.
const NEAR: usize = 64;

/// A thread's state for memory shared by processes, created at its first access to some.
pub(crate) struct Part {
    /// Number in the recording + 1: the writer id in words of the cross-process table.
    writer: u32,
    bit: u64,
    /// Generation of the mappings that `pages` was filled from.
    generation: u64,
    pages: [Page; NEAR],
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// Page number + 1, 0 for none.
    number: u64,
    chunk: u32,
    /// Offset of the page in its object.
    offset: u64,
}

impl Part {
    /// State for a new thread; `None` if the recording has had more threads than the table can number.
    fn new(table: &Table) -> Option<Box<Self>> {
        let number = u32::try_from(table.number_thread())
            .ok()
            .filter(|number| *number < line::MAX_WRITER)?;
        Some(Box::new(Self {
            writer: number + 1,
            bit: line::reader_bit(number),
            generation: u64::MAX,
            pages: [Page::default(); NEAR],
        }))
    }
}

/// A line of shared memory.
#[derive(Clone, Copy)]
struct Spot {
    table: Table,
    chunk: u32,
    offset: u64,
    line: Line,
}

impl ThreadTracer {
    /// The line of `address` in the cross-process table; `None` if it is no longer shared, or the table is full.
    fn spot(&mut self, address: u64) -> Option<Spot> {
        let engine: &'static Engine = self.engine;
        let table = engine.table.as_ref()?.table;
        if self.cross_process.is_none() {
            let part = Part::new(&table)?;
            self.record(&Record::CrossProcessNumber {
                thread: self.number(),
                number: part.writer - 1,
            });
            self.cross_process = Some(part);
        }
        let part = self.cross_process.as_mut()?;
        let generation = engine.mappings.generation();
        if part.generation != generation {
            part.pages = [Page::default(); NEAR];
            part.generation = generation;
        }
        let number = (address >> PAGE_SHIFT) + 1;
        let page = &mut part.pages[number as usize % NEAR];
        if page.number != number {
            let Mapped { object, origin, .. } = engine.mappings.at(address)?;
            let offset = (address >> PAGE_SHIFT << PAGE_SHIFT).wrapping_add(origin);
            *page = Page {
                number,
                chunk: table.chunk(object, offset)?,
                offset,
            };
        }
        let offset = page.offset + (address & ((1 << PAGE_SHIFT) - 1));
        Some(Spot {
            table,
            chunk: page.chunk,
            offset,
            line: table.line(page.chunk, offset),
        })
    }

    /// Word of the line of `address` in the cross-process table, mask of its bytes written, and the word of a line that
    /// this thread has written last; `None` if the thread has not used the page lately. Calls nothing.
    #[inline(always)]
    pub(crate) fn found_across(
        &self,
        address: u64,
    ) -> Option<(&'static AtomicU64, &'static AtomicU64, u64)> {
        let table = self.engine.table.as_ref()?.table;
        let part = self.cross_process.as_ref()?;
        let number = (address >> PAGE_SHIFT) + 1;
        let page = &part.pages[number as usize % NEAR];
        if page.number != number || part.generation != self.engine.mappings.generation() {
            return None;
        }
        let offset = page.offset + (address & ((1 << PAGE_SHIFT) - 1));
        let line = table.line(page.chunk, offset);
        let (word, written) = (table.found_word(line)?, table.found_written(line)?);
        Some((word, written, line::owned(part.writer, part.bit)))
    }

    /// The synchronisation clock at `address` in shared memory.
    pub(crate) fn cross_process_clock(&mut self, address: u64) -> Option<&'static AtomicU64> {
        let spot = self.spot(address)?;
        Some(spot.table.clock(spot.chunk, spot.offset))
    }

    /// Marks the line at `address` as used for synchronisation, for all processes.
    pub(crate) fn mark_cross_process_sync(&mut self, address: u64) {
        if let Some(spot) = self.spot(address) {
            let word = spot.table.word(spot.line);
            if word.load(Relaxed) & line::SYNC == 0 {
                word.fetch_or(line::SYNC, Relaxed);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn write_cross_process<const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        let Some(spot) = self.spot(address) else {
            return;
        };
        let entry = spot.table.word(spot.line);
        let word = entry.load(Relaxed);
        if word & line::SYNC != 0 {
            self.release_by::<RUNTIME>(address);
        }
        let (Some(part), false) = (&self.cross_process, RUNTIME) else {
            return;
        };
        let own_bit = if self.engine.config.consecutive {
            0
        } else {
            part.bit
        };
        let new = line::owned(part.writer, own_bit) | word & (line::SYNC | line::TRACKED);
        if word & line::EXTENDED != 0 {
            spot.table.reset(spot.line);
        }
        if word != new {
            entry.store(new, Relaxed);
        }
        if new & line::TRACKED != 0 && self.engine.budget.keeps(Detail::FalseSharing) {
            let bytes = sharing::bytes(address, size, self.engine.config.line_shift);
            let written = spot.table.written(spot.line);
            let before = if word == new {
                written.load(Relaxed)
            } else {
                0
            };
            if word != new || before | bytes != before {
                written.store(before | bytes, Relaxed);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn read_cross_process<const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        self.set_apart(address);
        let Some(spot) = self.spot(address) else {
            return;
        };
        let entry = spot.table.word(spot.line);
        let mut word = entry.load(Relaxed);
        if word & line::SYNC != 0 {
            self.acquire_by::<RUNTIME>(address);
        }
        let (Some(part), false) = (&self.cross_process, RUNTIME) else {
            return;
        };
        let (me, bit) = (part.writer, part.bit);
        let engine: &'static Engine = self.engine;
        let consecutive = engine.config.consecutive;
        let tell_apart = engine.budget.keeps(Detail::FalseSharing);
        let overlaps = |word: u64| {
            let bytes = sharing::bytes(address, size, engine.config.line_shift);
            word & line::FULL != 0 || spot.table.written(spot.line).load(Relaxed) & bytes != 0
        };
        loop {
            let writer = line::writer(word);
            if writer == 0 || writer == me && !consecutive {
                return;
            }
            if word & bit != 0 {
                if word & line::TRACKED != 0 && overlaps(word) {
                    self.resolve_true_sharing(address);
                }
                return;
            }
            let track = if tell_apart { line::tracked(word) } else { 0 };
            let new = word | track | if bit != 0 { bit } else { line::EXTENDED };
            if new != word
                && let Err(now) = entry.compare_exchange_weak(word, new, Relaxed, Relaxed)
            {
                word = now;
                continue;
            }
            let tracked = word & line::TRACKED != 0;
            let first = if consecutive {
                word & (line::ALL_READERS | line::EXTENDED) == 0 && writer != me
            } else {
                bit != 0 || spot.table.mark(spot.line, me - 1)
            };
            if first {
                let overlaps = tracked.then(|| overlaps(word));
                self.record_communication(CROSS_PROCESS_NUMBER | writer, address, size);
                if tell_apart {
                    self.classify(CROSS_PROCESS_NUMBER | writer, address, size, overlaps);
                }
            } else if tracked && overlaps(word) {
                self.resolve_true_sharing(address);
            }
            return;
        }
    }
}
