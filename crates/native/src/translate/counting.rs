//! Emits code that only counts accesses, for the time between bursts ([`super::counts`]), and the ways between it and
//! code that records.

use iced_x86::FlowControl;
use numaloc_follow::owners::Owner;

use super::borrowed::Borrowed;
use super::by_registers::counted_string;
use super::copy::Copier;
use super::counts::{Amount, Count, Counted, Counts, Leave, Leaving};
use super::decode::{Block, Decoded, End};
use super::groups::Totals;
use super::landing::{SLOT_RCX, SLOT_TARGET};
use super::liveness;
use crate::emit::{Buffer, Field, GREATER, NOT_EQUAL, NOT_GREATER};
use crate::layout::VECTOR_EXIT;
use crate::record::access::{Access, Plan};
use crate::state::{self, RCX, exit};

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
                let flags = liveness::flags_at(targets, target);
                let returns = target <= last;
                Leaving {
                    // Branches of loops are usually taken: there a count that keeps flags costs more than one before.
                    free: instruction.is_jcc_short_or_near()
                        && target != block.pc
                        && !(flags && returns),
                    flags,
                    back: went_back || returns,
                }
            };
            Counted {
                accesses: self.counted(at),
                flags: self.live(at).flags(),
                branch: match decoded.next {
                    Some(_) if instruction.flow_control() != FlowControl::Call => Some(Leaving {
                        free: true,
                        flags: true,
                        back: true,
                    }),
                    _ => conditional.then(leaving),
                },
                timed: self.is_timed(at),
            }
        };
        let counted: Vec<Counted> = block.instructions.iter().enumerate().map(one).collect();
        self.counts = Counts::of(&counted, went_back || leads_back(block));
        if block.end == End::Return {
            self.counts.leave_last_to_end(&counted);
        }
    }

    /// Number of the accesses of an instruction that are only counted.
    fn counted(&self, at: usize) -> Amount {
        let Some((plan, owner)) = self.plans.get(at) else {
            return Amount::default();
        };
        let accesses = match plan {
            Plan::Before(accesses) => &accesses[..],
            Plan::After { access, .. } => std::slice::from_ref(access),
            _ => &[],
        };
        let counted = accesses.iter().filter(|one| self.is_counted(one, *owner));
        let all = counted
            .map(Access::counts)
            .map(|(reads, writes)| reads + writes)
            .sum();
        let still = if *owner == Owner::Runtime { all } else { 0 };
        Amount { all, still }
    }

    /// Whether an access is only counted. Those of run-time libraries pass no clocks while the process has one thread:
    /// another will begin with a later one.
    fn is_counted(&self, access: &Access, owner: Owner) -> bool {
        access.is_plain(if self.alone { Owner::Program } else { owner })
    }

    /// Whether the engine records the instruction.
    pub(super) fn is_timed(&self, at: usize) -> bool {
        let Some((plan, owner)) = self.plans.get(at) else {
            return false;
        };
        match plan {
            Plan::Nothing => false,
            Plan::Before(accesses) => accesses.iter().any(|one| !self.is_counted(one, *owner)),
            Plan::After { access, .. } => !self.is_counted(access, *owner),
            Plan::Masked { .. } => *owner == Owner::Runtime,
            Plan::Complex => true,
        }
    }

    /// Counts what is counted before instruction number `at`, and lets the engine record what it must.
    pub(super) fn before_counting(&mut self, at: usize, decoded: &Decoded) {
        let pc = decoded.instruction.ip();
        if let Some(&count) = self.counts.before.get(at).filter(|count| !count.is_empty()) {
            self.point(pc, None);
            self.count_ahead(at, count, pc);
        }
        match self.plans.get(at) {
            Some(&(Plan::Masked { masked, mask, .. }, owner)) if owner != Owner::Runtime => {
                self.point(pc, None);
                self.count_selected(at, masked, mask);
            }
            Some(&(Plan::Complex, owner))
                if let Some(repeated) = counted_string(&decoded.instruction, owner) =>
            {
                self.point(pc, None);
                self.recorded = true;
                self.count_string(at, &decoded.instruction, repeated, owner);
            }
            _ if self.is_timed(at) => {
                self.before_except(at, decoded, Some(self.counted_accesses(at)));
            }
            _ => {}
        }
    }

    /// Bits of the accesses of instruction number `at` that are only counted.
    fn counted_accesses(&self, at: usize) -> u8 {
        let Some((Plan::Before(accesses), owner)) = self.plans.get(at) else {
            return 0;
        };
        let counted = |bits, (n, access)| bits | u8::from(self.is_counted(access, *owner)) << n;
        accesses.iter().enumerate().fold(0, counted)
    }

    fn count_ahead(&mut self, at: usize, count: Count, pc: u64) {
        if count.flags && !count.closed {
            let [register, _] = self.borrow(at, 0, 1).registers;
            take_by(&mut self.code, register, count.accesses);
            // Branches out of the block stay short.
            return self.give_back(1 << register);
        }
        let borrowed = Borrowed {
            registers: [0; 2],
            flags: count.flags,
            live: self.live(at).registers,
        };
        self.borrow_flags(&borrowed);
        take(&mut self.code, count.accesses);
        if count.closed {
            self.close(count.ahead, &borrowed, pc);
        }
        self.restore_flags(&borrowed);
    }

    /// Leaves code that only counts accesses at `pc` if the quantum has ended.
    fn close(&mut self, ahead: Amount, borrowed: &Borrowed, pc: u64) {
        let stub = self.stubs.pc();
        self.code.jump_if(NOT_GREATER, stub);
        if ahead.all != 0 {
            // The path is begun if accesses remain.
            let back = self.code.pc();
            self.stubs.add_to_field(state::REMAINING, ahead.all);
            let over = self.stubs.skip_if(NOT_GREATER);
            self.stubs.subtract_from_field(state::REMAINING, ahead.all);
            self.stubs.jump_to(back);
            self.stubs.land(over);
        }
        if ahead.still != 0 {
            self.stubs.add_to_field(state::QUANTUM_END, ahead.still);
        }
        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.leave_in_stubs(pc, exit::COUNTED);
    }

    /// Counts what was left to the end of the block, by rcx, whose value is in its slot.
    pub(super) fn count_at_end(&mut self, pc: u64) {
        if self.counts.at_end != Amount::default() {
            take_by(&mut self.code, RCX, self.counts.at_end);
            self.point(pc, Some((RCX, SLOT_RCX)));
        }
    }

    /// Counts, in the exits' code, what was not counted before a branch to `target`.
    pub(super) fn count_leaving(&mut self, count: Count, target: u64) {
        let over = match count.flags {
            true => count_keeping_flags(&mut self.stubs, count),
            false => {
                take(&mut self.stubs, count.accesses);
                count.closed.then(|| self.stubs.skip_if(GREATER))
            }
        };
        if let Some(over) = over {
            if count.flags {
                self.stubs.with_field(Field::Load, RCX, state::SCRATCH);
            }
            self.leave_in_stubs(target, exit::COUNTED);
            self.stubs.land(over);
        }
        if count.flags {
            self.stubs.with_field(Field::Load, RCX, state::SCRATCH);
        }
    }

    /// Counts, in the exits' code, what was not counted before the path is left for the target in rcx; the program's
    /// rcx is in its slot.
    pub(super) fn count_elsewhere(&mut self, count: Count) {
        let code = &mut self.stubs;
        code.save(RCX, SLOT_TARGET);
        take_by(code, RCX, count.accesses);
        if count.closed {
            code.load_high_half(RCX, state::REMAINING);
            let over = code.skip_if_rcx_is_zero();
            code.restore(RCX, SLOT_TARGET);
            code.with_field(Field::Store, RCX, state::PC);
            code.restore(RCX, SLOT_RCX);
            code.set_field(state::ADDRESS, self.fragment.start.into());
            code.set_field(state::EXIT, exit::COUNTED);
            code.jump_by(VECTOR_EXIT);
            code.land(over);
        }
        code.restore(RCX, SLOT_TARGET);
    }

    /// Emits a branch to `target` on a path on which `count` is left to be counted: after the block, in the same lines
    /// and pages.
    pub(super) fn count_later(&mut self, count: Count, condition: u8, target: u64) {
        self.code.jump_if(condition, 0);
        self.leaves.push(Leave {
            jump: self.code.offset() - 4,
            count,
            target,
        });
    }

    /// Emits what such branches lead to.
    pub(super) fn leave_after_counting(&mut self) {
        for Leave {
            jump,
            count,
            target,
        } in std::mem::take(&mut self.leaves)
        {
            let here = self.code.pc();
            self.code.lead(jump, here);
            if count.flags {
                let over = count_keeping_flags(&mut self.code, count);
                if let Some(over) = over {
                    let stub = self.stubs.pc();
                    self.code.jump_to(stub);
                    self.code.land(over);
                    self.stubs.with_field(Field::Load, RCX, state::SCRATCH);
                    self.leave_in_stubs(target, exit::COUNTED);
                }
                self.code.with_field(Field::Load, RCX, state::SCRATCH);
            } else {
                take(&mut self.code, count.accesses);
                if count.closed {
                    let stub = self.stubs.pc();
                    self.code.jump_if(NOT_GREATER, stub);
                    self.leave_in_stubs(target, exit::COUNTED);
                }
            }
            self.exit(None, target);
        }
    }

    /// Emits, in the exits' code, what leaves code that records at `pc` between bursts, and continues otherwise.
    /// `taken` has been taken from the quantum if the code is steady.
    pub(super) fn leave_paused(&mut self, taken: Totals, borrowed: &Borrowed, pc: u64) {
        self.stubs.is_zero_field(state::SAMPLE_THRESHOLD);
        self.stubs.jump_if(NOT_EQUAL, 0);
        let sampling = self.stubs.offset() - 4;
        if self.steady {
            self.give_room(taken);
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
        if why == exit::COUNTED {
            self.stubs
                .set_field(state::ADDRESS, self.fragment.start.into());
        }
        self.stubs.set_field(state::EXIT, why);
        self.stubs.jump_by(VECTOR_EXIT);
    }
}

/// Takes accesses from the quantum. The flags show what remains.
fn take(code: &mut Buffer, amount: Amount) {
    if amount.still != 0 {
        code.subtract_from_field(state::QUANTUM_END, amount.still);
    }
    match amount.all {
        0 => code.is_zero_field(state::REMAINING),
        all => code.subtract_from_field(state::REMAINING, all),
    }
}

/// Takes accesses from the quantum by a register, without changing flags.
fn take_by(code: &mut Buffer, register: usize, amount: Amount) {
    let fields = [
        (state::QUANTUM_END, amount.still),
        (state::REMAINING, amount.all),
    ];
    for (field, number) in fields.into_iter().filter(|one| one.1 != 0) {
        code.with_field(Field::Load, register, field);
        code.address(register, Some(register), None, number.wrapping_neg());
        code.with_field(Field::Store, register, field);
    }
}

/// Takes accesses from the quantum by rcx, which is stored meanwhile, without changing flags. Returns what skips the
/// code for the end of the quantum, if the path is closed.
fn count_keeping_flags(code: &mut Buffer, count: Count) -> Option<usize> {
    code.with_field(Field::Store, RCX, state::SCRATCH);
    take_by(code, RCX, count.accesses);
    count.closed.then(|| {
        code.load_high_half(RCX, state::REMAINING);
        code.skip_if_rcx_is_zero()
    })
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
