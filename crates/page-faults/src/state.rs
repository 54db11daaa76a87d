//! What is known of a page.

use std::ops::Range;

const PLACER: u64 = u32::MAX as u64;
/// Placer of pages that were in memory before: nobody's.
const NOBODY: u64 = PLACER;
const READ: u64 = 1 << 32;
const POLICY_SHIFT: u32 = 33;
const POLICY: u64 = 0x3fff;
const GENERATION_SHIFT: u32 = 47;
const GENERATION: u64 = 0xffff;
const KNOWN: u64 = 1 << 63;

/// What is known of a page, in one word: absent (0); read only, which maps the zero page or one of the page cache; or
/// placed, by a thread of this process or of an ancestor, under a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(pub u64);

impl State {
    /// Absent.
    pub const ABSENT: Self = Self(0);
    /// Read, but not placed by that.
    pub const READ: Self = Self(READ);

    /// Placed by a thread of the process of a `generation`, under the policy with this number (0: first touch).
    #[must_use]
    pub fn placed(thread: u32, policy: u16, generation: u16) -> Self {
        let placer = u64::from(thread).min(NOBODY - 2) + 1;
        let policy = u64::from(policy) & POLICY;
        Self(placer | policy << POLICY_SHIFT | u64::from(generation) << GENERATION_SHIFT)
    }

    /// In memory before any thread used it.
    #[must_use]
    pub fn cached(generation: u16) -> Self {
        Self(NOBODY | u64::from(generation) << GENERATION_SHIFT)
    }

    /// Whether the page has a node: a thread placed it, or it was in memory before.
    #[inline(always)]
    #[must_use]
    pub fn is_placed(self) -> bool {
        self.0 & PLACER != 0
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// The thread that placed it.
    #[must_use]
    pub fn placer(self) -> Option<u32> {
        let placer = self.0 & PLACER;
        (placer != 0 && placer != NOBODY).then(|| (placer - 1) as u32)
    }

    /// Number of the policy under which it was placed.
    #[must_use]
    pub fn policy(self) -> u16 {
        (self.0 >> POLICY_SHIFT & POLICY) as u16
    }

    /// Generation of the process whose thread placed it: how many forks lie between it and the first.
    #[inline(always)]
    #[must_use]
    pub fn generation(self) -> u16 {
        (self.0 >> GENERATION_SHIFT & GENERATION) as u16
    }

    /// Of an ancestor's page: whether this process knows who placed it.
    #[inline(always)]
    #[must_use]
    pub fn is_known(self) -> bool {
        self.0 & KNOWN != 0
    }

    /// The same, known in this process.
    #[must_use]
    pub fn known(self) -> Self {
        Self(self.0 | KNOWN)
    }

    /// The same, not known in this process.
    #[must_use]
    pub fn unknown(self) -> Self {
        Self(self.0 & !KNOWN)
    }
}

/// A table of pages.
pub trait Pages {
    /// The state of a page.
    fn get(&self, page: u64) -> State;
    /// Changes the state of a page; returns whether it still was `before`.
    fn replace(&self, page: u64, before: State, now: State) -> bool;
    /// Makes pages absent.
    fn forget(&self, pages: Range<u64>);
}

impl State {
    /// Whether a load, or store, by a process of this generation is no fault that changes what is known of the page.
    #[inline(always)]
    #[must_use]
    pub fn is_settled<const STORE: bool>(self, generation: u16) -> bool {
        let own = self.is_placed() && self.generation() == generation;
        own || !STORE && (self.is_known() || self.0 == READ)
    }
}
