//! The answer in at most five lines: what is wrong, where, what to do, what that gives, how sure it is.
//!
//! `show`, `record`, the report and Markdown begin with it.

use numaloc_analysis::Characterisation;
use numaloc_analysis::verdict::{Likelihood, Problem, Saves, time};
use numaloc_model::number;
use numaloc_model::profile::Profile;

use crate::window;

/// Characters of a line beyond which its middle is left out: names of C++ functions have no limit.
const MOST: usize = 240;

/// Word of the first line if there is a problem.
pub const PROBLEM: &str = "Problem";
/// Word of the first line if there is none.
pub const ANSWER: &str = "Answer";

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What the line says, in one word.
    pub word: &'static str,
    /// The sentence, without a full stop.
    pub text: String,
}

/// The machine that figures are for, in words, without where their threads are assumed to be.
#[must_use]
pub fn machine_of(assumed: &str) -> String {
    assumed
        .replace(", threads in blocks", "")
        .replace(", ranks as launched", "")
}

/// The lines, at most five. `assumed`: the machine that the figures are for, in words.
#[must_use]
pub fn lines(profile: &Profile, c: &Characterisation, assumed: &str) -> Vec<Line> {
    let line = |word, text: String| Line {
        word,
        text: crate::cut::middle_cut(&text, MOST),
    };
    let window = profile.meta().window.as_ref();
    // Uses of pages are not amounts, so what is computed of them cannot be sure.
    let has_amounts = window.is_none_or(|window| window.source.shows_amounts());
    let seen = window.map_or_else(String::new, |window| format!("; {}", window::seen(window)));
    let sure = |likelihood: Likelihood, basis: &str| {
        let words = match likelihood {
            Likelihood::Likely if has_amounts => "likely",
            _ => "unsure",
        };
        let machine = machine_of(assumed);
        let short = match profile.meta().complete {
            true => "",
            false => "; the recording was cut short",
        };
        line(
            "Sure",
            format!("{words}: {basis}{seen}; for {machine}{short}"),
        )
    };
    let Some(problem) = c.problems.first() else {
        return nothing(c, line, sure);
    };
    let place = problem.place.clone().map(|place| line("Where", place));
    let mut lines = vec![line(PROBLEM, problem.what.clone())];
    lines.extend(place);
    lines.push(line("Do", problem.remedy.clone()));
    lines.push(line("Gives", gives(problem)));
    lines.push(sure(problem.likelihood, &problem.basis));
    lines
}

/// The lines for a program without a problem.
fn nothing(
    c: &Characterisation,
    line: impl Fn(&'static str, String) -> Line,
    sure: impl Fn(Likelihood, &str) -> Line,
) -> Vec<Line> {
    let open = c.verdicts.iter();
    let open = open.filter(|verdict| verdict.likelihood == Likelihood::CannotTell);
    let open: Vec<&str> = open.map(|verdict| verdict.measure.words()).collect();
    if let Some(plan) = &c.plan {
        let (now, then) = (time(plan.as_it_is), time(plan.with_plan));
        let error = number::fixed(100.0 * plan.error, 0);
        let bound = c.bound_s.map_or_else(String::new, |bound| {
            let bound = time(bound.min(plan.as_it_is));
            format!("; without any other node's memory, queue or line {bound}")
        });
        return vec![
            line(
                ANSWER,
                "nothing to change: no plan and no change of the source that the model knows gains more than its error"
                    .to_owned(),
            ),
            line(
                "Gives",
                format!("as it is {now}, with the best plan {then} (+- {error} %){bound}"),
            ),
            sure(Likelihood::Likely, "modelled; compare measures it"),
        ];
    }
    match open.is_empty() {
        true => vec![
            line(ANSWER, "nothing to change".to_owned()),
            sure(
                Likelihood::Likely,
                "by shares of accesses and communication, not in seconds",
            ),
        ],
        false => vec![
            line(ANSWER, "no problem was found".to_owned()),
            sure(
                Likelihood::CannotTell,
                &format!("cannot tell about {} (--why)", open.join(", ")),
            ),
        ],
    }
}

/// What curing the problem gives.
fn gives(problem: &Problem) -> String {
    match (problem.saves, &problem.gain) {
        (Some(saves), _) => seconds(saves),
        (None, Some(gain)) => gain.clone(),
        (None, None) => "not known in seconds".to_owned(),
    }
}

/// `97.1 ms of 173 ms (56 %), between 85.5 ms and 107 ms`.
fn seconds(saves: Saves) -> String {
    let share = saves.seconds / saves.as_it_is.max(f64::MIN_POSITIVE);
    format!(
        "{} of {} ({} %), between {} and {}",
        time(saves.seconds),
        time(saves.as_it_is),
        number::fixed(100.0 * share, 0),
        time(saves.least),
        time(saves.most)
    )
}

/// The problems after the first, in a sentence; `None` if there are no others.
#[must_use]
pub fn others(c: &Characterisation) -> Option<String> {
    let rest = c.problems.get(1..)?;
    let one = |problem: &Problem| format!("{} ({})", problem.what, gives(problem));
    let named: Vec<String> = rest.iter().map(one).collect();
    (!named.is_empty()).then(|| named.join("; "))
}
