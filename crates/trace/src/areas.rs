//! What the engine knows of the program's memory: areas, pages and memory policies, for [`crate::faults`].

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use numaloc_journal::Record;
use numaloc_page_faults::{AddressSpace, Area, Backing, Pages, Policy, State};

use crate::engine::Engine;
use crate::shadow::Shadow;

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
