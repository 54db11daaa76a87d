//! Page usage: how often each thread accessed each page.

use crate::MemoryPolicy;
use crate::ids::{ObjectIdx, PageNumber, ThreadIdx};

/// Accesses of one thread to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadAccess {
    /// The thread.
    pub thread: ThreadIdx,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
}

impl ThreadAccess {
    /// Loads and stores.
    #[must_use]
    pub fn total(&self) -> u64 {
        // Files may say anything.
        self.reads.saturating_add(self.writes)
    }
}

/// One page of the usage table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Address divided by page size, in the recorded run's address space.
    pub number: PageNumber,
    /// The object it belongs to, if known.
    pub object: Option<ObjectIdx>,
    /// Page within the object, from 0 (the page that holds the object's first byte).
    pub object_page: u64,
    /// The thread that touched it first, if observed.
    pub first_touch: Option<ThreadIdx>,
    /// Time of the first touch, in the profile's clock.
    pub first_touch_time: u64,
    /// The memory policy under which it was placed; `None` for first touch.
    pub policy: Option<MemoryPolicy>,
    cells: std::ops::Range<u32>,
}

impl Page {
    /// Its fields without its accesses.
    #[must_use]
    pub fn head(&self) -> PageHead {
        PageHead {
            number: self.number,
            object: self.object,
            object_page: self.object_page,
            first_touch: self.first_touch,
            first_touch_time: self.first_touch_time,
            policy: self.policy,
        }
    }
}

/// Access counts by page and thread, sparse: a page stores only the threads that accessed it.
///
/// Pages are in ascending page number, the threads of a page in ascending thread number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageUsage {
    page_size: u64,
    pages: Vec<Page>,
    cells: Vec<ThreadAccess>,
    knows_touches: bool,
}

/// The fields of a page that [`PageUsage::push`] needs besides its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHead {
    /// Address divided by page size.
    pub number: PageNumber,
    /// The object it belongs to, if known.
    pub object: Option<ObjectIdx>,
    /// Page within the object, from 0.
    pub object_page: u64,
    /// The thread that touched it first, if observed.
    pub first_touch: Option<ThreadIdx>,
    /// Time of the first touch, in the profile's clock.
    pub first_touch_time: u64,
    /// The memory policy under which it was placed; `None` for first touch.
    pub policy: Option<MemoryPolicy>,
}

impl PageHead {
    /// Takes over another part's first touch, unless this one has a first touch.
    pub(crate) fn add_touch(&mut self, part: &Self) {
        if self.first_touch.is_none() && part.first_touch.is_some() {
            self.first_touch = part.first_touch;
            self.first_touch_time = part.first_touch_time;
            self.policy = part.policy;
        }
    }
}

impl PageUsage {
    /// An empty table of pages of `page_size` bytes each.
    #[must_use]
    pub fn new(page_size: u64) -> Self {
        Self {
            page_size,
            pages: Vec::new(),
            cells: Vec::new(),
            knows_touches: false,
        }
    }

    /// Adds a page. Pages must come in ascending number; accesses are sorted and merged by thread.
    ///
    /// # Panics
    /// If the page's number is not above the last one's, or 2^32 cells are exceeded.
    pub fn push(&mut self, head: PageHead, mut accesses: Vec<ThreadAccess>) {
        assert!(
            self.pages
                .last()
                .is_none_or(|last| last.number < head.number),
            "pages must come in ascending order"
        );
        accesses.sort_by_key(|access| access.thread);
        let start = u32::try_from(self.cells.len()).expect("fewer than 2^32 page cells");
        for access in accesses {
            match self.cells[start as usize..].last_mut() {
                Some(last) if last.thread == access.thread => {
                    last.reads += access.reads;
                    last.writes += access.writes;
                }
                _ => self.cells.push(access),
            }
        }
        let end = u32::try_from(self.cells.len()).expect("fewer than 2^32 page cells");
        self.knows_touches |= head.first_touch.is_some();
        self.pages.push(Page {
            number: head.number,
            object: head.object,
            object_page: head.object_page,
            first_touch: head.first_touch,
            first_touch_time: head.first_touch_time,
            policy: head.policy,
            cells: start..end,
        });
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// The pages, by ascending number.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Whether first touches were observed: then nobody has placed a page without one.
    #[must_use]
    pub fn knows_touches(&self) -> bool {
        self.knows_touches
    }

    /// The accesses to one page, by ascending thread.
    #[must_use]
    pub fn accesses(&self, page: &Page) -> &[ThreadAccess] {
        &self.cells[page.cells.start as usize..page.cells.end as usize]
    }

    /// The index of the page with that number in [`Self::pages`].
    #[must_use]
    pub fn index_of(&self, number: PageNumber) -> Option<u32> {
        let at = self.pages.binary_search_by_key(&number, |page| page.number);
        u32::try_from(at.ok()?).ok()
    }

    /// All accesses to all pages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cells.iter().map(ThreadAccess::total).sum()
    }

    /// Accesses to a page by node: `counts[n]` becomes the sum over the threads for which `node_of(thread)` is `n`.
    /// `counts` is overwritten.
    pub fn by_node(&self, page: &Page, node_of: impl Fn(ThreadIdx) -> usize, counts: &mut [u64]) {
        counts.fill(0);
        for access in self.accesses(page) {
            counts[node_of(access.thread)] += access.total();
        }
    }

    /// The same usage in larger pages: neighbouring pages are merged and keep the earliest first touch.
    ///
    /// # Panics
    /// If `page_size` is not a multiple of the present size.
    #[must_use]
    pub fn merged(&self, page_size: u64) -> Self {
        assert!(
            page_size >= self.page_size && page_size.is_multiple_of(self.page_size),
            "cannot merge pages of {} bytes into pages of {page_size}",
            self.page_size
        );
        let factor = page_size / self.page_size;
        let mut merged = Self::new(page_size);
        let mut at = 0;
        while at < self.pages.len() {
            let number = self.pages[at].number.0 / factor;
            let mut end = at;
            while end < self.pages.len() && self.pages[end].number.0 / factor == number {
                end += 1;
            }
            let group = &self.pages[at..end];
            let first = group
                .iter()
                .filter(|page| page.first_touch.is_some())
                .min_by_key(|page| page.first_touch_time);
            merged.push(
                PageHead {
                    number: PageNumber(number),
                    object: group[0].object,
                    object_page: group[0].object_page / factor,
                    first_touch: first.and_then(|page| page.first_touch),
                    first_touch_time: first.map_or(0, |page| page.first_touch_time),
                    policy: first.and_then(|page| page.policy),
                },
                group
                    .iter()
                    .flat_map(|page| self.accesses(page))
                    .copied()
                    .collect(),
            );
            at = end;
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(thread: u32, reads: u64, writes: u64) -> ThreadAccess {
        ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes,
        }
    }

    fn head(number: u64, first: u32, time: u64) -> PageHead {
        PageHead {
            number: PageNumber(number),
            object: None,
            object_page: 0,
            first_touch: Some(ThreadIdx(first)),
            first_touch_time: time,
            policy: None,
        }
    }

    #[test]
    fn merging_pages_keeps_every_access_and_the_earliest_touch() {
        let mut usage = PageUsage::new(4096);
        usage.push(head(1, 3, 50), vec![access(3, 1, 1), access(0, 2, 0)]);
        usage.push(head(2, 0, 10), vec![access(0, 5, 0)]);
        usage.push(head(3, 1, 5), vec![access(1, 0, 7)]);
        let merged = usage.merged(8192);
        // Pages 2 and 3 share the 8 KiB page 1; page 1 is the upper half of 8 KiB page 0.
        assert_eq!(merged.pages().len(), 2);
        assert_eq!(merged.total(), usage.total());
        assert_eq!(merged.pages()[1].first_touch, Some(ThreadIdx(1)));
        let mut counts = [0; 2];
        merged.by_node(&merged.pages()[1], |t| t.index() % 2, &mut counts);
        assert_eq!(counts, [5, 7]);
    }
}
