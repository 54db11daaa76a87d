//! Where code that only counts accesses, between bursts, counts them: pure. [`super::counting`] emits it.
//!
//! Counting changes flags, so it is done before an instruction at which none is needed, once for a path through the
//! block if possible. Where a path leaves the block earlier, the difference is counted there.

use std::ops::Range;

/// An instruction, as far as counting is concerned.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Its accesses.
    pub accesses: i32,
    /// Whether a flag is needed before it.
    pub flags: bool,
    /// A conditional branch out of the block; true if no flag is needed at its target.
    pub branch: Option<bool>,
    /// It reads the clock: the accesses before it must have been counted.
    pub timed: bool,
}

/// What is counted before an instruction.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Accesses.
    pub accesses: i32,
    /// Those of them that are not made yet.
    pub ahead: i32,
    /// Whether a flag is needed there.
    pub flags: bool,
}

/// Where the accesses of a block are counted.
#[derive(Default)]
pub struct Counts {
    /// Before each instruction.
    pub before: Vec<Count>,
    /// Where each conditional branch leaves the block; negative if more have been counted before.
    pub leaving: Vec<i32>,
}

impl Counts {
    /// For the instructions of a block.
    pub fn of(block: &[Counted]) -> Self {
        let mut counts = Self {
            before: vec![Count::default(); block.len()],
            leaving: vec![0; block.len()],
        };
        let mut from = 0;
        for (at, one) in block.iter().enumerate() {
            if one.timed && from < at {
                counts.count(block, from..at);
                from = at;
            }
            let ends = at + 1 == block.len();
            if one.branch == Some(false) || ends {
                counts.count(block, from..at + 1);
                from = at + 1;
            }
        }
        counts
    }

    /// Counts the accesses of some instructions before one of them, preferably the last without flags.
    fn count(&mut self, block: &[Counted], range: Range<usize>) {
        let sum = |range: Range<usize>| block[range].iter().map(|one| one.accesses).sum::<i32>();
        let all = sum(range.clone());
        let leaves = |at: &usize| block[*at].branch == Some(true) && at + 1 < range.end;
        let place = range.clone().rev().find(|&at| !block[at].flags);
        let at = place.unwrap_or(range.end - 1);
        if all != 0 {
            self.before[at] = Count {
                accesses: all,
                ahead: sum(at..range.end),
                flags: place.is_none(),
            };
        }
        for branch in range.clone().filter(leaves) {
            let before = if at <= branch { all } else { 0 };
            self.leaving[branch] = sum(range.start..branch + 1) - before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(accesses: i32, flags: bool, branch: Option<bool>) -> Counted {
        Counted {
            accesses,
            flags,
            branch,
            timed: false,
        }
    }

    /// What is counted on the path that leaves at an instruction, or at the end.
    fn on_path(counts: &Counts, leaving: Option<usize>) -> i32 {
        let end = leaving.map_or(counts.before.len(), |at| at + 1);
        let before: i32 = counts.before[..end].iter().map(|one| one.accesses).sum();
        before + leaving.map_or(0, |at| counts.leaving[at])
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
                let counts = Counts::of(&block);
                let paths = [Some(2), Some(4), None].map(|leaving| on_path(&counts, leaving));
                assert_eq!(paths, [3, 4, 5], "{flags:b} {kinds:b}");
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
        let counts = Counts::of(&block);
        let Count {
            accesses,
            ahead,
            flags,
        } = counts.before[1];
        assert_eq!((accesses, ahead, flags), (4, 3, false));
        assert_eq!(counts.leaving[2], -2);
    }

    #[test]
    fn accesses_before_an_instruction_that_reads_the_clock_are_counted_before_it() {
        let mut block = [one(1, false, None); 3];
        block[1].timed = true;
        let counts = Counts::of(&block);
        let counted = counts.before.iter().map(|one| one.accesses);
        assert_eq!(counted.collect::<Vec<_>>(), [1, 0, 2]);
    }
}
