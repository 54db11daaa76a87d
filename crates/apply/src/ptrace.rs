//! The system calls with which a tracer follows a program, each wrapped once with typed arguments. With `launch.rs` the
//! only module with `unsafe`.
#![allow(unsafe_code)]

use libc::{c_int, c_long, c_void, pid_t};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Registers of a stopped tracee.
pub type Regs = libc::user_regs_struct;

/// How to resume a stopped tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the next event or signal.
    Cont,
    /// Until the next system call's entry or exit.
    Syscall,
    /// Stay in a group stop, but report what ends it.
    Listen,
}

/// What `waitpid` reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Ended with this status.
    Exited(c_int),
    /// Killed by this signal.
    Killed(c_int),
    /// About to receive this signal.
    Signal(c_int),
    /// At the entry or exit of a system call.
    Syscall,
    /// A ptrace event (`PTRACE_EVENT_*`) with the signal of the stop.
    Event(c_int, c_int),
}

/// Requests that the `libc` crate does not name (`linux/ptrace.h`).
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;

fn check(result: c_long) -> io::Result<c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn ptrace(request: u32, tid: pid_t, addr: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: callers pass `data` as a number or as the address of a live object of the size that the
    // request writes or reads (registers, siginfo, event message); `addr` is a number.
    check(unsafe { libc::ptrace(request, tid, addr as *mut c_void, data as *mut c_void) })
}

/// Becomes the tracer of `pid` without stopping it. `PTRACE_O_EXITKILL` is always set: a tracee with
/// breakpoints must not outlive its tracer.
pub fn seize(pid: pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEVFORKDONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SEIZE, pid, 0, options as usize).map(drop)
}

/// Resumes a stopped tracee, with `signal` delivered if not 0.
pub fn resume(tid: pid_t, how: Resume, signal: c_int) -> io::Result<()> {
    let request = match how {
        Resume::Cont => libc::PTRACE_CONT,
        Resume::Syscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    ptrace(request, tid, 0, signal as usize).map(drop)
}

/// Asks a running tracee to stop.
pub fn interrupt(tid: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Detaches from a stopped tracee and resumes it, with `signal` delivered if not 0.
pub fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// Registers of a stopped tracee.
pub fn registers(tid: pid_t) -> io::Result<Regs> {
    // SAFETY: all-zero bytes are a valid value of this plain C struct.
    let mut regs: Regs = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, (&raw mut regs) as usize)?;
    Ok(regs)
}

/// Sets the registers of a stopped tracee.
pub fn set_registers(tid: pid_t, regs: &Regs) -> io::Result<()> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, (&raw const *regs) as usize).map(drop)
}

/// The signals that a stopped thread blocks.
pub fn signal_mask(tid: pid_t) -> io::Result<u64> {
    let mut mask = 0_u64;
    ptrace(
        PTRACE_GETSIGMASK,
        tid,
        size_of::<u64>(),
        &raw mut mask as usize,
    )?;
    Ok(mask)
}

/// Sets the signals that a stopped thread blocks.
pub fn set_signal_mask(tid: pid_t, mask: u64) -> io::Result<()> {
    ptrace(
        PTRACE_SETSIGMASK,
        tid,
        size_of::<u64>(),
        &raw const mask as usize,
    )?;
    Ok(())
}

/// The number attached to the last ptrace event, such as the new thread's id.
pub fn event_message(tid: pid_t) -> io::Result<pid_t> {
    let mut message: libc::c_ulong = 0;
    ptrace(
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        (&raw mut message) as usize,
    )?;
    Ok(message as pid_t)
}

/// Waits for `tid` (-1: any child or tracee of the calling thread) and retries interrupted waits.
pub fn wait(tid: pid_t) -> io::Result<(pid_t, Wait)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live c_int.
        let got = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        match check(c_long::from(got)) {
            Ok(_) => return Ok((got, decode(status))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// As [`wait`] for any tracee, but `None` if a [`Ticker`] or another signal interrupts it.
pub fn wait_or_tick() -> io::Result<Option<(pid_t, Wait)>> {
    let mut status = 0;
    // SAFETY: `status` is a live c_int.
    let got = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    match check(c_long::from(got)) {
        Ok(_) => Ok(Some((got, decode(status)))),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

extern "C" fn interrupted(_: c_int) {}

/// Interrupts the waits of the thread that has started it, again and again, until it is dropped. A tick that comes
/// while the thread does not wait is lost.
pub struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Ticks every `pause`.
    pub fn start(pause: Duration) -> io::Result<Self> {
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: all-zero bytes are a valid value of this plain C struct: no flags, so waits are interrupted.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = interrupted as *const () as usize;
        // SAFETY: the handler does nothing; `action` lives through the call.
        let done = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        check(c_long::from(done))?;
        // SAFETY: returns the calling thread's id. A call by number: glibc has the function since 2.30 only.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("ticker".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(pause);
                let _ = kill_thread(tid, signal);
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The pending report of `tid`, if there is one. Does not block.
pub fn poll(tid: pid_t) -> io::Result<Option<Wait>> {
    let mut status = 0;
    let how = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: `status` is a live c_int.
    let got = check(c_long::from(unsafe {
        libc::waitpid(tid, &raw mut status, how)
    }))?;
    Ok((got != 0).then(|| decode(status)))
}

fn decode(status: c_int) -> Wait {
    if libc::WIFEXITED(status) {
        return Wait::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Wait::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Wait::Syscall,
        0 => Wait::Signal(signal),
        event => Wait::Event(event, signal),
    }
}

/// Whether `tid` is a thread of process `tgid`.
pub fn is_thread_of(tgid: pid_t, tid: pid_t) -> bool {
    // SAFETY: plain numbers; signal 0 delivers nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, 0) == 0 }
}

/// Sends a signal to one thread.
pub fn kill_thread(tid: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_tkill, tid, signal) }).map(drop)
}

/// Size of a System V shared memory segment in bytes.
pub fn shm_size(id: c_int) -> io::Result<u64> {
    // SAFETY: all-zero bytes are a valid value of this plain C struct.
    let mut info: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: IPC_STAT writes one `shmid_ds`.
    check(c_long::from(unsafe {
        libc::shmctl(id, libc::IPC_STAT, &raw mut info)
    }))?;
    Ok(info.shm_segsz as u64)
}

/// The name of an errno as in the manual pages.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EIO => "EIO",
        libc::E2BIG => "E2BIG",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::ENOSYS => "ENOSYS",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}
