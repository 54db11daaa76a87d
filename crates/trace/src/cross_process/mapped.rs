//! What an engine does when memory is mapped that other processes may map too.

use std::sync::atomic::Ordering::Relaxed;

use super::{Backing, Mapped, Table};
use crate::engine::Engine;
use crate::line;
use numaloc_journal::Record;

const PAGE: u64 = 1 << crate::pages::PAGE_SHIFT;
/// Largest shared mapping, in bytes, whose lines are marked as soon as it is mapped.
const SMALL: u64 = 4 << 20;

impl Engine {
    /// Records the shared mappings that a forked child has from its parent, whose journal may lack them if it was
    /// killed: as parts of an object that is known.
    pub(crate) fn record_inherited(&self) {
        for (start, end, mapped) in self.mappings.all() {
            let first = Record::Map {
                sequence: self.sequence(),
                thread: 0,
                address: start,
                length: end - start,
                protection: 3,
                flags: (libc::MAP_SHARED | libc::MAP_FIXED) as u64,
                file: String::new(),
                offset: 0,
                moved_from: 0,
            };
            self.write(&first);
            self.write(&self.backing(start, end, mapped));
            if mapped.written {
                self.mark_small(start, end);
            }
        }
    }

    /// Records that shared memory was mapped at `address`, starting `offset` bytes into `backing`. Call it after the
    /// mapping itself was recorded. `writable`: the process may write it.
    pub fn shared(
        &self,
        backing: Option<Backing>,
        address: u64,
        length: u64,
        offset: u64,
        writable: bool,
    ) {
        let found = backing
            .zip(self.table.as_ref())
            .and_then(|(backing, found)| Some((found.table, found.table.object(&backing)?)));
        let Some((table, object)) = found else {
            if self.config.cross_process.is_some() && !self.noted_alone.swap(true, Relaxed) {
                self.write(&Record::Note(format!(
                    "process {} counts the memory it shares with others on its own: the table shared by the processes of the \
                     recording is not available",
                    self.config.path
                )));
            }
            return;
        };
        if writable {
            table.will_be_written(object);
            self.mark_written();
        }
        self.map_shared(object, address, length, offset);
    }

    /// The process may write memory from now on that it could only read.
    pub fn made_writable(&self, address: u64, length: u64) {
        let Some(found) = self.table.as_ref().filter(|_| self.mappings.any()) else {
            return;
        };
        for object in self
            .mappings
            .objects(address, address.saturating_add(length))
        {
            found.table.will_be_written(object);
        }
        self.mark_written();
    }

    /// Marks the lines of objects that were only read until now and that a process may write, on pages used before. To
    /// be called where a thread may learn that another process has written.
    #[inline(always)]
    pub fn mark_written(&self) {
        if let Some(found) = &self.table
            && self.mappings.have_changed(|| found.table.changes())
        {
            self.mark_all_written(found.table);
        }
    }

    #[cold]
    fn mark_all_written(&self, table: Table) {
        let written = |object| table.may_be_written(object);
        for (start, end) in self.mappings.take_written(written) {
            for page in (start..end).step_by(PAGE as usize) {
                if self.tables.touched.word(page).load(Relaxed) != 0 {
                    self.mark_cross_process(page, page + PAGE);
                }
            }
        }
    }

    /// Records that the System V segment at `address` was detached.
    pub fn detached(&self, address: u64) {
        if let Some((start, end)) = self.mappings.segment(address) {
            self.forget(start, end - start);
        }
    }

    /// The shared object mapped at `address`, and the offset of `address` in it.
    #[must_use]
    pub fn shared_at(&self, address: u64) -> Option<(u32, u64)> {
        let mapped = self.mappings.at(address)?;
        Some((mapped.object, address.wrapping_add(mapped.origin)))
    }

    /// Records that `length` bytes of a shared object, from `offset` on, were mapped at `address`. Call it after the
    /// mapping itself was recorded.
    pub fn map_shared(&self, object: u32, address: u64, length: u64, offset: u64) {
        let end = address.saturating_add(length).next_multiple_of(PAGE);
        let mapped = Mapped {
            object,
            origin: offset.wrapping_sub(address),
            written: self
                .table
                .as_ref()
                .is_none_or(|found| found.table.may_be_written(object)),
        };
        self.mappings.add(address, end, mapped);
        self.write(&self.backing(address, end, mapped));
        if mapped.written {
            return self.mark_small(address, end);
        }
        // Another process may have mapped it to be written meanwhile.
        if let Some(found) = &self.table
            && found.table.may_be_written(object)
        {
            self.mark_all_written(found.table);
        }
    }

    fn backing(&self, start: u64, end: u64, mapped: Mapped) -> Record {
        Record::Backing {
            sequence: self.sequence(),
            address: start,
            length: end - start,
            object: mapped.object,
            offset: start.wrapping_add(mapped.origin),
        }
    }

    /// Marks the lines of a small shared mapping at once. A thread may still have counts for pages of earlier memory
    /// there; its next access to them would not be a first one and would not mark them.
    fn mark_small(&self, start: u64, end: u64) {
        if end - start <= SMALL {
            self.mark_cross_process(start, end);
        }
    }

    /// Whether the process has mapped memory that it shares with others.
    #[inline(always)]
    pub(crate) fn any_cross_process(&self) -> bool {
        self.mappings.any()
    }

    /// Whether the process has mapped memory that it shares with others, one of which may write it.
    #[inline(always)]
    pub(crate) fn any_written(&self) -> bool {
        self.mappings.any_written()
    }

    /// Marks the lines of the page at `address`, which a thread touches for the first time, if it is shared.
    pub(crate) fn mark_if_cross_process(&self, address: u64) {
        let is_written = || {
            let mapped = self.mappings.at(address);
            mapped.is_some_and(|mapped| mapped.written)
        };
        if self.mappings.any_written() && is_written() {
            let page = address / PAGE * PAGE;
            self.mark_cross_process(page, page + PAGE);
        }
    }

    fn mark_cross_process(&self, start: u64, end: u64) {
        for address in (start..end).step_by(1 << self.config.line_shift) {
            let word = self.tables.lines.word(address);
            if !line::is_cross_process(word.load(Relaxed)) {
                word.store(line::CROSS_PROCESS, Relaxed);
            }
        }
    }
}
