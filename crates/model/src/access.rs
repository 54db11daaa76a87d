//! An access of a running program to memory, as it was seen.

/// What served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// A cache of the core's own package.
    OwnCache,
    /// A cache of another package, which had the line: a transfer from cache to cache.
    OtherCache,
    /// Memory of any node.
    Memory,
}

/// An access to memory. What is not known about it is `None`: page faults say who accessed what, and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Address.
    pub address: u64,
    /// Whether it wrote.
    pub store: Option<bool>,
    /// What served it.
    pub served: Option<Served>,
    /// Cycles that it took.
    pub cycles: Option<u64>,
}

impl Access {
    /// An access of which only the address is known.
    #[must_use]
    pub fn to(address: u64) -> Self {
        Self {
            address,
            ..Self::default()
        }
    }
}
