//! Loops that are told as a whole, before they run or after: a compiler knows which accesses each iteration makes, and how many
//! iterations there will be, or it counts them.
//!
//! They are added up in runs, as those of a block that repeats ([`super::runs`]), and each access ends a turn that would have ended it
//! if it had been told by itself. Two threads that use the same lines in such loops side by side meet in them in another order than they
//! do in the program; nothing that synchronises may be in such a loop.
//!
//! A loop that runs out of mapped memory ends the program there, or its signal handler does. Told before, its telling ends there, too,
//! or it might go on for hours: the kernel is asked about each page that nobody has touched before.

use super::ThreadTracer;
use super::runs::LONGEST;

use crate::block::{Block, GROUPS, Piece, REGISTERS, Strides};
use crate::reservation;

/// Up to so many iterations are added up together, not each group by itself.
const FEW: u64 = 24;

/// What is known of the accesses that are being told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Foretold {
    /// They have been made, or are about to.
    Nothing,
    /// They may be made some time.
    Loop,
    /// They are of a loop that has come to memory that is not mapped.
    LostLoop,
}

/// When a loop is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before its first access is made.
    Before,
    /// After its last one.
    After,
}

/// The accesses of a loop's iteration, and how the next one's differ.
#[derive(Debug)]
pub struct Loop {
    block: Block,
    strides: Strides,
    /// Groups of its only section, 0 when there are several.
    groups: usize,
}

impl Loop {
    /// Iterations of `pieces`, in the program's order; each adds `strides` to the registers, all of which are known.
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

    /// The registers of the iteration that follows the one with `registers`.
    fn step(&self, registers: &mut [u64; REGISTERS]) {
        let before = *registers;
        for (register, step) in registers.iter_mut().zip(self.strides.iter().flatten()) {
            let other = step.register.map_or(0, |other| before[usize::from(other)]);
            *register = register.wrapping_add(step.constant).wrapping_add(other);
        }
    }
}

impl ThreadTracer {
    /// The accesses of `iterations` of a loop, the first of which begins with `registers`.
    pub fn told_loop(
        &mut self,
        told: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
        when: When,
    ) {
        self.settle();
        if when == When::Before {
            self.ahead = true;
            self.foretold = Foretold::Loop;
        }
        match told.groups {
            1 => self.whole::<1>(told, registers, iterations),
            2 => self.whole::<2>(told, registers, iterations),
            3 => self.whole::<3>(told, registers, iterations),
            4 => self.whole::<4>(told, registers, iterations),
            5 => self.whole::<5>(told, registers, iterations),
            6 => self.whole::<6>(told, registers, iterations),
            7 => self.whole::<7>(told, registers, iterations),
            GROUPS => self.whole::<GROUPS>(told, registers, iterations),
            _ => self.by_iterations(told, *registers, iterations),
        }
        self.foretold = Foretold::Nothing;
        self.ahead = false;
    }

    /// Whether the program can touch the page at `address`, as far as that is in doubt.
    pub(super) fn is_within_reach(&mut self, address: u64) -> bool {
        if self.foretold == Foretold::Loop && !reservation::is_mapped(address) {
            self.foretold = Foretold::LostLoop;
        }
        self.foretold != Foretold::LostLoop
    }

    /// A loop of `N` groups.
    #[inline(never)]
    fn whole<const N: usize>(
        &mut self,
        told: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
    ) {
        // Most loops of a program are short, and then every instruction of this counts.
        if (1..=FEW).contains(&iterations) && self.has_room(told.block.accesses * iterations) {
            let accesses = told.block.accesses * iterations;
            if self.sleeps_through(accesses) {
                return;
            }
            let groups = told.block.groups::<N>();
            let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
            let strides: [u64; N] = std::array::from_fn(|group| groups[group].stride(registers));
            if !self.partial {
                return self.add_mixed(&told.block, groups, at, &strides, iterations);
            }
            if self.watches_none(groups, &at, iterations) {
                self.left -= accesses;
                return;
            }
        }
        self.by_runs::<N>(told, registers, iterations);
    }

    /// A loop of `N` groups, some hundred iterations at a time.
    #[inline(never)]
    fn by_runs<const N: usize>(
        &mut self,
        told: &Loop,
        registers: &[u64; REGISTERS],
        mut iterations: u64,
    ) {
        let block = &told.block;
        let groups = block.groups::<N>();
        let mut at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
        let strides: [u64; N] = std::array::from_fn(|group| groups[group].stride(registers));
        while iterations > 0 && self.foretold != Foretold::LostLoop {
            // Loads from lines used for synchronisation wait to be looked at again; as many as a run has.
            self.settle();
            let room = self.left.saturating_sub(2) / block.accesses;
            let mut times = iterations.min(room);
            if times == 0 || !self.together {
                self.one_by_one(&block.sections[0], &at);
                times = 1;
            } else if self.asleep() {
                self.left -= block.accesses * times;
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

    /// A loop of more groups than are looked at together.
    #[inline(never)]
    fn by_iterations(&mut self, told: &Loop, mut registers: [u64; REGISTERS], mut iterations: u64) {
        while iterations > 0 && self.foretold != Foretold::LostLoop {
            self.settle();
            for section in &told.block.sections {
                let mut at = [0; GROUPS];
                for (group, at) in section.groups.iter().zip(&mut at) {
                    *at = group.address(&registers);
                }
                let amounts = [section.accesses, section.read_bytes, section.write_bytes];
                if !self.count_quick(&section.groups, amounts, &at, 1) {
                    self.one_by_one(section, &at);
                }
            }
            told.step(&mut registers);
            iterations -= 1;
        }
    }
}
