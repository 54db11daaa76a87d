//! Loops recorded as a whole, before they run or after: the compiler knows the accesses of an iteration and the number
//! of iterations, or counts them.
//!
//! They are added in runs, like repeating blocks ([`super::runs`]). A quantum ends at the same access as if each were
//! recorded by itself. Two threads that use the same lines in such loops at the same time may meet in another order
//! than in the program; a loop must not synchronise.
//!
//! A loop that leaves mapped memory ends there, with the program or in a signal handler. When it is recorded before it
//! runs, recording must stop there too, or it could go on for hours: each page touched for the first time is checked
//! with the kernel.

use std::sync::OnceLock;

use super::runs::LONGEST;
use super::{ThreadTracer, WORD};

use crate::block::{Block, Form, GROUPS, Kind, Piece, REGISTERS, Step, Strides};
use crate::reservation;

/// Most iterations that are added together rather than group by group.
const FEW: u64 = 24;

/// Whether the accesses being recorded are predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Predicted {
    /// No: they were made, or are about to be.
    Nothing,
    /// Yes: they are of a loop that has not run yet.
    Loop,
    /// They are of a loop that has left mapped memory: the rest is not recorded.
    UnmappedLoop,
}

/// When a loop is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before its first access is made.
    Before,
    /// After its last access was made.
    After,
}

/// The accesses of one iteration of a loop, and what each iteration adds to the registers.
#[derive(Debug)]
pub struct Loop {
    block: Block,
    strides: Strides,
    /// Number of groups if it has one section, otherwise 0.
    groups: usize,
}

impl Loop {
    /// A loop with `pieces` in the program's order; each iteration adds `strides`, all of them known, to the
    /// registers.
    ///
    /// # Panics
    /// As [`Block::new`], and when there is no piece or a stride is not known.
    #[must_use]
    pub fn new(pieces: &[Piece], strides: Strides) -> Self {
        assert!(!pieces.is_empty() && strides.iter().all(Option::is_some));
        let block = Block::new(pieces, Some(&strides));
        let groups = match &*block.sections {
            [section] => section.groups.len(),
            _ => 0,
        };
        Self {
            block,
            strides,
            groups,
        }
    }

    /// Sets the places of the pieces in the code: see [`Block::set_places`].
    pub fn set_places(&mut self, places: &[u64]) {
        self.block.set_places(places);
    }

    /// Sets one place for all pieces.
    pub fn set_place(&mut self, place: u64) {
        self.set_places(&vec![place; self.block.pieces.len()]);
    }

    /// Loads, or stores, of one word after the other from the address in register 0 on.
    #[must_use]
    pub fn over_words(write: bool) -> &'static Self {
        static LOOPS: [OnceLock<Loop>; 2] = [const { OnceLock::new() }; 2];
        LOOPS[usize::from(write)].get_or_init(|| {
            let piece = Piece {
                form: Form {
                    base: Some(0),
                    index: None,
                },
                displacement: 0,
                size: WORD as u8,
                kind: if write { Kind::Write } else { Kind::Read },
            };
            let mut strides = [Some(Step::default()); REGISTERS];
            strides[0] = Some(Step {
                constant: WORD,
                register: None,
            });
            Self::new(&[piece], strides)
        })
    }

    /// Changes `registers` to those of the next iteration.
    fn step(&self, registers: &mut [u64; REGISTERS]) {
        let before = *registers;
        for (register, step) in registers.iter_mut().zip(self.strides.iter().flatten()) {
            let other = step.register.map_or(0, |other| before[usize::from(other)]);
            *register = register.wrapping_add(step.constant).wrapping_add(other);
        }
    }
}

impl ThreadTracer {
    /// Records `iterations` of a loop, the first of which begins with `registers`.
    pub fn recorded_loop(
        &mut self,
        recorded: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
        when: When,
    ) {
        self.flush_pending();
        if when == When::Before {
            self.batch.prerecording = true;
            self.batch.predicted = Predicted::Loop;
        }
        match recorded.groups {
            1 => self.whole::<1>(recorded, registers, iterations),
            2 => self.whole::<2>(recorded, registers, iterations),
            3 => self.whole::<3>(recorded, registers, iterations),
            4 => self.whole::<4>(recorded, registers, iterations),
            5 => self.whole::<5>(recorded, registers, iterations),
            6 => self.whole::<6>(recorded, registers, iterations),
            7 => self.whole::<7>(recorded, registers, iterations),
            GROUPS => self.whole::<GROUPS>(recorded, registers, iterations),
            _ => self.by_iterations(recorded, *registers, iterations),
        }
        self.batch.predicted = Predicted::Nothing;
        self.batch.prerecording = false;
    }

    /// Whether a predicted access can touch the page at `address`; true for accesses that are not predicted.
    pub(super) fn is_within_reach(&mut self, address: u64) -> bool {
        if self.batch.predicted == Predicted::Loop && !reservation::is_mapped(address) {
            self.batch.predicted = Predicted::UnmappedLoop;
        }
        self.batch.predicted != Predicted::UnmappedLoop
    }

    /// Records a loop of `N` groups.
    #[inline(never)]
    fn whole<const N: usize>(
        &mut self,
        recorded: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
    ) {
        // Most loops of a program are short, so every instruction here counts.
        if (1..=FEW).contains(&iterations) && self.has_room(recorded.block.accesses * iterations) {
            let accesses = recorded.block.accesses * iterations;
            if self.skip_paused(accesses) {
                return;
            }
            let groups = recorded.block.groups::<N>();
            let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
            let strides: [u64; N] = std::array::from_fn(|group| groups[group].stride(registers));
            if !self.sampler.partial {
                return self.add_mixed(&recorded.block, groups, at, &strides, iterations);
            }
            if self.watches_none(groups, &at, iterations) {
                self.fast.remaining -= accesses;
                return;
            }
        }
        self.by_runs::<N>(recorded, registers, iterations);
    }

    /// Records a loop of `N` groups, in runs.
    #[inline(never)]
    fn by_runs<const N: usize>(
        &mut self,
        recorded: &Loop,
        registers: &[u64; REGISTERS],
        mut iterations: u64,
    ) {
        let block = &recorded.block;
        let groups = block.groups::<N>();
        let mut at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
        let strides: [u64; N] = std::array::from_fn(|group| groups[group].stride(registers));
        while iterations > 0 && self.batch.predicted != Predicted::UnmappedLoop {
            // Loads from synchronisation lines are pending; there may be as many as a run has accesses.
            self.flush_pending();
            let room = self.fast.remaining.saturating_sub(2) / block.accesses;
            let mut times = iterations.min(room);
            if times == 0 || !self.batch.possible {
                self.one_by_one(&block.sections[0], &at);
                times = 1;
            } else if self.sampler.paused() {
                self.fast.remaining -= block.accesses * times;
            } else {
                times = times.min(LONGEST);
                self.add_run(block, at, &strides, times);
            }
            for (at, stride) in at.iter_mut().zip(strides) {
                *at = at.wrapping_add(stride.wrapping_mul(times));
            }
            iterations -= times;
        }
    }

    /// Records a loop with more groups than one section holds.
    #[inline(never)]
    fn by_iterations(
        &mut self,
        recorded: &Loop,
        mut registers: [u64; REGISTERS],
        mut iterations: u64,
    ) {
        while iterations > 0 && self.batch.predicted != Predicted::UnmappedLoop {
            self.flush_pending();
            for section in &recorded.block.sections {
                let mut at = [0; GROUPS];
                for (group, at) in section.groups.iter().zip(&mut at) {
                    *at = group.address(&registers);
                }
                let amounts = [section.accesses, section.read_bytes, section.write_bytes];
                if !self.count_groups(&section.groups, amounts, &at, 1) {
                    self.one_by_one(section, &at);
                }
            }
            recorded.step(&mut registers);
            iterations -= 1;
        }
    }
}
