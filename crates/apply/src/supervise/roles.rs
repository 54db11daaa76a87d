//! Plans by role: reports to the controller what threads and processes are called.

use std::io;
use std::time::Duration;

use super::Supervisor;
use super::live::{Live, without_thread};
use crate::ptrace::{self, Ticker};
use crate::tracee::Stopped;

/// Pause between two looks at names that are due.
const TICK: Duration = Duration::from_millis(2);

impl Supervisor {
    /// Wakes this thread to look at names, if the plan is one by role.
    pub(super) fn ticker(&self) -> io::Result<Option<Ticker>> {
        let ticker = self.names.as_ref().map(|_| Ticker::start(TICK));
        ticker.transpose()
    }

    /// Looks at the names that are due.
    pub(super) fn look_around(&mut self) {
        while let Some(tid) = self.names.as_mut().and_then(|names| names.due()) {
            self.look(tid, None);
        }
    }

    /// Looks at the name of a thread, which is stopped in a place where it can make calls if `stopped` is given.
    pub(super) fn look(&mut self, tid: i32, stopped: Option<&mut Stopped>) {
        let Some(called) = self.names.as_mut().and_then(|names| names.called(tid)) else {
            return;
        };
        let tgid = self.tracees.get(&tid).map_or(tid, |tracee| tracee.tgid);
        match stopped {
            Some(stopped) => {
                let mut act = Live {
                    stopped: Some(stopped),
                    space: self.spaces.get(&tgid),
                    filters: self.filters,
                };
                self.controller.called(tid, called, &mut act);
                self.controller.settle_policy(tid, &mut act);
            }
            None => self.controller.called(tid, called, &mut without_thread()),
        }
    }

    /// Describes a thread or process at its first stop to the controller.
    pub(super) fn describe(&mut self, creator: i32, tid: i32, tgid: i32) {
        let Some(names) = &mut self.names else {
            return;
        };
        names.created(creator, tid, tgid);
        let called = names.called(tid).unwrap_or_default();
        let needs_routine = self
            .controller
            .roster()
            .is_some_and(|roster| roster.needs_routines());
        let space = self
            .spaces
            .get(&tgid)
            .filter(|_| needs_routine && tid != tgid);
        let routine = space.and_then(|space| {
            let registers = ptrace::registers(tid).ok()?;
            names.routine(tgid, &space.memory, registers.fs_base)
        });
        self.controller.describe(tid, called, routine);
    }

    /// Process `tid` has executed a program.
    pub(super) fn renamed(&mut self, tid: i32) {
        if let Some(names) = &mut self.names {
            names.executed(tid);
            self.look(tid, None);
        }
    }

    /// A thread is gone.
    pub(super) fn forget(&mut self, tid: i32) {
        if let Some(names) = &mut self.names {
            names.ended(tid);
        }
    }
}
