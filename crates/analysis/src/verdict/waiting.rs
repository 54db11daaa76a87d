//! Ranks that wait for each other in MPI calls: which for which, why, where, and what is known of the remedy.

use numaloc_model::profile::{Clock, Profile};
use numaloc_model::{MpiWait, WaitKind};

use super::{Likelihood, Measure, Problem, percent, time};
use crate::outlook::Candidates;
use crate::sites::place_label;

/// Name of the change of the source in JSON.
pub const BALANCE_RANKS: &str = "balance_ranks";
/// Share of the ranks' run time from which their waiting is a problem.
const LEAST: f64 = 0.05;

/// What the ranks wait for; `None` if that is not known, or is little.
pub(super) fn problem(profile: &Profile, candidates: &Candidates) -> Option<Problem> {
    let calls = profile.mpi_calls();
    if profile.meta().clock != Clock::Wall || calls.is_empty() {
        return None;
    }
    let threads = profile.threads().iter();
    let lengths = threads.map(|thread| thread.end.saturating_sub(thread.start));
    let run: u64 = lengths.sum();
    let mut kinds = [0_u64; 3];
    for call in calls {
        for (sum, part) in kinds.iter_mut().zip(call.waiting) {
            *sum += part;
        }
    }
    let waited: u64 = kinds.iter().sum();
    let share = |nanoseconds: u64| nanoseconds as f64 / run.max(1) as f64;
    if share(waited) < LEAST {
        return None;
    }
    let parts = WaitKind::ALL.iter().zip(kinds);
    let parts = parts.filter(|(_, sum)| *sum > 0);
    let parts: Vec<String> = parts
        .map(|(kind, sum)| format!("{} {}", words(*kind), percent(share(sum))))
        .collect();
    // The first of equals.
    let pairs = profile.mpi_waits().iter().rev();
    let longest = pairs.max_by_key(|wait| wait.nanoseconds);
    let name = |thread: numaloc_model::ThreadIdx| &profile.threads()[thread.index()].path;
    let pair = longest.map_or_else(String::new, |wait| {
        let seconds = time(wait.nanoseconds as f64 * 1e-9);
        let (rank, other) = (name(wait.thread), name(wait.other));
        format!("; {rank} waits longest, {seconds} for {other}")
    });
    let sites = calls.iter().rev();
    let site = sites.max_by_key(|call| call.waiting.iter().sum::<u64>());
    let place = site.map(|call| match call.place.is_known() {
        true => format!("{} in {}", call.operation, place_label(&call.place)),
        false => call.operation.clone(),
    });
    let ranks = profile.threads().len().max(1) as f64;
    Some(Problem {
        measure: Measure::ThreadMapping,
        change: Some(BALANCE_RANKS),
        likelihood: Likelihood::Likely,
        what: format!(
            "ranks wait for each other in {} of the run ({}){pair}",
            percent(share(waited)),
            parts.join(", ")
        ),
        place,
        remedy: longest.map_or_else(
            || "distribute the work evenly".to_owned(),
            |wait| remedy(wait, name(wait.other)),
        ),
        saves: None,
        gain: Some(gain(waited as f64 * 1e-9 / ranks, candidates)),
        basis: "measured in the recorded run".to_owned(),
    })
}

/// At most what the mean rank waits, and what a mapping of ranks to hosts gives.
fn gain(mean_s: f64, candidates: &Candidates) -> String {
    let plan = candidates.plan.as_ref();
    let mapping = match plan.filter(|plan| plan.of_ranks.is_some()) {
        Some(plan) if plan.saves() => {
            "what a mapping of ranks to hosts saves is that of the plan".to_owned()
        }
        Some(plan) => format!(
            "a mapping of ranks to hosts gives nothing that is sure: as it is {}, with the best {}",
            time(plan.as_it_is),
            time(plan.with_plan)
        ),
        None => {
            "what a mapping of ranks to hosts gives in seconds: --machine CLUSTER.toml".to_owned()
        }
    };
    format!(
        "at most {}, which the mean rank waits; {mapping}",
        time(mean_s)
    )
}

fn remedy(wait: &MpiWait, other: &str) -> String {
    match wait.kind {
        WaitKind::LateSender => {
            format!(
                "let {other} send earlier or do less before it sends, or work before the receive"
            )
        }
        WaitKind::LateReceiver => format!("let {other} post its receives earlier"),
        WaitKind::Imbalance => format!("distribute the work evenly: {other} enters last"),
    }
}

fn words(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::LateSender => "late sender",
        WaitKind::LateReceiver => "late receiver",
        WaitKind::Imbalance => "imbalance",
    }
}

#[cfg(test)]
mod tests {
    use numaloc_model::profile::{Meta, ProfileBuilder, Slice, Thread};
    use numaloc_model::{CodePlace, MpiCall, ThreadIdx};

    use super::*;

    /// Two ranks of 10 s; r1 waits for r0 for `ns`.
    fn profile(ns: u64) -> Profile {
        let mut tables = ProfileBuilder::new(Meta::new("mpi", Clock::Wall), 4096);
        tables.threads = (0..2)
            .map(|rank| Thread {
                rank: Some(rank),
                end: 10_000_000_000,
                ..Thread::new(format!("r{rank}"))
            })
            .collect();
        tables.slices = vec![Slice {
            start: 0,
            end: 10_000_000_000,
        }];
        tables.mpi_calls = vec![MpiCall {
            thread: ThreadIdx(1),
            operation: "MPI_Recv".to_owned(),
            place: CodePlace::default(),
            calls: 5,
            nanoseconds: ns + 1000,
            waiting: [ns, 0, 0],
            partners: 5,
            matched: 5,
            ..MpiCall::default()
        }];
        tables.mpi_waits = vec![MpiWait {
            thread: ThreadIdx(1),
            other: ThreadIdx(0),
            kind: WaitKind::LateSender,
            calls: 5,
            nanoseconds: ns,
        }];
        tables.build().unwrap()
    }

    #[test]
    fn a_rank_that_waits_for_long_is_named_with_whom_it_waits_for() {
        let found = problem(&profile(8_000_000_000), &Candidates::default()).unwrap();
        assert!(
            found.what.contains("40 % of the run") || found.what.contains("40.0 % of the run"),
            "{}",
            found.what
        );
        assert!(found.what.contains("r1 waits longest, 8"), "{}", found.what);
        assert!(found.remedy.contains("let r0 send earlier"));
        assert_eq!(found.place.as_deref(), Some("MPI_Recv"));
        let gain = found.gain.unwrap();
        // Half of the ranks wait for 8 s.
        assert!(
            gain.contains("at most 4") && gain.contains("--machine"),
            "{gain}"
        );
    }

    #[test]
    fn little_waiting_is_no_problem() {
        assert_eq!(problem(&profile(500_000_000), &Candidates::default()), None);
    }
}
