//! Memory-level parallelism: overlaps misses of a core.
//!
//! A load that misses does not stop an out-of-order core at once. The core continues for a window of accesses after its
//! oldest outstanding load, with a limited number of loads outstanding. Loads of a recognised stream were prefetched:
//! they wait only if the prefetcher has its maximum number of lines outstanding. Stores wait in a separate buffer.

/// A queue with a largest length, next to each other in memory.
#[derive(Clone, Debug)]
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
    fn pop_front(&mut self) {
        self.first += 1;
        self.length -= 1;
    }

    #[inline(always)]
    fn push_back(&mut self, item: T) {
        let mask = self.items.len() - 1;
        self.items[(self.first + self.length) & mask] = item;
        self.length += 1;
        debug_assert!(self.length < self.items.len());
    }
}

/// Outstanding lines of a core.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    accesses: u64,
    /// Loads: the number of the access, and the arrival time of its line.
    loads: Ring<(u64, u64)>,
    most_loads: usize,
    streamed: Ring<u64>,
    most_streamed: usize,
    stores: Ring<u64>,
}

impl Window {
    pub(crate) fn new(accesses: u64, outstanding: usize, prefetched: usize) -> Self {
        let most_loads = outstanding.max(1);
        Self {
            accesses,
            loads: Ring::new(most_loads),
            most_loads,
            streamed: Ring::new(prefetched),
            most_streamed: prefetched,
            stores: Ring::new(most_loads),
        }
    }

    /// Whether lines of streams are prefetched.
    #[inline(always)]
    pub(crate) fn prefetches(&self) -> bool {
        self.most_streamed != 0
    }

    /// Time at which a load at `now`, the core's access number `at`, can be sent.
    #[inline]
    pub(crate) fn admit_load(&mut self, mut now: u64, at: u64) -> u64 {
        while let Some((asked, done)) = self.loads.front() {
            let must_wait = self.loads.length >= self.most_loads || at - asked >= self.accesses;
            if done > now && !must_wait {
                break;
            }
            now = now.max(done);
            self.loads.pop_front();
        }
        now
    }

    #[inline]
    pub(crate) fn add_load(&mut self, at: u64, done: u64) {
        self.loads.push_back((at, done));
    }

    /// Time at which a line of a stream can be requested.
    #[inline]
    pub(crate) fn admit_streamed(&mut self, now: u64) -> u64 {
        admit(&mut self.streamed, self.most_streamed, now)
    }

    #[inline]
    pub(crate) fn add_streamed(&mut self, done: u64) {
        self.streamed.push_back(done);
    }

    /// Time at which a store can be sent.
    #[inline]
    pub(crate) fn admit_store(&mut self, now: u64) -> u64 {
        admit(&mut self.stores, self.most_loads, now)
    }

    #[inline]
    pub(crate) fn add_store(&mut self, done: u64) {
        self.stores.push_back(done);
    }

    /// Time at which all requests outstanding at `now` are complete.
    pub(crate) fn drain(&mut self, mut now: u64) -> u64 {
        while let Some((_, done)) = self.loads.front() {
            now = now.max(done);
            self.loads.pop_front();
        }
        for ring in [&mut self.streamed, &mut self.stores] {
            while let Some(done) = ring.front() {
                now = now.max(done);
                ring.pop_front();
            }
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
        outstanding.pop_front();
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_overlap_up_to_their_number_and_the_window() {
        let mut window = Window::new(10, 2, 0);
        assert_eq!(window.admit_load(0, 1), 0);
        window.add_load(1, 100);
        assert_eq!(window.admit_load(1, 2), 1, "a second one overlaps");
        window.add_load(2, 101);
        assert_eq!(window.admit_load(2, 3), 100, "a third waits for the first");
        window.add_load(3, 200);
        assert_eq!(window.admit_load(110, 12), 110, "the second is long there");
        window.add_load(12, 210);
        assert_eq!(
            window.admit_load(111, 13),
            200,
            "ten accesses behind the oldest"
        );
        assert_eq!(window.drain(201), 210);
    }
}
