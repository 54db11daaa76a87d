//! Which thread places a page: the model of page faults ([`numaloc_page_faults`]) with the engine's table of pages.
//!
//! Threads ask it only where an access may be a fault: the first access to a page, and the first store to one that was
//! only read. What it answers is recorded as a first touch of the thread, or as pages placed in another way.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{RwLock, TryLockError};

use numaloc_journal::settings;
pub use numaloc_page_faults as model;
use numaloc_page_faults::{AddressSpace, HugePages, Pages, State};

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
    pub space: RwLock<AddressSpace>,
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
