//! Counts, between bursts, the elements of a vector that a mask register selects. Nearly always they are the first
//! ones: the end of a string, or of a loop. The engine counts the others.

use numaloc_follow::owners::Owner;

use super::borrowed::used;
use super::copy::Copier;
use crate::emit::{Field, NOT_EQUAL, Number};
use crate::record::access::Operand;
use crate::record::descriptor::{Descriptor, Kind, Masked};
use crate::state::{self, RAX};

impl Copier<'_> {
    /// Counts elements from `operand` on that the mask register number `mask` selects, before instruction number `at`.
    pub(super) fn count_selected(
        &mut self,
        at: usize,
        operand: &Operand,
        masked: Masked,
        mask: u8,
        owner: Owner,
    ) {
        let borrowed = self.borrow(at, used(operand), 2);
        let [a, b] = borrowed.registers;
        self.borrow_flags(&borrowed);
        let (elements, in_word) = masked.elements();
        self.code.load_mask(a, mask, elements > 32);
        if elements < 32 {
            self.code.with_number(Number::And, a, (1 << elements) - 1);
        }
        self.code.address(b, Some(a), None, 1);
        self.code.with_register(Field::Test, a, b);
        let others = self.stubs.pc();
        self.code.jump_if(NOT_EQUAL, others);

        // Words with one of the first elements.
        self.code.count_bits(a);
        if in_word > 1 {
            self.code.address(a, Some(a), None, i32::from(in_word) - 1);
            self.code.shift(a, false, in_word.trailing_zeros() as u8);
        }
        self.code.subtract_register_from_field(a, state::REMAINING);
        self.restore_flags(&borrowed);

        if borrowed.flags {
            self.stubs.flags_from_rax();
            if self.lent.lost >> RAX & 1 != 0 {
                self.stubs.return_to_owner(RAX);
            }
        }
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.address(operand, a, b);
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.stubs.with_field(Field::Store, a, state::ADDRESS);
        self.settle_in_stubs();
        self.stubs.store_mask(mask, state::SELECTED);
        let descriptor = Descriptor {
            size: masked.encode(),
            kind: Kind::Masked,
            owner,
        };
        self.leave_to_record(descriptor, Some(self.code.pc()), false);
    }
}
