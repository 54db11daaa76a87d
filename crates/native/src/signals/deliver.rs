//! Delivers signals to the program while it is outside the cache.

use super::action::Action;
use super::{Effect, bit, frame, host_action};
use crate::state::{ASYNCHRONOUS, FAULT, Signal, State};
use crate::{record, sys};

/// Delivers pending signals; frames of later ones are pushed above those of earlier ones. All signals are blocked
/// meanwhile.
pub fn deliver(state: &mut State) {
    loop {
        if state.signals[ASYNCHRONOUS].is_none() {
            let mask = state.mask;
            let ready = |held: &&mut Option<Signal>| {
                held.as_ref()
                    .is_some_and(|signal| mask & bit(signal.number) == 0)
            };
            // In the kernel's order.
            let number = |held: &&mut Option<Signal>| held.as_ref().map(|signal| signal.number);
            if let Some(held) = state.held.iter_mut().filter(ready).min_by_key(number) {
                state.signals[ASYNCHRONOUS] = held.take();
            }
        }
        if let Some(fault) = state.signals[FAULT].take() {
            one(state, &fault, true);
        } else if let Some(signal) = state.signals[ASYNCHRONOUS].take() {
            one(state, &signal, false);
        } else {
            state.pending = 0;
            // What interrupted the call was ignored.
            state.mask = state.former_mask.take().unwrap_or(state.mask);
            return;
        }
    }
}

/// Whether a held signal can be delivered now.
pub fn held(state: &State) -> bool {
    let held = state.held.iter().flatten();
    held.into_iter()
        .any(|signal| state.mask & bit(signal.number) == 0)
}

fn one(state: &mut State, signal: &Signal, fault: bool) {
    let number = signal.number;
    let action = {
        let mut actions = state.process.actions.lock();
        let action = actions[number as usize];
        let plain = action.handler <= libc::SIG_IGN as u64;
        if action.flags & libc::SA_RESETHAND as u64 != 0 && !plain {
            // Flags and mask are kept.
            actions[number as usize].handler = libc::SIG_DFL as u64;
            super::install_for(state.process, number, &actions[number as usize]);
        }
        action
    };
    let ignored = action.handler == libc::SIG_IGN as u64;
    if fault && (ignored || state.mask & bit(number) != 0) {
        die(state, number);
    }
    if ignored {
        return;
    }
    if action.handler == libc::SIG_DFL as u64 {
        match super::effect(number) {
            Effect::Nothing => {}
            Effect::Stops => send(libc::SIGSTOP),
            Effect::Kills => die(state, number),
        }
        return;
    }
    let mask = state.former_mask.unwrap_or(state.mask);
    if frame::push(state, signal, &action, mask) {
        state.former_mask = None;
    } else if number == libc::SIGSEGV {
        die(state, number);
    } else {
        // There is no room on the stack, which is a fault of the program.
        let mut info = [0; 16];
        (info[0], info[1]) = (libc::SIGSEGV as u64, libc::SI_KERNEL as u64);
        state.signals[FAULT] = Some(Signal {
            number: libc::SIGSEGV,
            info,
            trap: signal.trap,
            cr2: signal.cr2,
        });
    }
}

/// Kills the process with a signal, as the kernel would.
pub fn die(state: &mut State, number: i32) -> ! {
    state.pending = 0;
    record::end_process(state, true);
    host_action(number, Some(&Action::default()), None);
    send(number);
    sys::set_signal_mask(!bit(number));
    sys::give_up(&format!("signal {number} did not end the process"));
}

/// Sends the calling thread a signal.
fn send(number: i32) {
    // SAFETY: these calls have no preconditions.
    unsafe {
        let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
        let tid = sys::call(libc::SYS_gettid, [0; 6]) as u64;
        sys::call(libc::SYS_tgkill, [pid, tid, number as u64, 0, 0, 0]);
    }
}
