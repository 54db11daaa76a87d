//! When the lines of a core's last fetches arrive, for loads whose address comes from one of them, and how many lines
//! it has outstanding.

use crate::event::MOST_AFTER;

/// Fetches that are remembered, the last one included.
const FETCHES: usize = MOST_AFTER + 1;

/// Picoseconds by which a load may be sent later than the core goes on. A core goes on for its window, but here other
/// cores' requests must come nearly in the order of time.
pub(crate) const AHEAD: u64 = 1_000_000;

/// Arrivals of a core's lines.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// By number of the fetch.
    times: [u64; FETCHES],
    /// Number of the next fetch.
    next: usize,
    /// When each of the core's line buffers is free.
    buffers: Vec<u64>,
    /// Of which this many, from the first on, may be used, and the one used last.
    active: usize,
    taken: usize,
}

impl Arrivals {
    pub(crate) fn new(outstanding: usize) -> Self {
        Self {
            times: [0; FETCHES],
            next: 0,
            buffers: vec![0; outstanding],
            active: outstanding,
            taken: 0,
        }
    }

    /// Divides the buffers among the busy PUs of the core.
    #[inline]
    pub(crate) fn share(&mut self, busy: u8) {
        self.active = (self.buffers.len() / usize::from(busy.max(1))).max(1);
    }

    /// When the core goes on after a load at `now`, and when the load is sent.
    #[inline]
    pub(crate) fn send(&mut self, now: u64, after: usize) -> (u64, u64) {
        let known = match after {
            0 => now,
            after => now.max(self.times[self.next.wrapping_sub(after) % FETCHES]),
        };
        // The buffer that is free since the shortest time then, otherwise the first to become free: what is sent later
        // leaves the others to what is sent until then.
        let buffers = &self.buffers[..self.active];
        let key = |time: u64| match time <= known {
            true => known - time,
            false => time - known + (1 << 62),
        };
        let mut best = 0;
        for (at, &time) in buffers.iter().enumerate() {
            if key(time) < key(buffers[best]) {
                best = at;
            }
        }
        self.taken = best;
        let sent = known.max(buffers[best]);
        (now.max(sent.saturating_sub(AHEAD)), sent)
    }

    /// The load that was sent last has a buffer until `done`.
    #[inline]
    pub(crate) fn occupy(&mut self, done: u64) {
        self.buffers[self.taken] = done;
    }

    /// The next fetch arrives at a time.
    #[inline]
    pub(crate) fn add(&mut self, done: u64) {
        self.times[self.next % FETCHES] = done;
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_sent_when_its_address_has_arrived() {
        let mut arrivals = Arrivals::new(2);
        let mut load = |now, after| {
            let (goes_on, sent) = arrivals.send(now, after);
            arrivals.add(sent + 100);
            arrivals.occupy(sent + 100);
            (goes_on, sent)
        };
        assert_eq!(load(0, 0), (0, 0));
        assert_eq!(load(1, 1), (1, 100), "in the same buffer, then");
        assert_eq!(load(2, 0), (2, 2), "in the other");
        assert_eq!(load(3, 0), (3, 102), "none is free");
        assert_eq!(load(4, 3), (4, 200));
    }

    #[test]
    fn a_core_does_not_go_on_far_beyond_what_it_waits_for() {
        let mut arrivals = Arrivals::new(2);
        arrivals.add(3 * AHEAD);
        assert_eq!(arrivals.send(0, 1), (2 * AHEAD, 3 * AHEAD));
    }

    #[test]
    fn busy_pus_of_a_core_share_its_buffers() {
        let mut arrivals = Arrivals::new(2);
        arrivals.share(2);
        assert_eq!(arrivals.send(0, 0), (0, 0));
        arrivals.occupy(100);
        assert_eq!(arrivals.send(0, 0), (0, 100));
    }
}
