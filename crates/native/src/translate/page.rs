//! Emits the code that counts accesses by page.

use numaloc_trace::line;

use super::copy::Copier;
use super::groups::{Made, Place};
use super::lines::{PAGE_SHIFT, WINDOW};
use crate::emit::{Buffer, Counter, NOT_NEGATIVE, Number};

impl Copier<'_> {
    /// Adds to the counter of the page of the line, or the address, that [`Copier::lines_are_ours`] has left in `a`,
    /// which is changed, as is `b`; jumps to `cold` if it has not been accessed in this way before.
    pub(super) fn count_page(&mut self, made: Made, at: Place, a: usize, b: usize, cold: u64) {
        let counter = match at {
            Place::Variable if self.is_undisturbed(made.writes != 0) => {
                find_counter(&mut self.code, a);
                Counter::At(a)
            }
            Place::Variable => {
                let lines = PAGE_SHIFT - line::FAST_SHIFT as u8;
                self.code.shift(a, false, lines - 3);
                self.code.with_number(Number::And, a, !7);
                Counter::At(a)
            }
            Place::Known(address) => Counter::OfPage((address >> PAGE_SHIFT) as i32),
        };
        if made.writes == 0 {
            self.code.add_to_counter(counter, made.reads);
        } else {
            self.code.load(b, made.amount());
            self.code.add_register_to_counter(counter, b);
        }
        let first = self.stubs.pc();
        self.code.jump_if(NOT_NEGATIVE, first);
        self.take_from(made, counter, b);
        self.stubs.jump_to(cold);
    }

    /// Takes back, in the exits' code, what was added to the counter of the page of the address in `a`. `a` and `b` are
    /// changed.
    pub(super) fn take_from_page(&mut self, made: Made, a: usize, b: usize) {
        find_counter(&mut self.stubs, a);
        if made.writes != 0 {
            self.stubs.load(b, made.amount());
        }
        self.take_from(made, Counter::At(a), b);
    }

    /// Takes back, in the exits' code, what was added to a counter: what `b` contains if there are stores.
    fn take_from(&mut self, made: Made, counter: Counter, b: usize) {
        if made.writes == 0 {
            self.stubs.add_to_counter(counter, -made.reads);
        } else {
            self.stubs.subtract_register_from_counter(counter, b);
        }
    }
}

/// Replaces an address by the distance of its page's counter from the first one.
fn find_counter(code: &mut Buffer, register: usize) {
    code.shift(register, true, 64 - WINDOW);
    code.shift(register, false, 64 - WINDOW + PAGE_SHIFT - 3);
    code.with_number(Number::And, register, !7);
}
