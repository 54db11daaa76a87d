//! Collects events in time order; [`Collector::finish`] makes a profile of them. Pure: no files, no clock; import and
//! live sampling feed it.
//!
//! Every sample stands for `period` accesses and is counted as that number. Memory grows with the distinct
//! (page, thread), (slice, page, thread) and (slice, pair) that were sampled, so at most with the number of
//! samples; the number of slices is bounded by merging neighbours.

use std::collections::HashMap;

use numaloc_model::Layer;
use numaloc_model::profile::{Window, image};

use crate::areas::{Area, Areas};
use crate::board::{Access, Board, Relation};
use crate::data_src::{Level, Operation};
use crate::lineage::{Lineage, NodeIdx};
use crate::record::{Event, Sample};

mod finish;

/// User addresses are below this on every 64-bit machine with such a PMU.
const KERNEL: u64 = 1 << 63;

/// Minimum latency of a long load, in core cycles: more than a hit in any cache of the same package takes, less than
/// memory does. A power of two, because the threshold registers of counters that select loads by latency need one.
const LONG_CYCLES: u64 = 128;

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
    /// What a sample is, in words, where the period does not say it all.
    pub meaning: Option<String>,
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
    /// The object, and the page's number in it.
    object: Option<(usize, u64)>,
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
    /// Numbers of address spaces: dense, in the order of the first samples.
    spaces: HashMap<Space, u64>,
    areas: Areas,
    /// Titles of processes, by their first threads.
    titles: HashMap<NodeIdx, String>,
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
    /// Records lost, as reported when they were.
    lost: u64,
    /// Records lost, as reported at the end.
    lost_in_all: u64,
    throttled: u64,
}

/// Memory whose pages have numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Space {
    /// The memory of a process image.
    Image(u32),
    /// What processes share: index of the object.
    Shared(usize),
}

/// The access of a sample, attributed to a thread.
#[derive(Clone, Copy)]
struct Attributed {
    thread: u32,
    /// Number of its address space.
    space: u64,
    /// Its address there.
    address: u64,
    /// The object, and the address of its first byte.
    object: Option<(usize, u64)>,
    /// Whether processes share the memory.
    is_shared: bool,
    /// Time since the program's start.
    time: u64,
    slice: u32,
    /// Number of accesses that the sample stands for.
    period: u64,
    operation: Operation,
    level: Option<Level>,
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
    /// What was looked at, if it ran already.
    pub window: Option<Window>,
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
            areas: Areas::default(),
            titles: HashMap::new(),
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
            lost_in_all: 0,
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
                if pid != ppid {
                    let image = |collector: &mut Self, pid| {
                        let first = collector.lineage.thread(pid, pid, time);
                        collector.lineage.nodes()[first].image
                    };
                    let (from, to) = (image(self, ppid), image(self, pid));
                    self.areas.inherit(from, to);
                }
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
            Event::LostInAll(records) => {
                self.lost_in_all = self.lost_in_all.saturating_add(records);
            }
            Event::Throttled => self.throttled += 1,
            Event::Map { .. } | Event::Other => {}
        }
    }

    /// Times count from `time` on, for programs that ran before.
    pub fn begin_at(&mut self, time: u64) {
        self.begin(time);
    }

    /// What process `pid` has mapped now, by ascending address.
    pub fn map(&mut self, pid: u32, areas: Vec<Area>, time: u64) {
        let first = self.lineage.thread(pid, pid, time);
        let image = self.lineage.nodes()[first].image;
        self.areas.enter(image, areas);
    }

    /// The title of process `pid`.
    pub fn title(&mut self, pid: u32, title: String, time: u64) {
        let first = self.lineage.thread(pid, pid, time);
        self.titles.insert(first, title);
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
        let place = self.areas.find(image, sample.address);
        let (space, address) =
            match place.and_then(|place| Some((place.object, place.shared_offset?))) {
                Some((object, offset)) => (Space::Shared(object), offset),
                None => (Space::Image(image), sample.address),
            };
        let spaces = self.spaces.len() as u64;
        let access = Attributed {
            thread: u32::try_from(thread).unwrap_or(u32::MAX),
            space: *self.spaces.entry(space).or_insert(spaces),
            address,
            object: place.map(|place| match place.shared_offset {
                Some(_) => (place.object, 0),
                None => (place.object, self.areas.objects()[place.object].base),
            }),
            is_shared: matches!(space, Space::Shared(_)),
            time,
            slice,
            period,
            operation,
            level,
        };
        self.count_page(&sample, &access, faults);
        self.count_line(&sample, &access);
    }

    /// Counts an access for its page. `faults`: the sample is of a page fault.
    fn count_page(&mut self, sample: &Sample, access: &Attributed, faults: bool) {
        let Attributed { thread, period, .. } = *access;
        let first_page = image::first_page(access.space, self.options.page_size);
        let in_space = access.address / self.options.page_size;
        let page = in_space.wrapping_add(first_page);
        let seen = self.pages.entry(page).or_default();
        if let Some((object, base)) = access.object {
            let number = in_space.saturating_sub(base / self.options.page_size);
            seen.object.get_or_insert((object, number));
        }
        let count = seen.by_thread.entry(thread).or_default();
        match access.operation {
            Operation::Store => count.writes = count.writes.saturating_add(period),
            Operation::Load | Operation::Unknown => {
                count.reads = count.reads.saturating_add(period);
            }
        }
        if access.operation == Operation::Load {
            let level = access.level;
            self.timed_loads += u64::from(sample.latency > 0);
            self.levelled_loads += u64::from(level.is_some());
            if sample.latency >= LONG_CYCLES {
                count.long = count.long.saturating_add(period);
            }
            if level.is_some_and(|level| level.is_memory() || level == Level::RemoteCache) {
                count.far = count.far.saturating_add(period);
            }
        }
        // Another process may have touched shared memory long before.
        if faults && !access.is_shared {
            seen.first_fault.get_or_insert((access.time, thread));
        }
        add(&mut self.page_slices, (access.slice, page, thread), period);
    }

    /// Counts the communication that an access to its line shows.
    fn count_line(&mut self, sample: &Sample, access: &Attributed) {
        let Attributed {
            thread,
            slice,
            period,
            operation,
            ..
        } = *access;
        // The physical line is the same in all processes that share it.
        let line = if sample.physical != 0 {
            (sample.physical / self.options.line_size) | 1 << 63
        } else {
            let first_line = image::first_line(access.space, 64);
            (access.address / self.options.line_size).wrapping_add(first_line)
        };
        self.board.touch(
            Access {
                line,
                thread,
                time: sample.time,
                slice,
                load: operation == Operation::Load,
                store: operation == Operation::Store,
            },
            &mut self.relations,
        );
        for relation in std::mem::take(&mut self.relations) {
            let mut both = |layer, events| {
                for (src, dst) in [(relation.other, thread), (thread, relation.other)] {
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
                let key = (slice, Layer::WriteRead, relation.other, thread);
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
}

fn add<K: std::hash::Hash + Eq>(map: &mut HashMap<K, u64>, key: K, amount: u64) {
    let sum = map.entry(key).or_default();
    *sum = sum.saturating_add(amount);
}
