//! Verdicts that seconds decide, and advice that fits the program.

use numaloc_model::conditions::WorkSharing;
use numaloc_model::{LogicalNode, Placement, Profile};

use super::super::{Likelihood, Measure};
use super::{alike, assignment, found, handing_out, no_pages, of, profile, ring};
use crate::characterise::Characterisation;
use crate::outlook::{Candidate, Candidates, Recommended, Times, Way};
use crate::pages::tests::usage_of;

/// Judges a ring of eight threads on two nodes with a mapping that halves the remote communication, and these seconds
/// as it is, bound, and mapped.
fn timed(profile: &Profile, as_it_is: f64, bound: f64, mapped: f64) -> Characterisation {
    timed_with(profile, as_it_is, bound, &[mapped], None)
}

/// Seconds of these ways.
fn times_of(as_it_is: f64, bound: f64, mapped: &[f64]) -> Times {
    Times {
        error: 0.1,
        tie: 0.02,
        as_it_is,
        apart: as_it_is,
        bound,
        mapped: mapped.to_vec(),
        placed: Vec::new(),
        transfer_s: crate::verdict::TRANSFER_S,
    }
}

/// The same with a plan, and with or without that mapping.
fn timed_with(
    profile: &Profile,
    as_it_is: f64,
    bound: f64,
    mapped: &[f64],
    plan: Option<Recommended>,
) -> Characterisation {
    let mut found = found(profile, 2);
    let candidates = Candidates {
        mappings: mapped
            .iter()
            .map(|_| Candidate {
                policy: "numaloc".to_owned(),
                answer: assignment(2, &[0, 0, 0, 0, 1, 1, 1, 1]),
            })
            .collect(),
        placements: Vec::new(),
        times: Some(times_of(as_it_is, bound, mapped)),
        plan,
        ..Candidates::default()
    };
    found.judge(profile, &candidates);
    found
}

#[test]
fn seconds_decide_and_are_printed() {
    let run = profile(8, &ring(8), no_pages());
    let judged = |mapped| of(&timed(&run, 1.0, 1.0, mapped), Measure::ThreadMapping).clone();
    let faster = judged(0.8);
    assert_eq!(faster.likelihood, Likelihood::Likely, "{}", faster.reason);
    assert_eq!(faster.recommended, Some(Way::Mapped("numaloc".into())));
    let figures = "as it is 1.00 s, with this 800 ms +- 10 %; ";
    assert!(faster.reason.starts_with(figures), "{}", faster.reason);
    assert!(faster.action.unwrap().contains("--threads numaloc"));
    for seconds in [0.95, 1.0, 1.5] {
        let verdict = judged(seconds);
        assert_eq!(
            verdict.likelihood,
            Likelihood::Unlikely,
            "{}",
            verdict.reason
        );
        assert_eq!((verdict.action, verdict.recommended), (None, None));
    }
}

#[test]
fn no_policy_is_recommended_where_no_plan_saves_time() {
    let run = profile(8, &ring(8), no_pages());
    let plan = |with_plan| Recommended {
        threads: "numaloc".to_owned(),
        pages: "first-touch".to_owned(),
        as_it_is: 1.0,
        with_plan,
        error: 0.1,
        remote: [0.5, 0.5],
        mostly: "waiting for lines",
        of_ranks: None,
    };
    let judged = |mapped: &[f64], with_plan| {
        let found = timed_with(&run, 1.0, 1.0, mapped, Some(plan(with_plan)));
        of(&found, Measure::ThreadMapping).clone()
    };
    assert_eq!(judged(&[0.8], 0.8).likelihood, Likelihood::Likely);
    let none = judged(&[0.8], 1.0);
    assert_eq!(none.likelihood, Likelihood::Unlikely, "{}", none.reason);
    assert_eq!((none.action, none.recommended), (None, None));
    // No policy was rated: the rules by counts alone recommend none.
    assert_eq!(judged(&[], 1.0).recommended, None);
    assert_eq!(judged(&[], 0.8).recommended, None);
}

#[test]
fn of_equally_good_ways_the_first_is_recommended() {
    let run = profile(8, &ring(8), no_pages());
    let judged = |second| {
        let mut found = found(&run, 2);
        let way = |policy: &str| Candidate {
            policy: policy.to_owned(),
            answer: assignment(2, &[0, 0, 0, 0, 1, 1, 1, 1]),
        };
        let candidates = Candidates {
            mappings: vec![way("numaloc"), way("deloc")],
            placements: Vec::new(),
            times: Some(Times {
                error: 0.1,
                tie: 0.02,
                as_it_is: 1.0,
                apart: 1.0,
                bound: 1.0,
                mapped: vec![0.5, second],
                placed: Vec::new(),
                transfer_s: crate::verdict::TRANSFER_S,
            }),
            plan: None,
            ..Candidates::default()
        };
        found.judge(&run, &candidates);
        of(&found, Measure::ThreadMapping).recommended.clone()
    };
    assert_eq!(judged(0.495), Some(Way::Mapped("numaloc".into())));
    assert_eq!(judged(0.4), Some(Way::Mapped("deloc".into())));
}

#[test]
fn no_mapping_is_recommended_where_a_thread_plan_does_not_hold() {
    let run = profile(8, &ring(8), no_pages());
    let run = handing_out(run, WorkSharing::DynamicLoop, "GOMP_loop_dynamic_next");
    let verdict = of(&timed(&run, 1.0, 1.0, 0.5), Measure::ThreadMapping).clone();
    assert_eq!(
        verdict.likelihood,
        Likelihood::CannotTell,
        "{}",
        verdict.reason
    );
    assert_eq!((verdict.action, verdict.recommended), (None, None));
}

#[test]
fn binding_that_takes_longer_is_not_recommended() {
    // Each thread has 100 pages of its own: bound, all is local.
    let own: Vec<_> = (0..8)
        .flat_map(|t| {
            let mut uses = vec![0; 8];
            uses[t as usize] = 5000;
            alike(100, t, &uses)
        })
        .collect();
    let run = profile(8, &[], usage_of(&own));
    let bind = |bound| of(&timed(&run, 1.0, bound, 1.0), Measure::BindThreads).likelihood;
    assert_eq!(bind(1.05), Likelihood::Likely);
    assert_eq!(bind(1.5), Likelihood::Unlikely);
    // Where it hardly matters on which nodes pages are, it does not matter whether threads are moved from them.
    let moved = |moved| {
        let mut found = found(&run, 2);
        let times = Times {
            placed: vec![moved],
            ..times_of(1.0, 1.0, &[1.0])
        };
        let dealt = (0..run.pages().pages().len()).map(|page| Some(LogicalNode(page as u32 % 2)));
        let candidates = Candidates {
            placements: vec![Candidate {
                policy: "interleave".to_owned(),
                answer: Placement {
                    node: dealt.collect(),
                },
            }],
            times: Some(times),
            ..Candidates::default()
        };
        found.judge(&run, &candidates);
        of(&found, Measure::BindThreads).likelihood
    };
    assert_eq!(moved(1.5), Likelihood::Likely);
    assert_eq!(moved(1.05), Likelihood::Unlikely);
}

#[test]
fn binding_that_saves_no_time_is_recommended_for_first_touch_only() {
    let run = profile(8, &ring(8), no_pages());
    let bind = |bound| of(&timed(&run, 1.0, bound, 1.0), Measure::BindThreads).clone();
    let same = bind(1.0);
    assert_eq!(same.likelihood, Likelihood::Unlikely, "{}", same.reason);
    assert_eq!((same.action, same.recommended), (None, None));
    assert_eq!(bind(0.8).likelihood, Likelihood::Likely);
}

#[test]
fn advice_on_binding_fits_the_program() {
    let own: Vec<_> = (0..4)
        .flat_map(|t| {
            let mut uses = vec![0; 4];
            uses[t as usize] = 5000;
            alike(100, t, &uses)
        })
        .collect();
    let run = profile(4, &[], usage_of(&own));
    let bind = |profile: &Profile| of(&found(profile, 4), Measure::BindThreads).clone();
    let named = |label: &str, command: &str| {
        let role = numaloc_model::profile::ThreadRole::from_label(Some(label.to_owned()));
        let changed = run.clone().changed(|tables| {
            tables.threads[1].role = role;
            tables.meta.command = vec![command.to_owned()];
        });
        changed.unwrap()
    };
    let posix = bind(&run).action.expect("it is likely to help");
    assert!(
        !posix.contains("OMP_") && posix.contains("in-order"),
        "{posix}"
    );
    let openmp = bind(&named("main._omp_fn.0", "./app")).action.unwrap();
    assert!(openmp.contains("OMP_PROC_BIND=true"), "{openmp}");
    for (command, expected) in [
        ("/usr/bin/python3.12", Likelihood::Unlikely),
        ("python3.13t", Likelihood::Likely),
    ] {
        assert_eq!(
            bind(&named("worker", command)).likelihood,
            expected,
            "{command}"
        );
    }
    let java = handing_out(run.clone(), WorkSharing::Stealing, "JNI_CreateJavaVM");
    let verdict = bind(&java);
    assert_eq!(
        (verdict.likelihood, verdict.action),
        (Likelihood::Unlikely, None)
    );
}
