//! Output of `plan --choose simulated`.

use std::path::Path;

use numaloc_model::number;
use serde_json::{Value, json};

use super::choose::{CLOSE, Candidate, Chosen};

fn ms(picoseconds: u64) -> String {
    number::fixed(picoseconds as f64 / 1e9, 3)
}

fn verdict(uncertainty: &Option<(f64, String)>, is_different: bool) -> String {
    match (uncertainty, is_different) {
        (None, _) => "slower".to_owned(),
        (Some((change, _)), _) if *change == 0.0 && !is_different => "no difference".to_owned(),
        (Some((change, by)), true) => format!("slower (+- {}, {by})", number::fixed(*change, 3)),
        (Some((change, by)), false) => {
            format!("no difference (+- {}, {by})", number::fixed(*change, 3))
        }
    }
}

fn row(threads: &str, pages: &str, time: u64, ratio: f64, verdict: &str) -> String {
    format!(
        "  {threads:<14} {pages:<14} {:>9} ms {:>10}  {verdict}\n",
        ms(time),
        number::fixed(ratio, 3)
    )
}

/// By how much the fastest plan is faster than the next one that differs from it.
fn gain(chosen: &Chosen) -> String {
    let next = chosen.candidates.iter().find(|one| one.is_different);
    let among = chosen.candidates.iter().filter(|one| !one.is_different);
    let equal = among.count() - 1;
    let mut out = match equal {
        0 => String::new(),
        1 => "one other plan does not differ from the fastest; ".to_owned(),
        _ => format!("{equal} other plans do not differ from the fastest; "),
    };
    out += &match next {
        Some(next) => {
            let (threads, pages) = next.names();
            let within = next.uncertainty.as_ref();
            let within = within.map_or_else(
                || {
                    format!(
                        "beyond {} %, not simulated with other presets",
                        CLOSE * 100.0
                    )
                },
                |(change, _)| format!("uncertainty {} %", number::fixed(change * 100.0, 1)),
            );
            format!(
                "the next slower one, {threads} with {pages}, takes {} % longer ({within})",
                number::fixed((next.ratio - 1.0) * 100.0, 1)
            )
        }
        None => "no plan is slower beyond the uncertainty of the model".to_owned(),
    };
    out
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
        "  {:<14} {:<14} {:>12} {:>10}  {}\n",
        "threads", "pages", "time", "x fastest", "compared with the fastest"
    );
    for (at, one) in chosen.candidates.iter().enumerate() {
        let (threads, pages) = one.names();
        let verdict = match at {
            0 => "fastest".to_owned(),
            _ => verdict(&one.uncertainty, one.is_different),
        };
        out += &row(threads, pages, one.time, one.ratio, &verdict);
    }
    let without = &chosen.without;
    let compared = match without.ratio < 1.0 {
        true => "faster than every plan".to_owned(),
        false => verdict(&without.uncertainty, without.is_different),
    };
    out += &row(
        "(no plan)",
        "first-touch",
        without.time,
        without.ratio,
        &compared,
    );
    let best = &chosen.candidates[chosen.at];
    let (threads, pages) = best.names();
    let why = match chosen.at {
        0 => "the fastest",
        _ => "the simplest of those that do not differ from the fastest",
    };
    out += &format!(
        "\nchosen: {threads} with {pages}, {why}\n  {}\n",
        gain(chosen)
    );
    if !without.is_different {
        out += "  the run without a plan does not differ from the fastest plan either\n";
    }
    if let Some(path) = written {
        out += &format!("\nplan -> {}\n", path.display());
    }
    out += "  +-: largest change of the ratio when a preset of the model goes to the ends of its range, and that preset\n";
    out
}

fn compared(uncertainty: &Option<(f64, String)>) -> Value {
    match uncertainty {
        Some((change, by)) => json!({"ratio": change, "by": by}),
        None => Value::Null,
    }
}

fn candidate(one: &Candidate) -> Value {
    let (threads, pages) = one.names();
    json!({
        "threads": threads,
        "pages": pages,
        "time_ns": one.time as f64 / 1e3,
        "times_fastest": one.ratio,
        "uncertainty": compared(&one.uncertainty),
        "is_different": one.is_different,
    })
}

/// The same as JSON.
pub(super) fn json(chosen: &Chosen, written: Option<&Path>) -> Value {
    let machine = &chosen.target.topology;
    json!({
        "version": 1,
        "machine": machine.name(),
        "fingerprint": machine.fingerprint(),
        "simulations": chosen.simulations,
        "candidates": chosen.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "chosen": candidate(&chosen.candidates[chosen.at]),
        "without_plan": {
            "time_ns": chosen.without.time as f64 / 1e3,
            "times_fastest": chosen.without.ratio,
            "uncertainty": compared(&chosen.without.uncertainty),
            "is_different": chosen.without.is_different,
        },
        "plan": written,
    })
}
