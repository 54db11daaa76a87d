//! The lines of the source that concern memory with a name, from the sample of the profile's code sites.
//!
//! A sample does not say when it was taken. The place where a thread initialises it is the one where it alone
//! stores: lines where others store as well belong to the use.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::profile::Profile;
use numaloc_model::{CodePlace, Named, SiteKind, SiteRow, ThreadIdx};

/// Share of a place's accesses that is by one thread if it is the only one to run it.
const ALONE: f64 = 0.9;

/// A place that uses memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The place.
    pub place: CodePlace,
    /// Whether it stores; otherwise it loads.
    pub stores: bool,
    /// Accesses for which its samples stand.
    pub accesses: u64,
    /// Number of threads.
    pub threads: usize,
}

/// Accesses of one place, by thread.
fn by_place<'p>(
    rows: impl IntoIterator<Item = &'p SiteRow>,
) -> BTreeMap<(&'p CodePlace, bool), BTreeMap<ThreadIdx, u64>> {
    let mut places: BTreeMap<(&CodePlace, bool), BTreeMap<ThreadIdx, u64>> = BTreeMap::new();
    for row in rows {
        if row.kind != SiteKind::Communication && row.here.is_known() {
            let threads = places
                .entry((&row.here, row.kind == SiteKind::Store))
                .or_default();
            *threads.entry(row.thread).or_default() += row.amount;
        }
    }
    places
}

/// Rows of the sample by what they concern.
pub(crate) fn by_memory(profile: &Profile) -> BTreeMap<Named, Vec<&SiteRow>> {
    let mut rows: BTreeMap<Named, Vec<&SiteRow>> = BTreeMap::new();
    for row in profile.sites() {
        if let Some(memory) = profile.named_at(row) {
            rows.entry(memory).or_default().push(row);
        }
    }
    rows
}

/// Where `first` initialises memory with these rows: the place with most stores among those where it is alone;
/// `None` if unknown.
pub(crate) fn beginning(rows: &[&SiteRow], first: ThreadIdx) -> Option<CodePlace> {
    let places = by_place(rows.iter().copied());
    let mut most: Option<(u64, &CodePlace)> = None;
    for ((place, stores), threads) in places {
        let own = threads.get(&first).copied().unwrap_or(0);
        let all: u64 = threads.values().sum();
        let is_alone = own > 0 && own as f64 >= ALONE * all as f64;
        if stores && is_alone && most.is_none_or(|(stored, _)| own > stored) {
            most = Some((own, place));
        }
    }
    most.map(|(_, place)| place.clone())
}

/// The places that use the memory, most accesses first, without those at which it begins.
#[must_use]
pub fn uses(profile: &Profile, memory: &[Named], beginnings: &[CodePlace]) -> Vec<Use> {
    let memory: BTreeSet<Named> = memory.iter().copied().collect();
    let meant = |row: &&SiteRow| {
        let named = profile.named_at(row);
        named.is_some_and(|named| memory.contains(&named))
    };
    let places = by_place(profile.sites().iter().filter(meant));
    let of_use = |((place, stores), threads): ((&CodePlace, bool), BTreeMap<ThreadIdx, u64>)| Use {
        place: place.clone(),
        stores,
        accesses: threads.values().sum(),
        threads: threads.len(),
    };
    let others = places
        .into_iter()
        .filter(|((place, _), _)| !beginnings.contains(place));
    let mut uses: Vec<Use> = others.map(of_use).collect();
    uses.sort_by(|a, b| {
        b.accesses
            .cmp(&a.accesses)
            .then_with(|| a.place.cmp(&b.place))
    });
    uses
}
