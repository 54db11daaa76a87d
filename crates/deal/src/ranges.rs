//! How the parts of one loop are shared by the threads of a team; no I/O.
//!
//! A part is one chunk of the program's schedule, or several where a loop has more than [`MAX_PARTS`] chunks. Each
//! thread has a range of parts, which is one atomic word: the owner takes from its front, others from its back. A word
//! of 0 means that nobody has touched the range, which is then the block of its thread.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Most parts of a loop: a range of them is one word.
pub const MAX_PARTS: u64 = u32::MAX as u64;

/// Parts `from..to` of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The first.
    pub from: u32,
    /// One after the last.
    pub to: u32,
}

impl Parts {
    /// The block of thread `rank` among `threads`: blocks are in order and differ by one part at most.
    pub fn block(rank: u32, threads: u32, parts: u32) -> Self {
        let at =
            |rank: u32| (u64::from(rank) * u64::from(parts) / u64::from(threads.max(1))) as u32;
        Self {
            from: at(rank),
            to: at(rank + 1),
        }
    }

    fn len(self) -> u32 {
        self.to.saturating_sub(self.from)
    }

    fn word(self) -> u64 {
        u64::from(self.from) << 32 | u64::from(self.to)
    }

    fn of_word(word: u64) -> Self {
        Self {
            from: (word >> 32) as u32,
            to: word as u32,
        }
    }
}

/// A thread's range, and the node on which the thread runs.
#[repr(C, align(64))]
pub struct Share {
    range: AtomicU64,
    /// Node + 1; 0 as long as it is not known.
    node: AtomicU32,
}

/// How much a thread takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// One part: `schedule(dynamic)`.
    One,
    /// A quarter of what is left of its range: `schedule(guided)`, whose portions become smaller.
    Quarter,
}

/// One thread's view of a loop.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// One for each thread of the team.
    pub shares: &'a [Share],
    /// The position of this thread.
    pub rank: u32,
    /// Number of parts of the loop.
    pub parts: u32,
    /// How much it takes at a time.
    pub portion: Portion,
}

impl Share {
    /// Notes the node of the thread that owns the share.
    pub fn on(&self, node: u32) {
        self.node.store(node + 1, Relaxed);
    }

    /// Makes the share as it was before the loop.
    pub fn reset(&self) {
        self.range.store(0, Relaxed);
        self.node.store(0, Relaxed);
    }
}

impl Team<'_> {
    fn decoded(&self, rank: u32, word: u64) -> Parts {
        match word {
            0 => Parts::block(rank, self.shares.len() as u32, self.parts),
            word => Parts::of_word(word),
        }
    }

    /// The next parts from the thread's own range.
    #[inline]
    pub fn own(&self) -> Option<Parts> {
        let range = &self.shares[self.rank as usize].range;
        let mut word = range.load(Relaxed);
        loop {
            let left = self.decoded(self.rank, word);
            let count = match self.portion {
                _ if left.len() == 0 => return None,
                Portion::One => 1,
                Portion::Quarter => (left.len() / 4).max(1),
            };
            let from = left.from + count;
            let rest = Parts { from, ..left }.word();
            match range.compare_exchange_weak(word, rest, Acquire, Relaxed) {
                Ok(_) => return Some(Parts { to: from, ..left }),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the later half of what another thread has left, and makes it the own range, which must be empty. The
    /// thread taken from is the nearest by `distance` of nodes (the own one first), then the one with most left, then
    /// the next by rank. `None` once nobody has anything left.
    pub fn take(&self, distance: impl Fn(u32, u32) -> u32) -> Option<Parts> {
        let own = &self.shares[self.rank as usize];
        let here = own.node.load(Relaxed).checked_sub(1);
        let threads = self.shares.len() as u32;
        loop {
            let mut best: Option<(u32, u32, u32, u64)> = None;
            for step in 1..threads {
                let rank = (self.rank + step) % threads;
                let share = &self.shares[rank as usize];
                let word = share.range.load(Relaxed);
                let left = self.decoded(rank, word).len();
                if left == 0 {
                    continue;
                }
                let there = share.node.load(Relaxed).checked_sub(1);
                let away = match (here, there) {
                    (Some(here), Some(there)) => distance(here, there),
                    // A thread that has not begun may be anywhere.
                    _ => u32::MAX,
                };
                if best.is_none_or(|(least, most, ..)| (away, most) < (least, left)) {
                    best = Some((away, left, rank, word));
                }
            }
            let (_, _, rank, word) = best?;
            let left = self.decoded(rank, word);
            let middle = left.from + left.len() / 2;
            let rest = Parts { to: middle, ..left };
            // A range that is taken whole must not look like one that nobody has touched.
            let rest = match rest.word() {
                0 => Parts { from: 1, to: 1 }.word(),
                word => word,
            };
            let range = &self.shares[rank as usize].range;
            if range.compare_exchange(word, rest, Acquire, Relaxed).is_ok() {
                let taken = Parts {
                    from: middle,
                    ..left
                };
                own.range.store(taken.word(), Release);
                return Some(taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(count: usize) -> Vec<Share> {
        let share = || Share {
            range: AtomicU64::new(0),
            node: AtomicU32::new(0),
        };
        std::iter::repeat_with(share).take(count).collect()
    }

    fn team(shares: &[Share], rank: u32, parts: u32) -> Team<'_> {
        Team {
            shares,
            rank,
            parts,
            portion: Portion::One,
        }
    }

    #[test]
    fn blocks_cover_a_loop_in_order_and_differ_by_one() {
        for (threads, parts) in [(1, 0), (1, 7), (4, 3), (4, 4), (3, 10), (256, u32::MAX)] {
            let mut next = 0;
            for rank in 0..threads {
                let block = Parts::block(rank, threads, parts);
                assert_eq!(block.from, next);
                assert!(block.len() - parts / threads <= 1);
                next = block.to;
            }
            assert_eq!(next, parts);
        }
    }

    /// Three threads, 12 parts; threads 0 and 2 are on node 0, thread 1 on node 1.
    #[test]
    fn who_has_finished_takes_half_from_the_nearest() {
        let shares = shares(3);
        for (rank, node) in [(0, 0), (1, 1), (2, 0)] {
            shares[rank].on(node);
        }
        let distance = |a, b| if a == b { 10 } else { 20 };
        let first = team(&shares, 0, 12);
        for part in 0..4 {
            assert_eq!(
                first.own(),
                Some(Parts {
                    from: part,
                    to: part + 1
                })
            );
        }
        assert_eq!(first.own(), None);
        // Thread 2 has 8..12, on the same node: its later half.
        assert_eq!(first.take(distance), Some(Parts { from: 10, to: 12 }));
        assert_eq!(first.own(), Some(Parts { from: 10, to: 11 }));
        assert_eq!(first.own(), Some(Parts { from: 11, to: 12 }));
        assert_eq!(first.take(distance), Some(Parts { from: 9, to: 10 }));
        assert_eq!(first.own(), Some(Parts { from: 9, to: 10 }));
        assert_eq!(first.take(distance), Some(Parts { from: 8, to: 9 }));
        // Only the other node has some left.
        assert_eq!(first.own(), Some(Parts { from: 8, to: 9 }));
        assert_eq!(first.take(distance), Some(Parts { from: 6, to: 8 }));
    }

    #[test]
    fn a_range_taken_whole_before_its_thread_begins_is_not_given_again() {
        let shares = shares(2);
        let second = team(&shares, 1, 1);
        assert_eq!(second.own(), Some(Parts { from: 0, to: 1 }));
        assert_eq!(team(&shares, 0, 1).own(), None);
        assert_eq!(team(&shares, 0, 1).take(|_, _| 10), None);
        let shares = super::tests::shares(3);
        // Parts 0 of threads 0 (0..1), 1 (1..2), 2 (2..3): thread 2 takes that of thread 0 whole.
        let third = team(&shares, 2, 3);
        assert!(third.own().is_some());
        assert_eq!(third.take(|_, _| 10), Some(Parts { from: 0, to: 1 }));
        assert!(third.own().is_some());
        assert_eq!(team(&shares, 0, 3).own(), None);
    }

    #[test]
    fn guided_portions_become_smaller() {
        let shares = shares(1);
        let guided = Team {
            portion: Portion::Quarter,
            ..team(&shares, 0, 16)
        };
        let sizes: Vec<u32> = std::iter::from_fn(|| guided.own())
            .map(Parts::len)
            .collect();
        assert_eq!(sizes, [4, 3, 2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn each_part_is_given_to_one_thread_once() {
        for (threads, parts) in [(2_u32, 1_u32), (4, 3), (4, 50_000), (7, 9_999)] {
            let shares = shares(threads as usize);
            let given: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
            std::thread::scope(|scope| {
                for rank in 0..threads {
                    let (shares, given) = (&shares, &given);
                    scope.spawn(move || {
                        let team = team(shares, rank, parts);
                        shares[rank as usize].on(rank % 2);
                        let distance = |a, b| if a == b { 10 } else { 20 };
                        loop {
                            while let Some(got) = team.own() {
                                for part in got.from..got.to {
                                    given[part as usize].fetch_add(1, Relaxed);
                                }
                            }
                            if team.take(distance).is_none() {
                                break;
                            }
                        }
                    });
                }
            });
            assert!(given.iter().all(|count| count.load(Relaxed) == 1));
        }
    }
}
