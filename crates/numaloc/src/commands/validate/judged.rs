//! Predictions and verdicts against measurements. Pure: figures in, answers out.

use numaloc_analysis::verdict::{Likelihood, Measure};
use numaloc_plan::worth::ERROR;

use super::measured::Row;
use super::recorded::{Expected, Planned, Recorded, Verdict};
use super::variants::Variant;
use crate::commands::compare::statistics::{Sample, differ};

/// Points by which a predicted share of remote accesses may differ from the measured one.
const SHARE_POINTS: f64 = 0.10;
/// A measured ratio of times that is known no better than this decides nothing.
const WIDEST: f64 = 0.5;
/// A gain below this is none, as for the problems of `show`.
const WORTHWHILE: f64 = 0.03;

/// What a prediction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// Share of remote accesses.
    RemoteShare,
    /// Time over that without anything.
    Time,
    /// Which of two variants is faster.
    Order,
    /// A verdict of `show`.
    Verdict,
    /// Whether the plan helps.
    Answer,
}

impl Topic {
    pub const ALL: [Self; 5] = [
        Self::Answer,
        Self::Verdict,
        Self::Order,
        Self::Time,
        Self::RemoteShare,
    ];

    /// Stable name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RemoteShare => "remote_share",
            Self::Time => "time",
            Self::Order => "order",
            Self::Verdict => "verdict",
            Self::Answer => "answer",
        }
    }

    /// Words for the reader.
    pub fn words(self) -> &'static str {
        match self {
            Self::RemoteShare => "remote shares",
            Self::Time => "times",
            Self::Order => "orders of two variants",
            Self::Verdict => "verdicts",
            Self::Answer => "plans",
        }
    }
}

/// Whether a prediction held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Held,
    Failed,
    /// The measurement is not precise enough.
    Open,
    /// Nothing was measured that could decide.
    Untested,
}

impl Outcome {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Open => "open",
            Self::Untested => "untested",
        }
    }
}

/// A figure and the interval that it lies in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Range {
    fn around(value: f64, half: f64) -> Self {
        Self {
            value,
            low: value - half,
            high: value + half,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// One prediction, what was measured, and whether it held.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judgement {
    pub topic: Topic,
    /// What was predicted, in a clause.
    pub what: String,
    pub predicted: Option<Range>,
    pub measured: Option<Range>,
    pub outcome: Outcome,
    /// What decided, in a clause.
    pub why: String,
}

/// How times may be read here.
#[derive(Clone, Copy)]
pub(super) struct Conditions {
    /// Whether the machine has several nodes.
    pub has_places: bool,
    /// Whether times are those of an emulator.
    pub emulated: bool,
}

/// All judgements on a kernel.
pub(super) fn judge(recorded: &Recorded, rows: &[Row], conditions: Conditions) -> Vec<Judgement> {
    let mut found = Vec::new();
    if conditions.has_places {
        found.extend(remote_shares(&recorded.planned, rows));
    }
    let mut timed = times(&recorded.planned, rows);
    timed.extend(orders(&recorded.planned, rows));
    let verdicts = recorded.verdicts.iter();
    timed.extend(verdicts.map(|verdict| self::verdict(verdict, rows)));
    timed.extend(answer(recorded, rows));
    if conditions.emulated {
        for judgement in &mut timed {
            judgement.outcome = Outcome::Untested;
            judgement.why = "an emulator's times mean nothing".to_owned();
        }
    }
    found.extend(timed);
    found.sort_by_key(|judgement| {
        Topic::ALL
            .iter()
            .position(|topic| *topic == judgement.topic)
    });
    found
}

fn sample(rows: &[Row], variant: Variant) -> Option<&Sample> {
    let row = rows.iter().find(|row| row.variant == variant)?;
    (row.measured.seconds.len() >= 2).then_some(&row.measured.seconds)
}

fn expected(planned: &[Planned], variant: Variant) -> Option<&Expected> {
    let found = planned.iter().find(|planned| planned.variant == variant)?;
    found.expected.as_ref()
}

/// Half the width of the 95 % interval of a mean; 0 where one run cannot show it.
fn half_width(sample: &Sample) -> f64 {
    let half = sample.half_width();
    if half.is_finite() { half } else { 0.0 }
}

/// Mean over mean with its interval, by the relative half widths of both.
pub(super) fn ratio(with: &Sample, base: &Sample) -> Range {
    let relative = |sample: &Sample| half_width(sample) / sample.mean();
    let value = with.mean() / base.mean();
    Range::around(value, value * relative(with).hypot(relative(base)))
}

fn remote_shares(planned: &[Planned], rows: &[Row]) -> Vec<Judgement> {
    let judged = rows.iter().filter_map(|row| {
        let share = expected(planned, row.variant)?.remote_share?;
        let sample = &row.measured.remote_share;
        if sample.len() == 0 {
            return None;
        }
        let measured = Range::around(sample.mean(), half_width(sample));
        let predicted = Range::around(share, SHARE_POINTS);
        let held = predicted.overlaps(&measured);
        Some(Judgement {
            topic: Topic::RemoteShare,
            what: row.variant.name().to_owned(),
            predicted: Some(predicted),
            measured: Some(measured),
            outcome: if held { Outcome::Held } else { Outcome::Failed },
            why: format!("{:.1} points apart", 100.0 * (share - sample.mean()).abs()),
        })
    });
    judged.collect()
}

fn times(planned: &[Planned], rows: &[Row]) -> Vec<Judgement> {
    let Some(base) = sample(rows, Variant::None) else {
        return Vec::new();
    };
    let others = rows.iter().filter(|row| row.variant != Variant::None);
    let judged = others.filter_map(|row| {
        let expected = expected(planned, row.variant)?.ratio();
        let measured = ratio(sample(rows, row.variant)?, base);
        let predicted = Range {
            value: expected,
            low: expected / (1.0 + ERROR),
            high: expected * (1.0 + ERROR),
        };
        let (outcome, why) = match predicted.overlaps(&measured) {
            _ if measured.high - measured.value > WIDEST * measured.value => {
                (Outcome::Open, "the times vary too much")
            }
            true => (Outcome::Held, "the intervals overlap"),
            false => (Outcome::Failed, "the intervals do not overlap"),
        };
        Some(Judgement {
            topic: Topic::Time,
            what: format!("{} over none", row.variant.name()),
            predicted: Some(predicted),
            measured: Some(measured),
            outcome,
            why: why.to_owned(),
        })
    });
    judged.collect()
}

/// Each pair of variants whose modelled times differ by more than the model's error.
fn orders(planned: &[Planned], rows: &[Row]) -> Vec<Judgement> {
    let mut found = Vec::new();
    for (at, first) in rows.iter().enumerate() {
        for second in &rows[at + 1..] {
            let pair = [first.variant, second.variant];
            let [Some(a), Some(b)] = pair.map(|variant| expected(planned, variant)) else {
                continue;
            };
            let [Some(x), Some(y)] = pair.map(|variant| sample(rows, variant)) else {
                continue;
            };
            let (fast, slow, fast_times, slow_times) = match a.ratio() < b.ratio() {
                true => (first, second, x, y),
                false => (second, first, y, x),
            };
            let apart = a.ratio().max(b.ratio()) / a.ratio().min(b.ratio());
            if apart.is_nan() || apart <= 1.0 + ERROR {
                continue;
            }
            let measured = ratio(slow_times, fast_times);
            let (outcome, why) = match differ(fast_times, slow_times) {
                false => (Outcome::Open, "no significant difference"),
                true if measured.value > 1.0 => (Outcome::Held, "so it is"),
                true => (Outcome::Failed, "it is the other way round"),
            };
            found.push(Judgement {
                topic: Topic::Order,
                what: format!("{} before {}", fast.variant.name(), slow.variant.name()),
                predicted: Some(Range {
                    value: apart,
                    low: apart / (1.0 + ERROR),
                    high: apart * (1.0 + ERROR),
                }),
                measured: Some(measured),
                outcome,
                why: why.to_owned(),
            });
        }
    }
    found
}

/// Whether a measure that is likely to help does.
fn likely(with: &Sample, base: &Sample) -> (Outcome, String) {
    let measured = ratio(with, base);
    let gain = |ratio: f64| format!("{:.1} %", 100.0 * (1.0 - ratio));
    match differ(with, base) {
        true if measured.value < 1.0 => {
            (Outcome::Held, format!("it saves {}", gain(measured.value)))
        }
        true => (
            Outcome::Failed,
            format!("it takes {} longer", gain(2.0 - measured.value)),
        ),
        false if 1.0 - measured.low < WORTHWHILE => (
            Outcome::Failed,
            format!("it saves at most {}", gain(measured.low)),
        ),
        false => (Outcome::Open, "no significant difference".to_owned()),
    }
}

/// Whether a measure that is unlikely to help does not: it must not gain more than the error of the model.
fn unlikely(with: &Sample, base: &Sample) -> (Outcome, String) {
    let measured = ratio(with, base);
    let gain = 100.0 * (1.0 - measured.value);
    let beyond = measured.value * (1.0 + ERROR) < 1.0;
    match differ(with, base) && beyond {
        true => (Outcome::Failed, format!("it saves {gain:.1} %")),
        false if measured.low * (1.0 + ERROR) < 1.0 => (
            Outcome::Open,
            "times vary too much to exclude a gain".to_owned(),
        ),
        false => (
            Outcome::Held,
            format!("it saves no more than the model's error: {gain:.1} %"),
        ),
    }
}

fn untested(why: &str) -> (Outcome, String) {
    (Outcome::Untested, why.to_owned())
}

fn verdict(verdict: &Verdict, rows: &[Row]) -> Judgement {
    // Without a recommendation, interleaving is a placement that every run measures.
    let by_default = (verdict.measure == Measure::PagePlacement).then_some(Variant::Interleave);
    let variant = verdict.variant.or(by_default);
    let with = variant.and_then(|variant| sample(rows, variant));
    let mut bases = vec![sample(rows, Variant::None)];
    if verdict.measure == Measure::PagePlacement {
        bases.push(sample(rows, Variant::Pinned));
    }
    let base = bases
        .into_iter()
        .flatten()
        .min_by(|a, b| a.mean().total_cmp(&b.mean()));
    let (outcome, why) = match (with.zip(base), verdict.likelihood) {
        (_, Likelihood::CannotTell) => untested("nothing was predicted"),
        (None, _) => untested("no variant does this alone"),
        (Some((with, base)), Likelihood::Likely) => likely(with, base),
        (Some((with, base)), Likelihood::Unlikely) => unlikely(with, base),
    };
    let by = match (with, variant) {
        (Some(_), Some(variant)) => format!(" ({})", variant.name()),
        _ => String::new(),
    };
    Judgement {
        topic: Topic::Verdict,
        what: format!(
            "{}: {}{by}",
            verdict.measure.words(),
            verdict.likelihood.words()
        ),
        predicted: None,
        measured: with.zip(base).map(|(with, base)| ratio(with, base)),
        outcome,
        why,
    }
}

/// The plan: it gains, or leaves the program as it is, and then no other way may gain.
fn answer(recorded: &Recorded, rows: &[Row]) -> Option<Judgement> {
    let plan = recorded
        .planned
        .iter()
        .find(|planned| planned.variant == Variant::Plan)?;
    let base = sample(rows, Variant::None)?;
    let leaves = plan.threads == "os" && plan.pages == "first-touch";
    let (what, with, (outcome, why)) = if leaves {
        let fastest = rows
            .iter()
            .filter(|row| row.variant != Variant::None)
            .filter_map(|row| Some((row.variant, sample(rows, row.variant)?)))
            .min_by(|a, b| a.1.mean().total_cmp(&b.1.mean()));
        let judged = match fastest {
            Some((variant, fastest)) => {
                let (outcome, why) = unlikely(fastest, base);
                (outcome, format!("the fastest is {}: {why}", variant.name()))
            }
            None => untested("no other variant was measured"),
        };
        let what = "nothing to gain by places".to_owned();
        (what, fastest.map(|fastest| fastest.1), judged)
    } else {
        let with = sample(rows, Variant::Plan);
        let judged = with.map_or_else(
            || untested("the plan was not measured"),
            |with| likely(with, base),
        );
        (
            format!("threads by {}, pages by {} helps", plan.threads, plan.pages),
            with,
            judged,
        )
    };
    Some(Judgement {
        topic: Topic::Answer,
        what,
        predicted: None,
        measured: with.map(|with| ratio(with, base)),
        outcome,
        why,
    })
}

#[cfg(test)]
#[path = "judged/tests.rs"]
mod tests;
