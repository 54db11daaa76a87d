//! Tables of a profile under construction.
//!
//! Rows may be added in any order and refer to threads, objects and pages that are added later. Nothing is checked
//! before [`ProfileBuilder::build`].

use super::meta::Meta;
use super::rows::{
    AccessSliceRow, CellError, CommRow, ContendedLine, ContendedVisits, Object, PageSlice,
    SharedLine, Slice, SlowLoad, Thread, Variable,
};
use crate::ids::{ObjectIdx, SliceIdx, ThreadIdx};
use crate::marks::MarkRow;
use crate::mpi::{MpiCall, MpiWait};
use crate::pages::{PageHead, PageUsage, ThreadAccess};
use crate::sites::SiteRow;

/// The tables of a profile under construction.
///
/// Tables without an order of their own are fields. [`Self::build`] sorts them, merges rows with the same key, and
/// replaces page numbers by indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileBuilder {
    /// Origin and known limits.
    pub meta: Meta,
    /// Bytes per page, a power of two from 512 to 2^34.
    pub page_size: u64,
    /// The threads, by [`ThreadIdx`]; see also [`Self::thread`].
    pub threads: Vec<Thread>,
    /// The slices, by [`SliceIdx`], in time order.
    pub slices: Vec<Slice>,
    /// Communication; rows with the same slice, layer and pair are added up.
    pub communication: Vec<CommRow>,
    /// Page usage per slice; rows with the same slice, page and thread are added up.
    pub page_slices: Vec<PageSlice>,
    /// Sums of page usage per slice where its rows are left out; rows with the same slice and thread are added up.
    pub access_slices: Vec<AccessSliceRow>,
    /// The objects, by [`ObjectIdx`]; see also [`Self::object`].
    pub objects: Vec<Object>,
    /// Errors of estimated cells.
    pub cell_errors: Vec<CellError>,
    /// Lines through which threads communicated.
    pub shared_lines: Vec<SharedLine>,
    /// Lines for which threads would contend if they ran at the same time.
    pub contended_lines: Vec<ContendedLine>,
    /// When threads visit them.
    pub contended_visits: Vec<ContendedVisits>,
    /// Recorded passes of marks.
    pub marks: Vec<MarkRow>,
    /// Sampled places in the program's code; rows with the same key are added up.
    pub sites: Vec<SiteRow>,
    /// Time in MPI calls.
    pub mpi_calls: Vec<MpiCall>,
    /// Which ranks waited for which in MPI calls; rows with the same ranks and kind are added up.
    pub mpi_waits: Vec<MpiWait>,
    /// What a long load is and what observed it, and the long loads; rows with the same page and thread are added up.
    pub slow_loads: Option<(String, Vec<SlowLoad>)>,
    /// Heads of pages, each with the end of its cells.
    heads: Vec<(PageHead, usize)>,
    cells: Vec<ThreadAccess>,
    /// Parts of objects in addition to [`Object::variables`].
    variables: Vec<(ObjectIdx, Variable)>,
}

impl ProfileBuilder {
    /// Empty tables, for pages of `page_size` bytes.
    #[must_use]
    pub fn new(meta: Meta, page_size: u64) -> Self {
        Self {
            meta,
            page_size,
            threads: Vec::new(),
            slices: Vec::new(),
            communication: Vec::new(),
            page_slices: Vec::new(),
            access_slices: Vec::new(),
            objects: Vec::new(),
            cell_errors: Vec::new(),
            shared_lines: Vec::new(),
            contended_lines: Vec::new(),
            contended_visits: Vec::new(),
            marks: Vec::new(),
            sites: Vec::new(),
            mpi_calls: Vec::new(),
            mpi_waits: Vec::new(),
            slow_loads: None,
            heads: Vec::new(),
            cells: Vec::new(),
            variables: Vec::new(),
        }
    }

    /// Adds a thread and returns the handle by which rows refer to it.
    ///
    /// # Panics
    /// After 2^32 threads.
    pub fn thread(&mut self, thread: Thread) -> ThreadIdx {
        self.threads.push(thread);
        ThreadIdx::from_index(self.threads.len() - 1)
    }

    /// Adds an object and returns the handle by which rows refer to it.
    ///
    /// # Panics
    /// After 2^32 objects.
    pub fn object(&mut self, object: Object) -> ObjectIdx {
        self.objects.push(object);
        ObjectIdx::from_index(self.objects.len() - 1)
    }

    /// Adds a named part of an object.
    pub fn variable(&mut self, object: ObjectIdx, variable: Variable) {
        self.variables.push((object, variable));
    }

    /// Adds accesses to a page. Pages may come in any order and in several parts: the first part decides what a page
    /// belongs to, the first part with a first touch who touched it.
    pub fn page(&mut self, head: PageHead, accesses: impl IntoIterator<Item = ThreadAccess>) {
        // Files have such a row for a thread that placed a page and did not use it.
        let used = |access: &ThreadAccess| access.total() > 0;
        self.cells.extend(accesses.into_iter().filter(used));
        let end = self.cells.len();
        let of = |head: &PageHead| (head.number, head.object, head.object_page);
        match self.heads.last_mut() {
            // Parts that follow each other, as in files with a row for each thread, are one.
            Some((last, last_end)) if of(last) == of(&head) => {
                last.add_touch(&head);
                *last_end = end;
            }
            _ => self.heads.push((head, end)),
        }
    }

    /// Takes memory for `pages` more parts of pages with `accesses` accesses, and no more.
    pub fn reserve_pages(&mut self, pages: usize, accesses: usize) {
        self.heads.reserve_exact(pages);
        self.cells.reserve_exact(accesses);
    }

    /// Adds all pages of a table, whatever its page size.
    pub fn usage(&mut self, pages: &PageUsage) {
        for page in pages.pages() {
            self.page(page.head(), pages.accesses(page).iter().copied());
        }
    }

    /// Merges slices into slices of `length` from 0 to the end of the last one: a slice goes to the one in which it
    /// begins. Rows of slices that do not exist stay as they are.
    pub fn merge_slices(&mut self, length: u64, end: u64) {
        let length = length.max(1);
        let place = |slice: &Slice| SliceIdx((slice.start / length) as u32);
        let places: Vec<SliceIdx> = self.slices.iter().map(place).collect();
        let moved = |slice: &mut SliceIdx| *slice = *places.get(slice.index()).unwrap_or(slice);
        self.communication
            .iter_mut()
            .for_each(|row| moved(&mut row.slice));
        self.page_slices
            .iter_mut()
            .for_each(|row| moved(&mut row.slice));
        self.access_slices
            .iter_mut()
            .for_each(|row| moved(&mut row.slice));
        let last = self.slices.last().map_or(0, |slice| slice.end);
        self.slices = Slice::even(length, end.max(last)).collect();
    }

    /// Attributes the rows of each thread to another, or itself: thread `t` to `into[t]`. The threads stay.
    pub(super) fn attribute(&mut self, of: impl Fn(ThreadIdx) -> ThreadIdx) {
        for row in &mut self.communication {
            (row.src, row.dst) = (of(row.src), of(row.dst));
        }
        for cell in &mut self.cells {
            cell.thread = of(cell.thread);
        }
        for (head, _) in &mut self.heads {
            head.first_touch = head.first_touch.map(&of);
        }
        for row in &mut self.page_slices {
            row.thread = of(row.thread);
        }
        for row in &mut self.access_slices {
            row.thread = of(row.thread);
        }
        for row in self.slow_loads.iter_mut().flat_map(|(_, rows)| rows) {
            row.thread = of(row.thread);
        }
        for row in &mut self.contended_visits {
            row.thread = of(row.thread);
        }
        for mark in &mut self.marks {
            mark.thread = of(mark.thread);
        }
        for site in &mut self.sites {
            site.thread = of(site.thread);
            site.other = site.other.map(&of);
        }
        for call in &mut self.mpi_calls {
            call.thread = of(call.thread);
        }
        for wait in &mut self.mpi_waits {
            (wait.thread, wait.other) = (of(wait.thread), of(wait.other));
        }
        for object in &mut self.objects {
            object.thread = object.thread.map(&of);
        }
        for cell in &mut self.cell_errors {
            (cell.src, cell.dst) = (of(cell.src), of(cell.dst));
        }
    }

    /// The heads of pages with the end of their cells, and the cells, as they were added.
    pub(super) fn page_rows(&self) -> (&[(PageHead, usize)], &[ThreadAccess]) {
        (&self.heads, &self.cells)
    }

    /// The parts of objects by object: those that came with an object, then those added later.
    pub(super) fn variables(&self) -> impl Iterator<Item = (u32, &Variable)> + Clone {
        let with_objects = self.objects.iter().enumerate();
        let with_objects = with_objects
            .flat_map(|(at, object)| object.variables.iter().map(move |part| (at as u32, part)));
        let added = self.variables.iter();
        with_objects.chain(added.map(|(object, part)| (object.0, part)))
    }

    /// Takes the parts that were added to objects, in the order in which they were added.
    pub(super) fn take_variables(&mut self) -> Vec<(ObjectIdx, Variable)> {
        std::mem::take(&mut self.variables)
    }
}
