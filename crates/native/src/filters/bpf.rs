//! Filters as the kernel runs them for seccomp: classic BPF over the number, the address and the arguments of a call.
//! Pure.

/// An instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub yes: u8,
    /// And if not.
    pub no: u8,
    /// Operand.
    pub k: u32,
}

/// Most instructions of a filter.
pub const MOST: usize = 4096;

/// What a filter sees of a call: `struct seccomp_data`, as words.
pub type Data = [u32; 16];

/// Words of the filter's memory.
const MEMORY: usize = 16;

// Classes, and what follows in the code.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const ABS: u16 = 0x20;
const IMM: u16 = 0x00;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
/// The operand is X.
const X: u16 = 0x08;
/// The result is A.
const A: u16 = 0x10;
const TXA: u16 = 0x80;

const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const XOR: u16 = 0xa0;

const ALWAYS: u16 = 0x00;
const EQUAL: u16 = 0x10;
const GREATER: u16 = 0x20;
const NOT_LESS: u16 = 0x30;
const ANY_BIT: u16 = 0x40;

/// Whether the kernel accepts a filter.
pub fn is_valid(program: &[Instruction]) -> bool {
    if program.is_empty() || program.len() > MOST {
        return false;
    }
    let valid = |at: usize| {
        let Instruction { code, yes, no, k } = program[at];
        let left = program.len() - at - 1;
        let constant = code & X == 0;
        match code & 7 {
            LD => match code & !7 {
                ABS => k < 64 && k.is_multiple_of(4),
                LEN | IMM => true,
                MEM => (k as usize) < MEMORY,
                _ => false,
            },
            LDX => match code & !7 {
                LEN | IMM => true,
                MEM => (k as usize) < MEMORY,
                _ => false,
            },
            ST | STX => code & !7 == 0 && (k as usize) < MEMORY,
            ALU => match code & 0xf0 {
                DIV => !constant || k != 0,
                LSH | RSH => !constant || k < 32,
                NEG => constant,
                ADD | SUB | MUL | OR | AND | XOR => true,
                _ => false,
            },
            JMP => match code & 0xf0 {
                ALWAYS => constant && (k as usize) < left,
                EQUAL | GREATER | NOT_LESS | ANY_BIT => {
                    usize::from(yes) < left && usize::from(no) < left
                }
                _ => false,
            },
            RET => matches!(code & !7, 0 | A),
            _ => matches!(code & !7, 0 | TXA),
        }
    };
    let known = |code: u16| code <= 0xff;
    let ends = program[program.len() - 1].code & 7 == RET;
    ends && (0..program.len()).all(|at| known(program[at].code) && valid(at))
}

/// The result of a valid filter for a call.
pub fn run(program: &[Instruction], data: &Data) -> u32 {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; MEMORY];
    let mut at = 0;
    loop {
        let Some(&Instruction { code, yes, no, k }) = program.get(at) else {
            return 0;
        };
        at += 1;
        let slot = k as usize % MEMORY;
        let operand = if code & X == 0 { k } else { x };
        let loaded = match code & !7 {
            ABS => data[k as usize / 4 % data.len()],
            LEN => size_of::<Data>() as u32,
            MEM => memory[slot],
            _ => k,
        };
        match code & 7 {
            LD => a = loaded,
            LDX => x = loaded,
            ST => memory[slot] = a,
            STX => memory[slot] = x,
            ALU => {
                a = match code & 0xf0 {
                    ADD => a.wrapping_add(operand),
                    SUB => a.wrapping_sub(operand),
                    MUL => a.wrapping_mul(operand),
                    DIV => match a.checked_div(operand) {
                        Some(quotient) => quotient,
                        None => return 0,
                    },
                    OR => a | operand,
                    AND => a & operand,
                    LSH => a.wrapping_shl(operand),
                    RSH => a.wrapping_shr(operand),
                    NEG => a.wrapping_neg(),
                    _ => a ^ operand,
                }
            }
            JMP => {
                let holds = match code & 0xf0 {
                    ALWAYS => {
                        at += k as usize;
                        continue;
                    }
                    EQUAL => a == operand,
                    GREATER => a > operand,
                    NOT_LESS => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if holds { yes } else { no });
            }
            RET => return if code & A != 0 { a } else { k },
            MISC if code & TXA != 0 => a = x,
            _ => x = a,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, yes: u8, no: u8, k: u32) -> Instruction {
        Instruction { code, yes, no, k }
    }

    #[test]
    fn calls_are_compared_as_the_kernel_compares_them() {
        // Of call 257, 7 if the second argument is odd, else 9; 5 for all others.
        let program = [
            instruction(LD | ABS, 0, 0, 0),
            instruction(JMP | EQUAL, 0, 3, 257),
            instruction(LD | ABS, 0, 0, 24),
            instruction(JMP | ANY_BIT, 0, 2, 1),
            instruction(RET, 0, 0, 7),
            instruction(RET, 0, 0, 5),
            instruction(RET, 0, 0, 9),
        ];
        assert!(is_valid(&program));
        let of = |number: u32, second: u32| {
            let mut data = [0; 16];
            (data[0], data[6]) = (number, second);
            run(&program, &data)
        };
        assert_eq!([of(257, 3), of(257, 2), of(1, 3)], [7, 9, 5]);
    }

    #[test]
    fn arithmetic_and_memory() {
        let program = [
            instruction(LD | IMM, 0, 0, 40),
            instruction(MISC, 0, 0, 0),
            instruction(LD | LEN, 0, 0, 0),
            instruction(ALU | SUB | X, 0, 0, 0),
            instruction(ST, 0, 0, 3),
            instruction(LDX | MEM, 0, 0, 3),
            instruction(MISC | TXA, 0, 0, 0),
            instruction(ALU | LSH, 0, 0, 2),
            instruction(ALU | XOR, 0, 0, 1),
            instruction(RET | A, 0, 0, 0),
        ];
        assert!(is_valid(&program));
        assert_eq!(run(&program, &[0; 16]), (64 - 40) << 2 ^ 1);
        let divides = [
            instruction(ALU | DIV | X, 0, 0, 0),
            instruction(RET, 0, 0, 3),
        ];
        assert!(is_valid(&divides));
        assert_eq!(run(&divides, &[0; 16]), 0);
    }

    #[test]
    fn filters_that_the_kernel_refuses_are_refused() {
        let end = instruction(RET, 0, 0, 0);
        for bad in [
            instruction(LD | ABS, 0, 0, 64),
            instruction(LD | ABS, 0, 0, 2),
            instruction(LD | MEM, 0, 0, 16),
            instruction(ALU | DIV, 0, 0, 0),
            instruction(ALU | LSH, 0, 0, 32),
            instruction(ALU | 0x90, 0, 0, 1),
            instruction(JMP, 0, 0, 1),
            instruction(JMP | EQUAL, 1, 0, 1),
            instruction(0x1000, 0, 0, 0),
        ] {
            assert!(!is_valid(&[bad, end]), "{bad:?}");
        }
        assert!(!is_valid(&[]));
        assert!(!is_valid(&[instruction(LD | IMM, 0, 0, 1)]));
        assert!(is_valid(&[end]));
    }
}
