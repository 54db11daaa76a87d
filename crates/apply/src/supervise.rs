//! Follows the program with ptrace and lets the [`Desk`] act at the right moments.
//!
//! What costs a running program nothing: thread, process and exec events come from ptrace options; the
//! few system calls that matter (memory mapping, affinity) are caught by breakpoints on the very
//! `syscall` instructions of the C library and the dynamic linker that make them, so all others run at full
//! speed. (A seccomp filter with `SECCOMP_RET_TRACE` was measured first: it costs every system call of the
//! program about 90 ns, a sixth of a cached 4 KiB `pread`, on the machine this was written on.) When every
//! planned mapping has been found, `mmap` is left alone.
//!
//! A heap that is planned grows ahead: the kernel's program break is moved up to 32 MiB beyond what the
//! program asked for and bound at once; the program is told its own break, by code of ours in its address
//! space ([`crate::scratch`]), so that most `brk` calls do not even stop.
//!
//! Known limits: a program that makes these calls with instructions of its own (Go, some JITs) has its
//! threads placed, but not the memory it maps after start.

mod calls;
mod handover;
mod live;
mod loading;

use std::collections::{HashMap, HashSet};
use std::io;

use crate::desk::Desk;
use crate::image::Files;
use crate::launch::{Waiting, pass_signals_to, stop_passing_signals};
use crate::scratch::{Break, Scratch};
use crate::sys::{self, Resume, Wait};
use crate::tracee::{Memory, Stopped};
use calls::Call;
use live::{Filters, Live, nobody};

/// The address space of a process, as far as we changed or know it.
#[derive(Debug)]
struct Space {
    memory: Memory,
    gadget: Option<u64>,
    scratch: Option<Scratch>,
    /// Address of the entry point and the byte our breakpoint replaced, until it is hit.
    entry: Option<(u64, u8)>,
    /// Every call stops: before the entry point, under a dynamic linker whose calls are not known.
    loading: bool,
    /// Breakpoints: address of a `syscall` instruction, and the call it makes.
    sites: HashMap<u64, i64>,
    /// Where no code of ours answers `brk`.
    ahead: Option<Break>,
    /// Something executable was mapped since images were last read.
    new_images: bool,
    /// The breakpoints are out while a process that borrows this memory (`vfork`) is not ours.
    bare: bool,
}

#[derive(Debug, Default)]
struct Tracee {
    tgid: i32,
    /// The call it is in, while every call stops.
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

/// See the module.
pub struct Supervisor {
    desk: Desk,
    pages: bool,
    verify: bool,
    main: i32,
    end: Option<End>,
    tracees: HashMap<i32, Tracee>,
    spaces: HashMap<i32, Space>,
    files: Files,
    /// How programs that do not filter their own system calls are filtered.
    filters: Filters,
    /// First stops that came before the creator's event, and creators' events before the first stop.
    early: HashSet<i32>,
    announced: HashMap<i32, (i32, bool)>,
    /// Processes that run in their creator's memory until they execute a program, and that creator.
    borrowers: HashMap<i32, i32>,
}

impl Supervisor {
    /// For a child that waits to execute the program, already [seized](sys::seize).
    pub fn new(desk: Desk, pages: bool, verify: bool, waiting: &Waiting) -> Self {
        Self {
            desk,
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
        }
    }

    /// Runs the program to its end, and what it leaves behind to theirs.
    pub fn run(mut self, waiting: &Waiting) -> io::Result<(End, Desk)> {
        self.bind_first_thread();
        self.tracees.insert(
            self.main,
            Tracee {
                tgid: self.main,
                started: true,
                ..Tracee::default()
            },
        );
        pass_signals_to(self.main);
        waiting.release()?;
        while !self.tracees.is_empty() || self.end.is_none() {
            let (tid, wait) = match sys::wait(-1) {
                Ok(got) => got,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error),
            };
            match self.on(tid, wait) {
                Ok(()) => {}
                // Killed under our hands: its end is reported next.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    let _ = sys::resume(tid, Resume::Cont, 0);
                }
                Err(error) => {
                    self.desk
                        .tally()
                        .note(format!("thread id {tid} could not be followed: {error}"));
                    let _ = sys::resume(tid, Resume::Cont, 0);
                }
            }
        }
        stop_passing_signals();
        let end = self.end.unwrap_or(End::Exited(125));
        Ok((end, self.desk))
    }

    /// The first thread goes to its place while it still waits to execute the program: the kernel allocates the top of its
    /// stack (arguments, environment) within `execve`, on the node of the PU that it runs on.
    fn bind_first_thread(&mut self) {
        self.desk.started(self.main, &mut nobody());
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
                self.desk.ending(tid, &mut nobody());
                sys::resume(tid, Resume::Cont, 0)
            }
            Wait::Event(
                event @ (libc::PTRACE_EVENT_CLONE
                | libc::PTRACE_EVENT_FORK
                | libc::PTRACE_EVENT_VFORK),
                _,
            ) => self.at_birth(tid, event == libc::PTRACE_EVENT_VFORK),
            Wait::Event(libc::PTRACE_EVENT_VFORK_DONE, _) => self.given_back(tid),
            Wait::Event(..) => self.go_on(tid, 0),
        }
    }

    fn gone(&mut self, tid: i32, end: End) -> io::Result<()> {
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
            // Nobody is left to announce them.
            for orphan in std::mem::take(&mut self.early) {
                self.adopt(orphan)?;
            }
        }
        Ok(())
    }

    fn adopt(&mut self, tid: i32) -> io::Result<()> {
        self.desk.stranger(tid, &mut nobody());
        self.tracees.insert(
            tid,
            Tracee {
                tgid: tid,
                started: true,
                ..Tracee::default()
            },
        );
        sys::resume(tid, Resume::Cont, 0)
    }

    /// Lets a thread go on the way its process is watched.
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
        sys::resume(tid, how, signal)
    }

    fn at_stop(&mut self, tid: i32, signal: i32) -> io::Result<()> {
        let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        if stopping.contains(&signal) && self.tracees.get(&tid).is_some_and(|t| t.started) {
            return sys::resume(tid, Resume::Listen, 0);
        }
        if let Some((creator, same)) = self.announced.remove(&tid) {
            return self.welcome(tid, creator, same);
        }
        if self.tracees.contains_key(&tid) {
            return self.go_on(tid, 0);
        }
        self.early.insert(tid);
        Ok(())
    }

    fn at_birth(&mut self, creator: i32, borrows: bool) -> io::Result<()> {
        let tid = sys::event_message(creator)?;
        let tgid = self.tracees.get(&creator).map_or(creator, |t| t.tgid);
        let same = sys::is_thread_of(tgid, tid);
        self.desk.announced(creator, tid, same);
        if borrows {
            self.borrowers.insert(tid, tgid);
        }
        if self.early.remove(&tid) {
            self.welcome(tid, creator, same)?;
        } else {
            self.announced.insert(tid, (creator, same));
        }
        self.go_on(creator, 0)
    }

    /// A new thread or process at its first stop, whose creator is known.
    fn welcome(&mut self, tid: i32, creator: i32, same: bool) -> io::Result<()> {
        let parent = self.tracees.get(&creator).map_or(creator, |t| t.tgid);
        let tgid = if same { parent } else { tid };
        if !same && let Some(space) = self.spaces.get(&parent) {
            // A copy of the parent's memory (or the same, after vfork): same sites, same breakpoints.
            let space = Space {
                memory: Memory::open(tid)?,
                gadget: space.gadget,
                scratch: space.scratch,
                entry: space.entry,
                loading: space.loading,
                sites: space.sites.clone(),
                ahead: space.ahead,
                new_images: false,
                bare: false,
            };
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
        if !self.pages {
            self.desk.created(creator, tid, same, 0, &mut nobody());
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
        self.desk.created(creator, tid, same, pointer, &mut act);
        self.read_new_images(tid, &mut stopped)?;
        stopped.finish()?;
        self.go_on(tid, 0)
    }

    fn at_exec(&mut self, tid: i32) -> io::Result<()> {
        let former = sys::event_message(tid)?;
        self.desk.executed(tid, former);
        self.borrowers.remove(&tid);
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
        sys::resume(tid, Resume::Syscall, 0)
    }
}

#[cfg(test)]
mod tests {
    use numaloc_model::plan::{Plan, ThreadPlan};
    use numaloc_model::{LogicalPu, OsPu};

    use super::{End, Supervisor};
    use crate::book::Book;
    use crate::desk::{Desk, Wishes};
    use crate::launch::fork;
    use crate::sys;

    #[test]
    fn the_first_thread_is_bound_before_it_executes_the_program() {
        let allowed = sys::affinity(0).unwrap();
        let last = *allowed.last().unwrap();
        let plan = Plan {
            threads: vec![ThreadPlan {
                path: "0".to_owned(),
                pu: LogicalPu(last),
                os_pu: OsPu(last),
            }],
            ..Plan::by_hand("here", "none")
        };
        let desk = Desk::new(Book::threads_only(&plan), Wishes::default(), allowed);
        let waiting = fork(&["true".into()]).unwrap();
        sys::seize(waiting.pid).unwrap();
        let mut supervisor = Supervisor::new(desk, false, false, &waiting);
        supervisor.bind_first_thread();
        assert_eq!(sys::affinity(waiting.pid).unwrap(), [last]);
        // It is still what we forked.
        let image = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).unwrap();
        assert_eq!(image(&waiting.pid.to_string()), image("self"));
        let (end, _) = supervisor.run(&waiting).unwrap();
        assert_eq!(end, End::Exited(0));
    }
}
