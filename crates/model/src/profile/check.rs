//! The checks of tables under construction. Rows are numbered in the order in which they were added.

use std::collections::HashMap;

use super::builder::ProfileBuilder;
use super::error::{ProfileError, Table};
use super::rows::{ContendedLine, ContendedVisits, Object, ObjectKind, Thread, Variable};

/// Largest sum of a column of counts: a thousand processors that count a billion per second each reach it in 13 days.
pub const MAX_COUNTED: u64 = 1 << 60;
/// Largest line in bytes: a page.
const MAX_LINE_BYTES: u64 = 1 << 12;
/// Smallest and largest page in bytes.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 9..=1 << 34;
/// The heap grows, so its identity has no size; its parts lie within the address space of a process.
const HEAP_BYTES: u64 = 1 << 47;

type Checked = Result<(), ProfileError>;

fn error(
    table: Table,
    row: Option<usize>,
    column: &'static str,
    found: impl ToString,
    expected: impl Into<String>,
) -> ProfileError {
    ProfileError {
        table,
        row,
        column: Some(column),
        found: found.to_string(),
        expected: expected.into(),
    }
}

/// Checks that ids are below `limit`; `ids` are the rows' ids, `None` for a row without one.
fn below(
    table: Table,
    column: &'static str,
    ids: impl Iterator<Item = Option<u32>>,
    limit: usize,
) -> Checked {
    for (row, id) in ids.enumerate() {
        if let Some(id) = id.filter(|&id| id as usize >= limit) {
            let expected = format!("a number below {limit}");
            return Err(error(table, Some(row), column, id, expected));
        }
    }
    Ok(())
}

/// Checks that counts cannot overflow a sum: no run gets near [`MAX_COUNTED`].
fn counts(table: Table, column: &'static str, mut counts: impl Iterator<Item = u64>) -> Checked {
    let sum = counts.try_fold(0u64, |sum, count| {
        sum.checked_add(count).filter(|&sum| sum <= MAX_COUNTED)
    });
    match sum {
        Some(_) => Ok(()),
        None => Err(error(
            table,
            None,
            column,
            "values whose sum is above 2^60",
            "counts of one run",
        )),
    }
}

/// Checks all tables, in the order in which a reader reads them. Does not check that pages named by their number exist:
/// that shows when the numbers are looked up.
pub(super) fn all(tables: &ProfileBuilder) -> Checked {
    meta(tables)?;
    threads(tables)?;
    slices(tables)?;
    let objects = &tables.objects;
    let owners = objects.iter().map(|o| o.thread.map(|t| t.0));
    below(Table::Objects, "thread", owners, tables.threads.len())?;
    variables(objects, tables.variables())?;
    pages(tables)?;
    communication(tables)?;
    page_slices(tables)?;
    cell_errors(tables)?;
    shared_lines(tables)?;
    contended_lines(tables)?;
    contended_visits(tables)?;
    marks(tables)?;
    sites(tables)?;
    mpi(tables)?;
    slow_loads(tables)
}

fn meta(tables: &ProfileBuilder) -> Checked {
    let bad = |field, found: &dyn ToString, expected: &str| {
        Err(error(Table::Meta, None, field, found.to_string(), expected))
    };
    let (page, meta) = (tables.page_size, &tables.meta);
    if !page.is_power_of_two() || !PAGE_BYTES.contains(&page) {
        let expected = "a power of two from 512 B to 16 GiB";
        return bad("page_size_bytes", &page, expected);
    }
    if !meta.line_size.is_power_of_two() || meta.line_size > MAX_LINE_BYTES {
        let expected = "a power of two from 1 to 4096";
        return bad("line_size_bytes", &meta.line_size, expected);
    }
    if !(meta.sampled > 0.0 && meta.sampled <= 1.0) {
        return bad("sampled", &meta.sampled, "above 0, at most 1");
    }
    if let Some(window) = &meta.window
        && !(0.0..=1e12).contains(&window.seconds)
    {
        return bad("window.seconds", &window.seconds, "from 0 to 10^12");
    }
    Ok(())
}

fn threads(tables: &ProfileBuilder) -> Checked {
    let threads = || tables.threads.iter();
    paths(&tables.threads)?;
    counts(Table::Threads, "accesses", threads().map(|t| t.accesses))?;
    counts(
        Table::Threads,
        "read_bytes",
        threads().map(|t| t.read_bytes),
    )?;
    counts(
        Table::Threads,
        "write_bytes",
        threads().map(|t| t.write_bytes),
    )?;
    let dram = threads().filter_map(|t| t.dram_bytes);
    counts(Table::Threads, "dram_bytes", dram)
}

/// Checks that no two threads of a rank have one path: plans name threads by it.
fn paths(threads: &[Thread]) -> Checked {
    let mut seen = HashMap::with_capacity(threads.len());
    for (row, thread) in threads.iter().enumerate() {
        if let Some(first) = seen.insert((thread.rank, &thread.path), row) {
            let found = format!("{:?} again", thread.path);
            let expected = format!("a path that row {first} does not have");
            return Err(error(Table::Threads, Some(row), "path", found, expected));
        }
    }
    Ok(())
}

fn slices(tables: &ProfileBuilder) -> Checked {
    let mut last = 0;
    for (row, slice) in tables.slices.iter().enumerate() {
        if slice.end < slice.start || slice.start < last {
            return Err(ProfileError {
                table: Table::Slices,
                row: Some(row),
                column: None,
                found: format!("slice from {} to {}", slice.start, slice.end),
                expected: "slices in time order that end after they start".to_owned(),
            });
        }
        last = slice.start;
    }
    Ok(())
}

fn variables<'a>(
    objects: &[Object],
    variables: impl Iterator<Item = (u32, &'a Variable)> + Clone,
) -> Checked {
    let owners = variables.clone().map(|(object, _)| Some(object));
    below(Table::Variables, "object", owners, objects.len())?;
    for (row, (object, part)) in variables.enumerate() {
        let of = &objects[object as usize];
        let whole = match of.kind {
            ObjectKind::Heap => HEAP_BYTES,
            _ => of.size,
        };
        let end = part.offset.checked_add(part.size);
        if end.is_none_or(|end| end > whole) {
            return Err(error(
                Table::Variables,
                Some(row),
                "offset",
                format!("{} bytes at {}", part.size, part.offset),
                format!("a part of the object's {whole} bytes"),
            ));
        }
    }
    Ok(())
}

fn pages(tables: &ProfileBuilder) -> Checked {
    let (heads, cells) = tables.page_rows();
    let users = cells.iter().map(|cell| Some(cell.thread.0));
    below(Table::Pages, "thread", users, tables.threads.len())?;
    counts(Table::Pages, "reads", cells.iter().map(|c| c.reads))?;
    counts(Table::Pages, "writes", cells.iter().map(|c| c.writes))?;
    // A page is as many rows as threads accessed it: its first row is named.
    let mut row = 0;
    for (head, end) in heads {
        let limits = [
            (
                "object",
                head.object.map(|object| object.0),
                tables.objects.len(),
            ),
            (
                "first_touch",
                head.first_touch.map(|t| t.0),
                tables.threads.len(),
            ),
        ];
        for (column, id, limit) in limits {
            if let Some(id) = id.filter(|&id| id as usize >= limit) {
                let expected = format!("a number below {limit}");
                return Err(error(Table::Pages, Some(row), column, id, expected));
            }
        }
        row = *end;
    }
    let most = u32::MAX as usize;
    if cells.len() > most || heads.len() > most {
        let found = cells.len().max(heads.len());
        let expected = "fewer than 2^32 rows";
        return Err(error(Table::Pages, None, "page", found, expected));
    }
    Ok(())
}

fn communication(tables: &ProfileBuilder) -> Checked {
    let (table, threads) = (Table::Communication, tables.threads.len());
    let rows = || tables.communication.iter();
    below(table, "src", rows().map(|row| Some(row.src.0)), threads)?;
    below(table, "dst", rows().map(|row| Some(row.dst.0)), threads)?;
    let slices = rows().map(|row| Some(row.slice.0));
    below(table, "slice", slices, tables.slices.len())?;
    counts(table, "events", rows().map(|row| row.events))?;
    counts(table, "bytes", rows().map(|row| row.bytes))
}

/// The rows by page, and the sums that a reader has in their place.
fn page_slices(tables: &ProfileBuilder) -> Checked {
    let by_page = tables.page_slices.iter();
    by_slice(
        tables,
        by_page.map(|row| (row.slice.0, row.thread.0, row.accesses)),
    )?;
    let sums = tables.access_slices.iter();
    by_slice(
        tables,
        sums.map(|row| (row.slice.0, row.thread.0, row.accesses)),
    )
}

fn by_slice(
    tables: &ProfileBuilder,
    rows: impl Iterator<Item = (u32, u32, u64)> + Clone,
) -> Checked {
    let table = Table::PageSlices;
    let slices = rows.clone().map(|(slice, _, _)| Some(slice));
    below(table, "slice", slices, tables.slices.len())?;
    let threads = rows.clone().map(|(_, thread, _)| Some(thread));
    below(table, "thread", threads, tables.threads.len())?;
    counts(table, "accesses", rows.map(|(_, _, accesses)| accesses))
}

fn cell_errors(tables: &ProfileBuilder) -> Checked {
    let (table, threads) = (Table::CellErrors, tables.threads.len());
    let rows = || tables.cell_errors.iter();
    below(table, "src", rows().map(|row| Some(row.src.0)), threads)?;
    below(table, "dst", rows().map(|row| Some(row.dst.0)), threads)?;
    let is_share = |share: f64| share.is_finite() && share >= 0.0;
    match rows().position(|row| !is_share(row.relative_error)) {
        None => Ok(()),
        Some(row) => Err(error(
            table,
            Some(row),
            "relative_error",
            tables.cell_errors[row].relative_error,
            "a finite share of at least 0",
        )),
    }
}

fn shared_lines(tables: &ProfileBuilder) -> Checked {
    let rows = || tables.shared_lines.iter();
    let objects = rows().map(|line| line.object.map(|object| object.0));
    below(Table::SharedLines, "object", objects, tables.objects.len())?;
    counts(Table::SharedLines, "events", rows().map(|l| l.events))?;
    match rows().enumerate().find(|(_, l)| l.false_events > l.events) {
        None => Ok(()),
        Some((row, line)) => Err(error(
            Table::SharedLines,
            Some(row),
            "false_events",
            line.false_events,
            format!("at most the row's {} events", line.events),
        )),
    }
}

fn contended_lines(tables: &ProfileBuilder) -> Checked {
    let table = Table::ContendedLines;
    let rows = || tables.contended_lines.iter();
    let objects = rows().map(|line| line.object.map(|object| object.0));
    below(table, "object", objects, tables.objects.len())?;
    counts(table, "visits", rows().map(|l| l.visits))?;
    counts(table, "atomics", rows().map(|l| l.atomics))?;
    let wrong = |l: &ContendedLine| {
        l.transfers > l.visits || l.false_transfers > l.transfers || l.writers > l.threads
    };
    match rows().enumerate().find(|(_, line)| wrong(line)) {
        None => Ok(()),
        Some((row, line)) => Err(error(
            table,
            Some(row),
            "transfers",
            line.transfers,
            format!(
                "at most the row's {} visits, at least its {} false transfers, and no more writers than threads",
                line.visits, line.false_transfers
            ),
        )),
    }
}

fn contended_visits(tables: &ProfileBuilder) -> Checked {
    let table = Table::ContendedVisits;
    let rows = || tables.contended_visits.iter();
    let threads = rows().map(|row| Some(row.thread.0));
    below(table, "thread", threads, tables.threads.len())?;
    counts(table, "visits", rows().map(|row| row.visits))?;
    let wrong = |row: &ContendedVisits| {
        row.writes > row.visits || row.atomics > row.writes || row.until < row.from
    };
    match rows().enumerate().find(|(_, row)| wrong(row)) {
        None => Ok(()),
        Some((at, row)) => Err(error(
            table,
            Some(at),
            "writes",
            row.writes,
            format!(
                "at most the row's {} visits, at least its {} atomics, and an end that is not before its begin",
                row.visits, row.atomics
            ),
        )),
    }
}

fn marks(tables: &ProfileBuilder) -> Checked {
    let rows = || tables.marks.iter();
    let threads = rows().map(|row| Some(row.thread.0));
    below(Table::Marks, "thread", threads, tables.threads.len())?;
    match rows().position(|row| row.occurrence == 0) {
        None => Ok(()),
        Some(row) => Err(error(
            Table::Marks,
            Some(row),
            "occurrence",
            0,
            "a number from 1",
        )),
    }
}

fn sites(tables: &ProfileBuilder) -> Checked {
    let (table, threads) = (Table::Sites, tables.threads.len());
    let rows = || tables.sites.iter();
    below(
        table,
        "thread",
        rows().map(|row| Some(row.thread.0)),
        threads,
    )?;
    let others = rows().map(|row| row.other.map(|other| other.0));
    below(table, "other", others, threads)?;
    let objects = rows().map(|row| row.object.map(|object| object.0));
    below(table, "object", objects, tables.objects.len())?;
    counts(table, "samples", rows().map(|row| row.samples))?;
    counts(table, "amount", rows().map(|row| row.amount))?;
    let found = rows().position(|row| row.samples == 0 || row.amount < row.samples);
    match found {
        None => Ok(()),
        Some(row) => Err(error(
            table,
            Some(row),
            "samples",
            tables.sites[row].samples,
            format!(
                "a number from 1 to the row's amount, {}",
                tables.sites[row].amount
            ),
        )),
    }
}

fn mpi(tables: &ProfileBuilder) -> Checked {
    let threads = tables.threads.len();
    let calls = || tables.mpi_calls.iter();
    let table = Table::MpiCalls;
    let of = calls().map(|row| Some(row.thread.0));
    below(table, "thread", of, threads)?;
    counts(table, "calls", calls().map(|row| row.calls))?;
    counts(table, "bytes", calls().map(|row| row.bytes))?;
    counts(table, "time_ns", calls().map(|row| row.nanoseconds))?;
    for (at, column) in ["late_sender_ns", "late_receiver_ns", "imbalance_ns"]
        .into_iter()
        .enumerate()
    {
        counts(table, column, calls().map(|row| row.waiting[at]))?;
    }
    counts(table, "partners", calls().map(|row| row.partners))?;
    counts(table, "matched", calls().map(|row| row.matched))?;
    let waits = || tables.mpi_waits.iter();
    let table = Table::MpiWaits;
    let of = waits().map(|row| Some(row.thread.0));
    below(table, "thread", of, threads)?;
    let of = waits().map(|row| Some(row.other.0));
    below(table, "other", of, threads)?;
    counts(table, "calls", waits().map(|row| row.calls))?;
    counts(table, "time_ns", waits().map(|row| row.nanoseconds))
}

fn slow_loads(tables: &ProfileBuilder) -> Checked {
    let Some((_, rows)) = &tables.slow_loads else {
        return Ok(());
    };
    let (table, threads) = (Table::SlowLoads, tables.threads.len());
    let users = rows.iter().map(|row| Some(row.thread.0));
    below(table, "thread", users, threads)?;
    counts(table, "loads", rows.iter().map(|row| row.loads))
}

/// A row names a page that is not in the table of pages.
pub(super) fn unknown_page(table: Table, row: usize, page: u64) -> ProfileError {
    error(
        table,
        Some(row),
        "page",
        page,
        "a page of the table `pages`",
    )
}
