//! Runs with sampled lines (`--sample`): goes directly from one sampled line to the next ([`Gaps`]).
//!
//! [`Gaps`]: crate::watch::Gaps

use std::sync::atomic::Ordering::Relaxed;

use super::{LINE, ThreadTracer};
use crate::block::{Block, Group};
use crate::watch::Watched;
use crate::{line, pages};

impl ThreadTracer {
    /// Adds `times` iterations of a group that moves and whose accesses cross no lines. No other group uses its lines,
    /// and the quantum does not end.
    pub(super) fn add_sampled<const WRITE: bool>(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        at: u64,
        stride: u64,
        times: u64,
    ) {
        let before = self.fast.remaining;
        if group.leaps() {
            self.add_sampled_leaps::<WRITE>(block, number, group, at, stride, times);
        } else {
            let (low, end) = group.reach(at, times);
            let mut line = self.engine.gaps.next(low & !(LINE - 1), end);
            while line < end {
                if group.is_of_one_kind() {
                    self.add_watched::<WRITE>(block, number, group, low, times, line);
                } else {
                    self.add_watched_mixed(block, number, group, low, times, line);
                }
                line = self.engine.gaps.next(line + LINE, end);
            }
        }
        let made = before - self.fast.remaining;
        self.fast.remaining -= group.accesses * times - made;
    }

    /// Records the accesses of a group to the sampled `line` in `times` iterations with lowest address `low`. The
    /// group only loads or only stores, so the order does not matter.
    #[inline(always)]
    fn add_watched<const WRITE: bool>(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        low: u64,
        times: u64,
        line: u64,
    ) {
        let step = group.step();
        let mut rest = group.accesses;
        for member in &block.sections[0].members[usize::from(group.first)..] {
            if usize::from(member.group) != number {
                continue;
            }
            // The iterations with this access in the line, counted from the lowest address.
            let start = low + u64::from(member.delta);
            let first = group.below(start, line);
            let end = times.min(group.below(start, line + LINE));
            if first < end {
                self.sampled_accesses::<WRITE>(group, start + step * first, end - first);
            }
            rest -= 1;
            if rest == 0 {
                break;
            }
        }
    }

    /// Records `times` accesses of a group to a sampled line, from `at` on.
    #[inline(always)]
    fn sampled_accesses<const WRITE: bool>(&mut self, group: &Group, mut at: u64, mut times: u64) {
        let (step, size) = (group.step(), u64::from(group.each_size));
        while times > 0 {
            let word = self.fast.lines.word(at).load(Relaxed);
            let counter = self.fast.pages.word(at);
            let count = counter.load(Relaxed);
            if count == 0 || self.batch.pending || !self.is_ours::<WRITE>(group, word, at) {
                self.sampled_access::<WRITE>(at, size as u32);
                at += step;
                times -= 1;
                continue;
            }
            let amount = if WRITE { pages::WRITE } else { pages::READ };
            counter.store(count.wrapping_add(amount * times), Relaxed);
            if WRITE && line::keeps_bytes(word) {
                self.track_bytes(u64::MAX >> (64 - size), at, step, times);
            }
            match WRITE {
                true => self.fast.write_bytes += size * times,
                false => self.fast.read_bytes += size * times,
            }
            self.sampler.sampled += times;
            self.fast.remaining -= times;
            return;
        }
    }

    /// Adds iterations of a group that leaves its line with each.
    #[inline(always)]
    fn add_sampled_leaps<const WRITE: bool>(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        mut at: u64,
        stride: u64,
        times: u64,
    ) {
        // With a stride of whole lines the place moves by a constant.
        let even = stride & (LINE - 1) == 0 && group.is_in_line(at);
        let distance = Watched::usual_distance(stride as i64);
        let mut place = Watched::usual_place(at);
        for _ in 0..times {
            let end = at.wrapping_add(u64::from(group.span) - 1);
            if place <= self.sampler.watched.last() || !even && self.sampler.watched.has(end) {
                match group.accesses {
                    1 => self.sampled_access::<WRITE>(at, group.first_size.into()),
                    _ => self.group_one_by_one(block, number, at),
                }
            }
            at = at.wrapping_add(stride);
            place = match even {
                true => place.wrapping_add(distance),
                false => Watched::usual_place(at),
            };
        }
    }

    /// Like [`ThreadTracer::add_watched`], for groups that load and store, in the order of the iterations.
    #[inline(never)]
    fn add_watched_mixed(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        low: u64,
        times: u64,
        line: u64,
    ) {
        let first = group.below(low + u64::from(group.span), line + 1);
        let end = times.min(group.below(low, line + LINE));
        for next in 0..end - first {
            let upward = if group.backward {
                end - 1 - next
            } else {
                first + next
            };
            self.some_one_by_one(block, number, low + group.step() * upward, |address| {
                address & !(LINE - 1) == line
            });
        }
    }

    /// Whether `times` iterations of groups that begin at `at` use no sampled line.
    #[inline(always)]
    pub(super) fn watches_none<const N: usize>(
        &self,
        groups: &[Group; N],
        at: &[u64; N],
        times: u64,
    ) -> bool {
        (0..N).all(|one| {
            !groups[one].leaps() && {
                let (low, end) = groups[one].reach(at[one], times);
                self.engine.gaps.next(low & !(LINE - 1), end) >= end
            }
        })
    }
}
