//! Output of `plan --choose simulated`.

use std::path::Path;

use numaloc_model::number;
use serde_json::{Value, json};

use super::choose::{Candidate, Chosen, Compared};

fn verdict(compared: &Compared) -> String {
    let word = match compared.is_different() {
        None => return "-".to_owned(),
        Some(false) => "no difference",
        Some(true) if compared.ratio < 1.0 => "faster",
        Some(true) => "slower",
    };
    match &compared.uncertainty {
        Some((change, by)) if *change > 0.0 => {
            format!("{word} (+- {}, {by})", number::fixed(*change, 3))
        }
        _ => word.to_owned(),
    }
}

fn row(threads: &str, pages: &str, compared: &Compared, verdict: &str) -> String {
    format!(
        "  {threads:<14} {pages:<19} {:>9} ms {:>10}  {verdict}\n",
        number::fixed(compared.time as f64 / 1e9, 3),
        number::fixed(compared.ratio, 3)
    )
}

/// By how much the fastest plan wins over the next one, and over the run without a plan.
fn gains(chosen: &Chosen) -> String {
    let gain = |other: &str, compared: &Compared| {
        let uncertainty = match &compared.uncertainty {
            Some((change, _)) => format!("+- {} %", number::fixed(change * 100.0, 1)),
            None => "beyond the uncertainty".to_owned(),
        };
        let verdict = match compared.is_different() {
            Some(false) => "no difference",
            _ => "a difference",
        };
        format!(
            "  {other} takes {} % of the fastest plan's time more ({uncertainty}): {verdict}\n",
            number::fixed((compared.ratio - 1.0) * 100.0, 1)
        )
    };
    let mut out = String::new();
    if let Some(next) = chosen.candidates.get(1) {
        let (threads, pages) = next.names();
        out += &gain(
            &format!("the next, {threads} with {pages},"),
            &next.compared,
        );
    }
    out + &gain("the run without a plan", &chosen.without)
}

/// The candidates, the run without a plan, and what was chosen.
pub(super) fn text(chosen: &Chosen, written: Option<&Path>) -> String {
    let machine = &chosen.target.topology;
    let mut out = format!(
        "machine: {} ({})\n\nplans by simulated time, {} simulations:\n",
        machine.name(),
        machine.summary(),
        chosen.simulations
    );
    out += &format!(
        "  {:<14} {:<19} {:>12} {:>10}  {}\n",
        "threads", "pages", "time", "x fastest", "compared with the fastest"
    );
    for (at, one) in chosen.candidates.iter().enumerate() {
        let (threads, pages) = one.names();
        let verdict = match at {
            0 => "fastest".to_owned(),
            _ => verdict(&one.compared),
        };
        out += &row(threads, pages, &one.compared, &verdict);
    }
    let without = verdict(&chosen.without);
    out += &row("(no plan)", "first-touch", &chosen.without, &without);
    let (threads, pages) = chosen.candidates[chosen.at].names();
    let why = match chosen.at {
        0 => "the fastest",
        _ => "the simplest of those that do not differ from the fastest",
    };
    out += &format!("\nchosen: {threads} with {pages}, {why}\n{}", gains(chosen));
    if let Some(path) = written {
        out += &format!("\nplan -> {}\n", path.display());
    }
    out += "  +-: largest change of `x fastest` when a preset of the model goes to the ends of its range, and that preset;\n";
    out +=
        "  -: not simulated with other presets, because it is not simpler than the fastest plan\n";
    out
}

fn compared(compared: &Compared) -> Value {
    let uncertainty = compared.uncertainty.as_ref();
    json!({
        "time_ns": compared.time as f64 / 1e3,
        "times_fastest": compared.ratio,
        "uncertainty": uncertainty.map(|(change, _)| change),
        "uncertainty_by": uncertainty.map(|(_, by)| by),
        "is_different": compared.is_different(),
    })
}

fn candidate(one: &Candidate) -> Value {
    let (threads, pages) = one.names();
    let mut shown = compared(&one.compared);
    shown["threads"] = threads.into();
    shown["pages"] = pages.into();
    shown
}

/// The same as JSON; `is_different` is null where it was not determined.
pub(super) fn json(chosen: &Chosen, written: Option<&Path>) -> Value {
    let machine = &chosen.target.topology;
    json!({
        "version": 1,
        "machine": machine.name(),
        "fingerprint": machine.fingerprint(),
        "simulations": chosen.simulations,
        "candidates": chosen.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "chosen": candidate(&chosen.candidates[chosen.at]),
        "without_plan": compared(&chosen.without),
        "plan": written,
    })
}
