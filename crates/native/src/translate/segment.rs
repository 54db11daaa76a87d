//! Emits the code of segments, whose accesses are recorded together ([`super::groups`]).

use super::borrowed::{Borrowed, CHOICE, used};
use super::copy::Copier;
use super::decode::Block;
use super::groups::{GROUPS, Made, Owed, Segment, Totals};
use super::loops::Found;
use crate::fragment::Version;
use crate::record;
use crate::record::access::Operand;
use crate::state::{self, RAX, RCX};

impl Copier<'_> {
    /// Emits a segment: the check of its groups, and the instructions without the accesses of the groups.
    pub(super) fn segment(&mut self, segment: &Segment, block: &Block, found: &mut Option<Found>) {
        let Segment {
            begin,
            end,
            merged,
            after,
            ..
        } = segment;
        if segment.checks() {
            self.check(segment, block.instructions[*begin].instruction.ip());
        }
        for at in *begin..*end {
            self.recorded = true;
            self.before_except(at, &block.instructions[at], Some(merged[at - begin]));
            if at + 1 == *end && !after.is_empty() {
                self.owed = after.clone();
            }
            match found.take_if(|found| found.branch == at) {
                Some(found) => self.begin_loop(found, block),
                None => self.instruction(at, &block.instructions[at]),
            }
            self.after(at);
        }
        // The last instruction's accesses are recorded; the end of the block executes it. So are those of the segments
        // that follow on a path.
        self.recorded = *end == block.instructions.len() || !after.is_empty();
        self.owed = Owed::default();
    }

    /// Emits the check of a segment's groups, before the instruction at `pc`.
    fn check(&mut self, segment: &Segment, pc: u64) {
        let Segment {
            begin,
            groups,
            taken,
            before,
            ..
        } = segment;
        self.recorded = !before.is_empty();
        self.point(pc, None);
        let count = segment.takes(self.steady && self.alone);
        let borrowed = self.borrow(*begin, segment.registers(), count);
        let [a, b] = borrowed.registers;
        self.borrow_flags(&borrowed);
        let entries = self.undo(segment, &borrowed, pc);
        if let Some(totals) = *taken {
            let mut cold = entries[0];
            if record::in_bursts() {
                cold = self.stubs.pc();
                self.leave_paused(totals, &borrowed, pc);
                self.stubs.jump_to(entries[0]);
            }
            if self.steady {
                self.take_room(totals, cold);
            } else {
                self.has_room(totals.accesses, b, cold);
            }
        }
        for (group, &cold) in groups.iter().zip(&entries) {
            let (operand, shape) = (group.operand(), group.shape());
            let at = self.find(&operand, shape, a, b);
            self.lines_are_ours(shape, &operand, at, [a, b], cold);
            self.count_page(group.made(), at, a, b, cold);
        }
        self.unusual_lines(a, b);
        if let Some(totals) = taken {
            self.count(totals.accesses, (totals.loaded, totals.stored));
        }
        self.restore_flags(&borrowed);
    }

    /// Emits, in the exits' code, what takes back the counts of the groups before one that fails, and what has been
    /// counted of this segment otherwise: an entry for each group, which are returned. The code goes on at `pc`, in the
    /// version that records each access by itself.
    fn undo(&mut self, segment: &Segment, borrowed: &Borrowed, pc: u64) -> [u64; GROUPS] {
        let Segment {
            groups,
            taken,
            before,
            ..
        } = segment;
        let [a, b] = borrowed.registers;
        let mut entries = [0; GROUPS];
        for at in (0..groups.len().max(1)).rev() {
            entries[at] = self.stubs.pc();
            if let Some(before) = at.checked_sub(1) {
                let group = &groups[before];
                self.take_back_from_page(&group.operand(), group.made(), a, b);
            }
        }
        if let Some(totals) = taken.filter(|_| self.steady) {
            self.give_room(totals);
        }
        for (operand, made) in &before.groups {
            self.take_back_from_page(operand, *made, a, b);
        }
        self.take_back_totals(before.totals);
        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.exit_from_stubs(pc, Version::Apart);
        entries
    }

    fn take_back_from_page(&mut self, operand: &Operand, made: Made, a: usize, b: usize) {
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.address(operand, a, b);
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.take_from_page(made, a, b);
    }

    /// Gives back, in the exits' code, what has been taken from the quantum for accesses that are not made.
    fn take_back_totals(&mut self, totals: Totals) {
        if totals.accesses != 0 {
            self.give_room(totals);
        }
        if totals.stored != 0 {
            self.stubs
                .subtract_from_field(state::WRITE_BYTES, totals.stored);
        }
    }

    /// Emits, in the exits' code, what takes back the accesses that are owed where the thread leaves the path; all
    /// registers are the program's. `flags`: they are needed; rax is in no address then. `guarded`: nor is rcx, which
    /// is kept.
    pub(super) fn take_back_owed(&mut self, flags: bool, guarded: bool) {
        let owed = std::mem::take(&mut self.owed);
        if owed.is_empty() {
            return;
        }
        let taken = if guarded { 1 << RCX } else { 0 };
        if flags {
            self.stubs.lend(RAX);
            self.stubs.flags_to_rax();
        }
        let taken = taken | if flags { 1 << RAX } else { 0 };
        let mut lent: Option<[usize; 2]> = None;
        for (operand, made) in &owed.groups {
            let used = used(operand);
            let bits = |pair: [usize; 2]| 1_u16 << pair[0] | 1 << pair[1];
            if lent.is_none_or(|pair| bits(pair) & used != 0) {
                self.give_back_pair(lent);
                let pair = spare(taken | used);
                pair.iter().for_each(|&register| self.stubs.lend(register));
                lent = Some(pair);
            }
            if let Some([a, b]) = lent {
                self.take_back_from_page(operand, *made, a, b);
            }
        }
        self.give_back_pair(lent);
        self.take_back_totals(owed.totals);
        if flags {
            self.stubs.flags_from_rax();
            self.stubs.return_to_owner(RAX);
        }
    }

    fn give_back_pair(&mut self, lent: Option<[usize; 2]>) {
        for register in lent.into_iter().flatten() {
            self.stubs.return_to_owner(register);
        }
    }
}

/// Two registers that are not among these bits, which are fewer than the general registers by far.
fn spare(taken: u16) -> [usize; 2] {
    let mut free = CHOICE
        .into_iter()
        .filter(|register| taken >> register & 1 == 0);
    std::array::from_fn(|_| free.next().unwrap_or_default())
}
