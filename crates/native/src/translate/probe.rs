//! Emits the code that records accesses.
//!
//! An access that changes nothing about its line and page is counted in line, as [`numaloc_trace::ThreadTracer::fast`]
//! does; others leave the cache for [`crate::record`]. Registers that the program needs are stored in slots of the
//! thread's state meanwhile, flags in rax.

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use numaloc_follow::owners::Owner;
use numaloc_trace::line;

use super::borrowed::{Borrowed, REGISTERS, SLOT, SLOT_FLAGS, used};
use super::copy::Copier;
use super::groups::Unusual;
use super::liveness::Live;
use crate::emit::{BELOW, EQUAL, Field, NOT_ABOVE, NOT_EQUAL, Number};
use crate::layout::{LINES, VECTOR_PLAIN, VECTOR_RECORD, VECTORS_LIGHT};
use crate::record::access::{Access, Descriptor, Kind, Light, Operand};
use crate::state::{self, RAX};

impl Copier<'_> {
    /// Stores borrowed registers.
    pub(super) fn borrow(&mut self, borrowed: &Borrowed) {
        for (n, &register) in borrowed.registers.iter().enumerate() {
            if borrowed.stored[n] {
                self.code.save(register, SLOT + n);
            }
        }
    }

    /// Stores the flags. Operands that use rax must have been read.
    pub(super) fn borrow_flags(&mut self, borrowed: &Borrowed) {
        if borrowed.rax_stored {
            self.code.save(RAX, SLOT_FLAGS);
        }
        if borrowed.flags {
            self.code.flags_to_rax();
        }
    }

    /// Restores flags and registers.
    pub(super) fn give_back(&mut self, borrowed: &Borrowed, stub: bool) {
        let code = if stub {
            &mut self.stubs
        } else {
            &mut self.code
        };
        if borrowed.flags {
            code.flags_from_rax();
        }
        if borrowed.rax_stored {
            code.restore(RAX, SLOT_FLAGS);
        }
        for (n, &register) in borrowed.registers.iter().enumerate() {
            if borrowed.stored[n] {
                code.restore(register, SLOT + n);
            }
        }
    }

    /// Loads a register with an operand's address; `other` is free as well.
    pub(super) fn address(&mut self, operand: &Operand, register: usize, other: usize) {
        let Operand {
            base,
            index,
            scale,
            displacement,
            fs,
        } = *operand;
        if base == Register::None && index == Register::None {
            self.code.load(register, displacement);
        } else if base.is_gpr64() && index == Register::None && displacement == 0 {
            self.code.copy(register, base.number());
        } else {
            let memory = MemoryOperand::new(
                base,
                index,
                scale,
                displacement as i64,
                if displacement == 0 && base != Register::None {
                    0
                } else {
                    8
                },
                false,
                Register::None,
            );
            let to = REGISTERS[register];
            if let Ok(lea) = Instruction::with2(Code::Lea_r64_m, to, memory) {
                self.encode(&lea);
            }
        }
        if fs {
            let high = other as u8 >> 3;
            self.code
                .put(&[0xf3, 0x48 | high, 0x0f, 0xae, 0xc0 | other as u8 & 7]); // rdfsbase other
            let memory = MemoryOperand::with_base_index(REGISTERS[register], REGISTERS[other]);
            if let Ok(lea) = Instruction::with2(Code::Lea_r64_m, REGISTERS[register], memory) {
                self.encode(&lea);
            }
        }
    }

    /// Emits code that leaves the cache to record an access whose address is in the thread's state. `whole`: the engine
    /// needs the vector registers.
    fn leave_to_record(&mut self, descriptor: Descriptor, resume: Option<u64>, whole: bool) {
        let code = if resume.is_some() {
            &mut self.stubs
        } else {
            &mut self.code
        };
        code.set_field(state::ACCESS, descriptor.encode());
        match resume {
            Some(resume) => code.set_field(state::RESUME, resume),
            None => {
                // 13 bytes for this field, 7 for the jump.
                let resume = code.pc() + 20;
                code.set_field(state::RESUME, resume);
            }
        }
        code.jump_by(match Light::of(descriptor) {
            Some(light) => VECTORS_LIGHT + 8 * light as u64,
            None if whole => VECTOR_RECORD,
            None => VECTOR_PLAIN,
        });
    }

    /// Records an access before it is made. `counted`: if it is plain, it was counted with its segment, except for its
    /// page.
    pub(super) fn access(&mut self, access: &Access, owner: Owner, live: Live, counted: bool) {
        let descriptor = Descriptor {
            size: access.size,
            kind: access.kind,
            owner,
        };
        let plain = access.is_plain(owner);
        let (reads, writes) = access.counts();
        let accesses = reads + writes;
        let counted = counted && plain;
        let borrowed = Borrowed::choose(live, used(&access.operand));
        let [a, b] = borrowed.registers;
        let paused = self.stubs.pc();
        let only = (plain && !counted).then(|| self.only_count(accesses, b));
        let cold = self.stubs.pc();
        self.borrow(&borrowed);
        self.address(&access.operand, a, b);
        if plain {
            self.borrow_flags(&borrowed);
            if !counted {
                self.has_room(accesses, b, paused);
            }
            self.lines_are_ours(access.size, access.kind != Kind::Read, a, b, cold);
            self.count_page(reads, writes, a, b, cold);
            if let Some(only) = only {
                self.count(accesses, access.bytes());
                self.stubs.lead(only, self.code.pc());
            }
            self.give_back(&borrowed, false);
        } else {
            self.code.jump_to(cold);
        }
        let unusual = std::mem::take(&mut self.unusual);
        // Not on the way here: flags are not in rax yet.
        let restored = Borrowed {
            flags: borrowed.flags && plain,
            rax_stored: borrowed.rax_stored && plain,
            ..borrowed
        };
        let resume = self.code.pc();
        self.stubs.with_field(Field::Store, a, state::ADDRESS);
        if counted {
            // The engine counts it.
            let (loaded, stored) = access.bytes();
            self.stubs.add_to_field(state::REMAINING, accesses);
            for (field, bytes) in [(state::READ_BYTES, loaded), (state::WRITE_BYTES, stored)] {
                if bytes > 0 {
                    self.stubs.subtract_from_field(field, bytes);
                }
            }
        }
        self.give_back(&restored, true);
        self.leave_to_record(descriptor, Some(resume), false);
        self.unusual = unusual;
        self.unusual_lines(b);
    }

    /// Emits, in the exits' code, what only counts accesses between bursts and continues otherwise. Returns the offset
    /// of the displacement of its jump to the code after counting.
    pub(super) fn only_count(&mut self, accesses: i32, b: usize) -> usize {
        self.stubs.is_zero_field(state::SAMPLE_THRESHOLD);
        let sampling = self.stubs.skip_if(NOT_EQUAL);
        self.stubs.with_field(Field::Load, b, state::REMAINING);
        self.stubs.with_number(Number::Compare, b, accesses);
        let last = self.stubs.skip_if(NOT_ABOVE);
        self.stubs.subtract_from_field(state::REMAINING, accesses);
        self.stubs.jump_to(0);
        let displacement = self.stubs.offset() - 4;
        self.stubs.land(sampling);
        self.stubs.land(last);
        displacement
    }

    /// Jumps to `cold` unless this many accesses may be counted in line.
    pub(super) fn has_room(&mut self, accesses: i32, b: usize, cold: u64) {
        if accesses == 1 {
            self.code.with_field(Field::Load, b, state::REMAINING);
            self.code.with_field(Field::Compare, b, state::THRESHOLD);
            self.code.jump_if(NOT_ABOVE, cold);
            return;
        }
        self.code.with_field(Field::Load, b, state::THRESHOLD);
        self.code.with_number(Number::Add, b, accesses - 1);
        self.code.jump_if(BELOW, cold);
        self.code.with_field(Field::Against, b, state::REMAINING);
        self.code.jump_if(NOT_ABOVE, cold);
    }

    /// Jumps to `cold` unless the thread may read, or write, the lines of `span` bytes from the address in `a`, at most
    /// 64 and in one page, without changing their state.
    pub(super) fn lines_are_ours(
        &mut self,
        span: u16,
        writes: bool,
        a: usize,
        b: usize,
        cold: u64,
    ) {
        self.line_is_ours(writes, a, 0, b, cold);
        if span == 1 {
            return;
        }
        let last = i64::from(span) - 1;
        self.add_address(b, a, last);
        self.code.with_register(Field::Xor, b, a);
        self.code.test_low(b, !63);
        let same = self.code.skip_if(EQUAL);
        self.code.test_low(b, !4095);
        self.code.jump_if(NOT_EQUAL, cold);
        self.line_is_ours(writes, a, last, b, cold);
        self.code.land(same);
    }

    /// Loads a register with the sum of another and a constant, without changing flags.
    fn add_address(&mut self, to: usize, from: usize, constant: i64) {
        if constant == 0 {
            return self.code.copy(to, from);
        }
        let memory = MemoryOperand::with_base_displ(REGISTERS[from], constant);
        if let Ok(lea) = Instruction::with2(Code::Lea_r64_m, REGISTERS[to], memory) {
            self.encode(&lea);
        }
    }

    /// Jumps to `cold` unless the thread may read, or write, the line `offset` bytes after the address in `a` without
    /// changing its state.
    fn line_is_ours(&mut self, writes: bool, a: usize, offset: i64, b: usize, cold: u64) {
        self.add_address(b, a, offset);
        self.code.shift(b, true, 64 - WINDOW);
        self.code
            .shift(b, false, 64 - WINDOW + line::FAST_SHIFT as u8);
        self.code.look_up(b, LINES);
        self.code.with_field(Field::Xor, b, state::OWNED);
        if !writes {
            self.code.with_field(Field::Test, b, state::READ_MASK);
        }
        self.code.jump_if(NOT_EQUAL, cold);
        self.unusual.push(Unusual {
            jump: self.code.offset() - 4,
            writes,
            usual: self.code.pc(),
            cold,
        });
    }

    /// Emits, in the exits' code, what distinguishes the lines that [`Copier::line_is_ours`] has not accepted: a store
    /// may go on if only the mask of bytes is complete, and a load if the line was never written.
    pub(super) fn unusual_lines(&mut self, b: usize) {
        for unusual in std::mem::take(&mut self.unusual) {
            self.code.lead(unusual.jump, self.stubs.pc());
            if unusual.writes {
                self.stubs
                    .with_number(Number::Compare, b, line::BYTES as i32);
            } else {
                self.stubs.with_field(Field::Compare, b, state::OWNED);
            }
            self.stubs.jump_if(NOT_EQUAL, unusual.cold);
            self.stubs.jump_to(unusual.usual);
        }
    }

    /// [`Copier::count_page`] that changes `a`, with fewer instructions.
    pub(super) fn count_page_last(
        &mut self,
        reads: i32,
        writes: i32,
        a: usize,
        b: usize,
        cold: u64,
    ) {
        self.code.shift(a, true, 64 - WINDOW);
        self.code.shift(a, false, 64 - WINDOW + PAGE_SHIFT);
        self.code.with_field(Field::Load, b, state::PAGES);
        self.code.is_zero_at_index(b, a);
        self.code.jump_if(EQUAL, cold);
        for (amount, high_half) in [(reads, false), (writes, true)] {
            if amount != 0 {
                self.code.add_at_index(b, a, amount, high_half);
            }
        }
    }

    /// Adds to the counters of the page of the address in `a`; jumps to `cold` if they are zero.
    pub(super) fn count_page(&mut self, reads: i32, writes: i32, a: usize, b: usize, cold: u64) {
        self.page_counter(a, b);
        self.code.is_zero_at(b);
        self.code.jump_if(EQUAL, cold);
        self.add_to_page(reads, writes, b);
    }

    /// Loads `b` with the address of the counters of the page of the address in `a`.
    pub(super) fn page_counter(&mut self, a: usize, b: usize) {
        self.code.copy(b, a);
        self.code.shift(b, true, 64 - WINDOW);
        self.code.shift(b, false, 64 - WINDOW + PAGE_SHIFT - 3);
        self.code.with_number(Number::And, b, !7);
        self.code.with_field(Field::Add, b, state::PAGES);
    }

    /// Adds to the counters whose address is in `b`.
    pub(super) fn add_to_page(&mut self, reads: i32, writes: i32, b: usize) {
        if reads != 0 {
            self.code.add_at(b, reads, false);
        }
        if writes != 0 {
            self.code.add_at(b, writes, true);
        }
    }

    /// Counts accesses, and the bytes that they load and store.
    pub(super) fn count(&mut self, accesses: i32, (loaded, stored): (i32, i32)) {
        self.code.subtract_from_field(state::REMAINING, accesses);
        if loaded > 0 {
            self.code.add_to_field(state::READ_BYTES, loaded);
        }
        if stored > 0 {
            self.code.add_to_field(state::WRITE_BYTES, stored);
        }
    }

    /// Records an access, whose address is in the thread's state, with all registers of the program in place.
    pub(super) fn record_here(&mut self, size: u16, kind: Kind, owner: Owner) {
        self.leave_to_record(Descriptor { size, kind, owner }, None, false);
    }

    /// Lets the engine see that the program is at `pc`, the first instruction of a function that is recorded, or where
    /// one returns.
    pub(super) fn call(&mut self, pc: u64) {
        self.point(pc, None);
        self.code.set_field(state::ADDRESS, pc);
        self.record_here(0, Kind::Call, Owner::Program);
    }

    /// Stores an operand's address in the thread's state, for code after the instruction.
    pub(super) fn note_address(&mut self, operand: &Operand, live: Live) {
        let borrowed = Borrowed {
            flags: false,
            rax_stored: false,
            ..Borrowed::choose(live, used(operand))
        };
        let [a, b] = borrowed.registers;
        self.borrow(&borrowed);
        self.address(operand, a, b);
        self.code.with_field(Field::Store, a, state::ADDRESS);
        self.give_back(&borrowed, false);
    }

    /// Lets the engine record an instruction that is executed next.
    pub(super) fn complex(&mut self, instruction: &Instruction, owner: Owner) {
        let kept = Box::new(*instruction);
        let at = &raw const *kept as u64;
        self.fragment.instructions.push(kept);
        self.code.set_field(state::INSTRUCTION, at);
        let descriptor = Descriptor {
            size: 0,
            kind: Kind::Complex,
            owner,
        };
        self.leave_to_record(descriptor, None, !instruction.is_string_instruction());
    }
}

const WINDOW: u8 = numaloc_trace::shadow::WINDOW_BITS as u8;
const PAGE_SHIFT: u8 = numaloc_trace::pages::PAGE_SHIFT as u8;
