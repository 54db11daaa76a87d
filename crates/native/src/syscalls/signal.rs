//! Actions and masks of signals, and calls that show which are pending.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::{error, plain};
use crate::signals::action::{Action, SIGNALS};
use crate::signals::{self, FAULTS, OURS, blockable, deliver, host_mask, sent};
use crate::state::State;
use crate::{ending, guest, sys};

/// `rt_sigaction`.
pub fn sigaction(state: &State, a: [u64; 6]) -> i64 {
    let [number, new, old, size, ..] = a;
    let number = number as i32;
    let fixed = number == libc::SIGKILL || number == libc::SIGSTOP;
    if size != 8 || !(1..SIGNALS as i32).contains(&number) || (fixed && new != 0) {
        return error(libc::EINVAL);
    }
    let mut wanted = None;
    if new != 0 {
        wanted = guest::read::<Action>(new);
        if wanted.is_none() {
            return error(libc::EFAULT);
        }
    }
    let before;
    {
        let mut actions = state.process.actions.lock();
        before = actions[number as usize];
        if let Some(wanted) = wanted {
            let result = signals::install_for(state.process, number, &wanted);
            if result < 0 {
                return result;
            }
            actions[number as usize] = Action {
                mask: blockable(wanted.mask),
                ..wanted
            };
        }
    }
    if old != 0 && !guest::write(old, &before) {
        return error(libc::EFAULT);
    }
    0
}

/// `rt_sigprocmask`.
pub fn sigprocmask(state: &mut State, a: [u64; 6]) -> i64 {
    let [how, new, old, size, ..] = a;
    if size != 8 {
        return error(libc::EINVAL);
    }
    let before = state.mask;
    if new != 0 {
        let Some(set) = guest::read::<u64>(new) else {
            return error(libc::EFAULT);
        };
        let mask = match how as i32 {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return error(libc::EINVAL),
        };
        if old != 0 && !guest::write(old, &before) {
            return error(libc::EFAULT);
        }
        state.mask = blockable(mask);
        // The dispatcher sets it in the kernel.
        state.all_blocked = true;
        return 0;
    }
    if old != 0 && !guest::write(old, &before) {
        return error(libc::EFAULT);
    }
    0
}

/// `rt_sigqueueinfo` and `rt_tgsigqueueinfo`, whose argument `at` describes the signal.
pub fn send(number: i64, a: [u64; 6], at: usize) -> i64 {
    let Some(mut info) = guest::read::<[i32; 32]>(a[at]) else {
        return plain(number, a);
    };
    if !FAULTS.contains(&(a[at - 1] as i32)) {
        return plain(number, a);
    }
    info[2] = sent::disguised(info[2]);
    // The kernel rejects bytes that signals with unknown codes do not have.
    info[12..].fill(0);
    let mut changed = a;
    changed[at] = info.as_ptr() as u64;
    plain(number, changed)
}

/// Place of the mask and its size in the arguments of a call that replaces the mask while it waits.
fn mask_of(number: i64, a: [u64; 6]) -> Option<(u64, u64)> {
    Some(match number {
        libc::SYS_rt_sigsuspend => (a[0], a[1]),
        libc::SYS_ppoll => (a[3], a[4]),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => (a[4], a[5]),
        // In a structure.
        _ => guest::read::<[u64; 2]>(a[5])?.into(),
    })
}

/// Calls that replace the mask while they wait: `sigsuspend`, `ppoll` and so on. The mask before is that of the first
/// handler's frame; others that the call lets through are delivered above it.
pub fn with_mask(state: &mut State, number: i64, a: [u64; 6]) -> i64 {
    let (at, size) = mask_of(number, a).unwrap_or_default();
    let Some(mask) = guest::read::<u64>(at).filter(|_| at != 0 && size == 8) else {
        return plain(number, a);
    };
    let before = std::mem::replace(&mut state.mask, blockable(mask));
    state.former_mask = Some(before);
    let host = host_mask(state.mask);
    let place = (&raw const host) as u64;
    let both = [place, size];
    let mut changed = a;
    match number {
        libc::SYS_rt_sigsuspend => changed[0] = place,
        libc::SYS_ppoll => changed[3] = place,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => changed[4] = place,
        _ => changed[5] = both.as_ptr() as u64,
    }
    let result = match deliver::held(state) {
        true => error(libc::EINTR),
        false => plain(number, changed),
    };
    let waits = state.pending != 0 || deliver::held(state);
    if result != error(libc::EINTR) || !waits {
        state.mask = before;
        state.former_mask = None;
    }
    result
}

/// Whether the program reads signals of [`OURS`] from descriptors.
static SIGNALFD: AtomicBool = AtomicBool::new(false);

/// See [`SIGNALFD`].
pub fn has_signalfd() -> bool {
    SIGNALFD.load(Relaxed)
}

/// `signalfd` and `signalfd4`.
pub fn signalfd(number: i64, a: [u64; 6]) -> i64 {
    if guest::read::<u64>(a[1]).is_some_and(|mask| mask & OURS != 0) {
        SIGNALFD.store(true, Relaxed);
    }
    plain(number, a)
}

/// `rt_sigtimedwait`, which takes signals.
pub fn wait(state: &mut State, a: [u64; 6]) -> i64 {
    let set = guest::read::<u64>(a[0]).unwrap_or(0);
    showing(state, libc::SYS_rt_sigtimedwait, a, set)
}

/// Makes a call that may show signals which the program blocks, or `also` waits for, and the kernel does not, because
/// the engine needs them: meanwhile the kernel blocks them, and those that are held are pending there.
pub fn showing(state: &mut State, number: i64, a: [u64; 6], also: u64) -> i64 {
    let blocked = (state.mask | also) & OURS;
    if blocked == 0 {
        return plain(number, a);
    }
    let change = |how: i32| {
        let arguments = [how as u64, (&raw const blocked) as u64, 0, 8, 0, 0];
        // SAFETY: reads the mask.
        unsafe { sys::call(libc::SYS_rt_sigprocmask, arguments) };
    };
    let result = ending::away(state, |state| {
        change(libc::SIG_BLOCK);
        for held in &mut state.held {
            if let Some(signal) = held.filter(|signal| blocked & signals::bit(signal.number) != 0) {
                *held = None;
                signals::send_again(&signal);
            }
        }
        plain(number, a)
    });
    change(libc::SIG_UNBLOCK);
    result
}
