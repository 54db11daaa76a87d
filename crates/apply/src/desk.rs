//! Decides what to do when a thread starts or memory appears: looks it up in the plan and tells an
//! [`Actuator`]. Knows nothing of ptrace; tests run it against an actuator that only takes notes.

use numaloc_model::plan::ObjectKey;
use numaloc_model::profile::ObjectKind;
use std::collections::{HashMap, HashSet};
use std::io;

use crate::book::Book;
use crate::identity::{Born, Creator, MAIN_STACK_BYTES, MapCall, Orders, mapped};
use crate::image::Loaded;
use crate::tally::{Tally, ThreadState};

/// What changes the machine, or pretends to.
pub trait Actuator {
    /// Restricts a thread to PUs (kernel numbers).
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()>;
    /// The PUs a thread may run on.
    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>>;
    /// Makes memory `(start, end, node)` of the stopped thread's process come from `node` from now on;
    /// 0 or an errno for each.
    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32>;
    /// Moves pages of a process that exist already; one node or negative errno each.
    fn relocate(&mut self, tgid: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>>;
    /// Where pages of the process of thread `tid` are; one node or negative errno each.
    fn locate(&mut self, tid: i32, pages: &[u64]) -> io::Result<Vec<i32>>;
}

/// What the user asked for beside the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Read back where every planned page is before it goes away.
    pub verify: bool,
    /// Overrule the program's own `sched_setaffinity`.
    pub enforce: bool,
}

/// An object of a plan in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    object: usize,
    base: u64,
    /// Where its memory is; beyond that it is gone.
    start: u64,
    end: u64,
}

/// An object found in a process: its index in the plan, its first byte, and where its memory is.
type Found = (usize, u64, (u64, u64));

#[derive(Clone, Debug, Default)]
struct Process {
    first: String,
    /// Objects of the plan seen so far.
    found: HashSet<usize>,
    /// How many of its planned mappings have not been.
    awaited: usize,
    threads: HashSet<i32>,
    orders: Orders,
    live: Vec<Live>,
    /// Anonymous mappings that a new thread may turn out to use as its stack.
    stacks: Vec<(u64, u64)>,
    heap: Option<(usize, u64, u64)>,
}

struct Thread {
    creator: Creator,
    tgid: i32,
    planned: Option<(usize, u32)>,
    own_affinity: bool,
}

impl Thread {
    /// The path of the next thread or process it makes.
    fn child(&mut self, same_process: bool) -> String {
        if same_process {
            self.creator.next_thread()
        } else {
            self.creator.next_process()
        }
    }
}

/// See the module.
pub struct Desk {
    book: Book,
    wishes: Wishes,
    allowed: Vec<u32>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    stack_sizes: HashSet<u64>,
    /// Paths of threads whose creation was reported and that have not stopped yet.
    announced: HashMap<i32, String>,
    /// Planned objects that mappings make, by the path of their process.
    mappings: HashMap<String, usize>,
    tally: Tally,
}

/// Whether an object comes from a call that maps memory.
fn is_mapped(kind: ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::Mapping | ObjectKind::Shared | ObjectKind::Stack
    )
}

/// The path of the process that a thread belongs to: `0/1` of `0/1.2.3`.
fn process_path(thread: &str) -> &str {
    let last = thread.rfind('/').map_or(0, |at| at + 1);
    let end = thread[last..]
        .find('.')
        .map_or(thread.len(), |at| last + at);
    &thread[..end]
}

/// Pages asked about in one system call.
const CHUNK: usize = 16 * 1024;

impl Desk {
    /// A desk for a plan; `allowed` are the PUs the program would have without a plan.
    pub fn new(book: Book, wishes: Wishes, allowed: Vec<u32>) -> Self {
        let stack_sizes = book
            .objects()
            .filter(|(_, key)| key.kind == ObjectKind::Stack)
            .map(|(_, key)| key.size)
            .collect();
        let mut mappings: HashMap<String, usize> = HashMap::new();
        for (_, key) in book.objects().filter(|(_, key)| is_mapped(key.kind)) {
            let process = process_path(key.creator.as_deref().unwrap_or("0"));
            *mappings.entry(process.to_owned()).or_default() += 1;
        }
        Self {
            mappings,
            tally: Tally::new(&book),
            book,
            wishes,
            allowed,
            threads: HashMap::new(),
            processes: HashMap::new(),
            stack_sizes,
            announced: HashMap::new(),
        }
    }

    /// What has been done so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// The end: what was done in all.
    pub fn into_tally(self) -> Tally {
        self.tally
    }

    /// The PUs the program believes to have.
    pub fn allowed(&self) -> &[u32] {
        &self.allowed
    }

    /// The process of a known thread.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid).map(|thread| thread.tgid)
    }

    /// The program's first thread.
    pub fn started(&mut self, tid: i32, act: &mut dyn Actuator) {
        let process = self.process("0".to_owned());
        self.processes.insert(tid, process);
        self.enter(tid, tid, Creator::new("0"), act);
    }

    /// `creator` is making `tid`. Names follow the order of these reports: the first stops of several new
    /// threads, of which [`Self::created`] tells, come in any order.
    pub fn announced(&mut self, creator: i32, tid: i32, same_process: bool) {
        if let Some(by) = self.threads.get_mut(&creator) {
            self.announced.insert(tid, by.child(same_process));
        }
    }

    /// A process in which nothing has been found yet.
    fn process(&self, first: String) -> Process {
        Process {
            awaited: self.mappings.get(&first).copied().unwrap_or(0),
            first,
            ..Process::default()
        }
    }

    /// Whether a call that maps memory can still make a planned object in a thread's process.
    pub fn awaits_mappings(&self, tid: i32) -> bool {
        self.process_of(tid)
            .and_then(|tgid| self.processes.get(&tgid))
            .is_some_and(|process| process.awaited > 0)
    }

    /// `creator` made `tid`: a thread of its process, or a process. `stack` is the new thread's stack
    /// pointer. The new thread is stopped before its first instruction.
    pub fn created(
        &mut self,
        creator: i32,
        tid: i32,
        same_process: bool,
        stack: u64,
        act: &mut dyn Actuator,
    ) {
        let Some(by) = self.threads.get_mut(&creator) else {
            return self.stranger(tid, act);
        };
        let tgid = by.tgid;
        let path = match self.announced.remove(&tid) {
            Some(path) => path,
            None => by.child(same_process),
        };
        if same_process {
            self.enter(tid, tgid, Creator::new(path.clone()), act);
            self.found_stack(tgid, &path, stack, act);
        } else {
            // Memory policies and what was placed are inherited; new objects have new names.
            let process = self.process(path.clone());
            self.processes.insert(tid, process);
            self.enter(tid, tid, Creator::new(path), act);
        }
    }

    /// A thread whose creator is not known (it died first): not in the plan.
    pub fn stranger(&mut self, tid: i32, act: &mut dyn Actuator) {
        let allowed = self.allowed.clone();
        let _ = act.pin(tid, &allowed);
    }

    fn enter(&mut self, tid: i32, tgid: i32, creator: Creator, act: &mut dyn Actuator) {
        let planned = self.book.thread(creator.path());
        if let Some(process) = self.processes.get_mut(&tgid) {
            process.threads.insert(tid);
        }
        match planned {
            Some((at, pu)) => {
                let state = match act.pin(tid, &[pu]) {
                    Ok(()) => ThreadState::Placed,
                    Err(error) => ThreadState::Refused(error.raw_os_error().unwrap_or(0), pu),
                };
                if state != ThreadState::Placed {
                    // Better anywhere than on the creator's PU.
                    let _ = act.pin(tid, &self.allowed);
                }
                self.tally.thread(at, state);
            }
            None => {
                // Affinity is inherited: without this it would crowd its creator's PU.
                let _ = act.pin(tid, &self.allowed);
                self.tally.unplanned_thread(creator.path());
            }
        }
        self.threads.insert(
            tid,
            Thread {
                creator,
                tgid,
                planned,
                own_affinity: false,
            },
        );
    }

    fn found_stack(&mut self, tgid: i32, path: &str, pointer: u64, act: &mut dyn Actuator) {
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let Some(at) = process
            .stacks
            .iter()
            .position(|&(start, end)| (start..=end).contains(&pointer))
        else {
            return;
        };
        let (start, end) = process.stacks.swap_remove(at);
        let born = Born {
            kind: ObjectKind::Stack,
            name: "[stack]".to_owned(),
            size: end - start,
            base: start,
        };
        let key = process.orders.name(&born, path);
        if let Some(object) = self.book.object(&key) {
            self.settle(tgid, &[(object, start, (start, end))], true, act);
        }
    }

    /// `execve` of a process: `former` called it, all other threads are gone, `tgid` goes on.
    pub fn executed(&mut self, tgid: i32, former: i32) {
        let first = self.processes.get(&tgid).map(|p| p.first.clone());
        // The first thread's counters go on; if another thread called, its own are lost with it.
        let keep = self
            .threads
            .remove(&tgid)
            .or_else(|| self.threads.remove(&former));
        self.threads.retain(|_, thread| thread.tgid != tgid);
        if let (Some(thread), Some(first)) = (keep, first) {
            self.threads.insert(tgid, thread);
            let mut process = self.process(first);
            process.threads.insert(tgid);
            self.processes.insert(tgid, process);
        }
    }

    /// A successful `mmap` returned `address`. Files that are loaded ELF images are not reported here.
    pub fn mapped(&mut self, tid: i32, call: &MapCall, address: u64, act: &mut dyn Actuator) {
        let Some(born) = mapped(call, address) else {
            return;
        };
        if call.file.is_none() && self.stack_sizes.contains(&born.size) {
            let tgid = self.threads.get(&tid).map_or(0, |thread| thread.tgid);
            if let Some(process) = self.processes.get_mut(&tgid) {
                process.stacks.push((born.base, born.base + born.size));
            }
        }
        self.born(tid, &born, act);
    }

    /// System V memory was attached.
    pub fn attached(&mut self, tid: i32, size: u64, address: u64, act: &mut dyn Actuator) {
        let born = Born {
            kind: ObjectKind::Shared,
            name: "[shm]".to_owned(),
            size: size.next_multiple_of(4096),
            base: address,
        };
        self.born(tid, &born, act);
    }

    fn born(&mut self, tid: i32, born: &Born, act: &mut dyn Actuator) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        let tgid = thread.tgid;
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let key = process.orders.name(born, thread.creator.path());
        if let Some(object) = self.book.object(&key) {
            // Shared memory may have been touched by another process already.
            let existing = born.kind == ObjectKind::Shared;
            let span = (born.base, born.base + born.size);
            self.settle(tgid, &[(object, born.base, span)], existing, act);
        }
    }

    /// The break is at `end` now.
    pub fn broke(&mut self, tid: i32, end: u64, act: &mut dyn Actuator) {
        let Some(tgid) = self.process_of(tid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let Some((object, base, bound)) = &mut process.heap else {
            return;
        };
        let (object, base, from) = (*object, *base, *bound);
        *bound = end.max(base);
        if end > from {
            self.settle(tgid, &[(object, base, (from, end))], false, act);
        } else {
            self.cut(tgid, end, from, act);
        }
    }

    /// Everything the process has loaded, its break's start and its first stack. While the linker is at work,
    /// `writable` has the ranges that are, and statics elsewhere are still to be mapped.
    pub fn loaded(
        &mut self,
        tid: i32,
        images: &[Loaded],
        writable: Option<&[(u64, u64)]>,
        heap: Option<(u64, u64)>,
        stack: Option<(u64, u64)>,
        act: &mut dyn Actuator,
    ) {
        let Some(tgid) = self.process_of(tid) else {
            return;
        };
        let Some(process) = self.processes.get(&tgid) else {
            return;
        };
        let known: HashSet<usize> = process.live.iter().map(|live| live.object).collect();
        let creator = Some(process.first.clone());
        let key = |kind, name: String, size| ObjectKey {
            kind,
            name,
            creator: creator.clone(),
            size,
            order: 0,
        };
        let mut found = Vec::new();
        for loaded in images {
            let image = &loaded.image;
            for (section, name) in image
                .sections
                .iter()
                .flat_map(|s| image.names.iter().map(move |name| (s, name)))
            {
                let full = format!("{name}:{}", section.name);
                if let Some(object) = self
                    .book
                    .object(&key(ObjectKind::Static, full, section.size))
                {
                    let base = loaded.bias.wrapping_add(section.base);
                    let end = base.saturating_add(section.size);
                    let inside = |&(s, e): &(u64, u64)| s <= base && base < e;
                    if writable.is_none_or(|ranges| ranges.iter().any(inside)) {
                        found.push((object, base, (base, end)));
                    }
                }
            }
        }
        if let Some((start, end)) = stack {
            let stack = key(ObjectKind::Stack, "[stack]".to_owned(), MAIN_STACK_BYTES);
            if let Some(object) = self.book.object(&stack) {
                found.push((object, end - MAIN_STACK_BYTES, (start, end)));
            }
        }
        found.retain(|(object, ..)| !known.contains(object));
        for (_, _, (start, end)) in &mut found {
            // Whole pages: a section shares its first and last page with its neighbours.
            *start -= *start % 4096;
            *end = end.next_multiple_of(4096);
        }
        let heap_key = key(ObjectKind::Heap, "[heap]".to_owned(), 0);
        let heap = heap.zip(self.book.object(&heap_key));
        let texts = self.book.objects().filter(|(_, key)| {
            let named = |loaded: &Loaded| loaded.image.names.contains(&key.name);
            key.kind == ObjectKind::Mapping && images.iter().any(named)
        });
        let texts: Vec<usize> = texts.map(|(object, _)| object).collect();
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        if let Some(((start, end), object)) = heap
            && process.heap.is_none()
        {
            let base = start.next_multiple_of(4096);
            process.heap = Some((object, base, end.max(base)));
            found.push((object, base, (base, end.max(base))));
        }
        for object in texts {
            if process.found.insert(object) {
                process.awaited = process.awaited.saturating_sub(1);
            }
            self.tally.text(object);
        }
        self.settle(tgid, &found, true, act);
    }

    /// Whether the plan has pages of objects of these kinds.
    pub fn plans(&self, kinds: &[ObjectKind]) -> bool {
        self.book
            .objects()
            .any(|(_, key)| kinds.contains(&key.kind))
    }

    /// Where the planned part of the heap of a thread's process ends.
    pub fn planned_heap_end(&self, tid: i32) -> Option<u64> {
        let process = self.processes.get(&self.process_of(tid)?)?;
        let (object, base, _) = process.heap?;
        let pages = self.book.runs(object).last()?.end;
        Some(base.saturating_add(pages.saturating_mul(self.book.page_size())))
    }

    /// Whether statics of the plan have not been seen yet in a process (a library may come later).
    pub fn lacks_statics(&self) -> bool {
        self.book
            .objects()
            .any(|(at, key)| key.kind == ObjectKind::Static && !self.tally.found(at))
    }

    /// Binds the planned ranges of objects, and moves what exists of them already.
    fn settle(&mut self, tgid: i32, found: &[Found], existing: bool, act: &mut dyn Actuator) {
        let page_size = self.book.page_size();
        let mut ranges = Vec::new();
        let mut owners = Vec::new();
        for &(object, base, (start, end)) in found {
            self.tally.page(object).found = true;
            ranges.extend(self.book.ranges(object, base, start, end));
            owners.resize(ranges.len(), object);
        }
        let answers = act.bind(&ranges);
        let mut bound = Vec::new();
        for ((&range, &object), &errno) in ranges.iter().zip(&owners).zip(&answers) {
            let pages = (range.1 - range.0).div_ceil(page_size);
            let state = self.tally.page(object);
            if errno == 0 {
                state.bound += pages;
                bound.push((object, range));
            } else {
                state.refuse(errno, pages);
            }
        }
        if existing {
            self.move_existing(tgid, &bound, act);
        }
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        for &(object, base, (start, end)) in found {
            let kind = self.book.key(object).kind;
            if process.found.insert(object) && is_mapped(kind) {
                process.awaited = process.awaited.saturating_sub(1);
            }
            let live = Live {
                object,
                base,
                start,
                end,
            };
            match process.live.iter_mut().find(|live| live.object == object) {
                Some(old) if old.base == base => old.end = old.end.max(end),
                Some(old) => *old = live,
                None => process.live.push(live),
            }
        }
    }

    /// Moves the pages of these ranges of objects that exist on other nodes. Asking where pages are is
    /// cheap; moving makes the kernel wait for every PU, so all are moved together.
    fn move_existing(
        &mut self,
        tgid: i32,
        ranges: &[(usize, (u64, u64, u32))],
        act: &mut dyn Actuator,
    ) {
        let mut astray = Vec::new();
        let mut all = ranges.iter().flat_map(|&(object, (start, end, node))| {
            (start..end)
                .step_by(4096)
                .map(move |page| (object, page, node))
        });
        loop {
            let chunk: Vec<(usize, u64, u32)> = all.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                break;
            }
            let pages: Vec<u64> = chunk.iter().map(|&(_, page, _)| page).collect();
            match act.locate(tgid, &pages) {
                Ok(status) => {
                    for (&(object, page, node), status) in chunk.iter().zip(status) {
                        if status >= 0 && status != node as i32 {
                            astray.push((object, page, node));
                        } else {
                            self.tally.page(object).relocated(status, node);
                        }
                    }
                }
                Err(error) => self.refused(&chunk, &error),
            }
        }
        for chunk in astray.chunks(CHUNK) {
            let pages: Vec<u64> = chunk.iter().map(|&(_, page, _)| page).collect();
            let nodes: Vec<i32> = chunk.iter().map(|&(.., node)| node as i32).collect();
            match act.relocate(tgid, &pages, &nodes) {
                Ok(status) => {
                    for (&(object, _, node), status) in chunk.iter().zip(status) {
                        self.tally.page(object).relocated(status, node);
                    }
                }
                Err(error) => self.refused(chunk, &error),
            }
        }
    }

    fn refused(&mut self, pages: &[(usize, u64, u32)], error: &io::Error) {
        for &(object, ..) in pages {
            let state = self.tally.page(object);
            state.refuse(error.raw_os_error().unwrap_or(0), 1);
        }
    }

    /// `mremap` moved or resized memory.
    pub fn remapped(&mut self, tid: i32, old: (u64, u64), new: (u64, u64), act: &mut dyn Actuator) {
        let Some(tgid) = self.process_of(tid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let Some(live) = process.live.iter_mut().find(|live| live.start == old.0) else {
            return;
        };
        // Moved pages keep their policy; what was added needs one.
        live.base = live.base.wrapping_sub(old.0).wrapping_add(new.0);
        (live.start, live.end) = new;
        let (object, base) = (live.object, live.base);
        if new.1 - new.0 > old.1 - old.0 {
            let added = (new.0 + (old.1 - old.0), new.1);
            self.settle(tgid, &[(object, base, added)], false, act);
        }
    }

    /// Whether unmapping `start..end` takes planned pages away that are to be verified first.
    pub fn cares_about(&self, tid: i32, start: u64, end: u64) -> bool {
        self.wishes.verify
            && self
                .process_of(tid)
                .and_then(|tgid| self.processes.get(&tgid))
                .is_some_and(|p| p.live.iter().any(|l| l.start < end && start < l.end))
    }

    /// Memory `start..end` is about to go away.
    pub fn unmapping(&mut self, tid: i32, start: u64, end: u64, act: &mut dyn Actuator) {
        if let Some(tgid) = self.process_of(tid) {
            self.cut(tgid, start, end, act);
        }
    }

    fn cut(&mut self, tgid: i32, start: u64, end: u64, act: &mut dyn Actuator) {
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let mut gone = Vec::new();
        process.live.retain_mut(|live| {
            let lost = (live.start.max(start), live.end.min(end));
            if lost.0 >= lost.1 {
                return true;
            }
            gone.push((*live, lost));
            if lost.1 == live.end {
                live.end = lost.0;
            } else if lost.0 == live.start {
                live.start = lost.1;
            }
            // A hole in the middle stays part of it: its pages will be found absent.
            live.start < live.end
        });
        process.stacks.retain(|&(s, e)| e <= start || end <= s);
        for (live, lost) in gone {
            self.check(tgid, live, lost, act);
        }
    }

    /// Reads back where the planned pages of an object within `span` are, in the process of `tid`.
    fn check(&mut self, tid: i32, live: Live, span: (u64, u64), act: &mut dyn Actuator) {
        if !self.wishes.verify {
            return;
        }
        let state = self.tally.page(live.object);
        state.checked = true;
        for (start, end, node) in self.book.ranges(live.object, live.base, span.0, span.1) {
            for pages in addresses(start, end).chunks(CHUNK) {
                match act.locate(tid, pages) {
                    Ok(status) => status.iter().for_each(|&s| state.seen(s, node)),
                    Err(error) => {
                        state.refuse(error.raw_os_error().unwrap_or(0), pages.len() as u64);
                    }
                }
            }
        }
    }

    /// Whether the program may set the affinity of `target` itself. Takes note of it either way.
    pub fn may_set_affinity(&mut self, target: i32) -> bool {
        let Some(thread) = self.threads.get_mut(&target) else {
            return true;
        };
        if let Some((at, _)) = thread.planned {
            self.tally.own_affinity(at, self.wishes.enforce);
            if self.wishes.enforce {
                return false;
            }
        }
        thread.own_affinity = true;
        true
    }

    /// Whether the program should be told the unrestricted PUs when it asks for `target`'s affinity.
    pub fn hides_affinity(&self, target: i32) -> bool {
        self.threads
            .get(&target)
            .is_some_and(|thread| thread.planned.is_some() && !thread.own_affinity)
    }

    /// A thread is about to end; its memory and affinity can still be read.
    pub fn ending(&mut self, tid: i32, act: &mut dyn Actuator) {
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        if let Some((at, pu)) = thread.planned
            && let Ok(mask) = act.affinity(tid)
        {
            self.tally.read_back(at, pu, &mask);
        }
        let tgid = thread.tgid;
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        process.threads.remove(&tid);
        if process.threads.is_empty() {
            let live = std::mem::take(&mut process.live);
            for live in live {
                // By this thread: a first thread that ended before has no memory any more.
                self.check(tid, live, (live.start, live.end), act);
            }
            self.processes.remove(&tgid);
        }
    }
}

fn addresses(start: u64, end: u64) -> Vec<u64> {
    (start..end).step_by(4096).collect()
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
