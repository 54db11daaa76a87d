//! A server that handles one request at a time: a memory controller, or one direction of a link.
//!
//! Requests are served first come, first served. Clocks of PUs differ by up to a quantum, so a request may arrive with
//! an earlier time than one already accepted: it uses idle time since its arrival, and is charged with the waits that
//! it would have caused. With requests in time order this is a plain FIFO server.

/// Number of idle gaps stored; older ones lie more than a quantum back.
const GAPS: usize = 256;

/// The last [`GAPS`] idle intervals, next to each other in memory: requests look for theirs from the end.
#[derive(Clone, Debug, Default)]
struct Gaps {
    all: Vec<(u64, u64)>,
    /// Number of intervals at the start that are dropped.
    dropped: usize,
}

impl Gaps {
    #[inline]
    fn stored(&self) -> &[(u64, u64)] {
        &self.all[self.dropped..]
    }

    #[inline]
    fn get(&self, at: usize) -> Option<(u64, u64)> {
        self.all.get(self.dropped + at).copied()
    }

    /// Position of the first interval that ends after `arrival`.
    ///
    /// Late requests are only slightly late, so it is one of the last: the search goes back from the end, over several
    /// intervals at once where all of them end later. (Faster than a binary search.)
    #[inline]
    fn first_after(&self, arrival: u64) -> usize {
        const STRIDE: usize = 12;
        let stored = self.stored();
        let mut end = stored.len();
        while end >= STRIDE && stored[end - STRIDE].1 > arrival {
            end -= STRIDE;
        }
        let is_before = |(_, to): &(u64, u64)| *to <= arrival;
        let before = stored[..end].iter().rposition(is_before);
        before.map_or(0, |at| at + 1)
    }

    #[inline]
    fn push(&mut self, gap: (u64, u64)) {
        self.limit();
        self.all.push(gap);
    }

    /// Makes room for another interval by dropping the oldest.
    #[inline]
    fn limit(&mut self) {
        if self.all.len() - self.dropped < GAPS {
            return;
        }
        self.dropped = self.all.len() + 1 - GAPS;
        if self.dropped >= 3 * GAPS {
            self.all.drain(..self.dropped);
            self.dropped = 0;
        }
    }

    #[inline]
    fn replace(&mut self, at: usize, gap: (u64, u64)) {
        self.all[self.dropped + at] = gap;
    }

    #[inline]
    fn insert(&mut self, at: usize, gap: (u64, u64)) {
        self.all.insert(self.dropped + at, gap);
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        self.all.remove(self.dropped + at);
    }
}

/// A first-come-first-served server. All times in picoseconds.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// No request is booked from this time on.
    free_at: u64,
    /// Idle intervals before `free_at`, oldest first.
    gaps: Gaps,
    /// Time spent serving requests.
    pub busy: u64,
    /// Sum of the times that requests waited.
    pub waited: u64,
    /// Longest wait.
    pub longest: u64,
    /// Requests handled.
    pub requests: u64,
}

impl Server {
    /// Books `service` for a request that arrives at `arrival`; returns when its service starts.
    #[inline]
    pub fn book(&mut self, arrival: u64, service: u64) -> u64 {
        let wait = if arrival >= self.free_at {
            if arrival > self.free_at {
                self.gaps.push((self.free_at, arrival));
            }
            self.free_at = arrival + service;
            0
        } else if let Some(wait) = self.book_late(arrival, service) {
            wait
        } else {
            let wait = self.free_at - arrival;
            self.free_at += service;
            wait
        };
        self.busy += service;
        self.waited += wait;
        self.longest = self.longest.max(wait);
        self.requests += 1;
        arrival + wait
    }

    /// Books `service` in the idle time before `free_at`, for a request with an earlier time than others; returns its
    /// wait, or `None` if there was no idle time since `arrival`.
    ///
    /// In time order, it would have started in the first idle gap, and the part that does not fit there would have
    /// delayed the requests after the gap until the next gap absorbs it. Those are already booked, so this request is
    /// charged with all their delays, and the sum of all waits is that of a server with requests in order.
    #[inline]
    fn book_late(&mut self, arrival: u64, service: u64) -> Option<u64> {
        let mut at = self.gaps.first_after(arrival);
        let (from, to) = self.gaps.get(at)?;
        let start = from.max(arrival);
        let mut wait = start - arrival;
        if start + service <= to {
            self.cut(at, (from, start), (start + service, to));
            return Some(wait);
        }
        let mut push = start + service - to;
        let mut moved_from = to;
        at += self.cut(at, (from, start), (to, to));
        while let Some((from, to)) = self.gaps.get(at) {
            wait += pushed(push, from - moved_from, service);
            if to - from >= push {
                self.cut(at, (from + push, to), (to, to));
                return Some(wait);
            }
            push -= to - from;
            moved_from = to;
            self.gaps.remove(at);
        }
        wait += pushed(push, self.free_at - moved_from, service);
        self.free_at += push;
        Some(wait)
    }

    /// Replaces the gap at `at` by its two parts, if not empty; returns their number.
    fn cut(&mut self, at: usize, before: (u64, u64), after: (u64, u64)) -> usize {
        match (before.0 < before.1, after.0 < after.1) {
            (true, true) => {
                self.gaps.replace(at, before);
                self.gaps.insert(at + 1, after);
                2
            }
            (true, false) => {
                self.gaps.replace(at, before);
                1
            }
            (false, true) => {
                self.gaps.replace(at, after);
                1
            }
            (false, false) => {
                self.gaps.remove(at);
                0
            }
        }
    }
}

/// Sum of the waits of the requests in a busy interval of `length` if all of them start later by `push`.
fn pushed(push: u64, length: u64, service: u64) -> u64 {
    const MOST: u64 = 1 << 60;
    let service = service.max(1);
    // Limited to the range of clocks. Products that fit 64 bits need no division of 128.
    match push.checked_mul(length) {
        Some(product) => (product / service).min(MOST),
        None => {
            let product = u128::from(push) * u128::from(length);
            (product / u128::from(service)).min(MOST.into()) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponentially distributed gaps from a linear congruential generator.
    struct Poisson {
        state: u64,
        mean: f64,
    }

    impl Poisson {
        fn gap(&mut self) -> f64 {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = ((self.state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            -uniform.ln() * self.mean
        }
    }

    /// Mean wait over service of an M/D/1 queue at utilisation `rho`, with stamps shuffled by up to `skew` services.
    fn mean_wait(rho: f64, arrivals: usize, skew: f64) -> f64 {
        let service = 10_000u64;
        let mut poisson = Poisson {
            state: 1,
            mean: service as f64 / rho,
        };
        let mut now = 0.0;
        let mut times: Vec<(f64, u64)> = (0..arrivals)
            .map(|_| {
                now += poisson.gap();
                (now + poisson.gap().min(service as f64) * skew, now as u64)
            })
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut server = Server::default();
        for (_, time) in times {
            server.book(time, service);
        }
        server.waited as f64 / arrivals as f64 / service as f64
    }

    /// M/D/1 (Pollaczek-Khinchine with constant service): wait = rho S / (2 (1 - rho)).
    #[test]
    fn poisson_arrivals_wait_as_long_as_in_theory() {
        for rho in [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
            let expected = rho / (2.0 * (1.0 - rho));
            let found = mean_wait(rho, 1_000_000, 0.0);
            assert!(
                (found / expected - 1.0).abs() < 0.03,
                "rho {rho}: {found} services, expected {expected}"
            );
        }
    }

    #[test]
    fn late_requests_change_mean_waits_little() {
        for rho in [0.3, 0.5, 0.8] {
            let (ordered, shuffled) = (mean_wait(rho, 300_000, 0.0), mean_wait(rho, 300_000, 2.0));
            assert!(
                (shuffled / ordered - 1.0).abs() < 0.05,
                "rho {rho}: {shuffled} services out of order, {ordered} in order"
            );
        }
    }

    /// Work is neither lost nor created: with any order of arrival times, as many requests are done by the end of a
    /// busy run.
    #[test]
    fn late_requests_use_idle_time() {
        let mut server = Server::default();
        assert_eq!(server.book(100, 10), 100);
        assert_eq!(server.book(130, 10), 130);
        // Fits between the two, and splits the gap.
        assert_eq!(server.book(115, 10), 115);
        // Five before 130 are idle: it delays the request at 130 by five.
        assert_eq!(server.book(125, 10), 130);
        assert_eq!(server.free_at, 145);
        // No idle time: after all others.
        assert_eq!(server.book(131, 10), 145);
        assert_eq!(
            (server.free_at, server.busy, server.waited),
            (155, 50, 5 + 14)
        );
    }
}
