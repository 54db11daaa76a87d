//! Follows the program with ptrace and reports to the [`Controller`] threads and memory that appear.
//!
//! A running program is stopped rarely: thread, process and exec events come from ptrace options; the
//! few system calls that matter (memory mapping, affinity) are intercepted by breakpoints on those
//! `syscall` instructions of the C library and the dynamic linker that make them, so all others run at full
//! speed. (A seccomp filter with `SECCOMP_RET_TRACE` was measured first: it costs every system call of the
//! program about 90 ns, a sixth of a cached 4 KiB `pread`, on the development machine.) When every
//! planned mapping has been found, `mmap` is no longer intercepted.
//!
//! A planned heap grows ahead of the program: the kernel's break is moved up to 32 MiB beyond the requested
//! one and that memory is bound at once. Code injected into the program ([`crate::scratch`]) then answers most `brk`
//! calls with the program's own break and without a stop.
//!
//! Known limits: if a program makes these calls with `syscall` instructions of its own (Go, some JITs), its
//! threads are placed, but not the memory it maps after start.

mod calls;
mod handover;
mod live;
mod loading;
mod marks;
mod names;
mod patch;
mod roles;

use numaloc_launch::Signals;
use std::collections::{HashMap, HashSet};
use std::io;

use crate::controller::Controller;
use crate::gate::Traps;
use crate::image::{Files, Site};
use crate::launch::Waiting;
use crate::ptrace::{self, Resume, Wait};
use crate::scratch::{Break, Scratch};
use crate::tracee::{Memory, SYSCALL, Stopped};
use calls::Call;
use live::{Filters, Live, without_thread};
use marks::Marks;
use names::Names;

/// What is known of the address space of a process, and what was changed in it.
#[derive(Debug)]
struct Space {
    memory: Memory,
    gadget: Option<u64>,
    scratch: Option<Scratch>,
    /// Address of the entry point and the byte our breakpoint replaced, until it is hit.
    entry: Option<(u64, u8)>,
    /// Every call stops: before the entry point, if the dynamic linker's calls are not known.
    loading: bool,
    /// Breakpoints: address of a `syscall` instruction or of what replaces it in a gate, and the call it makes.
    sites: HashMap<u64, i64>,
    /// Gates: address of the breakpoint in a gate, and the `syscall` instruction for which it stands.
    gates: HashMap<u64, (u64, Site)>,
    /// How the first thread treated SIGTRAP when it executed the program: until the entry point, where gates are
    /// set up, this is restored after every breakpoint.
    traps: Traps,
    /// Breakpoints that were removed: another thread may have run into one of them before.
    removed: HashSet<u64>,
    /// The break when no injected code handles `brk`.
    kernel_break: Option<Break>,
    /// Executable memory was mapped since images were last read.
    new_images: bool,
    /// The breakpoints are removed while a process that shares this memory (`vfork`) is not traced by us.
    breakpoints_removed: bool,
}

impl Space {
    /// Whether the breakpoint at `at` is in a gate.
    fn is_gate(&self, at: u64) -> bool {
        let is_brk = |scratch: Scratch| scratch.brk_handler().is_some_and(|brk| brk.trap == at);
        self.gates.contains_key(&at) || self.scratch.is_some_and(is_brk)
    }

    /// Whether a breakpoint at `at` was removed, and the `syscall` instruction it replaced is there again.
    fn was_breakpoint(&self, at: u64) -> bool {
        let mut now = [0; SYSCALL.len()];
        self.removed.contains(&at) && self.memory.read(at, &mut now).is_ok() && now == SYSCALL
    }
}

#[derive(Debug, Default)]
struct Tracee {
    tgid: i32,
    /// The call it is in, used while every call stops.
    inside: Option<Call>,
    /// Its next stop is the end of `execve`.
    executing: bool,
    /// It has left its first stop.
    started: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// The ptrace loop and its state; see the module.
pub struct Supervisor {
    controller: Controller,
    pages: bool,
    verify: bool,
    main: i32,
    end: Option<End>,
    tracees: HashMap<i32, Tracee>,
    spaces: HashMap<i32, Space>,
    files: Files,
    /// The seccomp filters of a program that installs none of its own.
    filters: Filters,
    /// Threads whose first stop came before the creator's event, and events that came before the first stop.
    early: HashSet<i32>,
    announced: HashMap<i32, (i32, bool)>,
    /// Processes that share their creator's memory until they call `execve` (`vfork`), and their creators.
    borrowers: HashMap<i32, i32>,
    /// The agent in the program, if the plan has later moves.
    marks: Option<Marks>,
    /// What threads are called, if the plan is one by role.
    names: Option<Names>,
}

impl Supervisor {
    /// A supervisor for a child that waits to execute the program and is already [seized](ptrace::seize).
    pub fn new(controller: Controller, pages: bool, verify: bool, waiting: &Waiting) -> Self {
        Self {
            names: controller.roster().map(|_| Names::default()),
            controller,
            pages,
            verify,
            main: waiting.pid,
            end: None,
            tracees: HashMap::new(),
            spaces: HashMap::new(),
            files: Files::default(),
            filters: Filters::of(waiting.pid),
            early: HashSet::new(),
            announced: HashMap::new(),
            borrowers: HashMap::new(),
            marks: None,
        }
    }

    /// Runs the program, and all processes that it leaves behind, to their ends.
    pub fn run(mut self, waiting: &Waiting) -> io::Result<(End, Controller)> {
        self.bind_first_thread();
        self.tracees.insert(
            self.main,
            Tracee {
                tgid: self.main,
                started: true,
                ..Tracee::default()
            },
        );
        let forwarding = Signals::catch()?.forward_to(self.main as u32);
        let ticker = self.ticker()?;
        waiting.release()?;
        while !self.tracees.is_empty() || self.end.is_none() {
            self.look_around();
            let (tid, wait) = match ptrace::wait_or_tick() {
                Ok(Some(got)) => got,
                Ok(None) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error),
            };
            match self.on(tid, wait) {
                Ok(()) => {}
                // Killed meanwhile: its end is reported next.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    let _ = ptrace::resume(tid, Resume::Cont, 0);
                }
                Err(error) => {
                    self.controller
                        .tally()
                        .note(format!("thread id {tid} could not be followed: {error}"));
                    let _ = ptrace::resume(tid, Resume::Cont, 0);
                }
            }
        }
        drop((forwarding, ticker));
        let end = self.end.unwrap_or(End::Exited(125));
        Ok((end, self.controller))
    }

    /// Pins the first thread while it still waits to execute the program: the kernel allocates the top of its stack
    /// (arguments, environment) within `execve`, on the node of the PU that it runs on.
    fn bind_first_thread(&mut self) {
        if let Some(names) = &mut self.names {
            names.started(self.main);
        }
        self.controller.started(self.main, &mut without_thread());
    }

    fn on(&mut self, tid: i32, wait: Wait) -> io::Result<()> {
        match wait {
            Wait::Exited(status) => self.gone(tid, End::Exited(status)),
            Wait::Killed(signal) => self.gone(tid, End::Killed(signal)),
            Wait::Syscall => self.at_call(tid),
            Wait::Signal(libc::SIGTRAP) => self.at_trap(tid),
            Wait::Signal(signal) => self.go_on(tid, signal),
            Wait::Event(libc::PTRACE_EVENT_STOP, signal) => self.at_stop(tid, signal),
            Wait::Event(libc::PTRACE_EVENT_EXEC, _) => self.at_exec(tid),
            Wait::Event(libc::PTRACE_EVENT_EXIT, _) => {
                self.look(tid, None);
                self.controller.ending(tid, &mut without_thread());
                ptrace::resume(tid, Resume::Cont, 0)
            }
            Wait::Event(
                event @ (libc::PTRACE_EVENT_CLONE
                | libc::PTRACE_EVENT_FORK
                | libc::PTRACE_EVENT_VFORK),
                _,
            ) => self.at_creation(tid, event == libc::PTRACE_EVENT_VFORK),
            Wait::Event(libc::PTRACE_EVENT_VFORK_DONE, _) => self.at_vfork_done(tid),
            Wait::Event(..) => self.go_on(tid, 0),
        }
    }

    fn gone(&mut self, tid: i32, end: End) -> io::Result<()> {
        self.forget(tid);
        self.tracees.remove(&tid);
        self.early.remove(&tid);
        self.announced.remove(&tid);
        self.borrowers.remove(&tid);
        if !self.tracees.values().any(|tracee| tracee.tgid == tid) {
            self.spaces.remove(&tid);
        }
        if tid == self.main {
            self.end = Some(end);
        }
        if self.tracees.is_empty() {
            // No creator is left that could announce them.
            for orphan in std::mem::take(&mut self.early) {
                self.adopt(orphan)?;
            }
        }
        Ok(())
    }

    fn adopt(&mut self, tid: i32) -> io::Result<()> {
        self.controller.unknown(tid, &mut without_thread());
        self.tracees.insert(
            tid,
            Tracee {
                tgid: tid,
                started: true,
                ..Tracee::default()
            },
        );
        ptrace::resume(tid, Resume::Cont, 0)
    }

    /// Resumes a thread in the mode its process is in: with or without stops at every call.
    fn go_on(&mut self, tid: i32, signal: i32) -> io::Result<()> {
        let loading = self
            .tracees
            .get(&tid)
            .is_some_and(|t| t.executing || self.spaces.get(&t.tgid).is_some_and(|s| s.loading));
        let how = if loading {
            Resume::Syscall
        } else {
            Resume::Cont
        };
        ptrace::resume(tid, how, signal)
    }

    fn at_stop(&mut self, tid: i32, signal: i32) -> io::Result<()> {
        let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        if stopping.contains(&signal) && self.tracees.get(&tid).is_some_and(|t| t.started) {
            return ptrace::resume(tid, Resume::Listen, 0);
        }
        if let Some((creator, same)) = self.announced.remove(&tid) {
            return self.attach(tid, creator, same);
        }
        if self.tracees.contains_key(&tid) {
            return self.go_on(tid, 0);
        }
        self.early.insert(tid);
        Ok(())
    }

    fn at_creation(&mut self, creator: i32, borrows: bool) -> io::Result<()> {
        let tid = ptrace::event_message(creator)?;
        let tgid = self.tracees.get(&creator).map_or(creator, |t| t.tgid);
        let same = ptrace::is_thread_of(tgid, tid);
        self.controller.announced(creator, tid, same);
        if borrows {
            self.borrowers.insert(tid, tgid);
        }
        if self.early.remove(&tid) {
            self.attach(tid, creator, same)?;
        } else {
            self.announced.insert(tid, (creator, same));
        }
        self.go_on(creator, 0)
    }

    /// Registers a new thread or process at its first stop; its creator is known.
    fn attach(&mut self, tid: i32, creator: i32, same: bool) -> io::Result<()> {
        let parent = self.tracees.get(&creator).map_or(creator, |t| t.tgid);
        let tgid = if same { parent } else { tid };
        if !same && let Some(space) = self.spaces.get(&parent) {
            // A copy of the parent's memory (or, after vfork, the same memory): same sites, same breakpoints.
            let space = Space {
                memory: Memory::open(tid)?,
                gadget: space.gadget,
                scratch: space.scratch,
                entry: space.entry,
                loading: space.loading,
                sites: space.sites.clone(),
                gates: space.gates.clone(),
                traps: space.traps,
                removed: space.removed.clone(),
                kernel_break: space.kernel_break,
                new_images: false,
                breakpoints_removed: false,
            };
            if let Some(marks) = self.marks.as_ref()
                && !self.borrowers.contains_key(&tid)
            {
                let _ = marks.disarm(&space.memory);
            }
            self.spaces.insert(tid, space);
        }
        self.tracees.insert(
            tid,
            Tracee {
                tgid,
                started: true,
                ..Tracee::default()
            },
        );
        self.describe(creator, tid, tgid);
        if !self.pages {
            self.controller
                .created(creator, tid, same, 0, &mut without_thread());
            return self.go_on(tid, 0);
        }
        let mut stopped = Stopped::new(tid)?;
        let pointer = stopped.regs().rsp;
        let space = self.spaces.get(&tgid);
        let mut act = Live {
            stopped: Some(&mut stopped),
            space,
            filters: self.filters,
        };
        self.controller
            .created(creator, tid, same, pointer, &mut act);
        self.read_new_images(tid, &mut stopped)?;
        stopped.finish()?;
        self.go_on(tid, 0)
    }

    fn at_exec(&mut self, tid: i32) -> io::Result<()> {
        let former = ptrace::event_message(tid)?;
        self.controller.executed(tid, former);
        self.borrowers.remove(&tid);
        if tid == self.main {
            // The agent is not in the new image.
            self.marks = None;
        }
        self.tracees
            .retain(|&other, t| t.tgid != tid || other == tid);
        self.tracees.insert(
            tid,
            Tracee {
                tgid: tid,
                executing: true,
                started: true,
                inside: None,
            },
        );
        self.spaces.remove(&tid);
        ptrace::resume(tid, Resume::Syscall, 0)
    }
}

#[cfg(test)]
mod tests {
    use numaloc_model::plan::{Plan, ThreadPlan};
    use numaloc_model::{LogicalPu, OsPu};

    use super::{End, Supervisor};
    use crate::controller::{ApplyOptions, Controller};
    use crate::index::PlanIndex;
    use crate::launch::fork;
    use crate::ptrace;

    #[test]
    fn the_first_thread_is_bound_before_it_executes_the_program() {
        let allowed = numaloc_sys::affinity::get(0).unwrap();
        let last = *allowed.last().unwrap();
        let plan = Plan {
            threads: vec![ThreadPlan {
                path: "0".to_owned(),
                pu: LogicalPu(last),
                os_pu: OsPu(last),
            }],
            ..Plan::by_hand("here", "none")
        };
        let controller = Controller::new(
            PlanIndex::threads_only(&plan),
            ApplyOptions::default(),
            allowed,
        );
        let waiting = fork(&["true".into()]).unwrap();
        ptrace::seize(waiting.pid).unwrap();
        let mut supervisor = Supervisor::new(controller, false, false, &waiting);
        supervisor.bind_first_thread();
        assert_eq!(numaloc_sys::affinity::get(waiting.pid).unwrap(), [last]);
        // The child has not called `execve` yet.
        let image = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).unwrap();
        assert_eq!(image(&waiting.pid.to_string()), image("self"));
        let (end, _) = supervisor.run(&waiting).unwrap();
        assert_eq!(end, End::Exited(0));
    }
}
