//! A table of the time that each thread would wait for its partners on each PU.
//!
//! If threads have many partners, visiting them for every proposal dominates the search. With this table a proposal is
//! one subtraction; only an accepted exchange visits the partners of both threads, and of the PUs only those whose
//! distance to the old and the new PU differs.

use numaloc_model::LogicalPu;

/// Mean number of partners from which on the table is worthwhile.
const MANY_PARTNERS: usize = 24;
/// Largest table, in threads times PUs: 64 MiB.
const MOST_CELLS: usize = 1 << 23;

/// Threads x PUs, seconds.
pub(super) struct Waits {
    pus: usize,
    cells: Vec<f64>,
    /// Scratch space for the PUs affected by a move: how much nearer the new PU is.
    steps: Vec<(usize, f64)>,
}

impl Waits {
    /// Whether the table is worth its updates for this many threads, pairs (counted at both ends) and PUs.
    pub(super) fn worthwhile(threads: usize, partners: usize, pus: usize) -> bool {
        partners >= MANY_PARTNERS * threads && threads.saturating_mul(pus) <= MOST_CELLS
    }

    /// Builds the table; `transfer_s` is PUs x PUs. O(partners x PUs).
    pub(super) fn new(partners: &[&[(usize, f64)]], pu: &[LogicalPu], transfer_s: &[f64]) -> Self {
        let pus = transfer_s.len().isqrt();
        let mut cells = vec![0.0; partners.len() * pus];
        // Seconds to a PU from all others: a column of the table, read often.
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

    /// Updates the table for a thread with these partners that moves from one PU to another.
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
