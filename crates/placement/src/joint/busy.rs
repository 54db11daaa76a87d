//! The work of PUs and cores: how many PUs work at once.

use numaloc_model::LogicalPu;
use numaloc_topology::Topology;

/// Factor on the time of work on a PU while its sibling is busy: two threads on one core do `2 / 1.6` times the work
/// of one.
pub const SMT_SLOWDOWN: f64 = 1.6;

/// Part of a sibling's work that slows a PU down.
const SHARED: f64 = SMT_SLOWDOWN - 1.0;

/// Work by PU and by core.
pub(super) struct Busy {
    by_pu: Vec<f64>,
    by_core: Vec<f64>,
    /// Core of every PU.
    core: Vec<u32>,
    all: f64,
    /// Sum over PUs of `w_a^2`, and over pairs of siblings of `2 (SMT - 1) w_a w_b`.
    squares: f64,
}

impl Busy {
    /// No work.
    pub(super) fn new(topology: &Topology) -> Self {
        Self {
            by_pu: vec![0.0; topology.pus().len()],
            by_core: vec![0.0; topology.objects().len()],
            core: topology.pus().iter().map(|pu| pu.core).collect(),
            all: 0.0,
            squares: 0.0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_pu.fill(0.0);
        self.by_core.fill(0.0);
        (self.all, self.squares) = (0.0, 0.0);
    }

    /// Adds work to a PU.
    pub(super) fn add(&mut self, pu: LogicalPu, work: f64) {
        let pu = pu.index();
        let core = self.core[pu] as usize;
        let own = (1.0 - SHARED) * self.by_pu[pu] + SHARED * self.by_core[core];
        self.squares += work * (2.0 * own + work);
        self.by_pu[pu] += work;
        self.by_core[core] += work;
        self.all += work;
    }

    /// Moves work from one PU to another.
    pub(super) fn shift(&mut self, from: LogicalPu, to: LogicalPu, work: f64) {
        self.add(from, -work);
        self.add(to, work);
    }

    /// The sum of squares.
    pub(super) fn squares(&self) -> f64 {
        self.squares
    }

    /// The sum of squares if `work` moved from one PU to another.
    pub(super) fn squares_with(&self, from: LogicalPu, to: LogicalPu, work: f64) -> f64 {
        let (from, to) = (from.index(), to.index());
        let change = |here: f64, there: f64| 2.0 * work * (there - here + work);
        let (home, away) = (self.core[from] as usize, self.core[to] as usize);
        let by_pu = change(self.by_pu[from], self.by_pu[to]);
        let by_core = match home == away {
            true => 0.0,
            false => change(self.by_core[home], self.by_core[away]),
        };
        self.squares + (1.0 - SHARED) * by_pu + SHARED * by_core
    }

    /// P of the objective's documentation for a sum of squares.
    pub(super) fn at_once(&self, squares: f64) -> f64 {
        match squares > 0.0 {
            true => self.all * self.all / squares,
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(work: &[(u32, f64)]) -> Busy {
        let mut busy = Busy::new(&numaloc_topology::resolve("numa:2 core:2 pu:2").unwrap());
        for &(pu, work) in work {
            busy.add(LogicalPu(pu), work);
        }
        busy
    }

    fn at_once(work: &[(u32, f64)]) -> f64 {
        let busy = busy(work);
        busy.at_once(busy.squares())
    }

    #[test]
    fn siblings_are_slower_than_cores_and_faster_than_one_pu() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(at_once(&[]), 1.0);
        close(at_once(&[(0, 3.0)]), 1.0);
        close(at_once(&[(0, 3.0), (2, 3.0)]), 2.0);
        close(at_once(&[(0, 3.0), (1, 3.0)]), 2.0 / SMT_SLOWDOWN);
        close(at_once(&[(0, 3.0), (0, 3.0)]), 1.0);
        close(
            at_once(&[(0, 1.0), (1, 1.0), (4, 1.0), (5, 1.0)]),
            4.0 / SMT_SLOWDOWN,
        );
    }

    #[test]
    fn a_proposed_shift_is_rated_as_it_turns_out() {
        for (from, to) in [(0, 1), (0, 2), (2, 1), (7, 0)] {
            let work = [(0, 5.0), (1, 2.0), (2, 4.0), (7, 1.0)];
            let mut shifted = busy(&work);
            let (from, to) = (LogicalPu(from), LogicalPu(to));
            let proposed = shifted.squares_with(from, to, 0.5);
            shifted.shift(from, to, 0.5);
            assert!((shifted.squares() - proposed).abs() < 1e-9);
        }
    }
}
