//! Objects, their pages, and the lines that threads share, for all processes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_access_trace::message::SharedPages;
use numaloc_model::Layer;
use numaloc_model::ids::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{CommRow, CommSums, Object, ProfileBuilder, SharedLine, image};

use crate::Assembly;
use crate::images;
use crate::load::Space;
use crate::objects::{Found, Memory};
use crate::pages::Rows;
use numaloc_journal::Record;

impl Assembly<'_> {
    /// `shared_line`: one event for each line and pair of threads that both accessed it in a slice.
    pub(super) fn shared_lines(
        &self,
        memories: &[Memory],
        slice_of: impl Fn(u64) -> SliceIdx,
        sums: &mut CommSums,
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
                            Some((object, offset)) => {
                                Line::CrossProcess((space.table, object), offset / line_size)
                            }
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

    /// Adds objects, pages and shared lines to `tables`. Returns the indexes of each process image's objects, and its
    /// pages that an earlier one has mapped too.
    pub(super) fn memory(
        &self,
        memories: &[Memory],
        slice_of: impl Fn(u64) -> SliceIdx,
        tables: &mut ProfileBuilder,
    ) -> Vec<(Vec<Option<ObjectIdx>>, Vec<SharedPages>)> {
        let page_size = self.options.page_size;
        let factor = page_size >> 12;
        let (mut shared_lines, mut all) = (Vec::new(), Vec::new());
        let mut rows = Rows::default();
        // An object mapped by several processes is one object, named by the first of them, with one row for each page.
        let mut cross_process_objects = CrossProcessObjects::new();
        let mut cross_process_pages: HashMap<(Shared, u64), usize> = HashMap::new();
        for (at, (space, memory)) in self.spaces.iter().zip(memories).enumerate() {
            let offset = image::first_page(at as u64, page_size);
            let pages = self.pages(space, factor, &slice_of);
            let used = self.used(space, memory, pages.numbers());
            let indexes = self.add_objects(
                space.table,
                memory,
                &used,
                &mut cross_process_objects,
                tables,
            );
            shared_lines.extend(self.lines_of(space, at as u64, memory, &indexes));
            let mut shared = Vec::new();
            for (page, first, cells) in pages.rows() {
                let start = page * page_size;
                let end = start.saturating_add(page_size);
                let backing = memory.backing(start, end);
                let part = backing.map(|(object, from)| ((space.table, object), from / page_size));
                if let Some(&row) = part.and_then(|part| cross_process_pages.get(&part)) {
                    rows.add(row, first, cells);
                    let pages = SharedPages {
                        first: page * factor,
                        pages: factor,
                        known_as: rows.page(row).0 * factor,
                    };
                    images::add(pages, &mut shared);
                    continue;
                }
                let object = memory.object_at(start, end);
                let base = object.map_or(0, |object| memory.origin(object, start));
                let row = rows.push(PageHead {
                    number: PageNumber(offset + page),
                    object: object.and_then(|object| indexes[object]),
                    object_page: page.saturating_sub(base / page_size),
                    first_touch: None,
                    first_touch_time: 0,
                    policy: None,
                });
                rows.add(row, first, cells);
                if let Some(part) = part {
                    cross_process_pages.insert(part, row);
                }
            }
            all.push((indexes, shared));
        }
        rows.add_to(tables);
        join_lines(&mut shared_lines, cross_process_objects.values());
        tables.shared_lines = shared_lines;
        all
    }

    /// Adds the objects of a process image that no earlier one maps; those of memory that processes share are numbered
    /// by `table`. Of the objects that it has since it was forked, only those that it has `used`. Returns the indexes
    /// of all its objects.
    fn add_objects(
        &self,
        table: usize,
        memory: &Memory,
        used: &HashSet<usize>,
        cross_process: &mut CrossProcessObjects,
        tables: &mut ProfileBuilder,
    ) -> Vec<Option<ObjectIdx>> {
        let mut index_of = |found: &Found| {
            let part = found
                .backing
                .map(|(object, from)| ((table, object), from, found.key.size));
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
                variables: found.variables.to_vec(),
            });
            if let Some(part) = part {
                cross_process.insert(part, index);
            }
            index
        };
        let objects = memory.objects.iter().enumerate();
        objects
            .map(|(at, found)| {
                let is_used = at >= memory.inherited || used.contains(&at);
                is_used.then(|| index_of(found))
            })
            .collect()
    }

    /// The objects that a process has used: those of its `pages`, of the lines that its threads share, and of its
    /// samples. Empty where the process was not forked.
    fn used(
        &self,
        space: &Space,
        memory: &Memory,
        pages: impl Iterator<Item = u64>,
    ) -> HashSet<usize> {
        if memory.inherited == 0 {
            return HashSet::new();
        }
        let (page, line) = (self.options.page_size, self.meta.line_size);
        let mut places: Vec<(u64, u64)> = pages.map(|number| (number * page, page)).collect();
        for record in &space.records {
            match record {
                Record::SharedLines(lines) => {
                    places.extend(lines.iter().map(|of| (of.0.wrapping_mul(line), line)));
                }
                Record::Sites { cells, .. } => {
                    places.extend(cells.iter().map(|cell| (cell.page << 12, 1 << 12)));
                }
                _ => {}
            }
        }
        let at = |(start, size): (u64, u64)| memory.object_at(start, start.saturating_add(size));
        places.into_iter().filter_map(at).collect()
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
