//! Code sites: which lines of the program communicate, and which access memory that another thread touched first.
//!
//! Sums the sample of [`Profile::sites`] over threads. Accesses to pages that another thread touched first are remote
//! when the two threads are on different nodes and pages stay where first touch puts them.
//!
//! Cost: O(rows log rows).

use std::collections::BTreeMap;

use numaloc_model::profile::Profile;
use numaloc_model::{CodePlace, Named, SiteKind, ThreadIdx};

/// A place that writes and a place that reads what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Where the data is written; unknown if the writer's store was not kept.
    pub write: CodePlace,
    /// Where it is read.
    pub read: CodePlace,
    /// The memory with most of the events.
    pub memory: Option<Named>,
    /// Number of sampled events.
    pub samples: u64,
    /// Events for which they stand.
    pub events: u64,
    /// Number of pairs of threads.
    pub pairs: usize,
    /// The writer and reader with most of the events.
    pub most: Option<(ThreadIdx, ThreadIdx)>,
}

/// A place that loads or stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The place.
    pub place: CodePlace,
    /// Whether it stores.
    pub stores: bool,
    /// The memory with most of the accesses to pages of others, otherwise with most accesses.
    pub memory: Option<Named>,
    /// Number of sampled accesses.
    pub samples: u64,
    /// Accesses for which they stand.
    pub accesses: u64,
    /// Those to pages that another thread touched first.
    pub to_others: u64,
    /// The thread with most of these and the first toucher of their pages.
    pub most: Option<(ThreadIdx, ThreadIdx)>,
}

/// The code sites of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeSites {
    /// Most events first.
    pub exchanges: Vec<Exchange>,
    /// Most accesses to pages of others first, then most accesses.
    pub accesses: Vec<Access>,
}

/// `sweep (stencil.c:57)`, `sweep`, or `unknown code`.
#[must_use]
pub fn place_label(place: &CodePlace) -> String {
    match (&place.function, &place.source) {
        (Some(function), Some(source)) => format!("{function} ({source})"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "unknown code".to_owned(),
    }
}

/// As in a sentence: `sweep() stencil.c:57`.
fn place_words(place: &CodePlace) -> String {
    match (&place.function, &place.source) {
        (Some(function), Some(source)) => format!("{function}() {source}"),
        (Some(function), None) => format!("{function}()"),
        (None, Some(source)) => source.clone(),
        (None, None) => "unknown code".to_owned(),
    }
}

/// Amounts by key; the largest, of equals the first.
struct Amounts<K>(BTreeMap<K, u64>);

impl<K: Ord + Copy> Amounts<K> {
    fn add(&mut self, key: K, amount: u64) {
        *self.0.entry(key).or_default() += amount;
    }

    fn most(&self) -> Option<K> {
        let of = |(&key, &amount): (&K, &u64)| (amount, std::cmp::Reverse(key));
        let found = self.0.iter().map(of).max();
        found.filter(|found| found.0 > 0).map(|found| found.1.0)
    }
}

/// Sums of rows with the same places.
struct Sum {
    samples: u64,
    amount: u64,
    to_others: u64,
    memory: Amounts<Option<Named>>,
    memory_of_others: Amounts<Option<Named>>,
    pairs: Amounts<(ThreadIdx, ThreadIdx)>,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            samples: 0,
            amount: 0,
            to_others: 0,
            memory: Amounts(BTreeMap::new()),
            memory_of_others: Amounts(BTreeMap::new()),
            pairs: Amounts(BTreeMap::new()),
        }
    }
}

/// Sums a run's code sites.
#[must_use]
pub fn code_sites(profile: &Profile) -> CodeSites {
    let mut sums: BTreeMap<(SiteKind, &CodePlace, &CodePlace), Sum> = BTreeMap::new();
    for row in profile.sites() {
        let sum = sums.entry((row.kind, &row.here, &row.there)).or_default();
        sum.samples += row.samples;
        sum.amount += row.amount;
        let named = profile.named_at(row);
        sum.memory.add(named, row.amount);
        if let Some(other) = row.other.filter(|&other| other != row.thread) {
            sum.to_others += row.amount;
            sum.memory_of_others.add(named, row.amount);
            sum.pairs.add((other, row.thread), row.amount);
        }
    }
    let mut found = CodeSites::default();
    for ((kind, here, there), sum) in sums {
        if kind == SiteKind::Communication {
            found.exchanges.push(Exchange {
                write: there.clone(),
                read: here.clone(),
                memory: sum.memory.most().flatten(),
                samples: sum.samples,
                events: sum.amount,
                pairs: sum.pairs.0.len(),
                most: sum.pairs.most(),
            });
        } else {
            let memory = sum.memory_of_others.most().or(sum.memory.most());
            found.accesses.push(Access {
                place: here.clone(),
                stores: kind == SiteKind::Store,
                memory: memory.flatten(),
                samples: sum.samples,
                accesses: sum.amount,
                to_others: sum.to_others,
                most: sum.pairs.most().map(|(toucher, user)| (user, toucher)),
            });
        }
    }
    // Stable: of equals, the first by place.
    let by_events = |one: &Exchange| std::cmp::Reverse(one.events);
    found.exchanges.sort_by_key(by_events);
    let by_accesses = |one: &Access| std::cmp::Reverse((one.to_others, one.accesses));
    found.accesses.sort_by_key(by_accesses);
    found
}

impl CodeSites {
    /// Whether nothing was sampled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty() && self.accesses.is_empty()
    }

    /// Where most communication takes place, in a clause; `None` if no place is known.
    #[must_use]
    pub fn exchange_sentence(&self) -> Option<String> {
        let all: u64 = self.exchanges.iter().map(|one| one.events).sum();
        let known = |one: &&Exchange| one.read.is_known();
        let most = self.exchanges.iter().find(known)?;
        let (writer, reader) = most.most?;
        Some(format!(
            "most events ({} %): write in {} by T{}, read in {} by T{}",
            percent(most.events, all),
            place_words(&most.write),
            writer.0,
            place_words(&most.read),
            reader.0
        ))
    }

    /// Where most accesses to pages of others are made, in a clause; `None` if no place is known.
    #[must_use]
    pub fn access_sentence(&self) -> Option<String> {
        let all: u64 = self.accesses.iter().map(|one| one.to_others).sum();
        let known = |one: &&Access| one.place.is_known() && one.to_others > 0;
        let most = self.accesses.iter().find(known)?;
        let (user, toucher) = most.most?;
        let what = if most.stores { "store" } else { "load" };
        Some(format!(
            "most accesses to pages first touched by another thread ({} %): {what} in {} by T{}, pages of T{}",
            percent(most.to_others, all),
            place_words(&most.place),
            user.0,
            toucher.0
        ))
    }
}

/// A share in whole percent, rounded.
fn percent(part: u64, all: u64) -> u64 {
    let (part, all) = (u128::from(part), u128::from(all.max(1)));
    ((part * 200 + all) / (2 * all)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use numaloc_model::SiteRow;

    fn at(line: u32) -> CodePlace {
        CodePlace {
            function: Some("sweep".into()),
            source: Some(format!("grid.c:{line}")),
        }
    }

    fn row(kind: SiteKind, thread: u32, other: u32, lines: (u32, u32), amount: u64) -> SiteRow {
        SiteRow {
            variable: None,
            kind,
            thread: ThreadIdx(thread),
            other: Some(ThreadIdx(other)),
            object: None,
            here: at(lines.0),
            there: match kind {
                SiteKind::Communication => at(lines.1),
                _ => CodePlace::default(),
            },
            samples: 1,
            amount,
        }
    }

    fn found(rows: Vec<SiteRow>) -> CodeSites {
        let mut tables = profile_of(3, 1, &[(0, 0, 1, 100)]).into_builder();
        tables.sites = rows;
        code_sites(&tables.build().unwrap())
    }

    #[test]
    fn places_are_summed_over_threads_and_named_in_a_sentence() {
        use SiteKind::{Communication, Load, Store};
        let sites = found(vec![
            row(Communication, 1, 0, (55, 57), 40),
            row(Communication, 2, 1, (55, 57), 50),
            row(Communication, 0, 2, (60, 57), 10),
            row(Load, 1, 0, (55, 0), 30),
            row(Load, 1, 1, (55, 0), 500),
            row(Store, 2, 0, (57, 0), 10),
        ]);
        let first = &sites.exchanges[0];
        assert_eq!((first.events, first.pairs, first.samples), (90, 2, 2));
        assert_eq!(first.most, Some((ThreadIdx(1), ThreadIdx(2))));
        assert_eq!(
            sites.exchange_sentence().unwrap(),
            "most events (90 %): write in sweep() grid.c:57 by T1, read in sweep() grid.c:55 by T2"
        );
        let loads = &sites.accesses[0];
        assert_eq!((loads.accesses, loads.to_others), (530, 30));
        assert_eq!(
            sites.access_sentence().unwrap(),
            "most accesses to pages first touched by another thread (75 %): load in sweep() grid.c:55 by T1, pages of T0"
        );
        assert_eq!(place_label(&at(7)), "sweep (grid.c:7)");
    }

    #[test]
    fn unknown_places_make_no_sentence() {
        let mut unknown = row(SiteKind::Communication, 1, 0, (5, 6), 1);
        unknown.here = CodePlace::default();
        let sites = found(vec![unknown]);
        assert_eq!(sites.exchange_sentence(), None);
        assert_eq!(sites.access_sentence(), None);
        assert!(!sites.is_empty() && found(Vec::new()).is_empty());
        assert_eq!(place_label(&CodePlace::default()), "unknown code");
    }

    #[test]
    fn shares_are_rounded() {
        assert_eq!([percent(1, 3), percent(2, 3), percent(0, 0)], [33, 67, 0]);
    }
}
