//! Runs: up to [`LONGEST`] iterations of a repeating block that are at first only counted.
//!
//! Whatever the thread does next flushes the run: its accesses are added, by page where they go through memory in
//! order and otherwise by line. During a run the threshold forbids the fast path, so that no access overtakes it.
//! Groups that share no line are added one after the other: times of first touches and the order of events may be off
//! by a run.

// The `N` arrays are parallel: loops over the group's index read better than zipped iterators.
#![allow(clippy::needless_range_loop)]

use std::sync::atomic::Ordering::Relaxed;

use super::{LINE, ThreadTracer};
use crate::block::{Block, Group, INLINE_GROUPS, Kind, REGISTERS};
use crate::line;
use crate::pages::{self, PAGE_SHIFT};

/// Most iterations in a run: the words of a page.
pub(super) const LONGEST: u64 = 512;
/// Most iterations in a run where the quantum ends before [`LONGEST`].
const SHORT: u64 = 32;
/// Iterations of a run that are added together where its groups share lines.
const PART: u64 = 64;
const PAGE: u64 = 1 << PAGE_SHIFT;

/// Counts the iterations of a run for the frontend, with as few instructions as possible: in machine code that calls
/// nothing, or in the emulated program itself.
///
/// Called by the traced thread itself; a run ends before the next one begins.
pub trait Pace: Send {
    /// Begins a run of `block`: up to `more` iterations may follow that are not reported to the tracer.
    fn begin(&mut self, block: &'static Block, more: u64);
    /// Ends the run; returns how many of `more` iterations did not come.
    fn end(&mut self) -> u64;
}

/// A run: iterations of a repeating block whose accesses are not counted yet.
pub(super) struct Run {
    block: Option<&'static Block>,
    /// `None` where there are no runs.
    pace: Option<Box<dyn Pace>>,
    /// Most iterations of this run.
    longest: u64,
    /// Addresses of the groups in the first iteration.
    at: [u64; INLINE_GROUPS],
    /// Bytes that an iteration moves each group, modulo 2^64.
    strides: [u64; INLINE_GROUPS],
    /// Adds the given number of iterations.
    add_up: fn(&mut ThreadTracer, &'static Block, u64),
}

impl Run {
    pub(super) fn none() -> Self {
        Self {
            block: None,
            pace: None,
            longest: 0,
            at: [0; INLINE_GROUPS],
            strides: [0; INLINE_GROUPS],
            add_up: |_, _, _| {},
        }
    }
}

impl ThreadTracer {
    /// Enables runs for this thread, counted by `pace`.
    pub fn set_pace(&mut self, pace: Box<dyn Pace>) {
        self.batch.run.pace = Some(pace);
    }

    /// Adds the accesses of the run, if there is one.
    pub(super) fn flush_run(&mut self) {
        if let (Some(block), Some(pace)) = (self.batch.run.block.take(), &mut self.batch.run.pace) {
            let times = self.batch.run.longest - pace.end();
            (self.batch.run.add_up)(self, block, times);
        }
    }

    /// Records an iteration of a repeating `block` that [`Pace`] has not counted, and begins a run with it if
    /// possible. The iteration begins with `registers` and has not made its accesses yet.
    ///
    /// `N` is the number of groups of the block's [`crate::block::Shape`].
    ///
    /// `extern "C"`, like what follows: it never unwinds, so that callers from C need no landing pad.
    #[inline(never)]
    pub extern "C" fn iteration<const N: usize>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        self.flush_pending();
        let groups = block.groups::<N>();
        let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
        let paused = self.sampler.paused();
        let fits = |longest: &u64| self.has_room(block.accesses * longest);
        let longest = [LONGEST, SHORT].into_iter().find(fits);
        // Synchronisation must be recorded as it happens.
        let longest = longest.filter(|_| paused || !self.any_synchronises(&at));
        let (Some(longest), Some(pace)) = (longest, &mut self.batch.run.pace) else {
            self.small_block::<N>(block, registers);
            return;
        };
        pace.begin(block, longest - 1);
        self.batch.run.block = Some(block);
        self.batch.run.longest = longest;
        for (group, stride) in groups.iter().zip(&mut self.batch.run.strides) {
            *stride = group.stride(registers);
        }
        self.batch.run.at[..N].copy_from_slice(&at);
        self.batch.run.add_up = match paused {
            true => Self::end_paused_run,
            false => Self::end_run::<N>,
        };
        self.set_pending();
    }

    /// Adds a run of `times` iterations while sampling is off.
    fn end_paused_run(&mut self, block: &'static Block, times: u64) {
        self.fast.remaining -= block.accesses * times;
    }

    /// Adds a run of `times` iterations.
    fn end_run<const N: usize>(&mut self, block: &'static Block, times: u64) {
        let at: [u64; N] = std::array::from_fn(|group| self.batch.run.at[group]);
        let strides: [u64; N] = std::array::from_fn(|group| self.batch.run.strides[group]);
        self.add_run(block, at, &strides, times);
    }

    /// Adds `times` iterations of `block`; its groups begin at `at` and move by `strides`.
    pub(super) fn add_run<const N: usize>(
        &mut self,
        block: &Block,
        mut at: [u64; N],
        strides: &[u64; N],
        mut times: u64,
    ) {
        let groups = block.groups::<N>();
        let mut rest = times;
        while rest > 0 {
            if !self.add_apart(block, groups, &at, strides, times) {
                if times > PART {
                    times = PART;
                    continue;
                }
                self.add_mixed(block, groups, at, strides, times);
            }
            for group in 0..N {
                at[group] = at[group].wrapping_add(strides[group].wrapping_mul(times));
            }
            rest -= times;
            times = rest.min(PART);
        }
    }

    /// Adds `times` iterations of groups that share lines, in the order of the iterations.
    pub(super) fn add_mixed<const N: usize>(
        &mut self,
        block: &Block,
        groups: &[Group; N],
        mut at: [u64; N],
        strides: &[u64; N],
        times: u64,
    ) {
        let amounts = [block.accesses, block.read_bytes, block.write_bytes];
        let mut rest = times;
        while rest > 0 {
            let mut here = rest;
            for group in 0..N {
                here = here.min(groups[group].stays(at[group], LINE).max(1));
            }
            if !self.count_groups(groups, amounts, &at, here) {
                self.one_by_one(&block.sections[0], &at);
                here = 1;
            }
            for group in 0..N {
                at[group] = at[group].wrapping_add(strides[group].wrapping_mul(here));
            }
            rest -= here;
        }
    }

    /// Adds `times` iterations group by group and returns true, if the groups share no line and the quantum does not
    /// end.
    #[inline(always)]
    pub(super) fn add_apart<const N: usize>(
        &mut self,
        block: &Block,
        groups: &[Group; N],
        at: &[u64; N],
        strides: &[u64; N],
        times: u64,
    ) -> bool {
        let apart = self.has_room(block.accesses * times) && are_apart(groups, at, strides, times);
        if apart {
            for (number, group) in groups.iter().enumerate() {
                let (at, stride) = (at[number], strides[number]);
                match group.writes {
                    true => self.add_group::<true>(block, number, group, at, stride, times),
                    false => self.add_group::<false>(block, number, group, at, stride, times),
                }
            }
        }
        apart
    }

    /// Adds `times` iterations of one group. No other group uses its lines, and the quantum does not end.
    #[inline(always)]
    fn add_group<const WRITE: bool>(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        mut at: u64,
        stride: u64,
        times: u64,
    ) {
        self.set_known_place(group.place);
        if self.sampler.partial && group.is_even(at) && !group.stands() {
            return self.add_sampled::<WRITE>(block, number, group, at, stride, times);
        }
        if group.leaps() && group.accesses == 1 {
            return self.add_leaps::<WRITE>(group, at, stride, times);
        }
        let (mut rest, mut counted) = (times, 0);
        let even = group.is_even(at) && !group.leaps() && !self.sampler.partial;
        while rest > 0 {
            let mut here = self.pass_by(group, at, rest);
            if here == 0 {
                if even {
                    here = self.add_in_page::<WRITE>(group, at, rest);
                }
                if here == 0 {
                    here = self.add_in_line::<WRITE>(block, group, at, rest);
                }
                counted += here;
            }
            if here == 0 {
                self.group_one_by_one(block, number, at);
                here = 1;
            }
            at = at.wrapping_add(stride.wrapping_mul(here));
            rest -= here;
        }
        self.fast.remaining -= group.accesses * counted;
        self.sampler.sampled += group.accesses * counted;
        self.fast.read_bytes += group.read_bytes * counted;
        self.fast.write_bytes += group.write_bytes * counted;
    }

    /// Counts the iterations, at most `most`, that a group stays in a line that is not sampled; returns their number.
    #[inline(always)]
    fn pass_by(&mut self, group: &Group, at: u64, most: u64) -> u64 {
        if !self.sampler.partial || self.sampler.watched.has(at) {
            return 0;
        }
        let times = most.min(group.stays(at, LINE));
        self.fast.remaining -= group.accesses * times;
        times
    }

    /// Adds a group of one access that is in another line each time, as down a column of a matrix.
    #[inline(always)]
    fn add_leaps<const WRITE: bool>(
        &mut self,
        group: &Group,
        mut at: u64,
        stride: u64,
        times: u64,
    ) {
        let size = u32::from(group.first_size);
        let mut rest = times;
        while rest > 0 {
            let made = match self.sampler.partial {
                true => 0,
                false => self.count_leaps::<WRITE>(at, stride, size, rest),
            };
            let bytes = made * u64::from(size);
            self.fast.remaining -= made;
            match WRITE {
                true => self.fast.write_bytes += bytes,
                false => self.fast.read_bytes += bytes,
            }
            at = at.wrapping_add(stride.wrapping_mul(made));
            rest -= made;
            if rest > 0 {
                self.access::<WRITE, false>(at, size);
                at = at.wrapping_add(stride);
                rest -= 1;
            }
        }
    }

    /// Counts accesses for their pages, at most `times`, up to the first that changes the state of its line or page;
    /// returns their number.
    #[inline(always)]
    fn count_leaps<const WRITE: bool>(
        &mut self,
        mut at: u64,
        stride: u64,
        size: u32,
        times: u64,
    ) -> u64 {
        let amount = if WRITE { pages::WRITE } else { pages::READ };
        let last = at.wrapping_add(stride.wrapping_mul(times - 1));
        let mask = match WRITE {
            true => self.fast.read_mask,
            false => self.read_mask_between([at, last]),
        };
        for made in 0..times {
            let word = self.fast.lines.word(at).load(Relaxed);
            let plain =
                self.fast.is_plain_under::<WRITE>(word, mask) || !WRITE && self.rereads(word, at);
            if !plain || !self.fast.count::<false>(at, size, amount) {
                return made;
            }
            at = at.wrapping_add(stride);
        }
        times
    }

    /// Adds iterations, at most `most`, of a group whose accesses cross no lines, within one page; returns their
    /// number.
    #[inline(always)]
    fn add_in_page<const WRITE: bool>(&mut self, group: &Group, at: u64, most: u64) -> u64 {
        let mut times = most.min(group.stays(at, PAGE));
        if times == 0 {
            return 0;
        }
        let moved = group.step() * (times - 1);
        let low = if group.backward { at - moved } else { at };
        let end = low + moved + u64::from(group.span);
        let one_kind = !WRITE || group.read_bytes == 0;
        if group.dense && one_kind && self.bit != 0 {
            if self.pages.counters.add(at, group.amount * times) == 0 {
                self.touch::<WRITE>(at);
            }
            self.sweep::<WRITE>(low, end, u32::from(group.first_size));
            return times;
        }
        let counter = self.fast.pages.word(at);
        let count = counter.load(Relaxed);
        if count == 0 {
            return 0;
        }
        let mine = self.plain_until::<WRITE>(group, low, end);
        if mine < end {
            times = match group.backward {
                true => 0,
                false => times.min(group.stays_within(0, mine.saturating_sub(low))),
            };
        }
        counter.store(count.wrapping_add(group.amount * times), Relaxed);
        times
    }

    /// The first line from `low` on, before `end`, whose state accesses of `group` would change; `end` if there is
    /// none.
    #[inline(always)]
    fn plain_until<const WRITE: bool>(&self, group: &Group, low: u64, end: u64) -> u64 {
        let mut line = low & !(LINE - 1);
        // Plain lines are skipped four at a time. The loop below tests the rest, and all tracked lines of a page where
        // an event of this thread may be undecided.
        if self.bit != 0 {
            let mask = self.read_mask_in_page(low);
            line = self.fast.plain_until::<WRITE>(line, end, mask);
        }
        while line < end {
            let word = self.fast.lines.word(line).load(Relaxed);
            let tracked = WRITE && line::keeps_bytes(word);
            if tracked || !self.is_ours::<WRITE>(group, word, line) {
                return line;
            }
            line += LINE;
        }
        end
    }

    /// Adds iterations of a group, at most `most`, within one line, if this thread owns the line or can take it;
    /// returns their number.
    #[inline(always)]
    fn add_in_line<const WRITE: bool>(
        &mut self,
        block: &Block,
        group: &Group,
        at: u64,
        most: u64,
    ) -> u64 {
        let times = most.min(group.stays(at, LINE));
        if times == 0 {
            return 0;
        }
        let mut word = self.fast.lines.word(at).load(Relaxed);
        if !self.is_ours::<WRITE>(group, word, at) {
            if !self.take_line(block, group, at, word) {
                return 0;
            }
            word = self.fast.lines.word(at).load(Relaxed);
            if !self.is_ours::<WRITE>(group, word, at) {
                return 0;
            }
        }
        let counter = self.fast.pages.word(at);
        let count = counter.load(Relaxed);
        if count == 0 {
            return 0;
        }
        counter.store(count.wrapping_add(group.amount * times), Relaxed);
        if WRITE && line::keeps_bytes(word) {
            self.track_group(group, at, times);
        }
        times
    }

    /// Applies the first access of a group at `at`, without counting it, to a line with this `word`; usually the
    /// group's other accesses then change no state. Returns false if the accesses must be recorded one by one.
    #[inline(never)]
    fn take_line(&mut self, block: &Block, group: &Group, at: u64, word: u64) -> bool {
        // Not if this thread owns the line but has an undecided event on it, which an update of its own bytes must not
        // decide; nor for lines used for synchronisation, which no thread owns; nor for a page's first access.
        if self.fast.owns(word)
            || word & line::SYNC != 0
            || line::is_cross_process(word)
            || self.fast.pages.word(at).load(Relaxed) == 0
        {
            return false;
        }
        let first = &block.sections[0].members[usize::from(group.first)];
        let (address, size) = (at.wrapping_add(u64::from(first.delta)), first.size.into());
        match first.kind {
            Kind::Write => self.line::<true, false>(address, size),
            Kind::Read | Kind::Update => self.line::<false, false>(address, size),
        }
        true
    }
}

/// Whether no two groups use the same line in `times` iterations. Groups that only load, with equal sizes, may: their
/// order does not matter.
#[inline(always)]
fn are_apart<const N: usize>(
    groups: &[Group; N],
    at: &[u64; N],
    strides: &[u64; N],
    times: u64,
) -> bool {
    // First and last line of each group; a range that wraps around overlaps all others.
    let ranges: [(u64, u64); N] = std::array::from_fn(|group| {
        let moved = strides[group].wrapping_mul(times - 1) as i64;
        let (first, last) = (
            at[group],
            at[group].wrapping_add(u64::from(groups[group].span)),
        );
        if moved < 0 {
            (first.saturating_add_signed(moved) & !63, last | 63)
        } else {
            (first & !63, last.saturating_add_signed(moved) | 63)
        }
    });
    // An access that crosses lines counts as two, of fewer bytes each.
    let plain = |group: usize| !groups[group].writes && groups[group].is_even(at[group]);
    let alike = |one: usize, other: usize| {
        let size = groups[one].each_size;
        size != 0 && size == groups[other].each_size && plain(one) && plain(other)
    };
    (0..N).all(|one| {
        (0..one).all(|other| {
            ranges[one].1 < ranges[other].0 || ranges[other].1 < ranges[one].0 || alike(one, other)
        })
    })
}
