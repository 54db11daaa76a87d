//! Memory that appears, grows, moves and goes away, matched with the objects of the plan.

use numaloc_identity::object::PAGE_BYTES;
use numaloc_identity::{MapCall, NewObject};
use numaloc_model::profile::ObjectKind;
use std::collections::HashSet;

use super::{Actuator, Controller};
use crate::image::Loaded;

impl Controller {
    /// Whether a call that maps memory can still make a planned object in a thread's process.
    pub fn awaits_mappings(&self, tid: i32) -> bool {
        self.process_of(tid)
            .and_then(|tgid| self.processes.get(&tgid))
            .is_some_and(|process| process.awaited > 0)
            || self.has_segments()
    }

    /// Whether mappings get a policy by their role.
    pub fn has_segments(&self) -> bool {
        self.roster().is_some_and(|roster| roster.has_segments())
    }

    pub(super) fn found_stack(
        &mut self,
        tgid: i32,
        path: &str,
        pointer: u64,
        act: &mut dyn Actuator,
    ) {
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
        let key = process.orders.key(&NewObject::stack(start, end), path);
        if let Some(object) = self.index.object(&key) {
            self.place(tgid, &[(object, start, (start, end))], true, act);
        }
    }

    /// A successful `mmap` returned `address`. Files that are loaded ELF images are not reported here.
    pub fn mapped(&mut self, tid: i32, call: &MapCall, address: u64, act: &mut dyn Actuator) {
        let Some(object) = NewObject::of_map(call, address) else {
            return;
        };
        if call.file.is_none() && self.stack_sizes.contains(&object.size) {
            let tgid = self.threads.get(&tid).map_or(0, |thread| thread.tgid);
            if let Some(process) = self.processes.get_mut(&tgid) {
                process
                    .stacks
                    .push((object.base, object.base + object.size));
            }
        }
        self.appeared(tid, &object, act);
    }

    /// System V memory of `size` bytes was attached at `address`.
    pub fn attached(&mut self, tid: i32, size: u64, address: u64, act: &mut dyn Actuator) {
        if let Some(object) = NewObject::attached(size, address) {
            self.appeared(tid, &object, act);
        }
    }

    fn appeared(&mut self, tid: i32, new: &NewObject<'_>, act: &mut dyn Actuator) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        let tgid = thread.tgid;
        if self.roster.is_some() {
            return self.appeared_by_role(tid, new, act);
        }
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        let key = process.orders.key(new, thread.creator.path());
        if let Some(object) = self.index.object(&key) {
            // Another process may have touched shared memory already.
            let existing = new.kind == ObjectKind::Shared;
            let span = (new.base, new.base.saturating_add(new.size));
            self.place(tgid, &[(object, new.base, span)], existing, act);
        }
    }

    /// The program break moved to `end`.
    pub fn break_moved(&mut self, tid: i32, end: u64, act: &mut dyn Actuator) {
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
            self.place(tgid, &[(object, base, (from, end))], false, act);
        } else {
            self.cut(tgid, end, from, act);
        }
    }

    /// Reports what the process has loaded, the start of its break and its first stack. While the dynamic linker is
    /// still loading, `writable` holds the ranges mapped so far, in the order of their addresses; statics that are not
    /// within them will be mapped, or mapped again.
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
        let creator = process.first.clone();
        let mut found = Vec::new();
        for loaded in images {
            let image = &loaded.image;
            for (section, name) in image
                .sections
                .iter()
                .flat_map(|s| image.names.iter().map(move |name| (s, name)))
            {
                let base = loaded.bias.wrapping_add(section.base);
                let new = NewObject::section(name, &section.name, section.size, base);
                if let Some(object) = self.index.object(&new.first_key(&creator)) {
                    let end = base.saturating_add(section.size);
                    if writable.is_none_or(|ranges| is_within(ranges, base, end)) {
                        found.push((object, base, (base, end)));
                    }
                }
            }
        }
        if let Some((start, end)) = stack {
            let stack = NewObject::main_stack(end);
            if let Some(object) = self.index.object(&stack.first_key(&creator)) {
                found.push((object, stack.base, (start, end)));
            }
        }
        found.retain(|(object, ..)| !known.contains(object));
        for (_, _, (start, end)) in &mut found {
            // Rounded to whole pages: a section shares its first and last page with its neighbours.
            *start -= *start % PAGE_BYTES;
            *end = end.next_multiple_of(PAGE_BYTES);
        }
        let heap = heap.map(|(start, end)| (NewObject::heap(start), end));
        let heap = heap.and_then(|(new, end)| {
            let object = self.index.object(&new.first_key(&creator))?;
            Some((new.base, end, object))
        });
        let texts = self.index.objects().filter(|(_, key)| {
            let named = |loaded: &Loaded| loaded.image.names.contains(&key.name);
            key.kind == ObjectKind::Mapping && images.iter().any(named)
        });
        let texts: Vec<usize> = texts.map(|(object, _)| object).collect();
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        if let Some((base, end, object)) = heap {
            // Constructors of libraries may have let it grow since it was reported first.
            let bound = process.heap.map_or(base, |(_, _, bound)| bound);
            if process.heap.is_none() || end > bound.next_multiple_of(PAGE_BYTES) {
                process.heap = Some((object, base, end.max(base)));
                found.push((object, base, (bound, end.max(base))));
            }
        }
        for object in texts {
            if process.found.insert(object) {
                process.awaited = process.awaited.saturating_sub(1);
            }
            self.tally.text(object);
        }
        self.place(tgid, &found, true, act);
    }

    /// Whether the plan has pages of objects of these kinds.
    pub fn plans(&self, kinds: &[ObjectKind]) -> bool {
        self.index
            .objects()
            .any(|(_, key)| kinds.contains(&key.kind))
    }

    /// Where the planned part of the heap of a thread's process ends.
    pub fn planned_heap_end(&self, tid: i32) -> Option<u64> {
        let process = self.processes.get(&self.process_of(tid)?)?;
        let (object, base, _) = process.heap?;
        let pages = self.index.runs(object).last()?.end;
        Some(base.saturating_add(pages.saturating_mul(self.index.page_size())))
    }

    /// Whether some process has not yet loaded all statics of the plan (a library may be loaded later).
    pub fn lacks_statics(&self) -> bool {
        self.index
            .objects()
            .any(|(at, key)| key.kind == ObjectKind::Static && !self.tally.found(at))
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
        // Moved pages keep their policy; only the added ones need one.
        live.base = live.base.wrapping_sub(old.0).wrapping_add(new.0);
        (live.start, live.end) = new;
        let (object, base) = (live.object, live.base);
        if new.1 - new.0 > old.1 - old.0 {
            let added = (new.0 + (old.1 - old.0), new.1);
            self.place(tgid, &[(object, base, added)], false, act);
        }
    }

    /// Whether unmapping `start..end` removes planned pages that must be read back first.
    pub fn must_verify(&self, tid: i32, start: u64, end: u64) -> bool {
        self.options.verify
            && self
                .process_of(tid)
                .and_then(|tgid| self.processes.get(&tgid))
                .is_some_and(|p| p.live.iter().any(|l| l.start < end && start < l.end))
    }

    /// Memory `start..end` is about to be unmapped.
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
            // A hole in the middle stays part of the object: its pages will be counted as absent.
            live.start < live.end
        });
        process.stacks.retain(|&(s, e)| e <= start || end <= s);
        for (live, lost) in gone {
            self.check(tgid, live, lost, act);
        }
    }
}

/// Whether ranges, in the order of their addresses, cover all from `start` to `end`.
pub(super) fn is_within(ranges: &[(u64, u64)], start: u64, end: u64) -> bool {
    let covered = ranges.iter().fold(start, |covered, &(first, behind)| {
        if first <= covered {
            covered.max(behind)
        } else {
            covered
        }
    });
    // Also the first byte, of an empty section too.
    covered >= end.max(start + 1)
}
