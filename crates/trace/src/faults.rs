//! Which thread places a page: the model of page faults ([`numaloc_page_faults`]) with the engine's table of pages.
//!
//! Threads ask it only where an access may be a fault: the first access to a page, and the first store to one that was
//! only read. What it answers is recorded as a first touch of the thread, or as pages placed in another way.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, TryLockError};

use numaloc_journal::Record;
use numaloc_journal::settings;
pub use numaloc_page_faults as model;
use numaloc_page_faults::{AddressSpace, Area, Backing, HugePages, Pages, Policy, State};

use crate::engine::Engine;
use crate::pages::PAGE_SHIFT;
use crate::shadow::Shadow;

impl Pages for Shadow {
    fn get(&self, page: u64) -> State {
        State(self.word(page << PAGE_SHIFT).load(Relaxed))
    }

    fn replace(&self, page: u64, before: State, now: State) -> bool {
        let word = self.word(page << PAGE_SHIFT);
        word.compare_exchange(before.0, now.0, Relaxed, Relaxed)
            .is_ok()
    }

    fn forget(&self, pages: Range<u64>) {
        let (start, end) = (pages.start << PAGE_SHIFT, pages.end << PAGE_SHIFT);
        Self::forget(self, start, end.saturating_sub(start));
    }
}

/// Where the kernel makes transparent huge pages, by the setting.
pub(crate) fn huge_pages(setting: settings::HugePages) -> HugePages {
    let words = match setting {
        settings::HugePages::Always => return HugePages::Always,
        settings::HugePages::Madvise => return HugePages::Madvise,
        settings::HugePages::Never => return HugePages::Never,
        settings::HugePages::Machine => {
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        }
    };
    match words.unwrap_or_default() {
        words if words.contains("[always]") => HugePages::Always,
        words if words.contains("[madvise]") => HugePages::Madvise,
        _ => HugePages::Never,
    }
}

/// The address space of a process.
pub(crate) struct Faults {
    space: RwLock<AddressSpace>,
    /// Its generation.
    pub generation: u16,
}

impl Faults {
    /// That of the first process.
    pub fn new(space: AddressSpace) -> Self {
        Self {
            generation: space.generation(),
            space: RwLock::new(space),
        }
    }

    /// That of a forked child, whose parent's other threads do not exist: a change that one of them was making is lost,
    /// and with it the areas.
    pub fn forked(&self) -> Self {
        let child = match self.space.try_read() {
            Ok(space) => space.forked(),
            Err(_) => AddressSpace::default().forked(),
        };
        Self {
            generation: self.generation.saturating_add(1),
            space: RwLock::new(child),
        }
    }

    /// In a forked child: forgets the pages that it finds empty.
    pub fn wipe(&self, pages: &Shadow) {
        self.ask(|space| space.wipe(pages));
    }

    /// Asks about the areas; `None` while another thread changes them for long, and in a signal handler that has
    /// interrupted such a change.
    pub fn ask<R>(&self, ask: impl FnOnce(&AddressSpace) -> R) -> Option<R> {
        /// A change takes less than this.
        const TRIES: u32 = 10_000;
        for _ in 0..TRIES {
            match self.space.try_read() {
                Ok(space) => return Some(ask(&space)),
                Err(TryLockError::Poisoned(space)) => return Some(ask(&space.into_inner())),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

impl Engine {
    /// Whether a load, or store, at `address` is no fault of which more is to be known.
    #[inline(always)]
    pub(crate) fn is_settled<const STORE: bool>(&self, address: u64) -> bool {
        let word = self.tables.touched.word(address).load(Relaxed);
        State(word).is_settled::<STORE>(self.faults.generation)
    }

    /// Changes what is known of the program's memory. `change` gets the table of pages.
    pub fn change_memory<R>(&self, change: impl FnOnce(&mut AddressSpace, &Shadow) -> R) -> R {
        let mut space = self
            .faults
            .space
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        change(&mut space, &self.tables.touched)
    }

    /// The number of a policy, which is recorded if it is new; 0 for first touch.
    pub fn number_policy(&self, policy: Option<Policy>) -> u16 {
        if policy.is_none() {
            return 0;
        }
        let (number, new) = self.change_memory(|space, _| space.number(policy));
        if let (true, Some(policy)) = (new, policy) {
            self.record_policy(number, policy);
        }
        number
    }

    fn record_policy(&self, number: u16, policy: Policy) {
        self.write(&Record::MemoryPolicy {
            policy: number.into(),
            mode: policy.number(),
            nodes: policy.nodes,
            home: policy.home.map_or(0, |home| u64::from(home) + 1),
        });
    }

    /// Records the policies that a forked child has from its parent.
    pub(crate) fn record_inherited_policies(&self) {
        let policies = self
            .faults
            .ask(|space| space.policies().collect::<Vec<_>>());
        for (number, policy) in (1..).zip(policies.unwrap_or_default()) {
            self.record_policy(number, policy);
        }
    }

    /// Notes a page that the caller knows to be placed by the thread with this number; returns whether it was not.
    pub(crate) fn place(&self, page: u64, thread: u32, policy: u16) -> bool {
        let (pages, generation) = (&self.tables.touched, self.faults.generation);
        let state = pages.get(page);
        let open = !state.is_placed() || state.generation() != generation;
        open && pages.replace(page, state, State::placed(thread, policy, generation))
    }
}

impl Engine {
    /// Memory that no call was seen to map: shared if processes share it.
    pub(crate) fn area_of_unknown(&self, address: u64) -> Area {
        let mut area = Area::anonymous();
        if self.mappings.at(address).is_some() {
            area.backing = Backing::Shared;
        }
        area
    }
}
