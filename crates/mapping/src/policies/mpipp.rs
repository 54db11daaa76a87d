//! MPIPP (Chen, Chen, Huang, Robert, Kuhn, ICS 2006): repeated best exchanges from random starts.
//!
//! From a random mapping, a pass exchanges the pair of tasks that gains most (even if that is a loss), locks both, and
//! continues until all are locked; the prefix of exchanges with the largest gain is kept. Passes repeat while they
//! gain; the best of several starts wins. The cost is our J (the paper adds message counts times latency, which a
//! matrix of amounts does not have).
//!
//! Where the paper is silent: with fewer tasks than PUs, empty seats take part as idle tasks; with more, PUs have
//! several seats. Ties: the first pair. Gains are kept per task and seat, so a pass is O(S^3) for S seats (the
//! re-implementation in TreeMatch is O(S^4) per exchange); at most 512 seats.

use fastrand::Rng;
use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::Spread;

/// The policy; see the module documentation.
pub struct Mpipp {
    /// Random starts.
    pub starts: usize,
}

const MOST_SEATS: usize = 512;

impl MappingPolicy for Mpipp {
    fn name(&self) -> &'static str {
        "mpipp"
    }

    fn summary(&self) -> &'static str {
        "best exchanges from random starts"
    }

    fn source(&self) -> &'static str {
        "MPIPP 2006"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let slots = input.slots(Spread::Auto);
        if slots.total() > MOST_SEATS {
            return Err(MapError::TooLarge {
                policy: self.name(),
                limit: MOST_SEATS,
                tasks: slots.total(),
            });
        }
        let seats: Vec<usize> = (0..slots.capacity().len())
            .flat_map(|pu| std::iter::repeat_n(pu, slots.capacity()[pu] as usize))
            .collect();
        let mut rng = Rng::with_seed(input.seed());
        let mut best: Option<(f64, Vec<usize>)> = None;
        let mut passes = 0;
        for _ in 0..self.starts.max(1) {
            let mut seat_of: Vec<usize> = (0..seats.len()).collect();
            rng.shuffle(&mut seat_of);
            let mut state = State::new(input, &seats, seat_of);
            loop {
                passes += 1;
                if !state.pass() {
                    break;
                }
            }
            let cost = state.cost();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, state.seat_of));
            }
        }
        let seat_of = best.expect("at least one start").1;
        let pu = seat_of[..input.tasks()]
            .iter()
            .map(|&seat| LogicalPu::from_index(seats[seat]));
        Ok(Mapped {
            diagnostics: vec![("passes", f64::from(passes))],
            ..Mapped::plain(pu.collect())
        })
    }
}

struct State<'a> {
    input: &'a MapInput<'a>,
    /// Seats x seats.
    distance: Vec<f64>,
    /// By task; tasks beyond the input's are idle.
    seat_of: Vec<usize>,
    /// Task x seat: the task's cost on that seat, with all others unchanged.
    pays: Vec<f64>,
    n: usize,
}

impl<'a> State<'a> {
    fn new(input: &'a MapInput<'a>, seats: &[usize], seat_of: Vec<usize>) -> Self {
        let n = seats.len();
        let distance: Vec<f64> = seats
            .iter()
            .flat_map(|&a| seats.iter().map(move |&b| input.distances().mean(a, b)))
            .collect();
        let mut pays = vec![0.0; n * n];
        for task in 0..input.tasks() {
            for (other, weight) in input.graph().row(task) {
                for seat in 0..n {
                    pays[task * n + seat] += weight * distance[seat * n + seat_of[other]];
                }
            }
        }
        Self {
            input,
            distance,
            seat_of,
            pays,
            n,
        }
    }

    fn weight(&self, a: usize, b: usize) -> f64 {
        let tasks = self.input.tasks();
        if a < tasks && b < tasks {
            self.input.graph().weight(a, b)
        } else {
            0.0
        }
    }

    fn cost(&self) -> f64 {
        (0..self.n)
            .map(|t| self.pays[t * self.n + self.seat_of[t]])
            .sum::<f64>()
            / 2.0
    }

    fn gain(&self, a: usize, b: usize) -> f64 {
        let (n, sa, sb) = (self.n, self.seat_of[a], self.seat_of[b]);
        let leave = self.pays[a * n + sa] - self.pays[a * n + sb];
        let swap = leave + self.pays[b * n + sb] - self.pays[b * n + sa];
        // Each of the four terms assumed that the other task stays; their distance does not change.
        let apart = 2.0 * self.distance[sa * n + sb]
            - self.distance[sa * n + sa]
            - self.distance[sb * n + sb];
        if apart > 0.0 {
            swap - self.weight(a, b) * apart
        } else {
            swap
        }
    }

    fn exchange(&mut self, a: usize, b: usize) {
        let (n, sa, sb) = (self.n, self.seat_of[a], self.seat_of[b]);
        for (task, from, to) in [(a, sa, sb), (b, sb, sa)] {
            if task >= self.input.tasks() {
                continue;
            }
            for (other, weight) in self.input.graph().row(task) {
                for seat in 0..n {
                    let row = &self.distance[seat * n..(seat + 1) * n];
                    self.pays[other * n + seat] += weight * (row[to] - row[from]);
                }
            }
        }
        self.seat_of.swap(a, b);
    }

    /// Makes one pass; returns whether it gained.
    fn pass(&mut self) -> bool {
        let before = self.cost();
        let mut free: Vec<usize> = (0..self.n).collect();
        let mut log = Vec::new();
        let (mut sum, mut best, mut kept) = (0.0, 1e-9 * before, 0);
        while free.len() > 1 {
            let mut top = (f64::NEG_INFINITY, 0, 0);
            for (i, &a) in free.iter().enumerate() {
                for (j, &b) in free.iter().enumerate().skip(i + 1) {
                    let gain = self.gain(a, b);
                    if gain > top.0 {
                        top = (gain, i, j);
                    }
                }
            }
            let (gain, i, j) = top;
            let (b, a) = (free.remove(j), free.remove(i));
            self.exchange(a, b);
            log.push((a, b));
            sum += gain;
            if sum > best {
                (best, kept) = (sum, log.len());
            }
        }
        for &(a, b) in log[kept..].iter().rev() {
            self.exchange(a, b);
        }
        kept > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    #[test]
    fn gains_are_what_exchanges_bring() {
        let machine = resolve("numa:2 core:2 pu:2").unwrap();
        let mut rng = Rng::with_seed(5);
        let cells = (0..7).flat_map(|a| (0..a).map(move |b| (a, b)));
        let cells: Vec<_> = cells
            .map(|(a, b)| (a, b, f64::from(rng.u32(0..9))))
            .collect();
        let comm = CommMatrix::from_cells(7, cells).unwrap();
        for capacity in [1, 2] {
            let seats: Vec<usize> = (0..8 * capacity).map(|s| s / capacity).collect();
            let input = MapInput::new(&comm, &machine);
            let mut state = State::new(&input, &seats, (0..seats.len()).collect());
            for _ in 0..50 {
                let (a, b) = (rng.usize(0..state.n), rng.usize(0..state.n));
                if a == b {
                    continue;
                }
                let (before, gain) = (state.cost(), state.gain(a, b));
                state.exchange(a, b);
                assert!((before - gain - state.cost()).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn finds_planted_pairs() {
        let machine = resolve("numa:4 core:2 pu:1").unwrap();
        let comm = CommMatrix::from_cells(8, (0..4).map(|k| (k, 7 - k, 5.0))).unwrap();
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&Mpipp { starts: 4 }, &input).unwrap();
        assert_eq!(crate::evaluate(&input, &mapped.mapping).remote, 0.0);
    }
}
