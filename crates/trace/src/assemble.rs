//! From the journals of a recording to a [`Profile`].

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use numaloc_model::ids::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{Clock, CommRow, Meta, Object, PageSliceRow, Slice, Thread};
use numaloc_model::{Layer, PageUsage, Profile, ThreadAccess};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use crate::journal::{self, Record, VERSION};
use crate::objects::{Images, Memory, Section};
use crate::paths;

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

/// One journal, decoded.
struct Space {
    first: String,
    image: u32,
    program: String,
    threads: BTreeMap<u32, (String, u32, u64, u64)>,
    totals: HashMap<u32, [u64; 4]>,
    records: Vec<Record>,
    pid: u32,
    complete: bool,
}

/// Reads all journals in `folder`.
///
/// # Errors
/// [`AssembleError`]; a journal that was cut off is no error, the profile says `complete: false`.
pub fn assemble(folder: &Path, options: &Options) -> Result<Profile, AssembleError> {
    let read_error = |path: &Path| {
        let path = path.to_owned();
        move |source| AssembleError::Read { path, source }
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(read_error(folder))?;
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
    };
    for file in files {
        let bytes = std::fs::read(&file).map_err(read_error(&file))?;
        if let Some(space) = load(&file, &bytes, &mut meta)? {
            spaces.push(space);
        }
    }
    spaces.sort_by(|a, b| paths::order(&a.first, &b.first).then(a.image.cmp(&b.image)));
    let profile = Assembly::new(meta, options, spaces).profile();
    // A program killed while it was being set up leaves a journal without a thread: that is no profile.
    if profile.threads.is_empty() {
        return Err(AssembleError::Empty {
            path: folder.to_owned(),
        });
    }
    Ok(profile)
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
                totals: HashMap::new(),
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
                read_bytes,
                write_bytes,
            },
            Some(space),
        ) => {
            space
                .totals
                .insert(thread, [time, accesses, read_bytes, write_bytes]);
        }
        (Record::Note(text), Some(_)) => meta.notes.push(text),
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
        let index = paths
            .into_iter()
            .enumerate()
            .map(|(at, path)| (path, ThreadIdx::from_index(at)))
            .collect();
        Self {
            meta,
            options,
            spaces,
            index,
            elf: Elf::default(),
        }
    }

    /// Profile index of a thread of a space; `None` for a number its journal never introduced (damage).
    fn thread(&self, space: &Space, number: u32) -> Option<ThreadIdx> {
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
        let communication = self.communication(slice_of);
        let (objects, pages, page_slices) = self.memory(slice_of);
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
        }
    }

    fn threads(&self) -> Vec<Thread> {
        let mut threads: Vec<Option<Thread>> = vec![None; self.index.len()];
        for space in &self.spaces {
            for (number, (path, tid, start, routine)) in &space.threads {
                let totals = space
                    .totals
                    .get(number)
                    .copied()
                    .unwrap_or([*start, 0, 0, 0]);
                let label = (*routine != 0)
                    .then(|| self.routine(space, *routine))
                    .flatten();
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
                thread.end = thread.end.max(totals[0]);
                thread.accesses += totals[1];
                thread.read_bytes += totals[2];
                thread.write_bytes += totals[3];
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
        if HELPERS.iter().any(|helper| name.starts_with(helper)) {
            return Some(format!("runtime helper ({name})"));
        }
        Some(
            self.elf
                .symbol(file, address - start)
                .unwrap_or_else(|| name.to_owned()),
        )
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

    fn communication(&self, slice_of: impl Fn(u64) -> SliceIdx) -> Vec<CommRow> {
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
                for &(src, events, bytes) in cells {
                    if let Some(src) = self.thread(space, src)
                        && src != dst
                    {
                        // Undirected layers hold a pair's amount in both cells.
                        let mirrored = (!layer.is_directed()).then_some((dst, src));
                        for (src, dst) in [(src, dst)].into_iter().chain(mirrored) {
                            let sum = sums.entry((slice_of(*start), layer, src, dst)).or_default();
                            sum.0 += events;
                            sum.1 += bytes;
                        }
                    }
                }
            }
        }
        self.shared_lines(&slice_of, &mut sums);
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

    /// `shared_line`: one event for each line and pair of threads that both accessed it in a slice.
    fn shared_lines(&self, slice_of: impl Fn(u64) -> SliceIdx, sums: &mut Sums) {
        let line_size = self.meta.line_size;
        for space in &self.spaces {
            let mut slices: BTreeMap<SliceIdx, Vec<(u64, ThreadIdx)>> = BTreeMap::new();
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
                    touched.extend(lines.iter().map(|&line| (line, thread)));
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
    }

    fn memory(
        &self,
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> (Vec<Object>, PageUsage, Vec<PageSliceRow>) {
        let factor = self.options.page_size >> 12;
        let mut objects = Vec::new();
        let mut usage = PageUsage::new(self.options.page_size);
        let mut page_slices = Vec::new();
        for (at, space) in self.spaces.iter().enumerate() {
            let offset = ((at as u64) << SPACE_SHIFT) / factor;
            let path_of = |number: u32| space.threads.get(&number).map_or("0", |t| t.0.as_str());
            let memory = Memory::build(&space.records, &space.first, path_of, &self.elf);
            let first_object = objects.len();
            objects.extend(memory.objects.iter().map(|found| Object {
                kind: found.kind,
                name: found.name.clone(),
                size: found.size,
                order: found.order,
                thread: self.index.get(&found.creator).copied(),
                base: found.base,
            }));
            for (page, counted) in self.pages(space, factor, &slice_of) {
                let start = page * self.options.page_size;
                let object = memory.object_at(start, start + self.options.page_size);
                let base = object.map_or(0, |object| memory.objects[object].base);
                let index = usage.pages().len() as u32;
                usage.push(
                    PageHead {
                        number: PageNumber(offset + page),
                        object: object.map(|object| ObjectIdx::from_index(first_object + object)),
                        object_page: page.saturating_sub(base / self.options.page_size),
                        first_touch: counted.first.map(|first| first.1),
                        first_touch_time: counted.first.map_or(0, |first| first.0),
                    },
                    counted
                        .threads
                        .into_iter()
                        .map(|(thread, (reads, writes))| ThreadAccess {
                            thread,
                            reads,
                            writes,
                        })
                        .collect(),
                );
                page_slices.extend(counted.slices.into_iter().map(
                    |((slice, thread), accesses)| PageSliceRow {
                        slice,
                        page: index,
                        thread,
                        accesses,
                    },
                ));
            }
        }
        page_slices.sort_by_key(|row| (row.slice, row.page, row.thread));
        (objects, usage, page_slices)
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
                    thread,
                    start,
                    cells,
                    ..
                } => {
                    let Some(thread) = self.thread(space, *thread) else {
                        continue;
                    };
                    let slice = slice_of(*start);
                    for &(page, reads, writes) in cells {
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

/// Events and bytes of each slice, layer and pair.
type Sums = BTreeMap<(SliceIdx, Layer, ThreadIdx, ThreadIdx), (u64, u64)>;

/// Libraries whose threads serve a run-time system, not the program.
const HELPERS: [&str; 9] = [
    "libopen-pal",
    "libopen-rte",
    "libpmix",
    "libevent",
    "libucs",
    "libuct",
    "libfabric",
    "libpsm2",
    "libmpich",
];

#[derive(Default)]
struct Counted {
    threads: BTreeMap<ThreadIdx, (u64, u64)>,
    slices: BTreeMap<(SliceIdx, ThreadIdx), u64>,
    first: Option<(u64, ThreadIdx)>,
}

/// Function symbols of a file: address relative to the load base, size, name.
type Symbols = Vec<(u64, u64, String)>;

/// ELF files on disk, each read once.
#[derive(Default)]
struct Elf {
    symbols: RefCell<HashMap<String, Symbols>>,
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
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let base = link_base(&file);
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
            })
            .collect();
        Some(sections)
    }
}
