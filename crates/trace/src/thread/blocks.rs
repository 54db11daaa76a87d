//! Counting the accesses of a block with one call, and the iterations of a block that repeats with next to none.
//!
//! A call comes at the block's beginning, before its accesses are made. So a load from a line used for synchronisation is looked at
//! once more with the thread's next call, when it has been made: what it then finds is what the program found.
//!
//! Iterations of a repeating block are only counted at first, [`LONGEST`] of them at most: that is a *run*. Whatever the thread
//! does next, the run is *settled*: its accesses are added up, in few steps because they stay in a line for a while. While a
//! run is on, `floor` forbids the fast path, so that no access overtakes it. Groups of a run that share no line are added up one
//! after the other: the times of first touches and the order of events may be off by a run.

// `N` arrays side by side: loops over the number of a group read better than zipped ones.
#![allow(clippy::needless_range_loop)]

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use super::ThreadTracer;
use crate::block::{Block, GROUPS, Group, Kind, Member, QUICK, REGISTERS, Section};
use crate::line;
use crate::memory::Detail;

/// Most iterations in a run.
const LONGEST: u64 = 64;

/// Iterations of a repeating block whose accesses are not counted yet.
pub(super) struct Run {
    block: Option<&'static Block>,
    /// Iterations that may still begin, and one that ends the run.
    left: u64,
    /// Where the groups were in the first iteration.
    at: [u64; QUICK],
    /// How far an iteration moves them.
    strides: [u64; QUICK],
    /// Adds them up.
    settle: fn(&mut ThreadTracer, &'static Block),
    /// Loads that were told before they were made, from lines used for synchronisation.
    early: Vec<(u64, u32)>,
    /// Loads are being told before they are made.
    pub(super) ahead: bool,
}

impl Run {
    pub(super) fn none() -> Self {
        Self {
            block: None,
            left: 0,
            at: [0; QUICK],
            strides: [0; QUICK],
            settle: |_, _| {},
            early: Vec::new(),
            ahead: false,
        }
    }
}

impl ThreadTracer {
    /// Bytes from a tracer's address to that of the block whose iterations are being counted. Another iteration of it may be counted
    /// by taking one from the number at [`ThreadTracer::RUN_LEFT`], as long as that leaves some.
    pub const RUN_BLOCK: usize = offset_of!(Self, run) + offset_of!(Run, block);
    /// Bytes to the number of iterations that may still begin, and one.
    pub const RUN_LEFT: usize = offset_of!(Self, run) + offset_of!(Run, left);

    /// The accesses of `block`, which begins with `registers` and has not made them yet.
    ///
    /// `N`, `WRITES` and `REPEATS` are the block's [`crate::block::Shape`].
    #[inline(always)]
    pub fn block<const N: usize, const WRITES: usize, const REPEATS: bool>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        if REPEATS {
            if self.run_block() == std::ptr::from_ref(block) {
                self.run.left -= 1;
                if self.run.left != 0 {
                    return;
                }
            }
            self.begin::<N>(block, registers);
            return;
        }
        if N > 0 && !self.unsettled {
            let at: [u64; N] = std::array::from_fn(|group| block.quick[group].address(registers));
            if self.is_plain::<N, WRITES>(block, &at) {
                self.left -= block.accesses;
                self.read_bytes += block.read_bytes;
                self.write_bytes += block.write_bytes;
                for group in 0..N {
                    let counter = self.counters.word(at[group]);
                    let count = counter
                        .load(Relaxed)
                        .wrapping_add(block.quick[group].amount);
                    counter.store(count, Relaxed);
                }
                return;
            }
        }
        if N > 0 {
            self.small_block::<N>(block, registers);
        } else {
            self.whole_block(block, registers);
        }
    }

    #[inline(always)]
    fn run_block(&self) -> *const Block {
        self.run.block.map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Finishes what the last block has left: the thread does something else now.
    #[inline(always)]
    pub fn settle(&mut self) {
        if self.unsettled {
            self.settle_now();
        }
    }

    /// Whether a block changes no state of a line, fills no page's counter for the first time and ends no turn, so that its accesses
    /// can be added up in any order; says no for lines whose written bytes are kept.
    #[inline(always)]
    fn is_plain<const N: usize, const WRITES: usize>(&self, block: &Block, at: &[u64; N]) -> bool {
        for group in 0..N {
            let (address, part) = (at[group], &block.quick[group]);
            let word = self.quick.word(address).load(Relaxed);
            let ours = if WRITES >> group & 1 == 1 {
                word == self.owned
            } else {
                word & self.read_mask == self.read_is || word == 0
            };
            if !ours || self.counters.word(address).load(Relaxed) == 0 || !part.is_in_line(address)
            {
                return false;
            }
        }
        self.left > self.floor.saturating_add(block.accesses) && self.together
    }

    /// Counts `times` times a block whose groups are, and stay, in the lines of `at`, if that changes nothing but counts and bytes
    /// written.
    #[inline(always)]
    fn count_quick(
        &mut self,
        groups: &[Group],
        amounts: [u64; 3],
        at: &[u64],
        strides: &[u64],
        times: u64,
    ) -> bool {
        let [accesses, read_bytes, write_bytes] = amounts;
        if !self.together || self.left <= self.floor.saturating_add(accesses * times) {
            return false;
        }
        let mut tracked = 0;
        for (group, &address) in groups.iter().zip(at) {
            let word = self.quick.word(address).load(Relaxed);
            let ours = match group.writes {
                true => self.is_ours::<true>(group, word, address),
                false => self.is_ours::<false>(group, word, address),
            };
            if !ours || self.counters.word(address).load(Relaxed) == 0 || !group.is_in_line(address)
            {
                return false;
            }
            tracked |= if group.writes {
                word & line::TRACKED
            } else {
                0
            };
        }
        self.left -= accesses * times;
        self.read_bytes += read_bytes * times;
        self.write_bytes += write_bytes * times;
        for (group, &address) in groups.iter().zip(at) {
            let counter = self.counters.word(address);
            let count = counter.load(Relaxed).wrapping_add(group.amount * times);
            counter.store(count, Relaxed);
        }
        if tracked != 0 {
            for ((group, &address), &stride) in groups.iter().zip(at).zip(strides) {
                if group.writes && self.quick.word(address).load(Relaxed) & line::TRACKED != 0 {
                    self.track_group(group, address, stride, times);
                }
            }
        }
        true
    }

    /// Whether the accesses of a group to the line at `address`, whose word is `word`, change nothing but counts and bytes written.
    #[inline(always)]
    fn is_ours<const WRITE: bool>(&self, group: &Group, word: u64, address: u64) -> bool {
        let quiet = word & self.read_mask & line::TRACKED == 0 || self.rereads(word, address);
        if WRITE {
            word & !line::TRACKED == self.owned && (quiet || !group.reads)
        } else {
            word == 0 || quiet && word & self.bit != 0
        }
    }

    /// Keeps the bytes written by a group, the first time at `address`.
    #[inline(never)]
    fn track_group(&mut self, group: &Group, address: u64, stride: u64, times: u64) {
        if !self.engine.budget.keeps(Detail::FalseSharing) {
            return;
        }
        let entry = self.engine.written.word(address);
        let (mut bytes, mut at) = (0, address);
        for _ in 0..times {
            bytes |= group.written << (at & 63);
            at = at.wrapping_add(stride);
        }
        let before = entry.load(Relaxed);
        if before | bytes != before {
            entry.store(before | bytes, Relaxed);
        }
    }

    /// An iteration that is not of the run: begins another one, if it can.
    ///
    /// `extern "C"`, as what follows: it never unwinds, so that callers from C need no landing pad around it.
    #[inline(never)]
    extern "C" fn begin<const N: usize>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        if self.run_block() == std::ptr::from_ref(block) {
            // This iteration is no part of the run.
            self.run.left = 1;
            self.end_run::<N>(block);
        } else {
            self.settle();
        }
        let at: [u64; N] = std::array::from_fn(|group| block.quick[group].address(registers));
        // What synchronises is told when it happens.
        if self.any_synchronises(&at) || !self.together || self.unsettled || self.floor != 1 {
            self.small_block::<N>(block, registers);
            return;
        }
        for (group, stride) in block.quick[..N].iter().zip(&mut self.run.strides) {
            *stride = group.stride(registers);
        }
        self.run.block = Some(block);
        self.run.left = LONGEST;
        self.run.at[..N].copy_from_slice(&at);
        self.run.settle = Self::end_run::<N>;
        self.floor = u64::MAX;
        self.unsettled = true;
    }

    /// Whether any of the lines at `addresses` is used for synchronisation, or may be so with another process.
    #[inline(always)]
    fn any_synchronises(&self, addresses: &[u64]) -> bool {
        addresses.iter().any(|&address| {
            let word = self.quick.word(address).load(Relaxed);
            word & line::SYNC != 0 || line::is_common(word)
        })
    }

    /// Adds up the run of `block`.
    fn end_run<const N: usize>(&mut self, block: &'static Block) {
        self.unsettled = false;
        self.floor = self.usual_floor;
        self.run.block = None;
        let amounts = [block.accesses, block.read_bytes, block.write_bytes];
        let groups: &[Group; N] = block.quick[..N].try_into().expect("no more than QUICK");
        let mut at: [u64; N] = std::array::from_fn(|group| self.run.at[group]);
        let strides = self.run.strides;
        let times = LONGEST + 1 - self.run.left;
        if self.add_apart(block, groups, &at, &strides, times) {
            return;
        }
        let mut rest = times;
        while rest > 0 {
            let mut here = rest;
            for group in 0..N {
                here = here.min(1 + groups[group].stays(at[group]));
            }
            if !self.count_quick(groups, amounts, &at, &strides, here) {
                self.one_by_one(&block.sections[0], &at);
                here = 1;
            }
            for group in 0..N {
                at[group] = at[group].wrapping_add(strides[group].wrapping_mul(here));
            }
            rest -= here;
        }
    }

    /// Adds up the groups of `times` iterations one after the other, if they share no line and the turn does not end; says whether.
    #[inline(always)]
    fn add_apart<const N: usize>(
        &mut self,
        block: &Block,
        groups: &[Group; N],
        at: &[u64; N],
        strides: &[u64],
        times: u64,
    ) -> bool {
        let apart = self.together
            && self.left > self.floor.saturating_add(block.accesses * times)
            && are_apart(groups, at, strides, times);
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

    /// Adds up one group, `times` times, while no other group uses its lines and the turn does not end.
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
        let (mut rest, mut quick) = (times, 0);
        while rest > 0 {
            let mut word = self.quick.word(at).load(Relaxed);
            let mut ours = self.is_ours::<WRITE>(group, word, at);
            if !ours && group.is_in_line(at) && self.take_line(block, group, at, word) {
                word = self.quick.word(at).load(Relaxed);
                ours = self.is_ours::<WRITE>(group, word, at);
            }
            let counter = self.counters.word(at);
            let count = counter.load(Relaxed);
            let mut here = 1;
            if ours && count != 0 && group.is_in_line(at) {
                here = rest.min(1 + group.stays(at));
                quick += here;
                self.left -= group.accesses * here;
                counter.store(count.wrapping_add(group.amount * here), Relaxed);
                if WRITE && word & line::TRACKED != 0 {
                    self.track_group(group, at, stride, here);
                }
            } else {
                self.group_one_by_one(block, number, at);
            }
            at = at.wrapping_add(stride.wrapping_mul(here));
            rest -= here;
        }
        self.read_bytes += group.read_bytes * quick;
        self.write_bytes += group.write_bytes * quick;
    }

    /// Makes, without counting it, the first access of a group at `at` to a line in other hands, whose word is `word`: mostly the
    /// others then find the line in this thread's hands. Says whether it did.
    #[inline(never)]
    fn take_line(&mut self, block: &Block, group: &Group, at: u64, word: u64) -> bool {
        // In this thread's hands already, but an event waits for its verdict, which an update of the thread's own bytes must not
        // settle; used for synchronisation and so never in anybody's hands; a page's first access, looked at in full.
        if word & !line::TRACKED == self.owned
            || word & line::SYNC != 0
            || line::is_common(word)
            || self.counters.word(at).load(Relaxed) == 0
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

    #[inline(never)]
    fn group_one_by_one(&mut self, block: &Block, number: usize, at: u64) {
        for member in &block.sections[0].members {
            if usize::from(member.group) == number {
                self.member(member, at.wrapping_add(u64::from(member.delta)));
            }
        }
    }

    /// A block of which some access may change something, or that has many groups.
    #[inline(never)]
    extern "C" fn whole_block(&mut self, block: &'static Block, registers: &[u64; REGISTERS]) {
        self.settle();
        self.run.ahead = true;
        for section in &block.sections {
            let mut at = [0; GROUPS];
            for (group, at) in section.groups.iter().zip(&mut at) {
                *at = group.address(registers);
            }
            let amounts = [section.accesses, section.read_bytes, section.write_bytes];
            if !self.count_quick(&section.groups, amounts, &at, &[0; GROUPS], 1) {
                self.one_by_one(section, &at);
            }
        }
        self.run.ahead = false;
    }

    /// As [`ThreadTracer::whole_block`], for one of `N` groups.
    #[inline(never)]
    extern "C" fn small_block<const N: usize>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        self.settle();
        let groups: &[Group; N] = block.quick[..N].try_into().expect("no more than QUICK");
        let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
        let amounts = [block.accesses, block.read_bytes, block.write_bytes];
        if self.count_quick(groups, amounts, &at, &[0; N], 1) {
            return;
        }
        self.run.ahead = true;
        if self.any_synchronises(&at) || !self.add_apart(block, groups, &at, &[0; N], 1) {
            self.one_by_one(&block.sections[0], &at);
        }
        self.run.ahead = false;
    }

    #[inline(never)]
    fn one_by_one(&mut self, section: &Section, at: &[u64]) {
        for member in &section.members {
            let address = at[usize::from(member.group)].wrapping_add(u64::from(member.delta));
            self.member(member, address);
        }
    }

    fn member(&mut self, member: &Member, address: u64) {
        let size = u32::from(member.size);
        match member.kind {
            Kind::Read => self.access::<false, false>(address, size),
            Kind::Write => self.access::<true, false>(address, size),
            Kind::Update => self.update::<false>(address, size),
        }
    }

    /// A load from a line used for synchronisation was told before it was made.
    #[cold]
    pub(super) fn remember(&mut self, address: u64, size: u32) {
        self.run.early.push((address, size));
        self.floor = u64::MAX;
        self.unsettled = true;
    }

    #[inline(never)]
    extern "C" fn settle_now(&mut self) {
        self.unsettled = false;
        self.floor = self.usual_floor;
        if let Some(block) = self.run.block.take() {
            (self.run.settle)(self, block);
        }
        for (address, size) in std::mem::take(&mut self.run.early) {
            if line::is_common(self.lines.word(address).load(Relaxed)) {
                self.read_common::<false>(address, size);
            } else {
                self.acquire(address);
                self.line::<false, false>(address, size);
            }
        }
    }
}

/// Whether no two groups use the same line in `times` iterations.
#[inline(always)]
fn are_apart<const N: usize>(
    groups: &[Group; N],
    at: &[u64; N],
    strides: &[u64],
    times: u64,
) -> bool {
    // First and last line of each; a range that wraps around is taken as one that meets all.
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
    (0..N).all(|one| {
        (0..one).all(|other| ranges[one].1 < ranges[other].0 || ranges[other].1 < ranges[one].0)
    })
}
