//! Reading and setting the base of gs (`rdgsbase`, `wrgsbase`), which in the processor is the engine's.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use crate::guest;
use crate::state::State;

/// Executes the instruction at the thread's address if it reads or sets the base. `None`: it is another one; otherwise
/// whether it has been executed, or faults.
pub fn executed(state: &mut State) -> Option<bool> {
    let code: [u8; 5] = guest::read(state.pc)?;
    let instruction = Decoder::with_ip(64, &code, state.pc, DecoderOptions::NONE).decode();
    execute(&instruction, &mut state.regs, &mut state.guest_gs).inspect(|&done| {
        if done {
            state.pc = instruction.next_ip();
        }
    })
}

fn execute(instruction: &Instruction, regs: &mut [u64; 16], base: &mut u64) -> Option<bool> {
    let register = instruction.op0_register();
    let value = &mut regs[register.full_register().number() & 15];
    let half = register.size() == 4;
    match instruction.mnemonic() {
        // The upper half of the register becomes 0.
        Mnemonic::Rdgsbase if half => *value = *base & 0xffff_ffff,
        Mnemonic::Rdgsbase => *value = *base,
        Mnemonic::Wrgsbase if half => *base = *value & 0xffff_ffff,
        Mnemonic::Wrgsbase if !is_canonical(*value) => return Some(false),
        Mnemonic::Wrgsbase => *base = *value,
        _ => return None,
    }
    Some(true)
}

/// Whether the upper bits of an address repeat bit 47. Processors with longer addresses accept more.
fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executes(code: &[u8], regs: &mut [u64; 16], base: &mut u64) -> Option<bool> {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        execute(&instruction, regs, base)
    }

    #[test]
    fn the_base_is_read_and_set() {
        const RDX: usize = 2;
        const R9: usize = 9;
        let (mut regs, mut base) = ([u64::MAX; 16], 0x1234_5678_9abc);
        // rdgsbase rdx; rdgsbase r9d
        assert_eq!(
            executes(b"\xf3\x48\x0f\xae\xca", &mut regs, &mut base),
            Some(true)
        );
        assert_eq!(
            executes(b"\xf3\x41\x0f\xae\xc9", &mut regs, &mut base),
            Some(true)
        );
        assert_eq!((regs[RDX], regs[R9]), (0x1234_5678_9abc, 0x5678_9abc));
        // wrgsbase edx; wrgsbase r9
        assert_eq!(
            executes(b"\xf3\x0f\xae\xda", &mut regs, &mut base),
            Some(true)
        );
        assert_eq!(base, 0x5678_9abc);
        regs[R9] = 1 << 47;
        assert_eq!(
            executes(b"\xf3\x49\x0f\xae\xd9", &mut regs, &mut base),
            Some(false)
        );
        // rdfsbase rdx
        assert_eq!(
            executes(b"\xf3\x48\x0f\xae\xc2", &mut regs, &mut base),
            None
        );
        assert_eq!(base, 0x5678_9abc);
    }
}
