//! The tracer of a thread, and the hot path: recording one load or store.
//!
//! A thread's access is
//! 1. one count down to the end of its quantum,
//! 2. one addition to its own page counter,
//! 3. one load of the line's word, and a test: a line that this thread wrote last, or has read since the last write,
//!    needs no more.
//!
//! There is no atomic read-modify-write unless a line changes hands. A tracer consists of parts, each in the file with
//! its methods:
//!
//! | part | file | content |
//! |---|---|---|
//! | `fast` | `fast` | the cache line that the fast path uses |
//! | `sampler` | `sampler`, `sampled` | which accesses are only counted |
//! | `batch` | `batch`, `blocks`, `runs`, `sweeps`, `loops`, `strings` | accesses that are recorded together |
//! | `events` | `events`, `lines` | events not yet known to be true or false sharing; lines that change hands |
//! | `clock` | `clock`, `sync`, `values` | quanta and slices; clocks that threads join, and values that carry them |
//! | `communication` | `communication` | what was received from other threads |
//! | `pages` | `pages` | page counts and first touches |
//! | `sites` | `sites` | a sample of the instructions that communicate and access memory |
//! | `contention` | `contention` | a sample of the accesses, with the intervals between synchronisations |
//! | `journal` | `written` | what is to be written to the journal |
//! | `stream` | [`crate::access_trace`] | the access trace |
//!
//! `light` records accesses without calling anything, `attach` makes the tracers of new threads, `marks` records the
//! places in the program that they pass.
//!
//! # The virtual clock
//! A thread's clock counts its accesses, except those of threading run-time libraries: their number depends on how
//! long the host lets a thread wait. Clocks are joined where threads synchronise. An atomic instruction or a futex
//! marks its line ([`line::SYNC`]); a write to a word of such a line leaves the writer's clock there if it is later,
//! and a read takes it. So a thread that leaves a barrier, takes a lock or joins another thread is never earlier than
//! what it waited for, whichever thread the host ran first, and even where a store is recorded only after others may
//! have seen it (`underway`). A new thread starts with its creator's clock.

mod attach;
mod batch;
mod blocks;
mod clock;
mod communication;
mod contention;
mod dependences;
mod events;
mod fast;
mod faults;
mod light;
mod lines;
mod loops;
mod marks;
mod pages;
mod runs;
mod sampled;
mod sampler;
mod sites;
mod strings;
mod sweeps;
mod sync;
mod values;
mod written;

use std::sync::atomic::Ordering::Relaxed;

use numaloc_identity::Creator;

use crate::access_trace::stream::Stream;
use crate::cross_process::Part;
use crate::engine::Engine;
use crate::extra::Extra;
use crate::line::{self, FAST_SHIFT};
use crate::pages::PageCounters;
use crate::pending::PendingThread;
use crate::shadow::Shadow;
use numaloc_journal::Record;

pub use fast::layout;
pub use loops::{Loop, When};
pub use runs::Pace;
pub use strings::WORD;
pub use values::{Values, follow_values, set_loader_range};

use batch::Batch;
use clock::Clock;
use communication::{Communication, Received};
use contention::Contention;
use events::Events;
use fast::Fast;
use pages::Pages;
use sampler::Sampler;
use sites::Sites;
use written::Outgoing;

/// Bytes of a line of the usual size.
const LINE: u64 = 1 << FAST_SHIFT;
/// Maximum length of a quantum, in accesses: bounds page counters and the error of wall-clock slices.
const LONGEST_QUANTUM: u64 = 1 << 29;
/// Length of a quantum with the wall clock, in accesses.
const WALL_QUANTUM: u64 = 4096;

/// The tracer of one thread, used by that thread alone. What the fast path uses comes first.
#[repr(C)]
pub struct ThreadTracer {
    fast: Fast,
    sampler: Sampler,
    batch: Batch,
    lines: Shadow,
    /// This thread's bit in a line's word, 0 when it has none.
    bit: u64,
    /// Bits in which a line's word equals that of the thread's own lines if the thread has read it: `bit`, all if none.
    read_bits: u64,
    events: Events,
    pub(crate) engine: &'static Engine,
    // Everything below is cold.
    number: u32,
    /// Reader number: selects this thread's bit in a line's word.
    reader: u32,
    clock: Clock,
    communication: Communication,
    pages: Pages,
    sites: Sites,
    contention: Contention,
    extra: Option<Box<Extra>>,
    /// The access trace; with one, every access takes the slow path.
    stream: Option<Box<Stream>>,
    /// State for memory shared by processes.
    pub(crate) cross_process: Option<Box<Part>>,
    journal: Outgoing,
    /// Path of the thread, and what it has created.
    pub creator: Creator,
    /// Address that the kernel clears and wakes when the thread ends, 0 for none.
    pub clear_tid: u64,
    /// Address of the thread's first store; 0 before it.
    first_store: u64,
    ended: bool,
}

impl ThreadTracer {
    /// The tracer of a thread that has `number` in the journal and `reader` among the readers of lines, and begins at
    /// time `clock`.
    fn new(
        engine: &'static Engine,
        counters: PageCounters,
        number: u32,
        reader: u32,
        path: String,
        clock: u64,
    ) -> Self {
        let config = &engine.config;
        let writer = number % line::MAX_WRITER + 1;
        let bit = line::reader_bit(reader);
        // Literally, the writer's own read comes between its write and another thread's read.
        let own_bit = if config.consecutive { 0 } else { bit };
        let extra = Extra::new(&config.layers);
        let odd = config.line_shift != FAST_SHIFT;
        let wall = engine.wall();
        let clock = Clock::new(config.virtual_clock, clock, wall);
        let outlet = engine.outlet.as_ref();
        let stream =
            outlet.and_then(|outlet| Stream::new(outlet, number, writer, &path, clock.now(0)));
        // With lines of another size the word read is meaningless and the threshold forbids to use it.
        let fast_lines = match odd {
            true => engine.tables.clocks,
            false => engine.tables.lines,
        };
        let fast_lines = fast_lines.fixed().expect("both have enough words");
        let contention = Contention::new(clock.now(0));
        let mut tracer = Self {
            fast: Fast::new(writer, bit, own_bit, fast_lines, counters.words()),
            sampler: Sampler::new(engine.watched, config.line_shift),
            // With `consecutive` even a thread's reads of its own line change its state.
            batch: Batch::new(!odd && extra.is_none() && stream.is_none() && !config.consecutive),
            lines: engine.tables.lines,
            bit,
            read_bits: if bit == 0 { u64::MAX } else { bit },
            events: Events::new(),
            engine,
            number,
            reader,
            clock,
            communication: Communication::default(),
            pages: Pages::new(counters),
            sites: Sites::new(),
            contention,
            extra,
            stream,
            cross_process: None,
            journal: Outgoing::new(),
            creator: Creator::new(path),
            clear_tid: 0,
            first_store: 0,
            ended: false,
        };
        tracer.set_sampling(true);
        let now = tracer.time();
        tracer.pages.begin_span(now, engine.slices.span_length());
        tracer.begin_slice(now);
        tracer
    }

    /// Stable path of the thread.
    #[must_use]
    pub fn path(&self) -> &str {
        self.creator.path()
    }

    /// Address of the thread's first store; 0 before it.
    #[inline(always)]
    #[must_use]
    pub fn first_store(&self) -> u64 {
        self.first_store
    }

    /// Number of the thread in this process's journal.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Records one load (`WRITE` false) or store of `size` bytes at `address`.
    ///
    /// `RUNTIME` is for instructions of a threading run-time library: their accesses count for pages and carry clocks,
    /// but are not communication of the program.
    #[inline(always)]
    pub fn access<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        // The checks come before any change, so that the rest is one tail call.
        let handled = !RUNTIME && (self.fast::<WRITE, false>(address, size) || self.skip(address));
        if !handled {
            self.slow::<WRITE, RUNTIME>(address, size);
        }
    }

    /// [`ThreadTracer::access`] by the code at `place` ([`ThreadTracer::set_place`]).
    #[inline(always)]
    pub fn access_at<const WRITE: bool>(&mut self, address: u64, size: u32, place: u64) {
        if !self.fast::<WRITE, false>(address, size) && !self.skip(address) {
            self.set_place(place);
            self.slow::<WRITE, false>(address, size);
        }
    }

    /// Records an access for which neither [`ThreadTracer::fast`] nor [`ThreadTracer::skip`] is enough: to a sampled
    /// line, or an unusual one.
    ///
    /// `extern "C"` for the same reason as `unusual`.
    #[inline(never)]
    pub extern "C" fn slow<const WRITE: bool, const RUNTIME: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) {
        if self.sampler.skips(address) {
            return self.skip_slow::<WRITE, RUNTIME>(address, size);
        }
        if RUNTIME || !self.sampler.partial {
            self.sampler.sampled += 1;
            return self.unusual::<WRITE, RUNTIME>(address, size);
        }
        self.sampled_access::<WRITE>(address, size);
    }

    /// Records an access to a sampled line.
    #[inline(always)]
    fn sampled_access<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if self.batch.pending || !self.fast_sampled::<WRITE>(address, size) {
            self.sampler.sampled += 1;
            self.unusual::<WRITE, false>(address, size);
        }
    }

    /// Records an instruction that loads, changes and stores `size` bytes at `address`, not atomically.
    #[inline(always)]
    pub fn update<const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if RUNTIME || !self.fast_update::<false>(address, size) {
            self.slow::<false, RUNTIME>(address, size);
            self.slow::<true, RUNTIME>(address, size);
        }
    }

    /// Counts an access, which may end the quantum.
    #[inline(always)]
    fn tick<const RUNTIME: bool>(&mut self) {
        self.fast.remaining = self.fast.remaining.wrapping_sub(1);
        self.stop_clock::<RUNTIME>();
        // Below 0 if code that counts by the path has gone on.
        if self.fast.remaining as i64 <= 0 {
            self.end_quantum();
        }
    }

    /// Counts an access that is not recorded. In code of a threading run-time library it still passes clocks, because
    /// threads wait for each other there.
    #[inline(always)]
    fn skip_slow<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if WRITE && self.first_store == 0 && self.sampler.partial {
            self.first_store = address;
        }
        self.tick::<RUNTIME>();
        if RUNTIME && self.lines.word(address).load(Relaxed) & line::SYNC != 0 {
            self.pass_clock::<WRITE, true>(address);
        } else if RUNTIME {
            self.follow_value::<WRITE>(address, size);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_clock<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64) {
        if WRITE {
            self.release_by::<RUNTIME>(address);
        } else {
            self.acquire_by::<RUNTIME>(address);
        }
    }

    /// Records an atomic load or store: marks its line as used for synchronisation, otherwise an ordinary access.
    pub fn synchronise<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        self.mark_sync(address);
        if RUNTIME {
            self.clock.lock = address;
        }
        if self.sampler.skips(address) {
            self.skip_slow::<WRITE, RUNTIME>(address, size);
            if !RUNTIME {
                self.pass_clock::<WRITE, false>(address);
            }
        } else {
            self.contention.within_atomic = WRITE;
            self.contention.loads_atomically = !WRITE;
            self.access::<WRITE, RUNTIME>(address, size);
            self.contention.within_atomic = false;
            self.contention.loads_atomically = false;
            if WRITE {
                self.count_atomic(address, size);
            }
        }
    }

    /// Records an access that ends a quantum, is the page's first in a span, crosses lines, or changes
    /// a line's state.
    ///
    /// `extern "C"`, which never unwinds, so that callers from C need no landing pad.
    #[inline(never)]
    extern "C" fn unusual<const WRITE: bool, const RUNTIME: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) {
        self.count::<WRITE, RUNTIME>(address, size);
        if RUNTIME {
            self.follow_value::<WRITE>(address, size);
        } else if let Some(extra) = &mut self.extra {
            extra.access(self.engine, line::writer(self.fast.owned), address, size);
        }
        // Line by line; nearly always there is one.
        let (mut at, end) = (address, address + u64::from(size));
        while at < end {
            let next = ((at >> self.lines.shift()) + 1) << self.lines.shift();
            let part = next.min(end) - at;
            if !self.sampler.partial || self.sampler.watched.has(at) {
                self.line::<WRITE, RUNTIME>(at, part as u32);
            }
            at = next;
        }
    }

    /// Counts an access for its page, the clock and the access trace.
    #[inline(always)]
    fn count<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if self.batch.pending && !self.batch.prerecording {
            self.flush_pending();
        }
        let last = self.fast.remaining == 1;
        self.tick::<RUNTIME>();
        if last {
            self.sample_access::<WRITE, RUNTIME>(address, size);
        }
        let amount = if WRITE {
            self.fast.write_bytes += u64::from(size);
            crate::pages::WRITE
        } else {
            self.fast.read_bytes += u64::from(size);
            crate::pages::READ
        };
        if self.pages.counters.add(address, amount) == 0 {
            self.touch::<WRITE>(address);
        } else if WRITE && RUNTIME {
            // No line shows that this is the first store to the page.
            self.settle::<true>(address);
        }
        if let Some(stream) = &mut self.stream {
            stream.access::<WRITE>(address, size);
        }
    }

    /// Counts an access of `size` bytes at `address` that guards something outside the program's own work: for its
    /// page only. It takes no time, and is neither communication nor synchronisation.
    pub fn count_only<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if self.sampler.skips(address) {
            self.flush_pending();
            self.tick::<true>();
        } else {
            self.sampler.sampled += 1;
            self.count::<WRITE, true>(address, size);
        }
    }

    /// Adds a record to those written to the journal at the end of the slice.
    pub fn record(&mut self, record: &Record) {
        record.encode(&mut self.journal.out);
    }

    /// What this thread's next child needs to attach itself, for creators that hand it over themselves
    /// ([`Engine::attach`]). Call `creator.count_thread()` once the child exists.
    #[must_use]
    pub fn pending_thread(&mut self, routine: u64) -> PendingThread {
        self.record_creation();
        let lag = self.creates();
        PendingThread {
            path: self.creator.upcoming_thread(),
            clock: self.time(),
            routine,
            clear_tid: 0,
            lag,
        }
    }

    /// The same for the first thread of a process that will share this one's memory. Call `creator.count_process()`
    /// once the process exists.
    #[must_use]
    pub fn pending_process(&self) -> PendingThread {
        PendingThread {
            path: self.creator.upcoming_process(),
            clock: self.time(),
            routine: 0,
            clear_tid: 0,
            lag: 0,
        }
    }

    /// Records that this thread has created thread `tid` with start routine `routine` (0 if unknown). `clear_tid` is
    /// the address that the kernel clears and wakes at its end, or 0.
    pub fn thread_created(&mut self, tid: u32, routine: u64, clear_tid: u64) {
        self.record_creation();
        let path = self.creator.next_thread();
        let clock = self.time();
        let lag = self.creates();
        self.engine.announce(
            tid,
            PendingThread {
                path,
                clock,
                routine,
                clear_tid,
                lag,
            },
        );
    }

    fn record_creation(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.create(self.creator.threads() + 1);
        }
    }
}
