//! The communication matrix: the amount exchanged by each pair of threads.
//!
//! `matrix[(src, dst)]` is the amount that flows from the thread that wrote (or sent) to the thread
//! that read (or received). Undirected layers are stored symmetric: both cells hold the pair's
//! amount. The diagonal is always zero.
//!
//! Rows are compressed and sorted by column: 65,536 ranks with 26 neighbours each take
//! 20 MB, and a dense 4,096-thread matrix 200 MB. Amounts are `f64`: exact for counts below 2^53.

/// What counts as one communication event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// A thread reads a line that another thread wrote last (DeLoc II-B2); directed.
    WriteRead,
    /// Different threads access one line in one slice (OPT 6.1); undirected.
    SharedLine,
    /// The accessor differs from one of the line's last two accessors (numalize); undirected.
    LastTwo,
    /// Hardware samples of two threads hit one line within a window, one of them a store (ComDetective, CMLB);
    /// undirected.
    SampledLine,
    /// A message sent by an MPI program itself: point-to-point or one-sided; directed.
    Message,
    /// A message that an MPI library sends inside a collective operation; directed.
    Collective,
    /// The part of `write_read` in which the reader used none of the bytes written by the writer: false sharing;
    /// directed.
    FalseSharing,
    /// All messages of ranks: [`Self::Message`] and [`Self::Collective`] together; directed. A view, never stored.
    Sent,
}

impl Layer {
    /// Every stored layer, in the order in which users see them. Journals and profiles use these numbers and names.
    pub const ALL: [Self; 7] = [
        Self::WriteRead,
        Self::SharedLine,
        Self::LastTwo,
        Self::SampledLine,
        Self::Message,
        Self::Collective,
        Self::FalseSharing,
    ];

    /// The name in profile tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteRead => "write_read",
            Self::SharedLine => "shared_line",
            Self::LastTwo => "last_two",
            Self::SampledLine => "sampled_line",
            Self::Message => "message",
            Self::Collective => "collective",
            Self::FalseSharing => "false_sharing",
            Self::Sent => "sent",
        }
    }

    /// The stored layer with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// The layers users can choose: every stored layer, and the views that combine several.
    #[must_use]
    pub fn choices() -> [Self; 8] {
        let mut choices = [Self::Sent; 8];
        choices[..Self::ALL.len()].copy_from_slice(&Self::ALL);
        choices
    }

    /// The layer or view with that name.
    #[must_use]
    pub fn from_choice(name: &str) -> Option<Self> {
        Self::choices()
            .into_iter()
            .find(|layer| layer.name() == name)
    }

    /// Whether rows stored under `stored` belong to this layer or view.
    #[must_use]
    pub fn holds(self, stored: Self) -> bool {
        self == stored || self == Self::Sent && matches!(stored, Self::Message | Self::Collective)
    }

    /// Whether this layer holds messages of MPI ranks. Such a layer is weighted in bytes, because a message moves its
    /// stated size; a shared line moves as a whole, however little of it is read.
    #[must_use]
    pub fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::Collective | Self::Sent)
    }

    /// Whether `(src, dst)` and `(dst, src)` are different amounts in this layer.
    #[must_use]
    pub fn is_directed(self) -> bool {
        matches!(
            self,
            Self::WriteRead | Self::Message | Self::Collective | Self::FalseSharing | Self::Sent
        )
    }
}

/// Why a matrix is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// A cell lies outside the matrix.
    #[error("cell ({src}, {dst}) is outside a matrix of {threads} threads")]
    OutOfRange {
        /// Row of the cell.
        src: usize,
        /// Column of the cell.
        dst: usize,
        /// Rows and columns of the matrix.
        threads: usize,
    },
    /// A cell is negative, infinite or not a number.
    #[error("cell ({src}, {dst}) is {value}, expected a finite amount of at least 0")]
    NotAnAmount {
        /// Row of the cell.
        src: usize,
        /// Column of the cell.
        dst: usize,
        /// The value.
        value: f64,
    },
}

/// Communication between `n` threads; see the module for direction, diagonal and storage.
#[derive(Clone, Debug, PartialEq)]
pub struct CommMatrix {
    row_start: Vec<usize>,
    dst: Vec<u32>,
    amount: Vec<f64>,
}

impl CommMatrix {
    /// A matrix of `threads` threads without communication.
    #[must_use]
    pub fn empty(threads: usize) -> Self {
        Self {
            row_start: vec![0; threads + 1],
            dst: Vec::new(),
            amount: Vec::new(),
        }
    }

    /// Builds a matrix from cells in any order; repeated cells are summed, diagonal and zero cells are dropped.
    ///
    /// # Errors
    /// [`CommError`] for a cell outside the matrix or an amount that is negative or not finite.
    pub fn from_cells(
        threads: usize,
        cells: impl IntoIterator<Item = (usize, usize, f64)>,
    ) -> Result<Self, CommError> {
        let mut sorted = Vec::new();
        for (src, dst, value) in cells {
            if src >= threads || dst >= threads {
                return Err(CommError::OutOfRange { src, dst, threads });
            }
            if !value.is_finite() || value < 0.0 {
                return Err(CommError::NotAnAmount { src, dst, value });
            }
            if src != dst && value > 0.0 {
                sorted.push((src, dst as u32, value));
            }
        }
        // Stable, so that equal cells are always summed in the given order: the result is deterministic.
        sorted.sort_by_key(|&(src, dst, _)| (src, dst));
        let mut matrix = Self {
            row_start: Vec::with_capacity(threads + 1),
            dst: Vec::with_capacity(sorted.len()),
            amount: Vec::with_capacity(sorted.len()),
        };
        matrix.row_start.push(0);
        let mut row = 0;
        let mut last = None;
        for (src, dst, value) in sorted {
            if last == Some((src, dst)) {
                *matrix.amount.last_mut().expect("a cell was pushed") += value;
                continue;
            }
            while row < src {
                matrix.row_start.push(matrix.dst.len());
                row += 1;
            }
            matrix.dst.push(dst);
            matrix.amount.push(value);
            last = Some((src, dst));
        }
        matrix.row_start.resize(threads + 1, matrix.dst.len());
        Ok(matrix)
    }

    /// Adds up cells in place, row after row: faster than [`Self::from_cells`] where cells repeat, with the same order
    /// of additions.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] for a cell outside the matrix.
    pub fn dense_sums(
        threads: usize,
        cells: impl IntoIterator<Item = (usize, usize, f64)>,
    ) -> Result<Vec<f64>, CommError> {
        let mut dense = vec![0.0; threads * threads];
        for (src, dst, value) in cells {
            if src >= threads || dst >= threads {
                return Err(CommError::OutOfRange { src, dst, threads });
            }
            dense[src * threads + dst] += value;
        }
        Ok(dense)
    }

    /// Builds a matrix from `threads * threads` amounts, row after row.
    ///
    /// # Errors
    /// [`CommError::NotAnAmount`] for a negative or not finite cell.
    ///
    /// # Panics
    /// If `dense.len() != threads * threads`.
    pub fn from_dense(threads: usize, dense: &[f64]) -> Result<Self, CommError> {
        assert_eq!(dense.len(), threads * threads, "not a square matrix");
        Self::from_cells(
            threads,
            dense
                .iter()
                .enumerate()
                .map(|(at, &value)| (at / threads, at % threads, value)),
        )
    }

    /// Number of threads: rows and columns.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.row_start.len() - 1
    }

    /// Number of cells that are not zero.
    #[must_use]
    pub fn stored_cells(&self) -> usize {
        self.dst.len()
    }

    /// The non-zero cells of a row as `(dst, amount)`, by ascending `dst`.
    ///
    /// # Panics
    /// If `src` is not a row.
    pub fn row(&self, src: usize) -> impl ExactSizeIterator<Item = (usize, f64)> + '_ {
        let cells = self.row_start[src]..self.row_start[src + 1];
        self.dst[cells.clone()]
            .iter()
            .zip(&self.amount[cells])
            .map(|(&dst, &amount)| (dst as usize, amount))
    }

    /// The non-zero cells of a row as two slices, `dst` ascending: for hot loops.
    ///
    /// # Panics
    /// If `src` is not a row.
    #[must_use]
    pub fn row_slices(&self, src: usize) -> (&[u32], &[f64]) {
        let cells = self.row_start[src]..self.row_start[src + 1];
        (&self.dst[cells.clone()], &self.amount[cells])
    }

    /// All non-zero cells as `(src, dst, amount)`, row after row.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        (0..self.threads()).flat_map(move |src| self.row(src).map(move |(dst, v)| (src, dst, v)))
    }

    /// The amount from `src` to `dst`; zero if no cell is stored.
    ///
    /// # Panics
    /// If `src` is not a row.
    #[must_use]
    pub fn get(&self, src: usize, dst: usize) -> f64 {
        let (columns, amounts) = self.row_slices(src);
        columns
            .binary_search(&(dst as u32))
            .map_or(0.0, |at| amounts[at])
    }

    /// Sum of all cells. In an undirected layer this counts each pair twice.
    #[must_use]
    pub fn total(&self) -> f64 {
        // Without cells the sum is -0, which would be printed.
        self.amount.iter().sum::<f64>() + 0.0
    }

    /// The largest cell, 0 if there is none.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.amount.iter().copied().fold(0.0, f64::max)
    }

    /// `threads * threads` amounts, row after row.
    #[must_use]
    pub fn to_dense(&self) -> Vec<f64> {
        let threads = self.threads();
        let mut dense = vec![0.0; threads * threads];
        for (src, dst, amount) in self.cells() {
            dense[src * threads + dst] = amount;
        }
        dense
    }

    /// Whether every cell equals its transposed one.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        self.cells().all(|(i, j, amount)| self.get(j, i) == amount)
    }

    /// `C[i][j] + C[j][i]` in both cells: the undirected weights that mapping policies work on.
    #[must_use]
    pub fn symmetrised(&self) -> Self {
        let both = self
            .cells()
            .flat_map(|(i, j, amount)| [(i, j, amount), (j, i, amount)]);
        Self::from_cells(self.threads(), both).expect("cells of a matrix are valid")
    }

    /// Cell-by-cell sum of two matrices of the same size.
    ///
    /// # Panics
    /// If the sizes differ.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        assert_eq!(self.threads(), other.threads(), "matrices differ in size");
        Self::from_cells(self.threads(), self.cells().chain(other.cells()))
            .expect("cells of a matrix are valid")
    }

    /// The same matrix with rows and columns reordered: old thread `order[k]` becomes thread `k`.
    ///
    /// # Panics
    /// If `order` is not a permutation of the threads.
    #[must_use]
    pub fn reordered(&self, order: &[usize]) -> Self {
        assert_eq!(order.len(), self.threads(), "not a permutation");
        let mut new_of = vec![usize::MAX; order.len()];
        for (new, &old) in order.iter().enumerate() {
            assert_eq!(new_of[old], usize::MAX, "not a permutation");
            new_of[old] = new;
        }
        Self::from_cells(
            self.threads(),
            self.cells().map(|(i, j, v)| (new_of[i], new_of[j], v)),
        )
        .expect("cells of a matrix are valid")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_are_summed_and_the_diagonal_is_dropped() {
        let m = CommMatrix::from_cells(3, [(2, 0, 1.0), (0, 1, 2.0), (0, 1, 3.0), (1, 1, 9.0)])
            .unwrap();
        assert_eq!(m.to_dense(), [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!((m.total(), m.max(), m.stored_cells()), (6.0, 5.0, 2));
    }

    #[test]
    fn bad_cells_are_refused() {
        assert!(matches!(
            CommMatrix::from_cells(2, [(0, 2, 1.0)]),
            Err(CommError::OutOfRange { dst: 2, .. })
        ));
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(CommMatrix::from_cells(2, [(0, 1, value)]).is_err());
        }
    }

    proptest! {
        #[test]
        fn sparse_and_dense_agree(dense in proptest::collection::vec(0u8..4, 36)) {
            let mut dense: Vec<f64> = dense.into_iter().map(f64::from).collect();
            for i in 0..6 { dense[i * 7] = 0.0; }
            let m = CommMatrix::from_dense(6, &dense).unwrap();
            prop_assert_eq!(m.to_dense(), dense.clone());
            let s = m.symmetrised();
            prop_assert!(s.is_symmetric());
            prop_assert_eq!(s.total(), 2.0 * m.total());
            let order = [5, 0, 4, 1, 3, 2];
            let r = m.reordered(&order);
            for i in 0..6 { for j in 0..6 {
                prop_assert_eq!(r.get(i, j), m.get(order[i], order[j]));
            }}
        }
    }
}
