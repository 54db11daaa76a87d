//! Congestion-aware mapping: whether a policy that spreads concurrent communication relieves the busiest node.

use numaloc_model::number;

use super::{
    CONCURRENT, CONGESTED, Evidence, Likelihood, Measure, RELIEF, REMOTE_GAIN, Verdict, Ways,
    percent,
};
use crate::outlook::Outlook;

pub(super) fn verdict(evidence: &Evidence<'_>, ways: &Ways, mapping: &Verdict) -> Verdict {
    let verdict = |likelihood, reason| Verdict::plain(Measure::CongestionAware, likelihood, reason);
    let c = evidence.communication;
    let Some(concurrency) = c
        .concurrency
        .filter(|_| evidence.assignment.homes.len() > 1)
    else {
        let reason = "nothing communicates between nodes, so nothing can congest them";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    };
    if evidence.talks_too_little() {
        let reason = format!("{}: it congests nothing", evidence.volume());
        return verdict(Likelihood::Unlikely, reason);
    }
    let k = evidence.concurrency.k;
    let together = if k == 1 {
        format!(
            "{} of the threads communicate at the same time",
            percent(concurrency)
        )
    } else {
        format!(
            "in a cluster of concurrent communication ({k} in the run) {} of the threads take part",
            percent(concurrency)
        )
    };
    if concurrency < CONCURRENT / 2.0 {
        let reason = format!("{together}: few communicate at the same time");
        return verdict(Likelihood::Unlikely, reason);
    }
    // What would run without this verdict: the mapping recommended, or threads bound in order.
    let chosen = mapping.recommended.as_ref();
    let base = ways.mapped.iter().find(|way| Some(&way.way) == chosen);
    let base = base.unwrap_or(&ways.bound);
    let load = |way: &Outlook| way.busiest.unwrap_or(1.0);
    let today = format!(
        "the busiest node has {} times the mean communication with {}",
        number::fixed(load(base), 2),
        base.way.words()
    );
    if load(base) < 1.0 + (CONGESTED - 1.0) / 2.0 {
        let reason = format!("{together}, but {today}: it is spread already");
        return verdict(Likelihood::Unlikely, reason);
    }
    // Only what relieves the busiest node of the present mapping as well, and pays little locality for it.
    let most = RELIEF * load(base).min(load(&ways.bound));
    let acceptable = |way: &&Outlook| load(way) <= most && way.remote - base.remote < REMOTE_GAIN;
    let lightest = |ways: &mut dyn Iterator<Item = &Outlook>| {
        ways.min_by(|a, b| load(a).total_cmp(&load(b))).cloned()
    };
    let Some(best) = lightest(&mut ways.mapped.iter().filter(acceptable)) else {
        let tried = lightest(&mut ways.mapped.iter().filter(|way| way.way != base.way));
        let tried = tried.map_or_else(String::new, |way| {
            format!(
                " ({}: {}, with {} instead of {} of the communication between nodes)",
                way.way.words(),
                number::fixed(load(&way), 2),
                percent(way.remote),
                percent(base.remote)
            )
        });
        let reason =
            format!("{together}, and {today}, but no policy that was tried relieves it{tried}");
        return verdict(Likelihood::Unlikely, reason);
    };
    let policy = best.way.policy().unwrap_or_default();
    let relief = format!(
        "{today}, {} with {}",
        number::fixed(load(&best), 2),
        best.way.words()
    );
    if evidence.talks_enough() && concurrency >= CONCURRENT && load(base) >= CONGESTED {
        Verdict {
            action: Some(format!(
                "Spread concurrent communication over the nodes (--threads {policy})"
            )),
            recommended: Some(best.way.clone()),
            ..verdict(Likelihood::Likely, format!("{together}, and {relief}"))
        }
    } else {
        verdict(Likelihood::CannotTell, format!("{together}; {relief}"))
    }
}
