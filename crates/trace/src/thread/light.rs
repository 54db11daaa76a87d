//! The light path: accesses that need more than [`ThreadTracer::fast`], recorded without calling anything.
//!
//! A frontend that runs the program on this processor stores the program's registers before it calls the tracer. Code
//! that calls nothing, allocates nothing and uses no vector register changes only a few of them, so it can be called
//! with most of the program's state in place: for accesses of run-time libraries, whose threads wait in loops of loads,
//! for atomic instructions, and for lines that change hands. Each method either does what the method named in its
//! comment does, or returns false; the caller then calls that method. Before it returns false it may already have left
//! the thread's clock at a word, which that method would do as well.
//!
//! Everything here is inlined; the frontend's test checks the code that the compiler makes of it.

mod clocks;
mod received;
mod shared;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use received::Load;

use super::{LINE, ThreadTracer, WORD};
use crate::line;
use crate::memory::Detail;
use crate::pages;

/// Most words of a string instruction that are recorded here.
const WORDS: u64 = 4096;

impl ThreadTracer {
    /// Whether `accesses` to the word of `size` bytes at `address` can be counted here: within a line, on a page
    /// touched before, with nothing pending, and without the end of the quantum.
    #[inline(always)]
    fn is_light<const WRITE: bool>(&self, accesses: u64, address: u64, size: u32) -> bool {
        let counted = self.fast.pages.word(address).load(Relaxed) != 0;
        self.fast.remaining > self.fast.threshold.saturating_add(accesses)
            && (address & (LINE - 1)) + u64::from(size) <= LINE
            && (counted || self.touches_again(address))
            && (counted && !WRITE || self.engine.is_settled::<WRITE>(address))
    }

    /// Whether a page, not counted since the last span, needs nothing but its count if the access is no fault.
    #[inline(always)]
    fn touches_again(&self, address: u64) -> bool {
        self.pages.counters.is_found(address) && !self.engine.any_written()
    }

    /// Counts a load, or store, for its page, the clock and the bytes, as `count` does.
    #[inline(always)]
    fn light_count<const WRITE: bool, const RUNTIME: bool>(&mut self, address: u64, size: u32) {
        self.fast.remaining -= 1;
        if RUNTIME {
            self.clock.take_back();
        }
        let counter = self.fast.pages.word(address);
        let amount = match WRITE {
            true => pages::WRITE,
            false => pages::READ,
        };
        let counted = pages::marked(counter.load(Relaxed), amount);
        counter.store(counted, Relaxed);
        match WRITE {
            true => self.fast.write_bytes += u64::from(size),
            false => self.fast.read_bytes += u64::from(size),
        }
    }

    /// A load by the code of a run-time library: [`ThreadTracer::access`].
    #[inline(always)]
    pub fn light_runtime_load(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        let paused = self.light_paused(1, address, size);
        if !paused && !self.is_light::<false>(1, address, size) || line::is_cross_process(word) {
            return false;
        }
        self.light_runtime_loaded(word, paused, address, size)
    }

    /// [`ThreadTracer::light_runtime_load`] from a line with this `word`, if there is room. `paused`: sampling is off.
    #[inline(always)]
    fn light_runtime_loaded(&mut self, word: u64, paused: bool, address: u64, size: u32) -> bool {
        if word & line::SYNC != 0 {
            if self.engine.config.virtual_clock {
                let clock = self.engine.clock(address);
                match self.light_clock(clock) {
                    Some(clock) => {
                        let begins = self.begins_interval::<true>(address, clock);
                        self.light_acquired(address, clock, begins);
                    }
                    None => return false,
                }
            }
            self.store_recorded();
        } else {
            let rereads = word & self.bit != 0;
            if !paused && rereads && !self.is_quiet(word, address, size) {
                return false;
            }
            if self.carries_clock::<false>(address, size, word) {
                match self.light_clock(self.engine.tables.clocks.word(address)) {
                    Some(clock) if clock > self.time() => self.light_move(clock),
                    Some(_) => {}
                    None => return false,
                }
            }
        }
        self.light_count_unless::<false, true>(paused, address, size);
        true
    }

    /// Counts a load, or store, as `count` does, or if sampling is off (`paused`) as `skip_slow`.
    #[inline(always)]
    fn light_count_unless<const WRITE: bool, const RUNTIME: bool>(
        &mut self,
        paused: bool,
        address: u64,
        size: u32,
    ) {
        if !paused {
            return self.light_count::<WRITE, RUNTIME>(address, size);
        }
        self.fast.remaining -= 1;
        if RUNTIME {
            self.clock.take_back();
        }
    }

    /// Whether sampling is off, and `accesses` to a word within a line may only be counted.
    #[inline(always)]
    fn light_paused(&self, accesses: u64, address: u64, size: u32) -> bool {
        self.sampler.paused()
            && self.stream.is_none()
            && self.fast.remaining > accesses
            && (address & (LINE - 1)) + u64::from(size) <= LINE
    }

    /// Whether `accesses`, with a store among them, to a word on a line with this `word` can be recorded here, and
    /// whether sampling is off. `PLAIN_RUNTIME`: by a run-time library, not atomically.
    #[inline(always)]
    fn light_stores<const PLAIN_RUNTIME: bool>(
        &self,
        accesses: u64,
        word: u64,
        address: u64,
        size: u32,
    ) -> (bool, bool) {
        let paused = self.light_paused(accesses, address, size);
        let recorded = self.is_light::<true>(accesses, address, size) && self.first_store() != 0;
        let ends = !PLAIN_RUNTIME || self.ends_interval::<true>(address);
        let ends_interval = word & line::SYNC != 0 && self.contention.is_open() && ends;
        (
            (paused || recorded) && !line::is_cross_process(word) && !ends_interval,
            paused,
        )
    }

    /// A store by the code of a run-time library, and [`ThreadTracer::store_recorded`].
    #[inline(always)]
    pub fn light_runtime_store(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        let (light, paused) = self.light_stores::<true>(1, word, address, size);
        if light {
            self.light_runtime_stored(word, paused, address, size);
        }
        light
    }

    /// A load and a store by one instruction of a run-time library: [`ThreadTracer::access`], twice, and
    /// [`ThreadTracer::store_recorded`].
    #[inline(always)]
    pub fn light_runtime_update(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        let (light, paused) = self.light_stores::<true>(2, word, address, size);
        let light = light && self.light_runtime_loaded(word, paused, address, size);
        if light {
            self.light_runtime_stored(word, paused, address, size);
        }
        light
    }

    /// [`ThreadTracer::light_runtime_store`] to a line with this `word`, if there is room.
    #[inline(always)]
    fn light_runtime_stored(&mut self, word: u64, paused: bool, address: u64, size: u32) {
        self.light_count_unless::<true, true>(paused, address, size);
        if word & line::SYNC != 0 {
            let ends = self.ends_interval::<true>(address);
            self.light_release(address, ends);
        } else if self.carries_clock::<true>(address, size, word) {
            let now = self.time();
            self.engine.tables.clocks.word(address).store(now, Relaxed);
        }
        self.store_recorded();
    }

    /// An atomic load and store by the allocator: [`ThreadTracer::count_only`], twice.
    #[inline(always)]
    pub fn light_allocator(&mut self, address: u64, size: u32) -> bool {
        let paused = self.light_paused(2, address, size) && !self.batch.pending;
        let light = paused || self.is_light::<true>(2, address, size);
        if light {
            self.light_count_unless::<false, true>(paused, address, size);
            self.store_recorded();
            self.light_count_unless::<true, true>(paused, address, size);
        }
        light
    }

    /// A load by the program, of a line that another thread has written as before, or that needs no event:
    /// [`ThreadTracer::access`].
    #[inline(always)]
    pub fn light_load(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        let words = u64::from(size).div_ceil(WORD);
        if word & line::SYNC != 0 {
            self.prefetch_synchronising(address);
        }
        if !self.is_light::<false>(words, address, size) {
            return false;
        }
        // Only the first word of a wider load makes the event; the others may decide it.
        let load = match words {
            _ if line::is_cross_process(word) => {
                self.is_quiet_across(address, size).then_some(Load::Quiet)
            }
            1 => self.light_event(word, address, size),
            _ => (self.is_known(word) && self.is_quiet(word, address, size)).then_some(Load::Quiet),
        };
        let Some(load) = load else { return false };
        let mut clock = None;
        let synchronises = word & line::SYNC != 0 && !line::is_cross_process(word);
        if synchronises && !self.light_own(word, address) {
            if !self.engine.config.virtual_clock {
                return false;
            }
            clock = self.light_clock(self.engine.clock(address));
            if clock.is_none() {
                return false;
            }
        }
        if let Load::Event { overlaps } = load {
            if !self.light_read(word, address) {
                return false;
            }
            self.light_received(word, address, size, overlaps);
        }
        self.fast.remaining -= words - 1;
        let counter = self.fast.pages.word(address);
        let more = pages::READ * (words - 1);
        counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
        self.light_count::<false, false>(address, size);
        if let Some(clock) = clock {
            let begins = self.begins_interval::<false>(address, clock);
            self.light_acquired(address, clock, begins);
        }
        true
    }

    /// Whether a line with this `word` was never written, or not since this thread read it.
    #[inline(always)]
    fn is_known(&self, word: u64) -> bool {
        word & self.bit != 0 || word == 0
    }

    /// A store by the program, to a line that the thread takes or owns: [`ThreadTracer::access`].
    #[inline(always)]
    pub fn light_store(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        let words = u64::from(size).div_ceil(WORD);
        if !self.is_light::<true>(words, address, size) {
            return false;
        }
        if word & line::SYNC != 0 && !line::is_cross_process(word) {
            return words == 1 && self.light_own_store(word, address, size);
        }
        if self.takes(word) {
            self.light_take(word, address, size);
        } else if !line::is_cross_process(word) || !self.light_rewrite_across(address, size) {
            return false;
        }
        self.fast.remaining -= words - 1;
        let counter = self.fast.pages.word(address);
        let more = pages::WRITE * (words - 1);
        counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
        self.light_count::<true, false>(address, size);
        true
    }

    /// A load and a store by the program, not atomically: [`ThreadTracer::update`].
    #[inline(always)]
    pub fn light_update(&mut self, address: u64, size: u32) -> bool {
        let word = self.lines.word(address).load(Relaxed);
        if size <= WORD as u32 && word & line::SYNC != 0 && !line::is_cross_process(word) {
            return self.light_own_update(word, address, size);
        }
        if size > WORD as u32 || !self.is_light::<true>(2, address, size) || !self.takes(word) {
            return false;
        }
        if !self.fast.owns(word) {
            match self.light_event(word, address, size) {
                Some(Load::Quiet) => {}
                Some(Load::Event { overlaps }) if self.light_read(word, address) => {
                    self.light_received(word, address, size, overlaps);
                }
                _ => return false,
            }
        }
        self.light_count::<false, false>(address, size);
        self.light_take(word, address, size);
        self.light_count::<true, false>(address, size);
        true
    }

    /// Whole words of a string instruction, `words` each at the addresses in `loads` and `stores`: what
    /// [`ThreadTracer::recorded_loop`] does where no line and no page changes its state.
    #[inline(always)]
    pub fn light_words(&mut self, loads: Option<u64>, stores: Option<u64>, words: u64) -> bool {
        let accesses = words * (u64::from(loads.is_some()) + u64::from(stores.is_some()));
        if self.sampler.paused() && self.stream.is_none() && !self.batch.pending {
            let light = self.fast.remaining > accesses;
            if light {
                self.fast.remaining -= accesses;
            }
            return light;
        }
        if words > WORDS || self.fast.remaining <= self.fast.threshold.saturating_add(accesses) {
            return false;
        }
        if let Some(at) = loads
            && !self.are_plain::<false>(at, words)
        {
            return false;
        }
        if let Some(at) = stores
            && !self.are_plain::<true>(at, words)
        {
            return false;
        }
        self.fast.remaining -= accesses;
        if let Some(at) = loads {
            self.count_words(at, words, pages::READ);
            self.fast.read_bytes += WORD * words;
        }
        // As in `light_event`.
        compiler_fence(SeqCst);
        if let Some(at) = stores {
            self.count_words(at, words, pages::WRITE);
            self.fast.write_bytes += WORD * words;
        }
        true
    }

    /// Loads, or stores, of the bytes at `address` whose bits are set in `selected`: one access for each word from the
    /// first of them on, as [`ThreadTracer::access`] records them where no line and no page changes its state.
    #[inline(always)]
    pub fn light_selected<const WRITE: bool>(&mut self, address: u64, selected: u64) -> bool {
        const PAGE: u64 = 1 << pages::PAGE_SHIFT;
        let paused = self.sampler.paused() && self.stream.is_none() && !self.batch.pending;
        let (mut words, mut bytes, mut rest) = (0, 0, selected);
        while rest != 0 {
            let first = u64::from(rest.trailing_zeros());
            let here = rest & 0xff << first;
            let len = 64 - u64::from(here.leading_zeros()) - first;
            let at = address.wrapping_add(first);
            // A word may lie on two lines.
            let plain = |at: u64| {
                let word = self.fast.lines.word(at).load(Relaxed);
                self.fast.is_plain_word::<WRITE>(word)
            };
            let light = paused || plain(at) && plain(at.wrapping_add(len - 1));
            if !light {
                return false;
            }
            words += 1;
            bytes += len;
            rest &= !here;
        }
        if paused {
            let light = self.fast.remaining > words;
            if light {
                self.fast.remaining -= words;
            }
            return light;
        }
        let counter = self.fast.pages.word(address);
        let count = counter.load(Relaxed);
        if count == 0
            || (address & (PAGE - 1)) + 64 > PAGE
            || self.fast.remaining <= self.fast.threshold.saturating_add(words)
        {
            return false;
        }
        self.fast.remaining -= words;
        if WRITE {
            counter.store(count.wrapping_add(words * pages::WRITE), Relaxed);
            self.fast.write_bytes += bytes;
        } else {
            counter.store(count.wrapping_add(words * pages::READ), Relaxed);
            self.fast.read_bytes += bytes;
        }
        true
    }

    /// Whether loads, or stores, of these words leave all lines as they are, on pages counted before.
    #[inline(always)]
    fn are_plain<const WRITE: bool>(&self, start: u64, words: u64) -> bool {
        let end = start.saturating_add(WORD * words);
        let mut at = start;
        while at < end {
            let word = self.fast.lines.word(at).load(Relaxed);
            let counted = self.fast.pages.word(at).load(Relaxed) != 0;
            if !counted || !self.fast.is_plain_word::<WRITE>(word) {
                return false;
            }
            at = (at | (LINE - 1)) + 1;
        }
        true
    }

    /// Adds `amount` for each word to the counters of their pages.
    #[inline(always)]
    fn count_words(&mut self, start: u64, words: u64, amount: u64) {
        const PAGE: u64 = 1 << pages::PAGE_SHIFT;
        let end = start.saturating_add(WORD * words);
        let mut at = start;
        while at < end {
            let next = ((at | (PAGE - 1)) + 1).min(end);
            let counter = self.fast.pages.word(at);
            let more = amount.wrapping_mul((next - at) / WORD);
            counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
            at = next;
        }
    }

    /// Whether a store to a line with this `word` only makes it the thread's own.
    #[inline(always)]
    fn takes(&self, word: u64) -> bool {
        word & (line::SYNC | line::EXTENDED) == 0
            && !line::is_cross_process(word)
            && self.first_store() != 0
    }

    /// Applies a store of `size` bytes to a line with this `word`, as [`ThreadTracer::write_line`] does.
    #[inline(always)]
    fn light_take(&mut self, word: u64, address: u64, size: u32) {
        let owned = self.fast.owns(word);
        let tracked = word & line::TRACKED;
        if !owned {
            let now = self.fast.owned | tracked;
            self.lines.word(address).store(now, Relaxed);
            self.keep_store(address);
        }
        let full = owned && word & line::FULL != 0;
        if tracked != 0 && !full {
            self.light_track(address, size, !owned);
        }
    }

    /// [`ThreadTracer::track`].
    #[inline(always)]
    fn light_track(&mut self, address: u64, size: u32, first: bool) {
        if self.engine.budget.keeps(Detail::FalseSharing) {
            let bytes = (u64::MAX >> (LINE - u64::from(size))) << (address & (LINE - 1));
            let entry = self.engine.tables.written.word(address);
            let before = if first { 0 } else { entry.load(Relaxed) };
            entry.store(before | bytes, Relaxed);
        }
    }
}
