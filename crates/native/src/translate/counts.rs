//! Where code that only counts accesses, between bursts, counts them: pure. [`super::counting`] emits it.
//!
//! Counting changes flags, so it is done before an instruction at which none is needed, once for a path through the
//! block if possible. Where a path leaves the block earlier, the difference is counted there. Whether the quantum has
//! ended is seen only on paths that end *closed*, with a branch to a lower or an unknown address: every loop has one.

use std::iter::Sum;
use std::ops::{Add, Range, Sub};

/// A number of accesses; negative if too many have been counted before.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Amount {
    /// Accesses.
    pub all: i32,
    /// Those of them during which the clock stands still.
    pub still: i32,
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            still: self.still + other.still,
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            all: self.all - other.all,
            still: self.still - other.still,
        }
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Self::add)
    }
}

/// A conditional branch out of the block.
#[derive(Clone, Copy)]
pub struct Leaving {
    /// Accesses before it may be counted after it.
    pub free: bool,
    /// A flag is needed at its target.
    pub flags: bool,
    /// It may lead back to code that has been executed.
    pub back: bool,
}

/// An instruction, as far as counting is concerned.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Its accesses.
    pub accesses: Amount,
    /// Whether a flag is needed before it.
    pub flags: bool,
    /// It is a conditional branch out of the block.
    pub branch: Option<Leaving>,
    /// It reads the clock: the accesses before it must have been counted.
    pub timed: bool,
}

/// What is counted at a place.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Accesses.
    pub accesses: Amount,
    /// Those of them that are not made yet.
    pub ahead: Amount,
    /// Whether a flag is needed there.
    pub flags: bool,
    /// Whether the thread leaves if the quantum has ended.
    pub closed: bool,
}

impl Count {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.accesses == Amount::default() && !self.closed
    }
}

/// A branch out of a block after which accesses are still to be counted.
pub struct Leave {
    /// Offset of its displacement.
    pub jump: usize,
    /// The accesses.
    pub count: Count,
    /// Where it leads to.
    pub target: u64,
}

/// Where the accesses of a block are counted.
#[derive(Default)]
pub struct Counts {
    /// Before each instruction.
    pub before: Vec<Count>,
    /// Where each conditional branch leaves the block.
    pub leaving: Vec<Count>,
    /// By the end of the block, where a register is free.
    pub at_end: Amount,
}

impl Counts {
    /// For the instructions of a block. `back`: its end may lead back to code that has been executed.
    pub fn of(block: &[Counted], back: bool) -> Self {
        let mut counts = Self {
            before: vec![Count::default(); block.len()],
            leaving: vec![Count::default(); block.len()],
            at_end: Amount::default(),
        };
        let mut from = 0;
        for (at, one) in block.iter().enumerate() {
            if one.timed && from < at {
                counts.count(block, from..at, false);
                from = at;
            }
            let ends = at + 1 == block.len();
            let stays = one.branch.filter(|branch| !branch.free);
            if stays.is_some() || ends {
                let back = ends && back || stays.is_some_and(|branch| branch.back);
                counts.count(block, from..at + 1, back);
                from = at + 1;
            }
        }
        counts
    }

    /// Leaves to the end of the block what would be counted before its last instruction although a flag is needed.
    pub fn leave_last_to_end(&mut self, block: &[Counted]) {
        let last = self.before.last_mut();
        let timed = block.last().is_some_and(|one| one.timed);
        if let Some(last) = last.filter(|last| last.flags && !last.closed && !timed) {
            self.at_end = last.accesses;
            *last = Count::default();
        }
    }

    /// Counts the accesses of some instructions before one of them, preferably the last without flags. `closed`: the
    /// path through all of them ends closed.
    fn count(&mut self, block: &[Counted], range: Range<usize>, closed: bool) {
        let sum =
            |range: Range<usize>| -> Amount { block[range].iter().map(|one| one.accesses).sum() };
        let all = sum(range.clone());
        let free = |at: usize| block[at].branch.filter(|branch| branch.free);
        let place = range.clone().rev().find(|&at| !block[at].flags);
        let at = place.unwrap_or(range.end - 1);
        let leaves = |branch: usize| branch + 1 < range.end && free(branch).is_some();
        // A path that has counted here is closed here too.
        let after = at..range.end;
        let back = |branch: usize| leaves(branch) && free(branch).is_some_and(|one| one.back);
        self.before[at] = Count {
            accesses: all,
            ahead: sum(after.clone()),
            flags: place.is_none(),
            closed: closed || after.clone().any(back),
        };
        for branch in range.clone().filter(|&branch| leaves(branch)) {
            let before = if at <= branch { all } else { Amount::default() };
            self.leaving[branch] = Count {
                accesses: sum(range.start..branch + 1) - before,
                closed: back(branch) && at > branch,
                flags: free(branch).is_some_and(|one| one.flags),
                ..Count::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(accesses: i32, flags: bool, branch: Option<bool>) -> Counted {
        Counted {
            accesses: Amount {
                all: accesses,
                still: accesses / 2,
            },
            flags,
            branch: branch.map(|free| Leaving {
                free,
                flags: false,
                back: false,
            }),
            timed: false,
        }
    }

    /// What is counted on the path that leaves at an instruction, or at the end.
    fn on_path(counts: &Counts, leaving: Option<usize>) -> Amount {
        let end = leaving.map_or(counts.before.len(), |at| at + 1);
        let before: Amount = counts.before[..end].iter().map(|one| one.accesses).sum();
        before + leaving.map_or(Amount::default(), |at| counts.leaving[at].accesses)
    }

    #[test]
    fn each_path_counts_its_accesses() {
        // Conditional branches after 3 and 4 accesses; the last instruction makes one.
        for flags in 0..64_u32 {
            for kinds in 0..4 {
                let needed = |n: u32| flags >> n & 1 != 0;
                let block = [
                    one(1, needed(0), None),
                    one(2, needed(1), None),
                    one(0, needed(2), Some(kinds & 1 != 0)),
                    one(1, needed(3), None),
                    one(0, needed(4), Some(kinds & 2 != 0)),
                    one(1, needed(5), None),
                ];
                let counts = Counts::of(&block, false);
                let paths = [Some(2), Some(4), None].map(|leaving| on_path(&counts, leaving));
                assert_eq!(paths.map(|path| path.all), [3, 4, 5], "{flags:b} {kinds:b}");
                assert_eq!(paths.map(|path| path.still), [1, 1, 1]);
            }
        }
    }

    #[test]
    fn a_block_counts_once_where_no_flag_is_needed() {
        // mov, cmp, jcc, mov, ret
        let block = [
            one(1, true, None),
            one(1, false, None),
            one(0, true, Some(true)),
            one(1, true, None),
            one(1, true, None),
        ];
        let counts = Counts::of(&block, false);
        let Count {
            accesses,
            ahead,
            flags,
            closed,
        } = counts.before[1];
        assert_eq!((accesses.all, ahead.all), (4, 3));
        assert!(!flags && !closed);
        assert_eq!(counts.leaving[2].accesses.all, -2);
    }

    #[test]
    fn the_end_of_a_block_counts_what_would_change_flags() {
        // mov, ret
        let mut block = [one(1, true, None), one(1, true, None)];
        let mut counts = Counts::of(&block, false);
        counts.leave_last_to_end(&block);
        assert_eq!(counts.at_end.all, 2);
        assert!(counts.before.iter().all(Count::is_empty));
        // Not if the last instruction reads the clock, and not where flags may be changed.
        for (timed, flags) in [(true, true), (false, false)] {
            (block[1].timed, block[1].flags) = (timed, flags);
            let mut counts = Counts::of(&block, false);
            counts.leave_last_to_end(&block);
            assert_eq!(counts.at_end, Amount::default());
        }
    }

    #[test]
    fn a_branch_to_code_that_needs_flags_is_counted_with_the_others() {
        let mut block = [
            one(1, true, None),
            one(0, true, Some(true)),
            one(2, false, None),
        ];
        if let Some(branch) = &mut block[1].branch {
            branch.flags = true;
        }
        let counts = Counts::of(&block, false);
        assert_eq!(counts.before[2].accesses.all, 3);
        assert_eq!(counts.leaving[1].accesses.all, 1);
        assert!(counts.leaving[1].flags && !counts.before[2].flags);
    }

    #[test]
    fn accesses_before_an_instruction_that_reads_the_clock_are_counted_before_it() {
        let mut block = [one(1, false, None); 3];
        block[1].timed = true;
        let counts = Counts::of(&block, false);
        let counted = counts.before.iter().map(|one| one.accesses.all);
        assert_eq!(counted.collect::<Vec<_>>(), [1, 0, 2]);
    }

    /// Whether the path that leaves at an instruction, or at the end, sees the end of the quantum.
    fn is_closed(counts: &Counts, leaving: Option<usize>) -> bool {
        let end = leaving.map_or(counts.before.len(), |at| at + 1);
        counts.before[..end].iter().any(|one| one.closed)
            || leaving.is_some_and(|at| counts.leaving[at].closed)
    }

    #[test]
    fn paths_that_may_lead_back_are_closed() {
        for flags in 0..32_u32 {
            for kinds in 0..16 {
                let needed = |n: u32| flags >> n & 1 != 0;
                let is = |n: u32| kinds >> n & 1 != 0;
                let leaving = |n: u32| {
                    Some(Leaving {
                        free: is(n),
                        flags: false,
                        back: is(n + 1),
                    })
                };
                let mut block = [
                    one(0, needed(0), None),
                    one(0, needed(1), None),
                    one(2, needed(2), None),
                    one(0, needed(3), None),
                    one(0, needed(4), None),
                ];
                block[1].branch = leaving(0);
                block[3].branch = leaving(2);
                for end in [false, true] {
                    let counts = Counts::of(&block, end);
                    let closed = [Some(1), Some(3), None].map(|at| is_closed(&counts, at));
                    let back = [is(1), is(3), end];
                    for (back, closed) in back.into_iter().zip(closed) {
                        assert!(closed || !back, "{flags:b} {kinds:b}");
                    }
                }
            }
        }
    }
}
