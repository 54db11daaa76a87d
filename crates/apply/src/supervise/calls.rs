//! Handles one intercepted system call: let through, emulated or denied; reports its effect to the controller.

use numaloc_sys::affinity;
use std::io;

use numaloc_identity::MapCall;
use numaloc_identity::object::base_name;

use super::live::{Live, without_thread};
use super::{Space, Supervisor};
use crate::gate::{self, Traps};
use crate::image::{makes_calls, maps};
use crate::ptrace::{self, Regs, Resume};
use crate::scratch::Break;
use crate::tracee::{SYSCALL, Stopped};

/// How far the kernel's break is moved beyond the requested one, within the planned heap (bytes).
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
    /// Whether the program may filter its system calls from now on.
    fn announces_filter(&self) -> bool {
        let [option, ..] = self.args;
        let announcing = [libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_SECCOMP];
        self.number == libc::SYS_prctl && announcing.contains(&(option as i32))
    }

    /// Whether the thread gives itself a name.
    fn names_thread(&self) -> bool {
        self.number == libc::SYS_prctl && self.args[0] as i32 == libc::PR_SET_NAME
    }

    /// The `n`-th argument, from 0.
    pub fn argument(&self, n: usize) -> u64 {
        self.args[n]
    }
}

impl Supervisor {
    /// Handles the entry or exit of a system call while every call stops.
    pub(super) fn at_call(&mut self, tid: i32) -> io::Result<()> {
        let Some(tracee) = self.tracees.get_mut(&tid) else {
            return ptrace::resume(tid, Resume::Cont, 0);
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
        call.number == affinity::SET_CALL
    }

    /// Handles a SIGTRAP: one of our breakpoints, or else a signal for the program.
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
            self.restore_traps(tgid, true, at, &mut stopped)?;
            self.entered(tid, &mut stopped)?;
            self.set_up_marks(tgid, &mut stopped);
            stopped.finish()?;
            return self.go_on(tid, 0);
        }
        if let Some(marks) = &self.marks
            && marks.calls(at)
        {
            // A thread of another process can only have come here before its copy of the board was changed.
            if marks.is_of(tgid) {
                self.at_mark(&mut stopped)?;
            }
            stopped.finish()?;
            return self.go_on(tid, 0);
        }
        if !space.sites.contains_key(&at) {
            // Not a breakpoint now. If it was one when the thread ran into it, the thread makes the call itself.
            let signal = self.step_back(tid)?;
            return self.go_on(tid, signal);
        }
        let gadget = space.gadget;
        let is_loading = space.entry.is_some();
        let regs = *stopped.regs();
        let call = Call::of(regs.rax, &regs);
        // No call of ours may come after that of the program, which may have forbidden it.
        self.restore_traps(tgid, is_loading, at, &mut stopped)?;
        if call.announces_filter() {
            self.remove_gates(tgid)?;
        }
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
        if call.announces_filter() {
            self.leave_gate(tgid, at, &mut stopped)?;
        }
        stopped.finish()?;
        self.go_on(tid, 0)
    }

    /// Continues after the gate in which the breakpoint at `at` is, without the call at its end.
    fn leave_gate(&self, tgid: i32, at: u64, stopped: &mut Stopped) -> io::Result<()> {
        if let Some(space) = self.spaces.get(&tgid)
            && let Some((site, _)) = space.gates.get(&at)
        {
            let mut mask = [0; 8];
            let regs = stopped.regs();
            space.memory.read(regs.rsp + gate::OLD_MASK, &mut mask)?;
            regs.rsp += gate::FRAME;
            regs.rip = site + SYSCALL.len() as u64;
            ptrace::set_signal_mask(stopped.tid(), u64::from_le_bytes(mask))?;
        }
        Ok(())
    }

    /// Undoes what the breakpoint at `at` has changed for a program that blocks or ignores SIGTRAP.
    fn restore_traps(
        &self,
        tgid: i32,
        is_loading: bool,
        at: u64,
        stopped: &mut Stopped,
    ) -> io::Result<()> {
        let Some(space) = self.spaces.get(&tgid) else {
            return Ok(());
        };
        let traps = if space.is_gate(at) {
            Traps::at_gate(stopped, &space.memory)?
        } else if is_loading {
            space.traps
        } else {
            return Ok(());
        };
        match space.gadget {
            Some(gadget) if !traps.are_harmless() => traps.restore(stopped, &space.memory, gadget),
            _ => Ok(()),
        }
    }

    /// Handles `brk(requested)` at a breakpoint. While the heap is planned, the kernel's break is kept ahead.
    pub(super) fn move_break(
        &mut self,
        tid: i32,
        requested: u64,
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
        let brk_handler = space
            .scratch
            .filter(|scratch| scratch.brk_handler().is_some());
        let at = match (brk_handler, space.kernel_break) {
            (Some(scratch), _) => scratch.current_break(&space.memory)?,
            (None, Some(at)) => at,
            (None, None) => Break::UNKNOWN,
        };
        let set = |space: &mut Space, at: Break| {
            space.kernel_break = Some(at);
            brk_handler.map_or(Ok(()), |scratch| scratch.set_break(&space.memory, at))
        };
        if requested >= at.program && requested <= at.kernel {
            let at = Break {
                program: requested,
                ..at
            };
            set(space, at)?;
            return Ok(requested as i64);
        }
        // The first call here, or the break was moved by a call that is not intercepted.
        let now = brk(0)?;
        let at = match at.kernel == now {
            true => at,
            false => Break {
                program: now,
                kernel: now,
            },
        };
        set(space, at)?;
        if requested == 0 {
            return Ok(at.program as i64);
        }
        let planned = self.controller.planned_heap_end(tid).unwrap_or(0);
        let further = requested
            .saturating_add(BREAK_AHEAD)
            .min(planned)
            .max(requested);
        let end = match brk(if requested < at.program {
            requested
        } else {
            further
        })? {
            end if end < requested => brk(requested)?,
            end => end,
        };
        if requested > at.program && end < requested {
            // The kernel refused, so the break is unchanged.
            return Ok(at.program as i64);
        }
        let at = Break {
            program: requested.min(end),
            kernel: end,
        };
        set(space, at)?;
        if at.program > planned {
            // No more of the heap is planned: stop intercepting `brk`.
            if let Some(scratch) = &mut space.scratch {
                scratch.remove_brk_handler(&space.memory)?;
            }
            self.leave(tgid, libc::SYS_brk)?;
        }
        let mut act = Live {
            stopped: Some(stopped),
            space: self.spaces.get(&tgid),
            filters: self.filters,
        };
        self.controller.break_moved(tid, end, &mut act);
        Ok(at.program as i64)
    }

    /// Whether a call must be denied because it would undo the plan and `--enforce` is on.
    pub(super) fn forbids(&mut self, tid: i32, call: Call) -> bool {
        call.number == affinity::SET_CALL && !self.controller.may_set_affinity(target(tid, call))
    }

    pub(super) fn before_unmapping(&mut self, tid: i32, call: Call) {
        let (start, end) = (call.args[0], call.args[0].saturating_add(call.args[1]));
        if self.controller.must_verify(tid, start, end) {
            self.controller
                .unmapping(tid, start, end, &mut without_thread());
        }
    }

    /// Handles the return of an intercepted call with result `answer`.
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
        let [a0, a1, a2, _, a4, _] = call.args;
        if call.number == affinity::GET_CALL {
            if self.controller.hides_affinity(target(tid, call)) {
                let mask = mask_of(self.controller.allowed(), answer as usize);
                space.memory.write(a2, &mask)?;
            }
            return Ok(());
        }
        if call.names_thread() {
            self.look(tid, Some(stopped));
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
        let mapped = (call.number == libc::SYS_mmap).then(|| mapped(tgid, space, call, address));
        if mapped == Some(Mapped::Image) {
            return Ok(());
        }
        let loading = space.loading;
        let mut act = Live {
            stopped: Some(&mut *stopped),
            space: Some(space),
            filters: self.filters,
        };
        match call.number {
            libc::SYS_mmap => {
                let file = match &mapped {
                    Some(Mapped::File(name)) => Some(name.as_str()),
                    _ => None,
                };
                let map = MapCall {
                    length: a1,
                    protection: a2,
                    flags: call.args[3],
                    file,
                };
                self.controller.mapped(tid, &map, address, &mut act);
            }
            // At a breakpoint `move_break` reports this.
            libc::SYS_brk if loading => self.controller.break_moved(tid, address, &mut act),
            libc::SYS_mremap => {
                let (old, new) = ((a0, a0 + a1), (address, address + a2));
                self.controller.remapped(tid, old, new, &mut act);
            }
            libc::SYS_shmat => {
                let size = ptrace::shm_size(a0 as i32)?;
                self.controller.attached(tid, size, address, &mut act);
            }
            _ => {}
        }
        self.read_new_images(tid, stopped)?;
        let over = call.number == libc::SYS_mmap
            && self.spaces.get(&tgid).is_some_and(|s| s.entry.is_none())
            && !self.controller.awaits_mappings(tid)
            && !self.controller.lacks_statics();
        if over {
            self.leave(tgid, libc::SYS_mmap)?;
        }
        Ok(())
    }

    /// The dynamic linker has mapped text: intercept its calls now, before its constructors run.
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

/// What a call of `mmap` has mapped.
#[derive(PartialEq)]
enum Mapped {
    /// An ELF file, or text: its sections are read once it is complete.
    Image,
    /// Another file, by its base name.
    File(String),
    /// Memory without a file.
    Anonymous,
}

/// What a call of `mmap` has mapped at `address`. Makes a note in `space` if an ELF file must be read.
fn mapped(tgid: i32, space: &mut Space, call: Call, address: u64) -> Mapped {
    let [_, _, protection, flags, file, _] = call.args.map(|argument| argument as i32);
    // The linker maps .data and .bss after the text, each over a part of the first mapping.
    if flags & libc::MAP_FIXED != 0 && protection & libc::PROT_WRITE != 0 {
        space.new_images = true;
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        return Mapped::Anonymous;
    }
    let mut magic = [0; 4];
    let is_elf = space.memory.read(address, &mut magic).is_ok() && magic == *b"\x7fELF";
    if protection & libc::PROT_EXEC != 0 || is_elf {
        space.new_images = true;
        return Mapped::Image;
    }
    let link = std::fs::read_link(format!("/proc/{tgid}/fd/{file}"));
    let link = link.map_or_else(|_| String::new(), |l| l.display().to_string());
    Mapped::File(base_name(link.trim_end_matches(" (deleted)")).to_owned())
}

/// The affinity mask of `bytes` bytes that the program would see without us: one of fewer PUs might make it start one
/// thread instead of many.
fn mask_of(pus: &[u32], bytes: usize) -> Vec<u8> {
    let mut mask = vec![0_u8; bytes];
    for &pu in pus {
        if let Some(byte) = mask.get_mut(pu as usize / 8) {
            *byte |= 1 << (pu % 8);
        }
    }
    mask
}

/// The thread that an affinity call is about.
fn target(caller: i32, call: Call) -> i32 {
    match call.args[0] as i32 {
        0 => caller,
        other => other,
    }
}
