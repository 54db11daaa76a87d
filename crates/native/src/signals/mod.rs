//! Signals of the program.
//!
//! The kernel delivers to [`host`], which stores one signal in the thread's state, blocks the others and makes the
//! thread reach the dispatcher with a known state; [`deliver`] then builds the frame for the program's handler
//! ([`frame`]) and continues there, in translated code. Signals that the program blocks are blocked in the kernel, so
//! that `sigwait`, `signalfd` and pending sets work unchanged; except for those that the engine itself needs, SIGSEGV
//! and SIGTRAP.

pub mod action;
pub mod deliver;
pub mod frame;
pub mod host;
mod repeated;
pub mod sent;

use action::{Action, Process, SIGNALS};

use crate::state::{Signal, State};
use crate::sys;

/// The bit of a signal in a mask.
pub const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// Signals whose handler is always ours: SIGSEGV reports writes to translated code, SIGTRAP single steps.
pub const OURS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGTRAP);
/// Signals that instructions raise.
pub const FAULTS: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];
/// Signals that cannot be blocked.
const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// The mask that blocks all signals except faults.
pub const fn blocking() -> u64 {
    let mut mask = !0;
    let mut n = 0;
    while n < FAULTS.len() {
        mask &= !bit(FAULTS[n]);
        n += 1;
    }
    mask
}

/// Blocks all signals except faults until the dispatcher sets the program's mask again.
pub fn block_all(state: &mut State) {
    state.all_blocked = true;
    sys::set_signal_mask(blocking());
}

/// The kernel's mask for a mask of the program.
pub const fn host_mask(mask: u64) -> u64 {
    mask & !OURS
}

/// The part of a mask that the program may block.
pub const fn blockable(mask: u64) -> u64 {
    mask & !UNBLOCKABLE
}

/// Gets or sets the kernel's action; a failure is a negated `errno`.
pub fn host_action(number: i32, new: Option<&Action>, old: Option<&mut Action>) -> i64 {
    let new = new.map_or(0, |new| &raw const *new as u64);
    let old = old.map_or(0, |old| &raw mut *old as u64);
    // SAFETY: the structures live; handlers are `host::on_signal` or the kernel's own.
    unsafe { sys::call(libc::SYS_rt_sigaction, [number as u64, new, old, 8, 0, 0]) }
}

/// Installs the kernel's action for an action of the program.
pub fn install(number: i32, action: &Action) -> i64 {
    let ours = OURS & bit(number) != 0;
    let plain = action.handler == libc::SIG_DFL as u64 || action.handler == libc::SIG_IGN as u64;
    if plain && !ours {
        return host_action(number, Some(action), None);
    }
    handle(number, action)
}

/// The same for a process of which others may share the memory.
pub fn install_for(process: &Process, number: i32, action: &Action) -> i64 {
    let default = action.handler == libc::SIG_DFL as u64;
    match default && process.keeps_defaults() && effect(number) == Effect::Kills {
        true => handle(number, action),
        false => install(number, action),
    }
}

/// The calling process, of which others share the memory, has its actions in the kernel.
pub fn keep_defaults(process: &Process) {
    let actions = *process.actions.lock();
    for number in 1..SIGNALS as i32 {
        let fixed = UNBLOCKABLE & bit(number) != 0;
        if !fixed && actions[number as usize].handler == libc::SIG_DFL as u64 {
            install_for(process, number, &actions[number as usize]);
        }
    }
}

/// Sends the calling thread a signal that it has received.
pub fn send_again(signal: &Signal) {
    let mut info = signal.info;
    let code = sent::disguised(info[1] as u32 as i32);
    info[1] = info[1] >> 32 << 32 | u64::from(code as u32);
    send_as(signal, info);
}

fn send_as(signal: &Signal, info: [u64; 16]) {
    // SAFETY: these calls have no preconditions, and the information lives.
    unsafe {
        let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
        let tid = sys::call(libc::SYS_gettid, [0; 6]) as u64;
        let (number, info) = (signal.number as u64, info.as_ptr() as u64);
        sys::call(libc::SYS_rt_tgsigqueueinfo, [pid, tid, number, info, 0, 0]);
    }
}

/// Sends the calling thread a signal that it has received, as it was: no handler of ours will see it.
pub fn send_again_natively(signal: &Signal) {
    send_as(signal, signal.info);
}

/// What a signal does by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Kills the process.
    Kills,
    /// Stops it.
    Stops,
    /// Nothing, or continues it.
    Nothing,
}

/// What a signal does by default.
pub const fn effect(number: i32) -> Effect {
    match number {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT => Effect::Nothing,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Effect::Stops,
        _ => Effect::Kills,
    }
}

/// Has the kernel call our handler.
fn handle(number: i32, action: &Action) -> i64 {
    let kept = libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT;
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | 0x0400_0000;
    let host = Action {
        handler: host::on_signal as *const () as u64,
        flags: (action.flags & kept as u64) | flags as u64,
        restorer: crate::crossing::places().restorer,
        mask: blocking(),
    };
    host_action(number, Some(&host), None)
}

/// Has system calls made again that the signal with which the engine stops threads interrupts.
pub fn restart_when_stopped() {
    let action = Action {
        flags: libc::SA_RESTART as u64,
        ..Action::default()
    };
    handle(libc::SIGTRAP, &action);
}

/// Gives the kernel the program's actions: it runs natively from now on.
pub fn for_native(process: &Process) {
    let actions = *process.actions.lock();
    // The kernel drops what is pending of an ignored signal: the last with which the engine has stopped threads.
    let ignored = Action {
        handler: libc::SIG_IGN as u64,
        ..Action::default()
    };
    host_action(libc::SIGTRAP, Some(&ignored), None);
    for number in 1..SIGNALS as i32 {
        if UNBLOCKABLE & bit(number) == 0 {
            host_action(number, Some(&actions[number as usize]), None);
        }
    }
}

/// Returns the actions the process was started with, and installs our own handlers.
pub fn begin() -> &'static Process {
    let mut actions = [Action::default(); SIGNALS];
    for number in 1..SIGNALS as i32 {
        host_action(number, None, Some(&mut actions[number as usize]));
        if OURS & bit(number) != 0 {
            install(number, &actions[number as usize]);
        }
    }
    Process::new(actions)
}
