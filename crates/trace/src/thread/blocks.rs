//! Counts the accesses of a block with one call.
//!
//! The call comes at the block's beginning, before its accesses are made. Loads from lines used for synchronisation
//! are therefore processed again at the thread's next call, after they were made: they then see the clock that belongs
//! to the value the program read.
//!
//! Iterations of a repeating block are counted in [runs](super::runs).

// The `N` arrays are parallel: loops over the group's index read better than zipped iterators.
#![allow(clippy::needless_range_loop)]

use std::sync::atomic::Ordering::Relaxed;

use super::ThreadTracer;
use crate::block::{Block, GROUPS, Group, Kind, Member, REGISTERS, Section};
use crate::line;
use crate::memory::Detail;

impl ThreadTracer {
    /// Counts the accesses of `block`, which begins with `registers` and has not made them yet.
    ///
    /// `N` and `WRITES` are the block's [`crate::block::Shape`]. Iterations of a repeating block go to
    /// [`ThreadTracer::iteration`].
    #[inline(always)]
    pub fn block<const N: usize, const WRITES: usize>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        if N > 0 && !self.batch.pending {
            let groups = block.groups::<N>();
            let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
            if self.is_plain::<N, WRITES>(block, &at) {
                self.fast.remaining -= block.accesses;
                self.fast.read_bytes += block.read_bytes;
                self.fast.write_bytes += block.write_bytes;
                for group in 0..N {
                    let counter = self.fast.pages.word(at[group]);
                    let count = counter.load(Relaxed).wrapping_add(groups[group].amount);
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

    /// Whether the block's accesses can be added in any order: they change no line's state, are not a page's first
    /// count and do not end the quantum. False for lines whose written bytes are recorded.
    #[inline(always)]
    fn is_plain<const N: usize, const WRITES: usize>(&self, block: &Block, at: &[u64; N]) -> bool {
        let groups = block.groups::<N>();
        for group in 0..N {
            let (address, part) = (at[group], &groups[group]);
            let word = self.fast.lines.word(address).load(Relaxed);
            let ours = match WRITES >> group & 1 {
                1 => self.fast.is_plain_word::<true>(word),
                _ => self.fast.is_plain_word::<false>(word),
            };
            if !ours
                || self.fast.pages.word(address).load(Relaxed) == 0
                || !part.is_in_line(address)
            {
                return false;
            }
        }
        self.fast.remaining > self.fast.threshold.saturating_add(block.accesses)
            && self.batch.possible
    }

    /// Counts a block `times` times whose groups stay in the lines of `at`, and returns true, if only counts and masks
    /// of written bytes change.
    #[inline(always)]
    pub(super) fn count_groups(
        &mut self,
        groups: &[Group],
        amounts: [u64; 3],
        at: &[u64],
        times: u64,
    ) -> bool {
        let [accesses, read_bytes, write_bytes] = amounts;
        if self.sampler.partial || !self.has_room(accesses * times) {
            return false;
        }
        let mut kept = false;
        for (group, &address) in groups.iter().zip(at) {
            let word = self.fast.lines.word(address).load(Relaxed);
            let ours = match group.writes {
                true => self.is_ours::<true>(group, word, address),
                false => self.is_ours::<false>(group, word, address),
            };
            if !ours
                || self.fast.pages.word(address).load(Relaxed) == 0
                || !group.is_in_line(address)
            {
                return false;
            }
            kept |= group.writes && line::keeps_bytes(word);
        }
        self.fast.remaining -= accesses * times;
        self.fast.read_bytes += read_bytes * times;
        self.fast.write_bytes += write_bytes * times;
        for (group, &address) in groups.iter().zip(at) {
            let counter = self.fast.pages.word(address);
            let count = counter.load(Relaxed).wrapping_add(group.amount * times);
            counter.store(count, Relaxed);
        }
        if kept {
            for (group, &address) in groups.iter().zip(at) {
                let word = self.fast.lines.word(address).load(Relaxed);
                if group.writes && line::keeps_bytes(word) {
                    self.track_group(group, address, times);
                }
            }
        }
        true
    }

    /// Whether a group's accesses to the line at `address`, with this `word`, change only counts and masks of written
    /// bytes.
    #[inline(always)]
    pub(super) fn is_ours<const WRITE: bool>(
        &self,
        group: &Group,
        word: u64,
        address: u64,
    ) -> bool {
        let quiet = word & self.fast.read_mask & line::TRACKED == 0 || self.rereads(word, address);
        if WRITE {
            self.fast.owns(word) && (quiet || !group.reads)
        } else {
            word == 0 || quiet && word & self.bit != 0
        }
    }

    /// Adds the bytes written by `times` iterations of a group, the first at `address`, to their line's mask.
    #[inline(never)]
    pub(super) fn track_group(&mut self, group: &Group, address: u64, times: u64) {
        self.track_bytes(group.written, address, group.stride, times);
    }

    /// Adds bytes to a line's mask: `times` times those set in `written`, from `address` on, each `stride` further.
    #[inline(always)]
    pub(super) fn track_bytes(&mut self, written: u64, address: u64, stride: u64, times: u64) {
        if !self.engine.budget.keeps(Detail::FalseSharing) {
            return;
        }
        let entry = self.engine.tables.written.word(address);
        let (mut bytes, mut at) = (0, address);
        for _ in 0..times {
            bytes |= written << (at & 63);
            at = at.wrapping_add(stride);
        }
        let before = entry.load(Relaxed);
        if before | bytes != before {
            entry.store(before | bytes, Relaxed);
        }
    }

    /// Whether any of the lines at `addresses` is, or may be in another process, used for synchronisation.
    #[inline(always)]
    pub(super) fn any_synchronises(&self, addresses: &[u64]) -> bool {
        addresses.iter().any(|&address| {
            let word = self.fast.lines.word(address).load(Relaxed);
            word & line::SYNC != 0 || line::is_cross_process(word)
        })
    }

    #[inline(never)]
    pub(super) fn group_one_by_one(&mut self, block: &Block, number: usize, at: u64) {
        self.some_one_by_one(block, number, at, |_| true);
    }

    /// Records the accesses of a group at `at` whose address satisfies `here`.
    #[inline(always)]
    pub(super) fn some_one_by_one(
        &mut self,
        block: &Block,
        number: usize,
        at: u64,
        here: impl Fn(u64) -> bool,
    ) {
        for member in &block.sections[0].members {
            let address = at.wrapping_add(u64::from(member.delta));
            if usize::from(member.group) == number && here(address) {
                self.member(member, address);
            }
        }
    }

    /// Records a block that may change some line's state, or has many groups.
    #[inline(never)]
    extern "C" fn whole_block(&mut self, block: &'static Block, registers: &[u64; REGISTERS]) {
        self.flush_pending();
        self.batch.prerecording = true;
        for section in &block.sections {
            if self.skip_paused(section.accesses) {
                continue;
            }
            let mut at = [0; GROUPS];
            for (group, at) in section.groups.iter().zip(&mut at) {
                *at = group.address(registers);
            }
            let amounts = [section.accesses, section.read_bytes, section.write_bytes];
            if !self.count_groups(&section.groups, amounts, &at, 1) {
                self.one_by_one(section, &at);
            }
        }
        self.batch.prerecording = false;
    }

    /// Like [`ThreadTracer::whole_block`], for `N` groups.
    #[inline(never)]
    pub(super) extern "C" fn small_block<const N: usize>(
        &mut self,
        block: &'static Block,
        registers: &[u64; REGISTERS],
    ) {
        self.flush_pending();
        if self.skip_paused(block.accesses) {
            return;
        }
        let groups = block.groups::<N>();
        let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
        let amounts = [block.accesses, block.read_bytes, block.write_bytes];
        if self.count_groups(groups, amounts, &at, 1) {
            return;
        }
        self.batch.prerecording = true;
        if self.any_synchronises(&at) || !self.add_apart(block, groups, &at, &[0; N], 1) {
            self.one_by_one(&block.sections[0], &at);
        }
        self.batch.prerecording = false;
    }

    #[inline(never)]
    pub(super) fn one_by_one(&mut self, section: &Section, at: &[u64]) {
        for member in &section.members {
            let address = at[usize::from(member.group)].wrapping_add(u64::from(member.delta));
            self.member(member, address);
        }
    }

    fn member(&mut self, member: &Member, address: u64) {
        let size = u32::from(member.size);
        self.set_known_place(member.place);
        match member.kind {
            Kind::Read => self.access::<false, false>(address, size),
            Kind::Write => self.access::<true, false>(address, size),
            Kind::Update => self.update::<false>(address, size),
        }
    }
}
