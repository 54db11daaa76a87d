//! Emits the code that records accesses.
//!
//! An access that changes nothing about its line and page is counted in line, as [`numaloc_trace::ThreadTracer::fast`]
//! does; others leave the cache for [`crate::record`]. Registers that the program needs are stored in slots of the
//! thread's state meanwhile, flags in rax.

use iced_x86::{Instruction, Register};
use numaloc_follow::affine::registers;
use numaloc_follow::owners::Owner;

use super::borrowed::{Borrowed, used};
use super::copy::Copier;
use super::groups::{self, Made, Place, Shape, Totals};
use super::lines::LINE;
use crate::emit::{BELOW, Field, NOT_ABOVE, NOT_NEGATIVE, Number};
use crate::fragment::Version;
use crate::layout::{VECTOR_PLAIN, VECTOR_RECORD, VECTORS_LIGHT};
use crate::record;
use crate::record::access::{Access, Operand};
use crate::record::descriptor::{Descriptor, Kind, Light, Repeated};
use crate::record::entry::Entry;
use crate::record::flow::Flow;
use crate::record::room;
use crate::state::{self, RAX};

impl Copier<'_> {
    /// Chooses `count` registers for code before instruction number `at`, which has `used` as they are, and stores
    /// them.
    pub(super) fn borrow(&mut self, at: usize, used: u16, count: usize) -> Borrowed {
        self.give_back(used);
        let next = self.uses.get(at..).unwrap_or_default();
        let borrowed = Borrowed::choose(self.live(at), used, self.lent, next, count);
        self.take(borrowed.bits(), borrowed.live);
        borrowed
    }

    fn take(&mut self, bits: u16, live: u16) {
        let store = self.lent.take(bits, live);
        for register in registers(store) {
            self.code.lend(register);
        }
    }

    /// Stores the flags in rax. Operands that use rax must have been read.
    pub(super) fn borrow_flags(&mut self, borrowed: &Borrowed) {
        if borrowed.flags {
            self.take(1 << RAX, borrowed.live);
            self.code.flags_to_rax();
        }
    }

    /// Restores the flags.
    pub(super) fn restore_flags(&mut self, borrowed: &Borrowed) {
        if borrowed.flags {
            self.code.flags_from_rax();
        }
    }

    /// Gives registers back that are lost at present.
    pub(super) fn give_back(&mut self, bits: u16) {
        for register in registers(self.lent.give(bits)) {
            self.code.return_to_owner(register);
        }
    }

    /// Gives all registers back.
    pub(super) fn settle(&mut self) {
        self.give_back(!0);
    }

    /// Emits, in the exits' code, what gives back the registers that are lost at present.
    pub(super) fn settle_in_stubs(&mut self) {
        for register in registers(self.lent.lost) {
            self.stubs.return_to_owner(register);
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
        let number = |register: Register| register.is_gpr64().then(|| register.number());
        let (base, index) = (number(base), number(index));
        match (base, index) {
            (None, None) => self.code.load(register, displacement),
            (Some(base), None) if displacement == 0 => self.code.copy(register, base),
            _ => {
                let index = index.map(|index| (index, scale.trailing_zeros() as u8));
                self.code
                    .address(register, base, index, displacement as i32);
            }
        }
        if fs {
            let high = other as u8 >> 3;
            self.code
                .put(&[0xf3, 0x48 | high, 0x0f, 0xae, 0xc0 | other as u8 & 7]); // rdfsbase other
            self.code
                .address(register, Some(register), Some((other, 0)), 0);
        }
    }

    /// Emits code that leaves the cache to record an access whose address is in the thread's state. `whole`: the engine
    /// needs the vector registers.
    fn leave_to_record(
        &mut self,
        descriptor: Descriptor,
        flow: Flow,
        resume: Option<u64>,
        whole: bool,
    ) {
        let code = if resume.is_some() {
            &mut self.stubs
        } else {
            &mut self.code
        };
        let access = descriptor.encode() | u64::from(flow.encode()) << 32;
        code.set_field(state::ACCESS, access);
        match resume {
            Some(resume) => code.set_field(state::RESUME, resume),
            None => {
                // 13 bytes for this field, 7 for the jump.
                let resume = code.pc() + 20;
                code.set_field(state::RESUME, resume);
            }
        }
        // What is followed is recorded by the whole engine.
        let light = Light::of(descriptor).filter(|_| !flow.is_followed());
        code.jump_by(match light {
            Some(light) => VECTORS_LIGHT + 8 * light as u64,
            None if whole => VECTOR_RECORD,
            None => VECTOR_PLAIN,
        });
    }

    /// Records an access before it is made. `counted`: if it is plain, it was counted with its segment, except for its
    /// page. `leaves`: the program is at this address, and nothing of its instruction has been recorded.
    pub(super) fn access(
        &mut self,
        at: usize,
        access: &Access,
        owner: Owner,
        counted: bool,
        leaves: Option<u64>,
    ) {
        let descriptor = Descriptor {
            size: access.size,
            kind: access.kind,
            owner,
        };
        let plain = access.is_plain(owner);
        let (reads, writes) = access.counts();
        let accesses = reads + writes;
        let counted = counted && plain;
        let shape = Shape {
            span: access.size,
            members: 1,
            writes: access.kind != Kind::Read,
            written: match access.kind {
                Kind::Read => 0,
                _ if !plain => 0,
                _ => groups::bytes(access.size),
            },
        };
        let one = !access.operand.fs && (!plain || self.takes_one(shape.writes));
        let borrowed = self.borrow(at, used(&access.operand), if one { 1 } else { 2 });
        let [a, b] = borrowed.registers;
        let mut found = Place::Variable;
        if plain {
            found = self.find(&access.operand, shape, a, b);
            self.borrow_flags(&borrowed);
        }
        let paused = self.stubs.pc();
        // Code of a segment that records each access by itself is executed to its end.
        let stays = counted || self.version == Version::Apart;
        if let Some(pc) = leaves.filter(|_| plain && !stays && record::in_bursts()) {
            self.leave_paused(Totals::of(access), &borrowed, pc);
        }
        let cold = self.stubs.pc();
        if plain {
            let taken = counted || self.steady;
            if !counted && self.steady {
                self.take_room(Totals::of(access), paused);
            } else if !counted {
                self.has_room(accesses, b, paused);
            }
            self.take_back(access, taken, counted);
            if borrowed.flags {
                self.stubs.flags_from_rax();
                if self.lent.lost >> RAX & 1 != 0 {
                    self.stubs.return_to_owner(RAX);
                }
            }
        } else {
            self.code.jump_to(cold);
        }
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.address(&access.operand, a, b);
        std::mem::swap(&mut self.code, &mut self.stubs);
        self.stubs.with_field(Field::Store, a, state::ADDRESS);
        self.settle_in_stubs();
        self.leave_to_record(descriptor, access.flow, Some(self.code.pc()), false);
        // Completed below: before the jump of 7 bytes.
        let resume = self.stubs.offset() - 11;
        if plain {
            self.lines_are_ours(shape, &access.operand, found, [a, b], cold);
            self.count_page(Made { reads, writes }, found, a, b, cold);
            if !counted {
                self.count(accesses, access.bytes());
            }
            self.restore_flags(&borrowed);
        }
        let here = self.code.pc() as u32;
        self.stubs.patch(resume, &here.to_le_bytes());
        self.unusual_lines(a, b);
    }

    /// Takes back, in the exits' code, what has been counted of an access that the engine will count.
    fn take_back(&mut self, access: &Access, taken: bool, counted: bool) {
        let (reads, writes) = access.counts();
        let (loaded, stored) = access.bytes();
        if self.steady && taken {
            self.give_room(Totals::of(access));
        } else if taken {
            self.stubs.add_to_field(state::REMAINING, reads + writes);
        }
        if counted && stored > 0 {
            self.stubs.subtract_from_field(state::WRITE_BYTES, stored);
        }
        if counted && !self.steady && loaded > 0 {
            self.stubs.subtract_from_field(state::READ_BYTES, loaded);
        }
    }

    /// Takes accesses, with the bytes that they load and store, from the quantum; jumps to `cold` if it ends with them.
    /// The code there gives them back.
    pub(super) fn take_room(&mut self, taken: Totals, cold: u64) {
        let amount = room::amount(taken.accesses, taken.loaded + taken.stored);
        self.code.add_large(state::ROOM, amount);
        self.code.jump_if(NOT_NEGATIVE, cold);
    }

    /// Gives back, in the exits' code, what [`Copier::take_room`] has taken.
    pub(super) fn give_room(&mut self, taken: Totals) {
        let amount = room::amount(taken.accesses, taken.loaded + taken.stored);
        self.stubs.add_large(state::ROOM, -amount);
    }

    /// Finds the place of accesses of a shape: their first address is loaded into `a`, unless it is known.
    pub(super) fn find(&mut self, operand: &Operand, shape: Shape, a: usize, b: usize) -> Place {
        if let Some(address) = operand.constant()
            && address / LINE == (address + u64::from(shape.span) - 1) / LINE
        {
            return Place::Known(address);
        }
        self.address(operand, a, b);
        if self.is_undisturbed(shape.writes) && !shape.is_aligned() {
            let last = i32::from(shape.span) - 1;
            self.code.address(a, Some(a), None, last);
        }
        Place::Variable
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

    /// Counts what [`Copier::take_room`] has not taken of accesses: their number, the bytes that they load, and those
    /// that they store.
    pub(super) fn count(&mut self, accesses: i32, (loaded, stored): (i32, i32)) {
        if !self.steady {
            self.code.subtract_from_field(state::REMAINING, accesses);
        }
        if !self.steady && loaded > 0 {
            self.code.add_to_field(state::READ_BYTES, loaded);
        }
        if stored > 0 {
            self.code.add_to_field(state::WRITE_BYTES, stored);
        }
    }

    /// Records an access, whose address is in the thread's state, with all registers of the program in place.
    pub(super) fn record_here(&mut self, size: u16, kind: Kind, owner: Owner, flow: Flow) {
        self.settle();
        self.leave_to_record(Descriptor { size, kind, owner }, flow, None, false);
    }

    /// Lets the engine see that the program is at `pc`, where `entry` begins.
    pub(super) fn call(&mut self, pc: u64, entry: Entry) {
        self.point(pc, None);
        self.code.set_field(state::ADDRESS, pc);
        self.settle();
        let descriptor = Descriptor {
            size: entry.encode(),
            kind: Kind::Call,
            owner: Owner::Program,
        };
        self.leave_to_record(descriptor, Flow::default(), None, true);
    }

    /// Stores an operand's address in the thread's state, for code after instruction number `at`.
    pub(super) fn note_address(&mut self, at: usize, operand: &Operand) {
        let count = if operand.fs { 2 } else { 1 };
        let [a, b] = self.borrow(at, used(operand), count).registers;
        self.address(operand, a, b);
        self.code.with_field(Field::Store, a, state::ADDRESS);
    }

    /// Lets the engine record an instruction that is executed next.
    pub(super) fn complex(&mut self, instruction: &Instruction, owner: Owner) {
        self.settle();
        self.leave_for_complex(instruction, owner, None);
    }

    /// Emits code that leaves the cache to record an instruction, with all registers of the program in place: here, or
    /// in the exits' code, from which the thread returns to `resume`.
    pub(super) fn leave_for_complex(
        &mut self,
        instruction: &Instruction,
        owner: Owner,
        resume: Option<u64>,
    ) {
        let kept = Box::new(*instruction);
        let at = &raw const *kept as u64;
        self.fragment.kept().instructions.push(kept);
        let code = match resume {
            Some(_) => &mut self.stubs,
            None => &mut self.code,
        };
        code.set_field(state::INSTRUCTION, at);
        let repeated = Repeated::of(instruction);
        let descriptor = Descriptor {
            size: repeated.map_or(0, Repeated::encode),
            kind: repeated.map_or(Kind::Complex, |_| Kind::Repeated),
            owner,
        };
        let whole = !instruction.is_string_instruction();
        self.leave_to_record(descriptor, Flow::default(), resume, whole);
    }
}
