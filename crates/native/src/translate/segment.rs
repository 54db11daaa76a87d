//! Emits the code of segments, whose accesses are recorded together ([`super::groups`]).

use super::borrowed::{Borrowed, Lent, registers};
use super::copy::Copier;
use super::decode::{Block, End};
use super::groups::{Deferred, Group, Segment, Totals};
use super::loops::Found;
use crate::record;

impl Copier<'_> {
    /// Emits a segment: the check of its groups, and the instructions without the accesses of the groups. The other
    /// copy follows at the end of the fragment.
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
        let (entries, jump) = self.undo(groups, totals, &borrowed);
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
            self.count_page(group.reads, group.writes, at, a, cold);
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
        let resume = self.code.pc();
        self.deferred.push(Deferred {
            begin: *begin,
            end: *end,
            jump,
            resume,
            stored: self.lent.stored,
        });
    }

    /// Emits, in the exits' code, what takes back the counts of the groups before one that fails, and the
    /// `totals` if they have been taken from the quantum: an entry for each group. Returns the entries and the offset of the
    /// displacement of the jump to the other copy.
    fn undo(&mut self, groups: &[Group], totals: Totals, borrowed: &Borrowed) -> (Vec<u64>, usize) {
        let [a, b] = borrowed.registers;
        let mut entries = vec![0; groups.len().max(1)];
        for at in (0..entries.len()).rev() {
            entries[at] = self.stubs.pc();
            if let Some(before) = at.checked_sub(1) {
                let group = &groups[before];
                std::mem::swap(&mut self.code, &mut self.stubs);
                self.address(&group.operand(), a, b);
                std::mem::swap(&mut self.code, &mut self.stubs);
                self.take_from_page(group.reads, group.writes, a);
            }
        }
        if self.steady {
            self.give_room(totals);
        }
        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.stubs.jump_to(0);
        (entries, self.stubs.offset() - 4)
    }

    /// Emits the other copies of the segments.
    pub(super) fn other_copies(&mut self, block: &Block) {
        for deferred in std::mem::take(&mut self.deferred) {
            let Deferred {
                begin,
                end,
                jump,
                resume,
                stored,
            } = deferred;
            self.stubs.lead(jump, self.code.pc());
            self.lent = Lent::default();
            let mut returns = false;
            for at in begin..end {
                self.recorded = false;
                let decoded = &block.instructions[at];
                self.before(at, decoded);
                returns = self.loop_again(at, block);
                if !returns {
                    self.instruction(at, decoded);
                }
                self.after(at);
            }
            if !returns {
                self.go_on_after(end, block, resume, stored);
            }
        }
    }

    /// Continues after another copy of a segment that ends before instruction number `end`: at `resume`, where the
    /// values of the registers `stored` must be stored.
    fn go_on_after(&mut self, end: usize, block: &Block, resume: u64, stored: u16) {
        if end == block.instructions.len() && !matches!(block.end, End::Jump(_)) {
            self.end(block);
            return;
        }
        self.settle();
        for register in registers(stored) {
            self.code.lend(register);
        }
        self.code.jump_to(resume);
    }
}
