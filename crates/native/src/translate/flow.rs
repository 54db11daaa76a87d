//! Emits the code that follows values from register to register, for access traces ([`crate::record::follow`]).

use super::copy::Copier;
use crate::emit::Field;
use crate::record::follow::Step;
use crate::state;

/// The field of a register's last fetch.
fn fetch(register: usize) -> i32 {
    state::FETCHES + 8 * register as i32
}

impl Copier<'_> {
    /// Passes on what instruction number `at` does, before it is executed. Loads and stores are followed where they are
    /// recorded.
    pub(super) fn pass_on(&mut self, at: usize) {
        for step in self.steps.get(at).into_iter().flatten().flatten() {
            if self.is_needed_after(at, step.to()) {
                self.step(at, *step);
            }
        }
    }

    fn step(&mut self, at: usize, step: Step) {
        match step {
            Step::Clear(to) => self.code.set_field(fetch(to), 0),
            Step::Copy(to, from) => {
                let [a, _] = self.borrow(at, 0, 1).registers;
                self.code.with_field(Field::Load, a, fetch(from));
                self.code.with_field(Field::Store, a, fetch(to));
            }
            Step::Join(to, one, other) => {
                let borrowed = self.borrow(at, 0, 1);
                let [a, _] = borrowed.registers;
                self.borrow_flags(&borrowed);
                self.code.with_field(Field::Load, a, fetch(one));
                self.code.with_field(Field::Compare, a, fetch(other));
                self.code.load_if_below(a, fetch(other));
                self.code.with_field(Field::Store, a, fetch(to));
                self.restore_flags(&borrowed);
            }
        }
    }
}
