//! Requests that would interfere with the engine.

use std::os::unix::fs::MetadataExt;

use super::{all_memory, error, filter, plain};
use crate::signals::frame;
use crate::state::State;
use crate::{guest, invalidate, sys, timestamp};

/// `arch_prctl`: the bases of fs and gs are the program's outside the engine.
pub fn arch_prctl(state: &mut State, a: [u64; 6]) -> i64 {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    match a[0] {
        SET_FS | SET_GS if a[1] >> 47 != 0 => error(libc::EPERM),
        SET_FS => {
            state.guest_fs = a[1];
            0
        }
        GET_FS if guest::write(a[1], &state.guest_fs) => 0,
        SET_GS => {
            state.guest_gs = a[1];
            0
        }
        GET_GS if guest::write(a[1], &state.guest_gs) => 0,
        GET_FS | GET_GS => error(libc::EFAULT),
        // Shadow stacks, 0x5000 and above: return addresses in the cache are not on them.
        0x5000.. => error(libc::EINVAL),
        _ => plain(libc::SYS_arch_prctl, a),
    }
}

/// `prctl`.
pub fn prctl(state: &mut State, a: [u64; 6]) -> i64 {
    if let Some(result) = all_memory::prctl(a) {
        return result;
    }
    let tsc = |forbidden| match forbidden {
        true => libc::PR_TSC_SIGSEGV,
        false => libc::PR_TSC_ENABLE,
    };
    match a[0] as i32 {
        libc::PR_SET_SECCOMP => filter::set(state, a),
        libc::PR_GET_SECCOMP => filter::mode(state),
        libc::PR_GET_TSC => match guest::write(a[1], &tsc(state.no_timestamp)) {
            true => 0,
            false => error(libc::EFAULT),
        },
        libc::PR_SET_TSC => {
            let Some(forbidden) = [false, true].into_iter().find(|&f| tsc(f) as u64 == a[1]) else {
                return error(libc::EINVAL);
            };
            state.no_timestamp = forbidden;
            if forbidden && timestamp::guard() {
                invalidate::drop_all(state);
            }
            0
        }
        _ => plain(libc::SYS_prctl, a),
    }
}

/// Why a process goes on natively from a request on: what it asks the kernel for would apply to the engine's system
/// calls, or show the engine's registers.
pub fn is_of_engine(state: &State, number: i64, a: [u64; 6]) -> Option<&'static str> {
    const SET_DISPATCH: u64 = 59;
    match number {
        libc::SYS_ptrace if a[0] == libc::PTRACE_TRACEME as u64 => Some("it is traced"),
        libc::SYS_prctl if a[0] == SET_DISPATCH && a[1] != 0 => {
            Some("it handles its own system calls")
        }
        libc::SYS_seccomp if filter::asks_for_listener(a) => {
            Some("its system calls are answered by a listener")
        }
        libc::SYS_rt_sigreturn if frame::sets_trap_flag(state) => Some("it sets the trap flag"),
        _ => None,
    }
}

/// `ptrace` of another process; one that is recorded is not traced: a debugger would see the registers of translated
/// code.
pub fn ptrace(a: [u64; 6]) -> i64 {
    let begins = [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE].map(|request| request as u64);
    let program = |process: &str| {
        let found = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    if begins.contains(&a[0])
        && program(&(a[1] as u32).to_string()).is_some_and(|one| Some(one) == program("self"))
    {
        sys::complain("ptrace is refused: a debugger would see translated code");
        return error(libc::EPERM);
    }
    plain(libc::SYS_ptrace, a)
}
