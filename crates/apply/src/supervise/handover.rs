//! Hands processes over that the program traces itself: a debugger, `strace`, a sandbox, a crash handler.
//!
//! A process has one tracer, so a traced program's own `ptrace` would fail. Its `ptrace` calls are intercepted like
//! memory calls, and the target process is handed over first: breakpoints are removed from its memory, and it is
//! detached. What it starts from then on is not followed either.

use std::io;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::calls::Call;
use crate::ptrace::{self, Wait};
use crate::tracee::{INT3, SYSCALL, Stopped};

/// Longest wait for a thread to stop. A thread that has ended but was not reaped never stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the first stop of a new thread, which comes as soon as the kernel finds a PU for it.
const FIRST_STOP_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_micros(200);

/// A stopped thread, and the signal it is to be resumed with.
struct Held {
    tid: i32,
    signal: i32,
}

impl Supervisor {
    /// Handles a `ptrace` call of `tid`, stopped at `at` before the call: hands over the process the call targets if we
    /// trace it. Returns whether that was the caller's own process, which we then must not resume.
    pub(super) fn before_tracing(&mut self, tid: i32, call: Call, at: u64) -> io::Result<bool> {
        let own = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        match call.argument(0) as u32 {
            libc::PTRACE_TRACEME => {
                let mut stopped = Stopped::new(tid)?;
                // Remove the breakpoint and execute the call in place.
                stopped.regs().rip = at;
                stopped.finish()?;
                self.hand_over(own, Some(tid))?;
                Ok(true)
            }
            libc::PTRACE_ATTACH | libc::PTRACE_SEIZE => {
                let wanted = call.argument(1) as i32;
                // A process that has not reached its first stop is traced by us as well.
                if self.announced.contains_key(&wanted)
                    && let Some(wait) = wait_at_most(wanted, FIRST_STOP_TIMEOUT)?
                {
                    self.on(wanted, wait)?;
                }
                let wanted = self.tracees.get(&wanted).map(|t| t.tgid);
                if let Some(wanted) = wanted.filter(|&wanted| wanted != own) {
                    self.hand_over(wanted, None)?;
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Stops following process `tgid`. `stopped` is the thread of it that is stopped now, if any.
    fn hand_over(&mut self, tgid: i32, stopped: Option<i32>) -> io::Result<()> {
        let threads: Vec<i32> = self
            .tracees
            .iter()
            .filter(|(_, tracee)| tracee.tgid == tgid)
            .map(|(&tid, _)| tid)
            .collect();
        let mut held = Vec::new();
        for tid in threads {
            if stopped == Some(tid) {
                held.push(Held { tid, signal: 0 });
            } else {
                ptrace::interrupt(tid).or_else(gone)?;
                self.hold(tid, &mut held)?;
            }
        }
        let lender = self.borrowers.remove(&tgid);
        if let Some(mut space) = self.spaces.remove(&tgid) {
            if let Some(marks) = &self.marks {
                let _ = marks.disarm(&space.memory);
            }
            if let Some((start, byte)) = space.entry {
                space.memory.write(start, &[byte])?;
            }
            for &site in space.sites.keys() {
                space.memory.write(site, &SYSCALL)?;
            }
            if let Some(lender) = lender.and_then(|lender| self.spaces.get_mut(&lender)) {
                lender.breakpoints_removed = true;
            } else if let Some(scratch) = &mut space.scratch {
                scratch.remove_brk_handler(&space.memory)?;
            }
        }
        for Held { tid, signal } in held {
            self.tracees.remove(&tid);
            self.controller.released(tid);
            ptrace::detach(tid, signal).or_else(gone)?;
        }
        self.controller.tally().handed_over();
        Ok(())
    }

    /// A process created by `vfork` no longer uses the memory of its creator `tid`: restores the breakpoints that were
    /// removed for it.
    pub(super) fn at_vfork_done(&mut self, tid: i32) -> io::Result<()> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        if let Some(space) = self.spaces.get_mut(&tgid)
            && std::mem::take(&mut space.breakpoints_removed)
        {
            for &site in space.sites.keys() {
                space.memory.write(site, &[INT3])?;
            }
        }
        self.go_on(tid, 0)
    }

    /// Waits until an interrupted thread has stopped.
    fn hold(&mut self, tid: i32, held: &mut Vec<Held>) -> io::Result<()> {
        let Some(wait) = wait_at_most(tid, STOP_TIMEOUT)? else {
            return Ok(());
        };
        let signal = match wait {
            Wait::Exited(_) | Wait::Killed(_) => return self.on(tid, wait),
            Wait::Event(libc::PTRACE_EVENT_STOP, _) | Wait::Syscall => 0,
            Wait::Event(
                libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK,
                _,
            ) => {
                // A thread or process that it has just created is traced by us as well.
                let new = ptrace::event_message(tid)?;
                self.early.remove(&new);
                self.hold(new, held)?;
                0
            }
            Wait::Event(..) => 0,
            Wait::Signal(libc::SIGTRAP) => self.step_back(tid)?,
            Wait::Signal(signal) => signal,
        };
        held.push(Held { tid, signal });
        Ok(())
    }

    /// Moves a thread that hit one of our breakpoints back before it. Returns the signal to deliver.
    pub(super) fn step_back(&self, tid: i32) -> io::Result<i32> {
        let mut stopped = Stopped::new(tid)?;
        let at = stopped.regs().rip.wrapping_sub(1);
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let ours = self.spaces.get(&tgid).is_some_and(|space| {
            space.sites.contains_key(&at)
                || space.was_breakpoint(at)
                || space.entry.is_some_and(|(start, _)| start == at)
        });
        if !ours {
            return Ok(libc::SIGTRAP);
        }
        stopped.regs().rip = at;
        stopped.finish()?;
        Ok(0)
    }
}

/// Ignores the error of a thread that has ended meanwhile.
fn gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(()),
        _ => Err(error),
    }
}

fn wait_at_most(tid: i32, longest: Duration) -> io::Result<Option<Wait>> {
    let began = Instant::now();
    loop {
        match ptrace::poll(tid) {
            Ok(Some(wait)) => return Ok(Some(wait)),
            Ok(None) if began.elapsed() > longest => return Ok(None),
            Ok(None) => std::thread::sleep(POLL),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
