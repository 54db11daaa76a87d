//! Faults: which pages an access, a store by the kernel or a populating call places.

use std::ops::Range;

use crate::area::{AddressSpace, Area, Backing};
use crate::state::{Pages, State};
use crate::{HUGE, PAGE};

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A store by the kernel on behalf of a thread (`read` and its relatives).
    KernelStore,
    /// The handler of a `userfaultfd` puts a page there.
    Handler,
    /// `MADV_POPULATE_READ`.
    PopulateLoad,
    /// `MADV_POPULATE_WRITE`.
    PopulateStore,
    /// `MAP_POPULATE` and `mlock`: a store where private memory may be stored to, otherwise a load.
    Populate,
}

/// By which rule a page was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A thread's store to it, or its access to a shared page.
    Access,
    /// A thread's store to one page of a transparent huge page.
    Huge,
    /// A store by the kernel on behalf of a thread.
    Kernel,
    /// A call that populates or locks memory.
    Populated,
    /// A store to a page that it shared with its parent, or a child: a copy.
    Copied,
    /// An ancestor placed it before the fork.
    Inherited,
    /// `mremap` brought it here.
    Moved,
}

impl Rule {
    /// All rules, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Access,
        Self::Huge,
        Self::Kernel,
        Self::Populated,
        Self::Copied,
        Self::Inherited,
        Self::Moved,
    ];
}

/// Who causes a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The thread.
    pub thread: u32,
    /// Number of its memory policy.
    pub policy: u16,
}

/// A thread of this process or of an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placer {
    /// Its number in its process.
    pub thread: u32,
    /// Number of forks between its process and this one.
    pub forks: u16,
}

/// Pages that have been placed, in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The pages.
    pub pages: Range<u64>,
    /// By whom.
    pub by: Placer,
    /// By which rule.
    pub rule: Rule,
    /// Number of the policy, 0 for first touch.
    pub policy: u16,
}

impl AddressSpace {
    /// A fault on a page by an access of a thread. `None` if it places nothing new.
    pub fn access(&self, pages: &impl Pages, page: u64, access: Access, by: By) -> Option<Placed> {
        let area = self.area(page * PAGE);
        self.access_in(&area, pages, page, access, by)
    }

    /// Faults on all pages of a range of addresses, which are mapped, by one call. Appends what they place to `to`.
    pub fn access_all(
        &self,
        pages: &impl Pages,
        range: Range<u64>,
        access: Access,
        by: By,
        to: &mut Vec<Placed>,
    ) {
        let end = range.end.div_ceil(PAGE);
        let mut page = range.start / PAGE;
        while page < end {
            let found = self.areas.at(page * PAGE);
            let area = found.map_or_else(Area::anonymous, |(_, _, area)| area);
            let until = found.map_or(page + 1, |(_, until, _)| until.div_ceil(PAGE));
            while page < until.min(end) {
                let placed = self.access_in(&area, pages, page, access, by);
                page = placed
                    .as_ref()
                    .map_or(page + 1, |placed| placed.pages.end.max(page + 1));
                if let Some(placed) = placed {
                    join(to, placed);
                }
            }
        }
    }

    /// [`AddressSpace::access`] to a page of this area.
    pub fn access_in(
        &self,
        area: &Area,
        pages: &impl Pages,
        page: u64,
        access: Access,
        by: By,
    ) -> Option<Placed> {
        let stores = match access {
            Access::Load | Access::PopulateLoad => false,
            Access::Store | Access::KernelStore | Access::PopulateStore | Access::Handler => true,
            Access::Populate if !area.readable && !area.writable => return None,
            Access::Populate => area.writable && !area.is_shared(),
        };
        loop {
            let state = pages.get(page);
            if state.is_placed() && state.generation() == self.generation {
                return None;
            }
            if state.is_placed() && (area.is_shared() || !stores) {
                return self.inherited(pages, page, state, area.is_shared());
            }
            let waits = area.user_faults && state.is_absent();
            if waits && matches!(access, Access::Load | Access::Store) {
                return None;
            }
            let whole = area.huge_shift != 0;
            if !stores && !area.is_shared() && !whole {
                self.read(pages, page, area, state);
                return None;
            }
            let rule = match access {
                _ if state.is_placed() => Rule::Copied,
                Access::Load | Access::Store => Rule::Access,
                Access::KernelStore | Access::Handler => Rule::Kernel,
                _ => Rule::Populated,
            };
            let range = match state.is_absent() {
                true if whole => Some(hugetlb_range(page, area)),
                true => self.absent_huge_range(pages, page, area),
                false => None,
            };
            let rule = match range.is_some() && !whole && rule == Rule::Access {
                true => Rule::Huge,
                false => rule,
            };
            let policy = if area.policy == 0 {
                by.policy
            } else {
                area.policy
            };
            let now = State::placed(by.thread, policy, self.generation);
            if pages.replace(page, state, now) {
                let placed = Placed {
                    pages: range.clone().unwrap_or(page..page + 1),
                    by: Placer {
                        thread: by.thread,
                        forks: 0,
                    },
                    rule,
                    policy,
                };
                for other in range.into_iter().flatten().filter(|other| *other != page) {
                    pages.replace(other, pages.get(other), now);
                }
                return Some(placed);
            }
        }
    }

    /// An ancestor's page, at its first use in this process. A shared one is never copied.
    fn inherited(
        &self,
        pages: &impl Pages,
        page: u64,
        state: State,
        shared: bool,
    ) -> Option<Placed> {
        let now = match shared {
            true => State::cached(self.generation),
            false => state.known(),
        };
        let changed = pages.replace(page, state, now);
        let thread = state.placer().filter(|_| changed && !state.is_known())?;
        Some(Placed {
            pages: page..page + 1,
            by: Placer {
                thread,
                forks: self.generation - state.generation(),
            },
            rule: Rule::Inherited,
            policy: state.policy(),
        })
    }

    /// A load from private memory maps the zero page, or one of the page cache.
    fn read(&self, pages: &impl Pages, page: u64, area: &Area, state: State) {
        if !state.is_absent() {
            return;
        }
        let all = self.absent_huge_range(pages, page, area);
        for page in all.unwrap_or(page..page + 1) {
            pages.replace(page, State::ABSENT, State::READ);
        }
    }

    /// The pages that an absent page shares a huge page with, if a fault makes one.
    fn absent_huge_range(&self, pages: &impl Pages, page: u64, area: &Area) -> Option<Range<u64>> {
        debug_assert_eq!(HUGE, 512);
        let range = self.huge_range(page * PAGE, area)?;
        range
            .clone()
            .all(|page| pages.get(page).is_absent())
            .then_some(range)
    }

    /// Notes that shared pages are in memory already: no thread's access places them.
    pub fn cached(&self, pages: &impl Pages, page: u64) {
        pages.replace(page, State::ABSENT, State::cached(self.generation));
    }
}

fn hugetlb_range(page: u64, area: &Area) -> Range<u64> {
    let count = 1 << (u32::from(area.huge_shift).max(12) - 12);
    let start = page / count * count;
    debug_assert_ne!(area.backing, Backing::PrivateFile);
    start..start + count
}

/// Appends pages to a list, joined with the last ones if they are placed in the same way.
pub(crate) fn join(to: &mut Vec<Placed>, placed: Placed) {
    if let Some(last) = to.last_mut()
        && last.pages.end == placed.pages.start
        && (last.by, last.rule, last.policy) == (placed.by, placed.rule, placed.policy)
    {
        last.pages.end = placed.pages.end;
    } else {
        to.push(placed);
    }
}
