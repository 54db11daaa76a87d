//! The profile of what was collected: threads by path, tables, and notes about what was sampled.

use std::collections::{BTreeSet, HashMap, HashSet};

use numaloc_identity::Step;
use numaloc_model::number;
use numaloc_model::pages::PageHead;
use numaloc_model::profile::image::PAGE_SHIFT;
use numaloc_model::profile::{
    Clock, CommRow, Meta, Object, ObjectKind, PageSlice, ProfileBuilder, Slice, SlowLoad, Thread,
    ThreadRole,
};
use numaloc_model::{ObjectIdx, PageNumber, Profile, SliceIdx, ThreadAccess, ThreadIdx};

use super::{Collector, LONG_CYCLES, Origin, PageCount};
use crate::data_src::Level;
use crate::error::PerfError;
use crate::lineage::{self, NodeIdx};

/// Assumed size of an access in bytes: samples do not contain it.
const ACCESS_BYTES: u64 = 8;

/// Number of process names listed in a message.
const NAMES: usize = 12;

impl Collector {
    /// The profile of all events.
    ///
    /// # Errors
    /// [`PerfError::NoProcess`] if the selected process does not occur, [`PerfError::NoAddresses`] if no sample of the
    /// program has a data address, [`PerfError::Profile`] if amounts exceed what a profile holds.
    pub fn finish(self, origin: Origin) -> Result<Profile, PerfError> {
        if let Some(process) = self.lineage.missing() {
            let mut found: Vec<String> = Vec::new();
            for name in self.lineage.nodes().iter().map(|node| &node.name) {
                if found.len() < NAMES && !name.is_empty() && !found.contains(name) {
                    found.push(name.clone());
                }
            }
            return Err(PerfError::NoProcess {
                process: process.to_owned(),
                source_name: origin.name,
                found,
            });
        }
        if self.samples == 0 {
            return Err(PerfError::NoAddresses {
                source_name: origin.name,
                samples: self.no_address + self.in_kernel,
            });
        }
        Ok(self.tables(origin).build()?)
    }

    fn tables(&self, origin: Origin) -> ProfileBuilder {
        let meta = Meta {
            command: origin.command,
            line_size: self.options.line_size,
            complete: origin.complete,
            notes: self.notes(origin.notes),
            sampled: (self.samples as f64 / self.accesses as f64).min(1.0),
            dram_source: (!self.latency.is_empty()).then(|| "hardware samples of loads".to_owned()),
            window: origin.window,
            ..Meta::new("perf", Clock::Wall)
        };
        let mut tables = ProfileBuilder::new(meta, self.options.page_size);
        let index = self.threads(&mut tables);
        let objects = self.objects(&mut tables, &index);
        for (&number, seen) in &self.pages {
            let head = PageHead {
                number: PageNumber(number),
                object: seen
                    .object
                    .and_then(|(object, _)| objects.get(&object).copied()),
                object_page: seen.object.map_or(0, |(_, page)| page),
                first_touch: seen.first_fault.map(|(_, thread)| index[&thread]),
                first_touch_time: seen.first_fault.map_or(0, |(time, _)| time),
                policy: None,
            };
            let accesses = seen.by_thread.iter().map(|(thread, count)| ThreadAccess {
                thread: index[thread],
                reads: count.reads,
                writes: count.writes,
            });
            tables.page(head, accesses);
        }
        tables.slow_loads = self.slow_loads(&index);
        let page_slices = self.page_slices.iter();
        tables.page_slices = page_slices
            .map(|(&(slice, page, thread), &accesses)| PageSlice {
                slice: SliceIdx(slice),
                page: PageNumber(page),
                thread: index[&thread],
                accesses,
            })
            .collect();
        let communication = self.communication.iter();
        tables.communication = communication
            .map(|(&(slice, layer, src, dst), &events)| CommRow {
                slice: SliceIdx(slice),
                src: index[&src],
                dst: index[&dst],
                layer,
                events,
                bytes: events.saturating_mul(self.options.line_size),
            })
            .collect();
        tables.slices = (0..=self.last / self.slice_ns)
            .take(self.options.max_slices.max(1) as usize)
            .map(|slice| Slice {
                start: slice * self.slice_ns,
                end: (slice + 1).saturating_mul(self.slice_ns),
            })
            .collect();
        tables
    }

    /// Adds the objects of which pages were sampled; `index`: the handles of threads. Returns those of objects.
    fn objects(
        &self,
        tables: &mut ProfileBuilder,
        index: &HashMap<u32, ThreadIdx>,
    ) -> HashMap<usize, ObjectIdx> {
        let firsts = self.first_threads(index);
        let sampled: BTreeSet<usize> = self
            .pages
            .values()
            .filter_map(|seen| Some(seen.object?.0))
            .collect();
        let mut orders: HashMap<(ObjectKind, &str, u64, Option<ThreadIdx>), u32> = HashMap::new();
        let mut handles = HashMap::new();
        for at in sampled {
            let known = &self.areas.objects()[at];
            let size = if known.kind == ObjectKind::Heap {
                0
            } else {
                known.size
            };
            let thread = firsts.get(&known.image).copied();
            let next = orders
                .entry((known.kind, known.name.as_str(), size, thread))
                .or_default();
            handles.insert(at, ObjectIdx::from_index(tables.objects.len()));
            tables.objects.push(Object {
                kind: known.kind,
                name: known.name.clone(),
                size,
                order: *next,
                thread,
                base: known.base,
                variables: Vec::new(),
            });
            *next += 1;
        }
        handles
    }

    /// The first thread of each process image.
    fn first_threads(&self, index: &HashMap<u32, ThreadIdx>) -> HashMap<u32, ThreadIdx> {
        let mut firsts: HashMap<u32, ThreadIdx> = HashMap::new();
        for (at, node) in self.lineage.nodes().iter().enumerate() {
            if let Some(thread) = index.get(&(at as u32)).filter(|_| node.pid == node.tid) {
                firsts.insert(node.image, *thread);
            }
        }
        firsts
    }

    /// The long loads: by their latencies if samples have them, else by what served them.
    fn slow_loads(&self, index: &HashMap<u32, ThreadIdx>) -> Option<(String, Vec<SlowLoad>)> {
        let (source, of): (_, fn(&PageCount) -> u64) = if self.timed_loads > 0 {
            let source = format!("hardware samples of loads of at least {LONG_CYCLES} core cycles");
            (source, |count| count.long)
        } else if self.levelled_loads > 0 {
            let source = "hardware samples of loads served by memory or another package's cache, \
                          for no sample has a latency";
            (source.to_owned(), |count| count.far)
        } else {
            return None;
        };
        let rows = self.pages.iter().flat_map(|(page, seen)| {
            let threads = seen
                .by_thread
                .iter()
                .filter(move |(_, count)| of(count) > 0);
            threads.map(move |(thread, count)| SlowLoad {
                page: PageNumber(*page),
                thread: index[thread],
                loads: of(count),
            })
        });
        Some((source, rows.collect()))
    }

    /// Adds the threads of every sampled process by path. Returns the handle of each node's thread.
    fn threads(&self, tables: &mut ProfileBuilder) -> HashMap<u32, ThreadIdx> {
        let nodes = self.lineage.nodes();
        let sampled: HashSet<u32> = self.threads.keys().map(|&node| nodes[node].image).collect();
        let chosen: Vec<NodeIdx> = (0..nodes.len())
            .filter(|&at| nodes[at].wanted && sampled.contains(&nodes[at].image))
            .collect();
        // Tops are numbered in the order of their first events.
        let mut tops: Vec<NodeIdx> = chosen.iter().map(|&at| self.lineage.top(at)).collect();
        tops.sort_unstable();
        tops.dedup();
        let number: HashMap<NodeIdx, u32> = tops
            .iter()
            .enumerate()
            .map(|(number, &top)| (top, number as u32))
            .collect();
        let mut by_path: Vec<(u32, Vec<Step>, NodeIdx)> = chosen
            .into_iter()
            .map(|at| (number[&self.lineage.top(at)], self.lineage.steps(at), at))
            .collect();
        by_path.sort();
        let has_levels = !self.latency.is_empty();
        let origin = self.origin.unwrap_or(0);
        let mut index = HashMap::new();
        for (top, steps, at) in &by_path {
            let node = &nodes[*at];
            let count = self.threads.get(at).copied().unwrap_or_default();
            let thread = tables.thread(Thread {
                role: if node.name.is_empty() {
                    ThreadRole::Unknown
                } else {
                    ThreadRole::Application(node.name.clone())
                },
                pid: node.pid,
                tid: node.tid,
                start: node.start.saturating_sub(origin),
                end: node.end.saturating_sub(origin),
                accesses: count.accesses,
                read_bytes: count.loads.saturating_mul(ACCESS_BYTES),
                write_bytes: count.stores.saturating_mul(ACCESS_BYTES),
                dram_bytes: has_levels.then(|| count.dram.saturating_mul(self.options.line_size)),
                name: node.is_named.then(|| node.name.clone()),
                title: self.titles.get(at).cloned(),
                ..Thread::new(lineage::text(*top, steps))
            });
            index.insert(*at as u32, thread);
        }
        index
    }

    fn notes(&self, mut notes: Vec<String>) -> Vec<String> {
        for source in &self.sources {
            if let Some(meaning) = &source.meaning {
                notes.push(format!("{}: {meaning}", source.name));
                continue;
            }
            let unit = if source.faults {
                "page faults, not accesses: mostly the first touch of a page in each process"
            } else {
                "memory accesses"
            };
            let period = match source.period {
                Some(period) => format!("one sample every {period}"),
                None => "sampling period as recorded in each sample".to_owned(),
            };
            notes.push(format!("event {}: {unit}; {period}", source.name));
        }
        notes.push(format!(
            "{} samples stand for {} events; counts are scaled by the sampling period",
            self.samples, self.accesses
        ));
        notes.push(format!(
            "samples do not carry the size of an access: {ACCESS_BYTES} bytes are counted for one, a line of {} bytes \
             for one served by memory and for a communication event",
            self.options.line_size
        ));
        notes.push(format!(
            "sampled_line, write_read: two samples of a line at most {} apart",
            number::duration(self.options.window_ns)
        ));
        if self.slice_ns != self.options.slice_ns {
            notes.push(format!(
                "slices were merged to {} to keep them at most {}",
                number::duration(self.slice_ns),
                self.options.max_slices
            ));
        }
        notes.extend(self.latency_note());
        notes.extend(self.losses());
        if self.spaces.len() > 1 {
            notes.push(format!(
                "{} process images and shared memories: pages of the k-th have k << {PAGE_SHIFT} added to their number",
                self.spaces.len()
            ));
        }
        notes
    }

    /// Mean latency by level; `None` if no sample has a level.
    fn latency_note(&self) -> Option<String> {
        let levels: Vec<String> = Level::ALL
            .into_iter()
            .filter_map(|level| self.latency.get(&level).map(|count| (level, count)))
            .map(|(level, count)| {
                if count.timed == 0 {
                    return format!("{} ({} samples)", level.name(), count.samples);
                }
                let mean = count.cycles as f64 / count.timed as f64;
                format!("{} {mean:.0} ({} samples)", level.name(), count.samples)
            })
            .collect();
        (!levels.is_empty()).then(|| {
            format!(
                "mean latency in core cycles by what served the access: {}",
                levels.join(", ")
            )
        })
    }

    /// Notes about samples that were left out or lost.
    fn losses(&self) -> impl Iterator<Item = String> {
        let all = [
            (
                self.unknown_operation,
                "samples do not distinguish loads from stores: counted as reads, no communication with them in sampled_line and write_read",
            ),
            (self.no_address, "samples without a data address left out"),
            (
                self.in_kernel,
                "samples of kernel addresses left out: not the program's memory",
            ),
            (
                // The same losses: what is lost last may only be in the second.
                self.lost.max(self.lost_in_all),
                "records were lost because the kernel's buffer was full: counts are too low",
            ),
            (
                self.throttled,
                "times the kernel throttled sampling: counts are too low",
            ),
            (
                self.board.dropped_lines(),
                "lines were dropped early from the table of recent lines: communication is too low",
            ),
        ];
        let counted = all.into_iter().filter(|&(count, _)| count > 0);
        counted.map(|(count, text)| format!("{count} {text}"))
    }
}
