//! From the journals of a recording to a [`Profile`].

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use numaloc_model::ids::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    CellError, Clock, CommRow, Meta, Object, PageSliceRow, SharedLine, Slice, Thread,
};
use numaloc_model::{Layer, PageUsage, Profile, ThreadAccess};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use crate::bursts::{self, Bursts};
use crate::code::Lines;
use crate::engine::Config;
use crate::errors;
use crate::helpers;
use crate::journal::{self, COMMON_NUMBER, Record, VERSION};
use crate::objects::{Images, Memory, Section};
use crate::paths;
use crate::sites;
use crate::variables::Variables;
use crate::watch::GROUPS;

/// Pages of the k-th process image after the first have `k << SPACE_SHIFT` added to their number (in 4 KiB pages): processes use
/// the same addresses for different memory.
pub const SPACE_SHIFT: u32 = 40;

/// Why journals could not be turned into a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The folder or a journal cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Folder or file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No journal holds a process.
    #[error("no trace in {path}: the program ran, but nothing was recorded")]
    Empty {
        /// Folder.
        path: PathBuf,
    },
    /// A journal of another version of numaloc.
    #[error("{path} is a journal of version {found}, expected {VERSION}")]
    Version {
        /// File.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// What the recorder knows beside the journals.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments, for the profile.
    pub command: Vec<String>,
    /// Bytes per page of the profile, a power of two of at least 4096.
    pub page_size: u64,
    /// Most slices.
    pub slices: u64,
}

/// All lines, in the unit of shares.
const MILLION: u32 = bursts::MILLION as u32;

/// What a thread did, as far as its journal tells.
#[derive(Clone, Copy, Default)]
struct Totals {
    time: u64,
    accesses: u64,
    seen: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Totals {
    /// An amount counted in the part that was looked at, as an estimate for all: by lines where only `lines` millionths of
    /// them were watched, else by accesses.
    fn scale(&self, lines: u32, amount: u64) -> u64 {
        if lines < MILLION {
            return (amount as f64 * (f64::from(MILLION) / f64::from(lines))).round() as u64;
        }
        if self.seen == self.accesses || self.seen == 0 {
            return amount;
        }
        (amount as f64 * (self.accesses as f64 / self.seen as f64)).round() as u64
    }
}

/// One journal, decoded.
struct Space {
    first: String,
    image: u32,
    program: String,
    threads: BTreeMap<u32, (String, u32, u64, u64)>,
    /// The names that threads gave themselves, the first of each.
    names: HashMap<u32, String>,
    totals: HashMap<u32, Totals>,
    bursts: Option<Bursts>,
    /// Millionths of the lines that were watched.
    lines: u32,
    records: Vec<Record>,
    pid: u32,
    complete: bool,
}

/// Reads all journals in `folder`.
///
/// # Errors
/// [`AssembleError`]; a journal that was cut off is no error, the profile says `complete: false`.
pub fn assemble(folder: &Path, options: &Options) -> Result<Profile, AssembleError> {
    assemble_images(folder, options).map(|(profile, _)| profile)
}

/// One image of a process: its id, and how many images it had before.
pub type ProcessImage = (u32, u32);

/// [`assemble`], with the process images in the order that [`SPACE_SHIFT`] counts them in.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_images(
    folder: &Path,
    options: &Options,
) -> Result<(Profile, Vec<ProcessImage>), AssembleError> {
    let read_error = |path: &Path| {
        let path = path.to_owned();
        move |source| AssembleError::Read { path, source }
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(read_error(folder))?;
    let born: Vec<u32> = files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "born"))
        .filter_map(|file| file.file_stem()?.to_str()?.parse().ok())
        .collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "journal"));
    files.sort();
    let mut spaces = Vec::new();
    let mut meta = Meta {
        command: options.command.clone(),
        frontend: String::new(),
        clock: Clock::Virtual,
        line_size: 64,
        complete: true,
        notes: Vec::new(),
        sampled: 1.0,
        dram_source: None,
    };
    for file in files {
        let bytes = std::fs::read(&file).map_err(read_error(&file))?;
        if let Some(space) = load(&file, &bytes, &mut meta)? {
            spaces.push(space);
        }
    }
    for pid in born {
        if !spaces.iter().any(|space: &Space| space.pid == pid) {
            meta.complete = false;
            meta.notes.push(format!(
                "process {pid} ended before it had recorded anything"
            ));
        }
    }
    spaces.sort_by(|a, b| paths::order(&a.first, &b.first).then(a.image.cmp(&b.image)));
    let images = spaces
        .iter()
        .map(|space| (space.pid, space.image))
        .collect();
    let profile = Assembly::new(meta, options, spaces).profile();
    // A program killed while it was being set up leaves a journal without a thread: that is no profile.
    if profile.threads.is_empty() {
        return Err(AssembleError::Empty {
            path: folder.to_owned(),
        });
    }
    Ok((profile, images))
}

fn load(file: &Path, bytes: &[u8], meta: &mut Meta) -> Result<Option<Space>, AssembleError> {
    let mut space: Option<Space> = None;
    let mut version = None;
    let clean = journal::replay(bytes, |record| match (record, &mut space) {
        (
            Record::Process {
                version: found,
                pid,
                path,
                image,
                frontend,
                virtual_clock,
                line_shift,
                share,
                lines,
                program,
            },
            None,
        ) => {
            version = Some(found);
            meta.frontend = frontend;
            meta.line_size = 1 << line_shift;
            meta.clock = if virtual_clock {
                Clock::Virtual
            } else {
                Clock::Wall
            };
            space = Some(Space {
                first: path,
                image,
                program,
                pid,
                threads: BTreeMap::new(),
                names: HashMap::new(),
                totals: HashMap::new(),
                bursts: Config {
                    share,
                    virtual_clock,
                    ..Config::default()
                }
                .bursts(),
                lines,
                records: Vec::new(),
                complete: false,
            });
        }
        (
            Record::ThreadStart {
                thread,
                path,
                tid,
                time,
                routine,
            },
            Some(space),
        ) => {
            space.threads.insert(thread, (path, tid, time, routine));
        }
        (
            Record::ThreadTotals {
                thread,
                time,
                accesses,
                seen,
                read_bytes,
                write_bytes,
            },
            Some(space),
        ) => {
            space.totals.insert(
                thread,
                Totals {
                    time,
                    accesses,
                    seen,
                    read_bytes,
                    write_bytes,
                },
            );
        }
        (Record::ThreadName { thread, name }, Some(space)) => {
            space.names.entry(thread).or_insert(name);
        }
        (Record::Note(text), Some(_)) => meta.notes.push(text),
        (Record::Reduced(text), Some(_)) => {
            meta.notes.push(text);
            meta.complete = false;
        }
        (Record::End, Some(space)) => space.complete = true,
        (record, Some(space)) => {
            // Something after the end: an execve that failed after all.
            space.complete = false;
            space.records.push(record);
        }
        (_, None) => {}
    });
    match version {
        Some(found) if found != VERSION => Err(AssembleError::Version {
            path: file.to_owned(),
            found,
        }),
        _ => Ok(space.map(|mut space| {
            space.complete &= clean;
            space
        })),
    }
}

/// Joins the spaces.
struct Assembly<'a> {
    meta: Meta,
    options: &'a Options,
    spaces: Vec<Space>,
    /// Profile index by path.
    index: HashMap<String, ThreadIdx>,
    /// Profile index by number in the common table.
    common: HashMap<u32, ThreadIdx>,
    elf: Elf,
}

impl<'a> Assembly<'a> {
    fn new(mut meta: Meta, options: &'a Options, spaces: Vec<Space>) -> Self {
        for space in spaces.iter().filter(|space| !space.complete) {
            meta.complete = false;
            meta.notes.push(format!(
                "cut short: the trace of process {} ({}) ends before the process did",
                space.first, space.program
            ));
        }
        let mut paths: Vec<String> = spaces
            .iter()
            .flat_map(|space| space.threads.values().map(|thread| thread.0.clone()))
            .collect();
        paths.sort_by(|a, b| paths::order(a, b));
        paths.dedup();
        let index: HashMap<String, ThreadIdx> = paths
            .into_iter()
            .enumerate()
            .map(|(at, path)| (path, ThreadIdx::from_index(at)))
            .collect();
        let numbered = |space: &Space| -> Vec<(u32, ThreadIdx)> {
            let numbers = space.records.iter().filter_map(|record| match record {
                Record::CommonNumber { thread, number } => {
                    let path = &space.threads.get(thread)?.0;
                    Some((*number, index[path]))
                }
                _ => None,
            });
            numbers.collect()
        };
        let common = spaces.iter().flat_map(numbered).collect();
        Self {
            common,
            meta,
            options,
            spaces,
            index,
            elf: Elf::default(),
        }
    }

    /// Profile index of a thread of a space; `None` for a number its journal never introduced (damage).
    fn thread(&self, space: &Space, number: u32) -> Option<ThreadIdx> {
        if number & COMMON_NUMBER != 0 {
            return self.common.get(&(number & !COMMON_NUMBER)).copied();
        }
        space
            .threads
            .get(&number)
            .and_then(|thread| self.index.get(&thread.0))
            .copied()
    }

    fn profile(mut self) -> Profile {
        let threads = self.threads();
        let end = threads.iter().map(|thread| thread.end).max().unwrap_or(0);
        let (slices, length) = self.slices(end);
        let slice_of = |start: u64| SliceIdx((start / length).min(slices.len() as u64 - 1) as u32);
        let lines = Lines::of(self.spaces.iter().map(|space| &space.records[..]));
        let memories: Vec<Memory> = self
            .spaces
            .iter()
            .map(|space| {
                let path_of =
                    |number: u32| space.threads.get(&number).map_or("0", |t| t.0.as_str());
                let records = &space.records;
                let mut memory = Memory::build(records, &space.first, path_of, &self.elf);
                let code = lines.process(records);
                sites::name_blocks(records, &space.first, path_of, &mut memory, &code);
                memory
            })
            .collect();
        let communication = self.communication(&memories, slice_of);
        let Contents {
            objects,
            pages,
            page_slices,
            shared_lines,
        } = self.memory(&memories, slice_of);
        let cell_errors = self.cell_errors(&threads);
        self.describe_sampling();
        self.meta.notes.sort();
        self.meta.notes.dedup();
        Profile {
            meta: self.meta,
            threads,
            slices,
            communication,
            pages,
            page_slices,
            objects,
            cell_errors,
            shared_lines,
        }
    }

    fn threads(&self) -> Vec<Thread> {
        let mut threads: Vec<Option<Thread>> = vec![None; self.index.len()];
        for space in &self.spaces {
            for (number, (path, tid, start, routine)) in &space.threads {
                let totals = space.totals.get(number).copied().unwrap_or(Totals {
                    time: *start,
                    ..Totals::default()
                });
                let routine = (*routine != 0).then(|| self.routine(space, *routine));
                let name = space.names.get(number);
                let label = name
                    .and_then(|name| helpers::of_name(name))
                    .or(routine.flatten())
                    .or_else(|| name.cloned());
                // The first thread of a process has a part in each image.
                let thread = threads[self.index[path].index()].get_or_insert(Thread {
                    path: path.clone(),
                    label,
                    pid: space.pid,
                    tid: *tid,
                    rank: None,
                    start: *start,
                    end: *start,
                    accesses: 0,
                    read_bytes: 0,
                    write_bytes: 0,
                    dram_bytes: None,
                });
                thread.start = thread.start.min(*start);
                thread.end = thread.end.max(totals.time);
                thread.accesses += totals.accesses;
                thread.read_bytes += totals.scale(space.lines, totals.read_bytes);
                thread.write_bytes += totals.scale(space.lines, totals.write_bytes);
            }
        }
        threads.into_iter().flatten().collect()
    }

    /// The start routine's symbol, or its file.
    fn routine(&self, space: &Space, address: u64) -> Option<String> {
        let (file, start) = space.records.iter().find_map(|record| match record {
            Record::Image { file, start, end } if (*start..*end).contains(&address) => {
                Some((file, *start))
            }
            Record::Map {
                file,
                address: at,
                length,
                offset,
                ..
            } if !file.is_empty() && (*at..at + length).contains(&address) => {
                Some((file, at - offset))
            }
            _ => None,
        })?;
        let name = file.rsplit('/').next().unwrap_or(file);
        helpers::of_library(name)
            .or_else(|| self.elf.symbol(file, address - start))
            .or_else(|| Some(name.to_owned()))
    }

    fn slices(&self, end: u64) -> (Vec<Slice>, u64) {
        let mut length = 1;
        for space in &self.spaces {
            for record in &space.records {
                if let Record::Comm { length: l, .. } = record {
                    length = length.max(*l);
                }
            }
        }
        // Spans of page counts may be longer; they count for the slice they begin in.
        if length == 1 {
            length = end.div_ceil(self.options.slices).max(1);
        }
        while end / length >= self.options.slices {
            length *= 2;
        }
        let slices = (0..end.div_ceil(length).max(1))
            .map(|at| Slice {
                start: at * length,
                end: ((at + 1) * length).min(end.max(1)),
            })
            .collect();
        (slices, length)
    }

    fn communication(
        &self,
        memories: &[Memory],
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> Vec<CommRow> {
        let mut sums = Sums::new();
        for space in &self.spaces {
            for record in &space.records {
                let Record::Comm {
                    thread,
                    layer,
                    start,
                    cells,
                    ..
                } = record
                else {
                    continue;
                };
                let Some(&layer) = Layer::ALL.get(*layer as usize) else {
                    continue;
                };
                let Some(dst) = self.thread(space, *thread) else {
                    continue;
                };
                let totals = space.totals.get(thread).copied().unwrap_or_default();
                for &(src, events, bytes) in cells {
                    if let Some(src) = self.thread(space, src)
                        && src != dst
                    {
                        // Undirected layers hold a pair's amount in both cells.
                        let mirrored = (!layer.is_directed()).then_some((dst, src));
                        for (src, dst) in [(src, dst)].into_iter().chain(mirrored) {
                            let sum = sums.entry((slice_of(*start), layer, src, dst)).or_default();
                            sum.0 += totals.scale(space.lines, events);
                            sum.1 += totals.scale(space.lines, bytes);
                        }
                    }
                }
            }
        }
        self.shared_lines(memories, &slice_of, &mut sums);
        sums.into_iter()
            .map(|((slice, layer, src, dst), (events, bytes))| CommRow {
                slice,
                src,
                dst,
                layer,
                events,
                bytes,
            })
            .collect()
    }

    /// Relative errors of the cells of whole-run matrices, where only bursts were watched.
    fn cell_errors(&self, threads: &[Thread]) -> Vec<CellError> {
        let mut seen: BTreeMap<(Layer, ThreadIdx, ThreadIdx), BTreeMap<u64, u64>> = BTreeMap::new();
        let mut schedule = None;
        for space in &self.spaces {
            let Some(bursts) = space.bursts else { continue };
            schedule = Some(bursts);
            for record in &space.records {
                let Record::Comm {
                    thread,
                    layer,
                    start,
                    cells,
                    ..
                } = record
                else {
                    continue;
                };
                let layer = Layer::ALL.get(*layer as usize).copied();
                let (Some(layer), Some(dst)) = (layer, self.thread(space, *thread)) else {
                    continue;
                };
                for &(src, events, _) in cells {
                    if let Some(src) = self.thread(space, src)
                        && src != dst
                    {
                        let cell = seen.entry((layer, src, dst)).or_default();
                        *cell.entry(*start).or_default() += events;
                    }
                }
            }
        }
        let Some(schedule) = schedule else {
            return self.errors_by_group();
        };
        let share = self.sampled();
        // Bursts of each reader's lifetime, listed once.
        let mut lifetimes: HashMap<ThreadIdx, Vec<(u64, u64)>> = HashMap::new();
        seen.into_iter()
            .map(|((layer, src, dst), seen)| {
                let bursts = lifetimes.entry(dst).or_insert_with(|| {
                    let reader = &threads[dst.index()];
                    schedule.between(reader.start, reader.end + 1).collect()
                });
                CellError {
                    layer,
                    src,
                    dst,
                    relative_error: errors::relative(bursts, &seen, share),
                }
            })
            .collect()
    }

    /// The same where a part of the lines was watched.
    fn errors_by_group(&self) -> Vec<CellError> {
        let mut sums: BTreeMap<(Layer, ThreadIdx, ThreadIdx), [u64; GROUPS]> = BTreeMap::new();
        let mut share = 1.0;
        for space in &self.spaces {
            for record in &space.records {
                let Record::Groups {
                    thread,
                    layer,
                    src,
                    counts,
                } = record
                else {
                    continue;
                };
                share = f64::from(space.lines) / f64::from(MILLION);
                let layer = Layer::ALL.get(*layer as usize).copied();
                if let (Some(layer), Some(src), Some(dst)) =
                    (layer, self.thread(space, *src), self.thread(space, *thread))
                    && src != dst
                {
                    let sum = sums.entry((layer, src, dst)).or_default();
                    for (sum, count) in sum.iter_mut().zip(counts) {
                        *sum += count;
                    }
                }
            }
        }
        sums.into_iter()
            .map(|((layer, src, dst), counts)| CellError {
                layer,
                src,
                dst,
                relative_error: errors::of_groups(&counts, share),
            })
            .collect()
    }

    /// Share of the accesses that were looked at.
    fn sampled(&self) -> f64 {
        let totals = || self.spaces.iter().flat_map(|space| space.totals.values());
        let accesses: u64 = totals().map(|totals| totals.accesses).sum();
        let seen: u64 = totals().map(|totals| totals.seen).sum();
        if seen == 0 || seen >= accesses {
            return 1.0;
        }
        seen as f64 / accesses as f64
    }

    fn describe_sampling(&mut self) {
        let lines = self.spaces.iter().map(|space| space.lines).min();
        let bursts = self.spaces.iter().any(|space| space.bursts.is_some());
        let lines = lines.filter(|&lines| lines < MILLION);
        if bursts || lines.is_some() {
            self.meta.sampled = self.sampled();
        }
        if let Some(lines) = lines {
            self.meta.notes.push(format!(
                "sampled by lines: {:.2} % of the cache lines were watched, with {:.2} % of the accesses; communication, bytes and \
                 page counts are estimates scaled by that share of lines (numbers of accesses are exact), errors of matrix cells are in \
                 cell_errors; pages with no line watched are missing, and first touch is that of a watched line",
                f64::from(lines) / f64::from(MILLION) * 100.0,
                self.meta.sampled * 100.0
            ));
        }
        if !bursts {
            return;
        }
        self.meta.notes.push(format!(
            "sampled in bursts: {:.2} % of the accesses were looked at; counts are estimates scaled to all accesses of their thread \
             (numbers of accesses are exact), errors of matrix cells are in cell_errors; pages that no burst met are missing, \
             first touch is the first seen, and communication whose write and read lie further apart than a burst is underestimated, by up \
             to half where it repeats",
            self.meta.sampled * 100.0
        ));
    }

    /// `shared_line`: one event for each line and pair of threads that both accessed it in a slice.
    fn shared_lines(
        &self,
        memories: &[Memory],
        slice_of: impl Fn(u64) -> SliceIdx,
        sums: &mut Sums,
    ) {
        let line_size = self.meta.line_size;
        let mut slices: BTreeMap<SliceIdx, Vec<(Line, ThreadIdx)>> = BTreeMap::new();
        for (at, (space, memory)) in self.spaces.iter().zip(memories).enumerate() {
            for record in &space.records {
                if let Record::Lines {
                    thread,
                    start,
                    lines,
                    ..
                } = record
                    && let Some(thread) = self.thread(space, *thread)
                {
                    let touched = slices.entry(slice_of(*start)).or_default();
                    let line_of = |line: u64| {
                        let start = line.wrapping_mul(line_size);
                        match memory.backing(start, start.saturating_add(line_size)) {
                            Some((object, offset)) => Line::Common(object, offset / line_size),
                            None => Line::Private(at, line),
                        }
                    };
                    touched.extend(lines.iter().map(|&line| (line_of(line), thread)));
                }
            }
        }
        for (slice, mut touched) in slices {
            touched.sort_unstable();
            touched.dedup();
            for same_line in touched.chunk_by(|a, b| a.0 == b.0) {
                for (_, a) in same_line {
                    for (_, b) in same_line.iter().filter(|(_, b)| a != b) {
                        let sum = sums.entry((slice, Layer::SharedLine, *a, *b)).or_default();
                        sum.0 += 1;
                        sum.1 += line_size;
                    }
                }
            }
        }
    }

    fn memory(&self, memories: &[Memory], slice_of: impl Fn(u64) -> SliceIdx) -> Contents {
        let page_size = self.options.page_size;
        let factor = page_size >> 12;
        let mut objects = Vec::new();
        let mut shared_lines = Vec::new();
        let mut rows: Vec<(PageHead, Counted)> = Vec::new();
        // What several processes map is one object, that of the first of them, and its pages are one row each.
        let mut common_objects: HashMap<(u32, u64, u64), ObjectIdx> = HashMap::new();
        let mut common_pages: HashMap<(u32, u64), usize> = HashMap::new();
        for (at, (space, memory)) in self.spaces.iter().zip(memories).enumerate() {
            let offset = ((at as u64) << SPACE_SHIFT) / factor;
            let mut indexes = Vec::with_capacity(memory.objects.len());
            for found in &memory.objects {
                let common = found.backing.map(|(b, from)| (b, from, found.size));
                let known = common.and_then(|common| common_objects.get(&common).copied());
                indexes.push(known.unwrap_or_else(|| {
                    objects.push(Object {
                        kind: found.kind,
                        name: found.name.clone(),
                        size: found.size,
                        order: found.order,
                        thread: self.index.get(&found.creator).copied(),
                        base: found.base,
                        variables: found.variables.clone(),
                    });
                    let index = ObjectIdx::from_index(objects.len() - 1);
                    common.map(|common| common_objects.insert(common, index));
                    index
                }));
            }
            shared_lines.extend(self.lines_of(space, at as u64, memory, &indexes));
            for (page, counted) in self.pages(space, factor, &slice_of) {
                let start = page * page_size;
                let end = start.saturating_add(page_size);
                if let Some((backing, from)) = memory.backing(start, end) {
                    match common_pages.entry((backing, from / page_size)) {
                        Entry::Occupied(row) => {
                            rows[*row.get()].1.add(counted);
                            continue;
                        }
                        Entry::Vacant(row) => {
                            row.insert(rows.len());
                        }
                    }
                }
                let object = memory.object_at(start, end);
                let base = object.map_or(0, |object| memory.origin(object, start));
                let head = PageHead {
                    number: PageNumber(offset + page),
                    object: object.map(|object| indexes[object]),
                    object_page: page.saturating_sub(base / page_size),
                    first_touch: None,
                    first_touch_time: 0,
                };
                rows.push((head, counted));
            }
        }
        let mut usage = PageUsage::new(page_size);
        let mut page_slices = Vec::new();
        for (index, (head, counted)) in rows.into_iter().enumerate() {
            let threads = counted.threads.into_iter();
            usage.push(
                PageHead {
                    first_touch: counted.first.map(|first| first.1),
                    first_touch_time: counted.first.map_or(0, |first| first.0),
                    ..head
                },
                threads
                    .map(|(thread, (reads, writes))| ThreadAccess {
                        thread,
                        reads,
                        writes,
                    })
                    .collect(),
            );
            let slices = counted.slices.into_iter();
            page_slices.extend(slices.map(|((slice, thread), accesses)| PageSliceRow {
                slice,
                page: index as u32,
                thread,
                accesses,
            }));
        }
        page_slices.sort_by_key(|row| (row.slice, row.page, row.thread));
        join_lines(&mut shared_lines, common_objects.values());
        shared_lines.sort_by_key(|line| {
            let most = std::cmp::Reverse((line.false_events, line.events));
            (most, line.line)
        });
        Contents {
            objects,
            pages: usage,
            page_slices,
            shared_lines,
        }
    }

    /// The lines that the threads of the `at`-th process image communicated through, with the objects they lie in.
    fn lines_of(
        &self,
        space: &Space,
        at: u64,
        memory: &Memory,
        indexes: &[ObjectIdx],
    ) -> Vec<SharedLine> {
        let size = self.meta.line_size;
        let offset = ((at << SPACE_SHIFT) << 12) / size;
        let lines = space.records.iter().filter_map(|record| match record {
            Record::SharedLines(lines) => Some(lines),
            _ => None,
        });
        lines
            .flatten()
            .map(|&(line, events, false_events)| {
                let start = line.wrapping_mul(size);
                let object = memory.object_at(start, start.saturating_add(size));
                let base = object.map_or(start, |object| memory.objects[object].base);
                SharedLine {
                    line: offset.wrapping_add(line),
                    object: object.map(|object| indexes[object]),
                    object_offset: start.saturating_sub(base),
                    events: events.max(false_events),
                    false_events,
                }
            })
            .collect()
    }

    fn pages(
        &self,
        space: &Space,
        factor: u64,
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> BTreeMap<u64, Counted> {
        let mut pages: BTreeMap<u64, Counted> = BTreeMap::new();
        for record in &space.records {
            match record {
                Record::Pages {
                    thread: number,
                    start,
                    cells,
                    ..
                } => {
                    let Some(thread) = self.thread(space, *number) else {
                        continue;
                    };
                    let slice = slice_of(*start);
                    let totals = space.totals.get(number).copied().unwrap_or_default();
                    for &(page, reads, writes) in cells {
                        let (reads, writes) = (
                            totals.scale(space.lines, reads),
                            totals.scale(space.lines, writes),
                        );
                        let counted = pages.entry(page / factor).or_default();
                        let sum = counted.threads.entry(thread).or_default();
                        sum.0 += reads;
                        sum.1 += writes;
                        *counted.slices.entry((slice, thread)).or_default() += reads + writes;
                    }
                }
                Record::FirstTouch { thread, cells } => {
                    let Some(thread) = self.thread(space, *thread) else {
                        continue;
                    };
                    for &(page, time) in cells {
                        let first = &mut pages.entry(page / factor).or_default().first;
                        if first.is_none_or(|earlier| (time, thread) < earlier) {
                            *first = Some((time, thread));
                        }
                    }
                }
                _ => {}
            }
        }
        pages
    }
}

/// What a profile says of memory.
struct Contents {
    objects: Vec<Object>,
    pages: PageUsage,
    page_slices: Vec<PageSliceRow>,
    shared_lines: Vec<SharedLine>,
}

/// Events and bytes of each slice, layer and pair.
type Sums = BTreeMap<(SliceIdx, Layer, ThreadIdx, ThreadIdx), (u64, u64)>;

/// A line of the recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// Of a process image, by number.
    Private(usize, u64),
    /// Of memory that processes share: object and line in it.
    Common(u32, u64),
}

/// Lines of objects that several processes map are listed once, with the events of all.
fn join_lines<'a>(lines: &mut Vec<SharedLine>, common: impl Iterator<Item = &'a ObjectIdx>) {
    let common: HashSet<ObjectIdx> = common.copied().collect();
    let mut seen: HashMap<(ObjectIdx, u64), usize> = HashMap::new();
    let mut joined: Vec<SharedLine> = Vec::with_capacity(lines.len());
    for line in lines.drain(..) {
        if let Some(object) = line.object.filter(|object| common.contains(object)) {
            match seen.entry((object, line.object_offset)) {
                Entry::Occupied(at) => {
                    let known = &mut joined[*at.get()];
                    known.events += line.events;
                    known.false_events += line.false_events;
                    continue;
                }
                Entry::Vacant(at) => {
                    at.insert(joined.len());
                }
            }
        }
        joined.push(line);
    }
    *lines = joined;
}

#[derive(Default)]
struct Counted {
    threads: BTreeMap<ThreadIdx, (u64, u64)>,
    slices: BTreeMap<(SliceIdx, ThreadIdx), u64>,
    first: Option<(u64, ThreadIdx)>,
}

impl Counted {
    /// Adds what another process did to the page.
    fn add(&mut self, other: Self) {
        for (thread, (reads, writes)) in other.threads {
            let sum = self.threads.entry(thread).or_default();
            sum.0 += reads;
            sum.1 += writes;
        }
        for (key, accesses) in other.slices {
            *self.slices.entry(key).or_default() += accesses;
        }
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Function symbols of a file: address relative to the load base, size, name.
type Symbols = Vec<(u64, u64, String)>;

/// ELF files on disk, each read once.
#[derive(Default)]
struct Elf {
    symbols: RefCell<HashMap<String, Symbols>>,
    sections: RefCell<HashMap<String, Option<Vec<Section>>>>,
}

/// Address of the first loaded byte, which load addresses are relative to.
fn link_base(file: &object::File) -> u64 {
    file.segments()
        .map(|segment| segment.address() & !0xfff)
        .min()
        .unwrap_or(0)
}

impl Elf {
    fn symbol(&self, path: &str, address: u64) -> Option<String> {
        let mut cache = self.symbols.borrow_mut();
        let symbols = cache.entry(path.to_owned()).or_insert_with(|| {
            let Ok(bytes) = std::fs::read(path) else {
                return Vec::new();
            };
            let Ok(file) = object::File::parse(&*bytes) else {
                return Vec::new();
            };
            let base = link_base(&file);
            file.symbols()
                .chain(file.dynamic_symbols())
                .filter(|symbol| symbol.is_definition() && symbol.size() > 0)
                .filter_map(|symbol| {
                    let name = symbol.name().ok()?.to_owned();
                    Some((symbol.address().wrapping_sub(base), symbol.size(), name))
                })
                .collect()
        });
        symbols
            .iter()
            .find(|(start, size, _)| (*start..start + size).contains(&address))
            .map(|(_, _, name)| name.clone())
    }
}

impl Images for Elf {
    fn sections(&self, path: &str) -> Option<Vec<Section>> {
        let mut cache = self.sections.borrow_mut();
        cache
            .entry(path.to_owned())
            .or_insert_with(|| Self::read_sections(path))
            .clone()
    }
}

impl Elf {
    fn read_sections(path: &str) -> Option<Vec<Section>> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let base = link_base(&file);
        let variables = Variables::of(&file);
        let sections = file
            .sections()
            .filter(|section| match section.flags() {
                object::SectionFlags::Elf { sh_flags } => {
                    let wanted = u64::from(object::elf::SHF_WRITE | object::elf::SHF_ALLOC);
                    sh_flags & wanted == wanted && sh_flags & u64::from(object::elf::SHF_TLS) == 0
                }
                _ => false,
            })
            .filter(|section| section.size() > 0)
            .map(|section| Section {
                name: section.name().unwrap_or("?").to_owned(),
                address: section.address().wrapping_sub(base),
                size: section.size(),
                variables: variables.within(section.address(), section.size()),
            })
            .collect();
        Some(sections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    #[test]
    fn a_process_that_left_no_journal_makes_the_profile_incomplete() {
        let options = Options {
            command: vec!["app".to_owned()],
            page_size: 4096,
            slices: 10,
        };
        for missing in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let config = Config {
                folder: folder.path().to_owned(),
                ..Config::default()
            };
            let engine: &'static Engine =
                Box::leak(Box::new(Engine::start(config, "/bin/app").unwrap()));
            let mut thread = engine.first_thread(1);
            thread.access::<true, false>(0x1000, 8);
            // This very process has a journal; no process has the other number.
            engine.expect_process(if missing {
                u32::MAX
            } else {
                std::process::id()
            });
            thread.end(0);
            engine.finish();
            let profile = assemble(folder.path(), &options).unwrap();
            assert_eq!(profile.meta.complete, !missing);
            assert_eq!(profile.meta.notes.len(), usize::from(missing));
        }
    }
}
