//! The phases of a run, and what its threads do in each.

use std::collections::HashMap;
use std::ops::Range;

use numaloc_analysis::beyond_caches::{PRIVATE_CACHE, beyond_private_caches};
use numaloc_analysis::communication;
use numaloc_analysis::concurrency_groups;
use numaloc_analysis::load::{access_phases, smoothed};
use numaloc_analysis::pattern_phases::{PatternRule, message_window, pattern_phases};
use numaloc_analysis::phases::{PhaseRule, phases};
use numaloc_analysis::timeline::timeline;
use numaloc_model::pages::{Page, PageHead, PageUsage, ThreadAccess};
use numaloc_model::profile::{Amount, Clock, PageSliceRow};
use numaloc_model::{CommError, CommMatrix, Layer, Profile, SliceIdx, ThreadIdx};
use numaloc_topology::Topology;

use super::options::{Detector, Dynamics};

/// Slices of an access phase at least (CMLB III-A).
const LOAD_SLICES: usize = 100;

/// A phase of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its slices.
    pub slices: Range<usize>,
    /// Its start, in seconds since that of the run.
    pub start_s: f64,
    /// Its length in seconds.
    pub length_s: f64,
    /// `C_H` of its communication, 0..=2500.
    pub heterogeneity: f64,
    /// Events per cell and second: `C_A` divided by its length.
    pub events_per_s: f64,
    /// Its communication (threads x threads), in the unit of the layer's weights.
    pub weights: CommMatrix,
    /// The same in cache lines.
    pub lines: CommMatrix,
    /// The accesses that leave private caches in it, by page and thread; empty if page use by slice is not known.
    pub usage: PageUsage,
    /// For each page of `usage` its index in the profile.
    pub page: Vec<u32>,
}

/// The ranges of slices that a detector finds: they cover the run, in order.
#[must_use]
pub fn detected(profile: &Profile, layer: Layer, dynamics: &Dynamics) -> Vec<Range<usize>> {
    let slices = profile.slices().len();
    let usual = PhaseRule::for_slices(slices).window;
    match dynamics.detector {
        Detector::Pattern => {
            let (layers, window): (&[Layer], usize) = match layer.is_message() {
                true => (&[Layer::Message, Layer::Collective], message_window(slices)),
                false => (&[layer], usual.max(2)),
            };
            let rule = PatternRule {
                layers,
                window: dynamics.window.unwrap_or(window).max(1),
                by_chance: !layer.is_message(),
            };
            pattern_phases(profile, rule)
        }
        Detector::Heterogeneity => phases(
            &timeline(profile, layer).heterogeneity,
            PhaseRule {
                window: dynamics.window.unwrap_or(usual).max(1),
                least_difference: dynamics.least_difference,
            },
        ),
        Detector::Load => {
            let mut load = vec![0.0; slices];
            for row in profile.accesses_by_slice() {
                if let Some(sum) = load.get_mut(row.slice.index()) {
                    *sum += row.accesses as f64;
                }
            }
            let least = dynamics
                .window
                .unwrap_or(LOAD_SLICES.min(slices / 8))
                .max(1);
            access_phases(&smoothed(&load), least)
        }
        Detector::Clusters => {
            let found = concurrency_groups(profile, layer);
            let starts = found.clusters.iter().skip(1).map(|c| c.first.index());
            let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
            let ends = starts[1..].iter().copied().chain([slices]);
            let ranges = starts.iter().copied().zip(ends);
            ranges.map(|(start, end)| start..end).collect()
        }
    }
}

/// What the threads of `profile` do in each of `ranges` of its slices. `machine` gives the size of a private cache.
///
/// # Errors
/// [`CommError::OutOfRange`] if a row names a thread that the profile does not have.
pub fn observed(
    profile: &Profile,
    layer: Layer,
    ranges: &[Range<usize>],
    machine: &Topology,
    dynamics: &Dynamics,
) -> Result<Vec<Phase>, CommError> {
    let per_s = match profile.meta().clock {
        Clock::Wall => 1e9,
        Clock::Virtual => dynamics.accesses_per_s,
    };
    let threads = profile.threads().len();
    let line = profile.meta().line_size.max(1);
    let caches = machine
        .hardware()
        .map_or(&[][..], |hardware| &hardware.caches);
    let private = caches.iter().find(|cache| cache.level == 2);
    let cache_bytes = private.map_or(PRIVATE_CACHE, |cache| cache.size_bytes);
    let at = |slice: usize| profile.slices().get(slice);
    let mut found = Vec::new();
    for slices in ranges.iter().filter(|slices| !slices.is_empty()) {
        let (Some(first), Some(last)) = (at(slices.start), at(slices.end - 1)) else {
            continue;
        };
        let range = slices.start as u32..slices.end as u32;
        let of = |amount| profile.matrix_of_slices(layer, amount, range.clone());
        let (events, weights) = (of(Amount::Events)?, of(Amount::of_layer(layer))?);
        let lines = match Amount::of_layer(layer) {
            Amount::Events => weights.clone(),
            Amount::Bytes => {
                let cells = weights
                    .cells()
                    .map(|(a, b, bytes)| (a, b, bytes / line as f64));
                CommMatrix::from_cells(threads, cells)?
            }
        };
        let length_s = (last.end - first.start) as f64 / per_s;
        let (usage, page, rows) = usage(profile, &range);
        found.push(Phase {
            slices: slices.clone(),
            start_s: first.start as f64 / per_s,
            length_s,
            heterogeneity: communication::heterogeneity(&weights, layer),
            events_per_s: communication::amount(&events, layer) / length_s.max(f64::MIN_POSITIVE),
            usage: beyond_private_caches(&usage, &rows, threads, cache_bytes, line),
            weights,
            lines,
            page,
        });
    }
    Ok(found)
}

/// The thread with most accesses to a page; of equal ones, the last.
pub(super) fn main_user(usage: &PageUsage, page: &Page) -> Option<ThreadIdx> {
    let accesses = usage.accesses(page).iter();
    let most = accesses.max_by_key(|access| access.total());
    most.map(|access| access.thread)
}

/// Page use in some slices: the accesses, with the whole run's share of stores, the index of each page in the profile,
/// and the rows by slice with indexes into the first.
fn usage(profile: &Profile, slices: &Range<u32>) -> (PageUsage, Vec<u32>, Vec<PageSliceRow>) {
    let rows = profile.page_slices();
    let from = rows.partition_point(|row| row.slice < SliceIdx(slices.start));
    let to = rows.partition_point(|row| row.slice < SliceIdx(slices.end));
    let mut rows = rows[from..to].to_vec();
    let mut cells: Vec<(u32, ThreadAccess)> = rows
        .iter()
        .map(|row| {
            let access = ThreadAccess {
                thread: row.thread,
                reads: row.accesses,
                writes: 0,
            };
            (row.page, access)
        })
        .collect();
    cells.sort_by_key(|(page, access)| (*page, access.thread));
    let whole = profile.pages();
    let mut usage = PageUsage::new(whole.page_size());
    let (mut pages, mut index) = (Vec::new(), HashMap::new());
    for same in cells.chunk_by(|a, b| a.0 == b.0) {
        let number = same[0].0;
        let Some(page) = whole.pages().get(number as usize) else {
            continue;
        };
        let head: PageHead = page.head();
        let mut uses: Vec<ThreadAccess> = Vec::new();
        for (_, access) in same {
            match uses.last_mut() {
                Some(last) if last.thread == access.thread => last.reads += access.reads,
                _ => uses.push(*access),
            }
        }
        for access in &mut uses {
            let mut of_run = whole.accesses(page).iter();
            if let Some(run) = of_run.find(|run| run.thread == access.thread) {
                let share = run.writes as f64 / run.total().max(1) as f64;
                access.writes = ((access.reads as f64 * share).round() as u64).min(access.reads);
                access.reads -= access.writes;
            }
        }
        index.insert(number, pages.len() as u32);
        pages.push(number);
        usage.push(head, uses);
    }
    rows.retain(|row| index.contains_key(&row.page));
    for row in &mut rows {
        row.page = index[&row.page];
    }
    (usage, pages, rows)
}
