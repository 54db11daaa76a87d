//! The result of a run: accesses by node of the CPU and node of the memory.

use crate::counts::Counts;
use crate::machine::Machine;
use crate::protocol::{Ended, Transcript};

/// Nodes x nodes accesses: `[node of the CPU][node of the memory]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix(pub Vec<Vec<u64>>);

impl Matrix {
    /// Sums the rows of each node's vCPUs.
    fn of(tables: &[&Vec<Vec<u64>>], node_of_cpu: &[usize], nodes: usize) -> Self {
        let mut sums = vec![vec![0; nodes]; nodes];
        for table in tables {
            for (row, &from) in table.iter().zip(node_of_cpu) {
                for (sum, count) in sums[from].iter_mut().zip(row) {
                    *sum += count;
                }
            }
        }
        Self(sums)
    }

    /// All accesses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    /// Accesses to memory of another node.
    #[must_use]
    pub fn remote(&self) -> u64 {
        let local: u64 = self.0.iter().enumerate().map(|(node, row)| row[node]).sum();
        self.total() - local
    }

    /// Remote accesses as a share of all, 0..=1; 0 if there are none.
    #[must_use]
    pub fn remote_share(&self) -> f64 {
        match self.total() {
            0 => 0.0,
            total => self.remote() as f64 / total as f64,
        }
    }

    /// Accesses served by each node's memory controller.
    #[must_use]
    pub fn controllers(&self) -> Vec<u64> {
        (0..self.0.len())
            .map(|to| self.0.iter().map(|row| row[to]).sum())
            .collect()
    }
}

/// Balance of loads: 1 - (max - min) / sum, so 1 if all are equal, 0 if one has everything
/// (`B_acc`, Diener et al. 2015, eq. 5). 1 if there is no load.
#[must_use]
pub fn balance(loads: &[u64]) -> f64 {
    let sum: u64 = loads.iter().sum();
    let spread = loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0);
    if sum == 0 {
        1.0
    } else {
        1.0 - spread as f64 / sum as f64
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended.
    pub ended: Ended,
    /// Accesses below the private caches.
    pub accesses: Matrix,
    /// All accesses of the program.
    pub all_accesses: Matrix,
    /// Per time slice: end in host seconds, accesses below the private caches per controller, and the
    /// number of remote ones among them.
    pub slices: Vec<(f64, Vec<u64>, u64)>,
    /// Host seconds from start to end. Since execution is emulated, this is only the cost of the lab run.
    pub seconds: f64,
    /// The agent's report.
    pub guest: Transcript,
    /// The plugin's counts.
    pub counts: Counts,
    /// Why the program's standard output could not be written, if so.
    pub unwritten: Option<String>,
}

impl Outcome {
    pub(crate) fn new(machine: &Machine, ended: Ended, guest: Transcript, counts: Counts) -> Self {
        let (nodes, node_of_cpu) = (machine.cpus.len(), machine.node_of_cpu());
        let matrix = |tables: &[&Vec<Vec<u64>>]| Matrix::of(tables, &node_of_cpu, nodes);
        let slices = counts
            .slices
            .iter()
            .map(|slice| {
                let matrix = matrix(&[&slice.accesses]);
                (slice.end_s, matrix.controllers(), matrix.remote())
            })
            .collect();
        Self {
            ended,
            accesses: matrix(&[&counts.fetched_loads, &counts.fetched_stores]),
            all_accesses: matrix(&[&counts.loads, &counts.stores]),
            slices,
            seconds: counts.seconds,
            guest,
            counts,
            unwritten: None,
        }
    }

    /// Balance of the controllers as the mean over time slices weighted by their accesses: 1 only if the load is
    /// even at every moment, not just in the sum.
    #[must_use]
    pub fn balance_over_time(&self) -> f64 {
        let total: u64 = self.slices.iter().flat_map(|slice| &slice.1).sum();
        if total == 0 {
            return balance(&self.accesses.controllers());
        }
        let weighted = |slice: &(f64, Vec<u64>, u64)| {
            balance(&slice.1) * slice.1.iter().sum::<u64>() as f64 / total as f64
        };
        self.slices.iter().map(weighted).sum()
    }

    /// 4 KiB pages per node in the last sample.
    #[must_use]
    pub fn last_pages(&self) -> Option<&[u64]> {
        self.guest.pages.last().map(|(_, pages)| pages.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_by_hand() {
        // Two nodes of two vCPUs; vCPU 1 reads 10 lines of node 1, vCPU 3 writes 30 of node 1.
        let machine = Machine::even(2, 4, 128 << 20, None).unwrap();
        let counts = Counts {
            fetched_loads: vec![vec![0, 0], vec![0, 10], vec![0, 0], vec![0, 0]],
            fetched_stores: vec![vec![0, 0], vec![0, 0], vec![0, 0], vec![0, 30]],
            loads: vec![vec![0, 0]; 4],
            stores: vec![vec![0, 0]; 4],
            ..Counts::default()
        };
        let outcome = Outcome::new(&machine, Ended::Exited(0), Transcript::default(), counts);
        assert_eq!(outcome.accesses, Matrix(vec![vec![0, 10], vec![0, 30]]));
        assert_eq!(outcome.accesses.remote_share(), 0.25);
        assert_eq!(outcome.accesses.controllers(), [0, 40]);
        assert_eq!(outcome.balance_over_time(), 0.0);
        assert_eq!(outcome.all_accesses.remote_share(), 0.0);
    }

    #[test]
    fn balance_by_hand() {
        assert_eq!(balance(&[5, 5, 5, 5]), 1.0);
        assert_eq!(balance(&[20, 0, 0, 0]), 0.0);
        assert_eq!(balance(&[3, 1]), 0.5); // 1 - (3 - 1) / 4
        assert_eq!(balance(&[0, 0]), 1.0);
    }
}
