//! Who waits for an event, and satisfactions that are on their way.

use crate::guid::Guid;

/// A task or event slot that waits for an event.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub(crate) to: Guid,
    pub(crate) slot: u32,
}

/// A pending satisfaction.
pub struct Delivery {
    /// The event that fired.
    pub(crate) from: Guid,
    pub(crate) to: Guid,
    pub(crate) slot: u32,
    pub(crate) payload: Guid,
}

impl Waiter {
    /// The satisfaction of this waiter by event `from`.
    pub(crate) fn delivery(self, from: Guid, payload: Guid) -> Delivery {
        Delivery {
            from,
            to: self.to,
            slot: self.slot,
            payload,
        }
    }
}
