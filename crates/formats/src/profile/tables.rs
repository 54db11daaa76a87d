//! The tables of the profile folder, each declared once.

use numaloc_model::profile::Table as Part;

use super::schema::{Arrays, TableInfo};
pub(super) use marks::{MARKS, SITES};
pub(super) use memory::{
    CONTENDED_LINES, CONTENDED_VISITS, OBJECTS, PAGE_SLICES, PAGES, PageRow, SHARED_LINES,
    SLOW_LOADS, VARIABLES, VariableRow,
};
pub(super) use mpi::{MPI_CALLS, MPI_WAITS};
pub(super) use threads::{CELL_ERRORS, COMMUNICATION, SLICES, SliceRow, THREADS};

mod marks;
mod memory;
mod mpi;
mod threads;

/// The tables, in the order in which they are written.
pub(super) const ORDER: [Part; 16] = [
    Part::Threads,
    Part::Slices,
    Part::Communication,
    Part::Objects,
    Part::Variables,
    Part::Pages,
    Part::PageSlices,
    Part::CellErrors,
    Part::SharedLines,
    Part::ContendedLines,
    Part::ContendedVisits,
    Part::Marks,
    Part::Sites,
    Part::SlowLoads,
    Part::MpiCalls,
    Part::MpiWaits,
];

/// The table as a reader of columns.
pub(super) fn by_columns(table: Part) -> Option<&'static dyn Arrays> {
    Some(match table {
        Part::Meta => return None,
        Part::Threads => &THREADS,
        Part::Slices => &SLICES,
        Part::Communication => &COMMUNICATION,
        Part::Objects => &OBJECTS,
        Part::Variables => &VARIABLES,
        Part::Pages => &PAGES,
        Part::PageSlices => &PAGE_SLICES,
        Part::CellErrors => &CELL_ERRORS,
        Part::SharedLines => &SHARED_LINES,
        Part::ContendedLines => &CONTENDED_LINES,
        Part::ContendedVisits => &CONTENDED_VISITS,
        Part::Marks => &MARKS,
        Part::Sites => &SITES,
        Part::SlowLoads => &SLOW_LOADS,
        Part::MpiCalls => &MPI_CALLS,
        Part::MpiWaits => &MPI_WAITS,
    })
}

/// The declarations, in the order in which the tables are written.
#[must_use]
pub fn infos() -> [TableInfo; ORDER.len()] {
    [
        THREADS.info(),
        SLICES.info(),
        COMMUNICATION.info(),
        OBJECTS.info(),
        VARIABLES.info(),
        PAGES.info(),
        PAGE_SLICES.info(),
        CELL_ERRORS.info(),
        SHARED_LINES.info(),
        CONTENDED_LINES.info(),
        CONTENDED_VISITS.info(),
        MARKS.info(),
        SITES.info(),
        SLOW_LOADS.info(),
        MPI_CALLS.info(),
        MPI_WAITS.info(),
    ]
}
