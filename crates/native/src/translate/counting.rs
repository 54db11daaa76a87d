//! Emits code that only counts accesses, for the time between bursts ([`super::counts`]), and the ways between it and
//! code that records.

use iced_x86::FlowControl;

use super::borrowed::Borrowed;
use super::copy::Copier;
use super::counts::{Count, Counted, Counts, Leaving};
use super::decode::{Block, Decoded, End};
use crate::emit::{GREATER, NOT_EQUAL, NOT_GREATER};
use crate::layout::VECTOR_EXIT;
use crate::record::access::Plan;
use crate::state::{self, exit};

impl Copier<'_> {
    /// Decides where the block's accesses are counted. `targets`: branches' targets, and whether a flag is needed
    /// there.
    pub(super) fn plan_counts(&mut self, block: &Block, targets: &[(u64, bool)]) {
        let (mut last, mut went_back) = (block.pc, false);
        let one = |(at, decoded): (usize, &Decoded)| {
            let instruction = &decoded.instruction;
            went_back |= instruction.ip() < last;
            last = instruction.ip();
            let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
            let target = instruction.near_branch_target();
            let leaving = || {
                let known = targets.iter().find(|known| known.0 == target);
                Leaving {
                    free: instruction.is_jcc_short_or_near()
                        && target != block.pc
                        && known.is_some_and(|known| !known.1),
                    back: went_back || target <= last,
                }
            };
            Counted {
                accesses: self.counted(at),
                flags: self.live(at).flags(),
                branch: conditional.then(leaving),
                timed: self.is_timed(at),
            }
        };
        let counted: Vec<Counted> = block.instructions.iter().enumerate().map(one).collect();
        self.counts = Counts::of(&counted, went_back || leads_back(block));
    }

    /// Number of the accesses of an instruction that are only counted.
    fn counted(&self, at: usize) -> i32 {
        let Some((Plan::Before(accesses), owner)) = self.plans.get(at) else {
            return 0;
        };
        let plain = accesses.iter().filter(|access| access.is_plain(*owner));
        plain
            .map(|access| access.counts())
            .map(|(reads, writes)| reads + writes)
            .sum()
    }

    /// Whether the engine records the instruction.
    fn is_timed(&self, at: usize) -> bool {
        match self.plans.get(at) {
            Some((Plan::Before(accesses), owner)) => {
                accesses.iter().any(|access| !access.is_plain(*owner))
            }
            Some((plan, _)) => *plan != Plan::Nothing,
            None => false,
        }
    }

    /// Counts what is counted before instruction number `at`, and lets the engine record what it must.
    pub(super) fn before_counting(&mut self, at: usize, decoded: &Decoded) {
        let pc = decoded.instruction.ip();
        if let Some(&count) = self.counts.before.get(at).filter(|count| !count.is_empty()) {
            self.point(pc, None);
            self.count_ahead(at, count, pc);
        }
        if self.is_timed(at) {
            let plain = self.plain_accesses(at);
            self.before_except(at, decoded, Some(plain));
        }
    }

    fn count_ahead(&mut self, at: usize, count: Count, pc: u64) {
        let borrowed = count.flags.then(|| Borrowed {
            registers: [0; 2],
            flags: true,
            live: self.live(at).registers,
        });
        if let Some(borrowed) = &borrowed {
            self.borrow_flags(borrowed);
        }
        match count.accesses {
            0 => self.code.is_zero_field(state::REMAINING),
            accesses => self.code.subtract_from_field(state::REMAINING, accesses),
        }
        if count.closed {
            let stub = self.stubs.pc();
            self.code.jump_if(NOT_GREATER, stub);
            if count.ahead != 0 {
                // The path is begun if accesses remain.
                let back = self.code.pc();
                self.stubs.add_to_field(state::REMAINING, count.ahead);
                let over = self.stubs.skip_if(NOT_GREATER);
                self.stubs
                    .subtract_from_field(state::REMAINING, count.ahead);
                self.stubs.jump_to(back);
                self.stubs.land(over);
            }
            if let Some(borrowed) = &borrowed {
                self.stubs.flags_from_rax();
                self.restore_flags(borrowed);
            }
            self.settle_in_stubs();
            self.leave_in_stubs(pc, exit::COUNTED);
        } else if let Some(borrowed) = &borrowed {
            self.restore_flags(borrowed);
        }
    }

    /// Counts, in the exits' code, what was not counted before a branch to `target`.
    pub(super) fn count_leaving(&mut self, count: Count, target: u64) {
        match count.accesses {
            0 => self.stubs.is_zero_field(state::REMAINING),
            accesses => self.stubs.subtract_from_field(state::REMAINING, accesses),
        }
        if count.closed {
            let room = self.stubs.skip_if(GREATER);
            self.leave_in_stubs(target, exit::COUNTED);
            self.stubs.land(room);
        }
    }

    /// Emits, in the exits' code, what leaves code that records at `pc` between bursts, and continues otherwise. This
    /// many accesses have been taken from the quantum if the code is steady.
    pub(super) fn leave_paused(&mut self, accesses: i32, borrowed: &Borrowed, pc: u64) {
        self.stubs.is_zero_field(state::SAMPLE_THRESHOLD);
        self.stubs.jump_if(NOT_EQUAL, 0);
        let sampling = self.stubs.offset() - 4;
        if self.steady {
            self.stubs.add_to_field(state::REMAINING, accesses);
        }
        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.leave_in_stubs(pc, exit::PAUSED);
        let here = self.stubs.pc();
        self.stubs.lead(sampling, here);
    }

    fn leave_in_stubs(&mut self, pc: u64, why: u64) {
        self.stubs.set_field(state::PC, pc);
        self.stubs.set_field(state::EXIT, why);
        self.stubs.jump_by(VECTOR_EXIT);
    }
}

/// Whether the end of a block may lead back to code that has been executed. Returns need not be considered: the call
/// before, or the loop around it, does.
fn leads_back(block: &Block) -> bool {
    let Some(last) = block.instructions.last() else {
        return false;
    };
    match block.end {
        End::Jump(target) | End::Call(target) => target <= last.instruction.ip(),
        End::CallIndirect | End::JumpIndirect => true,
        End::Return | End::SystemCall | End::Breakpoint | End::NoCode(_) | End::Unsupported(_) => {
            false
        }
    }
}
