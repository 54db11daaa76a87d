//! Why tables are not a profile.

/// A table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Origin and limits: one row.
    Meta,
    /// Threads, tasks or ranks.
    Threads,
    /// Time slices.
    Slices,
    /// Communication by slice, layer and pair.
    Communication,
    /// Memory objects.
    Objects,
    /// Named parts of objects.
    Variables,
    /// Accesses by page and thread.
    Pages,
    /// Accesses by slice, page and thread.
    PageSlices,
    /// Errors of estimated cells.
    CellErrors,
    /// Lines through which threads communicated.
    SharedLines,
    /// Lines for which threads contend.
    ContendedLines,
    /// When threads visit contended lines.
    ContendedVisits,
    /// Recorded passes of marks.
    Marks,
    /// Sampled places in the program's code.
    Sites,
    /// Time in MPI calls.
    MpiCalls,
    /// Which ranks waited for which.
    MpiWaits,
    /// Long loads by page and thread.
    SlowLoads,
}

impl Table {
    /// The name in messages and of the table's file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Threads => "threads",
            Self::Slices => "slices",
            Self::Communication => "communication",
            Self::Objects => "objects",
            Self::Variables => "variables",
            Self::Pages => "pages",
            Self::PageSlices => "page_slices",
            Self::CellErrors => "cell_errors",
            Self::SharedLines => "shared_lines",
            Self::ContendedLines => "contended_lines",
            Self::ContendedVisits => "contended_visits",
            Self::Marks => "marks",
            Self::Sites => "sites",
            Self::MpiCalls => "mpi_calls",
            Self::MpiWaits => "mpi_waits",
            Self::SlowLoads => "slow_loads",
        }
    }
}

/// The first contradiction found in tables under construction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {}, {}: found {found}, expected {expected}", table.name(), self.place())]
pub struct ProfileError {
    /// The table.
    pub table: Table,
    /// The row, in the order in which rows were added; `None` if a whole column is meant.
    pub row: Option<usize>,
    /// The column; `None` if the whole row is meant.
    pub column: Option<&'static str>,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
}

impl ProfileError {
    /// Row and column, as in `row 3, column src`. A field of [`Table::Meta`] is named alone.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.row, self.column) {
            (_, Some(field)) if self.table == Table::Meta => field.to_owned(),
            (Some(row), Some(column)) => format!("row {row}, column {column}"),
            (Some(row), None) => format!("row {row}"),
            (None, Some(column)) => format!("column {column}"),
            (None, None) => "rows".to_owned(),
        }
    }
}
