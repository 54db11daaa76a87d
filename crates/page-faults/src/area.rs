//! Areas of an address space.

use numaloc_identity::ranges::Ranges;

use crate::policy::Policy;
use crate::{HUGE, PAGE};

/// A file, as `fstat` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// What is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private memory without a file.
    Anonymous,
    /// Private memory of a file.
    PrivateFile,
    /// Memory that processes share, of a file or without.
    Shared,
}

/// `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeAdvice {
    /// None was given.
    #[default]
    None,
    /// Huge pages are wanted.
    Wanted,
    /// Huge pages are not wanted.
    Refused,
}

/// Where the kernel makes transparent huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Everywhere.
    Always,
    /// Where the program wants them.
    Madvise,
    /// Nowhere.
    #[default]
    Never,
}

/// An area of memory with the same properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// What is mapped.
    pub backing: Backing,
    /// Whether the program may load from it.
    pub readable: bool,
    /// Whether the program may store to it.
    pub writable: bool,
    /// Whether its pages are locked in memory as soon as they are mapped.
    pub locked: bool,
    /// Advice on huge pages.
    pub huge: HugeAdvice,
    /// log2 of the bytes of its pages if they are those of hugetlb, otherwise 0.
    pub huge_shift: u8,
    /// Number of the policy set for it, 0 for none.
    pub policy: u16,
    /// The file.
    pub file: Option<FileId>,
    /// Subtracted from an address gives the offset in the file (modulo 2^64).
    pub origin: u64,
    /// Whether the program resolves its faults (`userfaultfd`).
    pub user_faults: bool,
    /// Whether forked children find it empty (`MADV_WIPEONFORK`).
    pub wiped_on_fork: bool,
}

impl Area {
    /// Private anonymous memory that may be loaded from and stored to: what is assumed of memory that is not in the
    /// table, such as the first stack. The rules for private memory of a file, of which nothing else is known, differ
    /// only where it is populated.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            backing: Backing::Anonymous,
            readable: true,
            writable: true,
            locked: false,
            huge: HugeAdvice::None,
            huge_shift: 0,
            policy: 0,
            file: None,
            origin: 0,
            user_faults: false,
            wiped_on_fork: false,
        }
    }

    /// Whether processes share it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.backing == Backing::Shared
    }
}

/// The areas of a process, and what holds for all of them.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    pub(crate) areas: Ranges<Area>,
    policies: Vec<Policy>,
    /// Whether new areas are locked (`mlockall(MCL_FUTURE)`), and whether their pages are populated then.
    pub(crate) locks: Option<bool>,
    pub(crate) huge: HugePages,
    /// Whether the program has switched transparent huge pages off.
    pub(crate) huge_disabled: bool,
    /// Number of forks between the first process and this one.
    pub(crate) generation: u16,
    /// The program break, 0 before it is known.
    pub(crate) end_of_heap: u64,
}

impl AddressSpace {
    /// An empty one, on a machine with these huge pages.
    #[must_use]
    pub fn new(huge: HugePages) -> Self {
        Self {
            huge,
            ..Self::default()
        }
    }

    /// That of a forked child. Locks are not inherited.
    #[must_use]
    pub fn forked(&self) -> Self {
        let mut child = self.clone();
        child.locks = None;
        child.generation = self.generation.saturating_add(1);
        for (start, end, area) in self.areas.iter() {
            let area = Area {
                locked: false,
                ..area
            };
            child.areas.set(start, end, area);
        }
        child
    }

    /// Number of forks between the first process and this one.
    #[must_use]
    pub fn generation(&self) -> u16 {
        self.generation
    }

    /// The area that holds `address`; private anonymous memory if it is not in the table.
    #[must_use]
    pub fn area(&self, address: u64) -> Area {
        let found = self.areas.at(address);
        found.map_or_else(Area::anonymous, |(_, _, area)| area)
    }

    /// Whether the area of `address` is in the table.
    #[must_use]
    pub fn knows(&self, address: u64) -> bool {
        self.areas.at(address).is_some()
    }

    /// The number of a policy, from 1 on, and whether it is new. 0 without one, and for more than can be numbered.
    pub fn number(&mut self, policy: Option<Policy>) -> (u16, bool) {
        const MOST: usize = 0x3fff;
        let Some(policy) = policy else {
            return (0, false);
        };
        if let Some(at) = self.policies.iter().position(|known| *known == policy) {
            return (at as u16 + 1, false);
        }
        if self.policies.len() == MOST {
            return (0, false);
        }
        self.policies.push(policy);
        (self.policies.len() as u16, true)
    }

    /// The policies, from number 1 on.
    pub fn policies(&self) -> impl Iterator<Item = Policy> {
        self.policies.iter().copied()
    }

    /// The policy with a number.
    #[must_use]
    pub fn policy(&self, number: u16) -> Option<Policy> {
        let at = usize::from(number).checked_sub(1)?;
        self.policies.get(at).copied()
    }

    /// The aligned range of 2 MiB around `address`, as pages, if all of it is the same anonymous area, which may have
    /// transparent huge pages.
    pub(crate) fn huge_range(&self, address: u64, area: &Area) -> Option<std::ops::Range<u64>> {
        let wanted = !self.huge_disabled
            && match self.huge {
                HugePages::Always => area.huge != HugeAdvice::Refused,
                HugePages::Madvise => area.huge == HugeAdvice::Wanted,
                HugePages::Never => false,
            };
        if !wanted || area.backing != Backing::Anonymous || area.huge_shift != 0 {
            return None;
        }
        let start = address & !(HUGE * PAGE - 1);
        let end = start + HUGE * PAGE;
        let mut covered = start;
        for (from, to, other) in self.areas.overlapping(start, end) {
            if from > covered || other != *area {
                return None;
            }
            covered = to;
        }
        (covered >= end).then_some(start / PAGE..end / PAGE)
    }
}
