//! System calls that change what is known of pages: areas, advice, locks, policies, and stores by the kernel. The rules
//! are those of [`numaloc_trace::faults::model`].

use std::ops::Range;

use numaloc_trace::Engine;
use numaloc_trace::faults::model::{
    Access, Advice, Area, Backing, FileId, HugeAdvice, PAGE, Pages, Placed, Policy,
};

use crate::traced::Traced;
use crate::{memory, stores};

const MPROTECT: i64 = 10;
const IOCTL: i64 = 16;
const MADVISE: i64 = 28;
const TRUNCATE: i64 = 76;
const FTRUNCATE: i64 = 77;
const MLOCK: i64 = 149;
const MUNLOCK: i64 = 150;
const MLOCKALL: i64 = 151;
const MUNLOCKALL: i64 = 152;
const PRCTL: i64 = 157;
const MBIND: i64 = 237;
const SET_MEMPOLICY: i64 = 238;
const MOVE_PAGES: i64 = 279;
const FALLOCATE: i64 = 285;
const MLOCK2: i64 = 325;
const PKEY_MPROTECT: i64 = 329;
const SET_MEMPOLICY_HOME_NODE: i64 = 450;

const MAP_SHARED: u64 = 0x1;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_LOCKED: u64 = 0x2000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NONBLOCK: u64 = 0x1_0000;
const MAP_STACK: u64 = 0x2_0000;
const MAP_HUGETLB: u64 = 0x4_0000;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;

/// Largest mapping of a file, in bytes, of which is asked which pages are in the page cache.
const ASKED: u64 = 1 << 30;

/// A call of `mmap` that was made.
pub(crate) struct Mapped {
    pub address: u64,
    pub length: u64,
    pub protection: u64,
    pub flags: u64,
    pub descriptor: u64,
    pub offset: u64,
}

fn range(address: u64, length: u64) -> Range<u64> {
    address..address.saturating_add(length)
}

/// Which pages of a file are in the page cache, if `mmap` with these arguments maps it for processes to share: asked
/// before the call, which may bring in others.
pub(crate) fn cached_before(arguments: &[u64; 6]) -> Vec<u8> {
    let [_, length, _, flags, descriptor, offset] = *arguments;
    let is_file = flags & MAP_SHARED != 0 && flags & MAP_ANONYMOUS == 0;
    match is_file && length <= ASKED {
        true => memory::in_page_cache(descriptor as i32, offset, length).unwrap_or_default(),
        false => Vec::new(),
    }
}

impl Traced {
    /// Memory was mapped. `cached`: what [`cached_before`] has found.
    pub(crate) fn mapped_area(&mut self, engine: &Engine, call: &Mapped, cached: &[u8]) {
        let Mapped {
            address,
            length,
            protection,
            flags,
            descriptor,
            offset,
        } = *call;
        let shared = flags & MAP_SHARED != 0;
        let is_file = flags & MAP_ANONYMOUS == 0;
        let file = is_file.then(|| memory::file_id(descriptor)).flatten();
        let huge_shift = match flags & MAP_HUGETLB != 0 {
            true if flags >> 26 & 0x3f == 0 => 21,
            true => (flags >> 26 & 0x3f) as u8,
            false if is_file => memory::huge_file(descriptor as i32),
            false => 0,
        };
        let area = Area {
            backing: match (shared, is_file) {
                (true, _) => Backing::Shared,
                (false, true) => Backing::PrivateFile,
                (false, false) => Backing::Anonymous,
            },
            readable: protection & PROT_READ != 0,
            writable: protection & PROT_WRITE != 0,
            locked: flags & MAP_LOCKED != 0,
            huge: match flags & MAP_STACK != 0 {
                true => HugeAdvice::Refused,
                false => HugeAdvice::None,
            },
            huge_shift,
            file,
            origin: address.wrapping_sub(offset),
            ..Area::anonymous()
        };
        let range = range(address, length);
        let populates = engine.change_memory(|space, pages| {
            let populates = space.map(range.clone(), area);
            let resident = cached
                .iter()
                .enumerate()
                .filter(|(_, page)| **page & 1 != 0);
            for (number, _) in resident {
                space.cached(pages, address / PAGE + number as u64);
            }
            populates
        });
        if populates || flags & MAP_POPULATE != 0 && flags & MAP_NONBLOCK == 0 {
            self.tracer.access_all(range, Access::Populate);
        }
    }

    /// A System V segment was attached.
    pub(crate) fn attached_area(&mut self, engine: &Engine, address: u64, length: u64) {
        let area = Area {
            backing: Backing::Shared,
            ..Area::anonymous()
        };
        let populates = engine.change_memory(|space, _| space.map(range(address, length), area));
        if populates {
            self.tracer
                .access_all(range(address, length), Access::Populate);
        }
    }

    /// `mremap` was called: pages keep their nodes.
    pub(crate) fn moved_area(&mut self, engine: &Engine, arguments: &[u64; 6], address: u64) {
        const DONTUNMAP: u64 = 4;
        let [from, old_length, new_length, flags, ..] = *arguments;
        if address != from {
            self.tracer.forget(address, new_length);
        }
        let mut placed = Vec::new();
        let (old, new) = (range(from, old_length), range(address, new_length));
        let populated = engine.change_memory(|space, pages| {
            space.remap(pages, old, new, flags & DONTUNMAP != 0, &mut placed)
        });
        self.record_all(placed);
        if let Some(populated) = populated {
            self.tracer.access_all(populated, Access::Populate);
        }
        let kept = if address == from { new_length } else { 0 };
        if kept < old_length {
            self.tracer.forget(from + kept, old_length - kept);
        }
    }

    /// The program break has moved to `end`.
    pub(crate) fn moved_break(&mut self, engine: &Engine, end: u64) {
        let (populated, dropped) = engine.change_memory(|space, pages| space.set_break(pages, end));
        self.tracer.dropped(&dropped);
        if let Some(populated) = populated {
            self.tracer.access_all(populated, Access::Populate);
        }
    }

    /// A system call that has succeeded, and is none of those above.
    pub(crate) fn changed_memory(
        &mut self,
        engine: &Engine,
        number: i64,
        arguments: &[u64; 6],
        result: i64,
    ) {
        let [a1, a2, a3, a4, _, _] = *arguments;
        match number {
            MPROTECT | PKEY_MPROTECT => {
                let (readable, writable) = (a3 & PROT_READ != 0, a3 & PROT_WRITE != 0);
                let populated = engine
                    .change_memory(|space, _| space.protect(range(a1, a2), readable, writable));
                self.populate(populated);
                if writable {
                    engine.made_writable(a1, a2);
                }
            }
            MADVISE => self.advised(engine, range(a1, a2), a3),
            MLOCK | MLOCK2 | MUNLOCK => {
                engine.change_memory(|space, _| space.lock(range(a1, a2), number != MUNLOCK));
                if number == MLOCK || number == MLOCK2 && a3 & 1 == 0 {
                    self.populate(vec![range(a1, a2)]);
                }
            }
            MLOCKALL => self.locked_all(engine, a1),
            MUNLOCKALL => engine.change_memory(|space, _| {
                space.lock_later(None);
                space.lock_all(false);
            }),
            MBIND | SET_MEMPOLICY | SET_MEMPOLICY_HOME_NODE | MOVE_PAGES => {
                self.set_policies(engine, number, arguments);
            }
            FALLOCATE => {
                /// `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`.
                const FREES: u64 = 0x02 | 0x10;
                if let Some(file) = memory::file_id(a1).filter(|_| a2 & FREES != 0) {
                    self.freed_of_file(engine, file, range(a3, a4), false);
                }
            }
            FTRUNCATE => {
                if let Some(file) = memory::file_id(a1) {
                    self.freed_of_file(engine, file, a2..u64::MAX - PAGE, true);
                }
            }
            TRUNCATE => {
                let file = memory::text(a1).and_then(|path| memory::file_id_of(path.as_ref()));
                if let Some(file) = file {
                    self.freed_of_file(engine, file, a2..u64::MAX - PAGE, true);
                }
            }
            PRCTL if a1 == libc::PR_SET_THP_DISABLE as u64 => {
                engine.change_memory(|space, _| space.disable_huge(a2 != 0));
            }
            IOCTL => self.faults_resolved(engine, a2, a3),
            _ => {
                for stored in stores::by_kernel(number, arguments, result) {
                    self.tracer.stored_by_kernel(stored.0, stored.1);
                }
            }
        }
    }

    fn populate(&mut self, ranges: Vec<Range<u64>>) {
        for range in ranges {
            self.tracer.access_all(range, Access::Populate);
        }
    }

    fn record_all(&mut self, placed: Vec<Placed>) {
        placed
            .into_iter()
            .for_each(|placed| self.tracer.record_placed(placed));
    }

    fn advised(&mut self, engine: &Engine, range: Range<u64>, advice: u64) {
        const POPULATE_READ: u64 = 22;
        const POPULATE_WRITE: u64 = 23;
        match advice {
            POPULATE_READ => self.tracer.access_all(range, Access::PopulateLoad),
            POPULATE_WRITE => self.tracer.access_all(range, Access::PopulateStore),
            _ => {
                let Some(advice) = Advice::of(advice) else {
                    return;
                };
                let dropped =
                    engine.change_memory(|space, pages| space.advise(pages, range, advice));
                match advice {
                    Advice::Remove => self.tracer.dropped_shared(&dropped),
                    _ => self.tracer.dropped(&dropped),
                }
            }
        }
    }

    fn locked_all(&mut self, engine: &Engine, flags: u64) {
        const CURRENT: u64 = 1;
        const FUTURE: u64 = 2;
        const ON_FAULT: u64 = 4;
        let populates = flags & ON_FAULT == 0;
        let all = engine.change_memory(|space, _| {
            space.lock_later((flags & FUTURE != 0).then_some(populates));
            match flags & CURRENT != 0 {
                true => space.lock_all(true),
                false => Vec::new(),
            }
        });
        if populates {
            self.populate(all);
        }
    }

    /// A part of a file was freed, also in private copies of it if `copies`.
    fn freed_of_file(&mut self, engine: &Engine, file: FileId, part: Range<u64>, copies: bool) {
        let dropped =
            engine.change_memory(|space, pages| space.drop_file(pages, file, part, copies));
        self.tracer.dropped_shared(&dropped);
    }

    fn set_policies(&mut self, engine: &Engine, number: i64, arguments: &[u64; 6]) {
        let [a1, a2, a3, a4, a5, a6] = *arguments;
        let mask = |at: u64, bits: u64| memory::node_mask(at, bits.saturating_sub(1));
        match number {
            SET_MEMPOLICY => {
                let policy = memory::whole(Policy::of(a1, mask(a2, a3)));
                self.tracer.set_policy(engine.number_policy(policy));
            }
            MBIND => {
                /// `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`.
                const MOVES: u64 = 2 | 4;
                let policy = engine.number_policy(memory::whole(Policy::of(a3, mask(a4, a5))));
                self.bind(engine, range(a1, a2), policy, a6 & MOVES != 0);
            }
            SET_MEMPOLICY_HOME_NODE => {
                let area = engine.change_memory(|space, _| space.policy(space.area(a1).policy));
                let policy = area.map(|policy| Policy {
                    home: u8::try_from(a3).ok(),
                    ..policy
                });
                let policy = engine.number_policy(policy);
                self.bind(engine, range(a1, a2), policy, false);
            }
            _ => self.moved_pages(engine, [a1, a2, a3, a4]),
        }
    }

    fn bind(&mut self, engine: &Engine, range: Range<u64>, policy: u16, moves: bool) {
        let mut placed = Vec::new();
        engine.change_memory(|space, pages| {
            space.bind(range.clone(), policy);
            if moves {
                space.rebind(pages, range, policy, &mut placed);
            }
        });
        self.record_all(placed);
    }

    /// `move_pages` was called: each page is on the node that the program gave, as if by a policy of its own.
    fn moved_pages(&mut self, engine: &Engine, [process, count, pages, nodes]: [u64; 4]) {
        /// A program that moves more at once is not followed.
        const MOST: u64 = 1 << 20;
        let own = process == 0 || process == u64::from(std::process::id());
        if !own || nodes == 0 || count > MOST {
            return;
        }
        for number in 0..count {
            let address = memory::word(pages + number * 8);
            let node = memory::half(nodes + number * 4);
            let (Some(address), Some(node @ 0..64)) = (address, node) else {
                continue;
            };
            let policy = engine.number_policy(Policy::of(1, 1 << node));
            let mut placed = Vec::new();
            engine.change_memory(|space, pages: &_| {
                if pages.get(address / PAGE).is_placed() {
                    space.rebind(pages, range(address, 1), policy, &mut placed);
                }
            });
            self.record_all(placed);
        }
    }

    /// Calls of a `userfaultfd`: who resolves a fault places the page.
    fn faults_resolved(&mut self, engine: &Engine, request: u64, at: u64) {
        const REGISTER: u64 = 0xc020_aa00;
        const UNREGISTER: u64 = 0x8010_aa01;
        const COPY: u64 = 0xc028_aa03;
        const ZERO_PAGE: u64 = 0xc020_aa04;
        let word = |index: u64| memory::word(at + index * 8).unwrap_or(0);
        match request {
            REGISTER | UNREGISTER => {
                let of = range(word(0), word(1));
                engine.change_memory(|space, _| space.resolve(of, request == REGISTER));
            }
            COPY => self
                .tracer
                .access_all(range(word(0), word(2)), Access::Handler),
            ZERO_PAGE => self
                .tracer
                .access_all(range(word(0), word(1)), Access::PopulateLoad),
            _ => {}
        }
    }
}
