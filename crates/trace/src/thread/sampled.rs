//! Runs where some lines only are looked at (`--sample`): the way leads from one watched line to the next ([`Gaps`]).
//!
//! [`Gaps`]: crate::watch::Gaps

use super::{LINE, ThreadTracer};
use crate::block::{Block, Group};
use crate::watch::Watched;

impl ThreadTracer {
    /// Adds up a group, `times` times, that moves and none of whose accesses crosses lines, while no other group uses its lines and the
    /// turn does not end.
    pub(super) fn add_sampled<const WRITE: bool>(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        mut at: u64,
        stride: u64,
        times: u64,
    ) {
        let before = self.left;
        let mut whole = 0;
        if group.leaps() {
            // Whole lines on: places move by the same amount each time, as the end does where it is in the same line.
            let even = stride & (LINE - 1) == 0 && group.is_in_line(at);
            let turn = Watched::usual_place(stride);
            let mut place = Watched::usual_place(at);
            for _ in 0..times {
                let end = at.wrapping_add(u64::from(group.span) - 1);
                if place <= self.watched.last() || !even && self.watched.has(end) {
                    match group.accesses {
                        1 => self.look_at::<WRITE>(at, group.first_size.into()),
                        _ => self.group_one_by_one(block, number, at),
                    }
                }
                at = at.wrapping_add(stride);
                place = match even {
                    true => place.wrapping_add(turn),
                    false => Watched::usual_place(at),
                };
            }
        } else {
            let (step, span) = (group.step(), u64::from(group.span));
            let moved = step * (times - 1);
            let low = if group.backward { at - moved } else { at };
            let end = low + moved + span;
            let mut line = self.engine.gaps.next(low & !(LINE - 1), end);
            while line < end {
                // Which iterations use it, counted from the lowest address on.
                let first = match line.checked_sub(low + span) {
                    Some(before) => before / step + 1,
                    None => 0,
                };
                let last = ((line + (LINE - 1) - low) / step).min(times - 1);
                let mut at = low + step * if group.backward { last } else { first };
                let mut rest = last - first + 1;
                while rest > 0 {
                    let mut here = match at & !(LINE - 1) == line {
                        true => self.add_in_line::<WRITE>(block, group, at, rest),
                        false => 0,
                    };
                    whole += here;
                    if here == 0 {
                        // Those of its accesses that are in the line.
                        self.some_one_by_one(block, number, at, |address| {
                            address & !(LINE - 1) == line
                        });
                        here = 1;
                    }
                    at = at.wrapping_add(stride.wrapping_mul(here));
                    rest -= here;
                }
                line = self.engine.gaps.next(line + LINE, end);
            }
        }
        self.looked_at += group.accesses * whole;
        self.read_bytes += group.read_bytes * whole;
        self.write_bytes += group.write_bytes * whole;
        let made = before - self.left;
        self.left -= group.accesses * times - made;
    }

    /// Whether `times` iterations of groups that are at `at` in the first of them, and move by `strides`, use no line that is looked at.
    #[inline(always)]
    pub(super) fn watches_none<const N: usize>(
        &self,
        groups: &[Group; N],
        at: &[u64; N],
        strides: &[u64; N],
        times: u64,
    ) -> bool {
        (0..N).all(|one| {
            let group = &groups[one];
            let moved = strides[one].wrapping_mul(times - 1);
            let (low, last) = match group.backward {
                true => (at[one].wrapping_add(moved), at[one]),
                false => (at[one], at[one].wrapping_add(moved)),
            };
            let end = last.wrapping_add(u64::from(group.span));
            !group.leaps() && self.engine.gaps.next(low & !(LINE - 1), end) >= end
        })
    }
}
