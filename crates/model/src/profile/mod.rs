//! A recorded run: the tables of a profile folder, in memory.
//!
//! A [`Profile`] is made by a [`ProfileBuilder`], which sorts its tables and checks them once; its fields are private,
//! so what the analyses rely on holds for every profile:
//!
//! - every index of a row (thread, slice, page, object) is below the length of the table that it refers to;
//! - tables are sorted as the accessors state, and have one row for each key;
//! - no two threads of a rank have the same path;
//! - slices come in time order and none ends before it starts;
//! - the sum of a column of counts is at most [`MAX_COUNTED`], so sums over rows cannot overflow;
//! - variables lie within their object, errors of cells are finite, and sizes and shares of [`Meta`] are in range.
//!
//! The columns are described in `docs/formats/profile.md`.
//!
//! | module | content |
//! |---|---|
//! | [`meta`] | the origin of a profile and its known limits |
//! | [`rows`] | the rows of its tables |
//! | [`named`] | objects, and the variables that fill pages of them |
//! | [`role`] | what a thread is for, and its text in files |
//! | [`window`] | what is known of a recording of a program that ran already |
//! | [`image`] | page numbers of several processes in one table |
//! | [`error`] | why tables are not a profile |
//! | [`builder`] | tables under construction |
//! | `check`, `build` | their checks, and the profile of them |
//! | `change` | changes to a profile that keep it valid |

use crate::comm::{CommError, CommMatrix, Layer};
use crate::ids::ObjectIdx;
use crate::marks::MarkRow;
use crate::mpi::{MpiCall, MpiWait};
use crate::pages::{Page, PageUsage};
use crate::sites::SiteRow;

pub use builder::ProfileBuilder;
pub use check::MAX_COUNTED;
pub use error::{ProfileError, Table};
pub use meta::{Clock, Meta};
pub use named::Named;
pub use role::ThreadRole;
pub use rows::{
    AccessSliceRow, Amount, CellError, CommRow, CommSums, ContendedLine, ContendedVisits, Object,
    ObjectKind, PageSlice, PageSliceRow, SharedLine, Slice, SlowLoad, SlowLoadRow, SlowLoads,
    Thread, Variable, VisitedKind,
};
pub use window::{Resident, Segment, Window, WindowSource};

mod build;
pub mod builder;
mod change;
mod check;
pub mod error;
pub mod image;
pub mod meta;
pub mod named;
pub mod role;
pub mod rows;
pub mod window;

#[cfg(test)]
mod tests;

/// A recorded run; see the module for what holds of every profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    meta: Meta,
    threads: Vec<Thread>,
    slices: Vec<Slice>,
    communication: Vec<CommRow>,
    pages: PageUsage,
    page_slices: Vec<PageSliceRow>,
    access_slices: Vec<AccessSliceRow>,
    objects: Vec<Object>,
    cell_errors: Vec<CellError>,
    shared_lines: Vec<SharedLine>,
    contended_lines: Vec<ContendedLine>,
    contended_visits: Vec<ContendedVisits>,
    marks: Vec<MarkRow>,
    sites: Vec<SiteRow>,
    mpi_calls: Vec<MpiCall>,
    mpi_waits: Vec<MpiWait>,
    slow_loads: Option<SlowLoads>,
}

impl Profile {
    /// Origin and known limits.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The threads, tasks or ranks, by [`ThreadIdx`](crate::ids::ThreadIdx).
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The time slices, by [`SliceIdx`](crate::ids::SliceIdx), in time order.
    #[must_use]
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Communication, sorted by slice, layer, source and destination.
    #[must_use]
    pub fn communication(&self) -> &[CommRow] {
        &self.communication
    }

    /// Page usage of the whole run.
    #[must_use]
    pub fn pages(&self) -> &PageUsage {
        &self.pages
    }

    /// Page usage per slice, sorted by slice, page and thread; empty if it was not recorded.
    #[must_use]
    pub fn page_slices(&self) -> &[PageSliceRow] {
        &self.page_slices
    }

    /// Sums of the rows that a reader left out of [`Self::page_slices`], sorted by slice and thread; otherwise empty.
    #[must_use]
    pub fn access_slices(&self) -> &[AccessSliceRow] {
        &self.access_slices
    }

    /// The memory objects, by [`ObjectIdx`].
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Errors of estimated cells, sorted by layer, source and destination. Empty if the run was not sampled.
    #[must_use]
    pub fn cell_errors(&self) -> &[CellError] {
        &self.cell_errors
    }

    /// Lines through which threads communicated: those with the most false events first, then the most events, then by
    /// line. A limited list.
    #[must_use]
    pub fn shared_lines(&self) -> &[SharedLine] {
        &self.shared_lines
    }

    /// Lines for which threads would contend if they ran at the same time: those with the most transfers first, then by
    /// line. Empty if that was not recorded.
    #[must_use]
    pub fn contended_lines(&self) -> &[ContendedLine] {
        &self.contended_lines
    }

    /// When threads visit contended lines, by thread, its accesses and line. Empty if that was not recorded.
    #[must_use]
    pub fn contended_visits(&self) -> &[ContendedVisits] {
        &self.contended_visits
    }

    /// Sampled places in the program's code, sorted by kind, threads, object and places; empty if none were recorded.
    #[must_use]
    pub fn sites(&self) -> &[SiteRow] {
        &self.sites
    }

    /// Time in MPI calls, sorted by rank, then the longest first; empty if it was not recorded.
    #[must_use]
    pub fn mpi_calls(&self) -> &[MpiCall] {
        &self.mpi_calls
    }

    /// Which ranks waited for which in MPI calls, sorted by ranks and kind.
    #[must_use]
    pub fn mpi_waits(&self) -> &[MpiWait] {
        &self.mpi_waits
    }

    /// Recorded passes of marks, sorted by time, then place and occurrence; empty if none were recorded.
    #[must_use]
    pub fn marks(&self) -> &[MarkRow] {
        &self.marks
    }

    /// Long loads; `None` if the source does not distinguish them.
    #[must_use]
    pub fn slow_loads(&self) -> Option<&SlowLoads> {
        self.slow_loads.as_ref()
    }

    /// Whether a page is in the kernel's page cache ([`Object::is_page_cached`]).
    #[must_use]
    pub fn is_in_page_cache(&self, page: &Page) -> bool {
        let stores = || {
            self.pages
                .accesses(page)
                .iter()
                .map(|access| access.writes)
                .sum()
        };
        page.object
            .is_some_and(|object| self.object(object).is_page_cached(stores()))
    }

    /// Accesses by slice and thread, in that order; empty if page usage per slice was not recorded.
    #[must_use]
    pub fn accesses_by_slice(&self) -> Vec<AccessSliceRow> {
        if self.page_slices.is_empty() {
            return self.access_slices.clone();
        }
        let rows = self.page_slices.iter();
        AccessSliceRow::sums(rows.map(|row| (row.slice, row.thread, row.accesses)))
    }

    /// The layers with at least one row, in the order of [`Layer::ALL`].
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        Layer::ALL
            .into_iter()
            .filter(|&layer| self.communication.iter().any(|row| row.layer == layer))
            .collect()
    }

    /// Whether a layer, or one layer of a view, has at least one row.
    #[must_use]
    pub fn has_layer(&self, layer: Layer) -> bool {
        self.layers().into_iter().any(|stored| layer.holds(stored))
    }

    /// Whole-run matrix (threads x threads) of a layer.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix(&self, layer: Layer, amount: Amount) -> Result<CommMatrix, CommError> {
        self.matrix_of_slices(layer, amount, 0..u32::MAX)
    }

    /// Whole-run matrix of a layer in cache lines moved, the unit that is comparable with accesses to pages:
    /// an event of shared memory moves one line, messages move their bytes.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix_in_lines(&self, layer: Layer) -> Result<CommMatrix, CommError> {
        let matrix = self.matrix(layer, Amount::of_layer(layer))?;
        match Amount::of_layer(layer) {
            Amount::Events => Ok(matrix),
            Amount::Bytes => {
                let line = self.meta.line_size.max(1) as f64;
                let cells = matrix
                    .cells()
                    .map(|(src, dst, bytes)| (src, dst, bytes / line));
                CommMatrix::from_cells(matrix.threads(), cells)
            }
        }
    }

    /// Matrix of the slices `slices` (indexes).
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix_of_slices(
        &self,
        layer: Layer,
        amount: Amount,
        slices: std::ops::Range<u32>,
    ) -> Result<CommMatrix, CommError> {
        let rows = self
            .communication
            .iter()
            .filter(|row| layer.holds(row.layer) && slices.contains(&row.slice.0));
        let threads = self.threads.len();
        let cells = rows.map(|row| (row.src.index(), row.dst.index(), amount.of(row) as f64));
        if self.communication.len() < threads * threads {
            return CommMatrix::from_cells(threads, cells);
        }
        // More rows than cells: adding in place is faster than sorting.
        let dense = CommMatrix::dense_sums(threads, cells)?;
        CommMatrix::from_dense(threads, &dense)
    }

    /// The object with that index.
    #[must_use]
    pub fn object(&self, object: ObjectIdx) -> &Object {
        &self.objects[object.index()]
    }
}
