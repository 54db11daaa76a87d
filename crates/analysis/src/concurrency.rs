//! Concurrent communication: clusters of slices, and the thread pairs of each.
//!
//! Implements DeLoc (Agung et al. 2020) section II-C and `buildTaskGroups`, eq. 2 and 3 of II-D. The timestamps are the
//! middles of the slices that hold communication, weighted by its amount (events of shared memory, bytes of messages: a
//! slice of empty messages only is not a timestamp, unless all messages are empty). [`crate::kmeans`] finds the optimal
//! clusters for every `k`; the Bayesian information criterion chooses `k`: see [`crate::bic`](mod@crate::bic).
//!
//! Timestamps do not show which pairs communicate: a steady run whose pattern changes is one cluster of them, although
//! pairs of the first and of the second pattern never communicate at the same time. So a cluster of shared memory is
//! cut where the pattern changes within it ([`crate::pattern_phases`](mod@crate::pattern_phases)) and the matrices on
//! either side differ by `1 - cos` of at least 0.3. DeLoc leaves such a cluster whole, and its plan then depends on the
//! order of pairs of similar weight.
//!
//! The largest BIC over `1..=16` wins, the smaller `k` on a tie. Clusters show when there is communication, not between
//! which threads: for that see [`crate::pattern_phases`](mod@crate::pattern_phases).

use std::ops::Range;

use numaloc_model::profile::{Amount, CommRow, Profile, Slice};
use numaloc_model::{ClusterIdx, GroupPair, Layer, SliceIdx, TaskGroup, ThreadIdx};

use crate::bic::weighted_mean;
use crate::pattern_phases::{LEAST_CHANGE, PatternRule, pattern_phases};
use crate::phases::PhaseRule;
use timestamps::{SliceSums, Timestamps};

mod timestamps;

/// Largest number of clusters tried.
pub const K_MAX: usize = 16;

/// A run of slices whose communication counts as concurrent.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// First slice with communication.
    pub first: SliceIdx,
    /// Last slice with communication.
    pub last: SliceIdx,
    /// Start of the first slice, in the profile's clock.
    pub start: u64,
    /// End of the last slice, in the profile's clock.
    pub end: u64,
    /// Weighted mean time, in the profile's clock.
    pub mean: f64,
    /// Communication events in it (rows of the table, as stored).
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The clusters of a run and the groups of pairs they make.
#[derive(Clone, Debug, PartialEq)]
pub struct Concurrency {
    /// In time order.
    pub clusters: Vec<Cluster>,
    /// By cluster: the pairs that communicate in it.
    pub groups: Vec<TaskGroup>,
    /// Number of clusters, including cuts between patterns; 0 without communication.
    pub k: usize,
    /// BIC for 1, 2, ... clusters; larger is better.
    pub bic: Vec<f64>,
    /// Unit of `in_group` and `in_run`: bytes, or events if a layer has no bytes.
    pub amount: Amount,
}

impl Concurrency {
    /// The cluster a slice belongs to; `None` between clusters.
    #[must_use]
    pub fn cluster_of(&self, slice: SliceIdx) -> Option<ClusterIdx> {
        let at = self.clusters.partition_point(|c| c.last < slice);
        let cluster = self.clusters.get(at)?;
        (cluster.first <= slice).then(|| ClusterIdx::from_index(at))
    }
}

/// Load of a group and of its pairs (DeLoc eq. 2, 3), each a share of all groups' loads.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLoad {
    /// `Wp` of each pair, in the group's order.
    pub pair_loads: Vec<f64>,
    /// `Lc`: their sum.
    pub load: f64,
}

/// `Wp` and `Lc` of every group. `Scomm` is a pair's amount in its group, and the denominator runs over
/// all pairs of all groups (eq. 2 as printed; the text says "to its highest value", which
/// orders the same). All loads together are 1, or 0 when nothing is exchanged.
#[must_use]
pub fn group_loads(groups: &[TaskGroup]) -> Vec<GroupLoad> {
    let total: f64 = groups
        .iter()
        .flat_map(|group| &group.pairs)
        .map(|pair| pair.in_group)
        .sum();
    groups
        .iter()
        .map(|group| {
            let share = |pair: &GroupPair| {
                if total > 0.0 {
                    pair.in_group / total
                } else {
                    0.0
                }
            };
            let pair_loads: Vec<f64> = group.pairs.iter().map(share).collect();
            let load = pair_loads.iter().sum();
            GroupLoad { pair_loads, load }
        })
        .collect()
}

/// Finds the clusters of slices of one layer, and their task groups.
///
/// Rows must be sorted by slice, as [`Profile::communication`] promises. A layer without
/// communication has no cluster. Rows that name a slice or thread the profile does not have are left out.
#[must_use]
pub fn concurrency_groups(profile: &Profile, layer: Layer) -> Concurrency {
    let sums = SliceSums::of(profile, layer);
    let stamps = Timestamps::of(profile, sums.weights(layer));
    let (bic, starts) = stamps.clusters(profile, K_MAX);
    let starts = cut_by_pattern(profile, layer, starts, &stamps.slices);
    let clusters: Vec<Cluster> = starts
        .iter()
        .enumerate()
        .map(|(at, &from)| {
            let to = starts.get(at + 1).copied();
            let range = from..to.unwrap_or(stamps.points.len());
            cluster(&stamps, range, &sums, profile.slices())
        })
        .collect();
    let threads = profile.threads().len();
    let groups = task_groups(
        profile.communication(),
        layer,
        sums.amount,
        &clusters,
        threads,
    );
    Concurrency {
        k: clusters.len(),
        clusters,
        groups,
        bic,
        amount: sums.amount,
    }
}

/// The cluster of the times `range`.
fn cluster(
    stamps: &Timestamps,
    range: Range<usize>,
    sums: &SliceSums,
    slices: &[Slice],
) -> Cluster {
    let first = stamps.slices[range.start].0 as usize;
    let last = stamps.slices[range.end - 1].1 as usize;
    let weights = &stamps.weights[range.clone()];
    let weight: f64 = weights.iter().sum();
    Cluster {
        first: SliceIdx::from_index(first),
        last: SliceIdx::from_index(last),
        start: slices[first].start,
        end: slices[last].end,
        mean: weighted_mean(&stamps.points[range], weights, weight),
        events: sums.events[first..=last].iter().sum(),
        bytes: sums.bytes[first..=last].iter().sum(),
    }
}

/// The starts of clusters (indexes of timestamps) and, between them, those of further patterns.
fn cut_by_pattern(
    profile: &Profile,
    layer: Layer,
    starts: Vec<usize>,
    slices_of: &[(u32, u32)],
) -> Vec<usize> {
    if starts.is_empty() || layer.is_message() {
        return starts;
    }
    let rule = PatternRule {
        layers: &[layer],
        window: PhaseRule::for_slices(profile.slices().len()).window.max(2),
        by_chance: true,
    };
    // Between any two borders, of a cluster or of a phase, there is one pattern.
    let phases = pattern_phases(profile, rule);
    let point = |slice: usize| slices_of.partition_point(|s| (s.0 as usize) < slice);
    let mut borders: Vec<usize> = phases.iter().map(|phase| point(phase.start)).collect();
    borders.extend(&starts);
    borders.retain(|&at| at < slices_of.len());
    borders.sort_unstable();
    borders.dedup();
    let mut kept = Vec::with_capacity(borders.len());
    let mut before = Vec::new();
    for (at, &from) in borders.iter().enumerate() {
        let to = borders.get(at + 1).copied().unwrap_or(slices_of.len());
        let here = pattern(profile, layer, slices_of[from].0, slices_of[to - 1].1);
        if starts.contains(&from) || difference(&before, &here) >= LEAST_CHANGE {
            kept.push(from);
        }
        before = here;
    }
    kept
}

/// Both directions of a pair's events, by pair.
type Pattern = Vec<(u32, u32, f64, f64)>;

/// Events by pair from one slice to another, both included.
fn pattern(profile: &Profile, layer: Layer, first: u32, last: u32) -> Pattern {
    let rows = profile.communication();
    let threads = profile.threads().len();
    let from = rows.partition_point(|row| row.slice.0 < first);
    let to = rows.partition_point(|row| row.slice.0 <= last);
    let mut sums = PairSums::new(threads);
    for row in rows[from..to].iter().filter(|row| layer.holds(row.layer)) {
        if row.src.index() < threads && row.dst.index() < threads {
            sums.add(row.src.0, row.dst.0, row.events as f64);
        }
    }
    sums.into_pairs()
}

/// `1 - cos` of two patterns.
fn difference(a: &Pattern, b: &Pattern) -> f64 {
    let square = |p: &Pattern| p.iter().map(|p| p.2 * p.2 + p.3 * p.3).sum::<f64>();
    let mut others = b.iter().peekable();
    let mut product = 0.0;
    for here in a {
        while others.next_if(|p| (p.0, p.1) < (here.0, here.1)).is_some() {}
        if let Some(there) = others.next_if(|p| (p.0, p.1) == (here.0, here.1)) {
            product += here.2 * there.2 + here.3 * there.3;
        }
    }
    1.0 - product / (square(a) * square(b)).sqrt().max(1.0)
}

/// DeLoc's `buildTaskGroups`: per cluster the pairs that communicate in it, by ascending `(a, b)`.
fn task_groups(
    rows: &[CommRow],
    layer: Layer,
    amount: Amount,
    clusters: &[Cluster],
    threads: usize,
) -> Vec<TaskGroup> {
    let mut in_run = PairSums::new(threads);
    let mut in_group: Vec<Vec<(u32, u32, f64)>> = Vec::new();
    for cluster in clusters {
        let from = rows.partition_point(|row| row.slice < cluster.first);
        let to = rows.partition_point(|row| row.slice <= cluster.last);
        let mut sums = PairSums::new(threads);
        for row in rows[from..to].iter().filter(|row| layer.holds(row.layer)) {
            let value = amount.of(row);
            if row.src.index() < threads && row.dst.index() < threads {
                sums.add(row.src.0, row.dst.0, value as f64);
            }
        }
        let pairs = sums.into_pairs();
        for &(a, b, forth, back) in &pairs {
            in_run.add(a, b, forth);
            in_run.add(b, a, back);
        }
        in_group.push(
            pairs
                .into_iter()
                .map(|(a, b, forth, back)| (a, b, both_ways(layer, forth, back)))
                .collect(),
        );
    }
    let whole: Vec<(u32, u32, f64)> = in_run
        .into_pairs()
        .into_iter()
        .map(|(a, b, forth, back)| (a, b, both_ways(layer, forth, back)))
        .collect();
    in_group
        .into_iter()
        .map(|pairs| {
            let mut run = whole.iter();
            let pairs = pairs.into_iter().map(|(a, b, in_group)| GroupPair {
                a: ThreadIdx(a),
                b: ThreadIdx(b),
                in_group,
                in_run: run
                    .find(|pair| (pair.0, pair.1) == (a, b))
                    .expect("a group's pair communicates in the run")
                    .2,
            });
            TaskGroup {
                pairs: pairs.collect(),
            }
        })
        .collect()
}

/// A pair's amount: the sum of both directions, or the single amount that both cells of an undirected layer hold.
fn both_ways(layer: Layer, forth: f64, back: f64) -> f64 {
    if layer.is_directed() {
        forth + back
    } else {
        forth.max(back)
    }
}

/// Largest number of threads for which pair sums are kept in a full square (128 MiB).
const DENSE_THREADS: usize = 4096;

/// Sums by ordered pair: a square if it fits, sorted cells otherwise.
enum PairSums {
    Dense { threads: usize, sums: Vec<f64> },
    Cells(Vec<(u32, u32, f64)>),
}

impl PairSums {
    fn new(threads: usize) -> Self {
        if threads <= DENSE_THREADS {
            Self::Dense {
                threads,
                sums: vec![0.0; threads * threads],
            }
        } else {
            Self::Cells(Vec::new())
        }
    }

    fn add(&mut self, src: u32, dst: u32, value: f64) {
        match self {
            Self::Dense { threads, sums } => sums[src as usize * *threads + dst as usize] += value,
            Self::Cells(cells) => cells.push((src, dst, value)),
        }
    }

    /// `(a, b, a to b, b to a)` with `a < b`, ascending, where either is positive.
    fn into_pairs(self) -> Vec<(u32, u32, f64, f64)> {
        match self {
            Self::Dense { threads, sums } => {
                let mut pairs = Vec::new();
                for a in 0..threads {
                    for b in a + 1..threads {
                        let (forth, back) = (sums[a * threads + b], sums[b * threads + a]);
                        if forth > 0.0 || back > 0.0 {
                            pairs.push((a as u32, b as u32, forth, back));
                        }
                    }
                }
                pairs
            }
            Self::Cells(mut cells) => {
                cells.sort_by_key(|&(src, dst, _)| (src.min(dst), src.max(dst)));
                let mut pairs: Vec<(u32, u32, f64, f64)> = Vec::new();
                for (src, dst, value) in cells {
                    let (a, b) = (src.min(dst), src.max(dst));
                    if a == b || value <= 0.0 {
                        continue;
                    }
                    if pairs.last().is_none_or(|last| (last.0, last.1) != (a, b)) {
                        pairs.push((a, b, 0.0, 0.0));
                    }
                    let last = pairs.last_mut().expect("just pushed");
                    *(if src < dst { &mut last.2 } else { &mut last.3 }) += value;
                }
                pairs
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use proptest::prelude::*;

    /// 100 slices of 10; in slices 0..20 threads (0,1) and (2,3) exchange, in 70..90 (0,2) and (1,3).
    fn two_bursts() -> Profile {
        let mut rows = Vec::new();
        for slice in (0..20).chain(70..90) {
            let pairs = if slice < 50 {
                [(0, 1), (2, 3)]
            } else {
                [(0, 2), (1, 3)]
            };
            for (src, dst) in pairs {
                rows.push((slice, src, dst, 3));
            }
        }
        profile_of(4, 100, &rows)
    }

    #[test]
    fn bursts_are_separated_and_their_pairs_grouped() {
        let found = concurrency_groups(&two_bursts(), Layer::WriteRead);
        // The gap is three times a burst: no cluster may straddle it.
        let straddles = |c: &Cluster| c.first.0 < 20 && c.last.0 >= 70;
        assert!(found.k >= 2 && !found.clusters.iter().any(straddles));
        for (cluster, group) in found.clusters.iter().zip(&found.groups) {
            let pairs: Vec<(u32, u32)> = group.pairs.iter().map(|p| (p.a.0, p.b.0)).collect();
            let expected = if cluster.last.0 < 50 {
                [(0, 1), (2, 3)]
            } else {
                [(0, 2), (1, 3)]
            };
            assert_eq!(pairs, expected);
            // 20 slices of 3 events of 8 bytes in the whole run, for any cluster.
            assert!(group.pairs.iter().all(|p| p.in_run == 480.0));
        }
        let loads = group_loads(&found.groups);
        assert!((loads.iter().map(|l| l.load).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(found.cluster_of(SliceIdx(50)), None);
        assert_eq!(found.cluster_of(SliceIdx(0)), Some(ClusterIdx(0)));
    }

    #[test]
    fn one_tight_burst_is_one_cluster() {
        // A bell of 21 slices in 1000: one Gaussian describes it, more only pay the penalty.
        let rows: Vec<_> = (0..21u32)
            .map(|i| {
                let z = (f64::from(i) - 10.0) / 3.0;
                (490 + i, 0, 1, 1 + (1000.0 * (-z * z / 2.0).exp()) as u64)
            })
            .collect();
        let found = concurrency_groups(&profile_of(2, 1000, &rows), Layer::WriteRead);
        assert_eq!(found.k, 1, "{:?}", found.bic);
    }

    #[test]
    fn messages_are_weighted_by_bytes() {
        // A burst of a few large messages, a long silence, a burst of many empty ones among others.
        let mut tables = two_bursts().into_builder();
        for row in &mut tables.communication {
            let late = row.slice.0 >= 50;
            row.layer = if late {
                Layer::Collective
            } else {
                Layer::Message
            };
            (row.events, row.bytes) = if late { (1_000_000, 0) } else { (1, 4096) };
        }
        let profile = tables.build().unwrap();
        let found = concurrency_groups(&profile, Layer::Sent);
        assert!(
            found.clusters.iter().all(|c| c.last.0 < 20),
            "{:?}",
            found.clusters
        );
        let mean = found.clusters.iter().map(|c| c.mean).sum::<f64>() / found.k as f64;
        assert!(
            (mean - 100.0).abs() < 10.0,
            "the middle of slices 0..20, not {mean}"
        );
        // Only empty messages: their number is the amount.
        let mut tables = profile.into_builder();
        for row in &mut tables.communication {
            row.bytes = 0;
        }
        let profile = tables.build().unwrap();
        let found = concurrency_groups(&profile, Layer::Sent);
        assert_eq!(found.amount, Amount::Events);
        assert!(found.clusters.iter().any(|c| c.last.0 >= 70));
    }

    #[test]
    fn event_counts_do_not_choose_k() {
        let small = two_bursts();
        let mut large = small.clone().into_builder();
        for row in &mut large.communication {
            row.events *= 1_000_000;
        }
        let large = large.build().unwrap();
        let k = |p: &Profile| concurrency_groups(p, Layer::WriteRead).k;
        assert_eq!(k(&small), k(&large));
    }

    #[test]
    fn steady_communication_is_cut_where_its_pattern_changes() {
        // 60 slices of neighbours, then 40 of distant pairs, at the same rate: k-means sees one cluster.
        let rows: Vec<_> = (0..100u32)
            .flat_map(|slice| match slice < 60 {
                true => [(slice, 0, 1, 5), (slice, 2, 3, 5)],
                false => [(slice, 0, 2, 5), (slice, 1, 3, 5)],
            })
            .collect();
        let found = concurrency_groups(&profile_of(4, 100, &rows), Layer::WriteRead);
        let borders: Vec<(u32, u32)> = found
            .clusters
            .iter()
            .map(|c| (c.first.0, c.last.0))
            .collect();
        assert_eq!(borders, [(0, 59), (60, 99)]);
        let pairs = |group: &TaskGroup| {
            group
                .pairs
                .iter()
                .map(|p| (p.a.0, p.b.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(pairs(&found.groups[0]), [(0, 1), (2, 3)]);
        assert_eq!(pairs(&found.groups[1]), [(0, 2), (1, 3)]);
    }

    #[test]
    fn silence_has_no_cluster() {
        let found = concurrency_groups(&profile_of(3, 10, &[]), Layer::WriteRead);
        assert_eq!(
            (found.k, found.clusters.len(), found.groups.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn pair_sums_agree_in_both_stores() {
        let cells = [
            (0, 1, 2.0),
            (1, 0, 3.0),
            (2, 1, 1.0),
            (0, 1, 4.0),
            (2, 2, 9.0),
        ];
        let mut dense = PairSums::new(3);
        let mut sparse = PairSums::Cells(Vec::new());
        for (src, dst, value) in cells {
            dense.add(src, dst, value);
            sparse.add(src, dst, value);
        }
        let expected = [(0, 1, 6.0, 3.0), (1, 2, 0.0, 1.0)];
        assert_eq!(dense.into_pairs(), expected);
        assert_eq!(sparse.into_pairs(), expected);
    }

    proptest! {
        #[test]
        fn clusters_part_the_communication_whatever_the_scale_and_the_names(
            rows in proptest::collection::vec((0u32..80, 0u32..5, 1u32..5, 1u64..50), 1..80),
            scale in 2u64..1000,
        ) {
            let mut rows: Vec<_> = rows.into_iter().map(|(s, a, d, e)| (s, a, (a + d) % 5, e)).collect();
            rows.sort_unstable();
            let of = |rows: &[(u32, u32, u32, u64)]| {
                concurrency_groups(&profile_of(5, 80, rows), Layer::WriteRead)
            };
            let found = of(&rows);
            prop_assert!(found.k >= 1 && found.k == found.clusters.len());
            prop_assert!(found.clusters.windows(2).all(|w| w[0].last < w[1].first));
            let events: u64 = found.clusters.iter().map(|c| c.events).sum();
            prop_assert_eq!(events, rows.iter().map(|r| r.3).sum::<u64>());
            let loads: f64 = group_loads(&found.groups).iter().map(|l| l.load).sum();
            prop_assert!((loads - 1.0).abs() < 1e-9);
            let share = crate::communication::concurrency(&found.groups, 5).unwrap();
            prop_assert!(share > 0.0 && share <= 1.0);
            let borders = |c: &Concurrency| c.clusters.iter().map(|c| (c.first, c.last)).collect::<Vec<_>>();
            let larger: Vec<_> = rows.iter().map(|&(s, a, b, e)| (s, a, b, e * scale)).collect();
            prop_assert_eq!(borders(&of(&larger)), borders(&found));
            let renamed: Vec<_> = rows.iter().map(|&(s, a, b, e)| (s, 4 - a, 4 - b, e)).collect();
            prop_assert_eq!(borders(&of(&renamed)), borders(&found));
        }
    }
}
