//! Reads and writes profiles: folders of Parquet tables and `meta.json`. Format: `docs/formats/profile.md`.
//!
//! Increase [`VERSION`] when a column changes its meaning or is no longer written. New columns and tables
//! need no new version, because readers ignore unknown ones.

use std::fs;
use std::path::{Path, PathBuf};

use numaloc_files::{FolderKind, FolderOutput};
use numaloc_model::profile::{CommRow, Object, ObjectKind, PageSliceRow, Slice, Thread};
use numaloc_model::{Layer, ObjectIdx, Profile, SliceIdx, ThreadIdx};

use self::checksums::Sums;
use crate::columns::{self, Source, Table};
use crate::error::FormatError;
pub(crate) use meta::known_variables;

mod checksums;
mod detail;
mod meta;
mod pages;
pub mod traces;
mod variables;

/// Format version written to `meta.json`.
pub const VERSION: u64 = 1;
/// Value of the format field of `meta.json`.
const FORMAT: &str = "numaloc-profile";
const KIND: &str = "numaloc profile";
/// Largest sum of a column of counts: a thousand processors that count a billion per second each reach it in 13 days.
pub(crate) const MAX_COUNTED: u64 = 1 << 60;

/// Selects the large tables to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// `page_slices`: one row per slice, page and thread, often by far the largest table. If false, only
    /// its sums by slice and thread are read (`access_slices`).
    pub page_slices: bool,
}

/// The tables, in the order in which they are written.
const TABLES: [&str; 10] = [
    "threads.parquet",
    "slices.parquet",
    "communication.parquet",
    "objects.parquet",
    "variables.parquet",
    "pages.parquet",
    "page_slices.parquet",
    "cell_errors.parquet",
    "shared_lines.parquet",
    "slow_loads.parquet",
];
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
        || TABLES.iter().any(|table| name == Path::new(table))
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
        write_threads(profile, &to.join("threads.parquet"))?;
        write_slices(profile, &to.join("slices.parquet"))?;
        write_communication(profile, &to.join("communication.parquet"))?;
        write_objects(profile, &to.join("objects.parquet"))?;
        variables::write(profile, &to.join("variables.parquet"))?;
        pages::write(profile, &to.join("pages.parquet"))?;
        pages::write_slices(profile, &to.join("page_slices.parquet"))?;
        detail::write_errors(profile, &to.join("cell_errors.parquet"))?;
        detail::write_lines(profile, &to.join("shared_lines.parquet"))?;
        detail::write_slow(profile, &to.join("slow_loads.parquet"))?;
        let traces = traces::put_into(to, traces)?;
        let names = TABLES.iter().map(|&table| table.to_owned()).chain(traces);
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
    let file = |name: &str| {
        checksums::verify(folder, name, meta.sums.as_ref()).map(|()| folder.join(name))
    };
    let threads = read_threads(&file("threads.parquet")?)?;
    let slices = read_slices(&file("slices.parquet")?)?;
    let mut objects = read_objects(&file("objects.parquet")?, threads.len())?;
    variables::read(&file("variables.parquet")?, &mut objects)?;
    // The large tables are read in parallel: communication and pages.
    let (pages, communication) = std::thread::scope(|scope| {
        let communication = scope.spawn(|| {
            read_communication(&file("communication.parquet")?, threads.len(), slices.len())
        });
        let pages = file("pages.parquet")
            .and_then(|path| pages::read(&path, meta.page_size, threads.len(), objects.len()));
        (pages, communication.join())
    });
    let pages = pages?;
    let communication = communication.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let table = file("page_slices.parquet")?;
    let (mut page_slices, mut access_slices) = (Vec::new(), Vec::new());
    if parts.page_slices {
        page_slices = pages::read_slices(&table, &pages, threads.len(), slices.len())?;
    } else {
        access_slices = pages::read_slice_sums(&table, threads.len(), slices.len())?;
    }
    let cell_errors = detail::read_errors(&file("cell_errors.parquet")?, threads.len())?;
    let shared_lines = detail::read_lines(&file("shared_lines.parquet")?, objects.len())?;
    let table = file("slow_loads.parquet")?;
    let slow_loads = meta
        .slow_loads_source
        .map(|source| detail::read_slow(&table, source, &pages, threads.len()))
        .transpose()?;
    Ok(Profile {
        meta: meta.meta,
        threads,
        slices,
        communication,
        pages,
        page_slices,
        access_slices,
        objects,
        cell_errors,
        shared_lines,
        slow_loads,
    })
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

fn write_threads(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let t = &profile.threads;
    columns::write(
        path,
        t.len(),
        &[
            ("thread", Source::U32(Box::new(|i| i as u32))),
            ("path", Source::Text(Box::new(|i| &t[i].path))),
            (
                "label",
                Source::MaybeText(Box::new(|i| t[i].label.as_deref())),
            ),
            ("pid", Source::U32(Box::new(|i| t[i].pid))),
            ("tid", Source::U32(Box::new(|i| t[i].tid))),
            (
                "rank",
                Source::MaybeU64(Box::new(|i| t[i].rank.map(u64::from))),
            ),
            ("start", Source::U64(Box::new(|i| t[i].start))),
            ("end", Source::U64(Box::new(|i| t[i].end))),
            ("accesses", Source::U64(Box::new(|i| t[i].accesses))),
            ("read_bytes", Source::U64(Box::new(|i| t[i].read_bytes))),
            ("write_bytes", Source::U64(Box::new(|i| t[i].write_bytes))),
            (
                "dram_bytes",
                Source::MaybeU64(Box::new(|i| t[i].dram_bytes)),
            ),
        ],
    )
}

fn read_threads(path: &Path) -> Result<Vec<Thread>, FormatError> {
    let table = Table::open(path)?;
    let index = table.u32("thread")?;
    let paths = table.text("path", "UTF-8 text", |text| Some(text.to_owned()))?;
    let labels = table.maybe_text("label")?;
    let (pids, tids) = (table.u32("pid")?, table.u32("tid")?);
    let ranks = table.maybe_u64("rank")?;
    let (starts, ends) = (table.u64("start")?, table.u64("end")?);
    let accesses = table.u64("accesses")?;
    let (reads, writes) = (table.u64("read_bytes")?, table.u64("write_bytes")?);
    let dram = table.maybe_u64("dram_bytes")?;
    let rows = check_same_rows(
        path,
        &[
            index.len(),
            paths.len(),
            labels.len(),
            pids.len(),
            tids.len(),
            ranks.len(),
            starts.len(),
            ends.len(),
            accesses.len(),
            reads.len(),
            writes.len(),
            dram.len(),
        ],
    )?;
    check_dense(path, "thread", &index)?;
    let traffic = [
        ("accesses", &accesses),
        ("read_bytes", &reads),
        ("write_bytes", &writes),
    ];
    for (column, counts) in traffic {
        check_counts(path, column, counts.iter().copied())?;
    }
    check_counts(path, "dram_bytes", dram.iter().flatten().copied())?;
    Ok((0..rows)
        .map(|i| Thread {
            path: paths[i].clone(),
            label: labels[i].clone(),
            pid: pids[i],
            tid: tids[i],
            rank: ranks[i].and_then(|rank| u32::try_from(rank).ok()),
            start: starts[i],
            end: ends[i],
            accesses: accesses[i],
            read_bytes: reads[i],
            write_bytes: writes[i],
            dram_bytes: dram[i],
        })
        .collect())
}

fn write_slices(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let s = &profile.slices;
    let clock = profile.meta.clock.name();
    columns::write(
        path,
        s.len(),
        &[
            ("slice", Source::U32(Box::new(|i| i as u32))),
            ("start", Source::U64(Box::new(|i| s[i].start))),
            ("end", Source::U64(Box::new(|i| s[i].end))),
            ("clock", Source::Text(Box::new(move |_| clock))),
        ],
    )
}

fn read_slices(path: &Path) -> Result<Vec<Slice>, FormatError> {
    let table = Table::open(path)?;
    let index = table.u32("slice")?;
    let (starts, ends) = (table.u64("start")?, table.u64("end")?);
    let rows = check_same_rows(path, &[index.len(), starts.len(), ends.len()])?;
    check_dense(path, "slice", &index)?;
    for row in 0..rows {
        if ends[row] < starts[row] || (row > 0 && starts[row] < starts[row - 1]) {
            return Err(FormatError::corrupt(
                path,
                format!("row {row}"),
                format!("slice from {} to {}", starts[row], ends[row]),
                "slices in time order that end after they start",
            ));
        }
    }
    Ok(starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| Slice { start, end })
        .collect())
}

fn write_communication(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let c = &profile.communication;
    columns::write(
        path,
        c.len(),
        &[
            ("slice", Source::U32(Box::new(|i| c[i].slice.0))),
            ("src", Source::U32(Box::new(|i| c[i].src.0))),
            ("dst", Source::U32(Box::new(|i| c[i].dst.0))),
            ("layer", Source::Text(Box::new(|i| c[i].layer.name()))),
            ("events", Source::U64(Box::new(|i| c[i].events))),
            ("bytes", Source::U64(Box::new(|i| c[i].bytes))),
        ],
    )
}

fn read_communication(
    path: &Path,
    threads: usize,
    slices: usize,
) -> Result<Vec<CommRow>, FormatError> {
    let table = Table::open(path)?;
    let slice = table.u32("slice")?;
    let (src, dst) = (table.u32("src")?, table.u32("dst")?);
    let layer = table.text("layer", "a communication layer", Layer::from_name)?;
    let (events, bytes) = (table.u64("events")?, table.u64("bytes")?);
    let rows = check_same_rows(
        path,
        &[
            slice.len(),
            src.len(),
            dst.len(),
            layer.len(),
            events.len(),
            bytes.len(),
        ],
    )?;
    check_range(path, "src", &src, threads)?;
    check_range(path, "dst", &dst, threads)?;
    check_range(path, "slice", &slice, slices)?;
    check_counts(path, "events", events.iter().copied())?;
    check_counts(path, "bytes", bytes.iter().copied())?;
    Ok((0..rows)
        .map(|i| CommRow {
            slice: SliceIdx(slice[i]),
            src: ThreadIdx(src[i]),
            dst: ThreadIdx(dst[i]),
            layer: layer[i],
            events: events[i],
            bytes: bytes[i],
        })
        .collect())
}

fn write_objects(profile: &Profile, path: &Path) -> Result<(), FormatError> {
    let o = &profile.objects;
    columns::write(
        path,
        o.len(),
        &[
            ("object", Source::U32(Box::new(|i| i as u32))),
            ("kind", Source::Text(Box::new(|i| o[i].kind.name()))),
            ("name", Source::Text(Box::new(|i| &o[i].name))),
            ("size", Source::U64(Box::new(|i| o[i].size))),
            ("order", Source::U32(Box::new(|i| o[i].order))),
            (
                "thread",
                Source::MaybeU64(Box::new(|i| o[i].thread.map(|t| u64::from(t.0)))),
            ),
            ("base", Source::U64(Box::new(|i| o[i].base))),
        ],
    )
}

fn read_objects(path: &Path, threads: usize) -> Result<Vec<Object>, FormatError> {
    let table = Table::open(path)?;
    let index = table.u32("object")?;
    let kind = table.text("kind", "an object kind", ObjectKind::from_name)?;
    let name = table.text("name", "UTF-8 text", |text| Some(text.to_owned()))?;
    let (size, order) = (table.u64("size")?, table.u32("order")?);
    let thread = table.maybe_u64("thread")?;
    let base = table.u64("base")?;
    let rows = check_same_rows(
        path,
        &[
            index.len(),
            kind.len(),
            name.len(),
            size.len(),
            order.len(),
            thread.len(),
            base.len(),
        ],
    )?;
    check_dense(path, "object", &index)?;
    let owners: Vec<u32> = thread
        .iter()
        .flatten()
        .map(|&t| u32::try_from(t).unwrap_or(u32::MAX))
        .collect();
    check_range(path, "thread", &owners, threads)?;
    Ok((0..rows)
        .map(|i| Object {
            kind: kind[i],
            name: name[i].clone(),
            size: size[i],
            order: order[i],
            thread: thread[i].map(|t| ThreadIdx(t as u32)),
            base: base[i],
            variables: Vec::new(),
        })
        .collect())
}

/// Checks that all columns have the same length and returns it.
fn check_same_rows(path: &Path, lengths: &[usize]) -> Result<usize, FormatError> {
    match lengths.iter().find(|&&length| length != lengths[0]) {
        None => Ok(lengths[0]),
        Some(other) => Err(FormatError::corrupt(
            path,
            "columns",
            format!("{} and {other} rows", lengths[0]),
            "columns of one length",
        )),
    }
}

/// Checks that ids count from 0 without gaps.
fn check_dense(path: &Path, column: &str, ids: &[u32]) -> Result<(), FormatError> {
    match ids
        .iter()
        .enumerate()
        .find(|&(row, &id)| id as usize != row)
    {
        None => Ok(()),
        Some((row, id)) => Err(FormatError::corrupt(
            path,
            format!("row {row}, column {column}"),
            id.to_string(),
            row.to_string(),
        )),
    }
}

/// Checks that counts cannot overflow a sum: no run gets near [`MAX_COUNTED`].
fn check_counts(
    path: &Path,
    column: &str,
    mut counts: impl Iterator<Item = u64>,
) -> Result<(), FormatError> {
    let sum = counts.try_fold(0u64, |sum, count| {
        sum.checked_add(count).filter(|&sum| sum <= MAX_COUNTED)
    });
    match sum {
        Some(_) => Ok(()),
        None => Err(FormatError::corrupt(
            path,
            format!("column {column}"),
            "values whose sum is above 2^60",
            "counts of one run",
        )),
    }
}

/// Checks that ids are below `limit`.
fn check_range(path: &Path, column: &str, ids: &[u32], limit: usize) -> Result<(), FormatError> {
    match ids
        .iter()
        .enumerate()
        .find(|&(_, &id)| id as usize >= limit)
    {
        None => Ok(()),
        Some((row, id)) => Err(FormatError::corrupt(
            path,
            format!("row {row}, column {column}"),
            id.to_string(),
            format!("a number below {limit}"),
        )),
    }
}

/// Makes a row of `page_slices` from its ids; also used by the pages module.
fn page_slice(slice: u32, page: u32, thread: u32, accesses: u64) -> PageSliceRow {
    PageSliceRow {
        slice: SliceIdx(slice),
        page,
        thread: ThreadIdx(thread),
        accesses,
    }
}

/// Makes an object id; also used by the pages module.
fn object_id(id: u64) -> ObjectIdx {
    ObjectIdx(id as u32)
}

#[cfg(test)]
mod tests;
