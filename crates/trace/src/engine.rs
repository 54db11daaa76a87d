//! What the threads of a traced process share: shadow tables, slices, the journal, and threads announced by their
//! creators.
//!
//! Runs inside the program under study: it never panics on purpose and never blocks a thread for long. On a failure
//! (disk full) it stops recording and lets the program run on.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use numaloc_identity::{Creator, ThreadPath};
use numaloc_model::Layer;

use crate::access_trace::{Filter, Outlet};
use crate::cross_process::{Backing, Mapped, Mappings, Place, Table};
use crate::line;
use crate::memory::{Budget, Detail};
use crate::pages::PageCounters;
use crate::readers::{Readers, Slots};
use crate::shadow::Shadow;
use crate::sharing::{self, Lines};
use crate::thread::ThreadTracer;
use crate::underway::Underway;
use crate::watch::{Gaps, Watched};
use numaloc_journal::bursts::{self, Bursts};
use numaloc_journal::{Journal, Record, VERSION};

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the journals.
    pub folder: PathBuf,
    /// Name of the frontend, for the profile.
    pub frontend: String,
    /// log2 of the line size in bytes.
    pub line_shift: u32,
    /// Count time in accesses, joined at synchronisation; otherwise in nanoseconds.
    pub virtual_clock: bool,
    /// Shortest slice, in accesses or nanoseconds.
    pub slice: u64,
    /// Maximum number of slices; their length doubles when it is reached.
    pub slices: u64,
    /// Bytes of page counts per span at which the spans double.
    pub page_bytes: u64,
    /// The communication layers to count.
    pub layers: Vec<Layer>,
    /// Sampled share of the time, in millionths ([`Bursts`]); a million records all of it.
    pub time_share_ppm: u32,
    /// Sampled share of the lines, in millionths ([`Watched`]); a million records all of them.
    pub line_share_ppm: u32,
    /// `write_read` counts a read only if it is the next access to the line after the write (DeLoc's definition, read
    /// literally).
    pub consecutive: bool,
    /// Bytes the tables may take on top of what the program's size and number of threads allow ([`crate::memory`]).
    pub memory: u64,
    /// Caches that filter the access trace; `None` for no trace. Needs the virtual clock and no sampling.
    pub trace: Option<Filter>,
    /// Path of the process's first thread.
    pub path: String,
    /// Number of the process image: 0, and one more after each `execve`.
    pub image: u32,
    /// Threads and processes that the first thread created in earlier images.
    pub created: (u32, u32),
    /// The first thread's virtual clock at the start of the image.
    pub clock: u64,
    /// Monotonic time, in nanoseconds, from which wall times count; 0 for now.
    pub origin_ns: u64,
    /// The table of memory shared by the processes of the recording ([`crate::cross_process`]).
    pub cross_process: Option<Place>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("."),
            frontend: String::new(),
            line_shift: 6,
            virtual_clock: true,
            slice: 1 << 14,
            slices: 1000,
            page_bytes: 32 << 20,
            layers: vec![Layer::WriteRead],
            time_share_ppm: bursts::MILLION as u32,
            line_share_ppm: bursts::MILLION as u32,
            consecutive: false,
            memory: 256 << 20,
            trace: None,
            path: "0".to_owned(),
            image: 0,
            created: (0, 0),
            clock: 0,
            origin_ns: 0,
            cross_process: None,
        }
    }
}

impl Config {
    /// Encodes the options that frontends pass through unread, as `name=value` joined by `+`.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!(
            "share={}+lines={}+memory={}+consecutive={}",
            self.time_share_ppm,
            self.line_share_ppm,
            self.memory,
            u8::from(self.consecutive)
        );
        if let Some(Filter { l1, l2 }) = self.trace {
            text += &format!(
                "+l1={}+l1_ways={}+l2={}+l2_ways={}",
                l1.bytes, l1.ways, l2.bytes, l2.ways
            );
        }
        if let Some(Place {
            pid,
            descriptor,
            nonce,
        }) = self.cross_process
        {
            text += &format!("+common_pid={pid}+common_fd={descriptor}+common_nonce={nonce}");
        }
        text
    }

    /// Sets the options encoded by [`Config::encode`].
    ///
    /// # Errors
    /// A sentence naming the first pair that is unknown or not a number.
    pub fn decode(&mut self, text: &str) -> Result<(), String> {
        let mut cross_process = (None, None, None);
        for pair in text.split('+').filter(|pair| !pair.is_empty()) {
            let bad = || format!("unknown engine option {pair}");
            let (name, value) = pair.split_once('=').ok_or_else(bad)?;
            let value: u64 = value.parse().map_err(|_| bad())?;
            match name {
                "share" => self.time_share_ppm = value.clamp(1, bursts::MILLION) as u32,
                "lines" => self.line_share_ppm = value.clamp(1, bursts::MILLION) as u32,
                "memory" => self.memory = value,
                "consecutive" => self.consecutive = value != 0,
                "l1" => self.filter().l1.bytes = value,
                "l1_ways" => self.filter().l1.ways = value.max(1),
                "l2" => self.filter().l2.bytes = value,
                "l2_ways" => self.filter().l2.ways = value.max(1),
                "common_pid" => cross_process.0 = u32::try_from(value).ok(),
                "common_fd" => cross_process.1 = u32::try_from(value).ok(),
                "common_nonce" => cross_process.2 = Some(value),
                _ => return Err(bad()),
            }
        }
        if let (Some(pid), Some(descriptor), Some(nonce)) = cross_process {
            self.cross_process = Some(Place {
                pid,
                descriptor,
                nonce,
            });
        }
        Ok(())
    }

    fn filter(&mut self) -> &mut Filter {
        self.trace.get_or_insert_default()
    }

    /// Schedule of sampling in time; `None` when all of it is recorded.
    #[must_use]
    pub fn bursts(&self) -> Option<Bursts> {
        Bursts::of_clock(self.time_share_ppm, self.virtual_clock)
    }
}

/// Nanoseconds of the system's monotonic clock, the same for all processes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, on all hosts.
#[must_use]
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// [`Config::origin_ns`] on this host for a recording that began at `realtime`, perhaps on another.
#[must_use]
pub fn origin_since(realtime: u64) -> u64 {
    let elapsed = realtime_ns().saturating_sub(realtime);
    monotonic_ns().saturating_sub(elapsed).max(1)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// log2 of the bytes that share one synchronisation clock: a futex word.
const CLOCK_SHIFT: u32 = 2;

const PAGE: u64 = 1 << crate::pages::PAGE_SHIFT;
/// Largest shared mapping, in bytes, whose lines are marked as soon as it is mapped.
const SMALL: u64 = 4 << 20;

/// A created thread that has not been attached yet.
pub struct PendingThread {
    pub(crate) path: String,
    pub(crate) clock: u64,
    pub(crate) routine: u64,
    pub(crate) clear_tid: u64,
}

/// The tracing engine of one process image: everything its threads share.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) lines: Shadow,
    pub(crate) readers: Readers,
    /// Number + 1 of the thread that touched the page first.
    pub(crate) touched: Shadow,
    /// Latest clock at which a word was released. One clock per word, not per line: the counters of a barrier share a
    /// line, and a thread that leaves late must not take the clocks of threads already at the next barrier.
    pub(crate) clocks: Shadow,
    /// Stores that may be done but have left no clock yet.
    pub(crate) underway: Underway,
    /// The last two accessors of a line; `None` unless layer `last_two` is recorded.
    pub(crate) last_two: Option<Shadow>,
    /// Schedule of sampling in time; `None` when all of it is recorded.
    pub(crate) bursts: Option<Bursts>,
    /// The sampled lines; `None` when all lines are recorded.
    pub(crate) watched: Option<Watched>,
    /// Distances between sampled lines.
    pub(crate) gaps: Gaps,
    /// Mask of the bytes written in a tracked line's present tenure.
    pub(crate) written: Shadow,
    /// The table of memory shared by processes, if there is one.
    pub(crate) table: Option<Table>,
    /// This process's mappings of such memory.
    pub(crate) mappings: Mappings,
    noted_alone: AtomicBool,
    pub(crate) budget: Budget,
    /// Connection for the access trace, if one is recorded.
    pub(crate) outlet: Option<Outlet>,
    slots: Mutex<Slots>,
    alive: AtomicU32,
    shared_lines: Mutex<Lines>,
    pub(crate) journal: Journal,
    /// Slices are `config.slice << level` long.
    pub(crate) level: AtomicU32,
    /// Spans of page counts are `config.slice << page_level` long.
    pub(crate) page_level: AtomicU32,
    pub(crate) page_bytes: AtomicU64,
    next_thread: AtomicU32,
    sequence: AtomicU64,
    pending_threads: Mutex<HashMap<u32, PendingThread>>,
    thread_announced: Condvar,
    pub(crate) accesses: AtomicU64,
    status_due: AtomicU64,
    memory_due: AtomicU64,
    noted_crowd: AtomicBool,
}

impl Engine {
    /// Starts recording this process: reserves the tables and creates its journal.
    ///
    /// # Errors
    /// The system's error when address space cannot be reserved or the journal cannot be created.
    pub fn start(mut config: Config, program: &str) -> std::io::Result<Self> {
        if config.origin_ns == 0 {
            config.origin_ns = monotonic_ns();
        }
        let tables = [
            Shadow::reserve(config.line_shift)?,
            Shadow::reserve(crate::pages::PAGE_SHIFT)?,
            Shadow::reserve(CLOCK_SHIFT)?,
            Shadow::reserve(config.line_shift)?,
        ];
        let outlet = config.trace.map(|filter| {
            let image = (config.image, &*config.path);
            Outlet::open(filter, &config.folder, config.line_shift, image)
        });
        // Without the table the process counts its shared memory alone; `shared` writes a note about it.
        let table = config
            .cross_process
            .and_then(|place| Table::open(place, config.line_shift).ok());
        Self::with_tables(config, program, tables, table, outlet)
    }

    fn with_tables(
        config: Config,
        program: &str,
        tables: [Shadow; 4],
        table: Option<Table>,
        outlet: Option<std::io::Result<Outlet>>,
    ) -> std::io::Result<Self> {
        let (outlet, no_outlet) = outlet
            .transpose()
            .map_or_else(|e| (None, Some(e)), |o| (o, None));
        let [lines, touched, clocks, written] = tables;
        let last_two = match config.layers.contains(&Layer::LastTwo) {
            true => Some(Shadow::reserve(config.line_shift)?),
            false => None,
        };
        let pid = std::process::id();
        // Ranks on several hosts may have the same process id.
        let root = ThreadPath::new(&config.path).root();
        let name = format!("{root}-{pid}-{}.journal", config.image);
        let journal = Journal::create(&config.folder.join(name))?;
        let watched = Watched::new(config.line_share_ppm, config.line_shift);
        let engine = Self {
            lines,
            readers: Readers::new(config.line_shift),
            touched,
            clocks,
            underway: Underway::new(),
            last_two,
            bursts: config.bursts(),
            watched: (u64::from(config.line_share_ppm) < bursts::MILLION).then_some(watched),
            gaps: Gaps::new(watched),
            written,
            table,
            mappings: Mappings::default(),
            noted_alone: AtomicBool::new(false),
            budget: Budget::new(config.memory),
            outlet,
            slots: Mutex::default(),
            alive: AtomicU32::new(0),
            shared_lines: Mutex::default(),
            journal,
            level: AtomicU32::new(0),
            page_level: AtomicU32::new(0),
            page_bytes: AtomicU64::new(0),
            next_thread: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            pending_threads: Mutex::default(),
            thread_announced: Condvar::new(),
            accesses: AtomicU64::new(0),
            status_due: AtomicU64::new(0),
            memory_due: AtomicU64::new(0),
            noted_crowd: AtomicBool::new(false),
            config,
        };
        engine.write(&Record::Process {
            version: VERSION,
            pid,
            path: engine.config.path.clone(),
            image: engine.config.image,
            frontend: engine.config.frontend.clone(),
            virtual_clock: engine.config.virtual_clock,
            line_shift: engine.config.line_shift,
            time_share_ppm: engine.config.time_share_ppm,
            line_share_ppm: engine.config.line_share_ppm,
            program: program.to_owned(),
        });
        if let Some(error) = no_outlet {
            engine.write(&Record::Note(format!(
                "no access trace of process {}: cannot reach the recorder: {error}",
                engine.config.path
            )));
        }
        Ok(engine)
    }

    /// The engine of a forked child: the same tables, cleared, and its own journal.
    ///
    /// Must be called in the child, by its only thread.
    ///
    /// # Errors
    /// The system's error when the journal cannot be created.
    pub fn forked(&self, path: String, clock: u64, program: &str) -> std::io::Result<Self> {
        let config = Config {
            path,
            image: 0,
            created: (0, 0),
            clock,
            ..self.config.clone()
        };
        let tables = [self.lines, self.touched, self.clocks, self.written];
        for table in &tables {
            table.clear();
        }
        let outlet = self.outlet.as_ref();
        let outlet = outlet.map(|outlet| outlet.forked(&config.folder, &config.path));
        let mut engine = Self::with_tables(config, program, tables, self.table, outlet)?;
        engine.mappings = self.mappings.inherited();
        for (start, end, mapped) in engine.mappings.all() {
            let first = Record::Map {
                sequence: engine.sequence(),
                thread: 0,
                address: start,
                length: end - start,
                protection: 3,
                flags: libc::MAP_SHARED as u64,
                file: String::new(),
                offset: 0,
                moved_from: 0,
            };
            engine.write(&first);
            engine.write(&engine.backing(start, end, mapped));
            engine.mark_small(start, end);
        }
        Ok(engine)
    }

    /// The tracer of the process's first thread.
    pub fn first_thread(&'static self, tid: u32) -> Box<ThreadTracer> {
        let mut tracer = self.tracer(self.config.path.clone(), tid, self.config.clock, 0);
        let (threads, processes) = self.config.created;
        tracer.creator = Creator::after(tracer.creator.path(), threads, processes);
        tracer
    }

    fn tracer(
        &'static self,
        path: String,
        tid: u32,
        clock: u64,
        routine: u64,
    ) -> Box<ThreadTracer> {
        let number = self.next_thread.fetch_add(1, Relaxed);
        let (reader, own) = self.slots().give(&self.readers);
        self.alive.fetch_add(1, Relaxed);
        let mixed_up = !own || number >= line::MAX_WRITER;
        if mixed_up && !self.noted_crowd.swap(true, Relaxed) {
            self.write(&Record::Note(format!(
                "more than {} threads at once, or {} in all: communication of threads that share a number may be missed or mixed up",
                Readers::limit(),
                line::MAX_WRITER
            )));
        }
        self.write(&Record::ThreadStart {
            thread: number,
            path: path.clone(),
            tid,
            time: clock,
            routine,
        });
        let counters = PageCounters::new().unwrap_or_else(|error| {
            // Address space has run out: stop recording, let the program run on.
            self.write(&Record::Note(format!(
                "recording stopped: no address space for the counters of thread {path}: {error}"
            )));
            self.stop();
            PageCounters::discarding(&self.clocks)
        });
        Box::new(ThreadTracer::new(
            self, counters, number, reader, path, clock,
        ))
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the reader number of a thread that has ended.
    pub(crate) fn ended(&self, reader: u32) {
        self.slots().take_back(reader);
        self.alive.fetch_sub(1, Relaxed);
    }

    /// The synchronisation clock of the word at `address`.
    pub(crate) fn clock(&self, address: u64) -> &AtomicU64 {
        if self.budget.keeps(Detail::Clocks) {
            return self.clocks.word(address);
        }
        // All words share 2^20 clocks: a thread may take a later clock than necessary, never an earlier one.
        let word = (address >> CLOCK_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        self.clocks.word(word << CLOCK_SHIFT)
    }

    /// Drops details, one after the other, while the tables exceed their memory bound.
    fn enforce_budget(&self) {
        while let Some((detail, sentence)) = self.budget.check(self.alive.load(Relaxed)) {
            match detail {
                Detail::FalseSharing => self.written.clear(),
                Detail::Clocks => self.clocks.clear(),
                // Each thread drops its own counters at the end of its slice.
                Detail::Pages => {}
                Detail::Readers => self.readers.clear(),
            }
            self.write(&Record::Reduced(sentence));
            if detail == Detail::Pages {
                // Threads free their counters later; check again then.
                return;
            }
        }
    }

    /// Announces a created thread, which attaches itself with its first event (see [`Engine::adopt`]).
    pub(crate) fn announce(&self, tid: u32, pending_thread: PendingThread) {
        let mut pending_threads = self
            .pending_threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pending_threads.insert(tid, pending_thread);
        self.thread_announced.notify_all();
    }

    /// The tracer of the calling thread, whose creator has announced it or is about to.
    ///
    /// Waits for the announcement, which is usually a few instructions away. After a second the thread is attached as
    /// unknown ([`Engine::adopt_unknown`]).
    pub fn adopt(&'static self, tid: u32) -> Box<ThreadTracer> {
        let pending_threads = self
            .pending_threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut pending_threads, _) = self
            .thread_announced
            .wait_timeout_while(pending_threads, Duration::from_secs(1), |known| {
                !known.contains_key(&tid)
            })
            .unwrap_or_else(PoisonError::into_inner);
        let pending_thread = pending_threads.remove(&tid);
        drop(pending_threads);
        match pending_thread {
            Some(pending_thread) => {
                let mut tracer = self.tracer(
                    pending_thread.path,
                    tid,
                    pending_thread.clock,
                    pending_thread.routine,
                );
                tracer.clear_tid = pending_thread.clear_tid;
                tracer
            }
            None => self.adopt_unknown(tid),
        }
    }

    /// The tracer of a calling thread whose creation was not observed: its path is its kernel id.
    pub fn adopt_unknown(&'static self, tid: u32) -> Box<ThreadTracer> {
        self.write(&Record::Note(format!(
            "the creator of thread {tid} was not seen: its path is not stable"
        )));
        let path = format!("{}.unknown-{tid}", self.config.path);
        self.tracer(path, tid, 0, 0)
    }

    /// The tracer of the calling thread, from what its creator has handed over.
    pub fn attach(&'static self, pending_thread: PendingThread, tid: u32) -> Box<ThreadTracer> {
        self.tracer(
            pending_thread.path,
            tid,
            pending_thread.clock,
            pending_thread.routine,
        )
    }

    /// Appends one record to the journal immediately, in a frame of its own.
    pub fn write(&self, record: &Record) {
        let mut payload = Vec::new();
        Journal::begin(&mut payload);
        record.encode(&mut payload);
        self.journal.append(&mut payload);
    }

    /// The settings of this recording.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Completes the journal of a process that ends normally. All its threads have ended.
    pub fn finish(&self) {
        self.break_off();
        self.write(&Record::End);
        if let Some(outlet) = &self.outlet {
            outlet.finish();
        }
    }

    /// Writes the status and the shared lines of a process that is being killed; its journal gets no end record. All
    /// its threads have ended.
    pub fn break_off(&self) {
        self.write_status(self.accesses.load(Relaxed));
        let lines = self.shared_lines().first(sharing::LISTED);
        if !lines.is_empty() {
            self.write(&Record::SharedLines(lines));
        }
    }

    /// The lines that threads have communicated through.
    pub(crate) fn shared_lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.shared_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a marker for a new child process, so the recorder notices one that dies before opening its journal.
    pub fn expect_process(&self, pid: u32) {
        let _ = std::fs::write(self.config.folder.join(format!("{pid}.born")), []);
    }

    /// Stops recording.
    pub fn stop(&self) {
        self.journal.stop();
        if let Some(outlet) = &self.outlet {
            outlet.stop();
        }
    }

    /// The next number in the order of memory events.
    pub fn sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Relaxed)
    }

    /// Records that shared memory was mapped at `address`, starting `offset` bytes into `backing`. Call it after the
    /// mapping itself was recorded.
    pub fn shared(&self, backing: Option<Backing>, address: u64, length: u64, offset: u64) {
        let object = match (backing, &self.table) {
            (Some(backing), Some(table)) => table.object(&backing),
            _ => None,
        };
        let Some(object) = object else {
            if self.config.cross_process.is_some() && !self.noted_alone.swap(true, Relaxed) {
                self.write(&Record::Note(format!(
                    "process {} counts the memory it shares with others on its own: the table shared by the processes of the \
                     recording is not available",
                    self.config.path
                )));
            }
            return;
        };
        self.map_shared(object, address, length, offset);
    }

    /// Records that the System V segment at `address` was detached.
    pub fn detached(&self, address: u64) {
        if let Some((start, end)) = self.mappings.segment(address) {
            self.forget(start, end - start);
        }
    }

    /// The shared object mapped at `address`, and the offset of `address` in it.
    #[must_use]
    pub fn shared_at(&self, address: u64) -> Option<(u32, u64)> {
        let mapped = self.mappings.at(address)?;
        Some((mapped.object, address.wrapping_add(mapped.origin)))
    }

    /// Records that `length` bytes of a shared object, from `offset` on, were mapped at `address`. Call it after the
    /// mapping itself was recorded.
    pub fn map_shared(&self, object: u32, address: u64, length: u64, offset: u64) {
        let end = address.saturating_add(length).next_multiple_of(PAGE);
        let mapped = Mapped {
            object,
            origin: offset.wrapping_sub(address),
        };
        self.mappings.add(address, end, mapped);
        self.write(&self.backing(address, end, mapped));
        self.mark_small(address, end);
    }

    fn backing(&self, start: u64, end: u64, mapped: Mapped) -> Record {
        Record::Backing {
            sequence: self.sequence(),
            address: start,
            length: end - start,
            object: mapped.object,
            offset: start.wrapping_add(mapped.origin),
        }
    }

    /// Marks the lines of a small shared mapping at once. A thread may still have counts for pages of earlier memory
    /// there; its next access to them would not be a first one and would not mark them.
    fn mark_small(&self, start: u64, end: u64) {
        if end - start <= SMALL {
            self.mark_cross_process(start, end);
        }
    }

    /// Marks the lines of the page at `address`, which a thread touches for the first time, if it is shared.
    pub(crate) fn mark_if_cross_process(&self, address: u64) {
        if self.mappings.any() && self.mappings.at(address).is_some() {
            let page = address / PAGE * PAGE;
            self.mark_cross_process(page, page + PAGE);
        }
    }

    fn mark_cross_process(&self, start: u64, end: u64) {
        for address in (start..end).step_by(1 << self.config.line_shift) {
            let word = self.lines.word(address);
            if !line::is_cross_process(word.load(Relaxed)) {
                word.store(line::CROSS_PROCESS, Relaxed);
            }
        }
    }

    /// Clears the state of memory that was unmapped or replaced.
    pub fn forget(&self, address: u64, length: u64) {
        self.mappings
            .remove(address, address.saturating_add(length));
        self.lines.forget(address, length);
        self.written.forget(address, length);
        self.touched.forget(address, length);
        self.readers.forget(address, length);
        self.clocks.forget(address, length);
        if let Some(outlet) = &self.outlet {
            outlet.forget(address, length);
        }
    }

    /// Nanoseconds since the recording of this process began.
    pub(crate) fn wall(&self) -> u64 {
        monotonic_ns().saturating_sub(self.config.origin_ns)
    }

    /// The present slice length. Doubles it while `time` lies beyond the last slice allowed.
    pub(crate) fn slice_length(&self, time: u64) -> u64 {
        loop {
            let level = self.level.load(Relaxed);
            let length = self.config.slice << level;
            if time / length < self.config.slices || level >= 40 {
                return length;
            }
            let _ = self
                .level
                .compare_exchange(level, level + 1, Relaxed, Relaxed);
        }
    }

    /// The present span of page counts, at least a slice.
    pub(crate) fn span_length(&self) -> u64 {
        let level = self.page_level.load(Relaxed).max(self.level.load(Relaxed));
        self.config.slice << level.min(41)
    }

    /// Adds `bytes` to the size of the page counts written; doubles the spans when they exceed the limit.
    pub(crate) fn account_pages(&self, bytes: u64) {
        let total = self.page_bytes.fetch_add(bytes, Relaxed) + bytes;
        if total > self.config.page_bytes {
            let level = self.page_level.load(Relaxed).max(self.level.load(Relaxed)) + 1;
            if level <= 40 && self.page_level.fetch_max(level, Relaxed) < level {
                self.page_bytes.store(0, Relaxed);
            }
        }
    }

    /// Adds to the access count; updates the status file every 200 ms and checks the memory bound every 10 ms.
    pub(crate) fn report_progress(&self, accesses: u64) {
        let total = self.accesses.fetch_add(accesses, Relaxed) + accesses;
        let now = self.wall();
        if is_due(&self.memory_due, now, 10_000_000) {
            self.enforce_budget();
        }
        if is_due(&self.status_due, now, 200_000_000) {
            self.write_status(total);
        }
    }

    /// Replaces the status file: accesses and threads so far, as two 8-byte little-endian numbers.
    pub(crate) fn write_status(&self, accesses: u64) {
        let mut status = [0u8; 16];
        status[..8].copy_from_slice(&accesses.to_le_bytes());
        status[8..].copy_from_slice(&u64::from(self.next_thread.load(Relaxed)).to_le_bytes());
        let name = format!("{}.status", std::process::id());
        let _ = std::fs::write(self.config.folder.join(name), status);
    }
}

/// Whether `now` has reached `due`, which is then set to `now + pause`. True for one thread only.
fn is_due(due: &AtomicU64, now: u64, pause: u64) -> bool {
    let at = due.load(Relaxed);
    now >= at
        && due
            .compare_exchange(at, now + pause, Relaxed, Relaxed)
            .is_ok()
}
