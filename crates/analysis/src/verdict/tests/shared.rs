//! The verdict on shared cache lines.

use numaloc_model::Profile;
use numaloc_model::profile::{ContendedLine, ContendedVisits, VisitedKind};

use super::super::{Likelihood, Measure, TRANSFER_S};
use super::{found, no_pages, profile, ring};
use crate::outlook::{Candidates, Recommended, Times};

/// Four threads that visit a line, with these transfers.
fn contended(visits: u64, transfers: u64, false_transfers: u64, atomics: u64) -> Profile {
    let line = ContendedLine {
        line: 64,
        threads: 4,
        writers: 4,
        visits,
        transfers,
        false_transfers,
        atomics,
        samples: 400,
        ..ContendedLine::default()
    };
    let plain = profile(4, &ring(4), no_pages());
    let changed = plain.changed(|tables| tables.contended_lines = vec![line]);
    changed.unwrap()
}

/// Nothing is asked but how long the run is as it is, in seconds.
fn times(as_it_is: f64) -> Times {
    Times {
        error: 0.1,
        tie: 0.02,
        as_it_is,
        apart: as_it_is,
        bound: as_it_is,
        mapped: Vec::new(),
        placed: Vec::new(),
        transfer_s: TRANSFER_S,
    }
}

fn judged(profile: &Profile, as_it_is: f64) -> Option<(Likelihood, String, String)> {
    let mut found = found(profile, 2);
    let times = Some(times(as_it_is));
    found.judge(
        profile,
        &Candidates {
            times,
            ..Candidates::default()
        },
    );
    let verdict = found
        .verdicts
        .iter()
        .find(|v| v.measure == Measure::SharedLines)?;
    let action = verdict.action.clone().unwrap_or_default();
    Some((verdict.likelihood, verdict.reason.clone(), action))
}

#[test]
fn its_cost_in_seconds_decides() {
    // A million transfers of 60 ns, one after the other, in addition to 10 ms of other work.
    let run = contended(1_300_000, 1_000_000, 1_000_000, 0);
    let (likelihood, reason, action) = judged(&run, 0.01).unwrap();
    assert_eq!(likelihood, Likelihood::Likely);
    assert!(
        reason.contains("would wait 50.0 ms (") && reason.contains("1000000 times"),
        "{reason}"
    );
    assert!(
        action.starts_with("Put what different threads write on lines of their own"),
        "{action}"
    );
    // Compared with a second, each thread waits for its own transfers: 15 ms.
    let (likelihood, reason, _) = judged(&run, 1.0).unwrap();
    assert_eq!(likelihood, Likelihood::CannotTell);
    assert!(reason.contains("would wait 15.0 ms ("), "{reason}");
    // Compared with a minute it does not matter.
    assert_eq!(judged(&run, 60.0), None);
}

#[test]
fn the_remedy_follows_from_who_uses_the_line_how() {
    let (_, _, action) = judged(&contended(1_300_000, 1_000_000, 0, 1_300_000), 0.01).unwrap();
    assert!(action.contains("batches"), "{action}");
    let plain = contended(1_300_000, 1_000_000, 0, 0);
    let (_, _, action) = judged(&plain, 0.01).unwrap();
    assert!(action.contains("hand over more at a time"), "{action}");
    let guarded = plain.changed(|tables| {
        tables.contended_visits = vec![ContendedVisits {
            kind: VisitedKind::Lock,
            ..ContendedVisits::default()
        }];
    });
    let (_, _, action) = judged(&guarded.unwrap(), 0.01).unwrap();
    assert!(action.contains("Give each thread a copy"), "{action}");
}

#[test]
fn without_contended_lines_there_is_no_such_verdict() {
    assert_eq!(judged(&profile(4, &ring(4), no_pages()), 0.01), None);
}

#[test]
fn what_saves_most_is_the_first_problem_and_what_saves_little_is_none() {
    let run = contended(1_300_000, 1_000_000, 1_000_000, 0);
    let problems = |as_it_is: f64, with_plan: f64| {
        let plan = Recommended {
            threads: "in-order".to_owned(),
            pages: "first-touch".to_owned(),
            as_it_is,
            with_plan,
            error: 0.1,
            remote: [0.9, 0.1],
            mostly: "the busiest memory controller",
            of_ranks: None,
        };
        let mut found = found(&run, 2);
        found.judge(
            &run,
            &Candidates {
                times: Some(times(as_it_is)),
                plan: Some(plan),
                ..Candidates::default()
            },
        );
        let measures = found.problems.iter().map(|problem| problem.measure);
        measures.collect::<Vec<_>>()
    };
    // Contention costs 50 ms in addition to 10 ms.
    assert_eq!(problems(0.01, 0.01), [Measure::SharedLines]);
    // A plan that saves 9.9 ms comes second, one that saves 1.2 ms is none.
    let both = [Measure::SharedLines, Measure::ThreadMapping];
    assert_eq!(problems(0.01, 0.0001), both);
    assert_eq!(problems(0.01, 0.0088), [Measure::SharedLines]);
    // Compared with a minute, 15 ms of contention are none.
    assert_eq!(problems(60.0, 30.0), [Measure::ThreadMapping]);
    assert_eq!(problems(60.0, 58.0), []);
}
