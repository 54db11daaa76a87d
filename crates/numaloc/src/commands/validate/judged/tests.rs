use super::super::measured::Measured;
use super::*;

fn row(variant: Variant, seconds: [f64; 3], share: f64) -> Row {
    let mut measured = Measured::default();
    for seconds in seconds {
        measured.seconds.push(seconds);
        measured.remote_share.push(share);
    }
    Row { variant, measured }
}

fn planned(variant: Variant, seconds: f64, share: f64) -> Planned {
    Planned {
        variant,
        threads: "os".to_owned(),
        pages: "first-touch".to_owned(),
        file: None,
        expected: Some(Expected {
            seconds,
            as_it_is_s: 10.0,
            remote_share: Some(share),
        }),
    }
}

fn recorded(planned: Vec<Planned>, likelihood: Likelihood) -> Recorded {
    Recorded {
        seconds: 1.0,
        accesses: 1,
        verdicts: vec![Verdict {
            measure: Measure::BindThreads,
            likelihood,
            reason: String::new(),
            variant: Some(Variant::Pinned),
        }],
        answer: String::new(),
        planned,
    }
}

const REAL: Conditions = Conditions {
    has_places: true,
    emulated: false,
};

fn outcomes(found: &[Judgement], topic: Topic) -> Vec<(&str, Outcome)> {
    let of = found.iter().filter(|judgement| judgement.topic == topic);
    of.map(|judgement| (&judgement.what[..], judgement.outcome))
        .collect()
}

/// Without anything 10 s; pinned 5 s, as predicted, but 30 points more remote than predicted; interleaved 12 s, where
/// 4 s were predicted.
fn example() -> (Vec<Row>, Vec<Planned>) {
    let rows = vec![
        row(Variant::None, [10.0, 10.1, 9.9], 0.50),
        row(Variant::Interleave, [12.0, 12.1, 11.9], 0.75),
        row(Variant::Pinned, [5.0, 5.1, 4.9], 0.40),
    ];
    let planned = vec![
        planned(Variant::None, 10.0, 0.45),
        planned(Variant::Interleave, 4.0, 0.75),
        planned(Variant::Pinned, 5.0, 0.10),
    ];
    (rows, planned)
}

#[test]
fn predictions_hold_or_fail_by_hand() {
    let (rows, planned) = example();
    let found = judge(&recorded(planned, Likelihood::Likely), &rows, REAL);
    let shares = [
        ("none", Outcome::Held),
        ("interleave", Outcome::Held),
        ("pinned", Outcome::Failed),
    ];
    assert_eq!(outcomes(&found, Topic::RemoteShare), shares);
    let times = [
        ("interleave over none", Outcome::Failed),
        ("pinned over none", Outcome::Held),
    ];
    assert_eq!(outcomes(&found, Topic::Time), times);
    let orders = [
        ("interleave before none", Outcome::Failed),
        ("pinned before none", Outcome::Held),
        ("interleave before pinned", Outcome::Failed),
    ];
    assert_eq!(outcomes(&found, Topic::Order), orders);
    let verdicts = [("bind threads: likely to help (pinned)", Outcome::Held)];
    assert_eq!(outcomes(&found, Topic::Verdict), verdicts);
}

#[test]
fn verdicts_fail_in_both_directions_and_stay_open_where_times_vary() {
    let of = |likelihood, pinned| {
        let (mut rows, planned) = example();
        rows[2] = row(Variant::Pinned, pinned, 0.1);
        let found = judge(&recorded(planned, likelihood), &rows, REAL);
        outcomes(&found, Topic::Verdict)[0].1
    };
    use Likelihood::{CannotTell, Likely, Unlikely};
    let (faster, same, slower, varying) = (
        [5.0, 5.1, 4.9],
        [10.0, 10.1, 9.9],
        [20.0, 20.1, 19.9],
        [5.0, 10.0, 14.0],
    );
    assert_eq!(of(Likely, slower), Outcome::Failed);
    // It could save 2.5 % at most.
    assert_eq!(of(Likely, [10.0, 10.01, 9.99]), Outcome::Failed);
    assert_eq!(of(Likely, varying), Outcome::Open);
    assert_eq!(of(Unlikely, faster), Outcome::Failed);
    assert_eq!(of(Unlikely, same), Outcome::Held);
    assert_eq!(of(Unlikely, varying), Outcome::Open);
    assert_eq!(of(CannotTell, faster), Outcome::Untested);
}

#[test]
fn a_plan_that_leaves_the_program_as_it_is_fails_if_another_way_is_faster() {
    let (rows, mut planned) = example();
    planned.push(self::planned(Variant::Plan, 10.0, 0.45));
    let found = judge(&recorded(planned, Likelihood::Likely), &rows, REAL);
    let answers = [("nothing to gain by places", Outcome::Failed)];
    assert_eq!(outcomes(&found, Topic::Answer), answers);
    let answer = found.iter().find(|found| found.topic == Topic::Answer);
    let why = &answer.unwrap().why;
    assert!(why.starts_with("the fastest is pinned"), "{why}");
}

#[test]
fn times_of_an_emulator_decide_nothing_and_shares_need_several_nodes() {
    let (rows, planned) = example();
    let recorded = recorded(planned, Likelihood::Likely);
    let conditions = Conditions {
        has_places: false,
        emulated: true,
    };
    let found = judge(&recorded, &rows, conditions);
    assert!(!found.is_empty());
    for judgement in found {
        assert_ne!(judgement.topic, Topic::RemoteShare);
        assert_eq!(judgement.outcome, Outcome::Untested);
    }
}
