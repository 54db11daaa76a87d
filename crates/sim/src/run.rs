//! Time: a clock for each PU; the PU with the earliest clock runs, at most a quantum ahead of the next. This is
//! checked after a thread's work and before the request that follows, so that requests come nearly in the order of
//! their times.
//!
//! Threads run on the PUs that [`crate::schedule`] chooses. If a PU has several, one runs until it waits or until its
//! time slice ends, then the one that has been ready for longest. A thread that waits for synchronisation continues
//! when the last of the releases it needs has happened; all its misses are complete by then. Equal clocks go to the
//! lowest PU, so a simulation is deterministic.

use crate::clocks::Clocks;
use crate::event::{Packed, Step, Visit};
use crate::machine::{Machine, Place};
use crate::memory::Memory;
use crate::moves::{Moves, Moving};
use crate::outcome::Outcome;
use crate::pages::PageTable;
use crate::prefetch::prefetch;
use crate::schedule::{Pu, Scheduler, Threads};
use crate::setup::{Setup, SetupError};
use crate::trace::Trace;
use crate::translation::Translation;
use crate::window::Window;
use crate::words::Word;

mod request;
pub mod sampling;
mod visit;
mod windowed;

use request::ask;
use sampling::{Sample, Sampler};

/// Simulates the trace on the machine.
///
/// `filter_bytes` is the size of the private caches with which the trace was recorded: if the machine's are larger, or
/// if threads share a core, its private caches are modelled too.
///
/// Cost: 150 to 300 ns per event that misses everywhere. Memory: 8 bytes per line of the pages that several threads
/// use, and 2 to 3 bytes per line of the machine's caches.
///
/// # Errors
/// [`SetupError`] if mapping or placement do not fit.
pub fn simulate(
    machine: &Machine,
    trace: &Trace,
    setup: &Setup<'_>,
    filter_bytes: u64,
) -> Result<Outcome, SetupError> {
    simulate_with(machine, trace, setup, filter_bytes, &Extras::default())
}

/// What a simulation does in addition to running a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Threads and pages that move while the program runs.
    pub moves: &'a [Moves],
    /// Simulates a part of the records in detail, and extrapolates.
    pub sample: Option<Sample>,
}

/// [`simulate`], with moves at points of the trace, or on a sample of its records.
///
/// # Errors
/// [`SetupError`] if mapping, placement or moves do not fit.
pub fn simulate_with(
    machine: &Machine,
    trace: &Trace,
    setup: &Setup<'_>,
    filter_bytes: u64,
    extras: &Extras<'_>,
) -> Result<Outcome, SetupError> {
    setup.check(machine, trace)?;
    let mut run = Run::new(machine, trace, setup, filter_bytes, extras.moves);
    run.moving = Moving::new(extras.moves, machine, trace)?;
    run.sampler = extras.sample.map(|sample| Sampler::new(sample, trace));
    if let Some(windowed) = &trace.windowed {
        setup.check_windowed(!extras.moves.is_empty(), extras.sample.is_some())?;
        run.replay = Some(run.measure(windowed));
    }
    Ok(run.finish())
}

pub(crate) struct Run<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) trace: &'a Trace,
    pub(crate) scheduler: Scheduler,
    pub(crate) memory: Memory<'a>,
    /// By PU.
    pub(crate) windows: Vec<Window>,
    /// Number of PUs of each core that run a thread.
    pub(crate) busy: Vec<u8>,
    pub(crate) pus: Vec<Pu>,
    /// By thread: the next event, and its end.
    pub(crate) next: Vec<u32>,
    /// By thread: accesses of the next event that are done.
    done: Vec<u64>,
    /// Whether threads share cores, so that each one's speed depends on when others run.
    shares_cores: bool,
    ends: Vec<u64>,
    /// When the first thread was created.
    first_creation: u64,
    words: Vec<Word>,
    turns: visit::Turns,
    clocks: Clocks,
    switches: u64,
    pub(crate) thread_moves: u64,
    quantum: u64,
    time_slice: u64,
    pub(crate) switch: u64,
    thread_start: u64,
    /// Picoseconds per access: alone on a core, and with another busy PU.
    pub(crate) access: [f64; 2],
    moving: Moving<'a>,
    /// Sum of the times that running threads waited for releases.
    pub(crate) waited: u64,
    pub(crate) sampler: Option<Sampler>,
    /// What a trace with windows takes outside them.
    pub(crate) replay: Option<windowed::Replay>,
}

/// Numbers of events by which the host's memory is asked ahead: for events, for the tables of their lines, and for
/// those of the lines that they evict.
const EVENTS_AHEAD: usize = 64;
const LINES_AHEAD: usize = 16;
const EVICTIONS_AHEAD: usize = 8;
/// Events in a line of the host's caches.
const HOST_LINE: usize = 8;

/// Picoseconds of work after which a thread that shares its core is asked again how fast it runs.
const WORK_AT_ONCE: f64 = 10e6;

/// Limit of clocks, far below 2^64, so that additions do not overflow.
const END_OF_TIME: u64 = 1 << 62;

/// The clock, in picoseconds, after `work` accesses of `access` picoseconds each.
#[inline(always)]
pub(crate) fn later(now: u64, work: u64, access: f64) -> u64 {
    // Signed numbers are converted by one instruction each.
    now.saturating_add((work as i64 as f64 * access) as i64 as u64)
        .min(END_OF_TIME)
}

/// Picoseconds by which a PU's clock may be ahead: no more than the shortest latency of memory, because what a core
/// does after that depends on how long its requests wait for those of others.
fn quantum(machine: &Machine) -> u64 {
    let quantum = (machine.parameters.quantum_ns * 1e3).round() as u64;
    let latency = machine.memory_latency.iter().copied().min();
    quantum.min(latency.unwrap_or(quantum)).max(1)
}

/// Whether several threads may run on one core.
fn shares_cores(threads: Threads<'_>, machine: &Machine) -> bool {
    let Threads::Pinned(pus) = threads else {
        return true;
    };
    let mut taken = vec![false; machine.core_node.len()];
    pus.iter()
        .any(|pu| std::mem::replace(&mut taken[machine.place(*pu).core as usize], true))
}

/// Why a PU stopped.
pub(crate) enum Stop {
    /// It is a quantum ahead of the others.
    Quantum,
    /// Its thread has reached a point of the trace.
    Point,
    /// Its thread waits or has ended.
    Free,
}

impl<'a> Run<'a> {
    fn new(
        machine: &'a Machine,
        trace: &'a Trace,
        setup: &Setup<'a>,
        filter_bytes: u64,
        moves: &[Moves],
    ) -> Self {
        let parameters = &machine.parameters;
        let cores = machine.core_node.len();
        let moves_threads = moves.iter().any(|step| !step.threads.is_empty());
        let shares_cores = shares_cores(setup.threads, machine);
        let with_private = machine.private_bytes > filter_bytes
            || parameters.inclusive
            || moves_threads
            || shares_cores;
        let node_of = |thread: usize| match setup.threads {
            Threads::Pinned(pus) => {
                let pu = machine.pus.get(pus.get(thread)?.index())?;
                Some(pu.node as usize)
            }
            Threads::Os { .. } => None,
        };
        let pages = PageTable::new(
            setup.pages,
            (trace.pages(), trace.page_bytes()),
            machine.nodes,
            &parameters.page_costs,
            |page| trace.placers.node(page, machine.nodes, node_of),
        );
        let mut memory = Memory::new(
            machine,
            pages,
            trace.page_shift,
            trace.lines(),
            with_private,
        );
        memory.translation = Translation::new(machine, trace.pages());
        if let Threads::Pinned(pus) = setup.threads
            && !moves_threads
        {
            let place = |thread: u32| Some(machine.place(*pus.get(thread as usize)?).core);
            memory.know_private(&trace.users, place);
        }
        let window = Window::new(
            parameters.window_accesses,
            parameters.outstanding,
            parameters.prefetched,
            trace.dependent_loads().1 > 0,
        );
        let of_us = |us: f64| (us * 1e6).round() as u64;
        Self {
            memory,
            windows: vec![window; machine.pus.len()],
            busy: vec![0; cores],
            pus: vec![Pu::default(); machine.pus.len()],
            next: vec![0; trace.threads()],
            done: vec![0; trace.threads()],
            shares_cores: shares_cores || moves_threads,
            ends: vec![0; trace.threads()],
            first_creation: u64::MAX,
            words: vec![Word::default(); trace.words],
            turns: vec![visit::Turn::default(); trace.contended.len()],
            clocks: Clocks::new(machine.pus.len()),
            switches: 0,
            thread_moves: 0,
            quantum: quantum(machine),
            time_slice: of_us(parameters.time_slice_us),
            switch: of_us(parameters.switch_us),
            thread_start: of_us(parameters.thread_start_us),
            access: [machine.access, machine.access * parameters.smt_slowdown],
            moving: Moving::default(),
            waited: 0,
            sampler: None,
            replay: None,
            machine,
            trace,
            scheduler: Scheduler::new(setup.threads, machine, trace.threads()),
        }
    }

    fn finish(mut self) -> Outcome {
        for thread in 0..self.trace.threads() {
            if !self.trace.threads[thread].is_created {
                self.make_ready(thread as u32, 0, true);
            }
        }
        while let Some(pu) = self.clocks.pop() {
            self.pus[pu].queued = false;
            self.advance(pu);
        }
        let (nodes, links) = self.memory.figures();
        let threads = self.trace.threads.iter().zip(&self.ends);
        let created = threads.filter(|(thread, _)| thread.is_created);
        let last = created.map(|(_, &end)| end).max().unwrap_or(0);
        let memory = self.memory;
        let records = self.trace.records();
        let outcome = Outcome {
            sampled: self.sampler.map(|sampler| sampler.finish(records)),
            requests_by_node_pair: memory.requests_by_node_pair,
            time: self.ends.iter().copied().max().unwrap_or(0),
            parallel: last.saturating_sub(self.first_creation),
            thread_ends: self.ends,
            nodes,
            groups: memory.groups,
            links,
            lines_by_node_pair: memory.lines_by_node_pair,
            accesses: self.trace.accesses(),
            private_hits: memory.private_hits,
            invalidations: memory.invalidations,
            transfers_within: memory.transfers_within,
            transfers_between: memory.transfers_between,
            switches: self.switches,
            thread_moves: self.thread_moves,
            page_faults: memory.pages.faults,
            page_moves: memory.pages.moves,
            walks: memory.translation.map(|translation| translation.walks()),
        };
        match self.replay {
            Some(replay) => replay.scale(outcome),
            None => outcome,
        }
    }

    /// Makes a thread ready to run from `now` on.
    pub(crate) fn make_ready(&mut self, thread: u32, now: u64, is_new: bool) {
        let (pu, moved) = self
            .scheduler
            .place(thread, is_new, self.machine, &self.pus);
        self.thread_moves += u64::from(moved);
        self.pus[pu].ready.push_back((thread, now));
        self.queue(pu);
    }

    /// Carries out the moves of the points that a thread has reached, in its time.
    fn reach(&mut self, pu: usize, thread: u32) {
        while let Some(step) = self.moving.reach(thread, self.next[thread as usize]) {
            let now = self.windows[pu].drain(self.pus[pu].clock);
            self.pus[pu].clock = self.memory.move_pages(&step.pages, now);
            for &(moved, to) in &step.threads {
                self.relocate(moved, to.index());
            }
        }
    }

    /// Continues a thread on another PU from its next time slice on.
    fn relocate(&mut self, thread: u32, to: usize) {
        let from = self.scheduler.pin(thread, to);
        if from == to {
            return;
        }
        let ready = &mut self.pus[from].ready;
        if let Some(at) = ready.iter().position(|&(other, _)| other == thread) {
            let waiting = ready.remove(at);
            self.pus[to].ready.extend(waiting);
        } else if self.pus[from].running == Some(thread) {
            let core = self.machine.pus[from].core as usize;
            let now = self.windows[from].drain(self.pus[from].clock) + self.switch;
            self.busy[core] -= 1;
            self.pus[from].running = None;
            self.pus[from].clock = now;
            self.pus[to].ready.push_back((thread, now));
        } else if self.next[thread as usize] == 0 {
            // Not created yet: it starts there.
            return;
        }
        self.thread_moves += 1;
        self.queue(to);
    }

    fn queue(&mut self, pu: usize) {
        let state = &mut self.pus[pu];
        if state.queued {
            return;
        }
        let clock = match (state.running, state.ready.front()) {
            (Some(_), _) => state.clock,
            (None, Some(&(_, since))) => state.clock.max(since),
            (None, None) => return,
        };
        state.queued = true;
        self.clocks.queue(pu, clock);
    }

    /// Continues a PU that is not ahead of any other, and queues it again.
    fn advance(&mut self, pu: usize) {
        let core = self.machine.pus[pu].core as usize;
        let state = &mut self.pus[pu];
        let thread = match state.running {
            Some(thread) => thread,
            None => {
                let Some((thread, since)) = state.ready.pop_front() else {
                    return;
                };
                state.clock = state.clock.max(since);
                state.since = state.clock;
                state.running = Some(thread);
                self.busy[core] += 1;
                thread
            }
        };
        let stop = if self.is_sampling() {
            self.run_sampled(pu, core, thread)
        } else if self.replay.is_some() {
            self.replay(pu, core, thread)
        } else {
            self.run_thread::<true>(pu, core, thread, usize::MAX)
        };
        if matches!(stop, Stop::Point) {
            self.reach(pu, thread);
            self.queue(pu);
            return;
        }
        let state = &mut self.pus[pu];
        let other_is_ready = state
            .ready
            .front()
            .is_some_and(|&(_, since)| since <= state.clock);
        match stop {
            Stop::Free => {
                state.running = None;
                self.busy[core] -= 1;
            }
            Stop::Quantum if other_is_ready && state.clock - state.since >= self.time_slice => {
                state.running = None;
                self.busy[core] -= 1;
                state.ready.push_back((thread, state.clock));
                state.clock += self.switch;
                self.switches += 1;
            }
            Stop::Quantum | Stop::Point => self.disturb(pu, core, thread),
        }
        if self.pus[pu].running.is_none()
            && self.pus[pu].ready.is_empty()
            && let Some(pulled) = self.scheduler.pull(pu, self.machine, &mut self.pus)
        {
            self.pus[pu].ready.push_back(pulled);
            self.thread_moves += 1;
        }
        self.queue(pu);
    }

    /// Moves the running thread to another PU if this one is disturbed.
    fn disturb(&mut self, pu: usize, core: usize, thread: u32) {
        let now = self.pus[pu].clock;
        let Some(to) = self.scheduler.disturb(pu, now, self.machine, &self.pus) else {
            return;
        };
        let now = self.windows[pu].drain(now) + self.switch;
        self.busy[core] -= 1;
        self.pus[pu].running = None;
        self.pus[pu].clock = now;
        self.pus[to].ready.push_back((thread, now));
        self.thread_moves += 1;
        self.queue(to);
    }

    /// The clock at which a PU stops: a quantum after the earliest clock of the others, or the end of its thread's time
    /// slice if others wait for the PU.
    pub(crate) fn limit(&self, pu: usize) -> u64 {
        let ahead = |clock: u64| clock.saturating_add(self.quantum);
        let limit = self.clocks.first().map_or(u64::MAX, ahead);
        match self.pus[pu].ready.front() {
            None => limit,
            // A thread that becomes ready later leaves the PU to the running thread until then.
            Some(&(_, since)) => limit.min(since.max(self.pus[pu].since + self.time_slice)),
        }
    }

    /// Accesses that a thread makes before it is asked again how fast it runs.
    fn most_work(&self, access: f64) -> u64 {
        match self.shares_cores {
            true => ((WORK_AT_ONCE / access) as u64).max(1),
            false => u64::MAX,
        }
    }

    /// Runs a thread for at most `most` events, in detail or by extrapolation ([`sampling`]).
    pub(crate) fn run_thread<const DETAILED: bool>(
        &mut self,
        pu: usize,
        core: usize,
        thread: u32,
        most: usize,
    ) -> Stop {
        let trace = self.trace;
        let all = &trace.threads[thread as usize].events;
        let mut at = self.next[thread as usize] as usize;
        let end = self
            .moving
            .next(thread, all.len().min(at.saturating_add(most)));
        let events = &all[..end];
        let mut now = self.pus[pu].clock;
        let mut limit = self.limit(pu);
        let access = self.access[usize::from(self.busy[core] > 1)];
        let mut window = std::mem::take(&mut self.windows[pu]);
        window.share(self.busy[core]);
        let place = self.machine.pus[pu];
        let mut done = self.done[thread as usize];
        let most_work = self.most_work(access);
        let contends = !trace.contended.is_empty();
        let stop = loop {
            let Some(&event) = events.get(at) else {
                if self.moving.is_point(thread, at) {
                    break Stop::Point;
                }
                if at < all.len() {
                    break Stop::Quantum;
                }
                now = window.drain(now);
                self.ends[thread as usize] = now;
                break Stop::Free;
            };
            let left = event.accesses() - done;
            let work = left.min(most_work);
            now = later(now, work, access);
            window.work(work);
            let visit = event.visit();
            // A request comes after those that others make during its thread's work before it.
            let is_early = || self.clocks.first().is_some_and(|first| now > first);
            let is_ahead = now > limit || work < left || visit.is_some() && is_early();
            if is_ahead || contends && visit::waits_long(&mut window, event, &mut now, limit) {
                done += work;
                break Stop::Quantum;
            }
            done = 0;
            at += 1;
            self.prefetch(place, events, at);
            match event.step() {
                Step::Read | Step::Write | Step::Own | Step::WriteBack => {
                    let of = (place, thread, access);
                    now = self.request::<DETAILED>(&mut window, of, (event, visit), now);
                }
                Step::Work => {}
                Step::Create => {
                    self.create(event.value(), now);
                    limit = self.limit(pu);
                }
                Step::Release => {
                    now = window.drain(now);
                    self.release(event.value(), now);
                    limit = self.limit(pu);
                }
                Step::Acquire => {
                    now = window.drain(now);
                    let (word, before) = trace.acquires[event.value() as usize];
                    let word = &mut self.words[word as usize];
                    let Some(happened) = word.happened(before) else {
                        word.wait(before, thread);
                        break Stop::Free;
                    };
                    self.waited += happened.saturating_sub(now);
                    now = now.max(happened);
                }
            }
        };
        self.windows[pu] = window;
        self.next[thread as usize] = at as u32;
        self.done[thread as usize] = done;
        self.pus[pu].clock = now;
        stop
    }

    /// Makes the request of a thread's event at `now`, in detail or by extrapolation, or its visit to a contended line;
    /// returns when its core continues. An access takes `access` picoseconds.
    #[inline(always)]
    fn request<const DETAILED: bool>(
        &mut self,
        window: &mut Window,
        (place, thread, access): (Place, u32, f64),
        (event, kind): (Packed, Option<Visit>),
        mut now: u64,
    ) -> u64 {
        if self.memory.pages.can_fault && event.step() != Step::WriteBack {
            let line = event.line(false);
            if let Some(handled) = self.memory.fault(place, thread, line, now) {
                now = window.drain(handled);
            }
        }
        if let Some(kind) = kind {
            let of = (&mut self.memory, self.trace);
            let lines = (&mut self.turns, window);
            return visit::visit(of, lines, (place, access), (kind, event), now);
        }
        match DETAILED {
            true => ask(&mut self.memory, window, place, event, now),
            false => self.warm(place, thread, event, now),
        }
    }

    /// Creates a thread at `now`.
    fn create(&mut self, thread: u32, now: u64) {
        self.memory.pages.created();
        if self.first_creation == u64::MAX
            && let Some(sampler) = &mut self.sampler
        {
            sampler.created();
        }
        self.first_creation = self.first_creation.min(now);
        self.make_ready(thread, now + self.thread_start, true);
    }

    /// Asks the host for what the events from `at` on will use.
    #[inline(always)]
    fn prefetch(&self, place: Place, events: &[Packed], at: usize) {
        if at.is_multiple_of(HOST_LINE) {
            prefetch(events, at + EVENTS_AHEAD);
        }
        if let Some(event) = events.get(at + LINES_AHEAD)
            && event.step().has_line()
        {
            let line = event.line(self.memory.knows_private);
            self.memory.prefetch(place, line);
        }
        if let Some(event) = events.get(at + EVICTIONS_AHEAD)
            && event.step().has_line()
        {
            let line = event.line(self.memory.knows_private);
            self.memory.prefetch_evicted(place, line);
        }
    }

    /// Performs a release of `word` at `now`, and continues the threads that waited for it.
    pub(crate) fn release(&mut self, word: u32, now: u64) {
        self.words[word as usize].release(now);
        while let Some((thread, since)) = self.words[word as usize].freed() {
            self.make_ready(thread, since, false);
        }
    }
}
