//! The actuator on a live process: system calls injected into a stopped thread, or made on it from outside.

use numaloc_sys::memory::NodeMask;
use numaloc_sys::{affinity, inject, memory};
use std::io;

use super::Space;
use crate::controller::Actuator;
use crate::gate::Traps;
use crate::tracee::{Memory, Stopped};

/// Acts on behalf of the thread that is stopped now.
pub(super) struct Live<'a> {
    pub stopped: Option<&'a mut Stopped>,
    pub space: Option<&'a Space>,
    pub filters: Filters,
}

/// Seccomp mode and number of seccomp filters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters(u32, u32);

/// The text of `/proc/TID/status`.
pub(super) fn status_of(tid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default()
}

impl Filters {
    pub fn of(tid: i32) -> Self {
        Self::in_status(&status_of(tid))
    }

    fn in_status(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Self(
            field("Seccomp:").unwrap_or(0),
            field("Seccomp_filters:").unwrap_or(0),
        )
    }
}

impl Live<'_> {
    /// Makes one call on behalf of the stopped thread. Returns 0 or an errno.
    fn inject(&mut self, call: impl FnOnce(&mut Stopped, &Memory, u64) -> io::Result<i64>) -> i32 {
        let (Some(stopped), Some(space)) = (self.stopped.as_mut(), self.space) else {
            return libc::ESRCH;
        };
        // A program that filters its own calls might be killed for a call that it did not expect.
        if Filters::of(stopped.tid()) != self.filters {
            return libc::EPERM;
        }
        let Some(gadget) = space.gadget else {
            return libc::ENOSYS;
        };
        match call(stopped, &space.memory, gadget) {
            Ok(answer) => (-answer).max(0) as i32,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Distributes new pages of a range over nodes as `call` has it.
    fn distribute(
        &mut self,
        range: (u64, u64),
        nodes: &[u32],
        call: fn(u64, u64, &NodeMask, u64) -> inject::Call,
    ) -> i32 {
        self.inject(|stopped, memory, gadget| {
            stopped.distribute(memory, gadget, range, nodes, call)
        })
    }

    fn bind_stopped(&mut self, ranges: &[(u64, u64, u32)]) -> io::Result<Vec<i64>> {
        let (Some(stopped), Some(space)) = (self.stopped.as_mut(), self.space) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        // A program that filters its own calls might be killed for a call that it did not expect.
        let status = status_of(stopped.tid());
        if Filters::in_status(&status) != self.filters {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // The loop ends with a breakpoint.
        if let Some(scratch) = space.scratch
            && Traps::of(&status).are_harmless()
        {
            return scratch.bind(stopped, &space.memory, ranges);
        }
        let gadget = space
            .gadget
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
        ranges
            .iter()
            .map(|&range| stopped.bind(&space.memory, gadget, range))
            .collect()
    }
}

impl Actuator for Live<'_> {
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()> {
        affinity::set(tid, pus)
    }

    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>> {
        affinity::get(tid)
    }

    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32> {
        if ranges.is_empty() {
            return Vec::new();
        }
        match self.bind_stopped(ranges) {
            Ok(answers) => answers.iter().map(|a| (-a).max(0) as i32).collect(),
            Err(error) => vec![error.raw_os_error().unwrap_or(libc::EIO); ranges.len()],
        }
    }

    fn interleave(&mut self, range: (u64, u64), nodes: &[u32]) -> i32 {
        self.distribute(range, nodes, inject::interleave)
    }

    fn interleave_by_weights(&mut self, range: (u64, u64), nodes: &[u32]) -> i32 {
        self.distribute(range, nodes, inject::interleave_by_weights)
    }

    fn own_policy(&mut self, nodes: &[u32]) -> i32 {
        self.inject(|stopped, memory, gadget| stopped.own_policy(memory, gadget, nodes))
    }

    fn relocate(&mut self, tgid: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
        memory::move_pages(tgid, pages, nodes)
    }

    fn locate(&mut self, tid: i32, pages: &[u64]) -> io::Result<Vec<i32>> {
        memory::locate_pages(tid, pages)
    }
}

/// An actuator without a stopped thread: it can act on threads from outside, but not inject calls.
pub(super) fn without_thread() -> Live<'static> {
    Live {
        stopped: None,
        space: None,
        filters: Filters::default(),
    }
}
