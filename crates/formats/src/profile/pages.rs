//! The tables `pages` and `page_slices`.

use std::path::Path;

use numaloc_model::pages::{PageHead, PageUsage, ThreadAccess};
use numaloc_model::profile::{AccessSliceRow, PageSliceRow};
use numaloc_model::{PageNumber, Profile, SliceIdx, ThreadIdx};

use super::{check_counts, check_range, check_same_rows, object_id, page_slice};
use crate::columns::{self, Source, Table};
use crate::error::FormatError;

/// Writes one row per page and thread; the rows of a page are adjacent.
pub(super) fn write(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let usage = &profile.pages;
    let mut rows: Vec<(u32, ThreadAccess)> = Vec::new();
    for (at, page) in usage.pages().iter().enumerate() {
        rows.extend(
            usage
                .accesses(page)
                .iter()
                .map(|access| (at as u32, *access)),
        );
    }
    let page = |row: usize| &usage.pages()[rows[row].0 as usize];
    let first = |row: usize| page(row).first_touch == Some(rows[row].1.thread);
    columns::write(
        path,
        rows.len(),
        &[
            ("page", Source::U64(Box::new(|i| page(i).number.0))),
            (
                "object",
                Source::MaybeU64(Box::new(|i| page(i).object.map(|o| u64::from(o.0)))),
            ),
            (
                "object_page",
                Source::U64(Box::new(|i| page(i).object_page)),
            ),
            ("thread", Source::U32(Box::new(|i| rows[i].1.thread.0))),
            ("reads", Source::U64(Box::new(|i| rows[i].1.reads))),
            ("writes", Source::U64(Box::new(|i| rows[i].1.writes))),
            ("first_touch", Source::Bool(Box::new(first))),
            (
                "first_touch_time",
                Source::U64(Box::new(|i| page(i).first_touch_time)),
            ),
        ],
    )
}

pub(super) fn read(
    path: &Path,
    page_size: u64,
    threads: usize,
    objects: usize,
) -> Result<PageUsage, FormatError> {
    // Two threads, because each column is decoded separately.
    let (which, counts): (Result<_, FormatError>, _) = std::thread::scope(|scope| {
        let counts = scope.spawn(|| {
            let table = Table::open(path)?;
            Ok::<_, FormatError>((
                table.u64("reads")?,
                table.u64("writes")?,
                table.bool("first_touch")?,
                table.u64("first_touch_time")?,
            ))
        });
        let which = || {
            let table = Table::open(path)?;
            Ok::<_, FormatError>((
                table.u64("page")?,
                table.maybe_u64("object")?,
                table.u64("object_page")?,
                table.u32("thread")?,
            ))
        };
        (which(), counts.join())
    });
    let (page, object, object_page, thread) = which?;
    let (reads, writes, first, time): (Vec<u64>, Vec<u64>, Vec<bool>, Vec<u64>) =
        counts.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let rows = check_same_rows(
        path,
        &[
            page.len(),
            object.len(),
            object_page.len(),
            thread.len(),
            reads.len(),
            writes.len(),
            first.len(),
            time.len(),
        ],
    )?;
    check_range(path, "thread", &thread, threads)?;
    let owners: Vec<u32> = object
        .iter()
        .flatten()
        .map(|&o| u32::try_from(o).unwrap_or(u32::MAX))
        .collect();
    check_counts(path, "reads", reads.iter().copied())?;
    check_counts(path, "writes", writes.iter().copied())?;
    check_range(path, "object", &owners, objects)?;
    // Other tools may have sorted the table differently.
    let mut order: Vec<usize> = (0..rows).collect();
    if !page.is_sorted() {
        order.sort_by_key(|&row| page[row]);
    }
    let mut usage = PageUsage::new(page_size);
    let mut at = 0;
    while at < rows {
        let number = page[order[at]];
        let end = at
            + order[at..]
                .iter()
                .take_while(|&&row| page[row] == number)
                .count();
        let group = &order[at..end];
        at = end;
        usage.push(
            PageHead {
                number: PageNumber(number),
                object: object[group[0]].map(object_id),
                object_page: object_page[group[0]],
                first_touch: group
                    .iter()
                    .find(|&&row| first[row])
                    .map(|&row| ThreadIdx(thread[row])),
                first_touch_time: time[group[0]],
            },
            group
                .iter()
                .map(|&row| ThreadAccess {
                    thread: ThreadIdx(thread[row]),
                    reads: reads[row],
                    writes: writes[row],
                })
                .collect(),
        );
    }
    Ok(usage)
}

pub(super) fn write_slices(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let rows = &profile.page_slices;
    let number = |i: usize| profile.pages.pages()[rows[i].page as usize].number.0;
    columns::write(
        path,
        rows.len(),
        &[
            ("slice", Source::U32(Box::new(|i| rows[i].slice.0))),
            ("page", Source::U64(Box::new(number))),
            ("thread", Source::U32(Box::new(|i| rows[i].thread.0))),
            ("accesses", Source::U64(Box::new(|i| rows[i].accesses))),
        ],
    )
}

/// Reads the table's sums by slice and thread.
pub(super) fn read_slice_sums(
    path: &Path,
    threads: usize,
    slices: usize,
) -> Result<Vec<AccessSliceRow>, FormatError> {
    let table = Table::open(path)?;
    let slice = table.u32("slice")?;
    let thread = table.u32("thread")?;
    let accesses = table.u64("accesses")?;
    let rows = check_same_rows(path, &[slice.len(), thread.len(), accesses.len()])?;
    check_range(path, "slice", &slice, slices)?;
    check_range(path, "thread", &thread, threads)?;
    check_counts(path, "accesses", accesses.iter().copied())?;
    let row = |row: usize| (SliceIdx(slice[row]), ThreadIdx(thread[row]), accesses[row]);
    Ok(AccessSliceRow::sums((0..rows).map(row)))
}

pub(super) fn read_slices(
    path: &Path,
    usage: &PageUsage,
    threads: usize,
    slices: usize,
) -> Result<Vec<PageSliceRow>, FormatError> {
    let table = Table::open(path)?;
    let slice = table.u32("slice")?;
    let page = table.u64("page")?;
    let thread = table.u32("thread")?;
    let accesses = table.u64("accesses")?;
    let rows = check_same_rows(
        path,
        &[slice.len(), page.len(), thread.len(), accesses.len()],
    )?;
    check_range(path, "slice", &slice, slices)?;
    check_range(path, "thread", &thread, threads)?;
    check_counts(path, "accesses", accesses.iter().copied())?;
    (0..rows)
        .map(|row| {
            let at = index_of(path, usage, row, page[row])?;
            Ok(page_slice(slice[row], at, thread[row], accesses[row]))
        })
        .collect()
}

/// The index in `usage` of page `number`, which row `row` of a table names.
pub(super) fn index_of(
    path: &Path,
    usage: &PageUsage,
    row: usize,
    number: u64,
) -> Result<u32, FormatError> {
    let found = usage
        .pages()
        .binary_search_by_key(&number, |page| page.number.0);
    found.map(|at| at as u32).map_err(|_| {
        FormatError::corrupt(
            path,
            format!("row {row}, column page"),
            number.to_string(),
            "a page of the table `pages`",
        )
    })
}
