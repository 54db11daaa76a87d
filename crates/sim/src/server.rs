//! A server that handles one request at a time: a memory controller, or one direction of a link.
//!
//! Requests are served first come, first served. Clocks of PUs differ by up to a quantum, so a request may arrive with
//! an earlier time than one already accepted: it uses idle time since its arrival, and is charged with the waits that
//! it would have caused. With requests in time order this is a plain FIFO server, exact to the picosecond.
//!
//! Idle time before the last busy interval is kept in slots ([`Slots`]): whole ones, so a request that uses it may
//! start up to a slot too early or too late, a sixteenth of a service or less.

/// Words of 64 slots that are kept; idle time before is forgotten. At a controller of 97 GB/s, 2 us: more than clocks
/// differ by.
const WORDS: usize = 1024;
/// A slot is between a thirty-second and a sixteenth of the service that its server was made for.
const SLOTS_OF_A_SERVICE: u64 = 16;

/// Idle slots of a server: a bit for each, set if it is idle. A slot is a power of two of picoseconds.
#[derive(Clone, Debug)]
struct Slots {
    words: Box<[u64; WORDS]>,
    /// The last word with idle slots, counted from time 0; words behind it are not valid yet.
    last: u64,
    /// Log2 of the picoseconds of a slot.
    shift: u32,
}

impl Slots {
    fn new(service: u64) -> Self {
        Self {
            words: Box::new([0; WORDS]),
            last: 0,
            shift: (service / SLOTS_OF_A_SERVICE).max(1).ilog2(),
        }
    }

    /// The number of the slot boundary next to a time.
    #[inline(always)]
    fn boundary(&self, time: u64) -> u64 {
        (time + ((1 << self.shift) >> 1)) >> self.shift
    }

    #[inline(always)]
    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.words[number as usize % WORDS]
    }

    /// Marks the time from `from` to `to` as idle; all time before `from` is marked already.
    #[inline]
    fn idle(&mut self, from: u64, to: u64) {
        let (from, to) = (self.boundary(from), self.boundary(to));
        if from >= to {
            return;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let idle = |number: u64| {
            let behind = if number == first { from % 64 } else { 0 };
            let before = if number == last {
                63 - (to - 1) % 64
            } else {
                0
            };
            u64::MAX << behind & u64::MAX >> before
        };
        // The last valid word that is still kept.
        let valid = self.last.max(last.saturating_sub(WORDS as u64));
        let oldest = (last + 1).saturating_sub(WORDS as u64);
        for number in first.max(oldest)..=valid.min(last) {
            *self.word(number) |= idle(number);
        }
        for number in valid + 1..=last {
            *self.word(number) = if number < first { 0 } else { idle(number) };
        }
        self.last = self.last.max(last);
    }

    /// The first idle slot from `from` on.
    #[inline]
    fn first(&mut self, from: u64) -> Option<u64> {
        let oldest = (self.last + 1).saturating_sub(WORDS as u64);
        let (mut number, mut slots) = match from / 64 {
            within if within >= oldest => (within, u64::MAX << (from % 64)),
            _ => (oldest, u64::MAX),
        };
        while number <= self.last {
            slots &= *self.word(number);
            if slots != 0 {
                return Some(number * 64 + u64::from(slots.trailing_zeros()));
            }
            (number, slots) = (number + 1, u64::MAX);
        }
        None
    }

    /// Takes `count` slots from `from` on if they are in one word and all idle; returns whether they were.
    #[inline(always)]
    fn take_all(&mut self, from: u64, count: u64) -> bool {
        let (number, at) = (from / 64, from % 64);
        if number > self.last || number + WORDS as u64 <= self.last || at + count >= 64 {
            return false;
        }
        let word = &mut self.words[number as usize % WORDS];
        let wanted = ((1u64 << count) - 1) << at;
        let are_idle = *word & wanted == wanted;
        *word &= if are_idle { !wanted } else { u64::MAX };
        are_idle
    }

    /// Takes up to `most` idle slots that follow each other from `from`, an idle one, on and are in one word; returns
    /// their number.
    #[inline]
    fn take(&mut self, from: u64, most: u64) -> u64 {
        let word = &mut self.words[(from / 64) as usize % WORDS];
        let at = from % 64;
        let idle = u64::from((!(*word >> at)).trailing_zeros());
        let count = idle.min(most);
        *word &= !((u64::MAX >> (64 - count)) << at);
        count
    }
}

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
            0
        } else if arrival >= self.busy_from {
            let wait = self.free_at - arrival;
            self.free_at += service;
            wait
        } else {
            self.book_late(arrival, service)
        };
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
        slots.idle(self.free_at, arrival);
        self.busy_from = arrival;
    }

    /// Books `service` in the idle time before `busy_from`, for a request with an earlier time than others; returns its
    /// wait.
    ///
    /// In time order, it would have started in the first idle time, and the part that does not fit there would have
    /// delayed the requests behind it until the next idle time absorbs it. Those are already booked, so this request is
    /// charged with all their delays, and the sum of all waits is that of a server with requests in order.
    #[inline]
    fn book_late(&mut self, arrival: u64, service: u64) -> u64 {
        let Some(slots) = &mut self.slots else {
            return self.book_last(arrival, arrival, service, service);
        };
        let shift = slots.shift;
        let nearest = slots.boundary(arrival);
        let whole = (self.rest + service) >> shift;
        if slots.take_all(nearest, whole) {
            self.rest = (self.rest + service) & ((1 << shift) - 1);
            return 0;
        }
        let Some(first) = slots.first(nearest) else {
            return self.book_last(arrival, arrival, service, service);
        };
        let start = if first == nearest {
            arrival
        } else {
            first << shift
        };
        let mut wait = start - arrival;
        let mut left = whole;
        self.rest = (self.rest + service) & ((1 << shift) - 1);
        let mut at = first;
        while left > 0 {
            let taken = slots.take(at, left);
            left -= taken;
            at += taken;
            if left == 0 {
                break;
            }
            let Some(next) = slots.first(at) else {
                return wait + self.book_last(start, at << shift, left << shift, service);
            };
            wait += pushed(left << shift, (next - at) << shift, service);
            at = next;
        }
        wait
    }

    /// Books `rest` of a `service` behind all requests, the first of which starts at `from`, because there is no idle
    /// time since `arrival`; returns the wait.
    fn book_last(&mut self, arrival: u64, from: u64, rest: u64, service: u64) -> u64 {
        let wait = match rest == service {
            true => self.free_at - arrival,
            false => pushed(rest, self.free_at.saturating_sub(from), service),
        };
        self.free_at += rest;
        self.busy_from = self.busy_from.min(arrival);
        wait
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
            assert!((ratio - 1.0).abs() < 0.01, "rho {rho}: {ratio:.4}");
        }
    }
}
