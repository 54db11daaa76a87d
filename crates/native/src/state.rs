//! The engine's state of a thread of the program; its address is in gs during the thread's life.
//!
//! The code cache and the assembly of [`crate::crossing`] access the first fields at fixed offsets from gs.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::signals::Process;

/// Extended state that programs use and we save: x87, SSE, AVX, AVX-512.
pub const XSTATE: u64 = 0xe7;
/// Bytes of that state as XSAVE lays it out.
pub const XSTATE_BYTES: usize = 2688;

/// Number of rax, rcx and so on in instructions and in [`State::regs`].
pub const RAX: usize = 0;
/// Register 1.
pub const RCX: usize = 1;
/// Register 2.
pub const RDX: usize = 2;
/// Register 4.
pub const RSP: usize = 4;
/// Register 6.
pub const RSI: usize = 6;
/// Register 7.
pub const RDI: usize = 7;
/// Register 8.
pub const R8: usize = 8;
/// Register 9.
pub const R9: usize = 9;
/// Register 10.
pub const R10: usize = 10;
/// Register 11.
pub const R11: usize = 11;

/// Reasons for leaving the cache: see [`State::exit`].
pub mod exit {
    /// A signal, or an entry that was abandoned: `pc` and the registers are the program's.
    pub const SIGNAL: u64 = 0;
    /// An indirect branch to `pc`, which is not in the table.
    pub const MISS: u64 = 1;
    /// A system call; `pc` is after it.
    pub const SYSCALL: u64 = 2;
    /// `int3`; `pc` is after it.
    pub const BREAKPOINT: u64 = 3;
    /// There is no instruction at `pc`.
    pub const NO_CODE: u64 = 4;
    /// An instruction at `pc` that cannot be translated.
    pub const UNSUPPORTED: u64 = 5;
    /// First number for direct branches that are not linked yet.
    pub const LINK: u64 = 16;
}

/// Storage for XSAVE; its size is a multiple of its alignment.
#[repr(C, align(64))]
pub struct Xstate(pub [u8; XSTATE_BYTES]);

/// A signal pending delivery to the program.
#[derive(Clone, Copy)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// The kernel's `siginfo_t`.
    pub info: [u64; 16],
    /// Trap number and error code of a fault.
    pub trap: [u64; 2],
    /// The address of a page fault.
    pub cr2: u64,
}

/// Why a thread is single-stepped in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepping {
    /// Not single-stepped.
    No,
    /// To the next point where its state is the program's, to deliver a signal.
    ToPoint,
    /// Over an instruction that writes to translated code.
    OverWrite,
}

/// A thread of the program.
#[repr(C)]
pub struct State {
    /// General registers while the thread is outside the cache.
    pub regs: [u64; 16],
    /// Flags, while the thread is outside the cache.
    pub rflags: u64,
    /// The program's address.
    pub pc: u64,
    /// Reason for leaving the cache: one of [`exit`].
    pub exit: u64,
    /// The engine's stack pointer while the thread is in the cache.
    pub engine_rsp: u64,
    /// The program's fs base while the thread is outside the cache.
    pub guest_fs: u64,
    /// The engine's fs base.
    pub engine_fs: u64,
    /// Address in the cache at which to enter.
    pub entry: u64,
    /// Address of this state.
    pub this: u64,
    /// Registers that translated code borrowed.
    pub slots: [u64; 4],
    /// Mask of the occupied entries of [`State::signals`].
    pub pending: u64,
    /// The part of [`XSTATE`] that the processor supports.
    pub xmask: u64,
    unused: [u64; 2],
    /// Extended state while the thread is outside the cache.
    pub xstate: Xstate,
    /// Pending signals: a fault of the program, and a signal from elsewhere.
    pub signals: [Option<Signal>; 2],
    /// Signals that the engine needs unblocked, received while the program blocks them.
    pub held: [Option<Signal>; 2],
    /// Signals the program blocks.
    pub mask: u64,
    /// Whether all signals are blocked temporarily.
    pub all_blocked: bool,
    /// See [`Stepping`].
    pub stepping: Stepping,
    /// The program's alternate signal stack: address, size, flags.
    pub altstack: (u64, u64, i32),
    /// Signal handlers, shared with the other threads of the process.
    pub process: &'static Process,
    /// Generation of the code that the thread may execute, plus one; 0 in the engine.
    pub inside: AtomicU64,
    /// 1 if the block of this state may be reused.
    pub free: AtomicU32,
    /// A child of vfork: its parent frees the block.
    pub vforked: bool,
    /// Bounds of the block: see [`crate::threads`].
    pub block: (u64, u64),
}

macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        $($(#[$doc])* pub const $name: i32 = offset_of!(State, $field) as i32;)*
    };
}

offsets! {
    /// Offset from gs.
    PC = pc;
    /// Offset from gs.
    EXIT = exit;
    /// Offset from gs.
    SLOTS = slots;
}

const _: () = assert!(offset_of!(State, xstate).is_multiple_of(64));

/// Bit of [`State::pending`] for a fault.
pub const FAULT: usize = 0;
/// Bit of [`State::pending`] for a signal from elsewhere.
pub const ASYNCHRONOUS: usize = 1;

/// The calling thread's state.
///
/// # Safety
/// The caller is a thread of the program, started by [`crate::threads`].
pub unsafe fn current() -> &'static mut State {
    let state: *mut State;
    // SAFETY: gs points to the state, whose field `this` is its address.
    unsafe {
        std::arch::asm!("mov {}, gs:[{this}]", out(reg) state, this = const offset_of!(State, this),
            options(nostack, preserves_flags, readonly));
        &mut *state
    }
}
