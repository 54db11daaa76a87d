//! Verdicts by time: where the caller knows how long each way to run takes, the time decides, and the figures of the
//! other rules explain it. So no measure is recommended that takes longer than the program as it is.

use numaloc_model::number;

use super::{Evidence, LOCAL_GAIN, Likelihood, Measure, Verdict, Ways, binding, placement};
use crate::outlook::{Outlook, Times};
use crate::seconds::time;

const NO_DIFFERENCE: &str = "no difference beyond the error of the model";
/// The page policy whose pages are on any node.
const INTERLEAVE: &str = "interleave";
const MOVES_DO_NOT_MATTER: &str =
    "threads that are moved from their pages lose less than the error of the model";
const NO_PLAN: &str = "no plan saves more than the error of the model";
const NOT_RATED: &str = "no thread policy was rated";

/// Decides again by the caller's times, if it has them.
pub(super) fn decide(evidence: &Evidence<'_>, ways: &Ways, verdicts: &mut [Verdict; 4]) {
    let Some(times) = &evidence.candidates.times else {
        return;
    };
    if evidence.assignment.homes.len() < 2 {
        return;
    }
    let [binding, mapping, congestion, of_pages] = verdicts;
    let timed = Timed { evidence, times };
    timed.binding(binding, ways);
    // What mapping gains in addition to the binding that is recommended without it.
    let base = match binding.likelihood {
        Likelihood::Likely => times.bound.min(times.as_it_is),
        _ => times.as_it_is,
    };
    let mapped = timed.fastest(&times.mapped, &ways.mapped);
    timed.policies(mapping, mapped, base, "Put threads on PUs", "--threads");
    // What spreading gains in addition to the mapping that would be chosen without it.
    let without = ways.mapped.iter().zip(&times.mapped);
    let local = without
        .clone()
        .next()
        .map_or(times.as_it_is, |(_, &seconds)| seconds);
    let base = match mapping.likelihood {
        Likelihood::Likely => local.min(base),
        _ => base,
    };
    timed.policies(congestion, mapped, base, "Spread threads", "--threads");
    // The program has chosen the nodes of its pages.
    if placement::by_policy(evidence).is_none() {
        timed.place(of_pages, ways);
    }
    timed.agree_with_the_plan([mapping, congestion, of_pages]);
}

impl Timed<'_> {
    fn place(&self, of_pages: &mut Verdict, ways: &Ways) {
        let (timed, times) = (self, self.times);
        let placed = timed.fastest(&times.placed, &ways.placed);
        timed.policies(
            of_pages,
            placed,
            times.as_it_is.min(times.bound),
            "Place pages",
            "--pages",
        );
    }

    /// Where the best of all plans saves nothing, none of them is recommended.
    fn agree_with_the_plan(&self, verdicts: [&mut Verdict; 3]) {
        let plan = self.evidence.candidates.plan.as_ref();
        if plan.is_none_or(|plan| plan.saves()) {
            return;
        }
        for verdict in verdicts {
            if verdict.likelihood == Likelihood::Likely && verdict.recommended.is_some() {
                withdraw(verdict, Likelihood::Unlikely, NO_PLAN);
            }
        }
    }
}

struct Timed<'a> {
    evidence: &'a Evidence<'a>,
    times: &'a Times,
}

impl Timed<'_> {
    /// The first way of those that are as good as the fastest: recordings differ a little from run to run, and advice
    /// should not.
    fn fastest<'w>(&self, times: &[f64], ways: &'w [Outlook]) -> Option<(f64, &'w Outlook)> {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let mut pairs = times.iter().copied().zip(ways);
        pairs.find(|&(seconds, _)| seconds <= least * (1.0 + self.times.tie))
    }

    fn loses(&self, seconds: f64, to: f64) -> bool {
        seconds > to * (1.0 + self.times.error)
    }

    /// "as it is 3.31 ms, with this 2.10 ms +- 10 %".
    fn figures(&self, seconds: f64) -> String {
        format!(
            "as it is {}, with this {} +- {} %",
            time(self.times.as_it_is),
            time(seconds),
            number::fixed(100.0 * self.times.error, 0)
        )
    }

    /// Binding must gain by the model, or keep threads at the pages that they touched first, where it would cost more
    /// than the error to be moved from them; and it must not cost anything itself.
    fn binding(&self, verdict: &mut Verdict, ways: &Ways) {
        let (bound, as_it_is) = (self.times.bound, self.times.as_it_is);
        let figures = self.figures(bound);
        if verdict.likelihood == Likelihood::Likely {
            let moved = binding::first_touch_gain(self.evidence, ways).unwrap_or(0.0);
            if self.loses(bound, as_it_is) {
                withdraw(
                    verdict,
                    Likelihood::Unlikely,
                    "bound in order they take longer",
                );
            } else if let Some(why) = self.evidence.handed_out() {
                withdraw(verdict, Likelihood::CannotTell, &why);
            } else if !self.loses(as_it_is, bound) {
                let away = self.moved(ways);
                if moved < LOCAL_GAIN {
                    withdraw(verdict, Likelihood::Unlikely, NO_DIFFERENCE);
                } else if away.is_some_and(|away| !self.loses(away, bound)) {
                    withdraw(verdict, Likelihood::Unlikely, MOVES_DO_NOT_MATTER);
                } else {
                    let up_to = away.map(|away| format!(", up to {} if all are", time(away)));
                    verdict.reason = format!(
                        "as long as no thread is moved from its pages{}; {}",
                        up_to.unwrap_or_default(),
                        verdict.reason
                    );
                }
            }
        }
        verdict.reason = format!("{figures}; {}", verdict.reason);
    }

    /// Seconds with pages on any node, as those of threads are that the kernel has moved, if that was rated.
    fn moved(&self, ways: &Ways) -> Option<f64> {
        let mut rated = ways.placed.iter().zip(&self.times.placed);
        let dealt = rated.find(|(way, _)| way.way.policy() == Some(INTERLEAVE));
        dealt.map(|(_, &seconds)| seconds)
    }

    /// A verdict on the fastest of several policies, compared with `base`.
    fn policies(
        &self,
        verdict: &mut Verdict,
        fastest: Option<(f64, &Outlook)>,
        base: f64,
        action: &str,
        option: &str,
    ) {
        let Some((seconds, way)) = fastest else {
            let is_known = self.evidence.candidates.plan.is_some();
            if is_known && verdict.likelihood == Likelihood::Likely {
                withdraw(verdict, Likelihood::CannotTell, NOT_RATED);
            }
            return;
        };
        let figures = self.figures(seconds);
        let saves = self.loses(base, seconds) && self.loses(self.times.as_it_is, seconds);
        let policy = way.way.policy().unwrap_or_default();
        // Whoever gets the work in another run, interleaved pages serve it.
        let holds = self.evidence.handed_out().filter(|_| policy != INTERLEAVE);
        if !saves {
            if verdict.likelihood != Likelihood::Unlikely {
                let why = match self.loses(seconds, self.times.as_it_is) {
                    true => "every way tried takes longer",
                    false => NO_DIFFERENCE,
                };
                withdraw(verdict, Likelihood::Unlikely, why);
            }
        } else if let Some(why) = holds {
            withdraw(verdict, Likelihood::CannotTell, &why);
        } else {
            let known = verdict.recommended.as_ref() == Some(&way.way);
            if verdict.likelihood != Likelihood::Likely || !known {
                let what = match (&verdict.action, verdict.measure) {
                    (Some(text), Measure::PagePlacement) if text.contains(" (--pages ") => {
                        text.split(" (--pages ").next().unwrap_or(action).to_owned()
                    }
                    _ => action.to_owned(),
                };
                verdict.action = Some(format!("{what} ({option} {policy})"));
            }
            verdict.likelihood = Likelihood::Likely;
            verdict.recommended = Some(way.way.clone());
        }
        verdict.reason = format!("{figures}; {}", verdict.reason);
    }
}

/// Takes back a recommendation, with the reason.
fn withdraw(verdict: &mut Verdict, likelihood: Likelihood, why: &str) {
    verdict.likelihood = likelihood;
    verdict.recommended = None;
    verdict.reason = format!("{why}; {}", verdict.reason);
    // A repair of the program itself stays.
    verdict.action = verdict
        .action
        .take()
        .filter(|action| !action.contains("(--") && !action.contains("--threads"));
}
