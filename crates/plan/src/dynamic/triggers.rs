//! By which marks a native run recognises the beginnings of phases.
//!
//! Only passes in the program's first process count, where a native run can count them, and only places whose passes
//! have one number each: two functions of the same name, or a program that replaced itself, have not.

use std::collections::{BTreeMap, HashSet};

use numaloc_model::plan::{PhasePlan, PredictedMove, Trigger};
use numaloc_model::{MarkKind, MarkPlace, MarkRow, Profile};

/// Share of a phase from its beginning to the farthest mark that stands for it.
const FARTHEST: f64 = 0.05;
/// Equal moves at equal distances from which on they are periodic.
const PERIODIC: usize = 3;

/// The marks of a profile that a native run can count.
pub(super) struct Marks<'a> {
    /// By time.
    rows: Vec<&'a MarkRow>,
    /// Marks within this time of a beginning are equally near.
    tolerance: u64,
}

impl<'a> Marks<'a> {
    pub fn of(profile: &'a Profile) -> Self {
        let first = profile.threads().iter().find(|thread| thread.path == "0");
        let of_first = |row: &&MarkRow| {
            let thread = &profile.threads()[row.thread.index()];
            first.is_some_and(|first| first.pid == thread.pid)
        };
        let (mut seen, mut ambiguous) = (HashSet::new(), HashSet::new());
        for row in profile.marks().iter().filter(of_first) {
            if !seen.insert((&row.place, row.occurrence)) {
                ambiguous.insert(&row.place);
            }
        }
        let rows = profile.marks().iter().filter(of_first);
        let slice = profile.slices().first();
        Self {
            rows: rows.filter(|row| !ambiguous.contains(&row.place)).collect(),
            tolerance: slice.map_or(0, |slice| slice.end - slice.start),
        }
    }

    /// The pass that stands for a phase which begins at `start` and lasts `length`, in the profile's clock. Of marks
    /// that are equally near: what the program's author marked, then what is passed least often.
    pub fn at(&self, start: u64, length: u64) -> Option<Trigger> {
        let farthest = self.tolerance.max((length as f64 * FARTHEST) as u64);
        let from = self
            .rows
            .partition_point(|row| row.time < start.saturating_sub(farthest));
        let near = self.rows[from..]
            .iter()
            .take_while(|row| row.time <= start.saturating_add(farthest));
        let rank = |row: &&&MarkRow| {
            let preference = match row.place.kind {
                MarkKind::User => 0,
                MarkKind::Region => 1,
                MarkKind::Barrier => 2,
                MarkKind::Thread => 3,
            };
            let distance = row.time.abs_diff(start);
            (
                distance.max(self.tolerance),
                preference,
                distance,
                row.occurrence,
            )
        };
        near.min_by_key(rank).map(|row| Trigger {
            place: row.place.clone(),
            occurrence: row.occurrence,
            every: None,
        })
    }
}

/// Combines moves that are equal and whose passes of one mark are equally far apart, at least [`PERIODIC`] of them, to
/// one with a period: the loop that they belong to may be longer in another run. Gains and costs are those of all of
/// them together.
pub(super) fn periodic(schedule: Vec<PhasePlan>) -> Vec<PhasePlan> {
    let mut by_place: BTreeMap<&MarkPlace, Vec<usize>> = BTreeMap::new();
    for (at, phase) in schedule.iter().enumerate() {
        if let Some(trigger) = &phase.trigger {
            by_place.entry(&trigger.place).or_default().push(at);
        }
    }
    let pass = |at: usize| {
        schedule[at]
            .trigger
            .as_ref()
            .map_or(0, |trigger| trigger.occurrence)
    };
    // By the first of equal moves: the others, and their distance.
    let mut combined: BTreeMap<usize, (Vec<usize>, u64)> = BTreeMap::new();
    for places in by_place.into_values() {
        let mut remaining = places;
        while let Some(&first) = remaining.first() {
            let is_equal = |at: usize| {
                let (a, b) = (&schedule[first], &schedule[at]);
                a.threads == b.threads && a.pages == b.pages
            };
            let equal: Vec<usize> = remaining
                .iter()
                .copied()
                .filter(|&at| is_equal(at))
                .collect();
            remaining.retain(|at| !equal.contains(at));
            let distances: HashSet<u64> = equal
                .windows(2)
                .map(|w| pass(w[1]).saturating_sub(pass(w[0])))
                .collect();
            if let (true, [every]) = (
                equal.len() >= PERIODIC,
                &distances.into_iter().collect::<Vec<_>>()[..],
            ) && *every > 0
            {
                combined.insert(first, (equal[1..].to_vec(), *every));
            }
        }
    }
    let gone: HashSet<usize> = combined
        .values()
        .flat_map(|(others, _)| others.iter().copied())
        .collect();
    let predicted = |at: usize| {
        schedule[at].predicted.unwrap_or(PredictedMove {
            gain_s: 0.0,
            cost_s: 0.0,
        })
    };
    let sums: BTreeMap<usize, PredictedMove> = combined
        .iter()
        .map(|(&first, (others, _))| {
            let sum = others
                .iter()
                .fold(predicted(first), |sum, &at| PredictedMove {
                    gain_s: sum.gain_s + predicted(at).gain_s,
                    cost_s: sum.cost_s + predicted(at).cost_s,
                });
            (first, sum)
        })
        .collect();
    let kept = schedule
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !gone.contains(at));
    kept.map(|(at, mut phase)| {
        if let (Some((_, every)), Some(trigger)) = (combined.get(&at), &mut phase.trigger) {
            trigger.every = Some(*every);
            phase.predicted = sums.get(&at).copied();
        }
        phase
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::plan::ThreadPlan;
    use numaloc_model::{LogicalPu, OsPu};

    fn moved(pu: u32, occurrence: u64) -> PhasePlan {
        PhasePlan {
            at: 0.1,
            trigger: Some(Trigger {
                place: MarkPlace {
                    kind: MarkKind::User,
                    name: "step".to_owned(),
                },
                occurrence,
                every: None,
            }),
            predicted: Some(PredictedMove {
                gain_s: 1.0,
                cost_s: 0.25,
            }),
            threads: vec![ThreadPlan {
                path: "0.1".to_owned(),
                pu: LogicalPu(pu),
                os_pu: OsPu(pu),
            }],
            pages: Vec::new(),
        }
    }

    #[test]
    fn equal_moves_at_equal_distances_are_one_with_a_period() {
        // To PU 1 at 10, 20, 30; back to PU 0 at 15, 25 only; to PU 2 at unequal distances.
        let passes = [
            (1, 10),
            (0, 15),
            (1, 20),
            (0, 25),
            (1, 30),
            (2, 31),
            (2, 33),
            (2, 36),
        ];
        let found = periodic(passes.map(|(pu, pass)| moved(pu, pass)).into());
        let of = |phase: &PhasePlan| {
            let trigger = phase.trigger.as_ref().unwrap();
            (phase.threads[0].pu.0, trigger.occurrence, trigger.every)
        };
        let found_passes: Vec<_> = found.iter().map(of).collect();
        let alone = |pu, pass| (pu, pass, None);
        let expected = [
            (1, 10, Some(10)),
            alone(0, 15),
            alone(0, 25),
            alone(2, 31),
            alone(2, 33),
            alone(2, 36),
        ];
        assert_eq!(found_passes, expected);
        assert_eq!(found[0].predicted.unwrap().gain_s, 3.0);
        assert_eq!(found[1].predicted.unwrap().gain_s, 1.0);
    }
}
