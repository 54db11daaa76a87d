//! The tables `cell_errors`, `shared_lines` and `slow_loads`. Profiles of earlier versions lack them and read as empty.

use std::path::Path;

use numaloc_model::profile::{CellError, SharedLine, SlowLoadRow, SlowLoads};
use numaloc_model::{Layer, PageUsage, Profile, ThreadIdx};

use super::{check_counts, check_range, check_same_rows, object_id};
use crate::columns::{self, Source, Table};
use crate::error::FormatError;

pub(super) fn write_errors(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let e = &profile.cell_errors;
    columns::write(
        path,
        e.len(),
        &[
            ("layer", Source::Text(Box::new(|i| e[i].layer.name()))),
            ("src", Source::U32(Box::new(|i| e[i].src.0))),
            ("dst", Source::U32(Box::new(|i| e[i].dst.0))),
            (
                "relative_error",
                Source::F64(Box::new(|i| e[i].relative_error)),
            ),
        ],
    )
}

pub(super) fn read_errors(path: &Path, threads: usize) -> Result<Vec<CellError>, FormatError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let table = Table::open(path)?;
    let layer = table.text("layer", "a communication layer", Layer::from_name)?;
    let (src, dst) = (table.u32("src")?, table.u32("dst")?);
    let error = table.f64("relative_error")?;
    let rows = check_same_rows(path, &[layer.len(), src.len(), dst.len(), error.len()])?;
    check_range(path, "src", &src, threads)?;
    check_range(path, "dst", &dst, threads)?;
    if let Some(row) = error.iter().position(|e| !(e.is_finite() && *e >= 0.0)) {
        return Err(FormatError::corrupt(
            path,
            format!("row {row}, column relative_error"),
            error[row].to_string(),
            "a finite share of at least 0",
        ));
    }
    Ok((0..rows)
        .map(|i| CellError {
            layer: layer[i],
            src: ThreadIdx(src[i]),
            dst: ThreadIdx(dst[i]),
            relative_error: error[i],
        })
        .collect())
}

pub(super) fn write_lines(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let l = &profile.shared_lines;
    columns::write(
        path,
        l.len(),
        &[
            ("line", Source::U64(Box::new(|i| l[i].line))),
            (
                "object",
                Source::MaybeU64(Box::new(|i| l[i].object.map(|o| u64::from(o.0)))),
            ),
            (
                "object_offset",
                Source::U64(Box::new(|i| l[i].object_offset)),
            ),
            ("events", Source::U64(Box::new(|i| l[i].events))),
            ("false_events", Source::U64(Box::new(|i| l[i].false_events))),
        ],
    )
}

pub(super) fn read_lines(path: &Path, objects: usize) -> Result<Vec<SharedLine>, FormatError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let table = Table::open(path)?;
    let line = table.u64("line")?;
    let object = table.maybe_u64("object")?;
    let offset = table.u64("object_offset")?;
    let (events, false_events) = (table.u64("events")?, table.u64("false_events")?);
    let rows = check_same_rows(
        path,
        &[
            line.len(),
            object.len(),
            offset.len(),
            events.len(),
            false_events.len(),
        ],
    )?;
    let known: Vec<u32> = object
        .iter()
        .flatten()
        .map(|&o| u32::try_from(o).unwrap_or(u32::MAX))
        .collect();
    check_range(path, "object", &known, objects)?;
    if let Some(row) = (0..rows).find(|&row| false_events[row] > events[row]) {
        return Err(FormatError::corrupt(
            path,
            format!("row {row}, column false_events"),
            false_events[row].to_string(),
            format!("at most the row's {} events", events[row]),
        ));
    }
    Ok((0..rows)
        .map(|i| SharedLine {
            line: line[i],
            object: object[i].map(object_id),
            object_offset: offset[i],
            events: events[i],
            false_events: false_events[i],
        })
        .collect())
}

pub(super) fn write_slow(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let rows = profile
        .slow_loads
        .as_ref()
        .map_or(&[][..], |slow| &slow.rows);
    let number = |i: usize| profile.pages.pages()[rows[i].page as usize].number.0;
    columns::write(
        path,
        rows.len(),
        &[
            ("page", Source::U64(Box::new(number))),
            ("thread", Source::U32(Box::new(|i| rows[i].thread.0))),
            ("loads", Source::U64(Box::new(|i| rows[i].loads))),
        ],
    )
}

pub(super) fn read_slow(
    path: &Path,
    source: String,
    usage: &PageUsage,
    threads: usize,
) -> Result<SlowLoads, FormatError> {
    let table = Table::open(path)?;
    let (page, thread) = (table.u64("page")?, table.u32("thread")?);
    let loads = table.u64("loads")?;
    let count = check_same_rows(path, &[page.len(), thread.len(), loads.len()])?;
    check_range(path, "thread", &thread, threads)?;
    check_counts(path, "loads", loads.iter().copied())?;
    let rows: Result<Vec<SlowLoadRow>, FormatError> = (0..count)
        .map(|row| {
            Ok(SlowLoadRow {
                page: super::pages::index_of(path, usage, row, page[row])?,
                thread: ThreadIdx(thread[row]),
                loads: loads[row],
            })
        })
        .collect();
    Ok(SlowLoads::sums(source, rows?.into_iter()))
}
