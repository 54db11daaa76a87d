//! Builds a [`Profile`] from events in time order. Pure: no files, no clock; import and live sampling feed it.
//!
//! Every sample stands for `period` accesses and is counted as that number. Memory grows with the distinct
//! (page, thread), (slice, page, thread) and (slice, pair) that were sampled, so at most with the number of
//! samples; the number of slices is bounded by merging neighbours.

use std::collections::HashMap;

use numaloc_identity::Step;
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    Clock, CommRow, Meta, PageSliceRow, Slice, SlowLoadRow, SlowLoads, Thread,
};
use numaloc_model::{Layer, PageNumber, PageUsage, Profile, SliceIdx, ThreadAccess, ThreadIdx};

use crate::board::{Access, Board, Relation};
use crate::data_src::{Level, Operation};
use crate::error::PerfError;
use crate::lineage::{self, Lineage, NodeIdx};
use crate::record::{Event, Sample};

/// Pages of the k-th process image after the first have `k << SPACE_SHIFT` (in pages of 4 KiB) added to
/// their number, because processes use the same addresses for different memory. The exact frontends use the same rule.
const SPACE_SHIFT: u32 = 40;
/// User addresses are below this on every 64-bit machine with such a PMU.
const KERNEL: u64 = 1 << 63;
/// Assumed size of an access in bytes: samples do not contain it.
const ACCESS_BYTES: u64 = 8;

/// Minimum latency of a long load, in core cycles: more than a hit in any cache of the same package takes, less than
/// memory does. A power of two, because the threshold registers of counters that select loads by latency need one.
const LONG_CYCLES: u64 = 128;

/// Number of process names listed in a message.
const NAMES: usize = 12;

/// What to count, and at what granularity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes per page, a power of two.
    pub page_size: u64,
    /// Bytes per line of the communication layers, a power of two.
    pub line_size: u64,
    /// Two samples of a line communicate if they are at most this far apart, in ns.
    pub window_ns: u64,
    /// Length of a slice in ns; doubled while there would be more than `max_slices`.
    pub slice_ns: u64,
    /// Largest number of slices, at least 1.
    pub max_slices: u32,
    /// Only the process with this name or id and its descendants; all if `None`.
    pub process: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_size: 4096,
            line_size: 64,
            window_ns: 10_000_000,
            slice_ns: 10_000_000,
            max_slices: 4096,
            process: None,
        }
    }
}

/// One event of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its name as in perf.
    pub name: String,
    /// Number of events per sample if the sample does not contain it.
    pub period: Option<u64>,
    /// Whether it counts page faults: then the first sample of a page is its first touch.
    pub faults: bool,
}

/// Accesses of a thread to a page.
#[derive(Clone, Copy, Debug, Default)]
struct PageCount {
    reads: u64,
    writes: u64,
    /// Loads of at least [`LONG_CYCLES`].
    long: u64,
    /// Loads served by memory, or by a cache of another package.
    far: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadCount {
    samples: u64,
    accesses: u64,
    loads: u64,
    stores: u64,
    dram: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LatencyCount {
    samples: u64,
    timed: u64,
    cycles: u64,
}

/// What was sampled of one page.
#[derive(Debug, Default)]
struct PageSeen {
    by_thread: HashMap<u32, PageCount>,
    first_fault: Option<(u64, u32)>,
}

/// Accumulates events into a profile; see the module.
#[derive(Debug)]
pub struct Collector {
    options: Options,
    sources: Vec<Source>,
    lineage: Lineage,
    board: Board,
    origin: Option<u64>,
    last: u64,
    slice_ns: u64,
    threads: HashMap<NodeIdx, ThreadCount>,
    /// Address-space number of a process image: dense, in the order of the first samples.
    spaces: HashMap<u32, u64>,
    pages: HashMap<u64, PageSeen>,
    page_slices: HashMap<(u32, u64, u32), u64>,
    communication: HashMap<(u32, Layer, u32, u32), u64>,
    latency: HashMap<Level, LatencyCount>,
    /// Loads whose sample has a latency, and loads whose sample has a level.
    timed_loads: u64,
    levelled_loads: u64,
    relations: Vec<Relation>,
    samples: u64,
    accesses: u64,
    unknown_operation: u64,
    no_address: u64,
    in_kernel: u64,
    lost: u64,
    throttled: u64,
}

/// What the caller knows in addition to the events.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// False if the recording was cut short.
    pub complete: bool,
    /// Notes of the caller, placed before the collector's own.
    pub notes: Vec<String>,
    /// File or program, for messages.
    pub name: String,
}

impl Collector {
    /// An empty collector. `sources` are the events of the recording, in its order.
    #[must_use]
    pub fn new(options: Options, sources: Vec<Source>) -> Self {
        Self {
            lineage: Lineage::new(options.process.clone()),
            board: Board::new(options.window_ns),
            slice_ns: options.slice_ns.max(1),
            options,
            sources,
            origin: None,
            last: 0,
            threads: HashMap::new(),
            spaces: HashMap::new(),
            pages: HashMap::new(),
            page_slices: HashMap::new(),
            communication: HashMap::new(),
            latency: HashMap::new(),
            timed_loads: 0,
            levelled_loads: 0,
            relations: Vec::new(),
            samples: 0,
            accesses: 0,
            unknown_operation: 0,
            no_address: 0,
            in_kernel: 0,
            lost: 0,
            throttled: 0,
        }
    }

    /// Adds an event; events must come in time order. `source` is the index of the event that sampled.
    pub fn feed(&mut self, source: usize, event: Event) {
        match event {
            Event::Sample(sample) => self.sample(source, sample),
            Event::Fork {
                pid,
                ppid,
                tid,
                ptid,
                time,
            } => {
                self.begin(time);
                self.lineage.fork(pid, ppid, tid, ptid, time);
            }
            Event::Exit { tid, time } => self.lineage.exit(tid, time),
            Event::Name {
                pid,
                tid,
                name,
                exec,
                time,
            } => {
                self.begin(time);
                self.lineage.name(pid, tid, &name, exec, time);
            }
            Event::Lost(records) => self.lost = self.lost.saturating_add(records),
            Event::Throttled => self.throttled += 1,
            Event::Map { .. } | Event::Other => {}
        }
    }

    /// Records the program's start: the first time other than the 0 of listed threads.
    fn begin(&mut self, time: u64) {
        if time > 0 {
            self.origin.get_or_insert(time);
        }
    }

    /// The slice of a time; merges slices until their number is within the limit.
    fn slice(&mut self, time: u64) -> u32 {
        let max = u64::from(self.options.max_slices.max(1));
        while time / self.slice_ns >= max && self.slice_ns < u64::MAX / 2 {
            self.slice_ns *= 2;
            let page_slices = std::mem::take(&mut self.page_slices);
            for ((slice, page, thread), count) in page_slices {
                add(&mut self.page_slices, (slice / 2, page, thread), count);
            }
            let communication = std::mem::take(&mut self.communication);
            for ((slice, layer, src, dst), count) in communication {
                add(&mut self.communication, (slice / 2, layer, src, dst), count);
            }
            self.board.halve_slices();
        }
        (time / self.slice_ns).min(max - 1) as u32
    }

    fn sample(&mut self, source: usize, sample: Sample) {
        if sample.pid == 0 || sample.pid > i32::MAX as u32 {
            return; // The idle task, or a record without a process.
        }
        self.begin(sample.time);
        let thread = self.lineage.thread(sample.pid, sample.tid, sample.time);
        if !self.lineage.nodes()[thread].wanted
            || sample.source.is_some_and(|source| source.is_fetch())
        {
            return;
        }
        if sample.address == 0 {
            self.no_address += 1;
            return;
        }
        if sample.address >= KERNEL {
            self.in_kernel += 1;
            return;
        }
        let about = self.sources.get(source);
        let period = sample
            .period
            .or_else(|| about.and_then(|source| source.period))
            .unwrap_or(1)
            .max(1);
        let faults = about.is_some_and(|source| source.faults);
        let operation = sample
            .source
            .map_or(Operation::Unknown, |source| source.operation());
        let level = sample.source.and_then(|source| source.level());
        self.samples += 1;
        self.accesses = self.accesses.saturating_add(period);
        self.count_thread(thread, period, operation, level);
        if let Some(level) = level {
            let count = self.latency.entry(level).or_default();
            count.samples += 1;
            if sample.latency > 0 {
                count.timed += 1;
                count.cycles = count.cycles.saturating_add(sample.latency);
            }
        }

        let time = sample.time.saturating_sub(self.origin.unwrap_or(0));
        self.last = self.last.max(time);
        let slice = self.slice(time);
        let image = self.lineage.nodes()[thread].image;
        let spaces = self.spaces.len() as u64;
        let space = *self.spaces.entry(image).or_insert(spaces) << SPACE_SHIFT;
        let space_in_pages = space / (self.options.page_size / 4096).max(1);
        let id = u32::try_from(thread).unwrap_or(u32::MAX);

        let page = (sample.address / self.options.page_size).wrapping_add(space_in_pages);
        let seen = self.pages.entry(page).or_default();
        let count = seen.by_thread.entry(id).or_default();
        match operation {
            Operation::Store => count.writes = count.writes.saturating_add(period),
            Operation::Load | Operation::Unknown => {
                count.reads = count.reads.saturating_add(period);
            }
        }
        if operation == Operation::Load {
            self.timed_loads += u64::from(sample.latency > 0);
            self.levelled_loads += u64::from(level.is_some());
            if sample.latency >= LONG_CYCLES {
                count.long = count.long.saturating_add(period);
            }
            if level.is_some_and(|level| level.is_memory() || level == Level::RemoteCache) {
                count.far = count.far.saturating_add(period);
            }
        }
        if faults {
            seen.first_fault.get_or_insert((time, id));
        }
        add(&mut self.page_slices, (slice, page, id), period);

        // The physical line is the same in all processes that share it.
        let line = if sample.physical != 0 {
            (sample.physical / self.options.line_size) | 1 << 63
        } else {
            (sample.address / self.options.line_size).wrapping_add(space << 6)
        };
        self.board.touch(
            Access {
                line,
                thread: id,
                time: sample.time,
                slice,
                load: operation == Operation::Load,
                store: operation == Operation::Store,
            },
            &mut self.relations,
        );
        for relation in std::mem::take(&mut self.relations) {
            let mut both = |layer, events| {
                for (src, dst) in [(relation.other, id), (id, relation.other)] {
                    add(&mut self.communication, (slice, layer, src, dst), events);
                }
            };
            if relation.sampled_line {
                both(Layer::SampledLine, period);
            }
            if relation.shared_line {
                both(Layer::SharedLine, 1);
            }
            if relation.write_read {
                let key = (slice, Layer::WriteRead, relation.other, id);
                add(&mut self.communication, key, period);
            }
        }
    }

    fn count_thread(
        &mut self,
        thread: NodeIdx,
        period: u64,
        operation: Operation,
        level: Option<Level>,
    ) {
        let count = self.threads.entry(thread).or_default();
        count.samples += 1;
        count.accesses = count.accesses.saturating_add(period);
        match operation {
            Operation::Load => count.loads = count.loads.saturating_add(period),
            Operation::Store => count.stores = count.stores.saturating_add(period),
            Operation::Unknown => self.unknown_operation += 1,
        }
        if level.is_some_and(Level::is_memory) {
            count.dram = count.dram.saturating_add(period);
        }
    }

    /// The profile of all events.
    ///
    /// # Errors
    /// [`PerfError::NoProcess`] if the selected process does not occur, [`PerfError::NoAddresses`] if no sample of the
    /// program has a data address.
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
        let (threads, index) = self.threads();
        let notes = self.notes(origin.notes);
        let mut pages = PageUsage::new(self.options.page_size);
        let mut numbers: Vec<&u64> = self.pages.keys().collect();
        numbers.sort_unstable();
        let position: HashMap<u64, u32> = numbers
            .iter()
            .enumerate()
            .map(|(at, &&number)| (number, at as u32))
            .collect();
        for &number in numbers {
            let seen = &self.pages[&number];
            pages.push(
                PageHead {
                    number: PageNumber(number),
                    object: None,
                    object_page: 0,
                    first_touch: seen.first_fault.map(|(_, thread)| index[&thread]),
                    first_touch_time: seen.first_fault.map_or(0, |(time, _)| time),
                },
                seen.by_thread
                    .iter()
                    .map(|(thread, count)| ThreadAccess {
                        thread: index[thread],
                        reads: count.reads,
                        writes: count.writes,
                    })
                    .collect(),
            );
        }
        let slow_loads = self.slow_loads(&position, &index);
        let mut page_slices: Vec<PageSliceRow> = self
            .page_slices
            .iter()
            .map(|(&(slice, page, thread), &accesses)| PageSliceRow {
                slice: SliceIdx(slice),
                page: position[&page],
                thread: index[&thread],
                accesses,
            })
            .collect();
        page_slices.sort_unstable_by_key(|row| (row.slice, row.page, row.thread));
        let mut communication: Vec<CommRow> = self
            .communication
            .iter()
            .map(|(&(slice, layer, src, dst), &events)| CommRow {
                slice: SliceIdx(slice),
                src: index[&src],
                dst: index[&dst],
                layer,
                events,
                bytes: events.saturating_mul(self.options.line_size),
            })
            .collect();
        communication.sort_unstable_by_key(|row| (row.slice, row.layer, row.src, row.dst));
        let slices = (0..=self.last / self.slice_ns)
            .take(self.options.max_slices.max(1) as usize)
            .map(|slice| Slice {
                start: slice * self.slice_ns,
                end: (slice + 1).saturating_mul(self.slice_ns),
            })
            .collect();
        Ok(Profile {
            meta: Meta {
                command: origin.command,
                frontend: "perf".to_owned(),
                clock: Clock::Wall,
                line_size: self.options.line_size,
                complete: origin.complete,
                notes,
                sampled: (self.samples as f64 / self.accesses as f64).min(1.0),
                conditions: numaloc_model::conditions::Conditions::default(),
                dram_source: (!self.latency.is_empty())
                    .then(|| "hardware samples of loads".to_owned()),
            },
            threads,
            slices,
            communication,
            pages,
            page_slices,
            access_slices: Vec::new(),
            objects: Vec::new(),
            cell_errors: Vec::new(),
            shared_lines: Vec::new(),
            slow_loads,
        })
    }

    /// The long loads: by their latencies if samples have them, else by what served them.
    fn slow_loads(
        &self,
        position: &HashMap<u64, u32>,
        index: &HashMap<u32, ThreadIdx>,
    ) -> Option<SlowLoads> {
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
            threads.map(move |(thread, count)| SlowLoadRow {
                page: position[page],
                thread: index[thread],
                loads: of(count),
            })
        });
        Some(SlowLoads::sums(source, rows))
    }

    /// The threads of every sampled process by path, and the thread index of each node.
    fn threads(&self) -> (Vec<Thread>, HashMap<u32, ThreadIdx>) {
        let nodes = self.lineage.nodes();
        let sampled: std::collections::HashSet<u32> =
            self.threads.keys().map(|&node| nodes[node].image).collect();
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
        let threads = by_path
            .iter()
            .enumerate()
            .map(|(row, (top, steps, at))| {
                index.insert(*at as u32, ThreadIdx::from_index(row));
                let (node, count) = (
                    &nodes[*at],
                    self.threads.get(at).copied().unwrap_or_default(),
                );
                Thread {
                    path: lineage::text(*top, steps),
                    label: Some(node.name.clone()).filter(|name| !name.is_empty()),
                    pid: node.pid,
                    tid: node.tid,
                    rank: None,
                    start: node.start.saturating_sub(origin),
                    end: node.end.saturating_sub(origin),
                    accesses: count.accesses,
                    read_bytes: count.loads.saturating_mul(ACCESS_BYTES),
                    write_bytes: count.stores.saturating_mul(ACCESS_BYTES),
                    dram_bytes: has_levels
                        .then(|| count.dram.saturating_mul(self.options.line_size)),
                }
            })
            .collect();
        (threads, index)
    }

    fn notes(&self, mut notes: Vec<String>) -> Vec<String> {
        for source in &self.sources {
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
            "sampled_line, write_read: two samples of a line at most {} ns apart",
            self.options.window_ns
        ));
        if self.slice_ns != self.options.slice_ns {
            notes.push(format!(
                "slices were merged to {} ns to keep them at most {}",
                self.slice_ns, self.options.max_slices
            ));
        }
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
        if !levels.is_empty() {
            notes.push(format!(
                "mean latency in core cycles by what served the access: {}",
                levels.join(", ")
            ));
        }
        for (count, text) in [
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
                self.lost,
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
        ] {
            if count > 0 {
                notes.push(format!("{count} {text}"));
            }
        }
        if self.spaces.len() > 1 {
            notes.push(format!(
                "{} process images: pages of the k-th have k << {SPACE_SHIFT} added to their number",
                self.spaces.len()
            ));
        }
        notes
    }
}

fn add<K: std::hash::Hash + Eq>(map: &mut HashMap<K, u64>, key: K, amount: u64) {
    let sum = map.entry(key).or_default();
    *sum = sum.saturating_add(amount);
}
