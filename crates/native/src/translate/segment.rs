//! Emits the code of segments, whose accesses are recorded together ([`super::groups`]).

use super::borrowed::Borrowed;
use super::copy::Copier;
use super::decode::Block;
use super::groups::{GROUPS, Group, Segment, Totals};
use super::loops::Found;
use crate::fragment::Version;
use crate::record;

impl Copier<'_> {
    /// Emits a segment: the check of its groups, and the instructions without the accesses of the groups.
    pub(super) fn segment(&mut self, segment: &Segment, block: &Block, found: &mut Option<Found>) {
        let Segment {
            begin,
            end,
            groups,
            others,
            merged,
        } = segment;
        let used = segment.registers();
        let at_first = block.instructions[*begin].instruction.ip();
        self.recorded = false;
        self.point(at_first, None);
        let count = segment.takes(self.steady && self.alone);
        let borrowed = self.borrow(*begin, used, count);
        let [a, b] = borrowed.registers;
        self.borrow_flags(&borrowed);
        let mut totals = *others;
        groups.iter().for_each(|group| totals.add(group));
        let entries = self.undo(groups, totals, &borrowed, at_first);
        let mut cold = entries[0];
        if record::in_bursts() {
            cold = self.stubs.pc();
            self.leave_paused(totals, &borrowed, at_first);
            self.stubs.jump_to(entries[0]);
        }
        if self.steady {
            self.take_room(totals, cold);
        } else {
            self.has_room(totals.accesses, b, cold);
        }
        for (group, &cold) in groups.iter().zip(&entries) {
            let at = self.find(&group.operand(), group.shape(), a, b);
            self.lines_are_ours(group.shape(), at, a, b, cold);
            self.count_page(group.made(), at, a, b, cold);
        }
        self.unusual_lines(b);
        self.count(totals.accesses, (totals.loaded, totals.stored));
        self.restore_flags(&borrowed);
        for at in *begin..*end {
            self.recorded = true;
            self.before_except(at, &block.instructions[at], Some(merged[at - begin]));
            match found.take_if(|found| found.branch == at) {
                Some(found) => self.begin_loop(found, block),
                None => self.instruction(at, &block.instructions[at]),
            }
            self.after(at);
        }
        // The last instruction's accesses are recorded; the end of the block executes it.
        self.recorded = *end == block.instructions.len();
    }

    /// Emits, in the exits' code, what takes back the counts of the groups before one that fails, and the `totals` if
    /// they have been taken from the quantum: an entry for each group, which are returned. The code goes on at `pc`, in
    /// the version that records each access by itself.
    fn undo(
        &mut self,
        groups: &[Group],
        totals: Totals,
        borrowed: &Borrowed,
        pc: u64,
    ) -> [u64; GROUPS] {
        let [a, b] = borrowed.registers;
        let mut entries = [0; GROUPS];
        for at in (0..groups.len().max(1)).rev() {
            entries[at] = self.stubs.pc();
            if let Some(before) = at.checked_sub(1) {
                let group = &groups[before];
                std::mem::swap(&mut self.code, &mut self.stubs);
                self.address(&group.operand(), a, b);
                std::mem::swap(&mut self.code, &mut self.stubs);
                self.take_from_page(group.made(), a, b);
            }
        }
        if self.steady {
            self.give_room(totals);
        }
        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.exit_from_stubs(pc, Version::Apart);
        entries
    }
}
