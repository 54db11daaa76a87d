//! Instructions that the engine executes itself, one at a time: those that mean the base of gs, which in the processor
//! is the engine's, system calls of 32-bit programs, transactions, and the page of calls at the top of the memory.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::state::{R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, State};
use crate::{guest, syscalls};

/// What an instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It has been executed.
    Done,
    /// It faults.
    Faults,
    /// The processor does not know it.
    Unknown,
}

/// Executes the instruction at the thread's address. `None`: it is one that the engine cannot execute.
pub fn executed(state: &mut State) -> Option<Effect> {
    const LONGEST: usize = 15;
    let code = (1..=LONGEST)
        .rev()
        .find_map(|len| guest::bytes(state.pc, len))?;
    let instruction = Decoder::with_ip(64, &code, state.pc, DecoderOptions::NONE).decode();
    if instruction.code() == Code::Int_imm8 && instruction.immediate8() == 0x80 {
        return call_of_32_bits(state, instruction.next_ip());
    }
    match instruction.mnemonic() {
        Mnemonic::Xbegin if is_transactional() => {
            abort(state, &instruction);
            Some(Effect::Done)
        }
        Mnemonic::Xbegin => Some(Effect::Unknown),
        Mnemonic::Rdgsbase | Mnemonic::Wrgsbase => {
            let effect = base(&instruction, &mut state.regs, &mut state.guest_gs);
            if effect == Effect::Done {
                state.pc = instruction.next_ip();
            }
            Some(effect)
        }
        _ => branch(state, &instruction),
    }
}

/// Whether an instruction loads the flags: one that sets no trap flag is executed in the cache.
pub fn loads_flags(code: &[u8]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    matches!(instruction.code(), Code::Popfw | Code::Popfq)
}

/// Reads or sets the base of gs.
fn base(instruction: &Instruction, regs: &mut [u64; 16], base: &mut u64) -> Effect {
    let register = instruction.op0_register();
    let value = &mut regs[register.full_register().number() & 15];
    let half = register.size() == 4;
    match instruction.mnemonic() {
        // The upper half of the register becomes 0.
        Mnemonic::Rdgsbase if half => *value = *base & 0xffff_ffff,
        Mnemonic::Rdgsbase => *value = *base,
        _ if half => *base = *value & 0xffff_ffff,
        _ if !is_canonical(*value) => return Effect::Faults,
        _ => *base = *value,
    }
    Effect::Done
}

/// Whether the upper bits of an address repeat bit 47. Processors with longer addresses accept more.
pub fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

/// A jump or call to an address in memory that gs addresses. `None` for other instructions, and where memory faults.
fn branch(state: &mut State, instruction: &Instruction) -> Option<Effect> {
    let calls = match instruction.flow_control() {
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => false,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => true,
        _ => return None,
    };
    let known = instruction.segment_prefix() == Register::GS
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_size().size() == 8;
    let value = |register: Register, _: usize, _: usize| match register {
        Register::GS => Some(state.guest_gs),
        register if register.is_segment_register() => Some(0),
        register => {
            let value = state.regs[register.full_register().number() & 15];
            Some(if register.size() == 4 {
                value & 0xffff_ffff
            } else {
                value
            })
        }
    };
    let at = known
        .then(|| instruction.virtual_address(0, 0, value))
        .flatten()?;
    let target: u64 = guest::read(at)?;
    if calls {
        let sp = state.regs[RSP].wrapping_sub(8);
        if !guest::write(sp, &instruction.next_ip()) {
            return None;
        }
        state.regs[RSP] = sp;
    }
    state.pc = target;
    Some(Effect::Done)
}

/// Whether the processor knows transactions.
fn is_transactional() -> bool {
    is_x86_feature_detected!("rtm")
}

/// Begins a transaction, which the processor may end at any time, and the engine does at once: its code leaves the
/// cache.
fn abort(state: &mut State, instruction: &Instruction) {
    state.regs[RAX] = 0;
    state.pc = instruction.near_branch_target();
}

/// The call that means the same for programs of 64 bits, if its arguments have the same form: numbers and addresses.
const fn same_call(number: u64) -> Option<i64> {
    Some(match number {
        1 => libc::SYS_exit,
        2 => libc::SYS_fork,
        3 => libc::SYS_read,
        4 => libc::SYS_write,
        5 => libc::SYS_open,
        6 => libc::SYS_close,
        8 => libc::SYS_creat,
        10 => libc::SYS_unlink,
        20 => libc::SYS_getpid,
        29 => libc::SYS_pause,
        37 => libc::SYS_kill,
        41 => libc::SYS_dup,
        60 => libc::SYS_umask,
        63 => libc::SYS_dup2,
        64 => libc::SYS_getppid,
        65 => libc::SYS_getpgrp,
        66 => libc::SYS_setsid,
        91 => libc::SYS_munmap,
        125 => libc::SYS_mprotect,
        158 => libc::SYS_sched_yield,
        199 => libc::SYS_getuid,
        200 => libc::SYS_getgid,
        201 => libc::SYS_geteuid,
        202 => libc::SYS_getegid,
        219 => libc::SYS_madvise,
        224 => libc::SYS_gettid,
        238 => libc::SYS_tkill,
        252 => libc::SYS_exit_group,
        270 => libc::SYS_tgkill,
        _ => return None,
    })
}

/// Registers with which system calls are made, and those that they change, except for the result's.
const CHANGED: [usize; 8] = [RDI, RSI, RDX, R10, R8, R9, RCX, R11];

/// `int 0x80`: a call by its number in 32-bit programs, with the lower halves of rbx, rcx, rdx, rsi, rdi and rbp.
/// `None` for a call with another form, or of which filters must know that it is one of these.
fn call_of_32_bits(state: &mut State, next: u64) -> Option<Effect> {
    if state.filters.is_some() {
        return None;
    }
    let number = same_call(state.regs[RAX] & 0xffff_ffff)?;
    let (at, before) = (state.pc, state.regs);
    let arguments = [RBX, RCX, RDX, RSI, RDI, RBP].map(|from| before[from] & 0xffff_ffff);
    for (to, value) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
        state.regs[to] = value;
    }
    state.regs[RAX] = number as u64;
    state.pc = next;
    syscalls::system_call(state);
    // Both instructions take two bytes, so this is also where a call is made again that a signal comes before.
    if state.pc == at {
        state.regs[RAX] = before[RAX];
    }
    for register in CHANGED {
        state.regs[register] = before[register];
    }
    Some(Effect::Done)
}

/// The page that processors cannot execute either: the kernel makes the calls at its beginning for the program, unless
/// it was configured to have none. Whether the thread has made one.
pub fn vsyscall(state: &mut State) -> bool {
    const PAGE: u64 = 0xffff_ffff_ff60_0000;
    let number = match state.pc.wrapping_sub(PAGE) {
        0 => libc::SYS_gettimeofday,
        0x400 => libc::SYS_time,
        0x800 => libc::SYS_getcpu,
        _ => return false,
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some(next) = guest::read::<u64>(state.regs[RSP]).filter(|_| maps.contains("[vsyscall]"))
    else {
        return false;
    };
    let before = state.regs;
    state.regs[RAX] = number as u64;
    let here = state.pc;
    syscalls::system_call(state);
    if state.pc != here {
        // A signal comes before the call.
        state.pc = here;
        state.regs = before;
        return true;
    }
    state.regs[RCX] = before[RCX];
    state.regs[R11] = before[R11];
    state.regs[RSP] += 8;
    state.pc = next;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executes(code: &[u8], regs: &mut [u64; 16], gs: &mut u64) -> Effect {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        base(&instruction, regs, gs)
    }

    #[test]
    fn the_base_is_read_and_set() {
        let (mut regs, mut base) = ([u64::MAX; 16], 0x1234_5678_9abc);
        // rdgsbase rdx; rdgsbase r9d
        let mut both = |code: &[u8], regs: &mut [u64; 16]| executes(code, regs, &mut base);
        assert_eq!(both(b"\xf3\x48\x0f\xae\xca", &mut regs), Effect::Done);
        assert_eq!(both(b"\xf3\x41\x0f\xae\xc9", &mut regs), Effect::Done);
        assert_eq!((regs[RDX], regs[R9]), (0x1234_5678_9abc, 0x5678_9abc));
        // wrgsbase edx; wrgsbase r9
        assert_eq!(both(b"\xf3\x0f\xae\xda", &mut regs), Effect::Done);
        regs[R9] = 1 << 47;
        assert_eq!(both(b"\xf3\x49\x0f\xae\xd9", &mut regs), Effect::Faults);
        assert_eq!(base, 0x5678_9abc);
    }
}
