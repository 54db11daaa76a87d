//! Answers as JSON, equal in the program and in the Python package. Shares are 0 to 1.

use serde_json::{Value, json};

use crate::best::{Ranking, Rated};
use crate::pages::PageAnswer;
use crate::ranks::{RankRanking, RankRated, RankWorth};
use crate::unplanned::Unplanned;
use crate::worth::Worth;

/// A page policy's answer.
#[must_use]
pub fn pages(answer: &PageAnswer) -> Value {
    json!({
        "policy": answer.policy,
        "remote_accesses": answer.remote,
        "accesses": answer.accesses,
        "remote_share": share(answer.remote as f64, answer.accesses as f64),
        "spilled_pages": answer.spilled,
        "remarks": answer.remarks,
    })
}

/// What a plan and its competitors are worth: seconds of the run, and cache lines.
#[must_use]
pub fn worth(ranking: &Ranking) -> Value {
    let of = |worth: &Worth| {
        json!({
            "seconds": worth.seconds,
            "working_s": worth.working_s,
            "waiting_s": worth.waiting_s,
            "controllers_s": worth.controllers_s,
            "links_s": worth.links_s,
            "lines": worth.lines,
            "remote_lines": worth.remote_lines,
        })
    };
    let candidate = |rated: &Rated| {
        let mut shown = of(&rated.worth);
        shown["threads"] = rated.threads.into();
        shown["pages"] = rated.pages.into();
        shown
    };
    json!({
        "error": ranking.error(),
        "as_it_is": of(&ranking.as_it_is),
        "plan": candidate(&ranking.candidates[ranking.chosen]),
        "saved": ranking.as_it_is.saved_by(ranking.plan()),
        "left_as_it_is": ranking.leaves_as_it_is(),
        "loses": ranking.loses(),
        "candidates": ranking.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

/// What mappings of ranks to hosts are worth: seconds.
#[must_use]
pub fn rank_worth(ranking: &RankRanking) -> Value {
    let of = |worth: &RankWorth| {
        let busiest = worth.busiest.iter();
        let busiest = busiest.map(|busy| json!({"link": busy.name, "seconds": busy.seconds}));
        let gain = ranking.gain_of(worth);
        json!({
            "seconds": worth.seconds,
            "hidden_s": worth.hidden_s,
            "compute_s": worth.compute_s,
            "between_hosts": worth.between_hosts,
            "busiest_links": busiest.collect::<Vec<_>>(),
            "saved_s": gain.seconds,
            "saved_least_s": gain.least,
            "saved_most_s": gain.most,
        })
    };
    let candidate = |rated: &RankRated| {
        let mut shown = of(&rated.worth);
        shown["threads"] = rated.policy.into();
        shown
    };
    json!({
        "error": ranking.error,
        "interconnect_assumed": ranking.assumed,
        "whole_run": ranking.is_whole,
        "layout": ranking.layout,
        "as_it_is": of(&ranking.as_it_is),
        "plan": candidate(&ranking.candidates[ranking.chosen]),
        "saves": ranking.saves(),
        "loses": ranking.loses(),
        "candidates": ranking.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

/// What a run without a plan is expected to do.
#[must_use]
pub fn unplanned(found: &Unplanned) -> Value {
    let (remote, accesses) = found.bound;
    json!({
        "unbound": {"remote_share": if accesses > 0 { found.free } else { 0.0 }},
        "pinned": {
            "remote_accesses": remote,
            "accesses": accesses,
            "remote_share": share(remote as f64, accesses as f64),
            "remote_communication_share": share(found.communication.0, found.communication.1),
        },
    })
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
