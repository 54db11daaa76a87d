//! The best set of changes: each alone, then the set that grows by the best next one.

use crate::change::Change;

/// Largest number of changes in a set.
pub const MOST: usize = 5;
/// A change is worth its effort if it saves more than this share of what is left.
pub const WORTHWHILE: f64 = 0.02;

/// A set of changes and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Rated {
    /// In the order in which they were found.
    pub changes: Vec<Change>,
    /// Of the run with them.
    pub seconds: f64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The run as it is.
    pub as_it_is: f64,
    /// Each change alone, the fastest first; of equals in the given order.
    pub alone: Vec<Rated>,
    /// The sets that grew by one change each, from the first: every one is faster than the one before by more than
    /// [`WORTHWHILE`]. Empty if no change is worth it.
    pub sets: Vec<Rated>,
}

/// A change of the best set, on top of those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// Seconds of the run before it.
    pub before: f64,
    /// Seconds after it.
    pub after: f64,
}

impl Found {
    /// The changes of the best set, in the order in which they were found, of a run that takes `as_it_is` seconds.
    #[must_use]
    pub fn steps(&self, as_it_is: f64) -> Vec<Step> {
        let mut before = as_it_is;
        let step = |set: &Rated| {
            let after = set.seconds;
            let before = std::mem::replace(&mut before, after);
            set.changes.last().map(|&change| Step {
                change,
                before,
                after,
            })
        };
        self.sets.iter().filter_map(step).collect()
    }
}

/// Searches among `changes`; `rate` has the seconds of each of several sets. Of equally fast changes the first is
/// taken.
///
/// Cost: at most `MOST` times as many ratings as changes.
///
/// # Errors
/// Those of `rate`.
pub fn search<E>(
    changes: &[Change],
    mut rate: impl FnMut(&[Vec<Change>]) -> Result<Vec<f64>, E>,
) -> Result<Found, E> {
    let mut tried: Vec<Vec<Change>> = vec![Vec::new()];
    tried.extend(changes.iter().map(|&change| vec![change]));
    let seconds = rate(&tried)?;
    let as_it_is = seconds[0];
    let rated = |(changes, seconds): (Vec<Change>, f64)| Rated { changes, seconds };
    let mut alone: Vec<Rated> = tried.into_iter().zip(seconds).skip(1).map(rated).collect();
    alone.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut sets: Vec<Rated> = Vec::new();
    let mut best = alone.first().cloned();
    let mut now = as_it_is;
    while let Some(next) = best
        .take()
        .filter(|next| next.seconds < now * (1.0 - WORTHWHILE))
    {
        now = next.seconds;
        let made = next.changes.clone();
        sets.push(next);
        if made.len() == MOST {
            break;
        }
        let fits = |change: &&Change| !made.iter().any(|other| other.excludes(**change));
        let larger = |&change: &Change| [&made[..], &[change]].concat();
        let tried: Vec<Vec<Change>> = changes.iter().filter(fits).map(larger).collect();
        let seconds = rate(&tried)?;
        best = tried
            .into_iter()
            .zip(seconds)
            .map(rated)
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }
    Ok(Found {
        as_it_is,
        alone,
        sets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each change saves a share, if it can be made.
    fn found(saves: &[(Change, f64)]) -> Found {
        let changes: Vec<Change> = saves.iter().map(|(change, _)| *change).collect();
        let of = |set: &Vec<Change>| {
            let saved = |change: &Change| {
                saves
                    .iter()
                    .find(|(other, _)| other == change)
                    .map_or(0.0, |(_, s)| *s)
            };
            100.0 - set.iter().map(saved).sum::<f64>()
        };
        search(&changes, |sets| Ok::<_, ()>(sets.iter().map(of).collect())).unwrap()
    }

    #[test]
    fn sets_grow_while_that_is_worth_it() {
        let changes = [
            (Change::Bind(0), 5.0),
            (Change::TouchByUsers(0), 50.0),
            (Change::Replicate(0), 40.0),
            (Change::Batch(0), 0.5),
            (Change::PlacePages, 45.0),
        ];
        let found = found(&changes);
        assert_eq!(found.as_it_is, 100.0);
        assert_eq!(found.alone[0].changes, [Change::TouchByUsers(0)]);
        let sets: Vec<_> = found
            .sets
            .iter()
            .map(|set| (&set.changes[..], set.seconds))
            .collect();
        assert_eq!(
            sets,
            [
                (&[Change::TouchByUsers(0)][..], 50.0),
                (&[Change::TouchByUsers(0), Change::Bind(0)][..], 45.0),
            ]
        );
    }

    #[test]
    fn what_saves_nothing_is_not_proposed() {
        let found = found(&[(Change::Bind(0), 1.9), (Change::InterleaveAll, -30.0)]);
        assert_eq!(found.sets, []);
        assert_eq!(found.alone[1].seconds, 130.0);
    }
}
