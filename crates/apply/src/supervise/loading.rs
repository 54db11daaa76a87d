//! From `execve` to the entry point and beyond: which calls are intercepted where, and what is loaded.

use numaloc_model::profile::ObjectKind;
use numaloc_sys::affinity;
use std::collections::{HashMap, HashSet};
use std::io;

use super::live::{Live, status_of};
use super::{Space, Supervisor};
use numaloc_identity::object::{HEAP, STACK, base_name};

use crate::gate::Traps;
use crate::image::{Map, makes_calls, maps};
use crate::ptrace::{self, Resume};
use crate::scratch::Scratch;
use crate::tracee::{Auxiliary, INT3, Memory, SYSCALL, Stopped, gadget};

/// Calls on affinity, `ptrace` and `prctl`: intercepted in every run.
/// A program that is about to filter its calls announces that with `prctl`: its gates are removed.
const ALWAYS: [i64; 4] = [
    affinity::SET_CALL,
    affinity::GET_CALL,
    libc::SYS_ptrace,
    libc::SYS_prctl,
];
/// Calls that map memory, intercepted when the plan has pages of mappings, stacks or shared memory.
const MAPPING_CALLS: [i64; 3] = [libc::SYS_mmap, libc::SYS_mremap, libc::SYS_shmat];
/// Every call that is ever intercepted.
const CALLS: [u32; 9] = [
    libc::SYS_ptrace as u32,
    libc::SYS_prctl as u32,
    affinity::SET_CALL as u32,
    affinity::GET_CALL as u32,
    libc::SYS_mmap as u32,
    libc::SYS_mremap as u32,
    libc::SYS_shmat as u32,
    libc::SYS_brk as u32,
    libc::SYS_munmap as u32,
];

impl Supervisor {
    /// `execve` returned: the program is mapped but has not executed anything.
    pub(super) fn executed(&mut self, tid: i32) -> io::Result<()> {
        let regs = ptrace::registers(tid)?;
        // A 32-bit program: its threads are followed, but its memory calls are not supported.
        const CS_64: u64 = 0x33;
        if regs.cs != CS_64 {
            self.controller
                .tally()
                .note("a 32-bit program was executed: only its threads are placed");
            return ptrace::resume(tid, Resume::Cont, 0);
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
            gates: HashMap::new(),
            traps: Traps::of(&status_of(tid)),
            removed: HashSet::new(),
            kernel_break: None,
            new_images: false,
            breakpoints_removed: false,
        };
        self.spaces.insert(tid, space);
        self.renamed(tid);
        if direct {
            let mut stopped = Stopped::new(tid)?;
            self.entered(tid, &mut stopped)?;
            self.set_up_marks(tid, &mut stopped);
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

    /// The calls intercepted until the entry point: those that map libraries, and those of constructors.
    pub(super) fn calls_while_loading(&self) -> Vec<i64> {
        let calls = self.calls();
        let without_brk = calls.into_iter().filter(|&call| call != libc::SYS_brk);
        let mut calls: Vec<i64> = without_brk.collect();
        calls.push(libc::SYS_mmap);
        calls
    }

    /// The calls intercepted from the entry point on.
    pub(super) fn calls(&self) -> Vec<i64> {
        use ObjectKind::{Heap, Mapping, Shared, Stack};
        let mut calls = ALWAYS.to_vec();
        if self.pages {
            let has_mappings = self.controller.plans(&[Mapping, Stack, Shared]);
            if has_mappings || self.controller.has_segments() || self.controller.lacks_statics() {
                calls.extend(MAPPING_CALLS);
            }
            if self.controller.plans(&[Heap]) {
                calls.push(libc::SYS_brk);
            }
            if self.verify {
                calls.push(libc::SYS_munmap);
            }
        }
        calls
    }

    /// Sets breakpoints on the instructions of an executable mapping that make these calls. Returns whether any exist.
    pub(super) fn watch(&mut self, tgid: i32, map: &Map, calls: &[i64]) -> io::Result<bool> {
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
            let is_watched = space.sites.contains_key(&at);
            if found != SYSCALL && !is_watched {
                // Memory that differs from the file.
                continue;
            }
            any = true;
            if let Some(scratch) = &mut space.scratch
                && number == libc::SYS_brk
                && site.between == 0
                && scratch.brk_handler().is_none()
                && let Some(brk_handler) = scratch.install_brk_handler(&space.memory, at - 5)?
            {
                space.sites.insert(brk_handler.trap, number);
                continue;
            }
            // The breakpoint at the instruction itself stays for threads that have passed the jump to a gate.
            space.memory.write(at, &[INT3])?;
            space.sites.insert(at, number);
            let has_gate = space.gates.values().any(|&(known, _)| known == at);
            if let Some(scratch) = &mut space.scratch
                && site.between == 0
                && !has_gate
                && let Some(trap) = scratch.install_gate(&space.memory, at, site)?
            {
                space.sites.insert(trap, number);
                space.gates.insert(trap, (at, *site));
            }
        }
        Ok(any)
    }

    /// Replaces the gates of a process by plain breakpoints.
    pub(super) fn remove_gates(&mut self, tgid: i32) -> io::Result<()> {
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        let Some(scratch) = space.scratch else {
            return Ok(());
        };
        for (at, site) in space.gates.values() {
            if space.sites.contains_key(at) {
                scratch.remove_gate(&space.memory, *at, site)?;
            }
        }
        Ok(())
    }

    /// At the entry point, when everything is loaded: sets the breakpoints and places existing pages.
    pub(super) fn entered(&mut self, tid: i32, stopped: &mut Stopped) -> io::Result<()> {
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
        if let Some(gadget) = space.gadget {
            let near = texts(true).chain(texts(false)).find(|map| {
                let sites = self.files.sites(tgid, map, &CALLS);
                sites
                    .iter()
                    .any(|site| i64::from(site.number) == libc::SYS_brk && site.between == 0)
                    && !is_linker(&map.name)
            });
            let first = near.and_then(|near| maps.iter().find(|map| map.file == near.file));
            let near = first.map_or(0, |map| map.start);
            space.scratch = Scratch::map(stopped, &space.memory, gadget, &maps, near)?;
        }
        let mut caught = false;
        for usual in [true, false] {
            for text in texts(usual) {
                // The dynamic linker contains a `brk` that it does not use once the C library is loaded.
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
            self.controller.tally().note(format!(
                "{name} makes system calls in a way that is not known here: memory it maps later and \
                 affinity it sets itself are not seen"
            ));
        }
        self.look(tid, Some(&mut *stopped));
        if self.pages {
            self.read_images(tid, stopped, false)?;
        } else {
            // The loader's breakpoints were only needed to find the C library.
            self.leave(tgid, libc::SYS_mmap)?;
        }
        Ok(())
    }

    /// Removes the breakpoints of a call.
    pub(super) fn leave(&mut self, tgid: i32, call: i64) -> io::Result<()> {
        let Some(space) = self.spaces.get_mut(&tgid) else {
            return Ok(());
        };
        for (&site, _) in space.sites.iter().filter(|(_, number)| **number == call) {
            space.memory.write(site, &SYSCALL)?;
            space.removed.insert(site);
        }
        if let Some(scratch) = space.scratch {
            let left = space.gates.values();
            for (at, site) in left.filter(|(at, _)| space.sites.get(at) == Some(&call)) {
                scratch.remove_gate(&space.memory, *at, site)?;
            }
        }
        space.sites.retain(|_, number| *number != call);
        Ok(())
    }

    pub(super) fn read_new_images(&mut self, tid: i32, stopped: &mut Stopped) -> io::Result<()> {
        let tgid = self.tracees.get(&tid).map_or(tid, |t| t.tgid);
        match self.spaces.get_mut(&tgid) {
            Some(space) if space.new_images && !space.loading => {
                space.new_images = false;
                if self.controller.lacks_statics() {
                    return self.read_images(tid, stopped, true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reports to the controller what is loaded; `late`: the dynamic linker may still be mapping.
    pub(super) fn read_images(
        &mut self,
        tid: i32,
        stopped: &mut Stopped,
        late: bool,
    ) -> io::Result<()> {
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
        let heap = start_of_break(tgid).map(|start| (start, span(HEAP).map_or(start, |h| h.1)));
        let mut act = Live {
            stopped: Some(stopped),
            space: self.spaces.get(&tgid),
            filters: self.filters,
        };
        self.controller.loaded(
            tid,
            &images,
            writable.as_deref(),
            heap,
            span(STACK),
            &mut act,
        );
        Ok(())
    }
}

/// Whether a file is glibc's dynamic linker (with musl, the C library is the linker).
fn is_linker(path: &str) -> bool {
    base_name(path).starts_with("ld-linux")
}

/// Start of the program break: field 47 of `/proc/PID/stat`.
fn start_of_break(tgid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tgid}/stat")).ok()?;
    // The command's name may contain spaces and parentheses; fields are counted after its last `)`.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(44)?.parse().ok()
}
