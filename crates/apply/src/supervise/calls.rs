//! A watched system call: made, answered for, or refused, and what it changed told to the desk.

use std::io;

use numaloc_identity::MapCall;
use numaloc_identity::object::base_name;

use super::live::{Live, nobody};
use super::{Space, Supervisor};
use crate::image::{makes_calls, maps};
use crate::scratch::Break;
use crate::sys::{self, Regs, Resume};
use crate::tracee::{SYSCALL, Stopped};

/// What the program break is moved ahead of the program's wishes, within the planned heap.
const BREAK_AHEAD: u64 = 32 << 20;

/// A system call and its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    number: i64,
    args: [u64; 6],
}

impl Call {
    pub fn of(number: u64, regs: &Regs) -> Self {
        Self {
            number: number as i64,
            args: [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
        }
    }
}

impl Call {
    /// The `n`-th argument, from 0.
    pub fn argument(&self, n: usize) -> u64 {
        self.args[n]
    }
}

impl Supervisor {
    /// A system call's entry or exit, while every call stops.
    pub(super) fn at_call(&mut self, tid: i32) -> io::Result<()> {
        let Some(tracee) = self.tracees.get_mut(&tid) else {
            return sys::resume(tid, Resume::Cont, 0);
        };
        if tracee.executing {
            tracee.executing = false;
            return self.executed(tid);
        }
        let mut stopped = Stopped::new(tid)?;
        let regs = *stopped.regs();
        match tracee.inside.take() {
            None => {
                let call = Call::of(regs.orig_rax, &regs);
                tracee.inside = Some(call);
                if self.forbids(tid, call) {
                    stopped.regs().orig_rax = u64::MAX;
                    stopped.finish()?;
                } else if call.number == libc::SYS_munmap {
                    self.before_unmapping(tid, call);
                }
            }
            Some(call) => {
                let answer = if regs.orig_rax == u64::MAX && self.is_affinity(call) {
                    0
                } else {
                    regs.rax as i64
                };
                stopped.regs().rax = answer as u64;
                self.after(tid, call, answer, &mut stopped)?;
                stopped.finish()?;
            }
        }
        self.go_on(tid, 0)
    }

    pub(super) fn is_affinity(&self, call: Call) -> bool {
        call.number == libc::SYS_sched_setaffinity
    }

    /// A SIGTRAP: ours if it is one of our breakpoints, else the program's.
    pub(super) fn at_trap(&mut self, tid: i32) -> io::Result<()> {
        let mut stopped = Stopped::new(tid)?;
        let at = stopped.regs().rip.wrapping_sub(1);
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return self.go_on(tid, libc::SIGTRAP);
        };
        if let Some((start, byte)) = space.entry
            && at == start
        {
            space.memory.write(start, &[byte])?;
            space.entry = None;
            stopped.regs().rip = start;
            self.entered(tid, &mut stopped)?;
            stopped.finish()?;
            return self.go_on(tid, 0);
        }
        if !space.sites.contains_key(&at) {
            return self.go_on(tid, libc::SIGTRAP);
        }
        let gadget = space.gadget;
        let regs = *stopped.regs();
        let call = Call::of(regs.rax, &regs);
        if call.number == libc::SYS_ptrace && self.before_tracing(tid, call, at)? {
            return Ok(());
        }
        if call.number == libc::SYS_munmap {
            self.before_unmapping(tid, call);
        }
        let answer = if self.forbids(tid, call) {
            0
        } else if call.number == libc::SYS_brk {
            self.move_break(tid, call.args[0], &mut stopped)?
        } else {
            let gadget = gadget.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
            stopped.call(gadget, call.number, call.args)?
        };
        let next = at + SYSCALL.len() as u64;
        let regs = stopped.regs();
        regs.rax = answer as u64;
        regs.rip = next;
        regs.rcx = next;
        regs.r11 = regs.eflags;
        self.after(tid, call, answer, &mut stopped)?;
        stopped.finish()?;
        self.go_on(tid, 0)
    }

    /// `brk(wish)` at a breakpoint: the kernel's break runs ahead of the program's while the heap is planned.
    pub(super) fn move_break(
        &mut self,
        tid: i32,
        wish: u64,
        stopped: &mut Stopped,
    ) -> io::Result<i64> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let missing = || io::Error::from_raw_os_error(libc::ENOSYS);
        let space = self.spaces.get_mut(&tgid).ok_or_else(missing)?;
        let gadget = space.gadget.ok_or_else(missing)?;
        let mut brk = |end: u64| {
            let answer = stopped.call(gadget, libc::SYS_brk, [end, 0, 0, 0, 0, 0])?;
            Ok::<u64, io::Error>(answer as u64)
        };
        let answerer = space.scratch.filter(|scratch| scratch.answerer().is_some());
        let at = match (answerer, space.ahead) {
            (Some(scratch), _) => scratch.current_break(&space.memory)?,
            (None, Some(at)) => at,
            (None, None) => Break::UNKNOWN,
        };
        let set = |space: &mut Space, at: Break| {
            space.ahead = Some(at);
            answerer.map_or(Ok(()), |scratch| scratch.set_break(&space.memory, at))
        };
        if wish >= at.program && wish <= at.kernel {
            let at = Break {
                program: wish,
                ..at
            };
            set(space, at)?;
            return Ok(wish as i64);
        }
        // The first call here; or somebody moved the break in a way that is not watched.
        let now = brk(0)?;
        let at = match at.kernel == now {
            true => at,
            false => Break {
                program: now,
                kernel: now,
            },
        };
        set(space, at)?;
        if wish == 0 {
            return Ok(at.program as i64);
        }
        let planned = self.desk.planned_heap_end(tid).unwrap_or(0);
        let further = wish.saturating_add(BREAK_AHEAD).min(planned).max(wish);
        let end = match brk(if wish < at.program { wish } else { further })? {
            end if end < wish => brk(wish)?,
            end => end,
        };
        if wish > at.program && end < wish {
            // Refused, the break is where it was.
            return Ok(at.program as i64);
        }
        let at = Break {
            program: wish.min(end),
            kernel: end,
        };
        set(space, at)?;
        if at.program > planned {
            // Nothing further is planned: leave the program's brk alone from here on.
            if let Some(scratch) = &mut space.scratch {
                scratch.leave_brk(&space.memory)?;
            }
            self.leave(tgid, libc::SYS_brk)?;
        }
        let mut act = Live {
            stopped: Some(stopped),
            space: self.spaces.get(&tgid),
            filters: self.filters,
        };
        self.desk.broke(tid, end, &mut act);
        Ok(at.program as i64)
    }

    /// Whether a call must not be made: the program would undo the plan, and `--enforce` is on.
    pub(super) fn forbids(&mut self, tid: i32, call: Call) -> bool {
        call.number == libc::SYS_sched_setaffinity && !self.desk.may_set_affinity(target(tid, call))
    }

    pub(super) fn before_unmapping(&mut self, tid: i32, call: Call) {
        let (start, end) = (call.args[0], call.args[0].saturating_add(call.args[1]));
        if self.desk.cares_about(tid, start, end) {
            self.desk.unmapping(tid, start, end, &mut nobody());
        }
    }

    /// A watched call returned `answer`.
    pub(super) fn after(
        &mut self,
        tid: i32,
        call: Call,
        answer: i64,
        stopped: &mut Stopped,
    ) -> io::Result<()> {
        if answer < 0 && answer > -4096 {
            return Ok(());
        }
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        let [a0, a1, a2, a3, a4, _] = call.args;
        if call.number == libc::SYS_sched_getaffinity {
            if self.desk.hides_affinity(target(tid, call)) {
                // The program must see the machine it would see without us, or it would start one
                // thread where it should start many.
                let mut mask = vec![0_u8; answer as usize];
                for &pu in self.desk.allowed() {
                    if let Some(byte) = mask.get_mut(pu as usize / 8) {
                        *byte |= 1 << (pu % 8);
                    }
                }
                space.memory.write(a2, &mask)?;
            }
            return Ok(());
        }
        let address = answer as u64;
        let executable = a2 as i32 & libc::PROT_EXEC != 0;
        if call.number == libc::SYS_mmap && space.entry.is_some() && executable {
            self.watch_library(tgid, address, a4 as i32)?;
        }
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        if !self.pages {
            return Ok(());
        }
        match call.number {
            libc::SYS_mmap => {
                let flags = a3 as i32;
                // A linker's data and .bss come after the text, each over a part of the first mapping.
                if flags & libc::MAP_FIXED != 0 && a2 as i32 & libc::PROT_WRITE != 0 {
                    space.new_images = true;
                }
                let file = if flags & libc::MAP_ANONYMOUS == 0 {
                    let mut magic = [0; 4];
                    let elf =
                        space.memory.read(address, &mut magic).is_ok() && magic == *b"\x7fELF";
                    if executable || elf {
                        space.new_images = true;
                        return Ok(());
                    }
                    let link = std::fs::read_link(format!("/proc/{tgid}/fd/{}", a4 as i32));
                    let link = link.map_or_else(|_| String::new(), |l| l.display().to_string());
                    Some(base_name(link.trim_end_matches(" (deleted)")).to_owned())
                } else {
                    None
                };
                let map = MapCall {
                    length: a1,
                    protection: a2,
                    flags: a3,
                    file: file.as_deref(),
                };
                let mut act = Live {
                    stopped: Some(stopped),
                    space: Some(space),
                    filters: self.filters,
                };
                self.desk.mapped(tid, &map, address, &mut act);
            }
            // At a breakpoint `move_break` has seen to it.
            libc::SYS_brk if space.loading => {
                let mut act = Live {
                    stopped: Some(stopped),
                    space: Some(space),
                    filters: self.filters,
                };
                self.desk.broke(tid, address, &mut act);
            }
            libc::SYS_mremap => {
                let mut act = Live {
                    stopped: Some(stopped),
                    space: Some(space),
                    filters: self.filters,
                };
                let (old, new) = ((a0, a0 + a1), (address, address + a2));
                self.desk.remapped(tid, old, new, &mut act);
            }
            libc::SYS_shmat => {
                let mut act = Live {
                    stopped: Some(stopped),
                    space: Some(space),
                    filters: self.filters,
                };
                let size = sys::shm_size(a0 as i32)?;
                self.desk.attached(tid, size, address, &mut act);
            }
            _ => {}
        }
        self.read_new_images(tid, stopped)?;
        let over = call.number == libc::SYS_mmap
            && self.spaces.get(&tgid).is_some_and(|s| s.entry.is_none())
            && !self.desk.awaits_mappings(tid)
            && !self.desk.lacks_statics();
        if over {
            self.leave(tgid, libc::SYS_mmap)?;
        }
        Ok(())
    }

    /// The dynamic linker has mapped text: constructors are about to run, and they make calls.
    pub(super) fn watch_library(&mut self, tgid: i32, address: u64, file: i32) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/{tgid}/fd/{file}"));
        if !path.is_ok_and(|path| makes_calls(&path.to_string_lossy())) {
            return Ok(());
        }
        let maps = maps(tgid)?;
        if let Some(map) = maps.iter().find(|map| map.start == address) {
            self.watch(tgid, map, &self.calls_while_loading())?;
        }
        Ok(())
    }
}

/// The thread that an affinity call is about.
fn target(caller: i32, call: Call) -> i32 {
    match call.args[0] as i32 {
        0 => caller,
        other => other,
    }
}
