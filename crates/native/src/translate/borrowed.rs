//! Registers that the code which records accesses borrows from the program: pure.

use iced_x86::Register;
use numaloc_follow::affine::registers;

use super::liveness::{Live, Uses};
use crate::record::access::Operand;
use crate::state::RAX;

/// Registers that can be borrowed, in order of preference. Without rsp, and without those that need longer addresses.
pub(super) const CHOICE: [usize; 12] = [1, 2, 0, 8, 9, 10, 11, 6, 7, 3, 14, 15];

/// Registers that are borrowed at a place in a fragment.
///
/// Borrowed registers are given back only when the program's code uses them: until then the next code that records
/// accesses can have them for nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lent {
    /// Bits of the registers whose values are stored.
    pub stored: u16,
    /// Bits of those that contain something else meanwhile.
    pub lost: u16,
}

impl Lent {
    /// Takes the registers `bits`, of which the program needs those in `live`; returns the bits of those to be stored.
    pub fn take(&mut self, bits: u16, live: u16) -> u16 {
        let store = bits & live & !self.stored;
        self.stored = (self.stored | store) & !(bits & !live);
        self.lost = (self.lost | bits & live) & !(bits & !live);
        store
    }

    /// Gives back those of the registers `bits` that are lost; returns their bits.
    pub fn give(&mut self, bits: u16) -> u16 {
        let back = self.lost & bits;
        self.lost &= !back;
        back
    }

    /// Takes into account that the program changes registers.
    pub fn change(&mut self, bits: u16) {
        self.stored &= !bits;
        self.lost &= !bits;
    }
}

/// Number of no register.
const NONE: usize = 16;

/// One or two borrowed registers, and whether flags are borrowed, in rax.
#[derive(Clone, Copy)]
pub struct Borrowed {
    /// The registers; the second is [`NONE`] where one is enough.
    pub registers: [usize; 2],
    /// Whether the flags must be restored.
    pub flags: bool,
    /// Bits of the registers that the program needs.
    pub live: u16,
}

impl Borrowed {
    /// Whether `count` registers can be borrowed for code that computes several addresses from the registers `used`,
    /// where `live` is needed.
    pub fn suits(live: Live, used: u16, count: usize) -> bool {
        let free = CHOICE
            .into_iter()
            .filter(|register| used >> register & 1 == 0);
        let flags = live.flags();
        free.filter(|&register| !(flags && register == RAX)).count() >= count
            && !(flags && used >> RAX & 1 != 0)
    }

    /// `count` registers, 1 or 2, for code before an instruction that needs `live` and whose operands use `used`.
    /// `next` are the instructions that follow.
    pub fn choose(live: Live, used: u16, lent: Lent, next: &[Uses], count: usize) -> Self {
        let flags = live.flags();
        let taken = used | if flags { 1 << RAX } else { 0 };
        // Registers that the program does not need are free; if there are too few, the next uses of the others
        // count.
        let free = CHOICE
            .into_iter()
            .filter(|register| (taken | live.registers) >> register & 1 == 0);
        let distances = match free.clone().nth(count - 1) {
            Some(_) => [0; 16],
            None => distances(live.registers & !taken, next),
        };
        let cost = |register: usize| {
            let is = |bits: u16| bits >> register & 1 != 0;
            let near = AHEAD - distances[register].min(AHEAD);
            match () {
                () if !live.has(register) => 0,
                () if is(lent.lost) => 1,
                () if is(lent.stored) => 2 + near,
                () => 3 + AHEAD + near,
            }
        };
        // The two that cost least, the first of those that cost the same.
        let mut best = [(usize::MAX, 0); 2];
        for register in CHOICE.into_iter().filter(|one| taken >> one & 1 == 0) {
            let cost = cost(register);
            if cost < best[0].0 {
                best = [(cost, register), best[0]];
            } else if cost < best[1].0 {
                best[1] = (cost, register);
            }
            if best[count - 1].0 == 0 {
                break;
            }
        }
        let mut registers = best.map(|one| one.1);
        if count == 1 {
            registers[1] = NONE;
        }
        Self {
            registers,
            flags,
            live: live.registers,
        }
    }

    /// Bits of the registers.
    pub fn bits(&self) -> u16 {
        let bit = |register: usize| (1_u32 << register) as u16;
        bit(self.registers[0]) | bit(self.registers[1])
    }
}

/// Instructions in which a register's next use is looked for.
const AHEAD: usize = 24;

/// The number of instructions before the next use of each register in a set of bits; [`AHEAD`] if it is not near.
fn distances(mut bits: u16, next: &[Uses]) -> [usize; 16] {
    let mut distances = [AHEAD; 16];
    for (at, one) in next.iter().take(AHEAD).enumerate() {
        let used = bits & (one.needs | one.changes);
        for register in registers(used) {
            distances[register] = at;
        }
        bits &= !used;
        if bits == 0 {
            break;
        }
    }
    distances
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_stored_once_and_given_back_once() {
        let mut lent = Lent::default();
        assert_eq!(lent.take(0b11, 0b01), 0b01, "the other is not needed");
        assert_eq!(lent.take(0b01, 0b01), 0);
        assert_eq!((lent.give(0b11), lent.give(0b11)), (0b01, 0));
        assert_eq!(lent.take(0b01, 0b01), 0, "its value is still stored");
        lent.give(0b01);
        lent.change(0b01);
        assert_eq!(lent.take(0b01, 0b01), 0b01);
    }
}
