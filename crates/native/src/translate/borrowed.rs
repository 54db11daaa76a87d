//! Registers that the code which records accesses borrows from the program: pure.

use iced_x86::Register;

use super::liveness::Live;
use crate::record::access::Operand;
use crate::state::RAX;

/// First slot for borrowed registers.
pub const SLOT: usize = 4;
/// Slot for rax while it holds the flags.
pub const SLOT_FLAGS: usize = 6;
/// Registers that can be borrowed, in order of preference. Without rsp, and without those that need longer addresses.
const CHOICE: [usize; 12] = [1, 2, 0, 8, 9, 10, 11, 6, 7, 3, 14, 15];
/// Two borrowed registers, and what must be restored.
#[derive(Clone, Copy)]
pub struct Borrowed {
    /// The registers.
    pub registers: [usize; 2],
    /// Whether each of them must be restored.
    pub stored: [bool; 2],
    /// Whether the flags must be restored, from rax.
    pub flags: bool,
    /// Whether rax must be restored after that.
    pub rax_stored: bool,
}

impl Borrowed {
    /// Whether registers can be borrowed for code that computes several addresses from the registers `used`, where
    /// `live` is needed.
    pub fn suits(live: Live, used: u16) -> bool {
        let free = CHOICE
            .into_iter()
            .filter(|register| used >> register & 1 == 0);
        let flags = live.flags();
        free.filter(|&register| !(flags && register == RAX)).count() >= 2
            && !(flags && used >> RAX & 1 != 0)
    }

    /// Registers for code before an instruction that needs `live` and whose operands use `used`.
    pub fn choose(live: Live, used: u16) -> Self {
        let flags = live.flags();
        let free = |&register: &usize| used >> register & 1 == 0 && !(flags && register == RAX);
        let mut found = [0; 2];
        let dead = CHOICE.into_iter().filter(|&register| !live.has(register));
        let others = CHOICE.into_iter().filter(|&register| live.has(register));
        for (at, register) in found.iter_mut().zip(dead.chain(others).filter(free)) {
            *at = register;
        }
        Self {
            registers: found,
            stored: found.map(|register| live.has(register)),
            flags,
            rax_stored: flags && live.has(RAX),
        }
    }
}

/// Bits of the registers that an operand uses.
pub fn used(operand: &Operand) -> u16 {
    let bit = |register: Register| match register {
        Register::None => 0,
        register => 1 << register.number(),
    };
    bit(operand.base) | bit(operand.index)
}

/// The general registers by number.
pub const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
