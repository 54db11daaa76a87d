//! Objects, their pages, and the lines that threads share, for all processes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_access_trace::message::SharedPages;
use numaloc_model::Layer;
use numaloc_model::ids::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    CommRow, CommSums, Object, ProfileBuilder, SharedLine, Variable, image,
};

use crate::Assembly;
use crate::images;
use crate::load::Space;
use crate::objects::{Found, Memory};
use crate::pages::Rows;
use crate::used::Used;
use numaloc_journal::Record;

/// Lines that threads touched, by slice, for the layer `shared_line`.
#[derive(Default)]
pub(super) struct TouchedLines(BTreeMap<SliceIdx, Vec<(Line, ThreadIdx)>>);

impl TouchedLines {
    /// One event for each line and pair of threads that both accessed it in a slice.
    pub(super) fn add_to(self, line_size: u64, sums: &mut CommSums) {
        for (slice, mut touched) in self.0 {
            touched.sort_unstable();
            touched.dedup();
            for same_line in touched.chunk_by(|a, b| a.0 == b.0) {
                for (_, a) in same_line {
                    for (_, b) in same_line.iter().filter(|(_, b)| a != b) {
                        sums.add(CommRow {
                            slice,
                            src: *a,
                            dst: *b,
                            layer: Layer::SharedLine,
                            events: 1,
                            bytes: line_size,
                        });
                    }
                }
            }
        }
    }
}

/// The tables of memory while process images are added to them, one after the other. An object mapped by several
/// processes is one object, named by the first of them, with one row for each page.
#[derive(Default)]
pub(super) struct MemoryTables {
    rows: Rows,
    shared_lines: Vec<SharedLine>,
    objects: CrossProcessObjects,
    pages: HashMap<(Shared, u64), usize>,
}

impl MemoryTables {
    /// Adds pages and shared lines to `tables`, which have the objects.
    pub(super) fn add_to(mut self, tables: &mut ProfileBuilder) {
        self.rows.add_to(tables);
        join_lines(&mut self.shared_lines, self.objects.values());
        tables.shared_lines = self.shared_lines;
    }
}

impl Assembly<'_> {
    /// Adds the lines that threads of the `at`-th process image touched.
    pub(super) fn touched_lines(
        &self,
        at: usize,
        memory: &Memory,
        slice_of: impl Fn(u64) -> SliceIdx,
        touched: &mut TouchedLines,
    ) {
        let (space, line_size) = (&self.spaces[at], self.meta.line_size);
        let line_of = |line: u64| {
            let start = line.wrapping_mul(line_size);
            match memory.backing(start, start.saturating_add(line_size)) {
                Some((object, offset)) => {
                    Line::CrossProcess((space.table, object), offset / line_size)
                }
                None => Line::Private(at, line),
            }
        };
        for record in &space.records {
            if let Record::Lines {
                thread,
                start,
                lines,
                ..
            } = record
                && let Some(thread) = self.thread(space, *thread)
            {
                let of_slice = touched.0.entry(slice_of(*start)).or_default();
                of_slice.extend(lines.iter().map(|&line| (line_of(line), thread)));
            }
        }
    }

    /// Adds the `at`-th process image's objects to `tables`, its pages and shared lines to `known`. Returns the indexes
    /// of its objects, and its pages that an earlier one has mapped too.
    pub(super) fn memory(
        &self,
        at: usize,
        memory: &Memory,
        slice_of: impl Fn(u64) -> SliceIdx,
        known: &mut MemoryTables,
        tables: &mut ProfileBuilder,
    ) -> (Vec<Option<ObjectIdx>>, Vec<SharedPages>) {
        let (space, page_size) = (&self.spaces[at], self.options.page_size);
        let factor = page_size >> 12;
        let offset = image::first_page(at as u64, page_size);
        let pages = self.pages(space, factor, &slice_of);
        let of_pages = pages.numbers().map(|page| {
            let start = page * page_size;
            let object = memory.object_at(start, start.saturating_add(page_size));
            (object, start)
        });
        let of_pages: Vec<(Option<usize>, u64)> = of_pages.collect();
        let used = self.used(space, memory, &of_pages);
        let indexes = self.add_objects(space, memory, &used, &mut known.objects, tables);
        let lines = self.lines_of(space, at as u64, memory, &indexes);
        known.shared_lines.extend(lines);
        let mut shared = Vec::new();
        for ((page, first, cells), (object, start)) in pages.rows().zip(of_pages) {
            let backing = memory.backing(start, start.saturating_add(page_size));
            let part = backing.map(|(object, from)| ((space.table, object), from / page_size));
            if let Some(&row) = part.and_then(|part| known.pages.get(&part)) {
                known.rows.add(row, first, cells);
                let pages = SharedPages {
                    first: page * factor,
                    pages: factor,
                    known_as: known.rows.page(row).0 * factor,
                };
                images::add(pages, &mut shared);
                continue;
            }
            let base = object.map_or(0, |object| memory.origin(object, start));
            let row = known.rows.push(PageHead {
                number: PageNumber(offset + page),
                object: object.and_then(|object| indexes[object]),
                object_page: page.saturating_sub(base / page_size),
                first_touch: None,
                first_touch_time: 0,
                policy: None,
            });
            known.rows.add(row, first, cells);
            if let Some(part) = part {
                known.pages.insert(part, row);
            }
        }
        (indexes, shared)
    }

    /// Adds the objects of a process image that no earlier one maps; those of memory that processes share are numbered
    /// by its table. Of the objects that it has since it was forked, only those that it has `used`. Of their variables,
    /// those on pages that it has used, if they are large enough to be named ([`Self::least_part`]): a recording may
    /// have processes by the thousand, each with those of the C library. Returns the indexes of all its objects.
    fn add_objects(
        &self,
        space: &Space,
        memory: &Memory,
        used: &Used,
        cross_process: &mut CrossProcessObjects,
        tables: &mut ProfileBuilder,
    ) -> Vec<Option<ObjectIdx>> {
        let mut index_of = |found: &Found, variables: Vec<Variable>| {
            let part = found
                .backing
                .map(|(object, from)| ((space.table, object), from, found.key.size));
            if let Some(&known) = part.and_then(|part| cross_process.get(&part)) {
                return known;
            }
            let creator = found.key.creator.as_ref();
            let index = tables.object(Object {
                kind: found.key.kind,
                name: found.key.name.clone(),
                size: found.key.size,
                order: found.key.order,
                thread: creator.and_then(|path| self.index.get(path).copied()),
                base: found.base,
                variables,
            });
            if let Some(part) = part {
                cross_process.insert(part, index);
            }
            index
        };
        let objects = memory.objects.iter().enumerate();
        objects
            .map(|(at, found)| {
                let least = self.least_part(space, found);
                let is_used = |of: &&Variable| {
                    of.size >= least
                        && used.overlaps(at, of.offset, of.offset.saturating_add(of.size.max(1)))
                };
                (at >= memory.inherited || used.contains(at)).then(|| {
                    let variables = found.variables.iter().filter(is_used);
                    let mut variables: Vec<Variable> = variables.cloned().collect();
                    variables.shrink_to_fit();
                    index_of(found, variables)
                })
            })
            .collect()
    }

    /// The smallest variable of an object that is listed, in bytes. Variables are named by the lines that threads share
    /// and by the pages of which they fill a half: in memory that only one thread can reach, small ones never are.
    fn least_part(&self, space: &Space, found: &Found) -> u64 {
        let has_one_thread = space.threads.len() <= 1 && found.backing.is_none();
        let named = self.meta.line_size.min(self.options.page_size / 2);
        if has_one_thread { named } else { 0 }
    }

    /// What a process has used of its objects: its `pages` (object and address of each), the lines that its threads
    /// share, and the pages of its samples.
    fn used(&self, space: &Space, memory: &Memory, pages: &[(Option<usize>, u64)]) -> Used {
        let (page, line) = (self.options.page_size, self.meta.line_size);
        let others = space.records.iter().flat_map(|record| match record {
            Record::SharedLines(lines) => lines
                .iter()
                .map(|of| (of.0.wrapping_mul(line), line))
                .collect(),
            Record::Sites { cells, .. } => cells
                .iter()
                .map(|cell| (cell.page << 12, 1 << 12))
                .collect(),
            _ => Vec::new(),
        });
        let others = others.map(|(start, size): (u64, u64)| {
            let object = memory.object_at(start, start.saturating_add(size));
            (object, start, size)
        });
        let pages = pages.iter().map(|&(object, start)| (object, start, page));
        Used::of(pages.chain(others).filter_map(|(object, start, size)| {
            let origin = memory.origin(object?, start);
            let end = start.saturating_add(size);
            Some((
                object?,
                start.saturating_sub(origin),
                end.saturating_sub(origin),
            ))
        }))
    }

    /// The lines through which threads of the `at`-th process image communicated, with their objects.
    fn lines_of(
        &self,
        space: &Space,
        at: u64,
        memory: &Memory,
        indexes: &[Option<ObjectIdx>],
    ) -> Vec<SharedLine> {
        let size = self.meta.line_size;
        let offset = image::first_line(at, size);
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
                    object: object.and_then(|object| indexes[object]),
                    object_offset: start.saturating_sub(base),
                    events: events.max(false_events),
                    false_events,
                }
            })
            .collect()
    }
}

/// Memory that processes share: the cross-process table ([`Space::table`]), and the number there.
type Shared = (usize, u32);

/// Objects that several processes may map: by what is mapped, offset in it and size.
type CrossProcessObjects = HashMap<(Shared, u64, u64), ObjectIdx>;

/// A line of the recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// Of a process image, by number.
    Private(usize, u64),
    /// Of memory that processes share, and the line in it.
    CrossProcess(Shared, u64),
}

/// Lists lines of objects that several processes map once, with the events of all.
fn join_lines<'a>(lines: &mut Vec<SharedLine>, cross_process: impl Iterator<Item = &'a ObjectIdx>) {
    let cross_process: HashSet<ObjectIdx> = cross_process.copied().collect();
    let mut seen: HashMap<(ObjectIdx, u64), usize> = HashMap::new();
    let mut joined: Vec<SharedLine> = Vec::with_capacity(lines.len());
    for line in lines.drain(..) {
        if let Some(object) = line.object.filter(|object| cross_process.contains(object)) {
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
