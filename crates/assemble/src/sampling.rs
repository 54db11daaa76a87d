//! Errors of sampled amounts, and the profile's notes about sampling.

use std::collections::{BTreeMap, HashMap};

use numaloc_model::Layer;
use numaloc_model::ids::ThreadIdx;
use numaloc_model::profile::{CellError, Thread};

use crate::Assembly;
use crate::errors;
use crate::load::{MILLION, Space};
use numaloc_journal::GROUPS;
use numaloc_journal::Record;

impl Assembly<'_> {
    /// Relative errors of the cells of whole-run matrices, where time was sampled.
    pub(super) fn cell_errors(&self, threads: &[Thread]) -> Vec<CellError> {
        let mut seen: BTreeMap<(Layer, ThreadIdx, ThreadIdx), BTreeMap<u64, u64>> = BTreeMap::new();
        let mut schedule = None;
        for space in &self.spaces {
            let Some(bursts) = space.bursts else { continue };
            schedule = Some(bursts);
            for received in self.received(space) {
                for (src, events, _) in self.cells(space, &received) {
                    let cell = seen.entry((received.layer, src, received.dst)).or_default();
                    *cell.entry(received.start).or_default() += events;
                }
            }
        }
        let Some(schedule) = schedule else {
            return self.errors_by_group();
        };
        let share = self.sampled();
        // Bursts in each reader's lifetime, computed once.
        let mut lifetimes: HashMap<ThreadIdx, Vec<(u64, u64)>> = HashMap::new();
        seen.into_iter()
            .map(|((layer, src, dst), seen)| {
                let bursts = lifetimes.entry(dst).or_insert_with(|| {
                    let reader = &threads[dst.index()];
                    schedule.between(reader.start, reader.end + 1).collect()
                });
                CellError {
                    layer,
                    src,
                    dst,
                    relative_error: errors::relative(bursts, &seen, share),
                }
            })
            .collect()
    }

    /// Relative errors of the cells of whole-run matrices, where lines were sampled.
    pub(super) fn errors_by_group(&self) -> Vec<CellError> {
        let mut sums: BTreeMap<(Layer, ThreadIdx, ThreadIdx), [u64; GROUPS]> = BTreeMap::new();
        let mut share = 1.0;
        for space in &self.spaces {
            for record in &space.records {
                let Record::Groups {
                    thread,
                    layer,
                    src,
                    counts,
                } = record
                else {
                    continue;
                };
                share = f64::from(space.line_share_ppm) / f64::from(MILLION);
                let layer = Layer::ALL.get(*layer as usize).copied();
                if let (Some(layer), Some(src), Some(dst)) =
                    (layer, self.thread(space, *src), self.thread(space, *thread))
                    && src != dst
                {
                    let sum = sums.entry((layer, src, dst)).or_default();
                    for (sum, count) in sum.iter_mut().zip(counts) {
                        *sum += count;
                    }
                }
            }
        }
        sums.into_iter()
            .map(|((layer, src, dst), counts)| CellError {
                layer,
                src,
                dst,
                relative_error: errors::of_groups(&counts, share),
            })
            .collect()
    }

    /// Share of the accesses that were recorded.
    pub(super) fn sampled(&self) -> f64 {
        let totals = || self.spaces.iter().flat_map(|space| space.totals.values());
        let accesses: u64 = totals().map(|totals| totals.accesses).sum();
        let seen: u64 = totals().map(|totals| totals.seen).sum();
        if seen == 0 || seen >= accesses {
            return 1.0;
        }
        seen as f64 / accesses as f64
    }

    pub(super) fn describe_sampling(&mut self) {
        let lines = self.spaces.iter().map(|space| space.line_share_ppm).min();
        let bursts = self.spaces.iter().any(|space| space.bursts.is_some());
        let lines = lines.filter(|&lines| lines < MILLION);
        if bursts || lines.is_some() {
            self.meta.sampled = self.sampled();
        }
        if let Some(lines) = lines {
            self.meta.notes.push(format!(
                "sampled by lines: {:.2} % of the cache lines were sampled, with {:.2} % of the accesses; communication and \
                 page counts are estimates scaled by that share of lines, bytes by each thread's share of accesses (numbers of accesses are \
                 exact), errors of matrix cells are in cell_errors; accesses to busy lines outside the sample are on no page, \
                 pages without a sampled line are missing, and first touch is that of a sampled line",
                f64::from(lines) / f64::from(MILLION) * 100.0,
                self.meta.sampled * 100.0
            ));
        }
        if !bursts {
            return;
        }
        self.meta.notes.push(format!(
            "sampled in bursts: {:.2} % of the accesses were sampled; counts are estimates scaled to all accesses of their thread \
             (numbers of accesses are exact), errors of matrix cells are in cell_errors; pages without an access in a burst are missing, \
             first touch is the first one sampled, and communication whose write and read lie further apart than a burst is underestimated, by up \
             to half where it repeats",
            self.meta.sampled * 100.0
        ));
    }
}

/// Estimates of page counts where lines were sampled.
///
/// Scaling by the share of lines (Horvitz and Thompson's estimator) is unbiased over all choices of lines, but a
/// recording has one choice, and a single line can have a quarter of a thread's accesses: the top of its stack, which
/// moves with the size of the environment. If that line is sampled, scaling alone gives its page several times the
/// accesses of the whole thread. The thread's number of accesses is known exactly, so the estimates must not exceed
/// it: the largest are lowered to a common level until they fit, none below its count. A page with such a busy line
/// ends near its exact count, and the other pages keep their estimates.
pub(super) struct PageScales {
    /// All lines divided by sampled lines.
    scale: f64,
    /// Factor for a thread (by number in the journal) on a page whose estimate was lowered.
    lowered: HashMap<(u32, u64), f64>,
}

impl PageScales {
    /// The estimates for one journal; `None` where all lines were recorded.
    pub(super) fn of(space: &Space) -> Option<Self> {
        if space.line_share_ppm >= MILLION {
            return None;
        }
        let scale = f64::from(MILLION) / f64::from(space.line_share_ppm);
        let mut counted: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
        for record in &space.records {
            if let Record::Pages { thread, cells, .. } = record {
                let pages = counted.entry(*thread).or_default();
                for &(page, reads, writes) in cells {
                    *pages.entry(page).or_default() += reads + writes;
                }
            }
        }
        let mut lowered = HashMap::new();
        for (thread, pages) in counted {
            let accesses = space.totals.get(&thread).map_or(0, |t| t.accesses);
            let counts: Vec<u64> = pages.values().copied().collect();
            let Some(level) = level(&counts, scale, accesses) else {
                continue;
            };
            for (page, count) in pages {
                let count = count as f64;
                if count * scale > level {
                    lowered.insert((thread, page), count.max(level) / count);
                }
            }
        }
        Some(Self { scale, lowered })
    }

    /// The estimate for an amount counted by a thread on a page.
    pub(super) fn estimate(&self, thread: u32, page: u64, amount: u64) -> u64 {
        let factor = self.lowered.get(&(thread, page)).unwrap_or(&self.scale);
        (amount as f64 * factor).round() as u64
    }
}

/// The level to which the estimates `count * scale` are lowered, none below its count, so that they add up to `total`;
/// `None` if they do not exceed it.
fn level(counts: &[u64], scale: f64, total: u64) -> Option<f64> {
    let total = total as f64;
    let sum = |level: f64| -> f64 {
        let estimates = counts.iter().map(|&count| count as f64);
        estimates
            .map(|count| (count * scale).min(level).max(count))
            .sum()
    };
    if sum(f64::INFINITY) <= total {
        return None;
    }
    let (mut low, mut high) = (0.0f64, total);
    // Half an access is close enough; beyond 2^53 numbers are no finer.
    while high - low > 0.5 && low < (low + high) / 2.0 && (low + high) / 2.0 < high {
        let middle = (low + high) / 2.0;
        if sum(middle) <= total {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_that_fit_are_unchanged() {
        assert_eq!(level(&[5, 3, 2], 20.0, 200), None);
        assert_eq!(level(&[], 20.0, 0), None);
    }

    #[test]
    fn a_page_with_a_busy_line_gets_what_the_others_leave() {
        // 1,050 accesses, 250 of them to a sampled line; the others to ten pages of which a twentieth was sampled.
        let counts: Vec<u64> = [250].into_iter().chain([4; 10]).collect();
        let level = level(&counts, 20.0, 1050).unwrap();
        assert!((level - 250.0).abs() < 1.0, "{level}");
        // Two busy pages, and twenty with 40 accesses each.
        let counts: Vec<u64> = [200, 150].into_iter().chain([2; 20]).collect();
        let level = super::level(&counts, 20.0, 1160).unwrap();
        assert!((level - 160.0).abs() < 1.0, "{level}");
    }

    #[test]
    fn no_estimate_falls_below_its_count() {
        // More counts than accesses (a damaged journal): counts remain.
        let level = level(&[30, 20], 20.0, 10).unwrap();
        assert!(level < 1.0, "{level}");
    }
}
