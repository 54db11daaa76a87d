//! What every thread would wait for its partners on every PU.
//!
//! Where threads have many partners, visiting them for every proposal is most of the search. Kept in a table, the
//! answer is one subtraction, and only an exchange that is made visits the partners of both threads, and of the PUs
//! those whose distance to the old and the new place differs.

use numaloc_model::LogicalPu;

/// Mean number of partners from which on the table pays.
const MANY_PARTNERS: usize = 24;
/// Up to this many threads times PUs: 64 MiB.
const MOST_CELLS: usize = 1 << 23;

/// Threads x PUs, seconds.
pub(super) struct Waits {
    pus: usize,
    cells: Vec<f64>,
    /// Room for the PUs that a move concerns: how much nearer the new place is.
    steps: Vec<(usize, f64)>,
}

impl Waits {
    /// Whether a table is worth its upkeep for this many threads, pairs (counted at both ends), and PUs.
    pub(super) fn pay(threads: usize, partners: usize, pus: usize) -> bool {
        partners >= MANY_PARTNERS * threads && threads.saturating_mul(pus) <= MOST_CELLS
    }

    /// `transfer_s` is the table of PUs x PUs. O(partners x PUs).
    pub(super) fn new(partners: &[&[(usize, f64)]], pu: &[LogicalPu], transfer_s: &[f64]) -> Self {
        let pus = transfer_s.len().isqrt();
        let mut cells = vec![0.0; partners.len() * pus];
        // Seconds to a PU from all: a column of the table, read often.
        let column: Vec<f64> = (0..pus * pus)
            .map(|at| transfer_s[at % pus * pus + at / pus])
            .collect();
        for (row, partners) in cells.chunks_mut(pus).zip(partners) {
            for &(other, events) in *partners {
                let there = &column[pu[other].index() * pus..][..pus];
                for (cell, seconds) in row.iter_mut().zip(there) {
                    *cell += events * seconds;
                }
            }
        }
        Self {
            pus,
            cells,
            steps: Vec::new(),
        }
    }

    pub(super) fn at(&self, thread: usize, pu: LogicalPu) -> f64 {
        self.cells[thread * self.pus + pu.index()]
    }

    /// A thread with these partners goes from one PU to another.
    pub(super) fn moved(
        &mut self,
        partners: &[(usize, f64)],
        from: LogicalPu,
        to: LogicalPu,
        transfer_s: &[f64],
    ) {
        let rows = transfer_s.chunks(self.pus).enumerate();
        let steps = rows.map(|(at, row)| (at, row[to.index()] - row[from.index()]));
        self.steps.clear();
        self.steps.extend(steps.filter(|step| step.1 != 0.0));
        for &(other, events) in partners {
            let row = &mut self.cells[other * self.pus..][..self.pus];
            for &(at, seconds) in &self.steps {
                row[at] += events * seconds;
            }
        }
    }
}
