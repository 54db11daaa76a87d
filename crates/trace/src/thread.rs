//! The hot path: what one load or store of a thread costs.
//!
//! A thread's access is
//! 1. one count down to the end of its slice,
//! 2. one addition to its own page counter,
//! 3. one load of the line's word, and a test: a line that I wrote last, or have read since it was written, needs nothing.
//!
//! No atomic read-modify-write unless a line changes hands. Everything else is in the cold functions.
//!
//! # The virtual clock
//! A thread's clock counts its accesses. Where threads synchronise, the later one passes its time on: an atomic instruction or
//! a futex marks its line ([`line::SYNC`]); a write to a word of such a line leaves the writer's clock there if it is later, a read takes it.
//! So a thread that leaves a barrier, takes a lock or joins another is never earlier than what it waited for, whichever
//! thread the host ran first. Creation hands the creator's clock to the new thread.

mod blocks;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use numaloc_model::Layer;

use crate::access_trace::stream::Stream;
use crate::bursts::Watch;
use crate::common::Part;
use crate::engine::{Engine, Newborn};
use crate::extra::{Extra, layer_index};
use crate::journal::{Journal, Record};
use crate::line;
use crate::memory::Detail;
use crate::pages::{self, PAGE_SHIFT, PageCounters};
use crate::shadow::{Fixed, Shadow};
use crate::sharing::{self, Sharing};
use crate::watch::{GROUPS, Watched};

/// log2 of the usual line size: lines of another size take the longer way.
const QUICK_SHIFT: u32 = 6;
/// Most accesses between two looks at the clock: keeps page counters and wall slices honest.
const LONGEST_TURN: u64 = 1 << 31;
/// Accesses between two looks at the wall clock.
const WALL_TURN: u64 = 4096;

/// Writer ids that have a place in a table; the others (programs that create threads by the thousand) are looked up.
const NEAR: usize = 1024;

/// What a thread has read of another's writing, since it last wrote that down.
#[derive(Clone, Copy, Default)]
struct Heard {
    events: u64,
    bytes: u64,
    false_events: u64,
    false_bytes: u64,
}

/// One traced thread. Used by that thread alone.
#[repr(C)]
pub struct ThreadTracer {
    /// Accesses left until [`ThreadTracer::turn`].
    left: u64,
    /// The word of a line that this thread has just written.
    owned: u64,
    /// This thread's bit in a line's word, 0 when it has none.
    bit: u64,
    /// The fast path is for `left` above this: 1, or always less when every access is to be looked at, and while a block's
    /// accesses wait to be added up (`blocks`).
    floor: u64,
    /// The lines, if they have the usual size.
    quick: Fixed<QUICK_SHIFT>,
    /// Not everything is looked at: see `asleep` and `watched`.
    partial: bool,
    /// Between two bursts: accesses are counted, nothing else.
    asleep: bool,
    /// The lines that are looked at.
    watched: Watched,
    /// Blocks may be counted together.
    together: bool,
    /// The last block has left something to be done.
    unsettled: bool,
    /// Fast reads: `word & read_mask == read_is`. Tracked lines are no fast reads while a verdict waits ([`Sharing`]).
    read_mask: u64,
    read_is: u64,
    lines: Shadow,
    read_bytes: u64,
    write_bytes: u64,
    counters: PageCounters,
    run: blocks::Run,
    /// `floor` where no block waits.
    usual_floor: u64,
    /// Places of lines in which a verdict may wait.
    waiting: [bool; sharing::PENDING],
    pub(crate) engine: &'static Engine,
    // Everything below is cold.
    number: u32,
    /// Reader number: which bit of lines is this thread's.
    reader: u32,
    path: String,
    /// Clock (or wall time) at the end of this turn.
    turn_end: u64,
    /// `left` at the start of this turn.
    turn: u64,
    /// Accesses before this turn.
    accesses: u64,
    /// Those of them in bursts.
    seen: u64,
    /// Accesses to lines that are not watched.
    unwatched: u64,
    /// First instant of the burst that is watched, where not all is.
    burst: u64,
    /// Time, in the profile's clock, at the start of the turn; wall clock only.
    wall: u64,
    slice_start: u64,
    slice_length: u64,
    span_start: u64,
    span_length: u64,
    /// What was heard from writers below [`NEAR`], by writer id, from the others, and from whom.
    heard: Vec<Heard>,
    heard_far: HashMap<u32, Heard>,
    heard_from: Vec<u32>,
    /// Events by layer and writer id in each part of the lines watched.
    groups: BTreeMap<(u8, u32), [u64; GROUPS]>,
    sharing: Option<Box<Sharing>>,
    first_touched: Vec<(u64, u64)>,
    extra: Option<Box<Extra>>,
    /// The access trace, for which every access takes the longer way.
    stream: Option<Box<Stream>>,
    /// For memory that processes share.
    pub(crate) common: Option<Box<Part>>,
    out: Vec<u8>,
    reported: u64,
    /// Threads this thread has created.
    pub threads_created: u32,
    /// Processes this thread has created.
    pub processes_created: u32,
    /// Address that the kernel clears and wakes when the thread ends, 0 for none.
    pub clear_tid: u64,
    /// Address of the thread's first store, 0 before it.
    first_store: u64,
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
        let odd = engine.config.line_shift != QUICK_SHIFT;
        let outlet = engine.outlet.as_ref();
        let stream = outlet.and_then(|outlet| Stream::new(outlet, number, writer, &path, clock));
        let partial = engine.bursts.is_some() || engine.watched.is_some();
        let usual_floor = if extra.is_some() || odd || stream.is_some() || partial {
            u64::MAX
        } else {
            1
        };
        let mut tracer = Self {
            left: 0,
            // Read to the letter, the writer's own read comes between its write and another's read.
            owned: line::owned(writer, if engine.config.consecutive { 0 } else { bit }),
            bit,
            floor: usual_floor,
            usual_floor,
            waiting: [false; sharing::PENDING],
            // With lines of another size this looks at some word and `floor` forbids to act on it.
            quick: if odd { engine.clocks } else { engine.lines }
                .fixed()
                .expect("both have enough words"),
            partial,
            // To the letter, even a thread's reads of its own line change it.
            together: !partial && usual_floor == 1 && !engine.config.consecutive,
            unsettled: false,
            run: blocks::Run::none(),
            asleep: false,
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
            path,
            turn_end: clock,
            turn: 0,
            accesses: 0,
            seen: 0,
            unwatched: 0,
            burst: 0,
            wall: engine.wall(),
            slice_start: 0,
            slice_length: 1,
            span_start: 0,
            span_length: 1,
            heard: Vec::new(),
            heard_far: HashMap::new(),
            heard_from: Vec::new(),
            groups: BTreeMap::new(),
            sharing: None,
            first_touched: Vec::new(),
            extra,
            stream,
            common: None,
            out,
            reported: 0,
            threads_created: 0,
            processes_created: 0,
            clear_tid: 0,
            first_store: 0,
            ended: false,
        };
        let now = tracer.time();
        tracer.span_length = engine.span_length();
        tracer.span_start = now / tracer.span_length * tracer.span_length;
        tracer.begin_slice(now);
        tracer
    }

    /// Stable path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
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
        if !self.quick::<WRITE, RUNTIME>(address, size) {
            self.slow::<WRITE, RUNTIME>(address, size);
        }
    }

    /// An access that is not quick: one that is not looked at, or unusual.
    ///
    /// `extern "C"`, as `unusual`.
    #[inline(never)]
    extern "C" fn slow<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        if self.partial && self.ignores(address) {
            self.doze_through::<WRITE, RUNTIME>(address);
        } else {
            self.unusual::<WRITE, RUNTIME>(address, size);
        }
    }

    /// Counts an access if it is an ordinary one, and says whether: a line that is mine to read or write, a page counted before, in
    /// the middle of a turn. Never where not everything is looked at.
    ///
    /// Calls nothing, so that its caller needs no frame, and leaves nothing half done but a count: a signal handler may come in
    /// between.
    #[inline(always)]
    pub fn quick<const WRITE: bool, const RUNTIME: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) -> bool {
        if self.left <= self.floor {
            return false;
        }
        let word = self.quick.word(address).load(Relaxed);
        let ours = if WRITE {
            word & !line::TRACKED == self.owned
        } else {
            word & self.read_mask == self.read_is || word == 0 || self.rereads(word, address)
        };
        let amount = if WRITE { pages::WRITE } else { pages::READ };
        if !ours || !self.count_quickly(address, size, amount) {
            return false;
        }
        self.left -= 1;
        if WRITE {
            self.write_bytes += u64::from(size);
            if !RUNTIME && word & line::TRACKED != 0 {
                self.track_quickly(address, size);
            }
        } else {
            self.read_bytes += u64::from(size);
        }
        true
    }

    /// A load and a store of `size` bytes at `address`, as [`ThreadTracer::quick`].
    #[inline(always)]
    pub fn quick_update<const RUNTIME: bool>(&mut self, address: u64, size: u32) -> bool {
        let word = self.quick.word(address).load(Relaxed);
        // Reading my own bytes settles no verdict: only another thread's writes make events of mine.
        if word & !line::TRACKED != self.owned
            || self.left <= self.floor.saturating_add(1)
            || !self.count_quickly(address, size, pages::READ + pages::WRITE)
        {
            return false;
        }
        self.left -= 2;
        self.read_bytes += u64::from(size);
        self.write_bytes += u64::from(size);
        if !RUNTIME && word & line::TRACKED != 0 {
            self.track_quickly(address, size);
        }
        true
    }

    /// Keeps the bytes that were written to a line of the usual size, in which they lie.
    #[inline(always)]
    fn track_quickly(&mut self, address: u64, size: u32) {
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
        if !self.quick_update::<RUNTIME>(address, size) {
            self.slow::<false, RUNTIME>(address, size);
            self.slow::<true, RUNTIME>(address, size);
        }
    }

    /// Adds to the counter of the page if that is all there is to do: within one line, and not the page's first count.
    #[inline(always)]
    fn count_quickly(&mut self, address: u64, size: u32, amount: u64) -> bool {
        const LINE: u64 = 1 << QUICK_SHIFT;
        let counter = self.counters.word(address);
        let count = counter.load(Relaxed);
        let quick = (address & (LINE - 1)) + u64::from(size) <= LINE && count != 0;
        if quick {
            counter.store(count.wrapping_add(amount), Relaxed);
        }
        quick
    }

    /// Whether accesses to `address` are counted only.
    #[inline(always)]
    fn ignores(&self, address: u64) -> bool {
        self.asleep || !self.watched.has(address)
    }

    /// Counts `accesses` ordinary ones at `address` if nothing else is to be done with them; says whether.
    #[inline(always)]
    pub fn doze(&mut self, address: u64, accesses: u64) -> bool {
        let dozing = self.partial && self.left > accesses && self.ignores(address);
        if dozing {
            self.left -= accesses;
            self.unwatched += u64::from(!self.asleep) * accesses;
        }
        dozing
    }

    /// An access that is not looked at. The code of a threading run-time library is where threads wait for each other, so its
    /// accesses carry clocks even then.
    #[inline(always)]
    fn doze_through<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64) {
        self.unwatched += u64::from(!self.asleep);
        self.left -= 1;
        if self.left == 0 {
            self.end_turn();
        }
        if RUNTIME && self.lines.word(address).load(Relaxed) & line::SYNC != 0 {
            self.pass_clock::<WRITE>(address);
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
        if self.partial && self.ignores(address) {
            self.doze_through::<WRITE, true>(address);
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
        if self.unsettled && !self.run.ahead {
            self.settle();
        }
        self.left -= 1;
        if self.left == 0 {
            self.end_turn();
        }
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
        if !RUNTIME && let Some(extra) = &mut self.extra {
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

    #[inline(always)]
    fn line<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        let word = self.lines.word(address).load(Relaxed);
        if WRITE {
            if word == self.owned | line::TRACKED {
                if !RUNTIME {
                    self.track(address, size, false);
                }
            } else if word != self.owned {
                self.write_line::<RUNTIME>(address, word, size);
            }
        } else if word & self.bit == 0 && word != 0 {
            self.read_line::<RUNTIME>(address, word, size);
        } else if word & line::TRACKED != 0 {
            self.reread(address, size);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_line<const RUNTIME: bool>(&mut self, address: u64, word: u64, size: u32) {
        if self.first_store == 0 {
            self.first_store = address;
        }
        if line::is_common(word) {
            return self.write_common::<RUNTIME>(address, size);
        }
        if word & line::SYNC != 0 {
            self.release(address);
        }
        if RUNTIME {
            return;
        }
        if word & (line::SYNC | line::EXTENDED) == 0 {
            // A flag that another thread sets at this very moment may be lost; the next use of the line sets it again.
            let tracked = word & line::TRACKED;
            self.lines
                .word(address)
                .store(self.owned | tracked, Relaxed);
            if tracked != 0 {
                self.track(address, size, true);
            }
            return;
        }
        if word & line::EXTENDED != 0 {
            self.engine.readers.reset(address);
        }
        // Lines used for synchronisation hold no reader bits, so that every read comes here.
        let new = if word & line::SYNC != 0 {
            u64::from(line::writer(self.owned)) | line::SYNC | word & line::TRACKED
        } else {
            self.owned | word & line::TRACKED
        };
        if word != new {
            self.lines.word(address).store(new, Relaxed);
        }
        if new & line::TRACKED != 0 {
            self.track(address, size, word != new);
        }
    }

    /// Keeps the bytes written; the first write of a turn forgets those of the turn before.
    #[inline(never)]
    fn track(&mut self, address: u64, size: u32, first: bool) {
        if !self.engine.budget.keeps(Detail::FalseSharing) {
            return;
        }
        let entry = self.engine.written.word(address);
        let bytes = sharing::bytes(address, size, self.lines.shift());
        let before = if first { 0 } else { entry.load(Relaxed) };
        if first || before | bytes != before {
            entry.store(before | bytes, Relaxed);
        }
    }

    /// Whether a read uses bytes that were written in the line's present turn.
    fn overlaps(&self, address: u64, size: u32) -> bool {
        let bytes = sharing::bytes(address, size, self.lines.shift());
        self.engine.written.word(address).load(Relaxed) & bytes != 0
    }

    /// Another read of a line since it was written: the event that the first one made may turn out to be true sharing.
    #[inline(always)]
    fn reread(&mut self, address: u64, size: u32) {
        let line = address >> self.lines.shift();
        if self.sharing.as_ref().is_some_and(|s| s.waits(line)) && self.overlaps(address, size) {
            self.acquit(address);
        }
    }

    /// This thread has used bytes of the line at `address` that were written in its present turn.
    pub(crate) fn acquit(&mut self, address: u64) {
        let line = address >> self.lines.shift();
        if let Some(sharing) = &mut self.sharing
            && sharing.waits(line)
        {
            sharing.acquit(line);
            self.look_at_tracked(line);
        }
    }

    /// Whether a read, of a line that this thread has read since it was written, settles no verdict, because none waits there. Asked
    /// when reads of tracked lines are no fast reads.
    #[inline(always)]
    fn rereads(&self, word: u64, address: u64) -> bool {
        word & self.bit != 0
            && !self.waiting[sharing::place::<{ sharing::PENDING }>(address >> QUICK_SHIFT)]
    }

    /// Reads of tracked lines matter while one of this thread's events waits for its verdict.
    fn look_at_tracked(&mut self, line: u64) {
        let waits = self.sharing.as_ref().is_some_and(|s| s.any_waits());
        self.read_mask = self.bit | if waits { line::TRACKED } else { 0 };
        let place = sharing::place::<{ sharing::PENDING }>(line);
        self.waiting[place] = self.sharing.as_ref().is_some_and(|s| s.waits_at(place));
    }

    #[cold]
    #[inline(never)]
    fn read_line<const RUNTIME: bool>(&mut self, address: u64, mut word: u64, size: u32) {
        if self.run.ahead && (word & line::SYNC != 0 || line::is_common(word)) {
            self.remember(address, size);
        }
        if line::is_common(word) {
            return self.read_common::<RUNTIME>(address, size);
        }
        if word & line::SYNC != 0 {
            self.acquire(address);
        }
        let me = line::writer(self.owned);
        let consecutive = self.engine.config.consecutive;
        if RUNTIME || line::writer(word) == 0 || line::writer(word) == me && !consecutive {
            return;
        }
        let entry = self.lines.word(address);
        loop {
            let writer = line::writer(word);
            if writer == 0 || word & self.bit != 0 || writer == me && !consecutive {
                return;
            }
            let track = if self.engine.budget.keeps(Detail::FalseSharing) {
                line::TRACKED
            } else {
                0
            };
            let in_word = self.bit != 0 && word & line::SYNC == 0;
            if !in_word && !self.engine.budget.keeps(Detail::Readers) {
                return;
            }
            let new = word | track | if in_word { self.bit } else { line::EXTENDED };
            if new != word
                && let Err(now) = entry.compare_exchange_weak(word, new, Relaxed, Relaxed)
            {
                word = now;
                continue;
            }
            let first = if consecutive {
                word & (line::ALL_READERS | line::EXTENDED) == 0 && writer != me
            } else {
                in_word || self.engine.readers.mark(address, self.reader)
            };
            if first {
                self.hear(writer, address, size);
                if track != 0 {
                    let tracked = word & line::TRACKED != 0;
                    let overlaps = tracked.then(|| self.overlaps(address, size));
                    self.classify(writer, address, size, overlaps);
                }
            } else if word & line::TRACKED != 0 {
                self.reread(address, size);
            }
            return;
        }
    }

    /// Counts one event: this thread read what `writer` had written.
    pub(crate) fn hear(&mut self, writer: u32, address: u64, size: u32) {
        let cell = self.heard(writer);
        cell.events += 1;
        cell.bytes += u64::from(size);
        self.group(Layer::WriteRead, writer, address);
    }

    /// Tells true from false sharing, as far as this event lets know.
    pub(crate) fn classify(
        &mut self,
        writer: u32,
        address: u64,
        size: u32,
        overlaps: Option<bool>,
    ) {
        let line = address >> self.lines.shift();
        let sharing = self.sharing.get_or_insert_with(|| Box::new(Sharing::new()));
        // What most events are: true, and none waits in the place that they would clear.
        if overlaps == Some(true) && sharing.count_true(line) {
            return;
        }
        let found = sharing.event(line, writer, size, overlaps);
        if sharing.crowded() {
            sharing.hand_over(&mut self.engine.shared_lines(), false);
        }
        self.look_at_tracked(line);
        if let Some(found) = found {
            self.hear_false(found);
        }
    }

    fn hear_false(&mut self, found: sharing::False) {
        let sharing::False { line, writer, size } = found;
        let cell = self.heard(writer);
        cell.false_events += 1;
        cell.false_bytes += u64::from(size);
        self.group(Layer::FalseSharing, writer, line << self.lines.shift());
    }

    fn heard(&mut self, writer: u32) -> &mut Heard {
        let index = writer as usize;
        let cell = if index < NEAR {
            if index >= self.heard.len() {
                self.heard.resize(index + 1, Heard::default());
            }
            &mut self.heard[index]
        } else {
            self.heard_far.entry(writer).or_default()
        };
        if cell.events + cell.false_events == 0 {
            self.heard_from.push(writer);
        }
        cell
    }

    /// Which part of the lines watched an event belongs to.
    fn group(&mut self, layer: Layer, writer: u32, address: u64) {
        if self.engine.watched.is_some() {
            let sums = self.groups.entry((layer_index(layer), writer)).or_default();
            sums[self.watched.group(address)] += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn touch(&mut self, address: u64) {
        self.engine.notice_common(address);
        let word = self.engine.touched.word(address);
        if word.load(Relaxed) == 0
            && word
                .compare_exchange(0, u64::from(self.number) + 1, Relaxed, Relaxed)
                .is_ok()
        {
            self.first_touched
                .push((address >> PAGE_SHIFT, self.time()));
        }
    }

    /// Marks the line at `address` as used for synchronisation.
    pub fn mark_sync(&mut self, address: u64) {
        if line::is_common(self.lines.word(address).load(Relaxed)) {
            self.mark_common_sync(address);
        }
        let entry = self.lines.word(address);
        let mut word = entry.load(Relaxed);
        while word & line::SYNC == 0 {
            // Reader bits go: those who have read the present value will be counted at most once more.
            let new = u64::from(line::writer(word)) | word & line::TRACKED | line::SYNC;
            match entry.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the clock that was left at a synchronisation line, if it is later.
    pub fn acquire(&mut self, address: u64) {
        if self.engine.config.virtual_clock {
            let clock = self.clock(address).load(Relaxed);
            if clock > 0
                && let Some(stream) = &mut self.stream
            {
                stream.acquire(address, clock.saturating_sub(self.turn_end - self.left));
            }
            if clock > self.time() {
                self.advance(clock);
            }
        }
    }

    /// Leaves this thread's clock at a synchronisation line, if it is later.
    pub fn release(&mut self, address: u64) {
        if self.engine.config.virtual_clock {
            let word = self.clock(address);
            let now = self.time();
            if let Some(stream) = &mut self.stream {
                stream.release(address);
            }
            if word.load(Relaxed) < now {
                word.fetch_max(now, Relaxed);
            }
        }
    }

    /// The clock that was left at a synchronisation line.
    fn clock(&mut self, address: u64) -> &'static AtomicU64 {
        let common = match line::is_common(self.lines.word(address).load(Relaxed)) {
            true => self.common_clock(address),
            false => None,
        };
        common.unwrap_or_else(|| self.engine.clock(address))
    }

    /// Now, in the profile's clock.
    #[must_use]
    pub fn time(&self) -> u64 {
        if self.engine.config.virtual_clock {
            self.turn_end - self.left
        } else {
            self.wall
        }
    }

    fn spent(&self) -> u64 {
        self.turn - self.left
    }

    /// Accesses in bursts so far; all where there are none.
    fn seen(&self) -> u64 {
        self.seen + if self.asleep { 0 } else { self.spent() }
    }

    /// Moves the virtual clock forward without work.
    fn advance(&mut self, clock: u64) {
        self.seen = self.seen();
        self.accesses += self.spent();
        self.turn = self.left;
        self.turn_end = clock + self.left;
        if clock >= self.slice_start + self.slice_length {
            self.change_slice(clock);
        } else {
            self.begin_turn(clock);
        }
    }

    /// The turn is used up: the slice may have ended.
    #[cold]
    #[inline(never)]
    fn end_turn(&mut self) {
        self.seen = self.seen();
        self.accesses += self.turn;
        self.turn = 0;
        self.wall = self.engine.wall();
        let now = self.time();
        if now >= self.slice_start + self.slice_length {
            self.change_slice(now);
        } else {
            self.begin_turn(now);
        }
    }

    fn begin_turn(&mut self, now: u64) {
        self.turn = if self.engine.config.virtual_clock {
            (self.slice_start + self.slice_length - now).min(LONGEST_TURN)
        } else {
            WALL_TURN
        };
        if let Some(bursts) = self.engine.bursts {
            self.follow(bursts.at(now), now);
        }
        self.left = self.turn;
        self.turn_end = now + self.turn;
    }

    /// Falls asleep or wakes as the schedule says.
    fn follow(&mut self, watch: Watch, now: u64) {
        // Each burst is a sample of its own: errors are estimated from how they differ.
        if !self.asleep && (!watch.awake || watch.burst != self.burst) {
            self.flush_comm();
        }
        self.asleep = !watch.awake;
        self.burst = watch.burst;
        if self.engine.config.virtual_clock {
            self.turn = self.turn.min(watch.until - now);
        }
    }

    fn begin_slice(&mut self, now: u64) {
        self.slice_length = self.engine.slice_length(now);
        self.slice_start = now / self.slice_length * self.slice_length;
        self.begin_turn(now);
    }

    fn change_slice(&mut self, now: u64) {
        if self.engine.bursts.is_none() {
            self.flush_comm();
        }
        // Counters hold 2^32 accesses to a page.
        let crowded = self.accesses - self.reported > LONGEST_TURN / 2;
        let over = !self.engine.budget.keeps(Detail::Pages);
        if over && self.counters.counts() {
            self.flush_pages();
            self.counters = PageCounters::spoiling(&self.engine.touched);
        }
        if now >= self.span_start + self.span_length || crowded {
            self.flush_pages();
            self.span_length = self.engine.span_length();
            self.span_start = now / self.span_length * self.span_length;
        }
        self.begin_slice(now);
        self.write_out();
        if self.stream.as_ref().is_some_and(|stream| stream.closed()) {
            self.stream = None;
            let short = self.extra.is_none() && !self.partial && self.lines.shift() == QUICK_SHIFT;
            self.usual_floor = if short { 1 } else { u64::MAX };
            self.floor = self.usual_floor;
        }
    }

    fn flush_comm(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.flush(
                self.number,
                self.slice_start,
                self.slice_length,
                &mut self.out,
            );
        }
        if self.heard_from.is_empty() {
            return;
        }
        let start = match self.engine.bursts {
            Some(_) => self.burst,
            None => self.slice_start,
        };
        let (heard, far) = (&mut self.heard, &mut self.heard_far);
        self.heard_from.sort_unstable();
        let heard: Vec<(u32, Heard)> = self
            .heard_from
            .drain(..)
            .map(|writer| {
                let cell = match heard.get_mut(writer as usize) {
                    Some(cell) => std::mem::take(cell),
                    None => far.remove(&writer).unwrap_or_default(),
                };
                (writer - 1, cell)
            })
            .collect();
        let all = heard.iter().map(|(w, h)| (*w, h.events, h.bytes));
        let disjoint = heard
            .iter()
            .map(|(w, h)| (*w, h.false_events, h.false_bytes));
        for (layer, cells) in [
            (Layer::WriteRead, all.collect::<Vec<_>>()),
            (Layer::FalseSharing, disjoint.collect()),
        ] {
            let cells: Vec<_> = cells.into_iter().filter(|cell| cell.1 > 0).collect();
            if cells.is_empty() {
                continue;
            }
            Record::Comm {
                thread: self.number,
                layer: layer_index(layer),
                start,
                length: self.slice_length,
                cells,
            }
            .encode(&mut self.out);
        }
    }

    /// Counts of the parts of the lines watched.
    fn flush_groups(&mut self) {
        for ((layer, writer), counts) in std::mem::take(&mut self.groups) {
            Record::Groups {
                thread: self.number,
                layer,
                src: writer - 1,
                counts: counts.to_vec(),
            }
            .encode(&mut self.out);
        }
    }

    fn flush_pages(&mut self) {
        let before = self.out.len();
        if !self.counters.counts() {
            self.first_touched.clear();
            return;
        }
        let cells = self.counters.take();
        if !cells.is_empty() {
            Record::Pages {
                thread: self.number,
                start: self.span_start,
                length: self.span_length,
                cells,
            }
            .encode(&mut self.out);
        }
        if !self.first_touched.is_empty() {
            Record::FirstTouch {
                thread: self.number,
                cells: std::mem::take(&mut self.first_touched),
            }
            .encode(&mut self.out);
        }
        self.engine.account_pages((self.out.len() - before) as u64);
    }

    fn write_out(&mut self) {
        let accesses = self.accesses + self.spent();
        Record::ThreadTotals {
            thread: self.number,
            time: self.time(),
            accesses,
            seen: self.seen() - self.unwatched,
            read_bytes: self.read_bytes,
            write_bytes: self.write_bytes,
        }
        .encode(&mut self.out);
        self.engine.journal.append(&mut self.out);
        self.engine.report_progress(accesses - self.reported);
        self.reported = accesses;
    }

    /// Writes everything counted so far.
    pub fn flush(&mut self) {
        self.settle();
        self.flush_comm();
        self.flush_groups();
        self.flush_pages();
        self.write_out();
        if let Some(stream) = &mut self.stream {
            stream.flush();
        }
    }

    /// The thread ends: writes what it counted. `clear_tid` is the address the kernel will clear and wake, or 0.
    pub fn end(&mut self, clear_tid: u64) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.settle();
        if clear_tid != 0 {
            self.mark_sync(clear_tid);
            self.release(clear_tid);
        }
        if let Some(mut sharing) = self.sharing.take() {
            // Without masks there are no verdicts.
            if self.engine.budget.keeps(Detail::FalseSharing) {
                for found in sharing.conclude() {
                    self.hear_false(found);
                }
            }
            sharing.hand_over(&mut self.engine.shared_lines(), true);
        }
        self.flush();
        self.engine.ended(self.reader);
    }

    /// Adds a record to what this thread writes at the end of its slice.
    pub fn record(&mut self, record: &Record) {
        record.encode(&mut self.out);
    }

    /// The path of the next thread this one creates, without creating it.
    #[must_use]
    pub fn next_thread_path(&self) -> String {
        format!("{}.{}", self.path, self.threads_created + 1)
    }

    /// What the next thread that this one creates must know, for creators that hand it over
    /// themselves ([`Engine::welcome`]); add one to `threads_created` once it was created.
    #[must_use]
    pub fn newborn(&mut self, routine: u64) -> Newborn {
        self.tell_of_creation();
        Newborn {
            path: self.next_thread_path(),
            clock: self.time(),
            routine,
            clear_tid: 0,
        }
    }

    /// This thread has created thread `tid` with start routine `routine` (0 where unknown).
    /// `clear_tid` is the address the kernel will clear and wake at its end, or 0.
    pub fn thread_created(&mut self, tid: u32, routine: u64, clear_tid: u64) {
        self.tell_of_creation();
        let path = self.next_thread_path();
        self.threads_created += 1;
        let clock = self.time();
        self.engine.announce(
            tid,
            Newborn {
                path,
                clock,
                routine,
                clear_tid,
            },
        );
    }

    fn tell_of_creation(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.create(self.threads_created + 1);
        }
    }

    /// The path of the next process this thread creates.
    #[must_use]
    pub fn next_process_path(&self) -> String {
        format!("{}/{}", self.path, self.processes_created + 1)
    }
}
