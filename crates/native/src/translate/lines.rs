//! Emits the checks of accesses' lines.

use numaloc_trace::line::{self, FIRST_OWNED, FIRST_SYNC};
use numaloc_trace::thread::layout::{MARK_MASK, PLACE_SHIFT};

use super::borrowed::REGISTERS;
use super::copy::Copier;
use super::groups::{LineNumber, Place, Shape, Unusual};
use crate::emit::{ABOVE, BELOW, EQUAL, Field, NOT_ABOVE, NOT_EQUAL, Number};
use crate::layout::{LINES, MASKS};
use crate::record::access::Operand;
use crate::state::{self, RAX};

/// Bytes of a line.
pub const LINE: u64 = 1 << line::FAST_SHIFT;
/// Bits of addresses that the tables distinguish.
pub const WINDOW: u8 = numaloc_trace::shadow::WINDOW_BITS as u8;
/// log2 of the bytes of a page.
pub const PAGE_SHIFT: u8 = numaloc_trace::pages::PAGE_SHIFT as u8;
const PAGE: i32 = 1 << PAGE_SHIFT;
/// Most bytes of a group whose first and last line are usually the same. Those of longer groups, such as registers that
/// a function stores, are both checked: where the stack begins decides whether they differ.
const OFTEN_IN_ONE: u16 = 16;

impl Copier<'_> {
    /// Jumps to `cold` unless the thread may read, or write, the lines of a shape from the address in `a`, that of the
    /// operand, at most 64 bytes in one page, without changing their state but for the bytes written. Leaves the number
    /// of the first in `a`.
    pub(super) fn lines_are_ours(
        &mut self,
        shape: Shape,
        operand: &Operand,
        at: Place,
        [a, b]: [usize; 2],
        cold: u64,
    ) {
        if self.is_undisturbed(shape.writes) {
            if let Place::Variable = at {
                self.in_one_page(shape, a, cold);
            }
            return;
        }
        if self.alone {
            return self.lines_were_written(shape, operand, at, [a, b], cold);
        }
        let line = match at {
            Place::Known(address) => {
                self.code.load_from(b, LINES + address / LINE * 8);
                LineNumber::Known(address / LINE)
            }
            Place::Variable => {
                if shape.span > 1 {
                    self.in_one_line(shape, operand, [a, b], cold);
                }
                self.line_number(a);
                self.code.load_indexed(b, a, LINES);
                LineNumber::In(a)
            }
        };
        self.compare_line(shape.writes, b);
        self.code.jump_if(NOT_EQUAL, cold);
        self.unusual.push(Unusual {
            jump: self.code.offset() - 4,
            writes: shape.writes,
            line,
            written: shape.written,
            operand: *operand,
            usual: self.code.pc(),
            cold,
        });
    }

    /// [`Copier::lines_are_ours`] for stores of the only thread that the process has had: a line that it has written
    /// has one possible word, unless it carries clocks.
    fn lines_were_written(
        &mut self,
        shape: Shape,
        operand: &Operand,
        at: Place,
        [a, b]: [usize; 2],
        cold: u64,
    ) {
        match at {
            Place::Known(address) => self.line_was_written(None, address / LINE, cold),
            Place::Variable => {
                if shape.span > OFTEN_IN_ONE && !shape.is_aligned() {
                    self.add_address(b, a, i64::from(shape.span) - 1);
                    self.in_one_page(shape, b, cold);
                    self.line_number(b);
                    self.line_was_written(Some(b), 0, cold);
                } else if shape.span > 1 {
                    self.in_one_line(shape, operand, [a, b], cold);
                }
                self.line_number(a);
                self.line_was_written(Some(a), 0, cold);
            }
        }
    }

    /// Jumps to `cold` unless the first thread owns a line, whose number is that in a register and a constant. The
    /// clock that a store leaves at a line used for synchronisation makes no difference: threads that will find it
    /// begin with a later one.
    fn line_was_written(&mut self, number: Option<usize>, constant: u64, cold: u64) {
        const { assert!(FIRST_SYNC < FIRST_OWNED && FIRST_OWNED <= i32::MAX as u64) };
        let table = LINES + constant * 8;
        let perhaps_not = self.stubs.pc();
        self.code.compare_word(number, table, FIRST_OWNED as i32);
        self.code.jump_if(NOT_EQUAL, perhaps_not);
        let back = self.code.pc();
        self.stubs.compare_word(number, table, FIRST_SYNC as i32);
        self.stubs.jump_if(EQUAL, back);
        self.stubs.jump_to(cold);
    }

    /// Whether code that counts accesses, of which some are stores or none, needs only one register.
    pub(super) fn takes_one(&self, writes: bool) -> bool {
        self.steady && self.is_undisturbed(writes)
    }

    /// Whether accesses, of which some are stores or none, change the state of no line: loads are all that way while
    /// the process has one thread and shares no memory, because only another's stores give them an effect.
    pub(super) fn is_undisturbed(&self, writes: bool) -> bool {
        self.alone && !writes
    }

    /// Jumps to `cold` unless all bytes of a shape are in one page; `a` contains the address of the first if it is
    /// usually aligned, otherwise of the last.
    fn in_one_page(&mut self, shape: Shape, a: usize, cold: u64) {
        let last = i32::from(shape.span) - 1;
        if last == 0 {
            return;
        }
        let perhaps_not = self.stubs.pc();
        let (limit, crosses) = if shape.is_aligned() {
            self.code.test_low(a, last as u8);
            self.code.jump_if(NOT_EQUAL, perhaps_not);
            (PAGE - 1 - last, ABOVE)
        } else {
            let near = i32::from(shape.span.next_power_of_two()) - 1;
            self.code.test(a, (PAGE - 1) & !near);
            self.code.jump_if(EQUAL, perhaps_not);
            (last, BELOW)
        };
        let back = self.code.pc();
        self.stubs.with_field(Field::Store, a, state::SCRATCH);
        self.stubs.with_number(Number::And, a, PAGE - 1);
        self.stubs.with_number(Number::Compare, a, limit);
        self.stubs.with_field(Field::Load, a, state::SCRATCH);
        self.stubs.jump_if(crosses, cold);
        self.stubs.jump_to(back);
    }

    /// Checks the last line of a shape from the address in `a` if it is another than the first.
    fn in_one_line(&mut self, shape: Shape, operand: &Operand, [a, b]: [usize; 2], cold: u64) {
        let Shape { span, writes, .. } = shape;
        let last = i64::from(span) - 1;
        let elsewhere = self.stubs.pc();
        if shape.is_aligned() {
            self.code.test_low(a, last as u8);
            self.code.jump_if(NOT_EQUAL, elsewhere);
        } else {
            self.add_address(b, a, last);
            self.code.with_register(Field::Xor, b, a);
            self.code.with_number(Number::Compare, b, 63);
            self.code.jump_if(ABOVE, elsewhere);
        }
        let back = self.code.pc();
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.add_address(b, a, last);
        self.code.with_register(Field::Xor, b, a);
        self.code.with_number(Number::Compare, b, 63);
        self.code.jump_if(NOT_ABOVE, back);
        self.code.with_number(Number::Compare, b, 4095);
        self.code.jump_if(ABOVE, cold);
        self.add_address(b, a, last);
        self.line_number(b);
        if self.alone {
            let [owned, sync] = [FIRST_OWNED, FIRST_SYNC].map(|word| word as i32);
            self.code.compare_word(Some(b), LINES, owned);
            self.code.jump_if(EQUAL, back);
            self.code.compare_word(Some(b), LINES, sync);
            self.code.jump_if(EQUAL, back);
            self.code.jump_to(cold);
            return std::mem::swap(&mut self.code, &mut self.stubs);
        }
        self.code.load_indexed(b, b, LINES);
        self.compare_line(writes, b);
        let unusual = self.code.skip_if(NOT_EQUAL);
        self.code.jump_to(back);
        self.code.land(unusual);
        self.unusual_line(
            &Unusual {
                jump: 0,
                writes,
                line: LineNumber::Behind(a, last),
                written: shape.written,
                operand: *operand,
                usual: back,
                cold,
            },
            [a, b],
        );
        std::mem::swap(&mut self.code, &mut self.stubs);
    }

    /// Loads a register with the sum of another and a constant, without changing flags.
    fn add_address(&mut self, to: usize, from: usize, constant: i64) {
        if constant == 0 {
            return self.code.copy(to, from);
        }
        self.code.address(to, Some(from), None, constant as i32);
    }

    /// Replaces an address by the number of its line.
    fn line_number(&mut self, register: usize) {
        self.code.shift(register, true, 64 - WINDOW);
        let right = 64 - WINDOW + line::FAST_SHIFT as u8;
        self.code.shift(register, false, right);
    }

    /// Sets the flags to "equal" if the thread may read, or write, the line whose word is in `b`; otherwise the line
    /// may still be unusual.
    fn compare_line(&mut self, writes: bool, b: usize) {
        self.code.with_field(Field::Xor, b, state::OWNED);
        if !writes {
            self.code.with_field(Field::Test, b, state::READ_MASK);
        }
    }

    /// Emits, in the exits' code, what distinguishes the lines that [`Copier::lines_are_ours`] has not accepted.
    pub(super) fn unusual_lines(&mut self, a: usize, b: usize) {
        let mut all = std::mem::take(&mut self.unusual);
        for unusual in all.drain(..) {
            self.code.lead(unusual.jump, self.stubs.pc());
            std::mem::swap(&mut self.code, &mut self.stubs);
            self.unusual_line(&unusual, [a, b]);
            std::mem::swap(&mut self.code, &mut self.stubs);
        }
        self.unusual = all;
    }

    /// A store may go on if the line is the thread's and only its mask of bytes is complete, or can be completed here,
    /// and a load if the line was never written, or if the thread has read it and no event is undecided on a line with
    /// its mark.
    fn unusual_line(&mut self, unusual: &Unusual, [a, b]: [usize; 2]) {
        let &Unusual {
            writes,
            line,
            written,
            usual,
            cold,
            ..
        } = unusual;
        if writes {
            self.code
                .with_number(Number::Compare, b, line::BYTES as i32);
            // Of accesses to two lines, the first may still be another thread's.
            if written == 0 || matches!(line, LineNumber::Behind(..)) {
                self.code.jump_if(NOT_EQUAL, cold);
                return self.code.jump_to(usual);
            }
            self.code.jump_if(EQUAL, usual);
            return self.mark_written(unusual, [a, b]);
        }
        self.code.with_field(Field::Test, b, state::READ_BITS);
        let unread = self.code.skip_if(NOT_EQUAL);
        match line {
            LineNumber::Known(line) => {
                let mark = (line ^ line >> PLACE_SHIFT) as i32 & MARK_MASK;
                self.code.is_zero_byte(None, state::UNDECIDED + mark);
            }
            LineNumber::In(a) => {
                self.code.copy(b, a);
                self.code.shift(b, false, PLACE_SHIFT);
                self.code.with_register(Field::Xor, b, a);
                self.is_not_marked(b);
            }
            LineNumber::Behind(a, distance) => {
                self.add_address(b, a, distance);
                self.line_number(b);
                self.code.with_field(Field::Store, b, state::SCRATCH);
                self.code.shift(b, false, PLACE_SHIFT);
                self.code.with_field(Field::Xor, b, state::SCRATCH);
                self.is_not_marked(b);
            }
        }
        self.code.jump_if(NOT_EQUAL, cold);
        self.code.jump_to(usual);
        self.code.land(unread);
        self.code.with_field(Field::Compare, b, state::OWNED);
        self.code.jump_if(EQUAL, usual);
        self.code.jump_to(cold);
    }

    /// Adds the bytes written to the mask of a line with a word that differs by what is in `b` from that of a line that
    /// the thread has just written, if only in that it is tracked. Leaves the number of the line in `a`.
    fn mark_written(&mut self, unusual: &Unusual, [a, b]: [usize; 2]) {
        let (written, usual, cold) = (unusual.written, unusual.usual, unusual.cold);
        self.code
            .with_number(Number::Compare, b, line::TRACKED as i32);
        self.code.jump_if(NOT_EQUAL, cold);
        let mut operand = unusual.operand;
        if self.lent.lost >> RAX & 1 != 0 {
            // It contains the flags.
            let [rax, instead] = [RAX, a].map(|register| REGISTERS[register]);
            for part in [&mut operand.base, &mut operand.index] {
                if *part == rax {
                    *part = instead;
                    let field = state::BORROWED + 8 * RAX as i32;
                    self.code.with_field(Field::Load, a, field);
                }
            }
        }
        self.address(&operand, a, b);
        self.code.load_from(b, MASKS);
        self.code.with_register(Field::Test, b, b);
        self.code.jump_if(EQUAL, cold);
        if written == 1 {
            self.code.shift(a, true, 64 - WINDOW);
            self.code.shift(a, false, 64 - WINDOW);
            self.code.set_bit(b, a);
            self.code.shift(a, false, line::FAST_SHIFT as u8);
            return self.code.jump_to(usual);
        }
        // A byte of the masks is for eight of the program's, of which most accesses use all or a half.
        self.code.test_low(a, 3);
        self.code.jump_if(NOT_EQUAL, cold);
        self.code.test_low(a, 4);
        let upper = self.code.skip_if(NOT_EQUAL);
        self.add_to_masks(written, [a, b]);
        self.code.jump_to(usual);
        self.code.land(upper);
        if written.leading_zeros() < 4 {
            return self.code.jump_to(cold);
        }
        self.add_to_masks(written << 4, [a, b]);
        self.code.jump_to(usual);
    }

    /// Adds bits to the masks, which begin at the address in `b`: from that of the address in `a` on, rounded down to a
    /// multiple of eight. Replaces that address by the number of its line.
    fn add_to_masks(&mut self, bits: u64, [a, b]: [usize; 2]) {
        self.code.shift(a, true, 64 - WINDOW);
        self.code.shift(a, false, 64 - WINDOW + 3);
        for (at, half) in [(0, bits as u32), (4, (bits >> 32) as u32)] {
            if half >> 24 != 0 {
                self.code.set_bits(b, a, at, half);
                continue;
            }
            // Behind these bytes may be the mask of another thread's line.
            for (n, byte) in half.to_le_bytes().into_iter().enumerate() {
                if byte != 0 {
                    self.code.set_bits_of_byte(b, a, at + n as u8, byte);
                }
            }
        }
        self.code.shift(a, false, line::FAST_SHIFT as u8 - 3);
    }

    /// Tests whether no event is undecided on a line with the mark whose lowest bits are in `b`.
    fn is_not_marked(&mut self, b: usize) {
        self.code.with_number(Number::And, b, MARK_MASK);
        self.code.is_zero_byte(Some(b), state::UNDECIDED);
    }
}
