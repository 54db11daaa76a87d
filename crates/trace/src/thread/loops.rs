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
pub(super) enum Predicted {
    /// They have been made, or are about to.
    Nothing,
    /// They may be made some time.
    Loop,
    /// They are of a loop that has come to memory that is not mapped.
    UnmappedLoop,
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
    pub fn recorded_loop(
        &mut self,
        recorded: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
        when: When,
    ) {
        self.flush_pending();
        if when == When::Before {
            self.prerecording = true;
            self.predicted = Predicted::Loop;
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
        self.predicted = Predicted::Nothing;
        self.prerecording = false;
    }

    /// Whether the program can touch the page at `address`, as far as that is in doubt.
    pub(super) fn is_within_reach(&mut self, address: u64) -> bool {
        if self.predicted == Predicted::Loop && !reservation::is_mapped(address) {
            self.predicted = Predicted::UnmappedLoop;
        }
        self.predicted != Predicted::UnmappedLoop
    }

    /// A loop of `N` groups.
    #[inline(never)]
    fn whole<const N: usize>(
        &mut self,
        recorded: &Loop,
        registers: &[u64; REGISTERS],
        iterations: u64,
    ) {
        // Most loops of a program are short, and then every instruction of this counts.
        if (1..=FEW).contains(&iterations) && self.has_room(recorded.block.accesses * iterations) {
            let accesses = recorded.block.accesses * iterations;
            if self.skip_paused(accesses) {
                return;
            }
            let groups = recorded.block.groups::<N>();
            let at: [u64; N] = std::array::from_fn(|group| groups[group].address(registers));
            let strides: [u64; N] = std::array::from_fn(|group| groups[group].stride(registers));
            if !self.partial {
                return self.add_mixed(&recorded.block, groups, at, &strides, iterations);
            }
            if self.watches_none(groups, &at, iterations) {
                self.remaining -= accesses;
                return;
            }
        }
        self.by_runs::<N>(recorded, registers, iterations);
    }

    /// A loop of `N` groups, some hundred iterations at a time.
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
        while iterations > 0 && self.predicted != Predicted::UnmappedLoop {
            // Loads from lines used for synchronisation wait to be looked at again; as many as a run has.
            self.flush_pending();
            let room = self.remaining.saturating_sub(2) / block.accesses;
            let mut times = iterations.min(room);
            if times == 0 || !self.together {
                self.one_by_one(&block.sections[0], &at);
                times = 1;
            } else if self.paused() {
                self.remaining -= block.accesses * times;
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
    fn by_iterations(
        &mut self,
        recorded: &Loop,
        mut registers: [u64; REGISTERS],
        mut iterations: u64,
    ) {
        while iterations > 0 && self.predicted != Predicted::UnmappedLoop {
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
