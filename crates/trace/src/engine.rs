//! What the threads of a traced process share: shadow tables, slices, the journal, and threads announced by their
//! creators.
//!
//! Runs inside the program under study: it never panics on purpose and never blocks a thread for long. On a failure
//! (disk full) it stops recording and lets the program run on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numaloc_identity::ThreadPath;
use numaloc_model::Layer;
use numaloc_page_faults::AddressSpace;

use crate::access_trace::Outlet;
use crate::cross_process::{Found, Mappings, find};
use crate::faults::{self, Faults};
use crate::line;
use crate::memory::{Budget, Detail};
use crate::pending::{Announced, PendingThread};
use crate::places::Places;
use crate::population::Population;
use crate::sharing::{self, Lines};
use crate::slices::Slices;
use crate::tables::Tables;
use crate::time::{monotonic_ns, origin_since};
use crate::underway::Underway;
use crate::watch::{Gaps, Watched};
use numaloc_journal::bursts::{self, Bursts};
use numaloc_journal::settings::Config;
use numaloc_journal::{Journal, Record, VERSION, station};

/// Time between two updates of the status file, in ns.
const STATUS_PAUSE_NS: u64 = 200_000_000;

/// Time between two checks of the memory bound, in ns.
const MEMORY_PAUSE_NS: u64 = 10_000_000;

/// The tracing engine of one process image: everything its threads share.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) tables: Tables,
    /// Stores that may be done but have left no clock yet.
    pub(crate) underway: Underway,
    /// Schedule of sampling in time; `None` when all of it is recorded.
    pub(crate) bursts: Option<Bursts>,
    /// The sampled lines; `None` when all lines are recorded.
    pub(crate) watched: Option<Watched>,
    /// Distances between sampled lines.
    pub(crate) gaps: Gaps,
    /// The table of memory shared by processes, if there is one.
    pub(crate) table: Option<Found>,
    /// This process's mappings of such memory.
    pub(crate) mappings: Mappings,
    /// The areas of the process's memory, as page faults depend on them.
    pub(crate) faults: Faults,
    /// Whether the journal has a note that there is no such table.
    pub(crate) noted_alone: AtomicBool,
    pub(crate) budget: Budget,
    /// Connection for the access trace, if one is recorded.
    pub(crate) outlet: Option<Outlet>,
    pub(crate) population: Population,
    pub(crate) announced: Announced,
    pub(crate) slices: Slices,
    shared_lines: Mutex<Lines>,
    /// The words that the kernel has cleared, or will clear, at the end of threads.
    ended: Mutex<std::collections::HashSet<u64>>,
    pub(crate) places: Places,
    pub(crate) journal: Journal,
    sequence: AtomicU64,
    pub(crate) accesses: AtomicU64,
    /// When the process's recording began ([`Engine::wall`]).
    began: u64,
    status_due: AtomicU64,
    memory_due: AtomicU64,
}

impl Engine {
    /// Starts recording this process, which runs `program`: reserves the tables and creates its journal.
    ///
    /// # Errors
    /// The system's error when address space cannot be reserved or the journal cannot be created.
    pub fn start(mut config: Config, program: &str) -> std::io::Result<Self> {
        if config.since_ns != 0 {
            config.origin_ns = origin_since(config.since_ns);
            // A program started through `execve` counts from the same instant.
            config.since_ns = 0;
        }
        if config.origin_ns == 0 {
            config.origin_ns = monotonic_ns();
        }
        station::keep(&config);
        let tables = Tables::reserve(&config)?;
        let outlet = config.trace.map(|filter| {
            let image = (config.image, &*config.path);
            Outlet::open(filter, &config.folder, config.line_shift, image)
        });
        // Without the table the process counts its shared memory alone; `shared` writes a note about it.
        let table = find(&config);
        let faults = Faults::new(AddressSpace::new(faults::huge_pages(config.huge_pages)));
        Self::with_tables(config, program, tables, table, outlet, faults)
    }

    fn with_tables(
        config: Config,
        program: &str,
        tables: Tables,
        table: Option<Found>,
        outlet: Option<std::io::Result<Outlet>>,
        faults: Faults,
    ) -> std::io::Result<Self> {
        let (outlet, no_outlet) = outlet
            .transpose()
            .map_or_else(|e| (None, Some(e)), |o| (o, None));
        let pid = std::process::id();
        // Ranks on several hosts may have the same process id.
        let root = ThreadPath::new(&config.path).root();
        let name = format!("{root}-{pid}-{}", config.image);
        let journal = Journal::of(station::create(&config.folder, config.station, &name)?)?;
        let watched = Watched::new(config.line_share_ppm, config.line_shift);
        let began = monotonic_ns().saturating_sub(config.origin_ns);
        let engine = Self {
            tables,
            underway: Underway::new(),
            bursts: config.bursts(),
            watched: (u64::from(config.line_share_ppm) < bursts::MILLION).then_some(watched),
            gaps: Gaps::new(watched),
            table,
            mappings: Mappings::default(),
            faults,
            noted_alone: AtomicBool::new(false),
            budget: Budget::new(config.memory),
            outlet,
            population: Population::default(),
            announced: Announced::default(),
            slices: Slices::new(&config),
            shared_lines: Mutex::default(),
            ended: Mutex::default(),
            places: Places::default(),
            journal,
            sequence: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            began,
            status_due: AtomicU64::new(began + STATUS_PAUSE_NS),
            memory_due: AtomicU64::new(began + MEMORY_PAUSE_NS),
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
        if let Some(host) = engine.table.as_ref().and_then(|found| found.host.clone()) {
            engine.write(&Record::TableOfHost(host));
        }
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
        numaloc_journal::descriptors::forked();
        let config = Config {
            path,
            image: 0,
            created_threads: 0,
            created_processes: 0,
            clock,
            ..self.config.clone()
        };
        let tables = self.tables.forked(&config)?;
        let faults = self.faults.forked();
        faults.wipe(&tables.touched);
        let outlet = self.outlet.as_ref();
        let outlet = outlet.map(|outlet| outlet.forked(&config.folder, &config.path));
        let made = Self::with_tables(config, program, tables, self.table.clone(), outlet, faults);
        self.journal.close();
        let mut engine = made?;
        engine.mappings = self.mappings.inherited();
        let sequence = self.sequence.load(Relaxed);
        engine.sequence = AtomicU64::new(sequence);
        engine.write(&Record::Forked {
            parent: self.config.path.clone(),
            image: self.config.image,
            sequence,
        });
        engine.record_inherited();
        engine.record_inherited_policies();
        Ok(engine)
    }

    /// Announces a created thread, which attaches itself with its first event (see [`Engine::adopt`]).
    pub(crate) fn announce(&self, tid: u32, thread: PendingThread) {
        self.announced.add(tid, thread);
    }

    /// The synchronisation clock of the word at `address`.
    #[inline(always)]
    pub(crate) fn clock(&self, address: u64) -> &AtomicU64 {
        let shared = !self.budget.keeps(Detail::Clocks);
        self.tables.clock(address, shared)
    }

    /// Drops details, one after the other, while the tables exceed their memory bound.
    fn enforce_budget(&self) {
        while let Some((detail, sentence)) = self.budget.check(self.population.alive()) {
            self.tables.drop_detail(detail);
            self.write(&Record::Reduced(sentence));
            if detail == Detail::Pages {
                // Threads free their counters later; check again then.
                return;
            }
        }
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

    /// Whether [`ThreadTracer::fast`](crate::ThreadTracer::fast) counts accesses at all times, except between bursts
    /// and while some are pending: code that calls [`ThreadTracer::flush_made`](crate::ThreadTracer::flush_made) and
    /// [`ThreadTracer::hold_back`](crate::ThreadTracer::hold_back) whenever the tracer returns need not look at the
    /// threshold.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        let config = &self.config;
        self.watched.is_none()
            && self.outlet.is_none()
            && !config.consecutive
            && config.line_shift == line::FAST_SHIFT
            && !config.layers.contains(&Layer::SharedLine)
            && !config.layers.contains(&Layer::LastTwo)
    }

    /// Address of the masks of the bytes written in the tenures of tracked lines, a bit for each byte of the window;
    /// `None` if they are not kept. Code that stores to a tracked line, with [`crate::line::TRACKED`] but not
    /// [`crate::line::FULL`], which its thread has written last, may set the bits by itself.
    #[must_use]
    pub fn masks(&self) -> Option<u64> {
        let kept = self.budget.keeps(Detail::FalseSharing) && self.is_steady();
        kept.then(|| self.tables.written.address())
    }

    /// Whether there is an access trace.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.outlet.is_some()
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
        // A short process shows no progress: programs may create them by the thousand, and a file takes longer.
        if self.wall() >= self.began + STATUS_PAUSE_NS {
            self.write_status(self.accesses.load(Relaxed));
        }
        let lines = self.shared_lines().first(sharing::LISTED);
        if !lines.is_empty() {
            self.write(&Record::SharedLines(lines));
        }
    }

    /// The lines that threads have communicated through.
    pub(crate) fn shared_lines(&self) -> MutexGuard<'_, Lines> {
        self.shared_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the word that the kernel clears at a thread's end.
    pub(crate) fn keep_ended(&self, word: u64) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert(word);
    }

    /// Whether the kernel clears this word at a thread's end: who reads it waits for the thread.
    pub(crate) fn is_ended(&self, word: u64) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.contains(&word)
    }

    /// Announces a process image, at a time of the calling thread: the recorder notices one that has no journal.
    pub fn expect_process(&self, path: String, image: u32, time: u64, program: String) {
        self.write(&Record::Expected {
            path,
            image,
            time,
            program,
        });
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

    /// Replaces the places of stores for which `renamed` has another one: the frontend will not know the old ones.
    pub fn rename_places(&self, renamed: impl FnMut(u64) -> Option<u64>) {
        self.tables.stores.rename(renamed);
    }

    /// Clears the state of memory that was unmapped or replaced.
    pub fn forget(&self, address: u64, length: u64) {
        self.mappings
            .remove(address, address.saturating_add(length));
        self.tables.forget(address, length);
        if let Some(outlet) = &self.outlet {
            outlet.forget(address, length);
        }
    }

    /// Nanoseconds since the recording of this process began.
    pub(crate) fn wall(&self) -> u64 {
        monotonic_ns().saturating_sub(self.config.origin_ns)
    }

    /// Adds to the access count; updates the status file and checks the memory bound when they are due.
    pub(crate) fn report_progress(&self, accesses: u64) {
        let total = self.accesses.fetch_add(accesses, Relaxed) + accesses;
        let now = self.wall();
        if is_due(&self.memory_due, now, MEMORY_PAUSE_NS) {
            self.enforce_budget();
        }
        if is_due(&self.status_due, now, STATUS_PAUSE_NS) {
            self.write_status(total);
        }
    }

    /// Replaces the status file: accesses and threads so far, as two 8-byte little-endian numbers.
    pub(crate) fn write_status(&self, accesses: u64) {
        let mut status = [0u8; 16];
        status[..8].copy_from_slice(&accesses.to_le_bytes());
        status[8..].copy_from_slice(&u64::from(self.population.total()).to_le_bytes());
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
