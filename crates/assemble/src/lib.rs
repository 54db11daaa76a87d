//! Turns the journals of a recording into a [`Profile`]. Runs in the recorder, after the program.
//!
//! | module | content |
//! |---|---|
//! | `load` | reads the journals of one process image |
//! | `sampling`, `errors` | estimates from samples, and their errors |
//! | [`images`] | process images, and memory that several of them have mapped |
//! | `marks` | places in the program that threads passed |
//! | `memory`, `used` | pages, shared lines, and the objects that contain them |
//! | [`objects`] | names memory |
//! | [`lineage`] | what a process has from those that it was forked from |
//! | [`sites`], [`code`] | call sites of heap blocks, by function and line |
//! | `places` | sampled instructions, by function, line and object |
//! | `touches` | which thread placed each page |
//! | [`variables`], `elf` | names the parts of static sections |
//! | [`debug`] | symbols and debugging information, in files and separate |
//! | [`helpers`] | threads that serve a run-time system |

pub mod code;
mod contended;
mod contention;
pub mod debug;
mod elf;
mod errors;
mod generated;
pub mod helpers;
pub mod images;
pub mod lineage;
mod load;
mod marks;
mod memory;
mod named;
pub mod objects;
mod pages;
mod places;
mod sampling;
pub mod sites;
mod system;
mod touches;
mod used;
pub mod variables;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use numaloc_identity::ThreadPath;
use numaloc_identity::object::base_name;
use numaloc_model::ids::{SliceIdx, ThreadIdx};
use numaloc_model::profile::{Clock, CommRow, CommSums, Meta, ProfileBuilder, Slice, Thread};
use numaloc_model::{Layer, Profile, ProfileError, ThreadRole};

use crate::code::Lines;
use crate::generated::{Generated, WithGenerated};
use crate::images::ProcessImage;
use crate::lineage::Lineage;
use crate::memory::{MemoryTables, TouchedLines};
use crate::objects::Memory;
use elf::Elf;
use load::{Space, Totals, load};
use numaloc_journal::{CROSS_PROCESS_NUMBER, Record, VERSION};

/// Why journals cannot be turned into a profile.
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
    /// The journals contradict each other, or hold counts that no run reaches.
    #[error("the journals in {path} make no profile: {source}")]
    Contradiction {
        /// Folder.
        path: PathBuf,
        /// What is wrong with the profile's tables.
        source: ProfileError,
    },
}

/// What the recorder knows in addition to the journals.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments, for the profile.
    pub command: Vec<String>,
    /// Bytes per page of the profile, a power of two of at least 4096.
    pub page_size: u64,
    /// Most slices of the profile.
    pub slices: u64,
}

/// Assembles a profile from all journals in `folder`.
///
/// # Errors
/// [`AssembleError`]. A truncated journal is no error: the profile then has `complete: false`.
pub fn assemble(folder: &Path, options: &Options) -> Result<Profile, AssembleError> {
    assemble_images(folder, options).map(|(profile, _)| profile)
}

/// Like [`assemble`]; also returns the process images in the order in which
/// [`image`](numaloc_model::profile::image) counts them.
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
    files.retain(|file| file.extension().is_some_and(|e| e == "journal"));
    files.sort();
    let mut spaces = Vec::new();
    let mut meta = Meta {
        command: options.command.clone(),
        ..Meta::new("", Clock::Virtual)
    };
    for file in files {
        let bytes = std::fs::read(&file).map_err(read_error(&file))?;
        if let Some(mut space) = load(&file, &bytes, &mut meta)? {
            space.file = std::fs::metadata(&file).ok();
            spaces.push(space);
        }
    }
    meta.conditions.sharing.sort();
    meta.conditions.sharing.dedup();
    note_missing(&spaces, &mut meta);
    spaces.sort_by(|a, b| {
        let by_path = ThreadPath::new(&a.first).cmp(&ThreadPath::new(&b.first));
        by_path.then(a.image.cmp(&b.image))
    });
    lineage::link(&mut spaces);
    let (tables, images) = Assembly::new(meta, options, spaces).tables();
    // A program killed during set-up leaves a journal without threads, which is no profile.
    if tables.threads.is_empty() {
        return Err(AssembleError::Empty {
            path: folder.to_owned(),
        });
    }
    let path = folder.to_owned();
    let contradiction = |source| AssembleError::Contradiction { path, source };
    Ok((tables.build().map_err(contradiction)?, images))
}

/// Notes the process images that were announced but have no journal.
fn note_missing(spaces: &[Space], meta: &mut Meta) {
    let found: BTreeSet<(&str, u32)> = spaces.iter().map(|s| (&*s.first, s.image)).collect();
    let unit = match meta.clock {
        Clock::Virtual => "accesses",
        Clock::Wall => "ns",
    };
    let expected = spaces.iter().flat_map(|space| &space.expected);
    for image in expected.filter(|image| !found.contains(&(&*image.path, image.image))) {
        meta.complete = false;
        meta.notes.push(format!(
            "process {} ({}) is missing from {} {unit} on: it ended before anything was recorded, or it could not be \
             recorded",
            image.path, image.program, image.time
        ));
    }
}

/// Merges the decoded journals.
struct Assembly<'a> {
    meta: Meta,
    options: &'a Options,
    spaces: Vec<Space>,
    /// Profile index by path.
    index: HashMap<String, ThreadIdx>,
    /// Profile index by cross-process table ([`Space::table`]) and number there.
    cross_process: HashMap<(usize, u32), ThreadIdx>,
    elf: Elf,
}

impl<'a> Assembly<'a> {
    fn new(mut meta: Meta, options: &'a Options, mut spaces: Vec<Space>) -> Self {
        let hosts: BTreeSet<String> = spaces.iter().map(|space| space.host.clone()).collect();
        for space in &mut spaces {
            space.table = hosts.iter().take_while(|&host| *host < space.host).count();
        }
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
        paths.sort_by(|a, b| ThreadPath::new(a).cmp(&ThreadPath::new(b)));
        paths.dedup();
        let index: HashMap<String, ThreadIdx> = paths
            .into_iter()
            .enumerate()
            .map(|(at, path)| (path, ThreadIdx::from_index(at)))
            .collect();
        let numbered = |space: &Space| -> Vec<((usize, u32), ThreadIdx)> {
            let numbers = space.records.iter().filter_map(|record| match record {
                Record::CrossProcessNumber { thread, number } => {
                    let path = &space.threads.get(thread)?.0;
                    Some(((space.table, *number), index[path]))
                }
                _ => None,
            });
            numbers.collect()
        };
        let cross_process = spaces.iter().flat_map(numbered).collect();
        Self {
            cross_process,
            meta,
            options,
            spaces,
            index,
            elf: Elf::default(),
        }
    }

    /// Profile index of a thread of a space; `None` for a number that its journal does not introduce (damage).
    fn thread(&self, space: &Space, number: u32) -> Option<ThreadIdx> {
        if number & CROSS_PROCESS_NUMBER != 0 {
            return self
                .cross_process
                .get(&(space.table, number & !CROSS_PROCESS_NUMBER))
                .copied();
        }
        space
            .threads
            .get(&number)
            .and_then(|thread| self.index.get(&thread.0))
            .copied()
    }

    fn tables(mut self) -> (ProfileBuilder, Vec<ProcessImage>) {
        let threads = self.threads();
        let end = threads.iter().map(|thread| thread.end).max().unwrap_or(0);
        let (slices, length) = self.slices(end);
        let slice_of = |start: u64| SliceIdx((start / length).min(slices.len() as u64 - 1) as u32);
        let lines = Lines::of((0..self.spaces.len()).map(|at| Lineage::of(&self.spaces, at)));
        let generated: Vec<Generated> = self.spaces.iter().map(Generated::of).collect();
        let mut tables = ProfileBuilder::new(self.meta.clone(), self.options.page_size);
        let (mut memories, mut touched) = (MemoryTables::default(), TouchedLines::default());
        let mut images = Vec::new();
        for (at, space) in self.spaces.iter().enumerate() {
            let process = Lineage::of(&self.spaces, at);
            let code = lines.process(&process);
            let mut memory = Memory::build(&process, &self.elf);
            sites::name_blocks(&process, &mut memory, &code);
            named::name_memory(&process, &mut memory);
            self.touched_lines(at, &memory, slice_of, &mut touched);
            let (indexes, shared) = self.memory(at, &memory, slice_of, &mut memories, &mut tables);
            let code = WithGenerated {
                code,
                generated: generated::inherited(&self.spaces, &generated, at),
            };
            let rows = self.sites((space, &process), &memory, &indexes, &code);
            tables.sites.extend(rows);
            let number = at as u64;
            let (contended, visits) =
                self.contended_lines((space, &process), number, &memory, &indexes, &code);
            tables.contended_lines.extend(contended);
            tables.contended_visits.extend(visits);
            images.push(ProcessImage {
                pid: space.pid,
                image: space.image,
                shared,
            });
        }
        tables.communication = self.communication(touched, slice_of);
        tables.cell_errors = self.cell_errors(&threads);
        tables.marks = self.marks();
        self.describe_sampling();
        // A recording may have journals by the thousand, which are not needed any more.
        self.spaces = Vec::new();
        memories.add_to(&mut tables);
        // Other frontends have accesses whose place is not known.
        if matches!(&*self.meta.frontend, "native" | "qemu") {
            self.meta.notes.extend(generated::note(&tables.sites));
        }
        self.meta.notes.sort();
        self.meta.notes.dedup();
        tables.meta = self.meta;
        tables.threads = threads;
        tables.slices = slices;
        (tables, images)
    }

    fn threads(&self) -> Vec<Thread> {
        let mut threads: Vec<Option<Thread>> = vec![None; self.index.len()];
        for (at, space) in self.spaces.iter().enumerate() {
            let process = Lineage::of(&self.spaces, at);
            for (number, (path, tid, start, routine)) in &space.threads {
                let totals = space.totals.get(number).copied().unwrap_or(Totals {
                    time: *start,
                    ..Totals::default()
                });
                let routine = (*routine != 0).then(|| self.routine(&process, *routine));
                let name = space.names.get(number).or(space.task_names.get(tid));
                let role = name
                    .and_then(|name| helpers::of_name(name))
                    .or(routine.flatten())
                    .or_else(|| name.cloned().map(ThreadRole::Application))
                    .unwrap_or_default();
                // The first thread of a process has a part in each image.
                let thread = threads[self.index[path].index()].get_or_insert(Thread {
                    pid: space.pid,
                    tid: *tid,
                    start: *start,
                    end: *start,
                    ..Thread::new(path)
                });
                // Names of the last image count.
                if role != ThreadRole::Unknown {
                    thread.role = role;
                }
                thread.name = name.cloned().or(thread.name.take());
                thread.title = space.title_of(path).or(thread.title.take());
                thread.start = thread.start.min(*start);
                thread.end = thread.end.max(totals.time);
                thread.accesses += totals.accesses;
                thread.read_bytes += totals.by_accesses(totals.read_bytes);
                thread.write_bytes += totals.by_accesses(totals.write_bytes);
            }
        }
        threads.into_iter().flatten().collect()
    }

    /// The role by the start routine: its library, its symbol, or its file.
    fn routine(&self, process: &Lineage<'_>, address: u64) -> Option<ThreadRole> {
        let (file, start) = file_at(process, address)?;
        let name = base_name(file);
        let named = || {
            let symbol = self.elf.symbol(file, address - start);
            let symbol = symbol.map(|symbol| numaloc_names::routine(&symbol));
            ThreadRole::Application(symbol.unwrap_or_else(|| name.to_owned()))
        };
        Some(helpers::of_library(name).unwrap_or_else(named))
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
        (Slice::even(length, end).collect(), length)
    }

    fn communication(
        &self,
        touched: TouchedLines,
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> Vec<CommRow> {
        let mut sums = CommSums::default();
        for space in &self.spaces {
            for received in self.received(space) {
                let Received { dst, layer, .. } = received;
                let slice = slice_of(received.start);
                let totals = space.totals.get(&received.number);
                let totals = totals.copied().unwrap_or_default();
                for (src, events, bytes) in self.cells(space, &received) {
                    let row = CommRow {
                        slice,
                        src,
                        dst,
                        layer,
                        events: totals.scale(space.line_share_ppm, events),
                        bytes: totals.scale(space.line_share_ppm, bytes),
                    };
                    sums.add(row);
                    if !layer.is_directed() {
                        // Undirected layers hold a pair's amount in both cells.
                        sums.add(CommRow {
                            src: dst,
                            dst: src,
                            ..row
                        });
                    }
                }
            }
        }
        touched.add_to(self.meta.line_size, &mut sums);
        sums.into_rows().collect()
    }

    /// The communication records of a space, except those of threads that are not in the profile.
    fn received<'s>(&'s self, space: &'s Space) -> impl Iterator<Item = Received<'s>> {
        space.records.iter().filter_map(|record| match record {
            Record::Comm {
                thread,
                layer,
                start,
                cells,
                ..
            } => Some(Received {
                number: *thread,
                dst: self.thread(space, *thread)?,
                layer: *Layer::ALL.get(usize::from(*layer))?,
                start: *start,
                cells,
            }),
            _ => None,
        })
    }

    /// Source, events and bytes of each cell of a communication record.
    fn cells<'s>(
        &'s self,
        space: &'s Space,
        received: &Received<'s>,
    ) -> impl Iterator<Item = (ThreadIdx, u64, u64)> {
        let dst = received.dst;
        received
            .cells
            .iter()
            .filter_map(move |&(src, events, bytes)| {
                let src = self.thread(space, src).filter(|&src| src != dst)?;
                Some((src, events, bytes))
            })
    }
}

/// The file mapped at `address`, and the address of its first byte.
fn file_at<'a>(process: &Lineage<'a>, address: u64) -> Option<(&'a str, u64)> {
    process.records().find_map(|record| match record {
        Record::Image { file, start, end } if (*start..*end).contains(&address) => {
            Some((&**file, *start))
        }
        Record::Map {
            file,
            address: at,
            length,
            offset,
            ..
        } if !file.is_empty() && (*at..at + length).contains(&address) => {
            Some((&**file, at - offset))
        }
        _ => None,
    })
}

/// A [`Record::Comm`].
struct Received<'a> {
    /// The reader's number in the journal.
    number: u32,
    /// The reader.
    dst: ThreadIdx,
    layer: Layer,
    start: u64,
    cells: &'a [(u32, u64, u64)],
}

#[cfg(test)]
mod tests;
