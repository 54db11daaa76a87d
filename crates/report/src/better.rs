//! Which of two runs is better, in seconds of one model of one machine, and which problems came and went.
//!
//! `diff` and its page begin with it. Both times are of the same model, so what it errs by in both cancels; what is
//! left is the share by which its ratios of two times are off ([`Better::error`]).

use numaloc_analysis::Characterisation;
use numaloc_analysis::compare::without_lines;
use numaloc_analysis::verdict::{Problem, time};
use numaloc_model::number;
use numaloc_model::profile::Clock;
use serde_json::{Value, json};

/// What the second run is, compared with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Faster beyond the error.
    Better,
    /// Slower beyond the error.
    Worse,
    /// Within the error.
    Same,
    /// The runs have no times that can be compared.
    Unknown,
}

impl Judgement {
    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unknown => "unknown",
        }
    }
}

/// The comparison of two runs, `a` and then `b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Better {
    /// What `b` is.
    pub judgement: Judgement,
    /// Modelled seconds of both as they are; `None` where the model cannot time both.
    pub seconds: Option<[f64; 2]>,
    /// Share by which the ratio of the two may be off.
    pub error: f64,
    /// Problems of `a` that `b` does not have, in a clause each.
    pub gone: Vec<String>,
    /// Problems of `b` that `a` does not have.
    pub new: Vec<String>,
    /// Problems of both, as `b` has them.
    pub left: Vec<String>,
}

/// Compares two runs that were characterised for the same machine.
#[must_use]
pub fn of(a: &Characterisation, b: &Characterisation) -> Better {
    let plans = a.plan.as_ref().zip(b.plan.as_ref());
    // Ticks and seconds differ, and messages have another model than accesses.
    let timed = plans.filter(|(x, y)| {
        x.of_ranks.is_some() == y.of_ranks.is_some()
            && (a.clock == Clock::Wall) == (b.clock == Clock::Wall)
            && x.as_it_is > 0.0
    });
    let seconds = timed.map(|(x, y)| [x.as_it_is, y.as_it_is]);
    let error = timed.map_or(0.0, |(x, y)| x.error.max(y.error));
    let judgement = seconds.map_or(Judgement::Unknown, |seconds| judged(seconds, error));
    let in_other = |problem: &Problem, other: &Characterisation| {
        other.problems.iter().any(|found| is_same(problem, found))
    };
    let clauses = |of: &Characterisation, other: &Characterisation, both: bool| {
        let found = of.problems.iter();
        let found = found.filter(|problem| in_other(problem, other) == both);
        found.map(clause).collect()
    };
    Better {
        judgement,
        seconds,
        error,
        gone: clauses(a, b, false),
        new: clauses(b, a, false),
        left: clauses(b, a, true),
    }
}

fn judged([a, b]: [f64; 2], error: f64) -> Judgement {
    match (a > b * (1.0 + error), b > a * (1.0 + error)) {
        (true, _) => Judgement::Better,
        (_, true) => Judgement::Worse,
        _ => Judgement::Same,
    }
}

/// Whether two runs have the same problem: the same cure of the same memory or code, wherever its line is now.
fn is_same(x: &Problem, y: &Problem) -> bool {
    // After the name follow sizes and who uses it, which the change may have changed.
    let name = |place: &str| without_lines(place.split(", ").next().unwrap_or(place));
    let place = |problem: &Problem| problem.place.as_deref().map(name);
    (x.measure, x.change) == (y.measure, y.change) && place(x) == place(y)
}

fn clause(problem: &Problem) -> String {
    match problem.saves {
        Some(saves) => format!("{} ({})", problem.what, time(saves.seconds)),
        None => problem.what.clone(),
    }
}

impl Better {
    /// The first line: `b is better: 559 us, a 1.36 ms (-59 %), beyond the model's error of 15 %`; `a` and `b` are the
    /// names of the runs.
    #[must_use]
    pub fn headline(&self, a: &str, b: &str) -> String {
        let Some([x, y]) = self.seconds else {
            return format!("whether {b} is better is not known in seconds: no model times both");
        };
        let error = number::fixed(100.0 * self.error, 0);
        let change = number::fixed(100.0 * (y / x - 1.0), 0);
        let sign = if y > x { "+" } else { "" };
        let times = format!("{}, {a} {} ({sign}{change} %)", time(y), time(x));
        match self.judgement {
            Judgement::Better => {
                format!("{b} is better: {times}, beyond the model's error of {error} %")
            }
            Judgement::Worse => {
                format!("{b} is worse: {times}, beyond the model's error of {error} %")
            }
            Judgement::Same | Judgement::Unknown => {
                format!("no difference beyond the model's error of {error} %: {b} {times}")
            }
        }
    }

    /// The lines after it: what went, what came and what is left, in a word and a sentence each; empty ones are not
    /// there.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let parts = [
            ("Gone", &self.gone),
            ("New", &self.new),
            ("Left", &self.left),
        ];
        let parts = parts.into_iter().filter(|(_, found)| !found.is_empty());
        parts
            .map(|(word, found)| (word, found.join("; ")))
            .collect()
    }

    /// The fields of `diff --json`.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "judgement": self.judgement.name(),
            "modelled_a_s": self.seconds.map(|times| times[0]),
            "modelled_b_s": self.seconds.map(|times| times[1]),
            "error": self.seconds.map(|_| self.error),
            "problems_gone": self.gone,
            "problems_new": self.new,
            "problems_left": self.left,
        })
    }
}

#[cfg(test)]
mod tests {
    use numaloc_analysis::verdict::{Likelihood, Measure};

    use super::*;

    fn better(seconds: [f64; 2]) -> Better {
        let [x, y] = seconds;
        Better {
            judgement: judged(seconds, 0.15),
            seconds: Some([x, y]),
            error: 0.15,
            gone: vec!["first touch".to_owned()],
            new: Vec::new(),
            left: Vec::new(),
        }
    }

    fn problem(place: &str) -> Problem {
        Problem {
            measure: Measure::PagePlacement,
            change: Some("touch_by_users"),
            likelihood: Likelihood::Likely,
            what: String::new(),
            place: Some(place.to_owned()),
            remedy: String::new(),
            saves: None,
            gain: None,
            basis: String::new(),
        }
    }

    #[test]
    fn only_differences_beyond_the_error_are_called_one() {
        assert_eq!(judged([1.0, 0.88], 0.15), Judgement::Same);
        assert_eq!(judged([1.0, 0.86], 0.15), Judgement::Better);
        assert_eq!(judged([0.86, 1.0], 0.15), Judgement::Worse);
        assert_eq!(
            better([2.4e-3, 1.2e-3]).headline("a", "b"),
            "b is better: 1.20 ms, a 2.40 ms (-50 %), beyond the model's error of 15 %"
        );
        assert_eq!(
            better([1.0, 1.1]).headline("old", "new"),
            "no difference beyond the model's error of 15 %: new 1.10 s, old 1.00 s (+10 %)"
        );
    }

    #[test]
    fn a_problem_is_the_same_when_its_line_and_size_have_changed() {
        let before = problem("malloc in main (x.c:12), 2346 pages, used in f (x.c:20)");
        let after = problem("malloc in main (x.c:15), 300 pages, used in f (x.c:23)");
        assert!(is_same(&before, &after));
        assert!(!is_same(
            &before,
            &problem("malloc in init (x.c:12), 2346 pages")
        ));
    }

    #[test]
    fn kinds_of_problems_without_any_have_no_line() {
        let words: Vec<&str> = better([2.0, 1.0])
            .problems()
            .iter()
            .map(|(word, _)| *word)
            .collect();
        assert_eq!(words, ["Gone"]);
    }
}
