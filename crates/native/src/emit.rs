//! Emits the instructions that the translator adds to those it copies.

use crate::state;

/// Condition of a jump: below.
pub const BELOW: u8 = 2;
/// Condition of a jump: equal.
pub const EQUAL: u8 = 4;
/// Condition of a jump: not equal.
pub const NOT_EQUAL: u8 = 5;
/// Condition of a jump: negative.
pub const NEGATIVE: u8 = 8;
/// Condition of a jump: not negative.
pub const NOT_NEGATIVE: u8 = 9;
/// Condition of a jump: above.
pub const ABOVE: u8 = 7;
/// Condition of a jump: less or equal.
pub const NOT_GREATER: u8 = 14;
/// Condition of a jump: greater.
pub const GREATER: u8 = 15;
/// Condition of a jump: below or equal.
pub const NOT_ABOVE: u8 = 6;

/// Instructions with a register and a field or another register.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Field {
    /// Bitwise or of the register with the field.
    Or = 0x0b,
    /// Exclusive or of the register with the field.
    Xor = 0x33,
    /// Compares the register with the field.
    Compare = 0x3b,
    /// Compares the field with the register.
    Against = 0x39,
    /// Tests the bits of both.
    Test = 0x85,
    /// Stores the register.
    Store = 0x89,
    /// Loads the register.
    Load = 0x8b,
}

/// Instructions with a register and a number.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Number {
    /// Adds.
    Add = 0,
    /// Bitwise and.
    And = 4,
    /// Compares.
    Compare = 7,
}

/// Where a page's counter is. An address in one register: Intel's processors forward what was stored last to an
/// addition that is addressed so in no time, but in seven cycles if there is an index.
#[derive(Clone, Copy)]
pub enum Counter {
    /// At this distance from the first, in a register other than rsp and r12.
    At(usize),
    /// Of a page whose number is known when the code is emitted.
    OfPage(i32),
}

/// Most that [`Buffer::add_large`] adds by one instruction.
const LARGEST_PART: i64 = i32::MAX as i64;

/// Machine code for the address `base`.
pub struct Buffer {
    base: u64,
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty buffer.
    pub fn new(base: u64) -> Self {
        Self {
            base,
            bytes: Vec::with_capacity(1024),
        }
    }

    /// An empty buffer in memory that was used before.
    pub fn within(mut bytes: Vec<u8>, base: u64) -> Self {
        bytes.clear();
        Self { base, bytes }
    }

    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Bytes from the beginning to `pc`.
    pub fn offset(&self) -> usize {
        self.bytes.len()
    }

    /// Address of the byte at an offset.
    pub fn address_of(&self, offset: usize) -> u64 {
        self.base + offset as u64
    }

    /// All the code.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All the code, when it is complete.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends bytes.
    pub fn put<const COUNT: usize>(&mut self, bytes: &[u8; COUNT]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends any number of bytes.
    pub fn put_all(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a 32-bit number.
    pub fn put32(&mut self, number: i32) {
        self.put(&number.to_le_bytes());
    }

    /// Overwrites bytes at an offset.
    pub fn patch(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Fills with no-operations until the address is a multiple of `to`.
    pub fn align(&mut self, to: u64) {
        while !self.pc().is_multiple_of(to) {
            self.put(&[0x90]);
        }
    }

    /// An instruction with a 64-bit register and a field of the thread's state.
    pub fn with_field(&mut self, operation: Field, register: usize, field: i32) {
        let rex = 0x48 | (register as u8 >> 3) << 2;
        let register = (register as u8 & 7) << 3;
        let [a, b, c, d] = field.to_le_bytes();
        self.put(&[0x65, rex, operation as u8, register | 4, 0x25, a, b, c, d]);
    }

    /// Loads a register with a field if the comparison before found it below the field.
    pub fn load_if_below(&mut self, register: usize, field: i32) {
        let rex = 0x48 | (register as u8 >> 3) << 2;
        self.put(&[0x65, rex, 0x0f, 0x42, (register as u8 & 7) << 3 | 4, 0x25]); // cmovb
        self.put32(field);
    }

    /// Loads a register with the upper half of a field of the thread's state.
    pub fn load_high_half(&mut self, register: usize, field: i32) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        self.put(&[0x65, 0x40 | high << 2, 0x8b, low << 3 | 4, 0x25]);
        self.put32(field + 4);
    }

    /// Stores a register in a slot of the thread's state.
    pub fn save(&mut self, register: usize, slot: usize) {
        self.with_field(Field::Store, register, state::SLOTS + 8 * slot as i32);
    }

    /// Loads a register from a slot of the thread's state.
    pub fn restore(&mut self, register: usize, slot: usize) {
        self.with_field(Field::Load, register, state::SLOTS + 8 * slot as i32);
    }

    /// Stores a register that translated code borrows.
    pub fn lend(&mut self, register: usize) {
        self.with_field(
            Field::Store,
            register,
            state::BORROWED + 8 * register as i32,
        );
    }

    /// Loads a register that translated code borrowed.
    pub fn return_to_owner(&mut self, register: usize) {
        self.with_field(Field::Load, register, state::BORROWED + 8 * register as i32);
    }

    /// Stores a mask register in a field of the thread's state.
    pub fn store_mask(&mut self, mask: u8, field: i32) {
        self.put(&[0x65, 0xc4, 0xe1, 0xf8, 0x91, (mask & 7) << 3 | 4, 0x25]); // kmovq gs:[field], mask
        self.put32(field);
    }

    /// Loads a register with bits of a mask register: 64, or 32.
    pub fn load_mask(&mut self, register: usize, mask: u8, wide: bool) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        let width = if wide { 0xfb } else { 0x7b };
        self.put(&[
            0xc4,
            0xe1 ^ high << 7,
            width,
            0x93,
            0xc0 | low << 3 | mask & 7,
        ]); // kmov register, mask
    }

    /// Counts the bits of a 64-bit register.
    pub fn count_bits(&mut self, register: usize) {
        self.of_bits(0xb8, register, register); // popcnt
    }

    /// Shifts a 64-bit register, which is not 0, right by the zeros below its first bit; changes `other`.
    pub fn drop_zeros(&mut self, register: usize, other: usize) {
        self.of_bits(0xbc, other, register); // tzcnt
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        let by = !(other as u8) & 15;
        self.put(&[0xc4, 0xe2 ^ high << 7 ^ high << 5, 0x83 | by << 3, 0xf7]); // shrx
        self.put(&[0xc0 | low << 3 | low]);
    }

    /// Loads a 64-bit register with the number of certain bits of another.
    fn of_bits(&mut self, opcode: u8, register: usize, other: usize) {
        let rex = 0x48 | (register as u8 >> 3) << 2 | other as u8 >> 3;
        let registers = (register as u8 & 7) << 3 | other as u8 & 7;
        self.put(&[0xf3, rex, 0x0f, opcode, 0xc0 | registers]);
    }

    /// Subtracts a register from a 64-bit field of the thread's state.
    pub fn subtract_register_from_field(&mut self, register: usize, field: i32) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        self.put(&[0x65, 0x48 | high << 2, 0x29, low << 3 | 4, 0x25]);
        self.put32(field);
    }

    /// Adds to a 64-bit field of the thread's state.
    pub fn add_to_field(&mut self, field: i32, amount: i32) {
        self.field_and_number(0, field, amount);
    }

    /// Subtracts from a 64-bit field of the thread's state.
    pub fn subtract_from_field(&mut self, field: i32, amount: i32) {
        self.field_and_number(5, field, amount);
    }

    /// Adds (0) or subtracts (5) a number.
    fn field_and_number(&mut self, operation: u8, field: i32, number: i32) {
        let small = i8::try_from(number);
        let opcode = if small.is_ok() { 0x83 } else { 0x81 };
        self.put(&[0x65, 0x48, opcode, operation << 3 | 4, 0x25]);
        self.put32(field);
        match small {
            Ok(byte) => self.put(&[byte as u8]),
            Err(_) => self.put32(number),
        }
    }

    /// Adds to a 64-bit field of the thread's state, by several instructions if need be; the last one sets the flags.
    pub fn add_large(&mut self, field: i32, mut amount: i64) {
        while amount != 0 {
            let part = amount.clamp(-LARGEST_PART, LARGEST_PART);
            self.put(&[0x65, 0x48, 0x81, 4, 0x25]);
            self.put32(field);
            self.put32(part as i32);
            amount -= part;
        }
    }

    /// Compares a byte of the thread's state with 0: that at a distance from the field, in a register other than rsp
    /// and r12, or the first.
    pub fn is_zero_byte(&mut self, distance: Option<usize>, field: i32) {
        match distance {
            Some(register) => {
                let (high, low) = (register as u8 >> 3, register as u8 & 7);
                self.put(&[0x65, 0x40 | high, 0x80, 0xb8 | low]);
            }
            None => self.put(&[0x65, 0x80, 0x3c, 0x25]),
        }
        self.put32(field);
        self.put(&[0]);
    }

    /// Compares a 64-bit field of the thread's state with 0.
    pub fn is_zero_field(&mut self, field: i32) {
        self.put(&[0x65, 0x48, 0x83, 0x3c, 0x25]);
        self.put32(field);
        self.put(&[0]);
    }

    /// Completes a jump whose displacement is at an offset.
    pub fn lead(&mut self, displacement: usize, to: u64) {
        let distance = to.wrapping_sub(self.address_of(displacement) + 4) as i32;
        self.patch(displacement, &distance.to_le_bytes());
    }

    /// An instruction with a 64-bit register and a number.
    pub fn with_number(&mut self, operation: Number, register: usize, number: i32) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        let operation = (operation as u8) << 3;
        if let Ok(byte) = i8::try_from(number) {
            self.put(&[0x48 | high, 0x83, 0xc0 | operation | low, byte as u8]);
        } else {
            self.put(&[0x48 | high, 0x81, 0xc0 | operation | low]);
            self.put32(number);
        }
    }

    /// Shifts a 64-bit register left, or right.
    pub fn shift(&mut self, register: usize, left: bool, by: u8) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        let operation = if left { 0xe0 } else { 0xe8 };
        self.put(&[0x48 | high, 0xc1, operation | low, by]);
    }

    /// An instruction with two 64-bit registers; the first may be changed.
    pub fn with_register(&mut self, operation: Field, register: usize, other: usize) {
        let rex = 0x48 | (register as u8 >> 3) << 2 | other as u8 >> 3;
        let registers = (register as u8 & 7) << 3 | other as u8 & 7;
        self.put(&[rex, operation as u8, 0xc0 | registers]);
    }

    /// Loads a register with `base + index * 2^scale + displacement`; `index` is not rsp.
    pub fn address(
        &mut self,
        register: usize,
        base: Option<usize>,
        index: Option<(usize, u8)>,
        displacement: i32,
    ) {
        let low = |register: usize| register as u8 & 7;
        let high = |register: usize| register as u8 >> 3;
        let (at, scale) = index.map_or((4, 0), |(at, scale)| (low(at), scale));
        let rex =
            high(register) << 2 | index.map_or(0, |(at, _)| high(at)) << 1 | base.map_or(0, high);
        let to = low(register) << 3;
        let Some(base) = base else {
            self.put(&[0x48 | rex, 0x8d, to | 4, scale << 6 | at << 3 | 5]);
            return self.put32(displacement);
        };
        let small = i8::try_from(displacement);
        let size = match small {
            Ok(0) if low(base) != 5 => 0,
            Ok(_) => 0x40,
            Err(_) => 0x80,
        };
        if index.is_none() && low(base) != 4 {
            self.put(&[0x48 | rex, 0x8d, size | to | low(base)]);
        } else {
            let sib = scale << 6 | at << 3 | low(base);
            self.put(&[0x48 | rex, 0x8d, size | to | 4, sib]);
        }
        match (size, small) {
            (0, _) => {}
            (_, Ok(byte)) => self.put(&[byte as u8]),
            _ => self.put32(displacement),
        }
    }

    /// Tests the low bits of a register.
    pub fn test_low(&mut self, register: usize, bits: u8) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        self.put(&[0x40 | high, 0xf6, 0xc0 | low, bits]);
    }

    /// Tests bits 0 to 31 of a register.
    pub fn test(&mut self, register: usize, bits: i32) {
        match register {
            0 => self.put(&[0xa9]),
            1..8 => self.put(&[0xf7, 0xc0 | register as u8]),
            _ => self.put(&[0x41, 0xf7, 0xc0 | register as u8 & 7]),
        }
        self.put32(bits);
    }

    /// Loads a register with the word of a table at a low address, by the index in a register.
    pub fn load_indexed(&mut self, register: usize, index: usize, table: u64) {
        let low = |register: usize| register as u8 & 7;
        let high = |register: usize| register as u8 >> 3;
        let rex = 0x48 | high(register) << 2 | high(index) << 1;
        self.put(&[
            rex,
            0x8b,
            low(register) << 3 | 4,
            0xc0 | low(index) << 3 | 5,
        ]);
        self.put32(table as i32);
    }

    /// Sets bits of four bytes: those at the sum of two registers, neither rsp nor r12, and a distance.
    pub fn set_bits(&mut self, base: usize, index: usize, distance: u8, bits: u32) {
        self.or_sum(0x81, base, index, distance);
        self.put(&bits.to_le_bytes());
    }

    /// Sets bits of a byte, as [`Buffer::set_bits`].
    pub fn set_bits_of_byte(&mut self, base: usize, index: usize, distance: u8, bits: u8) {
        self.or_sum(0x80, base, index, distance);
        self.put(&[bits]);
    }

    /// Bitwise or of a number, which follows, with memory.
    fn or_sum(&mut self, opcode: u8, base: usize, index: usize, distance: u8) {
        let rex = 0x40 | (index as u8 >> 3) << 1 | base as u8 >> 3;
        let registers = (index as u8 & 7) << 3 | base as u8 & 7;
        self.put(&[rex, opcode, 0x4c, registers, distance]);
    }

    /// Sets the bit with the number in a register, of the bits from the address in another, neither rsp nor r12, on.
    pub fn set_bit(&mut self, base: usize, number: usize) {
        let rex = 0x48 | (number as u8 >> 3) << 2 | base as u8 >> 3;
        let registers = (number as u8 & 7) << 3 | base as u8 & 7;
        self.put(&[rex, 0x0f, 0xab, 0x40 | registers, 0]); // bts [base], number
    }

    /// Loads a register from an address below 4 GiB.
    pub fn load_from(&mut self, register: usize, address: u64) {
        self.extend_absolute(address);
        let rex = 0x48 | (register as u8 >> 3) << 2;
        self.put(&[rex, 0x8b, (register as u8 & 7) << 3 | 4, 0x25]);
        self.put32(address as i32);
    }

    /// Emits the prefix with which the absolute address of the next instruction is not extended by its sign, if its
    /// sign bit is set: that of an address of 32 bits.
    fn extend_absolute(&mut self, address: u64) {
        debug_assert!(address <= u32::MAX.into());
        if address > i32::MAX as u64 {
            self.put(&[0x67]);
        }
    }

    /// Loads a register with the word, or half a word, to which it points.
    pub fn load_through(&mut self, register: usize, wide: bool) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        let rex = if wide { 0x48 } else { 0x40 } | high << 2 | high;
        self.put(&[rex, 0x8b, 0x40 | low << 3 | low]);
        if low == 4 {
            self.put(&[0x24]);
        }
        self.put(&[0]);
    }

    /// Adds a number to a page's counter, whose sign then shows whether it had been counted before.
    pub fn add_to_counter(&mut self, counter: Counter, amount: i32) {
        let small = i8::try_from(amount);
        self.with_counter(if small.is_ok() { 0x83 } else { 0x81 }, counter, 0);
        match small {
            Ok(byte) => self.put(&[byte as u8]),
            Err(_) => self.put32(amount),
        }
    }

    /// Adds a register to a page's counter, as [`Buffer::add_to_counter`] does a number.
    pub fn add_register_to_counter(&mut self, counter: Counter, register: usize) {
        self.with_counter(0x01, counter, register);
    }

    /// Subtracts a register from a page's counter.
    pub fn subtract_register_from_counter(&mut self, counter: Counter, register: usize) {
        self.with_counter(0x29, counter, register);
    }

    /// An instruction with a page's counter and a register, or the number of an operation. Always with all 64 bits: a
    /// processor waits if it loads a word of which a part has just been stored.
    fn with_counter(&mut self, opcode: u8, counter: Counter, register: usize) {
        let rex = 0x48 | (register as u8 >> 3) << 2;
        let register = (register as u8 & 7) << 3;
        match counter {
            Counter::At(at) => {
                let (high, low) = (at as u8 >> 3, at as u8 & 7);
                self.put(&[0x65, rex | high, opcode, 0x80 | register | low]);
                self.put32(state::COUNTERS);
            }
            Counter::OfPage(page) => {
                self.put(&[0x65, rex, opcode, register | 4, 0x25]);
                self.put32(state::COUNTERS + 8 * page);
            }
        }
    }

    /// Compares a word of a table at a low address with a number: that of the index in a register, or the first.
    pub fn compare_word(&mut self, index: Option<usize>, table: u64, number: i32) {
        match index {
            Some(index) => {
                let (high, low) = (index as u8 >> 3, index as u8 & 7);
                self.put(&[0x48 | high << 1, 0x81, 0x3c, 0xc0 | low << 3 | 5]);
            }
            None => {
                self.extend_absolute(table);
                self.put(&[0x48, 0x81, 0x3c, 0x25]);
            }
        }
        self.put32(table as i32);
        self.put32(number);
    }

    /// Emits a conditional jump, which is not changed later.
    pub fn jump_if(&mut self, condition: u8, to: u64) {
        self.put(&[0x0f, 0x80 | condition]);
        let at = self.pc() + 4;
        self.put32(to.wrapping_sub(at) as i32);
    }

    /// Emits a jump, which is not changed later.
    pub fn jump_to(&mut self, to: u64) {
        self.put(&[0xe9]);
        let at = self.pc() + 4;
        self.put32(to.wrapping_sub(at) as i32);
    }

    /// Emits a short conditional jump forward, to be completed by [`Buffer::land`].
    pub fn skip_if(&mut self, condition: u8) -> usize {
        self.put(&[0x70 | condition, 0]);
        self.offset()
    }

    /// Emits a short jump forward for rcx being 0, to be completed by [`Buffer::land`].
    pub fn skip_if_rcx_is_zero(&mut self) -> usize {
        self.put(&[0xe3, 0]);
        self.offset()
    }

    /// Completes a short jump: it leads here.
    pub fn land(&mut self, from: usize) {
        let distance = (self.offset() - from) as u8;
        self.patch(from - 1, &[distance]);
    }

    /// Saves the flags in rax.
    pub fn flags_to_rax(&mut self) {
        self.put(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
    }

    /// Restores the flags from rax.
    pub fn flags_from_rax(&mut self) {
        self.put(&[0x04, 0x7f, 0x9e]); // add al, 127; sahf
    }

    /// Stores a number in a field of the thread's state.
    pub fn set_field(&mut self, field: i32, value: u64) {
        if let Ok(value) = i32::try_from(value) {
            self.put(&[0x65, 0x48, 0xc7, 0x04, 0x25]);
            self.put32(field);
            self.put32(value);
        } else {
            for (field, half) in [(field, value as i32), (field + 4, (value >> 32) as i32)] {
                self.put(&[0x65, 0xc7, 0x04, 0x25]);
                self.put32(field);
                self.put32(half);
            }
        }
    }

    /// Loads a register with a number.
    pub fn load(&mut self, register: usize, value: u64) {
        let (high, low) = (register as u8 >> 3, register as u8 & 7);
        if let Ok(value) = u32::try_from(value) {
            if high != 0 {
                self.put(&[0x41]);
            }
            self.put(&[0xb8 | low]);
            self.put(&value.to_le_bytes());
        } else {
            self.put(&[0x48 | high, 0xb8 | low]);
            self.put(&value.to_le_bytes());
        }
    }

    /// Copies a register.
    pub fn copy(&mut self, to: usize, from: usize) {
        let (to, from) = (to as u8, from as u8);
        let rex = 0x48 | (from >> 3) << 2 | to >> 3;
        self.put(&[rex, 0x89, 0xc0 | (from & 7) << 3 | to & 7]);
    }

    /// `jmp [vector]`.
    pub fn jump_by(&mut self, vector: u64) {
        self.put(&[0xff, 0x24, 0x25]);
        self.put32(vector as i32);
    }
}
