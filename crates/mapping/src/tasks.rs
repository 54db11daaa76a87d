//! The communication graph policies work on: undirected, symmetric, without self-loops.

use numaloc_model::CommMatrix;

/// How the two cells of a pair are combined into one weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Directed unless the matrix is symmetric.
    #[default]
    Auto,
    /// `w(i, j) = C[i][j] + C[j][i]`: the cells are two flows.
    Directed,
    /// `w(i, j) = max(C[i][j], C[j][i])`: both cells hold the pair's amount.
    Undirected,
}

/// Undirected weighted graph in compressed rows: each pair is stored in both rows.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskGraph {
    start: Vec<usize>,
    to: Vec<u32>,
    weight: Vec<f64>,
}

impl TaskGraph {
    /// The graph of a communication matrix. Cost: O(cells).
    #[must_use]
    pub fn new(comm: &CommMatrix, direction: Direction) -> Self {
        let n = comm.threads();
        let mirror = Self::transpose(comm);
        let same = || {
            (0..n).all(|row| {
                let range = mirror.start[row]..mirror.start[row + 1];
                comm.row_slices(row) == (&mirror.to[range.clone()], &mirror.weight[range])
            })
        };
        match direction {
            Direction::Directed => Self::merge(comm, &mirror, |a, b| a + b),
            Direction::Undirected => Self::merge(comm, &mirror, f64::max),
            // The mirror of a symmetric matrix is the matrix.
            Direction::Auto if same() => mirror,
            Direction::Auto => Self::merge(comm, &mirror, |a, b| a + b),
        }
    }

    fn transpose(comm: &CommMatrix) -> Self {
        let n = comm.threads();
        let mut start = vec![0; n + 1];
        for row in 0..n {
            for &to in comm.row_slices(row).0 {
                start[to as usize + 1] += 1;
            }
        }
        for row in 0..n {
            start[row + 1] += start[row];
        }
        let mut next = start.clone();
        let mut to = vec![0; comm.stored_cells()];
        let mut weight = vec![0.0; comm.stored_cells()];
        for row in 0..n {
            for (column, amount) in comm.row(row) {
                let at = next[column];
                to[at] = row as u32;
                weight[at] = amount;
                next[column] += 1;
            }
        }
        Self { start, to, weight }
    }

    fn merge(comm: &CommMatrix, mirror: &Self, pair: impl Fn(f64, f64) -> f64) -> Self {
        let n = comm.threads();
        let mut graph = Self {
            start: Vec::with_capacity(n + 1),
            to: Vec::with_capacity(2 * comm.stored_cells()),
            weight: Vec::with_capacity(2 * comm.stored_cells()),
        };
        graph.start.push(0);
        for row in 0..n {
            let (ours, amounts) = comm.row_slices(row);
            let (theirs, mirrored) = mirror.neighbours(row);
            let (mut i, mut j) = (0, 0);
            while i < ours.len() || j < theirs.len() {
                let a = ours.get(i).copied().unwrap_or(u32::MAX);
                let b = theirs.get(j).copied().unwrap_or(u32::MAX);
                graph.to.push(a.min(b));
                graph.weight.push(pair(
                    if a <= b { amounts[i] } else { 0.0 },
                    if b <= a { mirrored[j] } else { 0.0 },
                ));
                i += usize::from(a <= b);
                j += usize::from(b <= a);
            }
            graph.start.push(graph.to.len());
        }
        graph
    }

    /// Number of tasks.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.start.len() - 1
    }

    /// Number of stored cells: twice the number of pairs that communicate.
    #[must_use]
    pub fn stored_cells(&self) -> usize {
        self.to.len()
    }

    /// The partners of a task, ascending, and the weights.
    ///
    /// # Panics
    /// If there is no such task.
    #[must_use]
    pub fn neighbours(&self, task: usize) -> (&[u32], &[f64]) {
        let range = self.start[task]..self.start[task + 1];
        (&self.to[range.clone()], &self.weight[range])
    }

    /// The partners of a task with weights, ascending.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn row(&self, task: usize) -> impl ExactSizeIterator<Item = (usize, f64)> + '_ {
        let (to, weight) = self.neighbours(task);
        to.iter().zip(weight).map(|(&to, &w)| (to as usize, w))
    }

    /// Every pair once, as `(lower, higher, weight)`.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        (0..self.tasks()).flat_map(move |a| {
            self.row(a)
                .filter(move |&(b, _)| b > a)
                .map(move |(b, w)| (a, b, w))
        })
    }

    /// The graph of groups, with the exchange between them. `group_of` gives a group below `groups` for every task;
    /// exchange inside a group is dropped. O(tasks + cells).
    ///
    /// # Panics
    /// If a task has no group.
    #[must_use]
    pub fn contracted(&self, group_of: &[u32], groups: usize) -> Self {
        let mut members = vec![Vec::new(); groups];
        for (task, &group) in group_of.iter().enumerate() {
            members[group as usize].push(task);
        }
        let mut graph = Self {
            start: vec![0],
            to: Vec::new(),
            weight: Vec::new(),
        };
        let mut amount = vec![0.0; groups];
        let mut met = Vec::new();
        for (group, members) in members.iter().enumerate() {
            for &task in members {
                for (other, weight) in self.row(task) {
                    let other = group_of[other] as usize;
                    if other != group {
                        if amount[other] == 0.0 {
                            met.push(other as u32);
                        }
                        amount[other] += weight;
                    }
                }
            }
            met.sort_unstable();
            for other in met.drain(..) {
                graph.to.push(other);
                graph
                    .weight
                    .push(std::mem::take(&mut amount[other as usize]));
            }
            graph.start.push(graph.to.len());
        }
        graph
    }

    /// The weight of a pair, 0 if it does not communicate.
    #[must_use]
    pub fn weight(&self, a: usize, b: usize) -> f64 {
        let (to, weight) = self.neighbours(a);
        to.binary_search(&(b as u32)).map_or(0.0, |at| weight[at])
    }

    /// All communication of a task.
    #[must_use]
    pub fn volume(&self, task: usize) -> f64 {
        self.neighbours(task).1.iter().sum()
    }

    /// Sum over pairs.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.weight.iter().sum::<f64>() / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directed_cells_add_and_undirected_cells_are_one_amount() {
        let comm = CommMatrix::from_cells(3, [(0, 1, 2.0), (1, 0, 3.0), (1, 2, 7.0)]).unwrap();
        let graph = TaskGraph::new(&comm, Direction::Auto);
        assert_eq!(
            graph.pairs().collect::<Vec<_>>(),
            [(0, 1, 5.0), (1, 2, 7.0)]
        );
        assert_eq!((graph.volume(1), graph.total()), (12.0, 12.0));
        let both = comm.symmetrised();
        let auto = TaskGraph::new(&both, Direction::Auto);
        assert_eq!(
            auto, graph,
            "a symmetric matrix holds each pair's amount twice"
        );
        assert_eq!(auto, TaskGraph::new(&both, Direction::Undirected));
        assert_eq!(TaskGraph::new(&both, Direction::Directed).total(), 24.0);
    }
}
