//! The engine's state of a thread of the program; its address is in gs during the thread's life.
//!
//! The code cache and the assembly of [`crate::crossing`] access the first fields at fixed offsets from gs.

use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

use numaloc_follow::calls::Traced;
use numaloc_trace::pending::PendingThread;
use numaloc_trace::thread::layout as fast;

use crate::call::Call;
use crate::ending::group::Group;
use crate::filters::Filter;
use crate::paths::Path;
use crate::signals::action::Process;
use crate::xstate::Xstate;

/// Number of rax, rcx and so on in instructions and in [`State::regs`].
pub const RAX: usize = 0;
/// Register 1.
pub const RCX: usize = 1;
/// Register 2.
pub const RDX: usize = 2;
/// Register 3.
pub const RBX: usize = 3;
/// Register 4.
pub const RSP: usize = 4;
/// Register 5.
pub const RBP: usize = 5;
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
    /// An indirect jump or call to `pc`, which has no landing.
    pub const MISSED_JUMP: u64 = 1;
    /// A return to `pc`, which has no landing.
    pub const MISSED_RETURN: u64 = 6;
    /// A system call; `pc` is after it.
    pub const SYSCALL: u64 = 2;
    /// `int3`; `pc` is after it.
    pub const BREAKPOINT: u64 = 3;
    /// There is no instruction at `pc`.
    pub const NO_CODE: u64 = 4;
    /// An instruction at `pc` that cannot be translated.
    pub const UNSUPPORTED: u64 = 5;
    /// The program is at `pc`, between bursts: code that only counts accesses goes on.
    pub const PAUSED: u64 = 7;
    /// The program is at `pc`, and code that only counts accesses must not go on.
    pub const COUNTED: u64 = 8;
    /// The program is at `pc`, whose code is not what was translated any more.
    pub const CHANGED: u64 = 9;
    /// First number for direct branches that are not linked yet.
    pub const LINK: u64 = 16;
}

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

impl Signal {
    /// No signal.
    pub const NONE: Self = Self {
        number: 0,
        info: [0; 16],
        trap: [0; 2],
        cr2: 0,
    };
}

/// Why a thread is single-stepped in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stepping {
    /// Not single-stepped.
    No,
    /// To the next point where its state is the program's, to deliver a signal.
    ToPoint,
    /// Over an instruction that writes to translated code.
    OverWrite,
}

/// Entry point of each thread, on the engine's stack with the engine's fs.
pub type Start = unsafe extern "C" fn(*mut State) -> !;

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
    /// The program's gs base; the processor's is the address of this state.
    pub guest_gs: u64,
    /// Address in the cache at which to enter.
    pub entry: u64,
    /// Address of this state.
    pub this: u64,
    /// Registers during indirect branches, and one that addresses a far operand.
    pub slots: [u64; 4],
    /// Registers that translated code borrowed.
    pub borrowed: [u64; 16],
    /// Address of the access to record.
    pub address: u64,
    /// The access to record: see [`crate::record::descriptor::Descriptor`].
    pub access: u64,
    /// Address of the instruction that makes it, if the access is [`crate::record::descriptor::Kind::Complex`].
    pub instruction: u64,
    /// Address in the cache at which to continue after recording.
    pub resume: u64,
    /// Control and status of vector instructions while the engine records an access.
    pub mxcsr: u64,
    /// Flags of the program while the engine records an access with most of its state in place.
    pub light_flags: u64,
    /// Address of the [`crate::record::turns::Turns`] of a loop whose turns are not recorded; 0 outside such loops.
    pub turns: u64,
    /// Registers before the first of these turns.
    pub turn_registers: [u64; 16],
    /// Value of the loop's leader at which they must be recorded.
    pub last_turn: u64,
    /// Turns of a loop to be recorded like other code.
    pub first_turns: u64,
    /// Not 0 after `std`: string instructions go to lower addresses. Kept only in recordings in bursts.
    pub down: u64,
    /// The mask register of an access of kind [`crate::record::descriptor::Kind::Masked`].
    pub selected: u64,
    /// By general register: the number of the last fetch that its value comes from, 0 for none. Kept only for access
    /// traces.
    pub fetches: [u64; 16],
    /// A register that translated code borrows meanwhile.
    pub scratch: u64,
    /// Accesses counted by translated code, and their bytes: see [`crate::record::room`].
    pub room: i64,
    /// Accesses for which there was room when the thread entered the cache.
    pub granted: u64,
    /// Bytes that the thread had stored then.
    pub written: u64,
    /// Mask of the occupied entries of [`State::signals`].
    pub pending: u64,
    /// The parts of it that are saved: [`crate::xstate::Layout::mask`].
    pub xmask: u64,
    /// Extended state while the thread is outside the cache.
    pub xstate: Xstate,
    /// The lower parts of the vector registers while the engine records an access.
    pub vectors: [[u64; 2]; 16],
    /// Pending signals: a fault of the program, and a signal from elsewhere.
    pub signals: [Option<Signal>; 2],
    /// Signals that the engine needs unblocked, received while the program blocks them.
    pub held: [Option<Signal>; 2],
    /// Signals the program blocks.
    pub mask: u64,
    /// The mask before a system call that replaced it, until a signal that the call let through is delivered.
    pub former_mask: Option<u64>,
    /// Whether all signals are blocked temporarily.
    pub all_blocked: bool,
    /// See [`Stepping`].
    pub stepping: Stepping,
    /// The program's alternate signal stack: address, size, flags.
    pub altstack: (u64, u64, i32),
    /// Signal handlers, shared with the other threads of the process.
    pub process: &'static Process,
    /// What runs the thread and those that it creates.
    pub start: Start,
    /// Generation of the code that the thread may execute, plus one; 0 in the engine.
    pub inside: AtomicU64,
    /// 1 if the block of this state may be reused.
    pub free: AtomicU32,
    /// The thread may not read the time-stamp counter.
    pub no_timestamp: bool,
    /// Single-stepped over an instruction that stores the flags.
    pub flags_stored: bool,
    /// Address in the cache of the repeated instruction that is executed elsewhere.
    pub repeated: u64,
    /// The thread's process.
    pub group: &'static Group,
    /// A child of vfork runs on this state, in place of its parent, which waits.
    pub lent: bool,
    /// What its creator knows of the first thread of a process that shares the address space.
    pub pending_thread: Option<Box<PendingThread>>,
    /// Bounds of the block: see [`crate::threads`].
    pub block: (u64, u64),
    /// The kernel's id of the thread, once it runs.
    pub tid: u32,
    /// The entry point of a parallel region whose function the thread has not reached yet.
    pub region: Option<&'static str>,
    /// The newest of the filters of its system calls.
    pub filters: Option<&'static Filter>,
    /// The call of an allocator that the thread is in.
    pub call: Call,
    /// Whether accesses are recorded: [`State::seat`] is initialised.
    pub recording: bool,
    /// Whether it executes code that only counts accesses, between bursts.
    pub counting: bool,
    /// Times that it has left such code to show what is hot.
    pub looks: u32,
    /// The blocks of a hot path that the thread is on, if it notes one.
    pub path: Path,
    /// 1 if the thread waits for the process's end.
    pub parked: AtomicU32,
    /// 1 if the thread waits until the process may run natively.
    pub at_gate: AtomicU32,
    /// The thread's tracer.
    pub seat: Seat,
}

/// Storage for a tracer; zero while there is none, so that inline code records nothing.
#[repr(C, align(64))]
pub struct Seat(pub MaybeUninit<Traced>);

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
    GUEST_GS = guest_gs;
    /// Offset from gs.
    SLOTS = slots;
    /// Offset from gs.
    BORROWED = borrowed;
    /// Offset from gs.
    ADDRESS = address;
    /// Offset from gs.
    ACCESS = access;
    /// Offset from gs.
    INSTRUCTION = instruction;
    /// Offset from gs.
    RESUME = resume;
    /// Offset from gs.
    TURNS = turns;
    /// Offset from gs.
    TURN_REGISTERS = turn_registers;
    /// Offset from gs.
    LAST_TURN = last_turn;
    /// Offset from gs.
    FIRST_TURNS = first_turns;
    /// Offset from gs.
    DOWN = down;
    /// Offset from gs.
    SELECTED = selected;
    /// Offset from gs.
    FETCHES = fetches;
    /// Offset from gs.
    SCRATCH = scratch;
    /// Offset from gs.
    ROOM = room;
    /// Offset from gs.
    SEAT = seat;
}

/// Offset from gs: accesses remaining in the thread's quantum.
pub const REMAINING: i32 = SEAT + fast::REMAINING;
/// Offset from gs: the number of remaining accesses above which accesses may be counted by inline code.
pub const THRESHOLD: i32 = SEAT + fast::THRESHOLD;
/// Offset from gs: the word of a line that the thread has just written.
pub const OWNED: i32 = SEAT + fast::OWNED;
/// Offset from gs: the bits in which a line's word must equal [`OWNED`] for a read.
pub const READ_MASK: i32 = SEAT + fast::READ_MASK;
/// Offset from gs: the bits in which a line's word equals [`OWNED`] if the thread has read the line.
pub const READ_BITS: i32 = SEAT + fast::READ_BITS;
/// Offset from gs: a byte for each mark of lines, not 0 if an event is undecided on a line that has it.
pub const UNDECIDED: i32 = SEAT + fast::MARKS;
/// Offset from gs: the thread's page counters, a word for each page of the window.
pub const COUNTERS: i32 = size_of::<State>().next_multiple_of(4096) as i32;
/// Offset from gs: 0 between bursts, when accesses are only counted down.
pub const SAMPLE_THRESHOLD: i32 = SEAT + fast::SAMPLE_THRESHOLD;
/// Offset from gs: virtual time at the end of the thread's quantum.
pub const QUANTUM_END: i32 = SEAT + fast::QUANTUM_END;
/// Offset from gs: bytes loaded.
pub const READ_BYTES: i32 = SEAT + fast::READ_BYTES;
/// Offset from gs: bytes stored.
pub const WRITE_BYTES: i32 = SEAT + fast::WRITE_BYTES;

const _: () = assert!(offset_of!(State, xstate).is_multiple_of(64));
const _: () = assert!(offset_of!(State, vectors).is_multiple_of(16));

/// Bit of [`State::pending`] for a fault.
pub const FAULT: usize = 0;
/// Bit of [`State::pending`] for a signal from elsewhere.
pub const ASYNCHRONOUS: usize = 1;
/// Bit of [`State::pending`] for the process's end.
pub const ENDING: usize = 2;
/// Bit of [`State::pending`] for a process that runs natively from now on.
pub const LEAVING: usize = 3;

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
