//! One message by LogGP.

/// What LogGP knows of the way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// o: seconds that each end works for a message.
    pub overhead_s: f64,
    /// L: seconds until the first byte arrives.
    pub latency_s: f64,
    /// 1 / G.
    pub bytes_per_s: f64,
}

impl Way {
    /// Seconds that `messages` of together `bytes` occupy the way: `(n - 1) G` of each.
    #[must_use]
    pub fn transfer_s(&self, messages: u64, bytes: u64) -> f64 {
        bytes.saturating_sub(messages) as f64 / self.bytes_per_s
    }

    /// Seconds of `messages` of together `bytes`, one after the other: `o + L + (n - 1) G + o` each.
    #[must_use]
    pub fn seconds(&self, messages: u64, bytes: u64) -> f64 {
        let each = 2.0 * self.overhead_s + self.latency_s;
        messages as f64 * each + self.transfer_s(messages, bytes)
    }
}
