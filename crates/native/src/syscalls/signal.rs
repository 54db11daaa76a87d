//! Actions and masks of signals.

use super::{error, plain};
use crate::guest;
use crate::signals::action::{Action, SIGNALS};
use crate::signals::{self, FAULTS, blockable, sent};
use crate::state::State;

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
