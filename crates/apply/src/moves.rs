//! The later moves of a plan: which comes next at which mark, and what became of them. Independent of ptrace.

use std::collections::BTreeMap;

use numaloc_model::MarkPlace;
use numaloc_model::plan::{Plan, Trigger};

use crate::index::PlanIndex;
use crate::ptrace::errno_name;

/// A later move of a plan.
#[derive(Clone, Debug)]
pub struct Move {
    /// When it is made; `None`: no native run can tell.
    pub trigger: Option<Trigger>,
    /// Paths of the threads that move, and their new PUs (kernel numbers).
    pub threads: Vec<(String, u32)>,
    /// The pages that move.
    pub pages: PlanIndex,
    /// How often it was made.
    pub made: u64,
}

/// The later moves of a plan, and what became of them.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    moves: Vec<Move>,
    /// Threads that moved.
    pub threads: u64,
    /// Threads of moves that were not there.
    pub threads_not_found: u64,
    /// Threads that keep the affinity that the program gave them.
    pub threads_own: u64,
    /// Pages that moved or were there already.
    pub pages: u64,
    /// Refused threads by errno.
    pub refused_threads: BTreeMap<i32, u64>,
    /// Refused pages by errno.
    pub refused_pages: BTreeMap<i32, u64>,
}

impl Moves {
    /// The moves of a plan; without their pages unless `pages`.
    #[must_use]
    pub fn of(plan: &Plan, pages: bool) -> Self {
        let moves = plan.schedule.iter().map(|phase| {
            let only = Plan {
                threads: Vec::new(),
                pages: if pages {
                    phase.pages.clone()
                } else {
                    Vec::new()
                },
                schedule: Vec::new(),
                ..plan.clone()
            };
            let threads = phase.threads.iter();
            Move {
                trigger: phase.trigger.clone(),
                threads: threads.map(|t| (t.path.clone(), t.os_pu.0)).collect(),
                pages: PlanIndex::new(&only, usize::MAX),
                made: 0,
            }
        });
        Self {
            moves: moves.collect(),
            ..Self::default()
        }
    }

    /// Whether any move can be made in a native run.
    #[must_use]
    pub fn any(&self) -> bool {
        self.moves.iter().any(|of| of.trigger.is_some())
    }

    /// The places whose passes must be counted, each once.
    #[must_use]
    pub fn places(&self) -> Vec<MarkPlace> {
        let triggers = self.moves.iter().filter_map(|of| of.trigger.as_ref());
        let mut places: Vec<MarkPlace> = triggers.map(|trigger| trigger.place.clone()).collect();
        places.sort();
        places.dedup();
        places
    }

    /// The first pass of `place` after `passed` ones at which something moves.
    #[must_use]
    pub fn next(&self, place: &MarkPlace, passed: u64) -> Option<u64> {
        self.at(place)
            .filter_map(|(_, trigger)| trigger.after(passed))
            .min()
    }

    /// Takes the moves for the passes of `place` after `from` up to `to`, in the plan's order.
    pub fn take_due(&mut self, place: &MarkPlace, from: u64, to: u64) -> Vec<Move> {
        let is_due = |trigger: &Trigger| trigger.after(from).is_some_and(|pass| pass <= to);
        let due: Vec<usize> = self
            .at(place)
            .filter(|(_, trigger)| is_due(trigger))
            .map(|(at, _)| at)
            .collect();
        for &at in &due {
            self.moves[at].made += 1;
        }
        due.into_iter().map(|at| self.moves[at].clone()).collect()
    }

    fn at<'a>(&'a self, place: &'a MarkPlace) -> impl Iterator<Item = (usize, &'a Trigger)> {
        let moves = self.moves.iter().enumerate();
        let of = moves.filter_map(|(at, of)| Some((at, of.trigger.as_ref()?)));
        of.filter(move |(_, trigger)| trigger.place == *place)
    }

    /// What became of the moves, a sentence each; empty for a plan without moves.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        if self.moves.is_empty() {
            return Vec::new();
        }
        let made = self.moves.iter().filter(|of| of.made > 0).count();
        let times: u64 = self.moves.iter().map(|of| of.made).sum();
        let mut notes = vec![format!(
            "later moves: {made} of {} made ({times} times); {} threads and {} pages moved",
            self.moves.len(),
            self.threads,
            self.pages
        )];
        let without = self.moves.iter().filter(|of| of.trigger.is_none()).count();
        for (count, what) in [
            (
                without as u64,
                "moves of the plan have no mark and are left out",
            ),
            (
                self.threads_not_found,
                "threads were not there when they were to move",
            ),
            (
                self.threads_own,
                "threads did not move: the program set their affinity itself",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        for (refused, what) in [
            (&self.refused_threads, "threads"),
            (&self.refused_pages, "pages"),
        ] {
            for (errno, count) in refused {
                notes.push(format!(
                    "{count} {what} could not move: {}",
                    errno_name(*errno)
                ));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::plan::{PhasePlan, ThreadPlan};
    use numaloc_model::{LogicalPu, MarkKind, OsPu};

    fn place(name: &str) -> MarkPlace {
        MarkPlace {
            kind: MarkKind::Barrier,
            name: name.to_owned(),
        }
    }

    fn phase(trigger: Option<(&str, u64, Option<u64>)>, pu: u32) -> PhasePlan {
        PhasePlan {
            at: 0.5,
            trigger: trigger.map(|(name, occurrence, every)| Trigger {
                place: place(name),
                occurrence,
                every,
            }),
            predicted: None,
            threads: vec![ThreadPlan {
                path: "0.1".to_owned(),
                pu: LogicalPu(pu),
                os_pu: OsPu(pu),
            }],
            pages: Vec::new(),
        }
    }

    #[test]
    fn moves_are_taken_when_their_passes_have_come() {
        let plan = Plan {
            schedule: vec![
                phase(Some(("a", 10, None)), 1),
                phase(Some(("a", 12, Some(5))), 2),
                phase(Some(("b", 3, None)), 3),
                phase(None, 4),
            ],
            ..Plan::by_hand("here", "none")
        };
        let mut moves = Moves::of(&plan, true);
        assert!(moves.any());
        assert_eq!(moves.places(), [place("a"), place("b")]);
        let next = |moves: &Moves, passed| moves.next(&place("a"), passed);
        assert_eq!(
            [0, 10, 12, 17].map(|n| next(&moves, n)),
            [10, 12, 17, 22].map(Some)
        );
        let mut due = |from, to| -> Vec<u32> {
            let due = moves.take_due(&place("a"), from, to);
            due.iter().map(|of| of.threads[0].1).collect()
        };
        assert_eq!(due(0, 9), [0; 0]);
        assert_eq!(due(9, 10), [1]);
        // Passes of several moves that came before the controller looked are made in the plan's order.
        assert_eq!(due(0, 12), [1, 2]);
        assert_eq!(due(12, 17), [2]);
        let notes = moves.notes();
        assert!(notes[0].contains("2 of 4 made (4 times)"), "{notes:?}");
        assert!(
            notes[1].contains("1 moves of the plan have no mark"),
            "{notes:?}"
        );
        assert!(
            Moves::of(&Plan::by_hand("here", "none"), true)
                .notes()
                .is_empty()
        );
    }
}
