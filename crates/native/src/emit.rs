//! Emits the instructions that the translator adds to those it copies.

use crate::state;

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

    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Bytes from the beginning to `pc`.
    pub fn offset(&self) -> usize {
        self.bytes.len()
    }

    /// All the code.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
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

    /// Fills with no-operations until the address `distance` bytes later is a multiple of `to`.
    pub fn align(&mut self, to: u64, distance: u64) {
        while !(self.pc() + distance).is_multiple_of(to) {
            self.put(&[0x90]);
        }
    }

    fn slot(&mut self, opcode: u8, register: usize, slot: usize) {
        let rex = 0x48 | (register as u8 >> 3) << 2;
        self.put(&[0x65, rex, opcode, (register as u8 & 7) << 3 | 4, 0x25]);
        self.put32(state::SLOTS + 8 * slot as i32);
    }

    /// Stores a register in a slot of the thread's state.
    pub fn save(&mut self, register: usize, slot: usize) {
        self.slot(0x89, register, slot);
    }

    /// Loads a register from a slot of the thread's state.
    pub fn restore(&mut self, register: usize, slot: usize) {
        self.slot(0x8b, register, slot);
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

    /// Emits a jump, conditional or not. Returns the address of its displacement, which lies in one cache line, so that
    /// one store can change it.
    pub fn jump(&mut self, condition: Option<u8>, to: u64) -> u64 {
        let opcode = if condition.is_some() { 2 } else { 1 };
        while (self.pc() + opcode) & 63 > 60 {
            self.put(&[0x90]);
        }
        match condition {
            Some(condition) => self.put(&[0x0f, 0x80 | condition]),
            None => self.put(&[0xe9]),
        }
        let at = self.pc();
        self.put32(to.wrapping_sub(at + 4) as i32);
        at
    }
}
