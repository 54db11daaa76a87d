//! Counts, between bursts, accesses whose number depends on registers.

use iced_x86::{Instruction, Mnemonic};
use numaloc_follow::owners::Owner;

use super::copy::Copier;
use crate::emit::{ABOVE, Field, NOT_EQUAL, Number};
use crate::record;
use crate::record::descriptor::{Masked, Repeated, WORD};
use crate::state::{self, RCX, RDI, RSI};

/// Most bytes of a string that are counted here: the end of the quantum is seen later.
const LONGEST: i32 = 1 << 16;

/// The string instruction whose words are counted by its registers: by bytes or words. Words count equally in both
/// directions; bytes only upward, see [`Copier::note_direction`].
pub(super) fn counted_string(instruction: &Instruction, owner: Owner) -> Option<Repeated> {
    let whole = |repeated: &Repeated| matches!(u16::from(repeated.element), 1 | WORD);
    Repeated::of(instruction).filter(|one| owner != Owner::Runtime && whole(one))
}

impl Copier<'_> {
    /// Notes in which direction string instructions go from here on: code that only counts accesses cannot read this
    /// flag without a stack.
    pub(super) fn note_direction(&mut self, instruction: &Instruction) {
        let down = match instruction.mnemonic() {
            Mnemonic::Std => 1,
            Mnemonic::Cld => 0,
            _ => return,
        };
        if record::in_bursts() {
            self.point(instruction.ip(), None);
            self.code.set_field(state::DOWN, down);
        }
    }

    /// Counts the words with elements that the mask register number `mask` selects, before instruction number `at`: as
    /// [`Masked::words`] finds them. Nearly always they are the first ones: the end of a string, or of a loop.
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

    /// Counts the words of a repeated string instruction, number `at`, if they are whole; the engine counts others.
    pub(super) fn count_string(
        &mut self,
        at: usize,
        instruction: &Instruction,
        repeated: Repeated,
        owner: Owner,
    ) {
        let Repeated { element, loads } = repeated;
        let borrowed = self.borrow(at, 1 << RCX | 1 << RSI | 1 << RDI, 2);
        let [a, b] = borrowed.registers;
        self.borrow_flags(&borrowed);
        let scale = element.trailing_zeros() as u8;
        self.code.address(a, None, Some((RCX, scale)), 0);
        self.code.copy(b, RDI);
        if loads {
            self.code.with_register(Field::Or, b, RSI);
        }
        self.code.with_register(Field::Or, b, a);
        let others = self.stubs.pc();
        self.code.test_low(b, WORD as u8 - 1);
        self.code.jump_if(NOT_EQUAL, others);
        if u16::from(element) != WORD {
            // Downward, the first byte is the first of its word.
            self.code.is_zero_field(state::DOWN);
            self.code.jump_if(NOT_EQUAL, others);
        }
        self.code.with_number(Number::Compare, a, LONGEST);
        self.code.jump_if(ABOVE, others);
        let words = WORD.trailing_zeros() as u8;
        self.code.shift(a, false, words - u8::from(loads));
        self.code.subtract_register_from_field(a, state::REMAINING);
        self.restore_flags(&borrowed);

        if borrowed.flags {
            self.stubs.flags_from_rax();
        }
        self.settle_in_stubs();
        self.leave_for_complex(instruction, owner, Some(self.code.pc()));
    }
}
