//! System calls of the program: most are made unchanged, from assembly that a signal can interrupt.
//!
//! Those that change executable memory, signals, threads or processes, or that would expose the engine instead of the
//! program, are handled in the modules here.
#![allow(unsafe_code)]

mod all_memory;
mod code;
mod descriptors;
mod emulated;
mod exec;
pub mod filter;
mod kill;
pub mod limits;
mod maps;
mod memory;
mod personality;
mod process;
mod signal;
mod view;

use std::ops::Range;

use crate::crossing::{INTERRUPTED, native_call};
pub use all_memory::take_over;
pub use maps::room_below;
pub use memory::images_from;

use crate::state::{R8, R9, R10, RAX, RDI, RDX, RSI, State};
use crate::threads::{self, Created};
use crate::{ending, invalidate, record, signals};

const SYS_RSEQ: i64 = 334;
const SYS_IO_PGETEVENTS: i64 = 333;
const SYS_CLONE3: i64 = 435;

/// A failure as the kernel reports it.
pub const fn error(errno: i32) -> i64 {
    -(errno as i64)
}

/// Why a process must go on natively from a system call on.
pub struct Leaving {
    /// In words.
    pub what: &'static str,
    /// The addresses that the call needs.
    pub room: Option<Range<u64>>,
}

/// Number and arguments of the system call in the state.
fn called(state: &State) -> (i64, [u64; 6]) {
    let registers = [RDI, RSI, RDX, R10, R8, R9];
    let arguments = registers.map(|register| state.regs[register]);
    (state.regs[RAX] as i64, arguments)
}

/// Whether the process must make the system call in the state natively; `pc`, which is after it, goes back to it then.
pub fn must_leave(state: &mut State) -> Option<Leaving> {
    let (number, a) = called(state);
    let room = memory::over_tables(number, a);
    let what = match room {
        Some(_) => "it maps memory where the recorder has its tables",
        None => process::is_of_engine(state, number, a)?,
    };
    state.pc -= 2;
    Some(Leaving { what, room })
}

/// Makes the system call in the state; `pc` is after it.
pub fn system_call(state: &mut State) {
    let (number, a) = called(state);
    if let Some(result) = filter::before(state, number, a) {
        threads::returned(state, result);
        return;
    }
    if matches!(number, libc::SYS_exit | libc::SYS_exit_group) {
        return end(state, number, a[0]);
    }
    record::before_call(state, number, a);
    let answered = descriptors::before(number, a)
        .or_else(|| limits::before(number, a))
        .or_else(|| view::status(number, a))
        .or_else(|| memory_or_code(state, number, a))
        .or_else(|| kill::kill(state, number, a));
    let result = match number {
        _ if answered.is_some() => answered.unwrap_or_default(),
        libc::SYS_getdents64 => descriptors::listed(a, plain(number, a)),
        libc::SYS_rt_sigaction => signal::sigaction(state, a),
        libc::SYS_rt_sigprocmask => signal::sigprocmask(state, a),
        libc::SYS_rt_sigsuspend
        | libc::SYS_ppoll
        | libc::SYS_pselect6
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | SYS_IO_PGETEVENTS => signal::with_mask(state, number, a),
        libc::SYS_rt_sigpending => signal::showing(state, number, a, 0),
        libc::SYS_rt_sigtimedwait => signal::wait(state, a),
        libc::SYS_signalfd | libc::SYS_signalfd4 => signal::signalfd(number, a),
        libc::SYS_rt_sigqueueinfo => signal::send(number, a, 2),
        libc::SYS_rt_tgsigqueueinfo => signal::send(number, a, 3),
        libc::SYS_sigaltstack => signals::frame::sigaltstack(state, a[0], a[1]),
        libc::SYS_rt_sigreturn => {
            signals::block_all(state);
            if !signals::frame::pop(state) {
                signals::deliver::die(state, libc::SIGSEGV);
            }
            // All registers come from the frame.
            return;
        }
        libc::SYS_clone | libc::SYS_fork | libc::SYS_vfork | SYS_CLONE3 => {
            match threads::clone(state, number) {
                Created::Thread(result) => result,
                Created::Copy(result) => {
                    if result == 0 {
                        all_memory::forked();
                    }
                    result
                }
                Created::Sharing(INTERRUPTED) => INTERRUPTED,
                // The process is no one that needs an engine.
                Created::Sharing(result) => return threads::returned(state, result),
            }
        }
        libc::SYS_execve => exec::execve(state, a),
        libc::SYS_execveat => exec::execveat(state, a),
        libc::SYS_arch_prctl => process::arch_prctl(state, a),
        libc::SYS_prctl => process::prctl(state, a),
        libc::SYS_ptrace => process::ptrace(a),
        libc::SYS_seccomp => filter::seccomp(state, a),
        SYS_RSEQ => error(libc::ENOSYS),
        libc::SYS_readlink => view::readlink(state, None, a[0], a[1], a[2]),
        libc::SYS_readlinkat => view::readlink(state, Some(a[0]), a[1], a[2], a[3]),
        _ if signal::has_signalfd() => signal::showing(state, number, a, 0),
        _ => plain(number, a),
    };
    if result == INTERRUPTED {
        // A signal comes first; then the program repeats the system call.
        state.pc -= 2;
        return;
    }
    record::after_call(state, number, result);
    threads::returned(state, result);
}

/// Calls that change the program's memory, or may change its code.
fn memory_or_code(state: &mut State, number: i64, a: [u64; 6]) -> Option<i64> {
    Some(match number {
        libc::SYS_mmap => memory::mmap(state, a),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => memory::mprotect(state, number, a),
        libc::SYS_munmap => memory::munmap(a),
        libc::SYS_mremap => memory::mremap(a),
        libc::SYS_shmat => memory::shmat(state, a),
        libc::SYS_shmdt => memory::shmdt(a),
        libc::SYS_open | libc::SYS_openat => {
            let result = view::open(state, number, a);
            code::opened(result);
            result
        }
        libc::SYS_creat | libc::SYS_openat2 => {
            let result = plain(number, a);
            code::opened(result);
            result
        }
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2 => code::write(number, a),
        libc::SYS_process_vm_writev => code::write_memory(a),
        libc::SYS_madvise => code::madvise(a),
        libc::SYS_mlockall => all_memory::lock_all(a[0]),
        libc::SYS_munlockall => all_memory::unlock_all(a),
        libc::SYS_brk => memory::set_break(a),
        libc::SYS_personality => personality::personality(a),
        libc::SYS_remap_file_pages => code::remap(a),
        _ => return None,
    })
}

/// `exit` and `exit_group`: nothing interrupts them, so signals that have been taken are handled first.
fn end(state: &mut State, number: i64, status: u64) {
    signals::block_all(state);
    if state.pending != 0 {
        state.pc -= 2;
        return;
    }
    if number == libc::SYS_exit {
        // The tracer of a child of vfork is its parent's.
        if !state.lent {
            record::before_call(state, number, [status, 0, 0, 0, 0, 0]);
        }
        threads::end(state, status);
    }
    if invalidate::is_frequent() {
        record::note(emulated::ADVICE);
    }
    record::end_process(state, false);
    ending::exit(state, status);
}

/// Makes a system call unchanged.
fn plain(number: i64, a: [u64; 6]) -> i64 {
    let arguments = [number as u64, a[0], a[1], a[2], a[3], a[4], a[5]];
    loop {
        // SAFETY: the program's own call; what changes mappings or threads does not come here.
        let result = unsafe { native_call(&arguments) };
        // The kernel could not write where the program may.
        if result != error(libc::EFAULT) || !invalidate::release_all() {
            return result;
        }
    }
}
