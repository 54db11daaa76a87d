//! The hot path: recording one load or store of a thread.
//!
//! A thread's access is
//! 1. one count down to the end of its quantum,
//! 2. one addition to its own page counter,
//! 3. one load of the line's word, and a test: a line that this thread wrote last, or has read since the last write,
//!    needs no more.
//!
//! There is no atomic read-modify-write unless a line changes hands. Everything else is in cold functions: `lines` for
//! lines that change hands, `clock` for quanta and slices, `written` for the journal, `values` for values that
//! run-time libraries pass between threads, `blocks`, `runs` and `loops` for accesses that are recorded together,
//! `strings` for string instructions.
//!
//! # The virtual clock
//! A thread's clock counts its accesses, except those of threading run-time libraries: their number depends on how
//! long the host lets a thread wait. Clocks are joined where threads synchronise. An atomic instruction or a futex
//! marks its line ([`line::SYNC`]); a write to a word of such a line leaves the writer's clock there if it is later,
//! and a read takes it. So a thread that leaves a barrier, takes a lock or joins another thread is never earlier than
//! what it waited for, whichever thread the host ran first, and even where a store is recorded only after others may
//! have seen it (`underway`). A new thread starts with its creator's clock.

mod blocks;
mod clock;
mod lines;
mod loops;
mod runs;
mod sampled;
mod strings;
mod sweeps;
mod values;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use numaloc_identity::Creator;

use crate::access_trace::stream::Stream;
use crate::cross_process::Part;
use crate::engine::{Engine, PendingThread};
use crate::extra::Extra;
use crate::line::{self, FAST_SHIFT};
use crate::memory::Detail;
use crate::pages::{self, PAGE_SHIFT, PageCounters};
use crate::shadow::{Fixed, Shadow};
use crate::sharing::{self, Sharing};
use numaloc_journal::GROUPS;
use numaloc_journal::{Journal, Record};

use crate::watch::Watched;

pub use loops::{Loop, When};
pub use runs::Pace;
pub use strings::WORD;
pub use values::{Values, follow_values, set_loader_range};

/// Bytes of a line of the usual size.
const LINE: u64 = 1 << FAST_SHIFT;
/// Maximum length of a quantum, in accesses: bounds page counters and the error of wall-clock slices.
const LONGEST_QUANTUM: u64 = 1 << 31;
/// Length of a quantum with the wall clock, in accesses.
const WALL_QUANTUM: u64 = 4096;

/// Writer ids below this index a table; the others (programs that create thousands of threads) are in a map.
const NEAR: usize = 1024;

/// Communication received from one writer since it was last written to the journal.
#[derive(Clone, Copy, Default)]
struct Received {
    events: u64,
    bytes: u64,
    false_events: u64,
    false_bytes: u64,
}

/// The tracer of one thread, used by that thread alone. The fields that every access needs come first, in two cache
/// lines.
#[repr(C, align(64))]
pub struct ThreadTracer {
    /// Accesses remaining in the quantum ([`ThreadTracer::end_quantum`]).
    remaining: u64,
    /// The word of a line that this thread has just written.
    owned: u64,
    /// This thread's bit in a line's word, 0 when it has none.
    bit: u64,
    /// The fast path needs `remaining` above this: 1, or `u64::MAX` when every access must take the slow path and
    /// while accesses are pending (`runs`).
    fast_threshold: u64,
    /// Sampling threshold: accesses to lines with a larger `place` ([`Watched::place`]) are only counted. 0 between
    /// bursts, `u64::MAX` when all lines are recorded.
    sample_threshold: u64,
    /// The line table, if lines have the usual size.
    fast_lines: Fixed<FAST_SHIFT>,
    /// A read is fast if `word & read_mask == read_is`. Reads of tracked lines are not while an event is undecided
    /// ([`Sharing`]).
    read_mask: u64,
    read_is: u64,
    counters: PageCounters,
    read_bytes: u64,
    write_bytes: u64,
    /// Lines are sampled: only those in `watched` are recorded.
    partial: bool,
    /// The sampled lines.
    watched: Watched,
    /// Accesses of a block may be counted together.
    batchable: bool,
    /// Accesses are pending: a run, string words or prerecorded loads ([`ThreadTracer::flush_pending`]).
    pending: bool,
    lines: Shadow,
    run: runs::Run,
    /// Bytes loaded, and stored, by string instructions in their current word.
    strings: [strings::Piece; 2],
    /// Loads from synchronisation lines that were recorded before they were made.
    prerecorded: Vec<(u64, u32)>,
    /// Loads are being recorded before they are made.
    prerecording: bool,
    /// The loop being recorded: see [`loops`].
    predicted: loops::Predicted,
    /// `fast_threshold` for sampled lines while nothing is pending.
    usual_threshold: u64,
    /// Slots of [`Sharing`] that hold an undecided event.
    undecided: [bool; sharing::UNDECIDED_SLOTS],
    pub(crate) engine: &'static Engine,
    // Everything below is cold.
    number: u32,
    /// Reader number: selects this thread's bit in a line's word.
    reader: u32,
    /// Clock (or wall time) at the end of this quantum.
    quantum_end: u64,
    /// Length of this quantum: `remaining` at its start.
    quantum: u64,
    /// Accesses before this quantum.
    accesses: u64,
    /// Accesses before this quantum that fell into bursts.
    seen: u64,
    /// Accesses to sampled lines, where lines are sampled.
    sampled: u64,
    /// Start of the current burst, where time is sampled.
    burst: u64,
    /// Time of the profile's clock at the start of the quantum; wall clock only.
    wall: u64,
    slice_start: u64,
    slice_length: u64,
    span_start: u64,
    span_length: u64,
    /// Communication received: from writers below [`NEAR`] by writer id, from the others, and the writer ids with
    /// counts.
    received: Vec<Received>,
    received_far: HashMap<u32, Received>,
    received_from: Vec<u32>,
    /// Events by layer and writer id in each part of the sampled lines.
    groups: BTreeMap<(u8, u32), [u64; GROUPS]>,
    sharing: Option<Box<Sharing>>,
    first_touched: Vec<(u64, u64)>,
    extra: Option<Box<Extra>>,
    /// The access trace; with one, every access takes the slow path.
    stream: Option<Box<Stream>>,
    /// State for memory shared by processes.
    pub(crate) cross_process: Option<Box<Part>>,
    out: Vec<u8>,
    reported: u64,
    /// Path of the thread, and what it has created.
    pub creator: Creator,
    /// Address that the kernel clears and wakes when the thread ends, 0 for none.
    pub clear_tid: u64,
    /// Address of the thread's first store; 0 before it.
    first_store: u64,
    /// Number of stores announced, and whether the last one is still to be recorded.
    announced: u64,
    underway: bool,
    /// The word last changed by an atomic instruction of a run-time library.
    lock: u64,
    ended: bool,
}

impl ThreadTracer {
    pub(crate) fn new(
        engine: &'static Engine,
        counters: PageCounters,
        number: u32,
        reader: u32,
        path: String,
        clock: u64,
    ) -> Self {
        let writer = number % line::MAX_WRITER + 1;
        let bit = line::reader_bit(reader);
        let mut out = Vec::new();
        Journal::begin(&mut out);
        let extra = Extra::new(&engine.config.layers);
        let odd = engine.config.line_shift != FAST_SHIFT;
        let outlet = engine.outlet.as_ref();
        let begins = if engine.config.virtual_clock {
            clock
        } else {
            engine.wall()
        };
        let stream = outlet.and_then(|outlet| Stream::new(outlet, number, writer, &path, begins));
        let partial = engine.watched.is_some();
        let mut tracer = Self {
            remaining: 0,
            // Literally, the writer's own read comes between its write and another thread's read.
            owned: line::owned(writer, if engine.config.consecutive { 0 } else { bit }),
            bit,
            fast_threshold: u64::MAX,
            usual_threshold: u64::MAX,
            undecided: [false; sharing::UNDECIDED_SLOTS],
            // With lines of another size the word read is meaningless and `fast_threshold` forbids to use it.
            fast_lines: if odd { engine.clocks } else { engine.lines }
                .fixed()
                .expect("both have enough words"),
            partial,
            // With `consecutive` even a thread's reads of its own line change its state.
            batchable: !odd && extra.is_none() && stream.is_none() && !engine.config.consecutive,
            pending: false,
            run: runs::Run::none(),
            strings: Default::default(),
            prerecorded: Vec::new(),
            prerecording: false,
            predicted: loops::Predicted::Nothing,
            sample_threshold: u64::MAX,
            watched: engine
                .watched
                .unwrap_or(Watched::new(1_000_000, engine.config.line_shift)),
            read_mask: bit,
            // A thread without a bit of its own has no fast reads: no word matches this.
            read_is: if bit == 0 { u64::MAX } else { bit },
            lines: engine.lines,
            read_bytes: 0,
            write_bytes: 0,
            engine,
            counters,
            number,
            reader,
            creator: Creator::new(path),
            quantum_end: clock,
            quantum: 0,
            accesses: 0,
            seen: 0,
            sampled: 0,
            burst: 0,
            wall: engine.wall(),
            slice_start: 0,
            slice_length: 1,
            span_start: 0,
            span_length: 1,
            received: Vec::new(),
            received_far: HashMap::new(),
            received_from: Vec::new(),
            groups: BTreeMap::new(),
            sharing: None,
            first_touched: Vec::new(),
            extra,
            stream,
            cross_process: None,
            out,
            reported: 0,
            clear_tid: 0,
            first_store: 0,
            announced: 0,
            underway: false,
            lock: 0,
            ended: false,
        };
        tracer.set_sampling(true);
        let now = tracer.time();
        tracer.span_length = engine.span_length();
        tracer.span_start = now / tracer.span_length * tracer.span_length;
        tracer.begin_slice(now);
        tracer
    }

    /// Stable path of the thread.
    #[must_use]
    pub fn path(&self) -> &str {
        self.creator.path()
    }

    /// Address of the thread's first store; 0 before it.
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
        if self.is_skipped(address) {
            return self.skip_slow::<WRITE, RUNTIME>(address, size);
        }
        if RUNTIME || !self.partial {
            self.sampled += 1;
            return self.unusual::<WRITE, RUNTIME>(address, size);
        }
        self.sampled_access::<WRITE>(address, size);
    }

    /// Records an access to a sampled line.
    #[inline(always)]
    fn sampled_access<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if self.pending || !self.fast_sampled::<WRITE>(address, size) {
            self.sampled += 1;
            self.unusual::<WRITE, false>(address, size);
        }
    }

    /// Counts an ordinary access and returns true; false if the access needs the slow path. Ordinary is an access to a
    /// line that this thread may read or write without a change of state, on a page counted before, and not the last
    /// of the quantum. Always false where lines are sampled, and between bursts. Not for run-time libraries, whose
    /// accesses carry clocks.
    ///
    /// Calls nothing, so the caller needs no frame. A signal handler that interrupts it may cost one count, nothing
    /// more.
    ///
    /// With `ALIGNED`, `size` is a power of two and only an `address` that is a multiple of it is fast: testing that
    /// takes fewer instructions.
    #[inline(always)]
    pub fn fast<const WRITE: bool, const ALIGNED: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) -> bool {
        self.fast_above::<WRITE, ALIGNED>(self.fast_threshold, address, size)
    }

    /// [`ThreadTracer::fast`] with the given `fast_threshold`.
    #[inline(always)]
    fn fast_above<const WRITE: bool, const ALIGNED: bool>(
        &mut self,
        fast_threshold: u64,
        address: u64,
        size: u32,
    ) -> bool {
        if self.remaining <= fast_threshold {
            return false;
        }
        let word = self.fast_lines.word(address).load(Relaxed);
        let ours = if WRITE {
            self.owns(word)
        } else {
            word & self.read_mask == self.read_is || self.is_new_or_reread(word, address)
        };
        let amount = if WRITE { pages::WRITE } else { pages::READ };
        if !ours || !self.count_fast::<ALIGNED>(address, size, amount) {
            return false;
        }
        self.remaining -= 1;
        if WRITE {
            self.write_bytes += u64::from(size);
            if line::keeps_bytes(word) {
                self.track_fast(address, size);
            }
        } else {
            self.read_bytes += u64::from(size);
        }
        true
    }

    /// Whether a line with this word was never written, or is read again without effect ([`ThreadTracer::rereads`]).
    #[inline(always)]
    fn is_new_or_reread(&self, word: u64, address: u64) -> bool {
        // Tested last: most lines that a program reads have been written.
        std::hint::cold_path();
        word == 0 || self.rereads(word, address)
    }

    /// Counts a load and a store of `size` bytes at `address`, like [`ThreadTracer::fast`].
    #[inline(always)]
    pub fn fast_update<const ALIGNED: bool>(&mut self, address: u64, size: u32) -> bool {
        self.fast_update_above::<ALIGNED>(self.fast_threshold, address, size)
    }

    /// [`ThreadTracer::fast_update`] with the given `fast_threshold`.
    #[inline(always)]
    fn fast_update_above<const ALIGNED: bool>(
        &mut self,
        fast_threshold: u64,
        address: u64,
        size: u32,
    ) -> bool {
        if self.remaining <= fast_threshold.saturating_add(1) {
            return false;
        }
        let word = self.fast_lines.word(address).load(Relaxed);
        // A read of the thread's own bytes decides no event: only another thread's writes make events for this one.
        if !self.owns(word)
            || !self.count_fast::<ALIGNED>(address, size, pages::READ + pages::WRITE)
        {
            return false;
        }
        self.remaining -= 2;
        self.read_bytes += u64::from(size);
        self.write_bytes += u64::from(size);
        if line::keeps_bytes(word) {
            self.track_fast(address, size);
        }
        true
    }

    /// [`ThreadTracer::fast`] for a sampled line.
    #[inline(always)]
    pub fn fast_sampled<const WRITE: bool>(&mut self, address: u64, size: u32) -> bool {
        let handled = self.fast_above::<WRITE, false>(self.usual_threshold, address, size);
        self.sampled += u64::from(handled);
        handled
    }

    /// [`ThreadTracer::fast_update`] for a sampled line.
    #[inline(always)]
    pub fn fast_sampled_update(&mut self, address: u64, size: u32) -> bool {
        let handled = self.fast_update_above::<false>(self.usual_threshold, address, size);
        self.sampled += 2 * u64::from(handled);
        handled
    }

    /// Adds the bytes written to the mask of their line, which has the usual size and holds all of them.
    #[inline(always)]
    fn track_fast(&mut self, address: u64, size: u32) {
        if self.engine.budget.keeps(Detail::FalseSharing) {
            let entry = self.engine.written.word(address);
            let bytes = (u64::MAX >> (64 - size)) << (address & 63);
            let before = entry.load(Relaxed);
            if before | bytes != before {
                entry.store(before | bytes, Relaxed);
            }
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

    /// Adds `amount` to the page's counter and returns true; false for an access that crosses lines or is the page's
    /// first.
    #[inline(always)]
    fn count_fast<const ALIGNED: bool>(&mut self, address: u64, size: u32, amount: u64) -> bool {
        let in_line = match ALIGNED {
            true => address & (u64::from(size) - 1) == 0,
            false => (address & (LINE - 1)) + u64::from(size) <= LINE,
        };
        if !in_line {
            std::hint::cold_path();
            return false;
        }
        let counter = self.counters.word(address);
        let count = counter.load(Relaxed);
        let fast = count != 0;
        if fast {
            counter.store(count.wrapping_add(amount), Relaxed);
        }
        fast
    }

    /// Chooses between the fast path ([`ThreadTracer::fast`]) and the slow one for every access.
    fn choose_path(&mut self) {
        let all = self.extra.is_none() && self.stream.is_none();
        let short = all && !self.paused() && self.lines.shift() == FAST_SHIFT;
        self.usual_threshold = if short { 1 } else { u64::MAX };
        if !self.pending {
            self.reset_fast_threshold();
        }
    }

    /// Sets `fast_threshold` for nothing pending. Where lines are sampled, each access must be checked first.
    fn reset_fast_threshold(&mut self) {
        self.fast_threshold = match self.partial {
            true => u64::MAX,
            false => self.usual_threshold,
        };
    }

    /// Turns sampling on (records accesses to sampled lines, or to all lines) or off (only counts accesses).
    fn set_sampling(&mut self, sampling: bool) {
        self.sample_threshold = match sampling {
            false => 0,
            // `skip` computes places for lines of the usual size only.
            true if self.lines.shift() != FAST_SHIFT => u64::MAX,
            true => self.watched.last(),
        };
        self.choose_path();
    }

    /// Whether sampling is off: the time is between two bursts.
    #[inline(always)]
    fn paused(&self) -> bool {
        self.sample_threshold == 0
    }

    /// Whether accesses to `address` are only counted.
    #[inline(always)]
    fn is_skipped(&self, address: u64) -> bool {
        self.paused() || self.partial && !self.watched.has(address)
    }

    /// Counts `accesses` and returns true if sampling is off and the quantum does not end with them.
    #[inline(always)]
    fn skip_paused(&mut self, accesses: u64) -> bool {
        let skips = self.paused() && self.remaining > accesses;
        if skips {
            self.remaining -= accesses;
        }
        skips
    }

    /// Counts an access to `address` and returns true if its line is not sampled and the quantum does not end with it.
    #[inline(always)]
    fn skip(&mut self, address: u64) -> bool {
        let skips = self.remaining > 1 && Watched::usual_place(address) > self.sample_threshold;
        if skips {
            self.remaining -= 1;
        }
        skips
    }

    /// The sampling threshold, for frontends that count skipped accesses themselves: those to lines with a larger
    /// [`Watched::usual_place`]. `None` where all accesses must be recorded.
    #[inline(always)]
    #[must_use]
    pub fn sample_threshold(&self) -> Option<u64> {
        (self.sample_threshold != u64::MAX).then_some(self.sample_threshold)
    }

    /// Accesses remaining in the quantum; such a frontend may count all but one of them.
    #[inline(always)]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Applies the count of such a frontend: `remaining` accesses are left in the quantum.
    #[inline(always)]
    pub fn skipped(&mut self, remaining: u64) {
        self.remaining = remaining;
    }

    /// Counts an access, which may end the quantum.
    #[inline(always)]
    fn tick<const RUNTIME: bool>(&mut self) {
        self.remaining -= 1;
        self.stop_clock::<RUNTIME>();
        if self.remaining == 0 {
            self.end_quantum();
        }
    }

    /// Counts an access that is not recorded. In code of a threading run-time library it still passes clocks, because
    /// threads wait for each other there.
    #[inline(always)]
    fn skip_slow<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        self.tick::<RUNTIME>();
        if RUNTIME && self.lines.word(address).load(Relaxed) & line::SYNC != 0 {
            self.pass_clock::<WRITE>(address);
        } else if RUNTIME {
            self.follow_value::<WRITE>(address, size);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_clock<const WRITE: bool>(&mut self, address: u64) {
        if WRITE {
            self.release(address);
        } else {
            self.acquire(address);
        }
    }

    /// Records an atomic load or store: marks its line as used for synchronisation, otherwise an ordinary access.
    pub fn synchronise<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        self.mark_sync(address);
        if RUNTIME {
            self.lock = address;
        }
        if self.is_skipped(address) {
            self.skip_slow::<WRITE, RUNTIME>(address, size);
            if !RUNTIME {
                self.pass_clock::<WRITE>(address);
            }
        } else {
            self.access::<WRITE, RUNTIME>(address, size);
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
            extra.access(self.engine, line::writer(self.owned), address, size);
        }
        // Line by line; nearly always there is one.
        let (mut at, end) = (address, address + u64::from(size));
        while at < end {
            let next = ((at >> self.lines.shift()) + 1) << self.lines.shift();
            let part = next.min(end) - at;
            if !self.partial || self.watched.has(at) {
                self.line::<WRITE, RUNTIME>(at, part as u32);
            }
            at = next;
        }
    }

    /// Counts an access for its page, the clock and the access trace.
    #[inline(always)]
    fn count<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if self.pending && !self.prerecording {
            self.flush_pending();
        }
        self.tick::<RUNTIME>();
        let amount = if WRITE {
            self.write_bytes += u64::from(size);
            pages::WRITE
        } else {
            self.read_bytes += u64::from(size);
            pages::READ
        };
        if self.counters.add(address, amount) == 0 {
            self.touch(address);
        }
        if let Some(stream) = &mut self.stream {
            stream.access::<WRITE>(address, size);
        }
    }

    /// Counts an access of `size` bytes at `address` that guards something outside the program's own work: for its
    /// page only. It takes no time, and is neither communication nor synchronisation.
    pub fn count_only<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if self.is_skipped(address) {
            self.flush_pending();
            self.tick::<true>();
        } else {
            self.sampled += 1;
            self.count::<WRITE, true>(address, size);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch(&mut self, address: u64) {
        self.engine.mark_if_cross_process(address);
        let word = self.engine.touched.word(address);
        if word.load(Relaxed) == 0
            && self.is_within_reach(address)
            && word
                .compare_exchange(0, u64::from(self.number) + 1, Relaxed, Relaxed)
                .is_ok()
        {
            self.first_touched
                .push((address >> PAGE_SHIFT, self.time()));
        }
    }

    /// Adds a record to those written to the journal at the end of the slice.
    pub fn record(&mut self, record: &Record) {
        record.encode(&mut self.out);
    }

    /// What this thread's next child needs to attach itself, for creators that hand it over themselves
    /// ([`Engine::attach`]). Call `creator.count_thread()` once the child exists.
    #[must_use]
    pub fn pending_thread(&mut self, routine: u64) -> PendingThread {
        self.record_creation();
        PendingThread {
            path: self.creator.upcoming_thread(),
            clock: self.time(),
            routine,
            clear_tid: 0,
        }
    }

    /// Records that this thread has created thread `tid` with start routine `routine` (0 if unknown). `clear_tid` is
    /// the address that the kernel clears and wakes at its end, or 0.
    pub fn thread_created(&mut self, tid: u32, routine: u64, clear_tid: u64) {
        self.record_creation();
        let path = self.creator.next_thread();
        let clock = self.time();
        self.engine.announce(
            tid,
            PendingThread {
                path,
                clock,
                routine,
                clear_tid,
            },
        );
    }

    fn record_creation(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.create(self.creator.threads() + 1);
        }
    }
}
