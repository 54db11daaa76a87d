//! How changes of the program's code are noticed.
//!
//! Usually pages that the program may write are read-only while there is code from them: a write faults. Where that
//! is not enough, or takes too long, translated code compares what it was made from with memory each time it begins
//! ([`crate::translate`]): in memory that others may write, through another mapping, a file or another process; in
//! pages that the program writes often, and on stacks, where compilers put code for nested functions.

use std::ops::Range;

use numaloc_follow::address_map::{self, AddressMap};
use rangemap::RangeSet;

use crate::sys;

/// Number of writes to code of a page that are noticed by faults.
const FAULTS: u8 = 16;

/// A file by its device and its number there.
pub type FileId = (u64, u64);

/// What is known of changes of code.
pub struct Changes {
    /// Memory that others may write.
    shared: RangeSet<u64>,
    /// For pages with code, the number of writes to it, up to [`FAULTS`].
    writes: AddressMap<u8>,
    /// Where code of files is mapped.
    files: Vec<(FileId, Range<u64>)>,
    /// Stack pointer of the thread for which code is translated.
    pub stack_pointer: u64,
}

impl Changes {
    /// None.
    pub const fn new() -> Self {
        Self {
            shared: RangeSet::new(),
            writes: address_map::map(),
            files: Vec::new(),
            stack_pointer: 0,
        }
    }

    /// Whether others may write the byte at an address.
    pub fn is_shared(&self, at: u64) -> bool {
        !self.shared.is_empty() && self.shared.contains(&at)
    }

    /// Whether the program writes the page at an address so often that faults take too long.
    pub fn is_written_often(&self, at: u64) -> bool {
        self.writes.get(&sys::page_down(at)) == Some(&FAULTS)
    }

    /// Code of a page has been written.
    pub fn written(&mut self, page: u64) {
        let writes = self.writes.entry(page).or_default();
        *writes = (*writes + 1).min(FAULTS);
    }

    /// A page will be written often. False if that was known.
    pub fn will_be_written(&mut self, page: u64) -> bool {
        self.writes.insert(page, FAULTS) != Some(FAULTS)
    }

    /// Other memory is at these addresses; others may write it if it is `shared`, or code of a file.
    pub fn replaced(&mut self, range: Range<u64>, shared: bool, file: Option<FileId>) {
        if range.is_empty() {
            return;
        }
        self.forget(&range);
        if shared {
            self.shared.insert(range.clone());
        }
        self.files.extend(file.map(|file| (file, range)));
    }

    /// Nothing is at these addresses any more.
    pub fn forget(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        if !self.shared.is_empty() {
            self.shared.remove(range.clone());
        }
        self.protected(range);
        let overlaps = |of: &Range<u64>| of.start < range.end && range.start < of.end;
        self.files.retain(|(_, mapped)| !overlaps(mapped));
    }

    /// Memory has got another protection: writes are counted from nothing again.
    pub fn protected(&mut self, range: &Range<u64>) {
        if !self.writes.is_empty() {
            self.writes.retain(|page, _| !range.contains(page));
        }
    }

    /// Memory was moved from one range to another.
    pub fn moved(&mut self, from: &Range<u64>, to: Range<u64>) {
        let shared = self.is_shared(from.start);
        let file = self.files.iter().find(|one| one.1.contains(&from.start));
        let file = file.map(|one| one.0);
        self.forget(from);
        self.replaced(to, shared, file);
    }

    /// A file has been opened for writing: where its code is, others may write it from now on.
    pub fn opened(&mut self, file: FileId) -> Vec<Range<u64>> {
        let (same, others) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|one| one.0 == file);
        self.files = others;
        let ranges: Vec<Range<u64>> = same
            .into_iter()
            .map(|one: (FileId, Range<u64>)| one.1)
            .collect();
        self.shared.extend(ranges.iter().cloned());
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_often_until_its_protection_changes() {
        let mut changes = Changes::new();
        for _ in 0..FAULTS {
            assert!(!changes.is_written_often(0x1234));
            changes.written(0x1000);
        }
        changes.written(0x1000);
        assert!(changes.is_written_often(0x1234) && !changes.is_written_often(0x2000));
        changes.protected(&(0..0x2000));
        assert!(!changes.is_written_often(0x1234));
        assert!(changes.will_be_written(0x1000) && !changes.will_be_written(0x1000));
        changes.forget(&(0x1000..0x2000));
        assert!(!changes.is_written_often(0x1234));
    }

    #[test]
    fn memory_is_shared_where_it_is_mapped_and_where_its_file_is_opened() {
        let mut changes = Changes::new();
        changes.replaced(0x1000..0x3000, true, None);
        changes.replaced(0x3000..0x5000, false, Some((1, 2)));
        changes.replaced(0x2000..0x3000, false, None);
        let shared = |changes: &Changes| {
            let pages = (0..0xa000).step_by(0x1000);
            pages
                .filter(|&at| changes.is_shared(at))
                .collect::<Vec<u64>>()
        };
        assert_eq!(shared(&changes), [0x1000]);
        changes.moved(&(0x1000..0x2000), 0x8000..0x9000);
        changes.moved(&(0x3000..0x5000), 0x6000..0x8000);
        assert_eq!(shared(&changes), [0x8000]);
        // A second mapping of the same memory.
        changes.moved(&(0x8000..0x8000), 0x9000..0xa000);
        assert_eq!(shared(&changes), [0x8000, 0x9000]);
        assert!(changes.opened((1, 3)).is_empty());
        let opened = changes.opened((1, 2));
        assert_eq!((opened.len(), &opened[0]), (1, &(0x6000..0x8000)));
        assert_eq!(shared(&changes), [0x6000, 0x7000, 0x8000, 0x9000]);
    }
}
