//! Which candidate is chosen.

use std::borrow::Cow;

use numaloc_model::conditions::WorkSharing;
use numaloc_topology::resolve;
use proptest::prelude::*;

mod weighted;

use super::{Rated, first_of_the_best};
use crate::worth::Worth;
use crate::worth::tests::{Use, profile};
use crate::{Choice, Options, PlanRequest, Planned, Scope, Subject, Unobserved, plan};

fn planned(
    profile: numaloc_model::Profile,
    machine: &str,
    threads: Option<&str>,
    pages: Option<&str>,
    look: impl FnOnce(&Planned),
) {
    let machine = resolve(machine).unwrap();
    let request = PlanRequest {
        subject: &Subject::new(Cow::Owned(profile), &Scope::default()).unwrap(),
        machine: &machine,
        choice: &Choice::open(threads, pages).unwrap(),
        options: &Options::default(),
    };
    look(&plan(request, &Unobserved).unwrap());
}

/// Threads with pages of their own, and one event.
fn on_their_own(threads: u32) -> numaloc_model::Profile {
    let uses: Vec<Use> = (0..threads).map(|at| (0, at, at, 100_000)).collect();
    profile(threads, &uses, &[(0, 0, 1, 1)])
}

#[test]
fn as_it_is_wins_ties() {
    planned(
        on_their_own(8),
        "numa:2 core:8 pu:2",
        None,
        None,
        |planned| {
            let ranking = planned.ranking().unwrap();
            assert!(ranking.leaves_as_it_is() && !ranking.loses());
            // The plan names every thread as left out, and places no page.
            let plan = planned.assemble().plan;
            assert!(plan.threads.is_empty() && plan.pages.is_empty());
            assert_eq!(plan.provenance.left_out.len(), 8);
        },
    );
}

#[test]
fn the_simplest_of_the_best_wins_if_it_beats_as_it_is() {
    let of = |seconds: f64| Worth {
        seconds,
        ..Worth::default()
    };
    let rated = |all: &[f64]| -> Vec<Rated> {
        all.iter()
            .map(|&seconds| Rated {
                threads: "test",
                pages: "test",
                worth: of(seconds),
            })
            .collect()
    };
    let chosen = |all: &[f64]| first_of_the_best(&of(all[0]), &rated(all));
    assert_eq!(chosen(&[1.0, 0.95, 1.0]), 0, "within the error");
    assert_eq!(
        chosen(&[1.0, 0.95, 0.705, 0.70]),
        2,
        "the first within a tie"
    );
    assert_eq!(chosen(&[1.0, 2.0, 0.5]), 2);
    // No candidate is "as it is": the first of the best, even if it loses.
    let others = rated(&[3.0, 2.01, 2.0]);
    assert_eq!(first_of_the_best(&of(1.0), &others), 1);
}

#[test]
fn pages_that_main_initialised_are_placed_if_that_pays() {
    // Thread 0 touches 8 x 1,000 pages alone, a little of each, then eight threads sweep 1,000 each ten times, 200 a
    // slice. The two threads of a node share 4 MiB of last-level cache, half of what they sweep, so one node's
    // controller and links serve all; placing the pages pays.
    let mut uses: Vec<Use> = (0..8000).map(|page| (page / 800, page, 0, 8)).collect();
    for slice in 10..60_u32 {
        for thread in 0..8 {
            let first = thread * 1000 + slice % 5 * 200;
            uses.extend((0..200).map(|at| (slice, first + at, thread, 512)));
        }
    }
    let run = profile(8, &uses, &[]);
    planned(run, "numa:4 core:2 pu:1", None, None, |planned| {
        let ranking = planned.ranking().unwrap();
        assert!(!ranking.leaves_as_it_is(), "{ranking:?}");
        assert!(ranking.as_it_is.loses_to(ranking.plan()), "{ranking:?}");
        let pages = planned.pages().last().unwrap();
        assert_ne!(pages.policy, "first-touch");
    });
}

#[test]
fn work_that_is_handed_out_at_run_time_is_no_reason_for_a_place() {
    let sharing = vec![(WorkSharing::Stealing, "steal".to_owned())];
    let changed = on_their_own(8).changed(|tables| tables.meta.conditions.sharing = sharing);
    let run = changed.unwrap();
    planned(run, "numa:2 core:8 pu:2", None, None, |planned| {
        for rated in planned.ranking().unwrap().candidates {
            assert!(super::UNTIED.contains(&rated.threads), "{rated:?}");
            assert!(super::SPREADING.contains(&rated.pages), "{rated:?}");
        }
    });
}

#[test]
fn a_named_policy_that_loses_says_so() {
    // `compact` fills siblings first: 12 of 16 cores stay empty.
    planned(
        on_their_own(8),
        "numa:2 core:8 pu:2",
        Some("compact"),
        Some("first-touch"),
        |planned| {
            let ranking = planned.ranking().unwrap();
            assert!(ranking.loses(), "{ranking:?}");
        },
    );
    planned(
        on_their_own(8),
        "numa:2 core:8 pu:2",
        Some("scatter"),
        None,
        |planned| {
            assert!(!planned.ranking().unwrap().loses());
            assert_eq!(planned.threads()[0].policy, "scatter");
        },
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever the run: the default plan is no slower than the program as it is, by the model.
    #[test]
    fn the_default_plan_never_loses(
        threads in 1_u32..9,
        uses in prop::collection::vec((0_u32..6, 0_u32..60, 0_u32..8, 1_u64..5000), 1..120),
        events in prop::collection::vec((0_u32..6, 0_u32..8, 0_u32..8, 1_u64..100_000), 0..12),
        machine in prop::sample::select(vec![
            "numa:2 core:2 pu:2", "numa:4 core:1 pu:1", "numa:1 core:3 pu:2", "purple", "cxl-2s",
        ]),
    ) {
        let mut uses: Vec<Use> = uses.into_iter().map(|(s, p, t, n)| (s, p, t % threads, n)).collect();
        uses.sort_unstable();
        uses.dedup_by_key(|used| (used.0, used.1, used.2));
        let last = uses.iter().map(|used| used.0).max().unwrap_or(0);
        let events: Vec<_> = events
            .into_iter()
            .map(|(s, a, b, n)| (s.min(last), a % threads, b % threads, n))
            .filter(|(_, a, b, _)| a != b)
            .collect();
        planned(profile(threads, &uses, &events), machine, None, None, |planned| {
            let ranking = planned.ranking().unwrap();
            assert!(ranking.plan().seconds <= ranking.as_it_is.seconds, "{ranking:?}");
            let gains = ranking.plan().saves(&ranking.as_it_is);
            assert!(gains || ranking.leaves_as_it_is(), "{ranking:?}");
            for rated in &ranking.candidates {
                assert!(rated.worth.seconds.is_finite() && rated.worth.seconds > 0.0);
            }
        });
    }
}
