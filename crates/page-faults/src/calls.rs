//! System calls that change areas, and pages with them.

use std::ops::Range;

use crate::PAGE;
use crate::area::{AddressSpace, Area, Backing, FileId, HugeAdvice};
use crate::fault::{Access, By, Placed, Placer, Rule, join};
use crate::state::{Pages, State};

/// Ranges of addresses whose pages the kernel has freed.
pub type Dropped = Vec<Range<u64>>;

/// Advice of `madvise` that changes what is known of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`, `MADV_DONTNEED_LOCKED`: frees private pages.
    DontNeed,
    /// `MADV_REMOVE`: frees shared pages, and their part of the file.
    Remove,
    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`.
    Huge(HugeAdvice),
    /// `MADV_WIPEONFORK`, `MADV_KEEPONFORK`.
    WipeOnFork(bool),
}

impl Advice {
    /// The advice with a number; `None` if it changes nothing here. `MADV_FREE` does not: without memory pressure the
    /// pages stay, and with them their nodes.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Some(match number {
            4 | 24 => Self::DontNeed,
            9 => Self::Remove,
            14 => Self::Huge(HugeAdvice::Wanted),
            15 => Self::Huge(HugeAdvice::Refused),
            18 => Self::WipeOnFork(true),
            19 => Self::WipeOnFork(false),
            _ => return None,
        })
    }
}

/// The whole pages of a range of addresses.
fn whole(range: &Range<u64>) -> Range<u64> {
    range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE)
}

impl AddressSpace {
    /// Memory was mapped, in place of what was there. Returns whether the kernel has populated it, as far as locks of
    /// all memory do.
    pub fn map(&mut self, range: Range<u64>, mut area: Area) -> bool {
        let range = whole(&range);
        if let Some(populates) = self.locks {
            area.locked = populates;
        }
        self.areas.set(range.start, range.end, area);
        area.locked
    }

    /// Memory was unmapped.
    pub fn unmap(&mut self, range: Range<u64>) {
        let range = whole(&range);
        self.areas.clear(range.start, range.end);
    }

    /// Changes all areas of a range, which is mapped.
    fn change(&mut self, range: &Range<u64>, mut change: impl FnMut(&mut Area)) {
        let range = whole(range);
        let mut at = range.start;
        let known: Vec<_> = self.areas.overlapping(range.start, range.end).collect();
        for (start, end, area) in known {
            let (start, end) = (start.max(range.start), end.min(range.end));
            self.set_changed(at..start, Area::anonymous(), &mut change);
            self.set_changed(start..end, area, &mut change);
            at = end;
        }
        self.set_changed(at..range.end, Area::anonymous(), &mut change);
    }

    fn set_changed(&mut self, range: Range<u64>, mut area: Area, change: impl FnOnce(&mut Area)) {
        change(&mut area);
        self.areas.set(range.start, range.end, area);
    }

    /// `mprotect`. Returns the ranges that the kernel has populated: locked private ones that may be stored to now.
    pub fn protect(&mut self, range: Range<u64>, readable: bool, writable: bool) -> Dropped {
        let mut populated = Vec::new();
        for (start, end, area) in self.areas.overlapping(range.start, range.end) {
            if area.locked && writable && !area.writable && !area.is_shared() {
                populated.push(start.max(range.start)..end.min(range.end));
            }
        }
        self.change(&range, |area| {
            (area.readable, area.writable) = (readable, writable);
        });
        populated
    }

    /// `madvise`. Returns what was freed.
    pub fn advise(&mut self, pages: &impl Pages, range: Range<u64>, advice: Advice) -> Dropped {
        let range = whole(&range);
        match advice {
            Advice::DontNeed => self.drop_where(pages, range, |area| !area.is_shared()),
            Advice::Remove => self.drop_where(pages, range, Area::is_shared),
            Advice::Huge(huge) => {
                self.change(&range, |area| area.huge = huge);
                Vec::new()
            }
            Advice::WipeOnFork(wiped) => {
                self.change(&range, |area| area.wiped_on_fork = wiped);
                Vec::new()
            }
        }
    }

    /// Frees the pages of areas that are chosen.
    fn drop_where(
        &self,
        pages: &impl Pages,
        range: Range<u64>,
        chosen: impl Fn(&Area) -> bool,
    ) -> Dropped {
        let mut dropped: Dropped = Vec::new();
        let mut add = |part: Range<u64>, area: &Area| {
            if part.start < part.end && chosen(area) {
                pages.forget(part.start / PAGE..part.end / PAGE);
                dropped.push(part);
            }
        };
        let mut at = range.start;
        for (start, end, area) in self.areas.overlapping(range.start, range.end) {
            let (start, end) = (start.max(range.start), end.min(range.end));
            add(at..start, &Area::anonymous());
            add(start..end, &area);
            at = end;
        }
        add(at..range.end, &Area::anonymous());
        dropped
    }

    /// A part of a file was freed: by `fallocate(FALLOC_FL_PUNCH_HOLE)`, or, with private copies (`copies`), by
    /// `truncate`.
    pub fn drop_file(
        &self,
        pages: &impl Pages,
        file: FileId,
        part: Range<u64>,
        copies: bool,
    ) -> Dropped {
        let part = part.start.next_multiple_of(PAGE)..part.end / PAGE * PAGE;
        let mut dropped = Vec::new();
        for (start, end, area) in self.areas.iter() {
            if area.file != Some(file) || !(copies || area.is_shared()) {
                continue;
            }
            let offset = start.wrapping_sub(area.origin);
            let from = part.start.saturating_sub(offset).saturating_add(start);
            let to = part.end.saturating_sub(offset).saturating_add(start);
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                pages.forget(from / PAGE..to / PAGE);
                dropped.push(from..to);
            }
        }
        dropped
    }

    /// `mlock`, or with `locked` false `munlock`.
    pub fn lock(&mut self, range: Range<u64>, locked: bool) {
        self.change(&range, |area| area.locked = locked);
    }

    /// `mlockall` with `MCL_CURRENT`, or `munlockall`. Returns all areas.
    pub fn lock_all(&mut self, locked: bool) -> Vec<Range<u64>> {
        let all: Vec<_> = self.areas.iter().collect();
        for (start, end, area) in &all {
            self.areas.set(*start, *end, Area { locked, ..*area });
        }
        all.into_iter().map(|(start, end, _)| start..end).collect()
    }

    /// How later areas are locked: not, on their first access (`false`), or with all pages (`true`).
    pub fn lock_later(&mut self, locks: Option<bool>) {
        self.locks = locks;
    }

    /// Sets the policy of a range, by number.
    pub fn bind(&mut self, range: Range<u64>, policy: u16) {
        self.change(&range, |area| area.policy = policy);
    }

    /// Pages of a range that are placed already are moved by a policy (`MPOL_MF_MOVE`). Appends them to `to`.
    pub fn rebind(&self, pages: &impl Pages, range: Range<u64>, policy: u16, to: &mut Vec<Placed>) {
        let range = whole(&range);
        for page in range.start / PAGE..range.end / PAGE {
            let state = pages.get(page);
            let Some(thread) = state.placer() else {
                continue;
            };
            let now = State::placed(thread, policy, state.generation());
            let now = if state.is_known() { now.known() } else { now };
            if pages.replace(page, state, now) && state.generation() == self.generation {
                let placed = Placed {
                    pages: page..page + 1,
                    by: Placer { thread, forks: 0 },
                    rule: Rule::Moved,
                    policy,
                };
                join(to, placed);
            }
        }
    }

    /// `PR_SET_THP_DISABLE`.
    pub fn disable_huge(&mut self, disabled: bool) {
        self.huge_disabled = disabled;
    }

    /// Sets whether the program resolves faults of a range.
    pub fn resolve(&mut self, range: Range<u64>, user_faults: bool) {
        self.change(&range, |area| area.user_faults = user_faults);
    }

    /// The program break is at `end`. Returns what was added, which is populated if new memory is locked, and what was
    /// freed.
    pub fn set_break(&mut self, pages: &impl Pages, end: u64) -> (Option<Range<u64>>, Dropped) {
        let before = std::mem::replace(&mut self.end_of_heap, end);
        let (from, to) = (before.next_multiple_of(PAGE), end.next_multiple_of(PAGE));
        if before == 0 || from == to {
            return (None, Vec::new());
        }
        if to < from {
            self.unmap(to..from);
            pages.forget(to / PAGE..from / PAGE);
            return (None, std::iter::once(to..from).collect());
        }
        let populated = self.map(from..to, Area::anonymous());
        (populated.then_some(from..to), Vec::new())
    }

    /// `mremap`: pages keep their nodes. `keeps` the old range mapped, and empty (`MREMAP_DONTUNMAP`). Appends the
    /// pages at their new place to `to`; returns what has been added there if it is locked.
    pub fn remap(
        &mut self,
        pages: &impl Pages,
        old: Range<u64>,
        new: Range<u64>,
        keeps: bool,
        to: &mut Vec<Placed>,
    ) -> Option<Range<u64>> {
        let (old, new) = (whole(&old), whole(&new));
        let mut area = self.area(old.start);
        area.origin = area.origin.wrapping_add(new.start).wrapping_sub(old.start);
        let aliases = old.is_empty();
        let (old_length, new_length) = (old.end - old.start, new.end - new.start);
        let moved = if aliases {
            new_length
        } else {
            old_length.min(new_length)
        };
        if new.start != old.start {
            pages.forget(new.start / PAGE..new.end / PAGE);
            self.unmap(new.clone());
            self.carry(pages, old.start / PAGE, new.start / PAGE, moved / PAGE, to);
            if !aliases {
                pages.forget(old.start / PAGE..old.end / PAGE);
                if !keeps {
                    self.unmap(old.clone());
                }
            }
        } else if new_length < old_length {
            pages.forget(new.end / PAGE..old.end / PAGE);
            self.unmap(new.end..old.end);
        }
        self.areas.set(new.start, new.end, area);
        let added = new.start + moved..new.end;
        (area.locked && !added.is_empty()).then_some(added)
    }

    /// Copies what is known of pages.
    fn carry(&self, pages: &impl Pages, from: u64, at: u64, count: u64, to: &mut Vec<Placed>) {
        for number in 0..count {
            let state = pages.get(from + number).unknown();
            if state.is_absent() {
                continue;
            }
            pages.replace(at + number, State::ABSENT, state);
            // An ancestor's are recorded at their first use.
            if let Some(thread) = state.placer()
                && state.generation() == self.generation
            {
                let placed = Placed {
                    pages: at + number..at + number + 1,
                    by: Placer { thread, forks: 0 },
                    rule: Rule::Moved,
                    policy: state.policy(),
                };
                join(to, placed);
            }
        }
    }

    /// In a forked child: forgets the pages of areas that it finds empty.
    pub fn wipe(&self, pages: &impl Pages) {
        for (start, end, area) in self.areas.iter() {
            if area.wiped_on_fork && area.backing == Backing::Anonymous {
                pages.forget(start / PAGE..end / PAGE);
            }
        }
    }

    /// Populates a range as `mlock` and `MAP_POPULATE` do.
    pub fn populate(&self, pages: &impl Pages, range: Range<u64>, by: By, to: &mut Vec<Placed>) {
        self.access_all(pages, whole(&range), Access::Populate, by, to);
    }
}
