//! Counts, between bursts, the elements of a vector that a mask register selects. Nearly always they are the first
//! ones: the end of a string, or of a loop.

use super::copy::Copier;
use crate::emit::{Field, NOT_EQUAL, Number};
use crate::record::descriptor::Masked;
use crate::state;

impl Copier<'_> {
    /// Counts the words with elements that the mask register number `mask` selects, before instruction number `at`: as
    /// [`Masked::words`] finds them.
    pub(super) fn count_selected(&mut self, at: usize, masked: Masked, mask: u8) {
        let borrowed = self.borrow(at, 0, 2);
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
        self.code.count_bits(a);
        if in_word > 1 {
            self.code.address(a, Some(a), None, i32::from(in_word) - 1);
            self.code.shift(a, false, in_word.trailing_zeros() as u8);
        }
        self.code.subtract_register_from_field(a, state::REMAINING);

        // Not the first: word by word.
        self.stubs.drop_zeros(a, b);
        self.stubs.subtract_from_field(state::REMAINING, 1);
        self.stubs.shift(a, false, in_word);
        self.stubs.jump_if(NOT_EQUAL, others);
        self.stubs.jump_to(self.code.pc());
        self.restore_flags(&borrowed);
    }
}
