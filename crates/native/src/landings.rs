//! Tables of indirect targets: for each kind of indirect branch, a table indexed by the lowest bits of the target's
//! address, whose entries lead to chains of landings.

use crate::fragment::Landing;
use crate::layout::TABLE_ENTRIES;
use crate::patch::{read64, retarget, write64};
use numaloc_follow::address_map::{self, AddressMap};

struct Member {
    landing: Landing,
    installed: bool,
}

/// A table and the landings of the current half of the cache.
pub struct Landings {
    table: u64,
    /// Code for targets without a landing.
    miss: u64,
    members: Vec<Member>,
    by_target: AddressMap<u32>,
    /// Installed landings of a table entry, in the order in which they are tried.
    chains: AddressMap<Vec<u32>>,
}

impl Landings {
    /// No landings; `table` must be mapped before the first call of [`Self::clear`].
    pub const fn new(table: u64, miss: u64) -> Self {
        Self {
            table,
            miss,
            members: Vec::new(),
            by_target: address_map::map(),
            chains: address_map::map(),
        }
    }

    /// Removes all landings: those that threads may still reach lead to the miss code.
    pub fn clear(&mut self) {
        for member in self.members.iter().filter(|member| member.installed) {
            retarget(member.landing.next_candidate, self.miss);
        }
        self.members.clear();
        self.by_target.clear();
        self.chains.clear();
        for entry in 0..TABLE_ENTRIES {
            write64(self.table + 8 * entry, self.miss);
        }
    }

    /// Adds a landing and installs it as the last candidate of its entry; returns its number.
    pub fn add(&mut self, landing: Landing) -> u32 {
        let number = self.members.len() as u32;
        self.members.push(Member {
            landing,
            installed: true,
        });
        self.by_target.insert(landing.target, number);
        let entry = landing.target % TABLE_ENTRIES;
        let chain = self.chains.entry(entry).or_default();
        match chain.last() {
            Some(&last) => {
                let last = &self.members[last as usize].landing;
                retarget(last.next_candidate, landing.entry);
            }
            None => write64(self.table + 8 * entry, landing.entry),
        }
        chain.push(number);
        number
    }

    /// The landing for a target, installed as the first candidate if it is not installed.
    pub fn find(&mut self, target: u64) -> Option<Landing> {
        let number = *self.by_target.get(&target)?;
        let member = &mut self.members[number as usize];
        if !member.installed {
            member.installed = true;
            let entry = target % TABLE_ENTRIES;
            let slot = self.table + 8 * entry;
            retarget(member.landing.next_candidate, read64(slot));
            write64(slot, member.landing.entry);
            self.chains.entry(entry).or_default().insert(0, number);
        }
        Some(member.landing)
    }

    /// Removes a landing. The whole chain of its entry is uninstalled; [`Self::find`] installs the others again.
    pub fn remove(&mut self, number: u32) {
        let target = self.members[number as usize].landing.target;
        if self.by_target.get(&target) == Some(&number) {
            self.by_target.remove(&target);
        }
        if !self.members[number as usize].installed {
            return;
        }
        let entry = target % TABLE_ENTRIES;
        write64(self.table + 8 * entry, self.miss);
        for member in self.chains.remove(&entry).unwrap_or_default() {
            let member = &mut self.members[member as usize];
            member.installed = false;
            retarget(member.landing.next_candidate, self.miss);
        }
    }
}
