//! Launchers of the Hydra family, kernel numbers: MPICH's `-hosts` and `-bind-to user:`, Intel MPI's `-hosts` and pin
//! list.
//!
//! One binding list serves every host, and it begins again at each mention of a host: the k-th rank of a mention takes
//! the k-th entry. MPICH goes through its hosts again and again, without beginning the list again, so ranks that are
//! dealt to hosts alternately are one mention of each. Other plans whose hosts are mentioned several times, and
//! different lists per host, cannot be expressed; the [per-rank wrapper](super::wrapper) does the binding then.

use std::collections::BTreeSet;

use crate::rank_map::{RankMap, RankPlace};

/// MPICH's options; `None` if no single list gives every rank its PUs.
#[must_use]
pub fn options(map: &RankMap) -> Option<Vec<String>> {
    let mentions = mentions(map);
    let alternating = period(&mentions).and_then(|period| {
        let lists: Vec<_> = map.by_host().into_iter().map(|(_, ranks)| ranks).collect();
        Some((period, longest(map, &lists)?))
    });
    let (mentioned, longest) = match alternating {
        Some(found) => found,
        None => (mentions.len(), longest(map, &ranks_of(&mentions))?),
    };
    let mut options = hosts(map, &mentions[..mentioned]);
    let entries = longest.iter().map(|place| list(place, "+"));
    let entries: Vec<String> = entries.collect();
    options.extend(["-bind-to".to_owned(), format!("user:{}", entries.join(","))]);
    Some(options)
}

/// Intel MPI's options; `None` if no single list gives every rank its PUs. Its launcher ignores `-bind-to`.
#[must_use]
pub fn intel_options(map: &RankMap) -> Option<Vec<String>> {
    let mentions = mentions(map);
    let longest = longest(map, &ranks_of(&mentions))?;
    let mut options = hosts(map, &mentions);
    let is_hybrid = longest.iter().any(|place| place.distinct_pus().len() > 1);
    let (variable, value) = if is_hybrid {
        let masks = longest.iter().map(|place| {
            let pus = place.distinct_pus();
            super::slurm::mask(pus.iter().map(|pu| pu.os))
        });
        let masks: Vec<String> = masks.collect();
        ("I_MPI_PIN_DOMAIN", format!("[{}]", masks.join(",")))
    } else {
        let entries: Vec<String> = longest.iter().map(|place| list(place, "+")).collect();
        ("I_MPI_PIN_PROCESSOR_LIST", entries.join(","))
    };
    options.extend(["-genv", "I_MPI_PIN", "1", "-genv", variable].map(str::to_owned));
    options.push(value);
    Some(options)
}

/// Consecutive ranks of one host: its name, the first rank, their number.
type Mention<'a> = (&'a str, u32, u32);

fn mentions(map: &RankMap) -> Vec<Mention<'_>> {
    let mut mentions: Vec<Mention> = Vec::new();
    for (rank, place) in (0..).zip(&map.places) {
        match mentions.last_mut() {
            Some((host, _, count)) if *host == place.host => *count += 1,
            _ => mentions.push((&place.host, rank, 1)),
        }
    }
    mentions
}

/// The number of mentions, each of another host, that repeated give all of them; the last may have fewer ranks.
fn period(mentions: &[Mention]) -> Option<usize> {
    let mut seen = BTreeSet::new();
    let period = mentions
        .iter()
        .take_while(|(host, ..)| seen.insert(*host))
        .count();
    let last = mentions.len().checked_sub(1)?;
    let repeats = mentions.iter().enumerate().all(|(at, &(host, _, count))| {
        let (first, _, room) = mentions[at % period];
        host == first && (count == room || at == last && count < room)
    });
    repeats.then_some(period)
}

fn ranks_of(mentions: &[Mention]) -> Vec<Vec<u32>> {
    let ranks = mentions
        .iter()
        .map(|&(_, first, count)| (first..first + count).collect());
    ranks.collect()
}

/// The longest of the lists of ranks, if all others begin as it does.
fn longest<'a>(map: &'a RankMap, lists: &[Vec<u32>]) -> Option<Vec<&'a RankPlace>> {
    let place = |rank: &u32| &map.places[*rank as usize];
    let longest = lists.iter().max_by_key(|list| list.len())?;
    let same = |(a, b): (&u32, &u32)| list(place(a), "+") == list(place(b), "+");
    let fits = lists.iter().all(|list| list.iter().zip(longest).all(same));
    fits.then(|| longest.iter().map(place).collect())
}

/// The kernel's numbers of a rank's PUs.
fn list(place: &RankPlace, separator: &str) -> String {
    let pus = place.distinct_pus();
    let numbers: Vec<String> = pus.iter().map(|pu| pu.os.to_string()).collect();
    numbers.join(separator)
}

/// The mentioned hosts with their numbers of ranks; empty on a machine that is no cluster.
fn hosts(map: &RankMap, mentions: &[Mention]) -> Vec<String> {
    if map.places.iter().all(|place| place.host == "localhost") {
        return Vec::new();
    }
    let list = mentions
        .iter()
        .map(|(host, _, count)| format!("{host}:{count}"));
    vec!["-hosts".to_owned(), list.collect::<Vec<_>>().join(",")]
}
