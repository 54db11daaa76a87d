//! A server that handles one request at a time: a memory controller, or one direction of a link.
//!
//! Requests are served first come, first served. In the order of time this is a plain FIFO server, exact to the
//! picosecond. Clocks of PUs differ by up to a quantum, so most requests come with an earlier time than one that is
//! booked already. Such a late request takes the first idle [slot](Slots) since its arrival: then the busy time and the
//! sum of all waits are those of the order of time. In that order, though, a part of its displacement would be waits of
//! requests with later times, which have been answered. The late request itself waits only as long as the backlog of
//! the latest one; the rest is owed, and the next requests pay small shares of it. Otherwise a core that comes last
//! would wait for a whole quantum, and the time of a run would depend on it.

use crate::slots::Slots;

/// A request pays one over this of what is owed. With fewer, those that come next would pay more than others.
const SHARES: u64 = 32;

/// A first-come-first-served server. All times in picoseconds.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// No request is booked from this time on.
    free_at: u64,
    /// The server is busy from this time to `free_at`.
    busy_from: u64,
    /// Idle time before `busy_from`; none before the first idle time.
    slots: Option<Slots>,
    /// Picoseconds of late requests that are less than a slot.
    rest: u64,
    /// Waits of answered requests that the next ones pay.
    owed: u64,
    /// The latest arrival.
    latest: u64,
    /// Usual time of a request; if 0, that of the first one.
    service: u64,
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
    /// A server whose requests usually take `service`.
    #[must_use]
    pub fn of(service: u64) -> Self {
        Self {
            service,
            ..Self::default()
        }
    }

    /// Books `service` for a request that arrives at `arrival`; returns when its service starts.
    #[inline]
    pub fn book(&mut self, arrival: u64, service: u64) -> u64 {
        if service == 0 {
            // Infinite bandwidth: never busy.
            self.requests += 1;
            return arrival;
        }
        let wait = if arrival >= self.free_at {
            if arrival > self.free_at {
                self.idle_until(arrival, service);
            }
            self.free_at = arrival + service;
            self.latest = arrival;
            0
        } else if arrival >= self.busy_from {
            // A late one would have come before the latest.
            self.latest = self.latest.max(arrival);
            self.owed += self.latest - arrival;
            let wait = self.free_at - self.latest;
            self.free_at += service;
            wait
        } else {
            self.book_late(arrival, service)
        };
        let paid = self.owed / SHARES;
        self.owed -= paid;
        let wait = wait + paid;
        self.busy += service;
        self.waited += wait;
        self.longest = self.longest.max(wait);
        self.requests += 1;
        arrival + wait
    }

    /// Records that the server is idle from `free_at` until a request arrives.
    #[inline]
    fn idle_until(&mut self, arrival: u64, service: u64) {
        let usual = if self.service == 0 {
            service
        } else {
            self.service
        };
        let slots = self.slots.get_or_insert_with(|| Slots::new(usual));
        slots.idle(slots.boundary(self.free_at), slots.boundary(arrival));
        self.busy_from = arrival;
    }

    /// Books `service` in the idle time before `busy_from`, or behind all requests, for one with an earlier time than
    /// others; returns its wait.
    #[inline]
    fn book_late(&mut self, arrival: u64, service: u64) -> u64 {
        let backlog = self.free_at.saturating_sub(self.latest);
        let Some(slots) = &mut self.slots else {
            self.owed += self.free_at - arrival - backlog;
            self.free_at += service;
            self.busy_from = arrival;
            return backlog;
        };
        let nearest = slots.boundary(arrival).max(slots.oldest());
        let all = self.rest + service;
        let whole = slots.whole(all);
        self.rest = all - whole * slots.length();
        let mut displaced = 0;
        for _ in 0..whole.max(1) {
            match slots.first(nearest, whole > 0) {
                Some(slot) => displaced = slot - nearest,
                None => {
                    displaced = slots.boundary(self.free_at) - nearest;
                    if whole > 0 {
                        self.free_at += slots.length();
                    }
                    self.busy_from = self.busy_from.min(arrival);
                }
            }
        }
        let displaced = displaced * slots.length();
        let wait = displaced.min(backlog);
        self.owed += displaced - wait;
        wait
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
        let mut server = Server::of(10);
        assert_eq!(server.book(100, 10), 100);
        assert_eq!(server.book(130, 10), 130);
        // Fits between the two.
        assert_eq!(server.book(115, 10), 115);
        // No slot between it and 130: served behind that one, it waits as long as this one's backlog.
        assert_eq!(server.book(125, 10), 135);
        assert_eq!(server.free_at, 150);
        // In order: behind all others.
        assert_eq!(server.book(131, 10), 150);
        assert_eq!(
            (server.free_at, server.busy, server.waited, server.owed),
            (160, 50, 10 + 19, 0)
        );
    }

    /// Where the past is not kept any more, requests take the first slots that are: they wait for each other there, and
    /// the time until then is no wait that others would have to pay.
    #[test]
    fn requests_from_before_what_is_kept_wait_for_each_other_alone() {
        let (service, requests) = (10, 100);
        let mut server = Server::of(service);
        server.book(100, service);
        server.book(10_000_000, service);
        for at in 0..requests {
            server.book(1_000_000 + 1000 * at, service);
        }
        let all = server.waited + server.owed;
        assert!(all <= service * requests * requests / 2, "{all} ps");
    }

    /// Two cores of which one is a quantum behind: it does not wait for the whole quantum.
    #[test]
    fn late_requests_wait_as_long_as_others() {
        let mut server = Server::of(10);
        for at in 0..100 {
            server.book(1000 + 10 * at, 10);
        }
        let waits: Vec<u64> = (0..100)
            .map(|at| server.book(1000 + 10 * at, 10) - (1000 + 10 * at))
            .collect();
        // In the order of time, the queue would grow by a service for each two requests.
        assert!((10..60).contains(&waits[0]), "{waits:?}");
        assert_eq!(server.free_at, 1000 + 200 * 10);
        assert_eq!(server.waited + server.owed, 100 * 1000);
    }

    /// Bursts of several cores, each a quantum of its own after the other, as in a simulation: the sum of waits is
    /// close to that of the same requests in the order of time.
    #[test]
    fn bursts_of_cores_wait_as_long_as_their_requests_in_order() {
        for rho in [0.2, 0.5, 0.8, 0.95] {
            let (service, quantum) = (3_846, 100_000);
            let mut poisson = Poisson {
                state: 7,
                mean: 16.0 * service as f64 / rho,
            };
            let mut arrivals = Vec::new();
            let mut clocks = [0.0; 16];
            for round in 1..2_000u64 {
                for clock in &mut clocks {
                    while *clock < (round * quantum) as f64 {
                        arrivals.push(*clock as u64);
                        *clock += poisson.gap();
                    }
                }
            }
            let waited = |arrivals: &[u64]| {
                let mut server = Server::of(service);
                for &arrival in arrivals {
                    server.book(arrival, service);
                }
                server.waited as f64
            };
            let bursts = waited(&arrivals);
            arrivals.sort_unstable();
            let ratio = bursts / waited(&arrivals);
            println!("rho {rho}: {ratio:.4} of the waits in order");
            assert!((ratio - 1.0).abs() < 0.02, "rho {rho}: {ratio:.4}");
        }
    }
}
