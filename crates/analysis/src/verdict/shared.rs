//! The verdict on shared cache lines: what moving them between caches would cost if the threads ran at the same time,
//! and how the program can avoid it. Only for profiles with lines for which that matters.

use numaloc_model::{CodePlace, number};

use super::problem::{Problem, Saves};
use super::{Evidence, Likelihood, Measure, Verdict, lower_first, percent};
use crate::contended::{ContendedMemory, contended};
use crate::seconds::time;

/// Seconds of a transfer between two cores of a machine that is not described: least, usual, most. Measured on servers:
/// 20 to 40 ns within a last-level cache, 50 to 60 within a package, 100 to 140 between packages.
pub const TRANSFER_S: [f64; 3] = [20e-9, 60e-9, 120e-9];
/// Seconds of an access that a private cache answers, where the caller has no model of time.
const ACCESS_S: f64 = 0.6e-9;
/// Share of the run that is worth a change of the program.
const WORTHWHILE: f64 = 0.03;
/// A smaller share cannot matter.
const NEGLIGIBLE: f64 = 0.005;
/// Most variables or objects that are named.
const NAMED: usize = 3;

/// What contention for lines would cost.
pub(super) struct Contention {
    /// By variables or object, most transfers first. Never empty.
    memory: Vec<ContendedMemory>,
    /// Seconds of the run without it.
    run_s: f64,
    /// Seconds that it adds: least, usual, most. The outer ones include the error of the samples.
    cost_s: [f64; 3],
    /// Number of samples behind it.
    samples: u64,
    /// Relative error of the number of transfers.
    error: f64,
    likelihood: Likelihood,
}

/// The contention, if it may matter.
pub(super) fn contention(evidence: &Evidence<'_>) -> Option<Contention> {
    let profile = evidence.profile;
    let memory = contended(profile);
    let times = evidence.candidates.times.as_ref();
    let run_s = match times {
        Some(times) => times.apart,
        None => {
            let accesses = profile.threads().iter().map(|thread| thread.accesses);
            accesses.max()? as f64 * ACCESS_S
        }
    };
    let [least, usual, most] = times.map_or(TRANSFER_S, |times| times.transfer_s);
    let cost = |transfer_s: f64| {
        let of = |one: &ContendedMemory| one.cost_s(transfer_s, run_s);
        // Threads wait for one line after the other.
        memory
            .iter()
            .map(of)
            .fold(0.0, f64::max)
            .max(memory.iter().map(|one| one.of_thread * transfer_s).sum())
    };
    let share = |seconds: f64| seconds / (run_s + seconds).max(f64::MIN_POSITIVE);
    if memory.is_empty() || share(cost(usual)) < NEGLIGIBLE {
        return None;
    }
    let likelihood = match share(cost(least)) >= WORTHWHILE {
        true => Likelihood::Likely,
        false => Likelihood::CannotTell,
    };
    let samples: u64 = memory.iter().map(|one| one.samples).sum();
    let error = 1.0 / (samples.max(1) as f64).sqrt();
    Some(Contention {
        run_s,
        cost_s: [
            cost(least) * (1.0 - error).max(0.0),
            cost(usual),
            cost(most) * (1.0 + error),
        ],
        samples,
        error,
        likelihood,
        memory,
    })
}

/// The verdict on contention that may matter.
pub(super) fn verdict(evidence: &Evidence<'_>, contention: &Contention) -> Verdict {
    let profile = evidence.profile;
    let named = contention.memory.iter().take(NAMED).map(|one| {
        let events = one.memory.events as f64;
        format!(
            "{} threads would move {} of `{}` {} times ({} of the visits, {} of it false sharing{})",
            one.threads,
            lines(one.memory.lines),
            one.memory.label(profile),
            number::fixed(events, 0),
            percent(events / one.visits.max(1) as f64),
            percent(one.memory.false_share()),
            code(&one.places),
        )
    });
    let named = named.collect::<Vec<_>>().join("; ");
    let [least, usual, most] = contention.cost_s;
    let reason = format!(
        "running at the same time, threads would wait {} ({} to {}) for lines that others change, in addition to {}; {named}; \
         estimated from samples, +- {} %",
        time(usual),
        time(least),
        time(most),
        time(contention.run_s),
        number::fixed(100.0 * contention.error, 0),
    );
    let mut verdict = Verdict::plain(Measure::SharedLines, contention.likelihood, reason);
    let first = &contention.memory[0];
    verdict.action = Some(format!(
        "{} (`{}`)",
        cure(first).1,
        first.memory.label(profile)
    ));
    verdict
}

/// The same as a problem: most of it, and what to do about that.
pub(super) fn problem(evidence: &Evidence<'_>, contention: &Contention) -> Problem {
    let profile = evidence.profile;
    let first = &contention.memory[0];
    let of_lines = lines(first.memory.lines);
    let what = if first.is_false() {
        format!(
            "false sharing: {} threads keep taking {of_lines} from each other, but use different bytes",
            first.threads
        )
    } else if first.hands_out {
        format!(
            "{} threads keep taking {of_lines} from each other to get the next iterations of a loop",
            first.threads
        )
    } else if first.writers == 1 {
        format!(
            "{} threads keep waiting for {of_lines} that one of them changes",
            first.threads
        )
    } else {
        format!(
            "{} threads keep taking {of_lines} from each other to change the same data",
            first.threads
        )
    };
    let [least, usual, most] = contention.cost_s;
    let (change, remedy) = cure(first);
    Problem {
        measure: Measure::SharedLines,
        change: Some(change),
        likelihood: contention.likelihood,
        what,
        place: Some(format!(
            "{}{}",
            first.memory.label(profile),
            code(&first.places)
        )),
        remedy: lower_first(remedy),
        saves: Some(Saves {
            as_it_is: contention.run_s + usual,
            seconds: usual,
            least,
            most,
        }),
        gain: None,
        basis: format!(
            "estimated from {} as if all threads ran at once",
            number::plural(
                usize::try_from(contention.samples).unwrap_or(usize::MAX),
                "sample"
            )
        ),
    }
}

fn lines(count: u64) -> String {
    match count {
        1 => "one line".to_owned(),
        count => format!("{count} lines"),
    }
}

/// `, stored in worker (app.c:7)` and `, loaded in main (app.c:9)`, as far as they are known and differ.
fn code([writer, reader]: &[CodePlace; 2]) -> String {
    let at = |place: &CodePlace| {
        let function = place.function.as_deref().unwrap_or("unknown code");
        match &place.source {
            Some(source) => format!("{function} ({source})"),
            None => function.to_owned(),
        }
    };
    let mut text = String::new();
    if writer.is_known() {
        text += &format!(", stored in {}", at(writer));
    }
    if reader.is_known() && reader != writer {
        text += &format!(", loaded in {}", at(reader));
    }
    text
}

/// What the program can do about most of it: the change by its name in JSON, and in a sentence.
fn cure(one: &ContendedMemory) -> (&'static str, &'static str) {
    if one.is_false() {
        (
            "separate",
            "Put what different threads write on lines of their own (alignas(64), padding), or give each thread a copy",
        )
    } else if one.hands_out {
        (
            "chunk",
            "Hand out more iterations at a time, schedule(dynamic, 64) for example, or deal them before the loop, schedule(static)",
        )
    } else if one.is_counter() || one.writers == 1 && 2 * one.atomics >= one.visits {
        (
            "batch",
            "Count in each thread and change the shared variable once for many times (batches), or spread it over several",
        )
    } else if one.writers == 1 {
        (
            "separate",
            "Keep what is often written apart from what many threads read, on another line",
        )
    } else if one.hands_over() {
        (
            "batch",
            "Let threads hand over more at a time: write what others wait for, such as an index, once for many items",
        )
    } else {
        (
            "per_thread",
            "Give each thread a copy and join the copies at the end, or hold the lock for more work at a time",
        )
    }
}
