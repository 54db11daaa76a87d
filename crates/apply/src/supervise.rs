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

use numaloc_model::profile::ObjectKind;
use std::collections::{HashMap, HashSet};
use std::io;

use crate::desk::{Actuator, Desk};
use crate::identity::MapCall;
use crate::image::{Files, Map, base_name, makes_calls, maps};
use crate::launch::{Waiting, pass_signals_to, stop_passing_signals};
use crate::scratch::{Break, Scratch};
use crate::sys::{self, Regs, Resume, Wait};
use crate::tracee::{Auxiliary, INT3, Memory, SYSCALL, Stopped, gadget};

/// Calls about affinity, watched in every run.
const AFFINITY_CALLS: [i64; 2] = [libc::SYS_sched_setaffinity, libc::SYS_sched_getaffinity];
/// Calls about mappings, watched when the plan has pages of mappings, stacks or shared memory.
const MAPPING_CALLS: [i64; 3] = [libc::SYS_mmap, libc::SYS_mremap, libc::SYS_shmat];
/// What the program break is moved ahead of the program's wishes, within the planned heap.
const BREAK_AHEAD: u64 = 32 << 20;
/// Every call that is ever watched.
const CALLS: [u32; 7] = [
    libc::SYS_sched_setaffinity as u32,
    libc::SYS_sched_getaffinity as u32,
    libc::SYS_mmap as u32,
    libc::SYS_mremap as u32,
    libc::SYS_shmat as u32,
    libc::SYS_brk as u32,
    libc::SYS_munmap as u32,
];

/// A system call and its arguments.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: i64,
    args: [u64; 6],
}

impl Call {
    fn of(number: u64, regs: &Regs) -> Self {
        Self {
            number: number as i64,
            args: [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
        }
    }
}

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
}

/// Acts for the thread that is stopped right now.
struct Live<'a> {
    stopped: Option<&'a mut Stopped>,
    space: Option<&'a Space>,
    filters: Filters,
}

/// Seccomp mode and number of filters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Filters(u32, u32);

impl Filters {
    fn of(tid: i32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
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
    fn bind_stopped(&mut self, ranges: &[(u64, u64, u32)]) -> io::Result<Vec<i64>> {
        let (Some(stopped), Some(space)) = (self.stopped.as_mut(), self.space) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        // A program that filters its own calls might be killed for one that it does not know of.
        if Filters::of(stopped.tid()) != self.filters {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if let Some(scratch) = space.scratch {
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
        sys::set_affinity(tid, pus)
    }

    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>> {
        sys::affinity(tid)
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

    fn relocate(&mut self, tgid: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
        sys::move_pages(tgid, pages, Some(nodes))
    }

    fn locate(&mut self, tid: i32, pages: &[u64]) -> io::Result<Vec<i32>> {
        sys::move_pages(tid, pages, None)
    }
}

/// Where no call can be made in the program's name, only about it.
fn nobody() -> Live<'static> {
    Live {
        stopped: None,
        space: None,
        filters: Filters::default(),
    }
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
        }
    }

    /// Runs the program to its end, and what it leaves behind to theirs.
    pub fn run(mut self, waiting: &Waiting) -> io::Result<(End, Desk)> {
        self.desk.started(self.main, &mut nobody());
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
                libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK,
                _,
            ) => self.at_birth(tid),
            Wait::Event(..) => self.go_on(tid, 0),
        }
    }

    fn gone(&mut self, tid: i32, end: End) -> io::Result<()> {
        self.tracees.remove(&tid);
        self.early.remove(&tid);
        self.announced.remove(&tid);
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

    fn at_birth(&mut self, creator: i32) -> io::Result<()> {
        let tid = sys::event_message(creator)?;
        let tgid = self.tracees.get(&creator).map_or(creator, |t| t.tgid);
        let same = sys::is_thread_of(tgid, tid);
        self.desk.announced(creator, tid, same);
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

    /// `execve` returned: the program is mapped, nothing of it has run.
    fn executed(&mut self, tid: i32) -> io::Result<()> {
        let regs = sys::registers(tid)?;
        // A 32-bit program: threads are followed, its memory calls are not ours.
        const CS_64: u64 = 0x33;
        if regs.cs != CS_64 {
            self.desk
                .tally()
                .note("a 32-bit program was executed: only its threads are placed");
            return sys::resume(tid, Resume::Cont, 0);
        }
        let memory = Memory::open(tid)?;
        let known = Auxiliary::of(tid)?;
        let gadget = gadget(known.vdso, &memory).ok();
        let start = known.entry;
        let direct = start == regs.rip || start == 0;
        let mut byte = [0];
        if !direct {
            memory.read(start, &mut byte)?;
            memory.write(start, &[INT3])?;
        }
        let space = Space {
            memory,
            gadget,
            scratch: None,
            entry: (!direct).then_some((start, byte[0])),
            loading: false,
            sites: HashMap::new(),
            ahead: None,
            new_images: false,
        };
        self.spaces.insert(tid, space);
        if direct {
            let mut stopped = Stopped::new(tid)?;
            self.entered(tid, &mut stopped)?;
            stopped.finish()?;
        } else {
            let maps = maps(tid)?;
            let linker = maps.iter().find(|map| map.start == known.linker);
            let texts = maps.iter().filter(|map| {
                map.executable && linker.is_some_and(|linker| linker.file == map.file)
            });
            let mut watched = false;
            for text in texts {
                watched |= self.watch(tid, text, &self.calls_while_loading())?;
            }
            if let Some(space) = self.spaces.get_mut(&tid) {
                space.loading = !watched;
            }
        }
        self.go_on(tid, 0)
    }

    /// What is watched until the entry point: libraries that are mapped, and what their constructors do.
    fn calls_while_loading(&self) -> Vec<i64> {
        let calls = self.calls();
        let without_brk = calls.into_iter().filter(|&call| call != libc::SYS_brk);
        let mut calls: Vec<i64> = without_brk.collect();
        calls.push(libc::SYS_mmap);
        calls
    }

    /// What is watched from the entry point on.
    fn calls(&self) -> Vec<i64> {
        use ObjectKind::{Heap, Mapping, Shared, Stack};
        let mut calls = AFFINITY_CALLS.to_vec();
        if self.pages {
            if self.desk.plans(&[Mapping, Stack, Shared]) || self.desk.lacks_statics() {
                calls.extend(MAPPING_CALLS);
            }
            if self.desk.plans(&[Heap]) {
                calls.push(libc::SYS_brk);
            }
            if self.verify {
                calls.push(libc::SYS_munmap);
            }
        }
        calls
    }

    /// Sets breakpoints where the file of an executable mapping makes these calls. Whether there are any.
    fn watch(&mut self, tgid: i32, map: &Map, calls: &[i64]) -> io::Result<bool> {
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(false);
        };
        let mut any = false;
        for site in self.files.sites(tgid, map, &CALLS).iter() {
            let number = i64::from(site.number);
            if !calls.contains(&number) {
                continue;
            }
            let at = map.start + (site.at as u64 - map.offset);
            let mut found = [0; 2];
            space.memory.read(at, &mut found)?;
            if found != SYSCALL {
                // Ours already, or not what the file says.
                any |= space.sites.contains_key(&at);
                continue;
            }
            any = true;
            if let Some(scratch) = &mut space.scratch
                && number == libc::SYS_brk
                && site.adjacent
                && scratch.answerer().is_none()
                && let Some(answerer) = scratch.answer_brk(&space.memory, at - 5)?
            {
                space.sites.insert(answerer.trap, number);
                continue;
            }
            space.memory.write(at, &[INT3])?;
            space.sites.insert(at, number);
        }
        Ok(any)
    }

    /// At the entry point: everything is loaded. Sets the breakpoints, places what exists.
    fn entered(&mut self, tid: i32, stopped: &mut Stopped) -> io::Result<()> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let calls = self.calls();
        let maps = maps(tgid)?;
        let texts = |usual: bool| {
            maps.iter().filter(move |map| {
                map.executable && map.name.starts_with('/') && makes_calls(&map.name) == usual
            })
        };
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        space.loading = false;
        if let Some(gadget) = space.gadget
            && self.pages
        {
            let near = texts(true).chain(texts(false)).find(|map| {
                let sites = self.files.sites(tgid, map, &CALLS);
                sites
                    .iter()
                    .any(|site| i64::from(site.number) == libc::SYS_brk && site.adjacent)
                    && !is_linker(&map.name)
            });
            let first = near.and_then(|near| maps.iter().find(|map| map.file == near.file));
            let near = first.map_or(0, |map| map.start);
            space.scratch = Scratch::map(stopped, &space.memory, gadget, &maps, near)?;
        }
        let mut caught = false;
        for usual in [true, false] {
            for text in texts(usual) {
                // The linker has a `brk` that it does not use once there is a C library.
                let brk = libc::SYS_brk;
                let calls = calls.iter().copied();
                let wanted: Vec<i64> = calls
                    .filter(|&call| call != brk || !is_linker(&text.name))
                    .collect();
                caught |= self.watch(tgid, text, &wanted)?;
            }
            if caught {
                break;
            }
        }
        if !caught {
            let name = std::fs::read_link(format!("/proc/{tgid}/exe"));
            let name = name.map_or_else(|_| tgid.to_string(), |n| n.display().to_string());
            self.desk.tally().note(format!(
                "{name} makes system calls in a way that is not known here: memory it maps later and \
                 affinity it sets itself are not seen"
            ));
        }
        if self.pages {
            self.read_images(tid, stopped, false)?;
        } else {
            // Only the loader's were needed, to find the C library.
            self.leave(tgid, libc::SYS_mmap)?;
        }
        Ok(())
    }

    /// Removes the breakpoints of a call.
    fn leave(&mut self, tgid: i32, call: i64) -> io::Result<()> {
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        for (&site, _) in space.sites.iter().filter(|(_, number)| **number == call) {
            space.memory.write(site, &SYSCALL)?;
        }
        space.sites.retain(|_, number| *number != call);
        Ok(())
    }

    fn read_new_images(&mut self, tid: i32, stopped: &mut Stopped) -> io::Result<()> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        match self.spaces.get_mut(&tgid) {
            Some(space) if space.new_images && !space.loading => {
                space.new_images = false;
                if self.desk.lacks_statics() {
                    return self.read_images(tid, stopped, true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Tells the desk what is loaded; `late`: the linker may not have mapped all of it yet.
    fn read_images(&mut self, tid: i32, stopped: &mut Stopped, late: bool) -> io::Result<()> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        let maps = maps(tgid)?;
        let images = self.files.images(tgid, &maps);
        let writable: Option<Vec<(u64, u64)>> = late.then(|| {
            let maps = maps.iter().filter(|map| map.writable);
            maps.map(|map| (map.start, map.end)).collect()
        });
        let span = |name: &str| {
            let map = maps.iter().find(|map| map.name == name)?;
            Some((map.start, map.end))
        };
        let heap = start_of_break(tgid).map(|start| (start, span("[heap]").map_or(start, |h| h.1)));
        let mut act = Live {
            stopped: Some(stopped),
            space: self.spaces.get(&tgid),
            filters: self.filters,
        };
        self.desk.loaded(
            tid,
            &images,
            writable.as_deref(),
            heap,
            span("[stack]"),
            &mut act,
        );
        Ok(())
    }

    /// A system call's entry or exit, while every call stops.
    fn at_call(&mut self, tid: i32) -> io::Result<()> {
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

    fn is_affinity(&self, call: Call) -> bool {
        call.number == libc::SYS_sched_setaffinity
    }

    /// A SIGTRAP: ours if it is one of our breakpoints, else the program's.
    fn at_trap(&mut self, tid: i32) -> io::Result<()> {
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
    fn move_break(&mut self, tid: i32, wish: u64, stopped: &mut Stopped) -> io::Result<i64> {
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
    fn forbids(&mut self, tid: i32, call: Call) -> bool {
        call.number == libc::SYS_sched_setaffinity && !self.desk.may_set_affinity(target(tid, call))
    }

    fn before_unmapping(&mut self, tid: i32, call: Call) {
        let (start, end) = (call.args[0], call.args[0].saturating_add(call.args[1]));
        if self.desk.cares_about(tid, start, end) {
            self.desk.unmapping(tid, start, end, &mut nobody());
        }
    }

    /// A watched call returned `answer`.
    fn after(
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
                    protection: a2 as i32,
                    flags,
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
    fn watch_library(&mut self, tgid: i32, address: u64, file: i32) -> io::Result<()> {
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

/// Whether a file is glibc's dynamic linker (musl's is its C library, too).
fn is_linker(path: &str) -> bool {
    base_name(path).starts_with("ld-linux")
}

/// The thread that an affinity call is about.
fn target(caller: i32, call: Call) -> i32 {
    match call.args[0] as i32 {
        0 => caller,
        other => other,
    }
}

/// Where the program break began: field 47 of `/proc/PID/stat`.
fn start_of_break(tgid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tgid}/stat")).ok()?;
    // The command's name may hold spaces and parentheses; fields count from behind its last `)`.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(44)?.parse().ok()
}
