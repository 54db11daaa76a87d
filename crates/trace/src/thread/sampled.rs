//! Runs where some lines only are looked at (`--sample`): lines that are not are passed over at one addition each, and the accesses of
//! those that are, one in twenty or so, are made one by one.

use super::{LINE, ThreadTracer};
use crate::block::{Block, Group};
use crate::watch::Watched;

impl ThreadTracer {
    /// Adds up a group, `times` times, that moves and none of whose accesses crosses lines, while no other group uses its lines and the
    /// turn does not end.
    pub(super) fn add_sampled(
        &mut self,
        block: &Block,
        number: usize,
        group: &Group,
        mut at: u64,
        stride: u64,
        times: u64,
    ) {
        let before = self.left;
        if group.leaps() {
            for _ in 0..times {
                let end = at.wrapping_add(u64::from(group.span) - 1);
                if self.watched.has(at) || self.watched.has(end) {
                    self.group_one_by_one(block, number, at);
                }
                at = at.wrapping_add(stride);
            }
        } else {
            let (step, span) = (group.step(), u64::from(group.span));
            let moved = step * (times - 1);
            let low = if group.backward { at - moved } else { at };
            let mut line = low & !(LINE - 1);
            let mut place = Watched::usual_place(line);
            while line < low + moved + span {
                if place <= self.watched.last() {
                    // Which iterations use it, counted from the lowest address on.
                    let first = match line.checked_sub(low + span) {
                        Some(before) => before / step + 1,
                        None => 0,
                    };
                    let last = ((line + (LINE - 1) - low) / step).min(times - 1);
                    for next in 0..=last - first {
                        let upward = if group.backward {
                            last - next
                        } else {
                            first + next
                        };
                        self.some_one_by_one(block, number, low + step * upward, |address| {
                            address & !(LINE - 1) == line
                        });
                    }
                }
                line += LINE;
                place = place.wrapping_add(Watched::TURN);
            }
        }
        let told = before - self.left;
        self.left -= group.accesses * times - told;
    }
}
