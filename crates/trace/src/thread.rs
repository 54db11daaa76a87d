//! The hot path: what one load or store of a thread costs.
//!
//! A thread's access is
//! 1. one count down to the end of its slice,
//! 2. one addition to its own page counter,
//! 3. one load of the line's word, and a test: a line that I wrote last, or have read since it was written, needs nothing.
//!
//! No atomic read-modify-write unless a line changes hands. Everything else is in the cold functions: `lines` for lines that change
//! hands, `clock` for turns and slices, `written` for what goes to the journal, `values` for what libgomp writes and reads,
//! `blocks`, `runs` and `loops` for accesses that are recorded together, `strings` for string instructions.
//!
//! # The virtual clock
//! A thread's clock counts its accesses, but for those of run-time libraries that run threads: how many they make depends on how long
//! the host lets a thread wait. Where threads synchronise, the later one passes its time on: an atomic instruction or
//! a futex marks its line ([`line::SYNC`]); a write to a word of such a line leaves the writer's clock there if it is later, a read takes it.
//! So a thread that leaves a barrier, takes a lock or joins another is never earlier than what it waited for, whichever
//! thread the host ran first, and even where a store is told only after others may have seen it (`underway`). Creation hands the
//! creator's clock to the new thread.

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
/// Most accesses between two looks at the clock: keeps page counters and wall slices honest.
const LONGEST_QUANTUM: u64 = 1 << 31;
/// Accesses between two looks at the wall clock.
const WALL_QUANTUM: u64 = 4096;

/// Writer ids that have a place in a table; the others (programs that create threads by the thousand) are looked up.
const NEAR: usize = 1024;

/// What a thread has read of another's writing, since it last wrote that down.
#[derive(Clone, Copy, Default)]
struct Received {
    events: u64,
    bytes: u64,
    false_events: u64,
    false_bytes: u64,
}

/// One traced thread. Used by that thread alone. What every access needs comes first, in two lines.
#[repr(C, align(64))]
pub struct ThreadTracer {
    /// Accesses left until [`ThreadTracer::quantum`].
    remaining: u64,
    /// The word of a line that this thread has just written.
    owned: u64,
    /// This thread's bit in a line's word, 0 when it has none.
    bit: u64,
    /// The fast path is for `remaining` above this: 1, or always less when every access is to be looked at, and while a block's
    /// accesses wait to be added up (`runs`).
    fast_threshold: u64,
    /// Accesses to lines whose place ([`Watched::place`]) is above this are counted, nothing else: 0 between two bursts, and never any
    /// where all lines are looked at.
    sample_threshold: u64,
    /// The lines, if they have the usual size.
    fast_lines: Fixed<FAST_SHIFT>,
    /// Fast reads: `word & read_mask == read_is`. Tracked lines are no fast reads while a verdict waits ([`Sharing`]).
    read_mask: u64,
    read_is: u64,
    counters: PageCounters,
    read_bytes: u64,
    write_bytes: u64,
    /// Not all lines are looked at: see `watched`.
    partial: bool,
    /// The lines that are looked at.
    watched: Watched,
    /// Blocks may be counted together.
    together: bool,
    /// The last block has left something to be done.
    pending: bool,
    lines: Shadow,
    run: runs::Run,
    /// What string instructions have loaded, and stored, in the word they are in.
    strings: [strings::Piece; 2],
    /// Loads that were told before they were made, from lines used for synchronisation.
    prerecorded: Vec<(u64, u32)>,
    /// Loads are being told before they are made.
    prerecording: bool,
    /// The loop that is being told: see [`loops`].
    predicted: loops::Predicted,
    /// `fast_threshold` where no block waits, for lines that are looked at.
    usual_threshold: u64,
    /// Places of lines in which a verdict may wait.
    waiting: [bool; sharing::PENDING],
    pub(crate) engine: &'static Engine,
    // Everything below is cold.
    number: u32,
    /// Reader number: which bit of lines is this thread's.
    reader: u32,
    /// Clock (or wall time) at the end of this turn.
    quantum_end: u64,
    /// `remaining` at the start of this turn.
    quantum: u64,
    /// Accesses before this turn.
    accesses: u64,
    /// Those of them in bursts.
    seen: u64,
    /// Accesses to lines that are watched, where not all are.
    sampled: u64,
    /// First instant of the burst that is watched, where not all is.
    burst: u64,
    /// Time, in the profile's clock, at the start of the turn; wall clock only.
    wall: u64,
    slice_start: u64,
    slice_length: u64,
    span_start: u64,
    span_length: u64,
    /// What was heard from writers below [`NEAR`], by writer id, from the others, and from whom.
    received: Vec<Received>,
    received_far: HashMap<u32, Received>,
    received_from: Vec<u32>,
    /// Events by layer and writer id in each part of the lines watched.
    groups: BTreeMap<(u8, u32), [u64; GROUPS]>,
    sharing: Option<Box<Sharing>>,
    first_touched: Vec<(u64, u64)>,
    extra: Option<Box<Extra>>,
    /// The access trace, for which every access takes the longer way.
    stream: Option<Box<Stream>>,
    /// For memory that processes share.
    pub(crate) cross_process: Option<Box<Part>>,
    out: Vec<u8>,
    reported: u64,
    /// Its path, and what it has created.
    pub creator: Creator,
    /// Address that the kernel clears and wakes when the thread ends, 0 for none.
    pub clear_tid: u64,
    /// Address of the thread's first store, 0 before it.
    first_store: u64,
    /// Stores that were announced, and whether the last of them has not been told.
    announced: u64,
    underway: bool,
    /// The word that it changed last by an atomic instruction of a run-time library.
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
            // Read to the letter, the writer's own read comes between its write and another's read.
            owned: line::owned(writer, if engine.config.consecutive { 0 } else { bit }),
            bit,
            fast_threshold: u64::MAX,
            usual_threshold: u64::MAX,
            waiting: [false; sharing::PENDING],
            // With lines of another size this looks at some word and `fast_threshold` forbids to act on it.
            fast_lines: if odd { engine.clocks } else { engine.lines }
                .fixed()
                .expect("both have enough words"),
            partial,
            // To the letter, even a thread's reads of its own line change it.
            together: !odd && extra.is_none() && stream.is_none() && !engine.config.consecutive,
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
            // Without a bit of its own a thread has no fast reads: no word looks like this.
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

    /// Stable path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.creator.path()
    }

    /// Address of the thread's first store, 0 when it has stored nothing.
    #[must_use]
    pub fn first_store(&self) -> u64 {
        self.first_store
    }

    /// Number in this process's journal.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// One load (`WRITE` false) or store of `size` bytes at `address`.
    ///
    /// With `RUNTIME` the instruction belongs to a threading run-time library: its accesses count for pages and carry clocks,
    /// but are no communication of the program.
    #[inline(always)]
    pub fn access<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        // Everything ordinary is decided before anything is changed, so that the rest is one tail call.
        let handled = !RUNTIME && (self.fast::<WRITE, false>(address, size) || self.skip(address));
        if !handled {
            self.slow::<WRITE, RUNTIME>(address, size);
        }
    }

    /// An access that is neither [`ThreadTracer::fast`] nor to be dozed through: to a line that is watched where others are not, or
    /// unusual.
    ///
    /// `extern "C"`, as `unusual`.
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

    /// An access to a line that is watched where others are not.
    #[inline(always)]
    fn sampled_access<const WRITE: bool>(&mut self, address: u64, size: u32) {
        if self.pending || !self.fast_sampled::<WRITE>(address, size) {
            self.sampled += 1;
            self.unusual::<WRITE, false>(address, size);
        }
    }

    /// Counts an access if it is an ordinary one, and says whether: a line that is mine to read or write, a page counted before, in
    /// the middle of a turn. Never where not everything is looked at, nor for run-time libraries, whose accesses carry clocks.
    ///
    /// Calls nothing, so that its caller needs no frame, and leaves nothing half done but a count: a signal handler may come in
    /// between.
    ///
    /// `ALIGNED` where the address is a multiple of the size, a power of two: asked with fewer instructions, others are not quick.
    #[inline(always)]
    pub fn fast<const WRITE: bool, const ALIGNED: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) -> bool {
        self.fast_above::<WRITE, ALIGNED>(self.fast_threshold, address, size)
    }

    /// [`ThreadTracer::fast`] for another `fast_threshold`.
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

    /// Whether a line, whose word is `word`, was never written, or is read again ([`ThreadTracer::rereads`]).
    #[inline(always)]
    fn is_new_or_reread(&self, word: u64, address: u64) -> bool {
        // Asked last: most lines that a program reads somebody has written.
        std::hint::cold_path();
        word == 0 || self.rereads(word, address)
    }

    /// A load and a store of `size` bytes at `address`, as [`ThreadTracer::fast`].
    #[inline(always)]
    pub fn fast_update<const ALIGNED: bool>(&mut self, address: u64, size: u32) -> bool {
        self.fast_update_above::<ALIGNED>(self.fast_threshold, address, size)
    }

    /// [`ThreadTracer::fast_update`] for another `fast_threshold`.
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
        // Reading my own bytes settles no verdict: only another thread's writes make events of mine.
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

    /// [`ThreadTracer::fast`] for a line that is watched where others are not.
    #[inline(always)]
    pub fn fast_sampled<const WRITE: bool>(&mut self, address: u64, size: u32) -> bool {
        let handled = self.fast_above::<WRITE, false>(self.usual_threshold, address, size);
        self.sampled += u64::from(handled);
        handled
    }

    /// [`ThreadTracer::fast_update`] for such a line.
    #[inline(always)]
    pub fn fast_sampled_update(&mut self, address: u64, size: u32) -> bool {
        let handled = self.fast_update_above::<false>(self.usual_threshold, address, size);
        self.sampled += 2 * u64::from(handled);
        handled
    }

    /// Keeps the bytes that were written to a line of the usual size, in which they lie.
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

    /// One instruction that loads, changes and stores `size` bytes at `address`, not atomically.
    #[inline(always)]
    pub fn update<const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if RUNTIME || !self.fast_update::<false>(address, size) {
            self.slow::<false, RUNTIME>(address, size);
            self.slow::<true, RUNTIME>(address, size);
        }
    }

    /// Adds to the counter of the page if that is all there is to do: within one line, and not the page's first count.
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

    /// Chooses between the short way, by [`ThreadTracer::fast`], and the longer one that looks at every access.
    fn choose_path(&mut self) {
        let all = self.extra.is_none() && self.stream.is_none();
        let short = all && !self.paused() && self.lines.shift() == FAST_SHIFT;
        self.usual_threshold = if short { 1 } else { u64::MAX };
        if !self.pending {
            self.reset_fast_threshold();
        }
    }

    /// No block waits. Where some lines only are looked at, every access is asked about first.
    fn reset_fast_threshold(&mut self) {
        self.fast_threshold = match self.partial {
            true => u64::MAX,
            false => self.usual_threshold,
        };
    }

    /// Looks at nothing, or at the lines that are watched.
    fn set_sampling(&mut self, sampling: bool) {
        self.sample_threshold = match sampling {
            false => 0,
            // Places of lines of another size are not where `skip` looks for them.
            true if self.lines.shift() != FAST_SHIFT => u64::MAX,
            true => self.watched.last(),
        };
        self.choose_path();
    }

    /// Whether this is between two bursts.
    #[inline(always)]
    fn paused(&self) -> bool {
        self.sample_threshold == 0
    }

    /// Whether accesses to `address` are counted only.
    #[inline(always)]
    fn is_skipped(&self, address: u64) -> bool {
        self.paused() || self.partial && !self.watched.has(address)
    }

    /// Counts `accesses` if this is between two bursts, and for at least one more; says whether.
    #[inline(always)]
    fn skip_paused(&mut self, accesses: u64) -> bool {
        let skips = self.paused() && self.remaining > accesses;
        if skips {
            self.remaining -= accesses;
        }
        skips
    }

    /// Counts an access to `address` if it is not looked at, and not the last of its turn; says whether.
    #[inline(always)]
    fn skip(&mut self, address: u64) -> bool {
        let skips = self.remaining > 1 && Watched::usual_place(address) > self.sample_threshold;
        if skips {
            self.remaining -= 1;
        }
        skips
    }

    /// For frontends that count accesses that are not looked at themselves: those to lines whose [`Watched::usual_place`] is above this.
    /// Nothing where all accesses are to be told.
    #[inline(always)]
    #[must_use]
    pub fn sample_threshold(&self) -> Option<u64> {
        (self.sample_threshold != u64::MAX).then_some(self.sample_threshold)
    }

    /// So many accesses such a frontend may count but one.
    #[inline(always)]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Such a frontend has counted all but `remaining` of them.
    #[inline(always)]
    pub fn skipped(&mut self, remaining: u64) {
        self.remaining = remaining;
    }

    /// Counts an access, which may be the last of its turn.
    #[inline(always)]
    fn tick<const RUNTIME: bool>(&mut self) {
        self.remaining -= 1;
        self.stop_clock::<RUNTIME>();
        if self.remaining == 0 {
            self.end_quantum();
        }
    }

    /// An access that is not looked at. The code of a threading run-time library is where threads wait for each other, so its
    /// accesses carry clocks even then.
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

    /// An atomic load or store: marks the word as used for synchronisation, and is an access like any other.
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

    /// An access that ends a turn, touches a page for the first time in a while, crosses lines, or finds a line in other hands.
    ///
    /// `extern "C"`, which never unwinds, so that callers from C need no landing pad around it.
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
        // Line by line, of which there is one almost always.
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

    /// An access for its page, its time and the access trace.
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

    /// An access of `size` bytes at `address` by which threads exclude each other from what is none of the program's: it counts for its
    /// page, takes no time, and is neither communication nor synchronisation.
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

    /// Adds a record to what this thread writes at the end of its slice.
    pub fn record(&mut self, record: &Record) {
        record.encode(&mut self.out);
    }

    /// What the next thread that this one creates must know, for creators that hand it over
    /// themselves ([`Engine::attach`]); count it with `creator.next_thread()` once it was created.
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

    /// This thread has created thread `tid` with start routine `routine` (0 where unknown).
    /// `clear_tid` is the address the kernel will clear and wake at its end, or 0.
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
