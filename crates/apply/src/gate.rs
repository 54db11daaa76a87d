//! A breakpoint that a program which blocks or ignores SIGTRAP does not notice.
//!
//! The kernel sends the signal of a breakpoint by force: if it is blocked or ignored, it unblocks it and resets its
//! handler for good (`force_sig_info_to_task`), before a tracer sees anything. Servers block all signals in their
//! threads. So the instruction is not replaced by a breakpoint but by a jump to a *gate*: it asks for the handler of
//! SIGTRAP, unblocks SIGTRAP for this thread, has the breakpoint, and sets the thread's mask again. An ignored SIGTRAP
//! is ignored again by the tracer, which makes its calls without signals ([`crate::tracee::Stopped::call`]).
//!
//! A program that filters its own system calls may not permit these calls: before it installs a filter, gates are
//! replaced by plain breakpoints.

use std::io;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use crate::ptrace;
use crate::tracee::{INT3, Memory, Stopped};

/// Bit of SIGTRAP in a mask of signals.
pub const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
/// Size of the kernel's `struct sigaction`.
const ACTION_BYTES: usize = 32;
/// Where the action that the gate asked for is, relative to the stack pointer at the breakpoint.
const ACTION: u64 = 16;
/// Where the mask is that the thread had.
pub const OLD_MASK: u64 = 8;
/// What a gate has on the stack at its breakpoint, the red zone included.
pub const FRAME: u64 = 48 + 4 * 8 + 128;
/// Bytes of a gate.
pub const BYTES: usize = 192;

/// The code of a gate.
pub struct Gate {
    pub bytes: Vec<u8>,
    /// Address of the breakpoint, two bytes long as `syscall`.
    pub trap: u64,
}

/// A gate at `start` in place of the system call `number`, which continues at `back`. It executes the instructions
/// `between` the load of the number and the call, and apart from them changes no flag and no register but those that a
/// system call changes, and leaves the red zone alone. `None` if they cannot be moved.
pub fn gate(start: u64, number: u32, between: &[u8], back: u64) -> Option<Gate> {
    let mut code: Vec<u8> = Vec::with_capacity(BYTES);
    if !between.is_empty() {
        can_be_moved(between).then_some(())?;
        code.extend(load(0xb8, number));
        code.extend(between);
    }
    code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    code.extend([0x57, 0x56, 0x52, 0x41, 0x52]); // push rdi, rsi, rdx, r10
    code.extend([0x48, 0x8d, 0x64, 0x24, 0xd0]); // lea rsp, [rsp - 48]: set or result, old mask, action
    code.extend(load(0xb8, libc::SYS_rt_sigaction as u32)); // eax
    code.extend(load(0xbf, libc::SIGTRAP as u32)); // edi
    code.extend(load(0xbe, 0)); // esi
    code.extend([0x48, 0x8d, 0x54, 0x24, ACTION as u8]); // lea rdx, [rsp + 16]
    code.push(0x41);
    code.extend(load(0xba, 8)); // r10d: bytes of a mask
    code.extend([0x0f, 0x05]);
    code.extend([0x48, 0xc7, 0x04, 0x24]); // mov qword [rsp], SIGTRAP
    code.extend((TRAP_BIT as u32).to_le_bytes());
    code.extend(load(0xb8, libc::SYS_rt_sigprocmask as u32));
    code.extend(load(0xbf, libc::SIG_UNBLOCK as u32));
    code.extend([0x48, 0x89, 0xe6]); // mov rsi, rsp
    code.extend([0x48, 0x8d, 0x54, 0x24, 0x08]); // lea rdx, [rsp + 8]
    code.extend([0x0f, 0x05]);
    code.extend([0x4c, 0x8b, 0x54, 0x24, 48]); // mov r10, [rsp + 48]
    code.extend([0x48, 0x8b, 0x54, 0x24, 56]); // mov rdx, [rsp + 56]
    code.extend([0x48, 0x8b, 0x74, 0x24, 64]); // mov rsi, [rsp + 64]
    code.extend([0x48, 0x8b, 0x7c, 0x24, 72]); // mov rdi, [rsp + 72]
    code.extend(load(0xb8, number));
    let trap = start + code.len() as u64;
    code.extend([INT3, 0x90]);
    code.extend([0x48, 0x89, 0x04, 0x24]); // mov [rsp], rax
    code.extend(load(0xb8, libc::SYS_rt_sigprocmask as u32));
    code.extend(load(0xbf, libc::SIG_SETMASK as u32));
    code.extend([0x48, 0x8d, 0x74, 0x24, 0x08]); // lea rsi, [rsp + 8]
    code.extend(load(0xba, 0));
    code.push(0x41);
    code.extend(load(0xba, 8));
    code.extend([0x0f, 0x05]);
    code.extend([0x48, 0x8b, 0x04, 0x24]); // mov rax, [rsp]
    code.extend([0x48, 0x8d, 0x64, 0x24, 0x30]); // lea rsp, [rsp + 48]
    code.extend([0x41, 0x5a, 0x5a, 0x5e, 0x5f]); // pop r10, rdx, rsi, rdi
    code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    code.push(0xe9);
    let end = start + code.len() as u64 + 4;
    code.extend(distance(end, back)?.to_le_bytes());
    Some(Gate { bytes: code, trap })
}

/// Whether instructions do the same at another address.
fn can_be_moved(instructions: &[u8]) -> bool {
    Decoder::with_ip(64, instructions, 0, DecoderOptions::NONE)
        .into_iter()
        .all(|instruction| {
            !instruction.is_invalid()
                && instruction.flow_control() == FlowControl::Next
                && !instruction.is_ip_rel_memory_operand()
        })
}

/// `mov register, value` by its opcode.
fn load(opcode: u8, value: u32) -> [u8; 5] {
    let [a, b, c, d] = value.to_le_bytes();
    [opcode, a, b, c, d]
}

/// How a thread treats SIGTRAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traps {
    pub is_blocked: bool,
    pub is_ignored: bool,
}

impl Traps {
    /// From the text of `/proc/TID/status`.
    pub fn of(status: &str) -> Self {
        let has = |name: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(name));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & TRAP_BIT != 0)
        };
        Self {
            is_blocked: has("SigBlk:"),
            is_ignored: has("SigIgn:"),
        }
    }

    /// Whether a breakpoint changes neither mask nor handler.
    pub fn are_harmless(self) -> bool {
        self == Self::default()
    }

    /// What the gate asked for before its breakpoint, at which `stopped` is.
    pub fn at_gate(stopped: &mut Stopped, memory: &Memory) -> io::Result<Self> {
        let mut handler = [0; 8];
        memory.read(stopped.regs().rsp + ACTION, &mut handler)?;
        Ok(Self {
            // The gate itself restores the mask.
            is_blocked: false,
            is_ignored: u64::from_le_bytes(handler) == libc::SIG_IGN as u64,
        })
    }

    /// Undoes what the kernel has changed for a breakpoint.
    pub fn restore(self, stopped: &mut Stopped, memory: &Memory, gadget: u64) -> io::Result<()> {
        if self.is_ignored {
            let mut action = [0; ACTION_BYTES];
            action[..8].copy_from_slice(&(libc::SIG_IGN as u64).to_le_bytes());
            // Below the red zone, where only signal handlers write.
            let at = (stopped.regs().rsp - 256 - ACTION_BYTES as u64) & !15;
            memory.write(at, &action)?;
            let arguments = [libc::SIGTRAP as u64, at, 0, 8, 0, 0];
            stopped.call(gadget, libc::SYS_rt_sigaction, arguments)?;
        }
        if self.is_blocked {
            let mask = ptrace::signal_mask(stopped.tid())?;
            ptrace::set_signal_mask(stopped.tid(), mask | TRAP_BIT)?;
        }
        Ok(())
    }
}

/// The displacement from `from` to `to` if it fits in 32 bits.
pub(crate) fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

#[cfg(test)]
mod tests {
    use iced_x86::Code;

    use super::*;

    #[test]
    fn a_gate_is_valid_code_that_leaves_the_stack_as_it_was() {
        let start = 0x10000;
        // cmp %r8, %rsi; cmovbe %r8, %rsi
        let between = [0x4c, 0x39, 0xc6, 0x49, 0x0f, 0x46, 0xf0];
        let found = gate(start, libc::SYS_mmap as u32, &between, start + 0x5000).unwrap();
        assert!(found.bytes.len() <= BYTES, "{}", found.bytes.len());
        let decoder = Decoder::with_ip(64, &found.bytes, start, DecoderOptions::NONE);
        let all: Vec<_> = decoder.into_iter().collect();
        assert!(all.iter().all(|instruction| !instruction.is_invalid()));
        let moved: i64 = all
            .iter()
            .map(|instruction| match instruction.code() {
                Code::Lea_r64_m if instruction.op0_register() == iced_x86::Register::RSP => {
                    instruction.memory_displacement64() as i64
                }
                _ => i64::from(instruction.stack_pointer_increment()),
            })
            .sum();
        assert_eq!(moved, 0);
        let traps: Vec<_> = all.iter().filter(|i| i.code() == Code::Int3).collect();
        assert_eq!((traps.len(), traps[0].ip()), (1, found.trap));
        assert_eq!(all.iter().filter(|i| i.code() == Code::Syscall).count(), 3);
        assert_eq!(all.last().unwrap().near_branch_target(), start + 0x5000);
        assert!(gate(start, 9, &[], 1 << 40).is_none());
        // A jump, and a load relative to the instruction.
        assert!(gate(start, 9, &[0xeb, 0x00], start).is_none());
        assert!(gate(start, 9, &[0x8b, 0x05, 0, 0, 0, 0], start).is_none());
    }

    #[test]
    fn the_status_file_says_how_a_thread_treats_the_signal() {
        let traps =
            |blocked, ignored| Traps::of(&format!("SigBlk:\t{blocked}\nSigIgn:\t{ignored}\n"));
        assert!(traps("0000000000000001", "0000000000001000").are_harmless());
        assert!(traps("fffffffe7ffbfeff", "0").is_blocked);
        assert!(traps("0", "0000000000000010").is_ignored);
        assert!(Traps::of("").are_harmless());
    }
}
