//! Times of segments from flows of lines; the formulas are in [`super`].

use numaloc_analysis::local::Home;
use numaloc_model::Mapping;
use numaloc_placement::joint::SMT_SLOWDOWN;
use numaloc_topology::Topology;

use super::Worth;
use super::caches::{Fetched, Overlap};
use super::contended::{Contention, Exchange};
use super::demand::Demand;
use super::figures::{Figures, MESSAGE_BYTES, OUTSTANDING, PREFETCHED, Seat, WINDOW_ACCESSES};
use super::passages::{Passages, Places};

/// Exponent of the norm that joins cores, controllers and links: the larger, the less they delay each other below
/// saturation.
const SMOOTH: f64 = 6.0;

/// Lines by how a core waits for them.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// Loads of streams.
    stream: f32,
    /// Other loads.
    random: f32,
    /// Stores.
    store: f32,
    /// Lines written back later, which nobody waits for.
    back: f32,
}

impl Lines {
    /// `stores`: share (0..=1) of the accesses; `stream`: whether loads are prefetched.
    fn of(lines: f32, stores: f32, stream: bool) -> Self {
        // A line that is stored to more often than loaded misses at a store.
        let store = lines * (2.0 * stores - 1.0).max(0.0);
        let load = lines - store;
        let accesses_per_line = 8.0;
        Self {
            stream: if stream { load } else { 0.0 },
            random: if stream { 0.0 } else { load },
            store,
            back: lines * (stores * accesses_per_line).min(1.0),
        }
    }

    fn add(&mut self, other: &Self, times: f32) {
        self.stream += other.stream * times;
        self.random += other.random * times;
        self.store += other.store * times;
        self.back += other.back * times;
    }

    fn fetched(&self) -> f32 {
        self.stream + self.random + self.store
    }
}

/// A thread's lines of a page from memory, in a segment.
#[derive(Clone, Copy)]
struct Draw {
    /// Of segments x threads.
    cell: u32,
    page: u32,
    lines: f32,
    /// See [`Lines::of`].
    stores: f32,
    stream: bool,
}

/// Lines of threads at their PUs, before pages have places.
pub(super) struct Draws {
    memory: Vec<Draw>,
    /// Segments x threads: from the last-level cache.
    shared: Vec<Lines>,
}

impl Draws {
    /// `fetched`: by row of the demand.
    pub(super) fn of(demand: &Demand, fetched: &[Fetched], overlaps: &[Overlap]) -> Self {
        let segments = match demand.segment_of.is_empty() {
            true => 1,
            false => demand.segments,
        };
        let mut shared = vec![Lines::default(); segments * demand.threads];
        let mut memory = Vec::new();
        for (row, lines) in demand.rows.iter().zip(fetched) {
            let cell = demand.cell(row);
            // The others are among the events.
            let part = if lines.held { overlaps[cell].rows } else { 1.0 };
            if lines.shared > 0 {
                let mut of_cache = Lines::of(lines.shared as f32 * part, row.stores, row.stream);
                of_cache.back = 0.0;
                shared[cell].add(&of_cache, 1.0);
            }
            if lines.memory > 0 {
                memory.push(Draw {
                    cell: cell as u32,
                    page: row.page,
                    lines: lines.memory as f32 * part,
                    stores: row.stores,
                    stream: row.stream,
                });
            }
        }
        Self { memory, shared }
    }
}

/// Lines of every thread and segment, by what answers them.
pub(super) struct Flows<'a> {
    nodes: usize,
    passages: Passages,
    /// Segments x threads x nodes: from memory.
    memory: Vec<Lines>,
    /// Segments x threads: from the last-level cache.
    shared: &'a [Lines],
}

impl<'a> Flows<'a> {
    pub(super) fn of(
        draws: &'a Draws,
        demand: &Demand,
        places: &Places,
        machine: &Topology,
    ) -> Self {
        let (nodes, threads) = (machine.nodes().len(), places.seats.len());
        let anywhere: Vec<usize> = machine.nodes_with_pus().iter().map(|n| n.index()).collect();
        let mut memory = vec![Lines::default(); draws.shared.len() * nodes];
        for draw in &draws.memory {
            let (cell, page) = (draw.cell as usize, draw.page as usize);
            let lines = Lines::of(draw.lines, draw.stores, draw.stream);
            match places.home(page, cell % threads) {
                Home::Node(node) => memory[cell * nodes + node.index()].add(&lines, 1.0),
                Home::Anywhere => {
                    let part = 1.0 / anywhere.len().max(1) as f32;
                    for &node in &anywhere {
                        memory[cell * nodes + node].add(&lines, part);
                    }
                }
            }
        }
        Self {
            nodes,
            passages: Passages::of(demand, places, &anywhere, nodes),
            memory,
            shared: &draws.shared,
        }
    }
}

/// Where threads run.
pub(super) struct Threads<'a> {
    pub mapping: &'a Mapping,
    /// By thread.
    pub seats: &'a [Seat],
    /// Whether a thread waits for its PU though others are idle.
    pub is_bound: bool,
    /// Whether threads wait for lines that they contend for.
    pub contends: bool,
}

/// Of contended lines: no row counts them too, and none is prefetched.
const ALONE: Overlap = Overlap {
    events: 1.0,
    streamed: 0.0,
    rows: 1.0,
};

/// Adds up the segments.
pub(super) fn worth(
    demand: &Demand,
    flows: &Flows<'_>,
    overlaps: &[Overlap],
    figures: &Figures,
    threads: &Threads,
) -> Worth {
    let (mapping, seats) = (threads.mapping, threads.seats);
    let mut machine = Busy::new(figures, threads.is_bound);
    let whole_run = demand.segment_of.is_empty();
    let received = |segment: usize, thread: u32| {
        let segment = if whole_run { 0 } else { segment };
        &overlaps[segment * demand.threads + thread as usize]
    };
    let mut of_run = vec![0.0; demand.threads];
    if whole_run {
        for accesses in demand.accesses.chunks(demand.threads.max(1)) {
            for (sum, count) in of_run.iter_mut().zip(accesses) {
                *sum += count;
            }
        }
    }
    let mut ways = Ways::of(demand, flows, threads);
    let mut found = Worth::default();
    let mut exchanges = &demand.exchanges[..];
    for segment in 0..demand.segments {
        let accesses = &demand.accesses[segment * demand.threads..][..demand.threads];
        machine.begin(mapping, accesses);
        let here = exchanges.partition_point(|at| at.segment as usize <= segment);
        let (now, later) = exchanges.split_at(here);
        exchanges = later;
        let mut waits = vec![Waits::default(); demand.threads];
        let parts = now.iter().filter(|at| threads.contends || !at.contended);
        let parts = parts.map(|at| match at.contended {
            true => (at, &ALONE),
            false => (at, received(segment, at.dst)),
        });
        ways.exchange(&mut machine, &mut waits, parts);
        for (thread, wait) in waits.iter_mut().enumerate() {
            let (at, part) = match whole_run {
                false => (segment, 1.0),
                true => (0, accesses[thread] / of_run[thread].max(1.0)),
            };
            if part == 0.0 {
                continue;
            }
            let cell = at * demand.threads + thread;
            let lines = &flows.memory[cell * flows.nodes..][..flows.nodes];
            machine.lines(wait, seats[thread].node, &flows.shared[cell], lines, part);
            let pu = mapping.pu[thread].index();
            machine.run(pu, accesses[thread], wait);
        }
        machine.end(&mut found);
    }
    found
}

/// Ways of lines from thread to thread.
struct Ways<'a> {
    demand: &'a Demand,
    passages: &'a Passages,
    threads: &'a Threads<'a>,
    /// By pair of threads: see [`Passages::detour_s`]; NaN if not known yet.
    detours_s: Vec<f32>,
    /// By thread: lines that other caches fetch from its own, in a segment.
    sent: Vec<f64>,
}

impl<'a> Ways<'a> {
    fn of(demand: &'a Demand, flows: &'a Flows<'_>, threads: &'a Threads<'a>) -> Self {
        let pairs = match demand.exchanges.is_empty() {
            true => 0,
            false => demand.threads * demand.threads,
        };
        Self {
            demand,
            passages: &flows.passages,
            threads,
            detours_s: vec![f32::NAN; pairs],
            sent: vec![0.0; demand.threads],
        }
    }

    /// Lines of a segment from thread to thread.
    fn exchange<'e>(
        &mut self,
        machine: &mut Busy,
        waits: &mut [Waits],
        lines: impl Iterator<Item = (&'e Exchange, &'e Overlap)>,
    ) {
        let (seats, pu) = (self.threads.seats, &self.threads.mapping.pu);
        for (at, part) in lines {
            let (src, dst) = (at.src as usize, at.dst as usize);
            let (from, to) = (seats[src], seats[dst]);
            if from.core == to.core || pu[src] == pu[dst] {
                continue;
            }
            let lines = at.lines * part.events;
            let mut detour_s = 0.0;
            if from.group != to.group {
                self.sent[src] += lines;
                let known_s = &mut self.detours_s[src * self.demand.threads + dst];
                if known_s.is_nan() {
                    let (src, dst) = ((src, from.node), (dst, to.node));
                    *known_s = self.passages.detour_s(machine.figures, src, dst) as f32;
                }
                detour_s = f64::from(*known_s);
            }
            let how = (
                part.streamed,
                self.demand.contention[usize::from(at.contended)],
            );
            machine.exchange(&mut waits[dst], lines, how, (from, to), detour_s);
        }
        for (src, lines) in self.sent.iter_mut().enumerate() {
            if *lines > 0.0 {
                let homes = self.passages.stored(src);
                machine.write_back(seats[src].node, std::mem::take(lines), homes);
            }
        }
    }
}

/// What a thread waits for in a segment: lines, and the sum of their latencies in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    stream_s: f64,
    store_s: f64,
    random_s: f64,
    random: f64,
    /// Lines of atomic instructions, for each of which the core waits alone.
    atomic_s: f64,
}

/// How busy the parts of a machine are in a segment.
struct Busy<'a> {
    figures: &'a Figures,
    is_bound: bool,
    /// Seconds of the thread that takes longest.
    longest_s: f64,
    /// Seconds of the line that moves most.
    line_s: f64,
    /// By PU: accesses, and seconds of work and in all.
    accesses: Vec<f64>,
    work_s: Vec<f64>,
    pu_s: Vec<f64>,
    /// PUs of each core.
    pus: Vec<Vec<usize>>,
    /// By node: seconds of its controller.
    controller_s: Vec<f64>,
    /// Core's node x memory's node: lines fetched, and lines sent there.
    fetched: Vec<f64>,
    sent: Vec<f64>,
    link_s: Vec<f64>,
}

impl<'a> Busy<'a> {
    fn new(figures: &'a Figures, is_bound: bool) -> Self {
        let mut pus = vec![Vec::new(); figures.cores];
        for (pu, seat) in figures.seats.iter().enumerate() {
            pus[seat.core].push(pu);
        }
        let by_pu = vec![0.0; figures.seats.len()];
        let pairs = vec![0.0; figures.nodes * figures.nodes];
        Self {
            figures,
            is_bound,
            longest_s: 0.0,
            line_s: 0.0,
            accesses: by_pu.clone(),
            work_s: by_pu.clone(),
            pu_s: by_pu,
            pus,
            controller_s: vec![0.0; figures.nodes],
            fetched: pairs.clone(),
            sent: pairs,
            link_s: vec![0.0; figures.links.bytes_per_s().len()],
        }
    }

    /// Begins a segment.
    fn begin(&mut self, mapping: &Mapping, accesses: &[f64]) {
        for sums in [
            &mut self.accesses,
            &mut self.work_s,
            &mut self.pu_s,
            &mut self.controller_s,
            &mut self.fetched,
            &mut self.sent,
            &mut self.link_s,
        ] {
            sums.fill(0.0);
        }
        self.longest_s = 0.0;
        self.line_s = 0.0;
        for (pu, count) in mapping.pu.iter().zip(accesses) {
            self.accesses[pu.index()] += count;
        }
    }

    /// Lines from one core to another: which part of them is prefetched, and which are contended for; `detour_s`: see
    /// [`Passages::detour_s`].
    fn exchange(
        &mut self,
        wait: &mut Waits,
        lines: f64,
        (streamed, contention): (f64, Contention),
        (from, to): (Seat, Seat),
        detour_s: f64,
    ) {
        let figures = self.figures;
        let mut each_s = figures.between_s(from, to);
        if from.group != to.group {
            self.fetched[to.node * figures.nodes + from.node] += lines;
            each_s += detour_s;
        }
        let atomic = contention.atomic;
        let streamed = streamed.min(1.0 - atomic);
        let random = lines * (1.0 - streamed - atomic);
        wait.atomic_s += lines * atomic * each_s;
        wait.random += random;
        wait.random_s += random * each_s;
        wait.stream_s += lines * streamed * each_s;
        self.line_s += lines * contention.busiest * each_s;
    }

    /// Lines that other caches fetch from one on `node` are written back, to pages on nodes in these proportions.
    fn write_back(&mut self, node: usize, lines: f64, homes: &[f32]) {
        let all: f32 = homes.iter().sum();
        let mut write = |home: usize, lines: f64| {
            self.controller_s[home] += lines * self.figures.write_s[home];
            self.sent[node * self.figures.nodes + home] += lines;
        };
        if all == 0.0 {
            return write(node, lines);
        }
        for (home, &part) in homes.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            write(home, lines * f64::from(part / all));
        }
    }

    /// Lines of a thread on `node` from the last-level cache and from every node's memory.
    fn lines(
        &mut self,
        wait: &mut Waits,
        node: usize,
        shared: &Lines,
        memory: &[Lines],
        part: f64,
    ) {
        let figures = self.figures;
        let add = |wait: &mut Waits, lines: &Lines, latency_s: f64| {
            wait.stream_s += f64::from(lines.stream) * part * latency_s;
            wait.store_s += f64::from(lines.store) * part * latency_s;
            wait.random_s += f64::from(lines.random) * part * latency_s;
            wait.random += f64::from(lines.random) * part;
        };
        add(wait, shared, figures.shared_s);
        for (home, lines) in memory.iter().enumerate() {
            let fetched = f64::from(lines.fetched()) * part;
            if fetched == 0.0 {
                continue;
            }
            let pair = node * figures.nodes + home;
            add(wait, lines, figures.memory_s[pair]);
            let back = f64::from(lines.back) * part;
            self.controller_s[home] +=
                fetched * figures.service_s[home] + back * figures.write_s[home];
            self.fetched[pair] += fetched;
            self.sent[pair] += back;
        }
    }

    /// A thread's time on a PU.
    fn run(&mut self, pu: usize, accesses: f64, wait: &Waits) {
        let figures = self.figures;
        let own = self.accesses[pu].max(1.0);
        let core = figures.seats[pu].core;
        let others = self.pus[core].iter().filter(|&&other| other != pu);
        let busy: f64 = others
            .map(|&other| (self.accesses[other] / own).min(1.0))
            .sum();
        let access_s = figures.access_s * (1.0 + (SMT_SLOWDOWN - 1.0) * busy.min(1.0));
        let share = 1.0 + busy;
        let (window, outstanding) = (WINDOW_ACCESSES / share, OUTSTANDING / share);
        let work_s = accesses * access_s;
        let streamed_s = wait.stream_s * share / PREFETCHED;
        let stored_s = wait.store_s / outstanding;
        let in_window = window * wait.random / accesses.max(1.0);
        let seconds = if in_window <= 1.0 {
            let hidden_s = wait.random * window * access_s;
            let stalled_s = (wait.random_s - hidden_s).max(0.0);
            (work_s + stalled_s).max(streamed_s)
        } else {
            work_s.max(streamed_s + wait.random_s / in_window.min(outstanding.max(1.0)))
        };
        self.work_s[pu] += work_s;
        let seconds = seconds.max(stored_s) + wait.atomic_s;
        self.pu_s[pu] += seconds;
        self.longest_s = self.longest_s.max(seconds);
    }

    /// Ends a segment and adds its time.
    fn end(&mut self, found: &mut Worth) {
        let figures = self.figures;
        for at in 0..figures.nodes * figures.nodes {
            let (core, memory) = (at / figures.nodes, at % figures.nodes);
            let (fetched, sent) = (self.fetched[at], self.sent[at]);
            found.lines += fetched;
            if core == memory || fetched + sent == 0.0 {
                continue;
            }
            found.remote_lines += fetched;
            let line = figures.line_bytes + MESSAGE_BYTES;
            self.carry(core, memory, fetched * MESSAGE_BYTES + sent * line);
            self.carry(memory, core, fetched * line);
        }
        let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        let (busiest_s, controller_s, link_s) = (
            most(&self.pu_s),
            most(&self.controller_s),
            most(&self.link_s),
        );
        let pu_s = match self.is_bound {
            true => busiest_s,
            false => (self.pu_s.iter().sum::<f64>() / self.pu_s.len() as f64).max(self.longest_s),
        };
        // A line that goes from core to core keeps all but one of them waiting.
        let pu_s = pu_s.max(self.line_s);
        let largest = pu_s.max(controller_s).max(link_s);
        if largest <= 0.0 {
            return;
        }
        let power = |part: f64| (part / largest).powf(SMOOTH);
        let sum = power(pu_s) + power(controller_s) + power(link_s);
        let seconds = largest * sum.powf(1.0 / SMOOTH);
        found.seconds += seconds;
        if largest == pu_s {
            let at = self.pu_s.iter().position(|&s| s == busiest_s).unwrap_or(0);
            let working = (self.work_s[at] / pu_s).min(1.0);
            found.working_s += seconds * working;
            found.waiting_s += seconds * (1.0 - working);
        } else if largest == controller_s {
            found.controllers_s += seconds;
        } else {
            found.links_s += seconds;
        }
    }

    /// Bytes on the links between two nodes.
    fn carry(&mut self, from: usize, to: usize, bytes: f64) {
        let links = &self.figures.links;
        for &link in links.route(from, to) {
            self.link_s[link] += bytes / links.bytes_per_s()[link];
        }
    }
}
