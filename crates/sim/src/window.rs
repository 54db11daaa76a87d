//! Memory-level parallelism: overlaps misses of a PU.
//!
//! A load that misses does not stop an out-of-order core at once. The core continues for a window of accesses after its
//! oldest outstanding load, with a limited number of loads outstanding. Loads of a recognised stream were prefetched:
//! they wait only if the prefetcher has its maximum number of lines outstanding. Stores wait in a separate buffer. Busy
//! PUs of a core have an equal part each: what one has outstanding does not depend on how far the other's clock is.
//!
//! In a trace with marked loads, a load whose address comes from another one is sent when that one's line has arrived
//! ([`Arrivals`]). It does not keep the core from going on with the window, and takes one of the outstanding lines only
//! from then on.

use crate::arrivals::Arrivals;

/// A queue with a largest length, next to each other in memory.
#[derive(Clone, Debug, Default)]
struct Ring<T> {
    items: Vec<T>,
    first: usize,
    length: usize,
}

impl<T: Copy + Default> Ring<T> {
    fn new(most: usize) -> Self {
        Self {
            items: vec![T::default(); (most + 1).next_power_of_two()],
            first: 0,
            length: 0,
        }
    }

    #[inline(always)]
    fn front(&self) -> Option<T> {
        (self.length > 0).then(|| self.items[self.first & (self.items.len() - 1)])
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = T> {
        (self.first..self.first + self.length).map(|at| self.items[at & (self.items.len() - 1)])
    }

    /// Removes that many from the front.
    #[inline(always)]
    fn skip(&mut self, count: usize) {
        self.first += count;
        self.length -= count;
    }

    #[inline(always)]
    fn push_back(&mut self, item: T) {
        let mask = self.items.len() - 1;
        self.items[(self.first + self.length) & mask] = item;
        self.length += 1;
        debug_assert!(self.length < self.items.len());
    }
}

/// Numbers of outstanding lines, and of accesses after the oldest load.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    accesses: u64,
    loads: usize,
    streamed: usize,
    stores: usize,
}

/// Outstanding lines of a PU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Of a PU that has the core to itself, and at present.
    alone: Limits,
    limits: Limits,
    /// Number of accesses so far.
    at: u64,
    /// Loads: the number of the access, and the arrival time of its line.
    loads: Ring<(u64, u64)>,
    streamed: Ring<u64>,
    stores: Ring<u64>,
    /// If the trace has marked loads.
    arrivals: Option<Box<Arrivals>>,
}

/// Most loads in a window: about the load queues of server cores.
const MOST_LOADS: u64 = 192;

impl Window {
    pub(crate) fn new(
        accesses: u64,
        outstanding: usize,
        prefetched: usize,
        marks_loads: bool,
    ) -> Self {
        let outstanding = outstanding.max(1);
        let loads = match marks_loads {
            // The lines that are outstanding have a limit of their own.
            true => accesses.clamp(1, MOST_LOADS) as usize,
            false => outstanding,
        };
        let alone = Limits {
            accesses,
            loads,
            streamed: prefetched,
            stores: outstanding,
        };
        Self {
            alone,
            limits: alone,
            at: 0,
            loads: Ring::new(loads),
            streamed: Ring::new(prefetched),
            stores: Ring::new(outstanding),
            arrivals: marks_loads.then(|| Box::new(Arrivals::new(outstanding))),
        }
    }

    /// Divides what a core can have outstanding among its busy PUs.
    #[inline]
    pub(crate) fn share(&mut self, busy: u8) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.share(busy);
        }
        let alone = self.alone;
        self.limits = match usize::from(busy) {
            0 | 1 => alone,
            busy => Limits {
                accesses: (alone.accesses / busy as u64).max(1),
                loads: (alone.loads / busy).max(1),
                streamed: alone.streamed.div_ceil(busy),
                stores: (alone.stores / busy).max(1),
            },
        };
    }

    /// Records that the PU has performed accesses.
    #[inline(always)]
    pub(crate) fn work(&mut self, accesses: u64) {
        self.at += accesses;
    }

    /// Number of accesses so far.
    pub(crate) fn accesses(&self) -> u64 {
        self.at
    }

    /// Whether lines of streams are prefetched.
    #[inline(always)]
    pub(crate) fn prefetches(&self) -> bool {
        self.limits.streamed != 0
    }

    /// Time at which a load at `now`, the PU's last access, can be sent, and how many earlier ones do not count then.
    #[inline(always)]
    fn admitted(&self, mut now: u64) -> (u64, usize) {
        let mut passed = 0;
        for (asked, done) in self.loads.iter() {
            let is_far = self.at - asked >= self.limits.accesses;
            if done > now && self.loads.length - passed < self.limits.loads && !is_far {
                break;
            }
            now = now.max(done);
            passed += 1;
        }
        (now, passed)
    }

    /// Time at which a load at `now`, the PU's last access, can be sent.
    #[inline(always)]
    pub(crate) fn admit_load(&mut self, now: u64) -> u64 {
        let (now, passed) = self.admitted(now);
        self.loads.skip(passed);
        now
    }

    /// When the core goes on with a load at `now` whose address comes from the fetch that many back: as
    /// [`Window::send_load`], which is not made.
    pub(crate) fn goes_on(&mut self, now: u64, after: usize) -> u64 {
        let (now, _) = self.admitted(now);
        match &mut self.arrivals {
            Some(arrivals) => arrivals.send(now, after).0,
            None => now,
        }
    }

    #[inline(always)]
    pub(crate) fn add_load(&mut self, done: u64) {
        self.loads.push_back((self.at, done));
    }

    /// Times at which the core goes on after a load at `now`, and at which the load is sent: its address comes from the
    /// fetch that many back, from none if 0.
    #[inline(always)]
    pub(crate) fn send_load(&mut self, now: u64, after: usize) -> (u64, u64) {
        let now = self.admit_load(now);
        match &mut self.arrivals {
            Some(arrivals) => arrivals.send(now, after),
            None => (now, now),
        }
    }

    /// A load that was sent brings its line at `done`, from the core's own caches or from elsewhere.
    #[inline(always)]
    pub(crate) fn load_sent(&mut self, done: u64, is_own: bool) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.add(done);
            if !is_own {
                arrivals.occupy(done);
            }
        }
    }

    /// A line of a stream or of a store is there at `done`.
    #[inline(always)]
    pub(crate) fn arrives(&mut self, done: u64) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.add(done);
        }
    }

    /// Time at which a line of a stream can be requested.
    #[inline(always)]
    pub(crate) fn admit_streamed(&mut self, now: u64) -> u64 {
        admit(&mut self.streamed, self.limits.streamed, now)
    }

    #[inline(always)]
    pub(crate) fn add_streamed(&mut self, done: u64) {
        self.streamed.push_back(done);
    }

    /// Time at which a store can be sent.
    #[inline(always)]
    pub(crate) fn admit_store(&mut self, now: u64) -> u64 {
        admit(&mut self.stores, self.limits.stores, now)
    }

    #[inline(always)]
    pub(crate) fn add_store(&mut self, done: u64) {
        self.stores.push_back(done);
    }

    /// Time at which all requests outstanding at `now` are complete.
    pub(crate) fn drained(&self, now: u64) -> u64 {
        let loads = self.loads.iter().map(|(_, done)| done);
        let others = self.streamed.iter().chain(self.stores.iter());
        loads.chain(others).fold(now, u64::max)
    }

    /// [`Window::drained`], after which none is outstanding.
    pub(crate) fn drain(&mut self, now: u64) -> u64 {
        let now = self.drained(now);
        self.loads.skip(self.loads.length);
        for ring in [&mut self.streamed, &mut self.stores] {
            ring.skip(ring.length);
        }
        now
    }
}

#[inline(always)]
fn admit(outstanding: &mut Ring<u64>, most: usize, mut now: u64) -> u64 {
    while let Some(done) = outstanding.front() {
        if done > now && outstanding.length < most {
            break;
        }
        now = now.max(done);
        outstanding.skip(1);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_overlap_up_to_their_number_and_the_window() {
        let mut window = Window::new(10, 2, 0, false);
        let mut load = |now, at, done| {
            window.at = at;
            let sent = window.admit_load(now);
            window.add_load(done);
            sent
        };
        assert_eq!(load(0, 1, 100), 0);
        assert_eq!(load(1, 2, 101), 1, "a second one overlaps");
        assert_eq!(load(2, 3, 200), 100, "a third waits for the first");
        assert_eq!(load(110, 12, 210), 110, "the second is long there");
        assert_eq!(load(111, 13, 300), 200, "ten accesses behind the oldest");
        assert_eq!(window.drain(201), 300);
    }

    #[test]
    fn busy_pus_of_a_core_share_what_it_can_have_outstanding() {
        let mut window = Window::new(10, 2, 1, false);
        window.share(2);
        window.add_load(100);
        assert_eq!(window.admit_load(0), 100, "one of two");
        window.share(1);
        window.add_load(200);
        assert_eq!(window.admit_load(0), 0);
        window.share(4);
        window.add_streamed(300);
        assert_eq!(window.admit_streamed(0), 300, "at least one");
    }
}
