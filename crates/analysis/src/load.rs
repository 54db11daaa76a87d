//! Memory load over time: smoothing, access phases, and the load of each thread.
//!
//! Implements CMLB (2021) section III-A: eq. 1 (time from cycles), the smoothing after Rocka (the top
//! 5 % of the values are outliers, replaced by linear interpolation), Algorithm 1 (sliding-window
//! access phases), and the access-load vector behind eq. 3.
//!
//! Deviations from Algorithm 1 as printed: the scan stops at the last element (`right < len`; the printed `<=` reads
//! past it), the last, still open phase is returned too, and the low value is the mean of at least one slice (5 % of a
//! short series is none). Eq. 3 mixes its indexes (`p_i` is the vector of phase i, i runs over threads); Algorithm 2
//! uses the vector as each thread's load, whose mean over nodes is the target, so that is what [`access_load`] returns.
//!
//! The paper counts accesses to DRAM. A profile has those of every thread if its source observed them (samples of a
//! PMU, or the cache model of an access trace), but not their times: each thread's are distributed over the slices in
//! proportion to its accesses. Otherwise all accesses count; [`LoadSource`] says which.
//!
//! Cost: O(n log n).

use std::ops::Range;

use numaloc_model::profile::Profile;

use crate::assignment::NodeAssignment;
use crate::mapping_cost::{load_deviation, node_loads};

/// Shortest access phase, in slices (Algorithm 1 line 4).
pub const MIN_WIDTH: usize = 100;

/// Nanoseconds from cycles at a frequency in kHz (eq. 1).
#[must_use]
pub fn nanoseconds(cycles: u64, frequency_khz: u64) -> f64 {
    cycles as f64 * 1e6 / frequency_khz as f64
}

/// The series with its top 5 % replaced by linear interpolation between the nearest remaining values. Of equal values,
/// the earlier ones count as larger. Series of fewer than 20 values are unchanged.
#[must_use]
pub fn smoothed(series: &[f64]) -> Vec<f64> {
    let outliers = series.len() / 20;
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by(|&a, &b| series[b].total_cmp(&series[a]).then(a.cmp(&b)));
    let mut kept = vec![true; series.len()];
    for &at in &order[..outliers] {
        kept[at] = false;
    }
    let mut smooth = series.to_vec();
    let mut left: Option<usize> = None;
    let mut at = 0;
    while at < series.len() {
        if kept[at] {
            left = Some(at);
            at += 1;
            continue;
        }
        let right = (at..series.len()).find(|&r| kept[r]);
        let end = right.unwrap_or(series.len());
        for (hole, value) in smooth.iter_mut().enumerate().take(end).skip(at) {
            *value = match (left, right) {
                (Some(l), Some(r)) => {
                    let along = (hole - l) as f64 / (r - l) as f64;
                    series[l] + (series[r] - series[l]) * along
                }
                (Some(only), None) | (None, Some(only)) => series[only],
                (None, None) => *value,
            };
        }
        at = end;
    }
    smooth
}

/// Access phases of a (smoothed) series of loads by slice: Algorithm 1. They cover the series.
#[must_use]
pub fn access_phases(series: &[f64], min_width: usize) -> Vec<Range<usize>> {
    if series.is_empty() {
        return Vec::new();
    }
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let low = &sorted[..(series.len() / 20).max(1)];
    let low = low.iter().sum::<f64>() / low.len() as f64;
    let mut phases = Vec::new();
    let mut left = 0;
    for (right, &value) in series.iter().enumerate() {
        if value <= low && right - left >= min_width {
            phases.push(left..right);
            left = right;
        }
    }
    phases.push(left..series.len());
    phases
}

/// Access-load vector: each thread's load, averaged over phases weighted by their load.
///
/// `loads[(slice, thread)]` comes as `(slice, thread, accesses)` rows in any order; the weight of
/// phase `i` is its share of all accesses (`d_j` of eq. 3 added up over the phase), so slices of heavy
/// traffic count most. All zero when there is no load.
///
/// # Panics
/// If a row's thread is not below `threads`.
#[must_use]
pub fn access_load(
    rows: impl IntoIterator<Item = (usize, usize, f64)>,
    threads: usize,
    phases: &[Range<usize>],
) -> Vec<f64> {
    let mut by_phase = vec![vec![0.0; threads]; phases.len()];
    for (slice, thread, accesses) in rows {
        let phase = phases.partition_point(|phase| phase.end <= slice);
        if let Some(loads) = by_phase.get_mut(phase) {
            loads[thread] += accesses;
        }
    }
    let total: f64 = by_phase.iter().flatten().sum();
    let mut vector = vec![0.0; threads];
    if total <= 0.0 {
        return vector;
    }
    for loads in &by_phase {
        let weight = loads.iter().sum::<f64>() / total;
        for (sum, &load) in vector.iter_mut().zip(loads) {
            *sum += weight * load;
        }
    }
    vector
}

/// A load vector for policies: `None` if no thread has any load, so that there is nothing to balance.
#[must_use]
pub fn load_to_level(by_thread: &[f64]) -> Option<&[f64]> {
    by_thread
        .iter()
        .any(|&load| load > 0.0)
        .then_some(by_thread)
}

/// What a load vector counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// Bytes from DRAM, if they were observed.
    Dram(String),
    /// All accesses: no DRAM accesses were observed.
    Accesses,
}

impl LoadSource {
    /// Text for the user.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Dram(source) => format!("bytes from DRAM, by {source}"),
            Self::Accesses => "all accesses (no DRAM accesses were observed)".to_owned(),
        }
    }
}

/// Each thread's load on memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadVector {
    /// The kind of load.
    pub source: LoadSource,
    /// Load by slice, smoothed; `None` when page use by slice was not recorded.
    pub smoothed: Option<Vec<f64>>,
    /// Access phases of the smoothed series; empty without it.
    pub phases: Vec<Range<usize>>,
    /// Access-load vector: load by thread. Without page use by slice, each thread's total.
    pub by_thread: Vec<f64>,
}

impl LoadVector {
    /// Computes the load vector of a run.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let threads = profile.threads();
        let (source, totals) = totals(profile);
        let rows = profile.accesses_by_slice();
        let mut accesses = vec![0u64; threads.len()];
        for row in &rows {
            let sum = &mut accesses[row.thread.index()];
            *sum = sum.saturating_add(row.accesses);
        }
        // A thread whose DRAM bytes cannot be distributed over time would lose them.
        let without_time = |(total, &accesses): (&f64, &u64)| {
            source != LoadSource::Accesses && *total > 0.0 && accesses == 0
        };
        if rows.is_empty() || totals.iter().zip(&accesses).any(without_time) {
            return Self {
                source,
                smoothed: None,
                phases: Vec::new(),
                by_thread: totals,
            };
        }
        let load = |at: usize, count: u64| match source {
            LoadSource::Accesses => count as f64,
            LoadSource::Dram(_) => totals[at] * count as f64 / accesses[at] as f64,
        };
        let rows: Vec<(usize, usize, f64)> = rows
            .iter()
            .filter(|row| row.accesses > 0)
            .map(|row| (row.slice.index(), row.thread.index(), row.accesses))
            .map(|(slice, thread, count)| (slice, thread, load(thread, count)))
            .collect();
        let mut by_slice = vec![0.0; profile.slices().len()];
        for &(slice, _, load) in &rows {
            if let Some(sum) = by_slice.get_mut(slice) {
                *sum += load;
            }
        }
        let smoothed = smoothed(&by_slice);
        let phases = access_phases(&smoothed, MIN_WIDTH);
        Self {
            by_thread: access_load(rows, threads.len(), &phases),
            source,
            smoothed: Some(smoothed),
            phases,
        }
    }
}

/// Each thread's load over the whole run, and its kind.
fn totals(profile: &Profile) -> (LoadSource, Vec<f64>) {
    let dram: Option<Vec<u64>> = profile.threads().iter().map(|t| t.dram_bytes).collect();
    let dram = dram.filter(|dram| dram.iter().any(|&bytes| bytes > 0));
    match (&profile.meta().dram_source, dram) {
        (Some(source), Some(dram)) => {
            let source = LoadSource::Dram(source.clone());
            (source, dram.into_iter().map(|bytes| bytes as f64).collect())
        }
        _ => {
            let accesses = profile.threads().iter().map(|t| t.accesses as f64);
            (LoadSource::Accesses, accesses.collect())
        }
    }
}

/// The memory load of a run under an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLoad {
    /// The kind of load.
    pub source: LoadSource,
    /// Load by slice, smoothed; `None` when page use by slice was not recorded.
    pub smoothed: Option<Vec<f64>>,
    /// Access phases of the smoothed series; empty without it.
    pub phases: Vec<Range<usize>>,
    /// Access-load vector: load by thread. Without page use by slice, each thread's total.
    pub by_thread: Vec<f64>,
    /// Sum of the threads' loads by node with PUs.
    pub by_node: Vec<f64>,
    /// Load_std (eq. 6) of `by_node`.
    pub deviation: f64,
}

/// Computes all load figures of a run.
///
/// # Panics
/// If the assignment is not of the profile.
#[must_use]
pub fn memory_load(profile: &Profile, assignment: &NodeAssignment) -> MemoryLoad {
    let vector = LoadVector::of(profile);
    let by_node = node_loads(&vector.by_thread, assignment);
    MemoryLoad {
        source: vector.source,
        smoothed: vector.smoothed,
        phases: vector.phases,
        deviation: load_deviation(&by_node),
        by_thread: vector.by_thread,
        by_node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::tests::usage_of;
    use crate::timeline::tests::profile_of;
    use numaloc_model::profile::PageSlice;
    use numaloc_model::{PageNumber, SliceIdx, ThreadIdx};
    use proptest::prelude::*;

    #[test]
    fn cycles_to_nanoseconds() {
        // 2.4 GHz = 2,400,000 kHz: 24 cycles are 10 ns.
        assert_eq!(nanoseconds(24, 2_400_000), 10.0);
    }

    #[test]
    fn one_outlier_of_twenty_is_interpolated() {
        // 5 % of 20 is one: the 1000 at 5 lies between 4 and 6, so it becomes 5.
        let mut series: Vec<f64> = (0..20).map(f64::from).collect();
        series[5] = 1000.0;
        let smooth = smoothed(&series);
        assert_eq!(smooth[5], 5.0);
        assert_eq!(smooth[19], 19.0);
        // At the border there is only one neighbour.
        series[5] = 5.0;
        series[0] = 1000.0;
        assert_eq!(smoothed(&series)[0], 1.0);
        assert_eq!(smoothed(&[3.0, 9.0]), [3.0, 9.0]);
    }

    #[test]
    fn phases_end_at_low_points_that_are_far_enough_apart() {
        // Low points at 0, 30 and 60 of 80 (5 % of 80 = 4 lowest: 0, 0, 0 and one 5: mean 1.25).
        let series: Vec<f64> = (0..80)
            .map(|s| if s % 30 == 0 { 0.0 } else { 5.0 })
            .collect();
        assert_eq!(access_phases(&series, 20), [0..30, 30..60, 60..80]);
        assert_eq!(access_phases(&series, 50), [0..60, 60..80]);
        assert!(access_phases(&[], 1).is_empty());
    }

    #[test]
    fn heavy_phases_weigh_more() {
        // Phase 0 (slices 0..1): T0 has 30. Phase 1 (1..2): T0 20, T1 50. Weights 0.3 and 0.7.
        // T0: 0.3·30 + 0.7·20 = 23; T1: 0.7·50 = 35.
        let rows = [(0, 0, 30.0), (1, 0, 20.0), (1, 1, 50.0)];
        let vector = access_load(rows, 2, &[0..1, 1..2]);
        assert!((vector[0] - 23.0).abs() < 1e-12 && (vector[1] - 35.0).abs() < 1e-12);
        assert_eq!(access_load([], 2, &[0..1, 1..2]), [0.0, 0.0]);
    }

    /// Two slices with accesses to one page: T0 has 30 and 20, T1 none and 50.
    fn two_slices(threads: usize) -> Profile {
        let row = |slice, thread, accesses| PageSlice {
            slice: SliceIdx(slice),
            page: PageNumber(0),
            thread: ThreadIdx(thread),
            accesses,
        };
        let mut tables = profile_of(threads, 2, &[]).into_builder();
        tables.usage(&usage_of(&[(0, vec![50, 50])]));
        tables.page_slices = vec![row(0, 0, 30), row(1, 0, 20), row(1, 1, 50)];
        tables.build().unwrap()
    }

    #[test]
    fn load_of_a_run_by_hand() {
        // Two slices, one access phase of weight 1: T0 has 30 + 20, T1 has 50, T2 and T3 nothing.
        let profile = two_slices(4);
        let found = memory_load(&profile, &NodeAssignment::blocks(4, 2));
        assert_eq!(found.smoothed, Some(vec![30.0, 70.0]));
        assert_eq!(found.phases, vec![0..2]);
        assert_eq!(found.by_thread, [50.0, 50.0, 0.0, 0.0]);
        // Nodes 100 and 0: mean 50, deviation 50. Round robin: 50 and 50.
        assert_eq!(
            (&found.by_node[..], found.deviation),
            (&[100.0, 0.0][..], 50.0)
        );
        let spread = memory_load(&profile, &NodeAssignment::round_robin(4, 2));
        assert_eq!(spread.deviation, 0.0);
        let profile = profile
            .changed(|tables| tables.page_slices.clear())
            .unwrap();
        let found = memory_load(&profile, &NodeAssignment::blocks(4, 2));
        assert_eq!((found.smoothed, found.by_thread), (None, vec![1000.0; 4]));
    }

    #[test]
    fn dram_accesses_are_the_load_if_known() {
        // T0 makes 50 accesses and T1 as many, but only T1's leave the caches: 6400 bytes from DRAM, T0 has 640. One
        // phase of weight 1: that is the vector. By slice: T0's 640 go 30 : 20, T1's all to slice 1.
        let profile = two_slices(2);
        assert_eq!(LoadVector::of(&profile).source, LoadSource::Accesses);
        let profile = profile.changed(|tables| {
            for (thread, bytes) in tables.threads.iter_mut().zip([640, 6400]) {
                thread.dram_bytes = Some(bytes);
            }
            tables.meta.dram_source = Some("a test".to_owned());
        });
        let profile = profile.unwrap();
        let found = LoadVector::of(&profile);
        assert_eq!(found.source, LoadSource::Dram("a test".to_owned()));
        assert_eq!(found.smoothed, Some(vec![384.0, 6656.0]));
        assert_eq!(found.by_thread, [640.0, 6400.0]);
        // A reader that kept only the sums gets the same result.
        let sums = profile.accesses_by_slice();
        let profile = profile.changed(|tables| {
            tables.access_slices = sums;
            tables.page_slices.clear();
        });
        let profile = profile.unwrap();
        assert_eq!(LoadVector::of(&profile), found);
        // Without time the totals are the vector; if one thread's bytes are unknown, accesses are used.
        let profile = profile
            .changed(|tables| tables.access_slices.clear())
            .unwrap();
        assert_eq!(LoadVector::of(&profile).by_thread, [640.0, 6400.0]);
        let profile = profile
            .changed(|tables| tables.threads[0].dram_bytes = None)
            .unwrap();
        assert_eq!(LoadVector::of(&profile).source, LoadSource::Accesses);
    }

    proptest! {
        #[test]
        fn smoothing_lowers_and_phases_cover(
            series in proptest::collection::vec(0u32..1000, 1..300),
            width in 1usize..50,
        ) {
            let series: Vec<f64> = series.into_iter().map(f64::from).collect();
            let smooth = smoothed(&series);
            let max = |s: &[f64]| s.iter().copied().fold(0.0, f64::max);
            prop_assert_eq!(smooth.len(), series.len());
            prop_assert!(max(&smooth) <= max(&series));
            prop_assert!(smooth.iter().zip(&series).filter(|(a, b)| a != b).count() <= series.len() / 20);
            let phases = access_phases(&smooth, width);
            prop_assert_eq!((phases[0].start, phases[phases.len() - 1].end), (0, series.len()));
            prop_assert!(phases.windows(2).all(|w| w[0].end == w[1].start && w[0].len() >= width));
            // Scaling the load moves no border.
            let double: Vec<f64> = smooth.iter().map(|v| v * 2.0).collect();
            prop_assert_eq!(access_phases(&double, width), phases);
        }

        #[test]
        fn access_load_scales_and_follows_its_thread(
            rows in proptest::collection::vec((0usize..20, 0usize..4, 1u32..100), 1..50),
        ) {
            let rows: Vec<_> = rows.into_iter().map(|r| (r.0, r.1, f64::from(r.2))).collect();
            let phases = [0..7, 7..20];
            let vector = access_load(rows.iter().copied(), 4, &phases);
            let total: f64 = rows.iter().map(|r| r.2).sum();
            // Weights are at most 1: no more load than accesses, and some load if there are any.
            prop_assert!(vector.iter().sum::<f64>() <= total + 1e-6);
            prop_assert!(vector.iter().sum::<f64>() > 0.0);
            let renamed = access_load(rows.iter().map(|r| (r.0, 3 - r.1, r.2)), 4, &phases);
            let triple = access_load(rows.iter().map(|r| (r.0, r.1, 3.0 * r.2)), 4, &phases);
            for t in 0..4 {
                prop_assert!((renamed[3 - t] - vector[t]).abs() < 1e-9);
                prop_assert!((triple[t] - 3.0 * vector[t]).abs() < 1e-6);
            }
        }
    }
}
