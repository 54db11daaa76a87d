//! Phases by communication partners.
//!
//! OPT's rule ([`crate::phases`]) compares the heterogeneity of the pattern, and DeLoc's clusters
//! ([`crate::concurrency`]) only the times of communication. Neither detects a change between two patterns of equal
//! heterogeneity and amount (neighbour pairs, then distant pairs), nor stretches in which the ranks of a
//! message-passing program only compute. Here, for one or several layers together:
//!
//! 1. a silence of at least a window is a phase; two silences separated only by a short burst (the barrier or reduction
//!    at the end of a step) are two phases, the burst ending the first;
//! 2. a stretch between silences is split where the traffic of the window before differs most from that of the window
//!    after: `1 - cos(a, b)` at least [`LEAST_CHANGE`] for the vectors of weights by layer, sender and receiver, or
//!    amounts that differ by a factor of at least [`LEAST_FACTOR`].
//!
//! If a window holds few samples of its pattern, two windows of the same pattern differ too. So for memory a change
//! must exceed the median over its stretch by [`LEAST_CHANGE`], because most places are no border. Messages are few and
//! all recorded; for them the change itself counts.
//!
//! The weight of a row is its bytes plus 64 per event, so that empty messages (barriers) count. The window for messages
//! is 0.5 % of the run ([`message_window`]), that for memory is OPT's: faster alternation is one phase, and shorter
//! changes are not detected.
//!
//! Cost: O(rows x 3); memory O(rows + distinct cells).

use std::collections::HashMap;
use std::ops::Range;

use numaloc_model::Layer;
use numaloc_model::profile::Profile;

/// Least `1 - cos` between the traffic before and after a change.
pub const LEAST_CHANGE: f64 = 0.3;
/// Or the least factor between their amounts.
pub const LEAST_FACTOR: f64 = 8.0;

/// Slices of a window for messages: 0.5 % of the run, at least 2.
#[must_use]
pub fn message_window(slices: usize) -> usize {
    (slices / 200).max(2)
}

/// Parameters of the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternRule<'a> {
    /// Layers used, together.
    pub layers: &'a [Layer],
    /// Slices per window.
    pub window: usize,
    /// Whether windows of the same pattern differ by chance.
    pub by_chance: bool,
}

/// The phases of a run as ranges of slices: they cover it, in order. Rows must be sorted by slice.
///
/// # Panics
/// If the window is 0.
#[must_use]
pub fn pattern_phases(profile: &Profile, rule: PatternRule<'_>) -> Vec<Range<usize>> {
    let window = rule.window;
    assert!(window > 0, "a window has a slice");
    let slices = profile.slices().len();
    if slices == 0 {
        return Vec::new();
    }
    let traffic = Traffic::new(profile, rule.layers);
    let mut starts = vec![0];
    let mut from = 0;
    for silence in traffic.silences(window) {
        split(&traffic, from..silence.start, rule, &mut starts);
        if silence.start >= window {
            starts.push(silence.start);
        }
        from = silence.end;
    }
    split(&traffic, from..slices, rule, &mut starts);
    starts.dedup();
    let ends = starts[1..].iter().copied().chain([slices]);
    starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(start, end)| start..end)
        .collect()
}

/// Adds the starts of phases within a stretch of traffic, including its own. A stretch shorter than a window belongs to
/// the preceding phase.
fn split(traffic: &Traffic, stretch: Range<usize>, rule: PatternRule<'_>, starts: &mut Vec<usize>) {
    let window = rule.window;
    if stretch.len() < window {
        return;
    }
    starts.push(stretch.start);
    let first = stretch.start + window;
    let Some(last) = (stretch.end + 1).checked_sub(window).filter(|&l| l > first) else {
        return;
    };
    let changes = traffic.changes(first..last, window);
    let usual = if rule.by_chance {
        let mut sorted = changes.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    } else {
        0.0
    };
    for (at, &change) in changes.iter().enumerate() {
        // The largest change of its neighbourhood; of equal ones, the first.
        let near = at.saturating_sub(window)..(at + window + 1).min(changes.len());
        let largest = near
            .clone()
            .all(|other| changes[other] < change || (changes[other] == change && other >= at));
        if change - usual >= LEAST_CHANGE && largest {
            starts.push(first + at);
        }
    }
}

/// Largest number of cells for which a table is used (16 MiB).
const TABLE: usize = 1 << 22;

/// Dense numbers for the cells that occur.
struct Numbers<'a> {
    layers: &'a [Layer],
    threads: usize,
    /// By layer, sender, receiver, plus 1; empty for too many threads.
    table: Vec<u32>,
    sparse: HashMap<(Layer, u32, u32), u32>,
    used: u32,
}

impl<'a> Numbers<'a> {
    fn new(threads: usize, layers: &'a [Layer]) -> Self {
        let cells = threads * threads * layers.len();
        Self {
            layers,
            threads,
            table: vec![0; if cells <= TABLE { cells } else { 0 }],
            sparse: HashMap::new(),
            used: 0,
        }
    }

    fn of(&mut self, layer: Layer, src: u32, dst: u32) -> u32 {
        let within = (src.max(dst) as usize) < self.threads && !self.table.is_empty();
        let number = if within {
            let at = self.layers.iter().position(|&l| l == layer).unwrap_or(0);
            &mut self.table[(at * self.threads + src as usize) * self.threads + dst as usize]
        } else {
            self.sparse.entry((layer, src, dst)).or_default()
        };
        if *number == 0 {
            self.used += 1;
            *number = self.used;
        }
        *number - 1
    }
}

/// Weights of all cells, by slice.
struct Traffic {
    start: Vec<usize>,
    /// Number of the cell (layer, sender, receiver) and its weight.
    cells: Vec<(u32, f64)>,
    distinct: usize,
}

impl Traffic {
    fn new(profile: &Profile, layers: &[Layer]) -> Self {
        let mut traffic = Self {
            start: vec![0; profile.slices().len() + 1],
            cells: Vec::new(),
            distinct: 0,
        };
        let mut numbers = Numbers::new(profile.threads().len(), layers);
        let mut slice = 0;
        for row in profile.communication() {
            let counts = layers.contains(&row.layer) && row.events > 0;
            if !counts || row.slice.index() >= profile.slices().len() {
                continue;
            }
            while slice < row.slice.index() {
                slice += 1;
                traffic.start[slice] = traffic.cells.len();
            }
            let weight = row.bytes as f64 + 64.0 * row.events as f64;
            let cell = numbers.of(row.layer, row.src.0, row.dst.0);
            traffic.cells.push((cell, weight));
        }
        traffic.start[slice + 1..].fill(traffic.cells.len());
        traffic.distinct = numbers.used as usize;
        traffic
    }

    fn of(&self, slice: usize) -> &[(u32, f64)] {
        &self.cells[self.start[slice]..self.start[slice + 1]]
    }

    /// Stretches of at least `window` slices without any message.
    fn silences(&self, window: usize) -> Vec<Range<usize>> {
        let slices = self.start.len() - 1;
        let mut found = Vec::new();
        let mut from = 0;
        for slice in 0..=slices {
            if slice == slices || !self.of(slice).is_empty() {
                if slice - from >= window {
                    found.push(from..slice);
                }
                from = slice + 1;
            }
        }
        found
    }

    /// Difference between the window that starts at each slice of `range` and the one before it, 0 to 1.
    fn changes(&self, range: Range<usize>, window: usize) -> Vec<f64> {
        let mut pair = Pair {
            cells: vec![(0.0, 0.0); self.distinct],
            squares: (0.0, 0.0),
            product: 0.0,
            amount: (0.0, 0.0),
        };
        for slice in range.start - window..range.start {
            pair.add(self.of(slice), 1.0, 0.0);
        }
        for slice in range.start..range.start + window {
            pair.add(self.of(slice), 0.0, 1.0);
        }
        let mut changes = Vec::with_capacity(range.len());
        for at in range.clone() {
            changes.push(pair.change());
            if at + 1 < range.end {
                pair.add(self.of(at - window), -1.0, 0.0);
                pair.add(self.of(at), 1.0, -1.0);
                pair.add(self.of(at + window), 0.0, 1.0);
            }
        }
        changes
    }
}

/// Sums of two windows, and their products, updated incrementally.
struct Pair {
    /// By number of the cell.
    cells: Vec<(f64, f64)>,
    squares: (f64, f64),
    product: f64,
    amount: (f64, f64),
}

impl Pair {
    fn add(&mut self, row: &[(u32, f64)], before: f64, after: f64) {
        for &(cell, weight) in row {
            let (a, b) = &mut self.cells[cell as usize];
            let old = (*a, *b);
            *a += before * weight;
            *b += after * weight;
            self.squares.0 += *a * *a - old.0 * old.0;
            self.squares.1 += *b * *b - old.1 * old.1;
            self.product += *a * *b - old.0 * old.1;
            self.amount.0 += before * weight;
            self.amount.1 += after * weight;
        }
    }

    fn change(&self) -> f64 {
        let (a, b) = self.amount;
        // Weights are integers of at least 64: less is zero.
        if a < 1.0 || b < 1.0 {
            return if a < 1.0 && b < 1.0 { 0.0 } else { 1.0 };
        }
        let cosine = self.product / (self.squares.0 * self.squares.1).sqrt();
        let factor = LEAST_CHANGE * (a / b).ln().abs() / LEAST_FACTOR.ln();
        f64::max(1.0 - cosine, factor).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use proptest::prelude::*;

    /// 60 slices; rows as `(slices, src, dst, events)`, in the message layer.
    fn found(stretches: &[(Range<u32>, u32, u32, u64)]) -> Vec<Range<usize>> {
        let mut rows: Vec<(u32, u32, u32, u64)> = stretches
            .iter()
            .flat_map(|(slices, src, dst, events)| {
                slices
                    .clone()
                    .map(move |slice| (slice, *src, *dst, *events))
            })
            .collect();
        rows.sort_unstable();
        let mut tables = profile_of(4, 60, &rows).into_builder();
        for row in &mut tables.communication {
            row.layer = Layer::Message;
        }
        let profile = tables.build().unwrap();
        let layers = &[Layer::Message, Layer::Collective];
        let (window, by_chance) = (5, false);
        let rule = PatternRule {
            layers,
            window,
            by_chance,
        };
        pattern_phases(&profile, rule)
    }

    #[test]
    fn other_partners_are_another_phase_even_at_equal_heterogeneity() {
        // 0 sends to 1, then 2 to 3 as much: the same matrix under other names.
        assert_eq!(
            found(&[(0..25, 0, 1, 10), (25..60, 2, 3, 10)]),
            [0..25, 25..60]
        );
    }

    #[test]
    fn silences_are_phases_and_a_short_burst_ends_the_first() {
        // Silence to slice 20, a barrier in slices 20 and 21, silence to 40, then traffic.
        assert_eq!(
            found(&[(20..22, 0, 1, 1), (40..60, 0, 1, 10)]),
            [0..22, 22..40, 40..60]
        );
    }

    #[test]
    fn alternation_within_a_window_and_steady_traffic_are_one_phase() {
        assert_eq!(found(&[(0..60, 0, 1, 10)]), vec![0..60]);
        let beats: Vec<_> = (0..20).map(|k| (3 * k..3 * k + 1, 0, 1, 10)).collect();
        assert_eq!(found(&beats), vec![0..60]);
        assert_eq!(found(&[]), vec![0..60]);
    }

    #[test]
    fn a_much_larger_amount_of_the_same_pattern_is_another_phase() {
        assert_eq!(
            found(&[(0..30, 0, 1, 1), (30..60, 0, 1, 100)]),
            [0..30, 30..60]
        );
    }

    #[test]
    fn a_layer_that_is_not_requested_does_not_count() {
        let rows: Vec<_> = (0..60u32).map(|slice| (slice, 0, 1, 10)).collect();
        let mut tables = profile_of(4, 60, &rows).into_builder();
        for row in &mut tables.communication[30..] {
            row.layer = Layer::SharedLine;
        }
        let profile = tables.build().unwrap();
        let phases = |layers: &[Layer]| {
            let (window, by_chance) = (5, true);
            pattern_phases(
                &profile,
                PatternRule {
                    layers,
                    window,
                    by_chance,
                },
            )
        };
        assert_eq!(phases(&[Layer::WriteRead]), [0..30, 30..60]);
        // Another layer is another pattern.
        assert_eq!(phases(&Layer::ALL), [0..30, 30..60]);
        assert_eq!(phases(&[Layer::LastTwo]), vec![0..60]);
    }

    #[test]
    fn sampling_noise_is_no_change_of_pattern() {
        // 64 threads; in every slice 6 of the 64 pairs of the pattern, drawn by a hash: two windows of 10 slices
        // have many different pairs. Neighbours, from slice 200 on those 32 apart.
        let rows: Vec<(u32, u32, u32, u64)> = (0..400u32)
            .flat_map(|slice| {
                (0..6u32).map(move |at| {
                    let drawn = u64::from(slice * 6 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let src =
                        (drawn ^ drawn >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as u32 >> 16 & 63;
                    let dst = if slice < 200 {
                        src ^ 1
                    } else {
                        (src + 32) % 64
                    };
                    (slice, src, dst, 10)
                })
            })
            .collect();
        let profile = profile_of(64, 400, &rows);
        let layers = &[Layer::WriteRead];
        let found = |by_chance| {
            let window = 10;
            pattern_phases(
                &profile,
                PatternRule {
                    layers,
                    window,
                    by_chance,
                },
            )
        };
        assert_eq!(found(true), [0..200, 200..400]);
        assert!(found(false).len() > 4, "{:?}", found(false));
    }

    proptest! {
        #[test]
        fn phases_cover_the_run_and_renaming_threads_changes_nothing(
            rows in proptest::collection::vec((0u32..60, 0u32..5, 1u32..5, 1u64..50), 0..120),
        ) {
            let mut rows: Vec<_> = rows.into_iter().map(|(s, a, d, e)| (s, a, (a + d) % 5, e)).collect();
            rows.sort_unstable();
            let of = |rows: &[(u32, u32, u32, u64)]| {
                let layers = &[Layer::WriteRead];
                let (window, by_chance) = (4, true);
                pattern_phases(&profile_of(5, 60, rows), PatternRule { layers, window, by_chance })
            };
            let found = of(&rows);
            prop_assert_eq!((found[0].start, found[found.len() - 1].end), (0, 60));
            prop_assert!(found.windows(2).all(|w| w[0].end == w[1].start && w[0].start < w[0].end));
            let renamed: Vec<_> = rows.iter().map(|&(s, a, d, e)| (s, 4 - a, 4 - d, e)).collect();
            prop_assert_eq!(&of(&renamed), &found);
        }
    }
}
