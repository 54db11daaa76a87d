//! Reads and writes profiles: folders of Parquet tables and `meta.json`. Format: `docs/formats/profile.md`.
//!
//! Increase [`VERSION`] when a column changes its meaning or is no longer written. New columns and tables
//! need no new version, because readers ignore unknown ones. `profile/tables.rs` declares the tables.

use std::fs;
use std::path::{Path, PathBuf};

use numaloc_files::{FolderKind, FolderOutput};
use numaloc_model::pages::{PageHead, PageUsage, ThreadAccess};
use numaloc_model::profile::{
    AccessSliceRow, Meta, Object, PageSlice, ProfileBuilder, ProfileError, SlowLoad, Table as Part,
    Variable,
};
use numaloc_model::{ObjectIdx, Profile};

use self::arrays::Columns;
use self::checksums::Sums;
use self::schema::{Rows, file_of};
use self::tables::{
    CELL_ERRORS, COMMUNICATION, CONTENDED_LINES, CONTENDED_VISITS, MARKS, MPI_CALLS, MPI_WAITS,
    OBJECTS, ORDER, PAGE_SLICES, PAGES, PageRow, SHARED_LINES, SITES, SLICES, SLOW_LOADS, SliceRow,
    THREADS, VARIABLES, VariableRow,
};
use crate::error::FormatError;
pub(crate) use meta::known_variables;
pub use schema::{ColumnInfo, TableInfo, Unit};
pub use tables::infos as tables;

pub mod arrays;
mod checksums;
mod meta;
mod schema;
mod tables;
pub mod traces;

/// Format version written to `meta.json`.
pub const VERSION: u64 = 2;
/// Value of the format field of `meta.json`.
const FORMAT: &str = "numaloc-profile";
const KIND: &str = "numaloc profile";

/// Selects the large tables to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// `page_slices`: one row per slice, page and thread, often by far the largest table. If false, only
    /// its sums by slice and thread are read (`access_slices`).
    pub page_slices: bool,
}

const META: &str = "meta.json";

/// Profile folders as an output kind.
const OUTPUT: FolderKind = FolderKind {
    name: KIND,
    mark: META,
    owns,
};

/// Whether numaloc writes a file of this name into a profile folder.
fn owns(name: &Path) -> bool {
    name == Path::new(META)
        || ORDER
            .into_iter()
            .any(|table| name == Path::new(&file_of(table)))
        || traces::owns(name)
}

/// Checks, before anything is recorded, that a profile may be written to `folder`.
///
/// # Errors
/// [`FormatError::Output`] if the folder exists and `force` is not set, or exists and is no profile.
pub fn output(folder: &Path, force: bool) -> Result<FolderOutput, FormatError> {
    Ok(FolderOutput::check(folder, force, OUTPUT)?)
}

/// Writes a profile folder; it appears complete or not at all.
///
/// # Errors
/// Those of [`output`]; [`FormatError::Io`] if writing fails.
pub fn write(profile: &Profile, folder: &Path, force: bool) -> Result<(), FormatError> {
    write_to(profile, &[], &output(folder, force)?)
}

/// Writes a profile with access traces. `traces`: the process image of each and its file, which stays in place.
///
/// # Errors
/// [`FormatError::Output`] or [`FormatError::Io`] if writing fails, or if the folder exists by now.
pub fn write_to(
    profile: &Profile,
    traces: &[(u64, PathBuf)],
    output: &FolderOutput,
) -> Result<(), FormatError> {
    output.fill(|to| {
        write_tables(profile, to)?;
        let traces = traces::put_into(to, traces)?;
        let names = ORDER.into_iter().map(file_of).chain(traces);
        let sums = names
            .map(|name| Ok((name.clone(), checksums::of(&to.join(&name))?)))
            .collect::<Result<Sums, FormatError>>()?;
        // Written last: a folder without it is no profile.
        meta::write(profile, sums, &to.join(META))
    })
}

/// Reads a whole profile.
///
/// # Errors
/// [`FormatError`] names the file, the place in it, what was found and what was expected.
pub fn read(folder: &Path) -> Result<Profile, FormatError> {
    read_parts(folder, Parts { page_slices: true })
}

/// Reads a profile without the tables that `parts` excludes.
///
/// # Errors
/// Those of [`read`].
pub fn read_parts(folder: &Path, parts: Parts) -> Result<Profile, FormatError> {
    check_folder(folder)?;
    let meta = meta::read(&folder.join(META))?;
    let file = |table: Part| {
        let name = file_of(table);
        checksums::verify(folder, &name, meta.sums.as_ref()).map(|()| folder.join(name))
    };
    let mut tables = ProfileBuilder::new(meta.meta, meta.page_size);
    tables.threads = THREADS.read(&file(Part::Threads)?)?;
    let slices = SLICES.read(&file(Part::Slices)?)?;
    tables.slices = slices.into_iter().map(|row| row.slice).collect();
    tables.objects = OBJECTS.read(&file(Part::Objects)?)?;
    for row in VARIABLES.read(&file(Part::Variables)?)? {
        tables.variable(row.object, row.variable);
    }
    // The large tables are read in parallel: communication and pages.
    let (pages, communication) = std::thread::scope(|scope| {
        let communication = scope.spawn(|| COMMUNICATION.read(&file(Part::Communication)?));
        let pages = file(Part::Pages).and_then(|path| read_pages(&path, &mut tables));
        (pages, communication.join())
    });
    pages?;
    tables.communication =
        communication.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let table = file(Part::PageSlices)?;
    if parts.page_slices {
        tables.page_slices = PAGE_SLICES.read(&table)?;
    } else {
        tables.access_slices = read_slice_sums(&table)?;
    }
    tables.cell_errors = CELL_ERRORS.read(&file(Part::CellErrors)?)?;
    tables.shared_lines = SHARED_LINES.read(&file(Part::SharedLines)?)?;
    tables.contended_lines = CONTENDED_LINES.read(&file(Part::ContendedLines)?)?;
    tables.contended_visits = CONTENDED_VISITS.read(&file(Part::ContendedVisits)?)?;
    tables.marks = MARKS.read(&file(Part::Marks)?)?;
    tables.sites = SITES.read(&file(Part::Sites)?)?;
    tables.mpi_calls = MPI_CALLS.read(&file(Part::MpiCalls)?)?;
    tables.mpi_waits = MPI_WAITS.read(&file(Part::MpiWaits)?)?;
    let table = file(Part::SlowLoads)?;
    tables.slow_loads = match meta.slow_loads_source {
        None => None,
        // A profile that names their source has the table.
        Some(source) => {
            let rows = SLOW_LOADS.read_columns(&table, |_| true)?;
            Some((source, rows.collect()))
        }
    };
    tables.build().map_err(|error| inconsistent(folder, error))
}

/// A profile folder whose tables are read one by one, as columns.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    meta: Meta,
    page_size: u64,
    sums: Option<Sums>,
}

impl Folder {
    /// Opens a folder and reads its `meta.json`; tables are read when they are asked for.
    ///
    /// # Errors
    /// [`FormatError`] if the folder is no profile or its `meta.json` is damaged.
    pub fn open(folder: &Path) -> Result<Self, FormatError> {
        check_folder(folder)?;
        let meta = meta::read(&folder.join(META))?;
        Ok(Self {
            path: folder.to_owned(),
            meta: meta.meta,
            page_size: meta.page_size,
            sums: meta.sums,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Origin and known limits of the profile.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// The `chosen` columns of a table, in the order of their declaration, after a check of the file's checksum.
    /// [`Part::Meta`] has no columns.
    ///
    /// # Errors
    /// [`FormatError`] if the table is damaged.
    pub fn columns(
        &self,
        table: Part,
        chosen: &dyn Fn(&str) -> bool,
    ) -> Result<Columns, FormatError> {
        let Some(reader) = tables::by_columns(table) else {
            return Ok(Vec::new());
        };
        let name = file_of(table);
        checksums::verify(&self.path, &name, self.sums.as_ref())?;
        reader.arrays(&self.path.join(name), chosen)
    }
}

/// The error of a table whose rows contradict the rules of a profile. Rows are added in the order of their file.
fn inconsistent(folder: &Path, error: ProfileError) -> FormatError {
    let file = match error.table {
        Part::Meta => META.to_owned(),
        table => file_of(table),
    };
    let place = error.place();
    FormatError::corrupt(&folder.join(file), place, error.found, error.expected)
}

fn check_folder(folder: &Path) -> Result<(), FormatError> {
    let wrong = |found: &str| FormatError::WrongKind {
        path: folder.to_owned(),
        found: found.to_owned(),
        expected: KIND,
    };
    let about = fs::metadata(folder).map_err(|error| FormatError::io("read", folder, error))?;
    if !about.is_dir() {
        return Err(wrong("a file, not a folder"));
    }
    if !folder.join(META).is_file() {
        return Err(wrong("it holds no meta.json"));
    }
    Ok(())
}

fn write_tables(profile: &Profile, to: &Path) -> Result<(), FormatError> {
    THREADS.write(&Rows::All(profile.threads()), to)?;
    let slice = |row: usize| SliceRow {
        slice: profile.slices()[row],
        clock: profile.meta().clock,
    };
    SLICES.write(&Rows::Made(profile.slices().len(), &slice), to)?;
    COMMUNICATION.write(&Rows::All(profile.communication()), to)?;
    OBJECTS.write(&Rows::All(profile.objects()), to)?;
    write_variables(profile.objects(), to)?;
    write_pages(profile.pages(), to)?;
    let number = |page: u32| profile.pages().pages()[page as usize].number;
    let rows = profile.page_slices();
    let page_slice = |row: usize| PageSlice {
        slice: rows[row].slice,
        page: number(rows[row].page),
        thread: rows[row].thread,
        accesses: rows[row].accesses,
    };
    PAGE_SLICES.write(&Rows::Made(rows.len(), &page_slice), to)?;
    CELL_ERRORS.write(&Rows::All(profile.cell_errors()), to)?;
    SHARED_LINES.write(&Rows::All(profile.shared_lines()), to)?;
    CONTENDED_LINES.write(&Rows::All(profile.contended_lines()), to)?;
    CONTENDED_VISITS.write(&Rows::All(profile.contended_visits()), to)?;
    MARKS.write(&Rows::All(profile.marks()), to)?;
    SITES.write(&Rows::All(profile.sites()), to)?;
    MPI_CALLS.write(&Rows::All(profile.mpi_calls()), to)?;
    MPI_WAITS.write(&Rows::All(profile.mpi_waits()), to)?;
    let rows = profile.slow_loads().map_or(&[][..], |slow| &slow.rows);
    let slow_load = |row: usize| SlowLoad {
        page: number(rows[row].page),
        thread: rows[row].thread,
        loads: rows[row].loads,
    };
    SLOW_LOADS.write(&Rows::Made(rows.len(), &slow_load), to)
}

/// Writes the parts of objects, of which there may be a million: no second copy of them is made.
fn write_variables(objects: &[Object], to: &Path) -> Result<(), FormatError> {
    let rows = objects.iter().enumerate().flat_map(|(at, object)| {
        let of_object = object.variables.iter();
        of_object.map(move |variable| (at as u32, variable))
    });
    let rows: Vec<(u32, &Variable)> = rows.collect();
    let row = |row: usize| VariableRow {
        object: ObjectIdx(rows[row].0),
        variable: rows[row].1.clone(),
    };
    VARIABLES.write(&Rows::Made(rows.len(), &row), to)
}

/// Writes one row per page and thread, and one for a thread that placed a page without using it; the rows of a page are
/// adjacent.
fn write_pages(usage: &PageUsage, to: &Path) -> Result<(), FormatError> {
    let mut rows: Vec<(u32, ThreadAccess)> = Vec::new();
    for (at, page) in usage.pages().iter().enumerate() {
        let accesses = usage.accesses(page);
        rows.extend(accesses.iter().map(|access| (at as u32, *access)));
        // Who placed a page need not have used it.
        if let Some(thread) = page.first_touch
            && accesses.iter().all(|access| access.thread != thread)
        {
            let access = ThreadAccess {
                thread,
                reads: 0,
                writes: 0,
            };
            rows.push((at as u32, access));
        }
    }
    let row = |row: usize| {
        let (page, access) = rows[row];
        let head = usage.pages()[page as usize].head();
        PageRow {
            head,
            access,
            is_first: head.first_touch == Some(access.thread),
        }
    };
    PAGES.write(&Rows::Made(rows.len(), &row), to)
}

/// Adds the pages at `path` to `tables`.
fn read_pages(path: &Path, tables: &mut ProfileBuilder) -> Result<(), FormatError> {
    for row in PAGES.read_columns(path, |_| true)? {
        let head = PageHead {
            first_touch: row.is_first.then_some(row.access.thread),
            ..row.head
        };
        tables.page(head, [row.access]);
    }
    Ok(())
}

/// Reads the table `page_slices` without its pages.
fn read_slice_sums(path: &Path) -> Result<Vec<AccessSliceRow>, FormatError> {
    let rows = PAGE_SLICES.read_columns(path, |column| column != "page")?;
    let row = |row: PageSlice| AccessSliceRow {
        slice: row.slice,
        thread: row.thread,
        accesses: row.accesses,
    };
    Ok(rows.map(row).collect())
}

#[cfg(test)]
mod tests;
