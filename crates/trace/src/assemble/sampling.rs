//! How far amounts that were sampled may be off, and what a profile says about it.

use std::collections::{BTreeMap, HashMap};

use numaloc_model::Layer;
use numaloc_model::ids::ThreadIdx;
use numaloc_model::profile::{CellError, Thread};

use super::Assembly;
use super::load::MILLION;
use crate::errors;
use crate::journal::Record;
use crate::watch::GROUPS;

impl Assembly<'_> {
    /// Relative errors of the cells of whole-run matrices, where only bursts were watched.
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
        // Bursts of each reader's lifetime, listed once.
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

    /// The same where a part of the lines was watched.
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
                share = f64::from(space.lines) / f64::from(MILLION);
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

    /// Share of the accesses that were looked at.
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
        let lines = self.spaces.iter().map(|space| space.lines).min();
        let bursts = self.spaces.iter().any(|space| space.bursts.is_some());
        let lines = lines.filter(|&lines| lines < MILLION);
        if bursts || lines.is_some() {
            self.meta.sampled = self.sampled();
        }
        if let Some(lines) = lines {
            self.meta.notes.push(format!(
                "sampled by lines: {:.2} % of the cache lines were watched, with {:.2} % of the accesses; communication, bytes and \
                 page counts are estimates scaled by that share of lines (numbers of accesses are exact), errors of matrix cells are in \
                 cell_errors; pages with no line watched are missing, and first touch is that of a watched line",
                f64::from(lines) / f64::from(MILLION) * 100.0,
                self.meta.sampled * 100.0
            ));
        }
        if !bursts {
            return;
        }
        self.meta.notes.push(format!(
            "sampled in bursts: {:.2} % of the accesses were looked at; counts are estimates scaled to all accesses of their thread \
             (numbers of accesses are exact), errors of matrix cells are in cell_errors; pages that no burst met are missing, \
             first touch is the first seen, and communication whose write and read lie further apart than a burst is underestimated, by up \
             to half where it repeats",
            self.meta.sampled * 100.0
        ));
    }
}
