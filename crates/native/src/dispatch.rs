//! The dispatcher: handles signals, translation and system calls while the program is outside the cache.

use std::sync::atomic::Ordering::{Release, SeqCst};

use crate::cache::{ENGINE, Engine};
use crate::crossing::native_enter;
use crate::fragment::{Branch, Version};
use crate::paths::Path;
use crate::record::{self, room};
use crate::signals::{self, deliver, host_mask};
use crate::singly::Effect;
use crate::state::{FAULT, RSP, Signal, State, exit};
use crate::timestamp::{self, Reading};
use crate::{blocks, ending, guest, invalidate, leaving, singly, sys, syscalls};

/// Entry point of each thread, on the engine's stack with the engine's fs.
///
/// # Safety
/// Called once for each block, in its thread, with signals blocked; and by a child of vfork with the block of its
/// parent, which waits.
pub unsafe extern "C" fn start(state: *mut State) -> ! {
    // SAFETY: as the caller promises.
    unsafe {
        if !(*state).lent {
            blocks::enter_block(state);
            record::attach(&mut *state);
        }
        let first = || (*state).lent || (*state).tid == std::process::id();
        if (*state).process.keeps_defaults() && first() {
            signals::keep_defaults((*state).process);
        }
        run(&mut *state)
    }
}

/// How the program goes on after it has left the cache.
#[derive(Clone, Copy, Default)]
struct Arrival {
    /// By an indirect branch of this kind.
    branch: Option<Branch>,
    /// In code that records each access by itself.
    apart: bool,
    /// By a branch: where the program is follows the last block.
    follows: bool,
}

/// Runs a thread of the program until it ends.
fn run(state: &mut State) -> ! {
    let mut arrival = Arrival::default();
    let bursts = record::in_bursts();
    loop {
        if ending::is_stopped(state) {
            ending::park(state);
        }
        if state.pending != 0 || deliver::held(state) {
            signals::block_all(state);
            deliver::deliver(state);
            // It may go on elsewhere.
            (arrival.apart, arrival.follows) = (false, false);
        }
        leaving::follow(state);
        if state.all_blocked {
            state.all_blocked = false;
            sys::set_signal_mask(host_mask(state.mask));
        }
        if bursts {
            record::choose_version(state);
        }
        let Some(code) = enter_code(state, arrival) else {
            invalidate::flush(state);
            continue;
        };
        room::grant(state);
        // SAFETY: code that was made for the program's address, with the thread's own state.
        unsafe { native_enter(state, code) };
        arrival = handle_exit(state);
    }
}

/// Code for the program's current address; the thread counts as inside the cache from then on.
fn enter_code(state: &mut State, arrival: Arrival) -> Option<u64> {
    let version = match () {
        // Also where a burst has ended since the thread left code that records.
        () if state.counting => Version::Counting,
        () if arrival.apart => Version::Apart,
        () => Version::Usual,
    };
    let mut engine = ENGINE.lock();
    engine.source.changes.stack_pointer = state.regs[RSP];
    let version = match version {
        Version::Usual if notes(state, &mut engine, arrival) => Version::Noting,
        Version::Usual => version,
        _ => {
            state.path = Path::EMPTY;
            version
        }
    };
    let code = engine.code_for(state.pc, arrival.branch, version);
    if code.is_ok() {
        state.inside.store(engine.generation + 1, SeqCst);
    }
    code.ok()
}

/// Notes a block of a hot path that the thread is on, or at whose beginning. False if there is none; a path that ends
/// here has been translated then.
fn notes(state: &mut State, engine: &mut Engine, arrival: Arrival) -> bool {
    let pc = state.pc;
    if !state.path.is_empty() {
        let whole = record::entry(pc).is_none() && !engine.source.is_checked(pc);
        if arrival.follows && whole && state.path.add(pc) {
            return true;
        }
        engine.make_path(&state.path);
        state.path = Path::EMPTY;
    }
    engine.is_hot(pc) && state.path.add(pc)
}

/// Handles the reason for which the program left the cache. Returns how it goes on.
fn handle_exit(state: &mut State) -> Arrival {
    let mut arrival = Arrival::default();
    room::take(state);
    if state.exit >= exit::LINK {
        let mut engine = ENGINE.lock();
        engine.source.changes.stack_pointer = state.regs[RSP];
        let (target, version) = engine.resolve(state.exit);
        drop(engine);
        state.pc = target;
        arrival.apart = version == Version::Apart;
        arrival.follows = true;
    }
    state.inside.store(0, Release);
    match state.exit {
        exit::MISSED_JUMP => (arrival.branch, arrival.follows) = (Some(Branch::Jump), true),
        exit::MISSED_RETURN => (arrival.branch, arrival.follows) = (Some(Branch::Return), true),
        exit::COUNTED => record::counted(state),
        exit::CHANGED => invalidate::changed(state.pc),
        exit::SYSCALL => match syscalls::must_leave(state) {
            Some(why) => leaving::leave(state, why.what, why.room),
            None => syscalls::system_call(state),
        },
        exit::BREAKPOINT => fault(state, libc::SIGTRAP, 0x80, [3, 0], 0),
        exit::NO_CODE => no_code(state),
        exit::UNSUPPORTED => unsupported(state),
        _ => {}
    }
    arrival
}

/// Executes the instruction at the thread's address for it, if the engine can; otherwise the process executes it
/// natively.
fn unsupported(state: &mut State) {
    let read = timestamp::is_guarded().then(|| timestamp::read(state));
    let done = match read {
        Some(Reading::Done) => Some(Effect::Done),
        Some(Reading::Forbidden) => Some(Effect::Faults),
        Some(Reading::Other) | None => singly::executed(state),
    };
    match done {
        Some(Effect::Done) => {}
        Some(Effect::Faults) => fault(state, libc::SIGSEGV, libc::SI_KERNEL, [13, 0], 0),
        Some(Effect::Unknown) => unknown(state),
        None => {
            let code: [u8; 4] = guest::read(state.pc).unwrap_or_default();
            let what = match singly::loads_flags(&code) {
                true => "it sets the trap flag".to_owned(),
                false => format!("instruction {code:02x?} at {:#x}", state.pc),
            };
            leaving::leave(state, &what, None);
        }
    }
}

/// The processor does not know an instruction.
fn unknown(state: &mut State) {
    const OPERAND: i32 = 2;
    fault(state, libc::SIGILL, OPERAND, [6, 0], state.pc);
}

/// Raises a fault for the program, as the processor would.
fn fault(state: &mut State, number: i32, code: i32, trap: [u64; 2], address: u64) {
    signals::block_all(state);
    let mut info = [0; 16];
    info[0] = number as u64;
    info[1] = code as u64;
    info[2] = address;
    state.signals[FAULT] = Some(Signal {
        number,
        info,
        trap,
        cr2: address,
    });
    state.pending |= 1 << FAULT;
}

/// Handles a program counter that is not executable, or has no valid instruction: one that is cut off faults where the
/// executable memory ends.
fn no_code(state: &mut State) {
    const MAPPING: i32 = 1;
    const ACCESS: i32 = 2;
    const FETCH: u64 = 0x14;
    let (at, executable) = {
        let source = &ENGINE.lock().source;
        let at = source.cut_off(state.pc).unwrap_or(state.pc);
        (at, source.regions.find(at).is_some())
    };
    let mapped = guest::read::<u8>(at).is_some();
    if executable && mapped {
        return unknown(state);
    }
    if !singly::is_canonical(at) {
        return fault(state, libc::SIGSEGV, libc::SI_KERNEL, [13, 0], 0);
    }
    if singly::vsyscall(state) {
        return;
    }
    let code = if mapped { ACCESS } else { MAPPING };
    fault(state, libc::SIGSEGV, code, [14, FETCH], at);
}
