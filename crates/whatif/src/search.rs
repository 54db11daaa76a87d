//! The best set of changes: each alone, then the set that grows by the best next one, or by the best that help only
//! together; what later changes make superfluous is left out.

use std::cmp::Ordering;

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
    /// Whether its last change saves time only together with that of the next set.
    pub needs_next: bool,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The run as it is.
    pub as_it_is: f64,
    /// Each change alone, the fastest first; of equals in the given order.
    pub alone: Vec<Rated>,
    /// The sets that grew by one change each, from the first: every one is faster than the one before by more than
    /// [`WORTHWHILE`], or [needs the next](Rated::needs_next). Empty if no change is worth it.
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
    /// Whether it saves time only together with the next one.
    pub needs_next: bool,
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
                needs_next: set.needs_next,
            })
        };
        self.sets.iter().filter_map(step).collect()
    }
}

/// Searches among `changes`; `rate` has the seconds of each of several sets. Of equally fast changes the first is
/// taken. Where no further change is worth it alone, two are tried together, and then one for each contended memory:
/// the run waits for the line that moves most, so that only all of them may help.
///
/// Cost: for each change of the best set at most one rating for each change, and once more for each of [`together`].
///
/// # Errors
/// Those of `rate`.
pub fn search<E>(
    changes: &[Change],
    mut rate: impl FnMut(&[Vec<Change>]) -> Result<Vec<f64>, E>,
) -> Result<Found, E> {
    let mut rated = |sets: Vec<Vec<Change>>| -> Result<Vec<Rated>, E> {
        let seconds = rate(&sets)?;
        let rated = |(changes, seconds)| Rated {
            changes,
            seconds,
            needs_next: false,
        };
        Ok(sets.into_iter().zip(seconds).map(rated).collect())
    };
    let first = changes.iter().map(|&change| vec![change]);
    let mut alone = rated(std::iter::once(Vec::new()).chain(first).collect())?;
    let as_it_is = alone.remove(0).seconds;
    alone.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut singles = alone.clone();
    let mut sets: Vec<Rated> = Vec::new();
    let mut now = as_it_is;
    loop {
        let made = sets.last().map_or(Vec::new(), |set| set.changes.clone());
        let larger = |more: &[Change]| [&made[..], more].concat();
        let saves = |set: &&Rated| set.seconds < now * (1.0 - WORTHWHILE);
        let next = match singles.first().filter(saves) {
            Some(next) => vec![next.clone()],
            None => {
                let added = |set: &Rated| set.changes.last().copied();
                let fastest_first: Vec<Change> = singles.iter().filter_map(added).collect();
                let joint = together(&fastest_first, MOST - made.len());
                let joint = rated(joint.iter().map(|more| larger(more)).collect())?;
                let Some(best) = smallest(joint.iter().filter(saves)) else {
                    break;
                };
                let steps = made.len() + 1..best.changes.len();
                let mut steps = rated(steps.map(|len| best.changes[..len].to_vec()).collect())?;
                steps.push(best.clone());
                steps
            }
        };
        sets.extend(next);
        let Some(set) = sets.last().filter(|set| set.changes.len() < MOST) else {
            break;
        };
        now = set.seconds;
        let fits = |change: &&Change| !set.changes.iter().any(|made| made.excludes(**change));
        let grown = |&change: &Change| [&set.changes[..], &[change]].concat();
        singles = rated(changes.iter().filter(fits).map(grown).collect())?;
        singles.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }
    if let Some(best) = sets.last().cloned() {
        let needed = needed(best, &mut rated)?.changes;
        if needed.len() < sets.len() {
            let steps = 1..=needed.len();
            sets = rated(steps.map(|len| needed[..len].to_vec()).collect())?;
        }
    }
    mark(&mut sets, as_it_is);
    Ok(Found {
        as_it_is,
        alone,
        sets,
    })
}

/// The set without changes that save nothing any more together with later ones.
fn needed<E>(
    mut best: Rated,
    rated: &mut impl FnMut(Vec<Vec<Change>>) -> Result<Vec<Rated>, E>,
) -> Result<Rated, E> {
    while best.changes.len() > 1 {
        let without = |at: usize| {
            let others = best.changes.iter().enumerate();
            let others = others.filter(|(other, _)| *other != at);
            others.map(|(_, &change)| change).collect()
        };
        let fewer = rated((0..best.changes.len()).map(without).collect())?;
        let fastest = fewer
            .into_iter()
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        match fastest.filter(|set| set.seconds * (1.0 - WORTHWHILE) <= best.seconds) {
            Some(set) => best = set,
            None => break,
        }
    }
    Ok(best)
}

/// Marks the sets that save nothing compared with those before them: the next change makes them worth it.
fn mark(sets: &mut [Rated], as_it_is: f64) {
    let mut now = as_it_is;
    let last = sets.len().saturating_sub(1);
    for (at, set) in sets.iter_mut().enumerate() {
        let saves = set.seconds < now * (1.0 - WORTHWHILE);
        set.needs_next = !saves && at < last;
        if saves {
            now = set.seconds;
        }
    }
}

/// The fastest set; one with more changes must be worth them.
fn smallest<'a>(sets: impl Iterator<Item = &'a Rated>) -> Option<&'a Rated> {
    sets.reduce(|best, other| {
        let allowance = match other.changes.len().cmp(&best.changes.len()) {
            Ordering::Less => 1.0 / (1.0 - WORTHWHILE),
            Ordering::Equal => 1.0,
            Ordering::Greater => 1.0 - WORTHWHILE,
        };
        match other.seconds < best.seconds * allowance {
            true => other,
            false => best,
        }
    })
}

/// Largest number of changes that are tried in pairs.
const PAIRED: usize = 5;

/// Changes that may help only together, in sets of two to `most`: pairs of the fastest, pairs of changes of contended
/// memories, and one change for each of these memories.
fn together(fastest_first: &[Change], most: usize) -> Vec<Vec<Change>> {
    let (lines, others): (Vec<Change>, Vec<Change>) = fastest_first
        .iter()
        .partition(|change| change.lines().is_some());
    let mut sets = Vec::new();
    for of in [&lines[..], &others[..others.len().min(PAIRED)]] {
        for (at, &one) in of.iter().enumerate() {
            let other = of[at + 1..].iter().filter(|&&other| !one.excludes(other));
            sets.extend(other.map(|&other| vec![one, other]));
        }
    }
    let mut of_each: Vec<Change> = Vec::new();
    for &change in &lines {
        if !of_each.iter().any(|other| other.excludes(change)) {
            of_each.push(change);
        }
    }
    if of_each.len() > 2 {
        sets.push(of_each);
    }
    sets.retain(|set| set.len() <= most);
    sets
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
    fn changes_that_help_only_together_are_found() {
        // The run waits for the slowest of three lines; binding saves the same always.
        let lines = [Change::PerThread(0), Change::Separate(1), Change::Batch(2)];
        let changes = [
            Change::Bind(0),
            lines[0],
            Change::Batch(0),
            lines[1],
            lines[2],
        ];
        let of = |slowest: [f64; 3]| {
            let seconds = move |set: &Vec<Change>| {
                let left = |at: usize| {
                    if set.contains(&lines[at]) {
                        1.0
                    } else {
                        slowest[at]
                    }
                };
                let bound = if set.contains(&Change::Bind(0)) {
                    0.0
                } else {
                    10.0
                };
                (0..3).map(left).fold(0.0, f64::max) + bound
            };
            search(&changes, |sets| {
                Ok::<_, ()>(sets.iter().map(seconds).collect())
            })
            .unwrap()
        };
        let steps = |found: &Found| -> Vec<_> {
            let steps = found.steps(found.as_it_is).into_iter();
            steps.map(|step| (step.change, step.needs_next)).collect()
        };
        let three = of([90.0, 90.0, 90.0]);
        let mut found = steps(&three);
        assert_eq!(found.remove(0), (Change::Bind(0), false));
        assert_eq!(
            found.iter().map(|step| step.1).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(three.sets.last().map(|set| set.seconds), Some(1.0));
        // A third one is not worth it.
        let two = steps(&of([90.0, 90.0, 1.0]));
        assert_eq!(two[1..], [(lines[0], true), (lines[1], false)]);
    }

    #[test]
    fn what_later_changes_make_superfluous_is_left_out() {
        // Binding makes transfers of two lines shorter, of which none is left when both are counted apart.
        let [one, other] = [Change::PerThread(0), Change::PerThread(1)];
        let seconds = |set: &Vec<Change>| {
            let transfers = match set.contains(&one) && set.contains(&other) {
                true => 0.0,
                false => 90.0,
            };
            let shorter = if set.contains(&Change::Bind(0)) {
                10.0
            } else {
                1.0
            };
            10.0 + transfers / shorter
        };
        let changes = [Change::Bind(0), one, other];
        let of = |changes: &[Change]| {
            let found = search(changes, |sets| {
                Ok::<_, ()>(sets.iter().map(seconds).collect())
            })
            .unwrap();
            let steps = found.steps(found.as_it_is).into_iter();
            steps
                .map(|step| (step.change, step.after, step.needs_next))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&changes[..2]), [(Change::Bind(0), 19.0, false)]);
        assert_eq!(of(&changes), [(one, 100.0, true), (other, 10.0, false)]);
    }

    #[test]
    fn what_saves_nothing_is_not_proposed() {
        let found = found(&[(Change::Bind(0), 1.9), (Change::InterleaveAll, -30.0)]);
        assert_eq!(found.sets, []);
        assert_eq!(found.alone[1].seconds, 130.0);
    }
}
