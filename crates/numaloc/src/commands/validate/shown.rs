//! A validation as text and JSON, and the sentences that its page shares with them.

use std::path::Path;

use numaloc_model::number::plural;
use serde_json::{Map, Value, json};

use super::judged::{Judgement, Outcome, Range, Topic, ratio};
use super::machine::{self, Machine};
use super::measured::Row;
use super::recorded::Planned;
use super::variants::Variant;
use super::{Found, Validation};
use crate::commands::compare::memory;
use crate::commands::compare::statistics::Sample;

/// What the machine can show and what not, a sentence each.
pub(super) fn limits(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    if !machine.has_places() {
        found.push(
            "This machine has one NUMA node. It can show what a recording costs, that binding, plans and online \
             placement do no harm, and whether \"nothing to gain\" is right."
                .to_owned(),
        );
        found.push(
            "It cannot show what places are worth: no access is remote here, so predicted remote shares, \
             interleaving, AutoNUMA and calibration are not tested."
                .to_owned(),
        );
    }
    let pus = machine.topology.pus().len();
    if let Some(load) = machine.load.filter(|load| *load > pus as f64 / 4.0) {
        found.push(format!(
            "Other programs were running (load average {load:.1} on {}): times vary, and bound threads wait for them.",
            plural(pus, "PU")
        ));
    }
    if machine.emulated {
        found.push(
            "An emulator executes the instructions. Places of threads and pages are the kernel's own, and remote \
             shares are tested; times mean nothing and decide nothing."
                .to_owned(),
        );
    }
    found
}

/// For each topic: held, failed, open, untested.
pub(super) fn summary(validation: &Validation) -> Vec<(Topic, [usize; 4])> {
    let all = || validation.kernels.iter().flat_map(|found| &found.judged);
    let outcomes = [
        Outcome::Held,
        Outcome::Failed,
        Outcome::Open,
        Outcome::Untested,
    ];
    Topic::ALL
        .into_iter()
        .map(|topic| {
            let count = |outcome| {
                let of = |judged: &&Judgement| judged.topic == topic && judged.outcome == outcome;
                all().filter(of).count()
            };
            (topic, outcomes.map(count))
        })
        .collect()
}

/// The summary for the terminal.
pub(super) fn text(validation: &Validation, page: &Path) -> String {
    let machine = &validation.machine;
    let mut out = format!("{}, {}\n", machine.topology.summary(), machine.processor);
    for sentence in limits(machine) {
        out += &format!("{sentence}\n");
    }
    out += &format!(
        "\n{:<24} {:>6} {:>6} {:>6} {:>9}\n",
        "predictions", "held", "failed", "open", "untested"
    );
    for (topic, [held, failed, open, untested]) in summary(validation) {
        out += &format!(
            "{:<24} {held:>6} {failed:>6} {open:>6} {untested:>9}\n",
            topic.words()
        );
    }
    let failed: Vec<String> = validation
        .kernels
        .iter()
        .flat_map(|found| found.judged.iter().map(move |judged| (found, judged)))
        .filter(|(_, judged)| judged.outcome == Outcome::Failed)
        .map(|(found, judged)| {
            let figures = figures(judged);
            let what = format!("{}, {}", judged.topic.name().replace('_', " "), judged.what);
            format!("  {}: {what}: {figures}{}\n", found.kernel.name, judged.why)
        })
        .collect();
    if !failed.is_empty() {
        out += &format!("\nfailed:\n{}", failed.concat());
    }
    if !validation.left_out.is_empty() {
        out += "\nleft out:\n";
    }
    for left in &validation.left_out {
        out += &format!("  {}: {}\n", left.what, left.why);
    }
    out + &format!("\npage: {}\n", page.display())
}

/// `predicted 0.10, measured 0.40; `.
fn figures(judged: &Judgement) -> String {
    let shown =
        |range: &Range| format!("{:.2} ({:.2} to {:.2})", range.value, range.low, range.high);
    let mut out = String::new();
    if let Some(predicted) = &judged.predicted {
        out += &format!("predicted {}, ", shown(predicted));
    }
    if let Some(measured) = &judged.measured {
        out += &format!("measured {}; ", shown(measured));
    }
    out
}

fn range(range: &Option<Range>) -> Value {
    json!(range.map(|range| json!({
        "value": range.value,
        "low": range.low,
        "high": range.high,
    })))
}

fn mean(sample: &Sample) -> Option<f64> {
    (sample.len() > 0).then(|| sample.mean())
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// A variant's times over those without anything.
pub(super) fn ratio_to_none(rows: &[Row], row: &Row) -> Option<Range> {
    let base = rows.iter().find(|row| row.variant == Variant::None)?;
    let (with, base) = (&row.measured.seconds, &base.measured.seconds);
    (with.len() >= 2 && base.len() >= 2).then(|| ratio(with, base))
}

fn variant(validation: &Validation, rows: &[Row], row: &Row) -> Value {
    let measured = &row.measured;
    let events = validation.meters.counters.names().iter();
    let counters: Map<String, Value> = events
        .zip(&measured.counts)
        .map(|(name, count)| (name.clone(), json!(mean(count))))
        .collect();
    let applied = measured.applied.last();
    let share = |what: &str| applied.and_then(|applied| applied[what]["share"].as_f64());
    let number = |what: &str| applied.and_then(|applied| applied[what].as_u64());
    json!({
        "variant": row.variant.name(),
        "runs": measured.seconds.len(),
        "seconds": measured.seconds.values(),
        "mean_s": mean(&measured.seconds),
        "ci95_half_width_s": finite(measured.seconds.half_width()),
        "wall_s": measured.wall_s.values(),
        "ratio": range(&ratio_to_none(rows, row)),
        "remote_shares": measured.remote_share.values(),
        "remote_share": mean(&measured.remote_share),
        "counted_remote_share": mean(&measured.counted_share),
        "counters": counters,
        "memory_system": memory::json(validation.meters.memory.figures(), &measured.memory),
        "threads_in_place": share("threads"),
        "pages_in_place": share("pages"),
        "threads_bound": number("threads_bound"),
        "pages_moved": number("pages_moved"),
        "pages_by_node": measured.pages_by_node,
    })
}

fn plan(planned: &Planned) -> Value {
    let expected = planned.expected.as_ref();
    json!({
        "variant": planned.variant.name(),
        "threads": planned.threads,
        "pages": planned.pages,
        "predicted_s": expected.map(|expected| expected.seconds),
        "predicted_ratio": expected.map(|expected| expected.ratio()),
        "predicted_remote_share": expected.and_then(|expected| expected.remote_share),
    })
}

fn kernel(validation: &Validation, found: &Found) -> Value {
    let recording = found.recorded.as_ref().map(|recorded| {
        let verdicts = recorded.verdicts.iter().map(|verdict| {
            json!({
                "measure": verdict.measure.name(),
                "likelihood": verdict.likelihood.words(),
                "reason": verdict.reason,
                "variant": verdict.variant.map(Variant::name),
            })
        });
        json!({
            "seconds": recorded.seconds,
            "times_as_long": slowdown(found),
            "accesses": recorded.accesses,
            "answer": recorded.answer,
            "verdicts": verdicts.collect::<Vec<_>>(),
            "predictions": recorded.planned.iter().map(plan).collect::<Vec<_>>(),
        })
    });
    let judged = found.judged.iter().map(|judged| {
        json!({
            "topic": judged.topic.name(),
            "what": judged.what,
            "predicted": range(&judged.predicted),
            "measured": range(&judged.measured),
            "outcome": judged.outcome.name(),
            "why": judged.why,
        })
    });
    let rows = found.rows.iter();
    json!({
        "kernel": found.kernel.name,
        "about": found.kernel.about,
        "iterations": found.iterations,
        "recording": recording,
        "variants": rows.map(|row| variant(validation, &found.rows, row)).collect::<Vec<_>>(),
        "judged": judged.collect::<Vec<_>>(),
    })
}

/// Wall time of the recording over that of the kernel alone.
pub(super) fn slowdown(found: &Found) -> Option<f64> {
    let alone = found.rows.iter().find(|row| row.variant == Variant::None)?;
    Some(found.recorded.as_ref()?.seconds / mean(&alone.measured.wall_s)?)
}

/// The validation as JSON.
pub(super) fn json(validation: &Validation) -> Value {
    let settings = &validation.settings;
    let summary = summary(validation).into_iter().map(|(topic, counts)| {
        let [held, failed, open, untested] = counts;
        json!({
            "topic": topic.name(),
            "held": held,
            "failed": failed,
            "open": open,
            "untested": untested,
        })
    });
    let left_out = validation.left_out.iter();
    let left_out = left_out.map(|left| json!({"what": left.what, "why": left.why}));
    let kernels = validation.kernels.iter();
    json!({
        "version": 1,
        "numaloc": env!("CARGO_PKG_VERSION"),
        "complete": validation.complete,
        "machine": machine::json(&validation.machine),
        "limits": limits(&validation.machine),
        "settings": {
            "runs": settings.runs,
            "seconds": settings.seconds,
            "size_bytes": settings.bytes,
            "threads": settings.threads,
            "seed": settings.seed,
        },
        "summary": summary.collect::<Vec<_>>(),
        "kernels": kernels.map(|found| kernel(validation, found)).collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
        "counters_missing": validation.meters.counters.why_not(),
        "memory_system_missing": memory::missing_json(validation.meters.memory.missing()),
    })
}
