//! Limits on how much worse the locality of a program may get, and whether runs keep them: for continuous integration.
//!
//! A figure is a metric by its key, or `remote`. Both sides may have several runs: their medians are compared, and a
//! limit is exceeded only if the change is also larger than the spread of the runs, the larger of the two sides'
//! differences between largest and smallest value.

use numaloc_analysis::Characterisation;

use crate::metrics::{self, Unit};
use crate::number;

/// Key of the share of page accesses that first touch leaves remote.
const REMOTE: &str = "remote";

/// A figure that limits are for.
#[derive(Clone, Copy, Debug)]
struct Figure {
    key: &'static str,
    unit: Unit,
    meaning: &'static str,
}

/// How much more or less is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    /// Percent of the baseline's value.
    Relative(f64),
    /// In the figure's unit.
    Absolute(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// A larger value is worse.
    Increase(Amount),
    /// A smaller value is worse.
    Decrease(Amount),
    /// The largest value, whatever the baseline has.
    AtMost(f64),
}

/// A limit, as a user writes it: `remote=+5%`.
#[derive(Clone, Debug)]
pub struct Limit {
    figure: Figure,
    bound: Bound,
}

/// A text that is no limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotALimit {
    /// There is no figure of that name.
    #[error("there is no figure {0:?}: expected remote or the key of a metric (docs/metrics.md)")]
    Figure(String),
    /// The amount is not understood.
    #[error("{0:?} is no limit: expected NAME=+5%, NAME=-5%, NAME=+0.02, NAME=-0.02 or NAME=0.3")]
    Amount(String),
}

/// Whether a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change is allowed.
    Kept,
    /// The change is larger than allowed, but not larger than the spread of the runs.
    WithinSpread,
    /// The change is larger than both.
    Exceeded,
}

impl Outcome {
    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::WithinSpread => "within_spread",
            Self::Exceeded => "exceeded",
        }
    }
}

/// A limit applied to runs.
#[derive(Clone, Debug)]
pub struct Judged {
    figure: Figure,
    bound: Bound,
    /// Values of the baseline's runs, in their order.
    pub before: Vec<f64>,
    /// Values of the runs that are checked.
    pub after: Vec<f64>,
    /// By how much the median got worse; negative if it got better.
    pub worse_by: f64,
    /// By how much it may get worse.
    pub allowed: f64,
    /// Spread of the runs.
    pub spread: f64,
    /// Whether the limit is kept.
    pub outcome: Outcome,
}

impl Limit {
    /// Reads `NAME=LIMIT`.
    ///
    /// # Errors
    /// [`NotALimit`] if there is no such figure, or the amount is not understood.
    pub fn parse(text: &str) -> Result<Self, NotALimit> {
        let wrong = || NotALimit::Amount(text.to_owned());
        let (name, amount) = text.split_once('=').ok_or_else(wrong)?;
        let figure = Figure::named(name).ok_or_else(|| NotALimit::Figure(name.to_owned()))?;
        let amount = amount.trim();
        let number = |digits: &str| match digits.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 && !digits.starts_with(['+', '-']) => {
                Ok(value)
            }
            _ => Err(wrong()),
        };
        let change = |digits: &str| match digits.strip_suffix('%') {
            Some(percent) => number(percent).map(Amount::Relative),
            None => number(digits).map(Amount::Absolute),
        };
        let bound = match (amount.strip_prefix('+'), amount.strip_prefix('-')) {
            (Some(more), _) => Bound::Increase(change(more)?),
            (_, Some(less)) => Bound::Decrease(change(less)?),
            _ => Bound::AtMost(number(amount)?),
        };
        Ok(Self { figure, bound })
    }

    /// Name of the figure.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.figure.key
    }

    /// The figure's value in a run; `None` where not observed.
    #[must_use]
    pub fn value(&self, run: &Characterisation) -> Option<f64> {
        match self.figure.key {
            REMOTE => Some(1.0 - metric(run, "first_touch_local_share")?),
            key => metric(run, key),
        }
    }

    /// Applies the limit to values of the baseline's runs and of those that are checked. `None` if a side has none.
    #[must_use]
    pub fn judge(&self, before: &[f64], after: &[f64]) -> Option<Judged> {
        let (old, new) = (median(before)?, median(after)?);
        let of = |amount| match amount {
            Amount::Relative(percent) => percent / 100.0 * old.abs(),
            Amount::Absolute(amount) => amount,
        };
        let (worse_by, allowed) = match self.bound {
            Bound::Increase(amount) => (new - old, of(amount)),
            Bound::Decrease(amount) => (old - new, of(amount)),
            Bound::AtMost(most) => (new - most, 0.0),
        };
        let spread = range(before).max(range(after));
        let outcome = match (worse_by > allowed, worse_by > spread) {
            (false, _) => Outcome::Kept,
            (true, false) => Outcome::WithinSpread,
            (true, true) => Outcome::Exceeded,
        };
        Some(Judged {
            figure: self.figure,
            bound: self.bound,
            before: before.to_vec(),
            after: after.to_vec(),
            worse_by,
            allowed,
            spread,
            outcome,
        })
    }
}

impl Figure {
    fn named(name: &str) -> Option<Self> {
        if name == REMOTE {
            return Some(Self {
                key: REMOTE,
                unit: Unit::Share,
                meaning: "page accesses to another node, first touch",
            });
        }
        let declared = metrics::declared(name)?;
        Some(Self {
            key: declared.key,
            unit: match declared.unit {
                metrics::Of::Every(unit) => unit,
                metrics::Of::Run(_) => Unit::Plain,
            },
            meaning: match declared.meaning {
                metrics::Of::Every(meaning) => meaning,
                metrics::Of::Run(_) => declared.name,
            },
        })
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => number::bytes(value),
            Unit::Count(_) => number::count(value),
            Unit::Share => number::fixed(100.0 * value, 2) + " %",
            Unit::Plain | Unit::PerTime(_) => number::plain(value),
        }
    }
}

impl Judged {
    /// Name of the figure.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.figure.key
    }

    /// Its unit, as in JSON.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.figure.unit.name()
    }

    fn row(&self) -> String {
        let show =
            |values: &[f64]| median(values).map_or_else(String::new, |v| self.figure.show(v));
        let limit = match self.bound {
            Bound::Increase(amount) => format!("+{}", self.amount(amount)),
            Bound::Decrease(amount) => format!("-{}", self.amount(amount)),
            Bound::AtMost(most) => format!("at most {}", self.figure.show(most)),
        };
        let spread = match self.before.len().max(self.after.len()) {
            1 => "one run".to_owned(),
            _ => self.figure.show(self.spread),
        };
        let outcome = match self.outcome {
            Outcome::Kept => "kept",
            Outcome::WithinSpread => "larger than allowed, but within the spread",
            Outcome::Exceeded => "**exceeded**",
        };
        format!(
            "| {} ({}) | {} | {} | {} | {limit} | {spread} | {outcome} |\n",
            self.figure.key,
            self.figure.meaning.replace('|', "/"),
            show(&self.before),
            show(&self.after),
            self.change(),
        )
    }

    fn amount(&self, amount: Amount) -> String {
        match amount {
            Amount::Relative(percent) => format!("{percent} %"),
            Amount::Absolute(value) => self.figure.show(value),
        }
    }

    /// Change of the median: in percentage points for shares, else in per cent.
    fn change(&self) -> String {
        match (median(&self.before), median(&self.after)) {
            (Some(old), Some(new)) if self.figure.unit == Unit::Share => {
                number::signed(100.0 * (new - old), 2) + " pp"
            }
            (Some(old), Some(new)) if old != 0.0 => {
                number::signed(100.0 * (new - old) / old.abs(), 2) + " %"
            }
            (Some(_), Some(0.0)) => "none".to_owned(),
            _ => "new".to_owned(),
        }
    }
}

/// Whether every limit is kept, or exceeded only within the spread of the runs.
#[must_use]
pub fn passed(judged: &[Judged]) -> bool {
    judged.iter().all(|one| one.outcome != Outcome::Exceeded)
}

/// A heading and a table, as Markdown for a pull request.
#[must_use]
pub fn markdown(judged: &[Judged], assumed: &str) -> String {
    let title = match passed(judged) {
        true => "locality is within its limits",
        false => "locality got worse",
    };
    let mut out = format!("### numaloc: {title}\n\n");
    out += "| figure | baseline | now | change | allowed | spread of runs | limit |\n";
    out += "|---|---:|---:|---:|---:|---:|---|\n";
    out.extend(judged.iter().map(Judged::row));
    let runs = judged
        .first()
        .map_or((0, 0), |one| (one.before.len(), one.after.len()));
    out += &format!(
        "\nMedians of {} and {}; {assumed}.\n",
        number::plural(runs.0, "baseline run"),
        number::plural(runs.1, "new run")
    );
    out
}

fn metric(run: &Characterisation, key: &str) -> Option<f64> {
    (metrics::declared(key)?.value)(run)
}

/// The middle value; of an even number, the mean of the two in the middle. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len(), sorted.len() % 2) {
        (0, _) => None,
        (_, 1) => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn range(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (most - least).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(limit: &str, before: &[f64], after: &[f64]) -> Outcome {
        let limit = Limit::parse(limit).expect("a limit");
        limit.judge(before, after).expect("values").outcome
    }

    #[test]
    fn a_change_must_exceed_the_limit_and_the_spread() {
        use Outcome::{Exceeded, Kept, WithinSpread};
        // One run each: the limit decides alone.
        assert_eq!(outcome("remote=+5%", &[0.20], &[0.209]), Kept);
        assert_eq!(outcome("remote=+5%", &[0.20], &[0.211]), Exceeded);
        assert_eq!(outcome("remote=+5%", &[0.20], &[0.10]), Kept);
        // Runs of one side differ by 0.03: a change of 0.02 is larger than 5 % of 0.20, but may be chance.
        let noisy = [0.19, 0.20, 0.22];
        assert_eq!(outcome("remote=+5%", &noisy, &[0.22]), WithinSpread);
        assert_eq!(
            outcome("remote=+5%", &[0.20], &[0.21, 0.22, 0.24]),
            WithinSpread
        );
        assert_eq!(outcome("remote=+5%", &noisy, &[0.24]), Exceeded);
    }

    #[test]
    fn limits_are_relative_absolute_or_a_bound() {
        use Outcome::{Exceeded, Kept};
        assert_eq!(outcome("remote=+0.02", &[0.20], &[0.215]), Kept);
        assert_eq!(outcome("remote=+0.02", &[0.20], &[0.225]), Exceeded);
        assert_eq!(outcome("remote=0.3", &[0.5], &[0.29]), Kept);
        assert_eq!(outcome("remote=0.3", &[0.5], &[0.31]), Exceeded);
        assert_eq!(
            outcome("communication_locality=-10%", &[0.5], &[0.46]),
            Kept
        );
        assert_eq!(
            outcome("communication_locality=-10%", &[0.5], &[0.44]),
            Exceeded
        );
        // A baseline of nothing allows nothing.
        assert_eq!(outcome("remote=+5%", &[0.0], &[0.0]), Kept);
        assert_eq!(outcome("remote=+5%", &[0.0], &[0.001]), Exceeded);
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for text in [
            "remote",
            "remote=",
            "remote=5%",
            "remote=+-5%",
            "remote=+x",
            "remote=+inf",
            "remote=++5",
        ] {
            let error = Limit::parse(text).expect_err(text);
            assert_eq!(error, NotALimit::Amount(text.to_owned()));
        }
        let error = Limit::parse("remoteness=+5%").expect_err("no figure");
        assert_eq!(error, NotALimit::Figure("remoteness".to_owned()));
    }

    #[test]
    fn the_page_has_a_row_for_each_limit() {
        let limit = |text, before: &[f64], after: &[f64]| {
            Limit::parse(text)
                .expect("a limit")
                .judge(before, after)
                .expect("values")
        };
        let judged = [
            limit("remote=+5%", &[0.2], &[0.3]),
            limit("communication_events=+5%", &[100.0, 102.0], &[103.0]),
        ];
        let page = markdown(&judged, "4 nodes");
        assert!(page.contains("locality got worse"), "{page}");
        assert!(
            page.contains("| 20.00 % | 30.00 % | +10.00 pp | +5 % | one run | **exceeded** |"),
            "{page}"
        );
        assert!(
            page.contains("| 101 | 103 | +1.98 % | +5 % | 2 | kept |"),
            "{page}"
        );
        assert!(markdown(&judged[1..], "4 nodes").contains("within its limits"));
    }
}
