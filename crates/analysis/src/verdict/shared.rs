//! The verdict on shared cache lines: what moving them between caches would cost if the threads ran at the same time,
//! and how the program can avoid it. Only for profiles with lines for which that matters.

use numaloc_model::{CodePlace, number};

use super::timed::time;
use super::{Evidence, Likelihood, Measure, Verdict, percent};
use crate::contended::{ContendedMemory, contended};

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

/// The verdict, if there is contention that may matter.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Option<Verdict> {
    let profile = evidence.profile;
    let memory = contended(profile);
    let times = evidence.candidates.times.as_ref();
    let run_s = match times {
        Some(times) => times.as_it_is,
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
    if share(cost(usual)) < NEGLIGIBLE {
        return None;
    }
    let first = memory.first()?;
    let likelihood = match share(cost(least)) >= WORTHWHILE {
        true => Likelihood::Likely,
        false => Likelihood::CannotTell,
    };
    let samples: u64 = memory.iter().map(|one| one.samples).sum();
    let error = 1.0 / (samples.max(1) as f64).sqrt();
    let named = memory.iter().take(NAMED).map(|one| {
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
    let reason = format!(
        "running at the same time, threads would wait {} ({} to {}) for lines that others change, in addition to {}; {named}; \
         estimated from samples, +- {} %",
        time(cost(usual)),
        time(cost(least) * (1.0 - error).max(0.0)),
        time(cost(most) * (1.0 + error)),
        time(run_s),
        number::fixed(100.0 * error, 0),
    );
    let mut verdict = Verdict::plain(Measure::SharedLines, likelihood, reason);
    verdict.action = Some(format!(
        "{} (`{}`)",
        remedy(first),
        first.memory.label(profile)
    ));
    Some(verdict)
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

/// What the program can do about most of it.
fn remedy(one: &ContendedMemory) -> &'static str {
    if 2 * one.memory.false_events >= one.memory.events {
        "Put what different threads write on lines of their own (alignas(64), padding), or give each thread a copy"
    } else if 2 * one.atomics >= one.visits {
        "Count in each thread and change the shared variable once for many times (batches), or spread it over several"
    } else if one.writers == 1 {
        "Keep what is often written apart from what many threads read, on another line"
    } else {
        "Give each thread a copy and join the copies at the end, or hold the lock for more work at a time"
    }
}
