//! Communication metrics: amount, partners and heterogeneity.
//!
//! Implements OPT (Diener et al. 2015, section 4.1, eq. 1-3) and DeLoc (Agung et al. 2020, section
//! III, eq. 4-6, 8, 9). `T` is the number of threads, `M` or `S` the matrix:
//!
//! | metric | formula | range |
//! |---|---|---|
//! | heterogeneity `C_H` | mean over all cells of (row mean - cell)², `M` scaled to a maximum of 100 | 0..=2500 |
//! | amount `C_A` | sum of all cells / T² | events per cell, 0.. |
//! | load `Lcomm` | bytes communicated | bytes, 0.. |
//! | ratio `CommR` | Lcomm / bytes accessed by all threads | 0..=1 when exact |
//! | concurrency `CommC` | mean over groups of (tasks in the group) / T | 0..=1 |
//! | locality `CommLoc` | mean over rows of the population variance of S / max(S) | 0..=0.25 |
//!
//! Readings where the papers are silent:
//! - OPT's matrix has no direction, so directed layers are made symmetric (`C + Cᵀ`) for `C_H` and
//!   `C_A`: an event counts in both cells of its pair, as in an undirected layer.
//! - OPT and data mapping count accesses to shared memory, which all have the same size. Messages differ: for layers of
//!   messages `C_H` is that of the byte matrix.
//! - `Lcomm` counts an event once: undirected layers, which hold it in two cells, are halved.
//! - `CommLoc` takes rows as stored, the diagonal's zero included (the sums run over 1..T), and
//!   the population variance. On one symmetric matrix `C_H = 10^4 CommLoc`.
//! - Both variances are 0 for a matrix without communication (eq. 1 and 8 would divide by 0).
//!
//! Cost: O(T + stored cells) each; zero cells are never visited.

use numaloc_model::profile::{Amount, Thread};
use numaloc_model::{CommError, CommMatrix, Layer, Profile, TaskGroup};

/// The communication metrics of a matrix or a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CommunicationMetrics {
    /// The layer counted as communication.
    pub layer: Layer,
    /// Communication events, each once.
    pub events: f64,
    /// `C_H` of the event matrix (OPT eq. 2); for messages, of the byte matrix.
    pub heterogeneity: f64,
    /// `C_A` of the event matrix (OPT eq. 3), events per cell.
    pub amount: f64,
    /// `Lcomm` (DeLoc eq. 4), bytes.
    pub load_bytes: f64,
    /// `CommR` (DeLoc eq. 5); `None` when no access bytes were observed.
    pub ratio: Option<f64>,
    /// `CommC` (DeLoc eq. 6); `None` without groups.
    pub concurrency: Option<f64>,
    /// `DramR` (DeLoc eq. 7); `None` where not observed for every thread.
    pub dram_ratio: Option<f64>,
    /// `CommLoc` of the byte matrix (DeLoc eq. 9).
    pub locality: f64,
}

impl CommunicationMetrics {
    /// All metrics for one layer of a run; `groups` as found by [`crate::concurrency_groups`].
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row names a thread the profile does not have.
    pub fn of(profile: &Profile, layer: Layer, groups: &[TaskGroup]) -> Result<Self, CommError> {
        let events = profile.matrix(layer, Amount::Events)?;
        let bytes = profile.matrix(layer, Amount::Bytes)?;
        Ok(Self::of_matrices(
            layer,
            &events,
            &bytes,
            profile.threads(),
            groups,
        ))
    }

    /// The same from given matrices.
    #[must_use]
    pub fn of_matrices(
        layer: Layer,
        events: &CommMatrix,
        bytes: &CommMatrix,
        threads: &[Thread],
        groups: &[TaskGroup],
    ) -> Self {
        let load_bytes = load(bytes, layer);
        Self {
            layer,
            events: load(events, layer),
            heterogeneity: heterogeneity(
                match Amount::of_layer(layer) {
                    Amount::Bytes => bytes,
                    Amount::Events => events,
                },
                layer,
            ),
            amount: amount(events, layer),
            load_bytes,
            ratio: ratio(load_bytes, threads),
            concurrency: concurrency(groups, threads.len()),
            dram_ratio: dram_ratio(threads),
            locality: locality(bytes),
        }
    }
}

/// The matrix without direction: `C + Cᵀ` of a directed layer, the matrix itself otherwise.
#[must_use]
pub fn undirected(matrix: &CommMatrix, layer: Layer) -> CommMatrix {
    if layer.is_directed() {
        matrix.symmetrised()
    } else {
        matrix.clone()
    }
}

/// Communication heterogeneity `C_H` (OPT eq. 1, 2), 0..=2500: how much threads differ in their communication.
#[must_use]
pub fn heterogeneity(events: &CommMatrix, layer: Layer) -> f64 {
    mean_row_variance(&undirected(events, layer)) * 1e4
}

/// Communication amount `C_A` (OPT eq. 3): events per cell of the T x T matrix.
#[must_use]
pub fn amount(events: &CommMatrix, layer: Layer) -> f64 {
    let threads = events.threads() as f64;
    if threads == 0.0 {
        return 0.0;
    }
    let both = if layer.is_directed() { 2.0 } else { 1.0 };
    events.total() * both / (threads * threads)
}

/// Communication load `Lcomm` (DeLoc eq. 4) in the matrix's unit, each event once.
#[must_use]
pub fn load(matrix: &CommMatrix, layer: Layer) -> f64 {
    if layer.is_directed() {
        matrix.total()
    } else {
        matrix.total() / 2.0
    }
}

/// Communication-to-memory ratio `CommR` (DeLoc eq. 5); `None` when no bytes were accessed.
#[must_use]
pub fn ratio(load_bytes: f64, threads: &[Thread]) -> Option<f64> {
    let accessed: u64 = threads.iter().map(|t| t.read_bytes + t.write_bytes).sum();
    (accessed > 0).then(|| load_bytes / accessed as f64)
}

/// Communication concurrency `CommC` (DeLoc eq. 6): the mean share of the tasks that are in a group.
#[must_use]
pub fn concurrency(groups: &[TaskGroup], threads: usize) -> Option<f64> {
    if groups.is_empty() || threads == 0 {
        return None;
    }
    let mut seen = vec![usize::MAX; threads];
    let mut tasks = 0usize;
    for (number, group) in groups.iter().enumerate() {
        for thread in group.pairs.iter().flat_map(|pair| [pair.a, pair.b]) {
            if std::mem::replace(&mut seen[thread.index()], number) != number {
                tasks += 1;
            }
        }
    }
    Some(tasks as f64 / (threads * groups.len()) as f64)
}

/// DRAM-to-memory ratio `DramR` (DeLoc eq. 7); `None` unless every thread's DRAM bytes were observed.
#[must_use]
pub fn dram_ratio(threads: &[Thread]) -> Option<f64> {
    let dram: Option<u64> = threads.iter().map(|t| t.dram_bytes).sum();
    let all: u64 = threads.iter().map(|t| t.read_bytes + t.write_bytes).sum();
    dram.filter(|_| all > 0)
        .map(|dram| dram as f64 / all as f64)
}

/// Communication locality `CommLoc` (DeLoc eq. 8, 9), 0..=0.25.
#[must_use]
pub fn locality(bytes: &CommMatrix) -> f64 {
    mean_row_variance(bytes)
}

/// Mean over rows of the population variance of `cells / max cell`, diagonal included.
fn mean_row_variance(matrix: &CommMatrix) -> f64 {
    let (threads, max) = (matrix.threads() as f64, matrix.max());
    if max == 0.0 {
        return 0.0;
    }
    let rows = (0..matrix.threads()).map(|src| {
        let (_, cells) = matrix.row_slices(src);
        let mean = cells.iter().map(|cell| cell / max).sum::<f64>() / threads;
        // Two passes, not E[x²] - E[x]²: no cancellation. The unstored cells are all mean².
        let stored: f64 = cells.iter().map(|cell| (cell / max - mean).powi(2)).sum();
        (stored + (threads - cells.len() as f64) * mean * mean) / threads
    });
    rows.sum::<f64>() / threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::{GroupPair, ThreadIdx};
    use proptest::prelude::*;

    fn matrix(threads: usize, cells: &[f64]) -> CommMatrix {
        CommMatrix::from_dense(threads, cells).unwrap()
    }

    /// Two pairs (0,1) and (2,3) that exchange 10 each, nothing else.
    fn two_pairs() -> CommMatrix {
        #[rustfmt::skip]
        let cells = [
            0., 10., 0., 0.,
            10., 0., 0., 0.,
            0., 0., 0., 10.,
            0., 0., 10., 0.,
        ];
        matrix(4, &cells)
    }

    #[test]
    fn two_pairs_by_hand() {
        // Scaled to 100 every row is (100, 0, 0, 0) in some order: mean 25,
        // variance ((100-25)² + 3·25²) / 4 = (5625 + 1875) / 4 = 1875. All rows are equal: C_H = 1875.
        let m = two_pairs();
        assert_eq!(heterogeneity(&m, Layer::SharedLine), 1875.0);
        // 4 cells of 10 over 16 cells: C_A = 2.5. CommLoc is C_H / 10^4.
        assert_eq!(amount(&m, Layer::SharedLine), 2.5);
        assert_eq!(locality(&m), 0.1875);
        // Each event sits in two cells of an undirected layer: 20 in all, 40 if it were directed.
        assert_eq!(load(&m, Layer::LastTwo), 20.0);
        assert_eq!(load(&m, Layer::WriteRead), 40.0);
    }

    #[test]
    fn a_directed_layer_is_made_symmetric_for_opt_only() {
        // 0 -> 1: 10. Symmetric: rows (0,10), (10,0): scaled mean 50, variance 2500 each.
        let m = matrix(2, &[0., 10., 0., 0.]);
        assert_eq!(heterogeneity(&m, Layer::WriteRead), 2500.0);
        assert_eq!(amount(&m, Layer::WriteRead), 5.0);
        // As stored, row 1 is empty: (0.25 + 0) / 2.
        assert_eq!(locality(&m), 0.125);
    }

    #[test]
    fn nothing_communicated_is_zero_not_nan() {
        let m = CommMatrix::empty(4);
        assert_eq!(heterogeneity(&m, Layer::WriteRead), 0.0);
        assert_eq!((locality(&m), amount(&m, Layer::WriteRead)), (0.0, 0.0));
        assert_eq!(ratio(0.0, &[]), None);
        assert_eq!(amount(&CommMatrix::empty(0), Layer::Message), 0.0);
    }

    #[test]
    fn concurrency_by_hand() {
        let pair = |a, b| GroupPair {
            a: ThreadIdx(a),
            b: ThreadIdx(b),
            in_group: 1.0,
            in_run: 1.0,
        };
        // Group 1 has tasks {0,1,2}, group 2 has {2,3}; T = 4: (3 + 2) / (4 · 2) = 0.625.
        let groups = [
            TaskGroup {
                pairs: vec![pair(0, 1), pair(1, 2)],
            },
            TaskGroup {
                pairs: vec![pair(2, 3)],
            },
        ];
        assert_eq!(concurrency(&groups, 4), Some(0.625));
        assert_eq!(concurrency(&[], 4), None);
    }

    #[test]
    fn dram_and_ratio_need_observations() {
        let mut thread = Thread {
            pid: 1,
            tid: 1,
            end: 1,
            accesses: 10,
            read_bytes: 60,
            write_bytes: 40,
            dram_bytes: Some(25),
            ..Thread::new("0")
        };
        assert_eq!(dram_ratio(std::slice::from_ref(&thread)), Some(0.25));
        assert_eq!(ratio(10.0, std::slice::from_ref(&thread)), Some(0.1));
        thread.dram_bytes = None;
        assert_eq!(dram_ratio(&[thread]), None);
    }

    proptest! {
        #[test]
        fn ranges_scaling_and_renumbering(cells in proptest::collection::vec(0u16..50, 25), scale in 1u16..9) {
            let cells: Vec<f64> = cells.into_iter().map(f64::from).collect();
            let m = matrix(5, &cells);
            for layer in Layer::ALL {
                let h = heterogeneity(&m, layer);
                prop_assert!((0.0..=2500.0).contains(&h));
                prop_assert!(amount(&m, layer) >= 0.0);
                let scaled: Vec<f64> = cells.iter().map(|c| c * f64::from(scale)).collect();
                let scaled = matrix(5, &scaled);
                // Heterogeneity is independent of the scale; amount is proportional to it.
                prop_assert!((heterogeneity(&scaled, layer) - h).abs() < 1e-9);
                prop_assert!((amount(&scaled, layer) - amount(&m, layer) * f64::from(scale)).abs() < 1e-9);
                let renumbered = m.reordered(&[3, 1, 4, 0, 2]);
                prop_assert!((heterogeneity(&renumbered, layer) - h).abs() < 1e-9);
            }
            prop_assert!((0.0..=0.25).contains(&locality(&m)));
            // The definition, cell by cell.
            let max = m.max();
            if max > 0.0 {
                let d = m.to_dense();
                let naive: f64 = (0..5).map(|i| {
                    let row: Vec<f64> = d[i * 5..i * 5 + 5].iter().map(|c| c / max).collect();
                    let mean = row.iter().sum::<f64>() / 5.0;
                    row.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 5.0
                }).sum::<f64>() / 5.0;
                prop_assert!((naive - locality(&m)).abs() < 1e-12);
            }
        }
    }
}
