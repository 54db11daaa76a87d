//! Decaying estimates of who uses which page and who communicates with whom, from observed accesses.
//!
//! An observation counts `2^(-age / half-life)`. Two threads communicate if they access the same page one after the
//! other; the event counts as much as the earlier access does by then. So pages that threads use at different times do
//! not connect them (CDSM's and kMAF's time windows, without an edge).
//!
//! Memory is bounded: [`MOST_PAGES`] pages with [`USERS`] threads each, about 100 bytes per page. If there are more,
//! those that count least are forgotten.

use std::collections::BTreeMap;

/// Pages that are remembered at once: 2 GiB in pages of 4 KiB.
pub const MOST_PAGES: usize = 1 << 19;
/// Threads of a page that are remembered: those that used it last.
pub const USERS: usize = 4;
/// Threads that are observed at once; their matrix takes 8 MiB.
pub const MOST_THREADS: usize = 1024;
/// An estimate below this is forgotten when there is no more room.
const NEGLIGIBLE: f64 = 0.05;
/// Standard deviations within which a count may differ from the mean by chance. With three, a source that shows 20
/// accesses a second did not see the pairs of eight threads.
const CHANCE: f64 = 2.0;
/// Standard deviations of χ² within which all pairs together may differ from the mean by chance: of many pairs, some
/// are beyond [`CHANCE`] always.
const CHANCE_OF_ALL: f64 = 3.0;

/// A thread's use of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct User {
    /// Number of the thread.
    pub thread: usize,
    /// Decayed observations at `last_s`.
    weight: f64,
    /// Time of the last access.
    last_s: f64,
}

/// What was observed; see the module.
#[derive(Clone, Debug)]
pub struct Estimates {
    half_life_s: f64,
    pages: BTreeMap<u64, Vec<User>>,
    most_pages: usize,
    /// Threads x threads as of `as_of_s`: row: the later thread.
    communication: Vec<f64>,
    threads: usize,
    /// Observations by thread as of `as_of_s`.
    activity: Vec<f64>,
    as_of_s: f64,
    begun_s: Option<f64>,
    samples: u64,
}

impl Estimates {
    /// Nothing observed yet.
    #[must_use]
    pub fn new(half_life_s: f64) -> Self {
        Self {
            half_life_s,
            pages: BTreeMap::new(),
            most_pages: MOST_PAGES,
            communication: Vec::new(),
            threads: 0,
            activity: Vec::new(),
            as_of_s: 0.0,
            begun_s: None,
            samples: 0,
        }
    }

    fn left(&self, since_s: f64) -> f64 {
        (-since_s.max(0.0) / self.half_life_s).exp2()
    }

    /// Notes an access of `thread` to `page`. Returns the other thread that used the page last, and how much that
    /// counts. Those before it may be partners of a phase that has ended.
    pub fn note(&mut self, thread: usize, page: u64, time_s: f64) -> Option<(usize, f64)> {
        if thread >= MOST_THREADS {
            return None;
        }
        self.grow(thread + 1);
        self.age_to(time_s);
        self.begun_s.get_or_insert(time_s);
        self.samples += 1;
        self.activity[thread] += 1.0;
        if self.pages.len() >= self.most_pages && !self.pages.contains_key(&page) {
            self.forget(time_s);
        }
        let half_life_s = self.half_life_s;
        let left = |user: &User| {
            user.weight.min(1.0) * (-(time_s - user.last_s).max(0.0) / half_life_s).exp2()
        };
        let users = self.pages.entry(page).or_default();
        let last = users.iter().rfind(|user| user.thread != thread);
        let last = last.map(|user| (user.thread, left(user)));
        match users.iter().position(|user| user.thread == thread) {
            Some(at) => {
                let mut user = users.remove(at);
                let since_s = (time_s - user.last_s).max(0.0);
                user.weight = user.weight * (-since_s / half_life_s).exp2() + 1.0;
                user.last_s = time_s.max(user.last_s);
                users.push(user);
            }
            None => {
                if users.len() == USERS {
                    let oldest = users
                        .iter()
                        .enumerate()
                        .min_by(|a, b| a.1.last_s.total_cmp(&b.1.last_s));
                    let oldest = oldest.map_or(0, |(at, _)| at);
                    users.remove(oldest);
                }
                users.push(User {
                    thread,
                    weight: 1.0,
                    last_s: time_s,
                });
            }
        }
        if let Some((other, weight)) = last {
            self.communication[thread * self.threads + other] += weight;
        }
        last
    }

    /// Forgets a thread that has ended: its number may be that of another one from now on.
    pub fn ended(&mut self, thread: usize) {
        if thread >= self.threads {
            return;
        }
        self.activity[thread] = 0.0;
        for other in 0..self.threads {
            self.communication[thread * self.threads + other] = 0.0;
            self.communication[other * self.threads + thread] = 0.0;
        }
        self.pages.retain(|_, users| {
            users.retain(|user| user.thread != thread);
            !users.is_empty()
        });
    }

    /// Observations so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Number of the highest thread that was observed, plus 1.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Pages that are remembered.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Observations per second, of one that counts `weight` in all at `now_s`: the weight divided by the time that it
    /// was gathered in.
    fn per_s(&self, weight: f64, now_s: f64) -> f64 {
        let begun_s = self.begun_s.unwrap_or(now_s);
        let gathered = 1.0 - self.left(now_s - begun_s);
        let seconds = gathered * self.half_life_s / std::f64::consts::LN_2;
        match seconds > 0.0 {
            true => weight / seconds,
            false => 0.0,
        }
    }

    /// Threads with at least one observation that still counts half, in order.
    #[must_use]
    pub fn active(&self, now_s: f64) -> Vec<usize> {
        let left = self.left(now_s - self.as_of_s);
        let threads = self.activity.iter().enumerate();
        let active = threads.filter(|(_, weight)| **weight * left >= 0.5);
        active.map(|(thread, _)| thread).collect()
    }

    /// Observations per second of all threads.
    #[must_use]
    pub fn samples_per_s(&self, now_s: f64) -> f64 {
        let weight: f64 = self.activity.iter().sum();
        self.per_s(weight * self.left(now_s - self.as_of_s), now_s)
    }

    /// Events per second of `thread` after `other`.
    #[must_use]
    pub fn communication_per_s(&self, thread: usize, other: usize, now_s: f64) -> f64 {
        self.per_s(self.events(thread, other, now_s), now_s)
    }

    /// Events of `thread` after `other` that still count.
    fn events(&self, thread: usize, other: usize, now_s: f64) -> f64 {
        let known = thread < self.threads && other < self.threads;
        let weight = known.then(|| self.communication[thread * self.threads + other]);
        weight.unwrap_or(0.0) * self.left(now_s - self.as_of_s)
    }

    /// Events per second of each pair of `threads`, by their indexes there: (one, other, events of both).
    ///
    /// A pair whose events differ from those of a mean pair by less than [`CHANCE`] standard deviations of a random
    /// count has those of the mean pair: differences that chance explains are no reason to prefer a mapping. If chance
    /// explains the differences of all pairs together, all have them.
    #[must_use]
    pub fn pairs_per_s(&self, threads: &[usize], now_s: f64) -> Vec<(usize, usize, f64)> {
        let mut pairs = Vec::new();
        for (at, &one) in threads.iter().enumerate() {
            for (to, &other) in threads.iter().enumerate().skip(at + 1) {
                let events = self.events(one, other, now_s) + self.events(other, one, now_s);
                pairs.push((at, to, events));
            }
        }
        let mean = pairs.iter().map(|pair| pair.2).sum::<f64>() / pairs.len().max(1) as f64;
        let squares: f64 = pairs.iter().map(|pair| (pair.2 - mean).powi(2)).sum();
        let freedom = pairs.len().saturating_sub(1) as f64;
        let uniform = squares <= mean * (freedom + CHANCE_OF_ALL * (2.0 * freedom).sqrt());
        for (_, _, events) in &mut pairs {
            let by_chance = CHANCE * events.max(mean).max(1.0).sqrt();
            if uniform || (*events - mean).abs() < by_chance {
                *events = mean;
            }
            *events = self.per_s(*events, now_s);
        }
        pairs
    }

    /// Every page that still counts, in order, with the observations per second of its threads.
    pub fn uses(&self, now_s: f64) -> impl Iterator<Item = (u64, Vec<(usize, f64)>)> + '_ {
        self.pages.iter().filter_map(move |(&page, users)| {
            let weight = |user: &User| user.weight * self.left(now_s - user.last_s);
            let mut uses: Vec<(usize, f64)> = users
                .iter()
                .filter(|user| weight(user) >= NEGLIGIBLE)
                .map(|user| (user.thread, self.per_s(weight(user), now_s)))
                .collect();
            uses.sort_by_key(|(thread, _)| *thread);
            (!uses.is_empty()).then_some((page, uses))
        })
    }

    fn grow(&mut self, threads: usize) {
        if threads <= self.threads {
            return;
        }
        let mut larger = vec![0.0; threads * threads];
        for row in 0..self.threads {
            let from = &self.communication[row * self.threads..(row + 1) * self.threads];
            larger[row * threads..row * threads + self.threads].copy_from_slice(from);
        }
        self.communication = larger;
        self.activity.resize(threads, 0.0);
        self.threads = threads;
    }

    /// Lets the sums by thread decay up to `time_s`, in steps of a sixteenth of the half-life.
    fn age_to(&mut self, time_s: f64) {
        let since_s = time_s - self.as_of_s;
        if since_s < self.half_life_s / 16.0 {
            return;
        }
        let left = self.left(since_s);
        self.communication.iter_mut().for_each(|sum| *sum *= left);
        self.activity.iter_mut().for_each(|sum| *sum *= left);
        self.as_of_s = time_s;
    }

    /// Makes room: forgets pages that are negligible, or else the half that counts least.
    fn forget(&mut self, now_s: f64) {
        let half_life_s = self.half_life_s;
        let weight = |users: &Vec<User>| -> f64 {
            let left = |user: &User| (-(now_s - user.last_s).max(0.0) / half_life_s).exp2();
            users.iter().map(|user| user.weight * left(user)).sum()
        };
        self.pages.retain(|_, users| weight(users) >= NEGLIGIBLE);
        if self.pages.len() * 8 < self.most_pages * 7 {
            return;
        }
        let mut weights: Vec<f64> = self.pages.values().map(weight).collect();
        weights.sort_by(f64::total_cmp);
        let most = weights[(weights.len() / 2).max(1) - 1];
        let mut excess = self.pages.len() / 2;
        self.pages.retain(|_, users| {
            let forgotten = excess > 0 && weight(users) <= most;
            excess -= usize::from(forgotten);
            !forgotten
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        let off = (found - expected).abs();
        assert!(
            off <= 1e-9 * expected.abs().max(1.0),
            "{found} is not {expected}"
        );
    }

    #[test]
    fn observations_count_half_after_the_half_life() {
        let mut of = Estimates::new(2.0);
        assert_eq!(of.note(0, 7, 0.0), None);
        // Thread 1 comes two seconds later: half an event. Then 0 again at once: a whole one, from 1.
        assert_eq!(of.note(1, 7, 2.0), Some((0, 0.5)));
        assert_eq!(of.note(0, 7, 2.0), Some((1, 1.0)));
        // 0 -> 1 decays to a quarter in four seconds; gathered since 0: 1 - 2^-3 of the whole.
        let seconds = (1.0 - 0.125) * 2.0 / std::f64::consts::LN_2;
        close(of.communication_per_s(1, 0, 6.0), 0.5 * 0.25 / seconds);
        close(of.communication_per_s(0, 1, 6.0), 0.25 / seconds);
        let uses: Vec<_> = of.uses(6.0).collect();
        assert_eq!(uses.len(), 1);
        let (page, users) = &uses[0];
        assert_eq!((*page, users.len()), (7, 2));
        close(users[0].1, 1.5 * 0.25 / seconds);
        close(users[1].1, 0.25 / seconds);
    }

    #[test]
    fn differences_that_chance_explains_are_left_out() {
        // Two threads meet `times` times on a page of their own.
        let meet = |of: &mut Estimates, one: usize, other: usize, times: usize| {
            for _ in 0..times {
                let page = (one * 8 + other) as u64;
                of.note(one, page, 0.0);
                of.note(other, page, 0.0);
            }
        };
        let threads = [0, 1, 2, 3];
        let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
        let mut of = Estimates::new(1e9);
        for ((one, other), times) in pairs.into_iter().zip([3, 1, 5, 2, 4, 2]) {
            meet(&mut of, one, other, times);
        }
        let found = of.pairs_per_s(&threads, 1.0);
        assert_eq!(found.len(), 6);
        assert!(found.iter().all(|pair| pair.2 == found[0].2), "{found:?}");
        // 0 and 3 meet far more often now: no chance.
        meet(&mut of, 0, 3, 50);
        let found = of.pairs_per_s(&threads, 1.0);
        let most = found.iter().max_by(|a, b| a.2.total_cmp(&b.2)).unwrap();
        assert_eq!((most.0, most.1), (0, 3));
        assert!(most.2 > 5.0 * found[0].2, "{found:?}");
    }

    #[test]
    fn a_steady_rate_is_estimated_from_the_beginning_on() {
        let mut of = Estimates::new(2.0);
        for at in 0..4000 {
            let now_s = f64::from(at) * 0.01;
            of.note(0, 1, now_s);
            if at >= 100 {
                let rate = of.uses(now_s).next().unwrap().1[0].1;
                assert!((rate / 100.0 - 1.0).abs() < 0.02, "{rate} at {now_s}");
            }
        }
    }

    #[test]
    fn the_threads_that_used_a_page_last_are_remembered() {
        let mut of = Estimates::new(1.0);
        for thread in 0..6 {
            of.note(thread, 3, thread as f64 * 0.001);
        }
        let users: Vec<usize> = of
            .uses(0.006)
            .next()
            .unwrap()
            .1
            .iter()
            .map(|u| u.0)
            .collect();
        assert_eq!(users, [2, 3, 4, 5]);
        // A thread that has ended is nobody's partner, and its number can be used again.
        of.ended(5);
        assert_eq!(of.note(1, 3, 0.006).map(|last| last.0), Some(4));
        close(of.communication_per_s(5, 4, 0.006), 0.0);
        assert_eq!(of.active(0.006), [0, 1, 2, 3, 4]);
        assert_eq!(of.note(MOST_THREADS, 3, 0.007), None);
    }

    #[test]
    fn pages_are_forgotten_when_there_is_no_room_and_the_same_ones_each_time() {
        let full = |extra: u64| {
            let mut of = Estimates::new(1.0);
            of.most_pages = 64;
            for page in 0..64 {
                of.note(0, page, 0.0);
                // Even pages are used twice.
                if page % 2 == 0 {
                    of.note(0, page, 0.0);
                }
            }
            of.note(0, extra, 0.01);
            of.uses(0.01).map(|(page, _)| page).collect::<Vec<_>>()
        };
        let kept = full(1000);
        assert_eq!(kept.len(), 33);
        assert!(kept[..32].iter().all(|page| page % 2 == 0), "{kept:?}");
        assert_eq!(kept, full(1000));
    }
}
