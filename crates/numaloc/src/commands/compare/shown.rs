//! The table and the JSON of a comparison.

use serde_json::{Map, Value, json};

use super::meters::Counters;
use super::statistics::{Sample, differ};
use super::{Meters, Variant, memory};

/// Why something was not measured.
pub struct Missing {
    /// The AutoNUMA variant.
    pub autonuma: Option<String>,
    /// Energy.
    pub energy: Option<String>,
    /// Hardware events.
    pub counters: Option<String>,
}

impl Missing {
    fn reasons(&self) -> impl Iterator<Item = (&'static str, &String)> {
        [
            ("autonuma", &self.autonuma),
            ("energy", &self.energy),
            ("LLC misses, local and remote DRAM", &self.counters),
        ]
        .into_iter()
        .filter_map(|(what, why)| Some((what, why.as_ref()?)))
    }
}

/// Colours of the terminal for what is significant.
const GREEN: &str = "\x1b[32m";
/// See [`GREEN`].
const RED: &str = "\x1b[31m";
/// Ends a colour.
const PLAIN: &str = "\x1b[0m";

/// A variant against the system's default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is the default.
    Default,
    Faster,
    Slower,
    /// The difference is not significant.
    Open,
}

fn verdict(at: usize, base: &Sample, variant: &Variant) -> Verdict {
    match at {
        0 => Verdict::Default,
        _ if !differ(base, &variant.seconds) => Verdict::Open,
        _ if variant.seconds.mean() < base.mean() => Verdict::Faster,
        _ => Verdict::Slower,
    }
}

/// A line on runs that took unusually long or short; empty if there are none.
fn outliers(variants: &[Variant]) -> String {
    let of = |variant: &Variant| match variant.seconds.outliers() {
        0 => None,
        count => Some(format!("{count} of {}", variant.name)),
    };
    let named: Vec<String> = variants.iter().filter_map(of).collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(
            "outliers: {}; --warm-up 1 if the first runs are slow, --prepare to start each from the same state\n",
            named.join(", ")
        ),
    }
}

/// The times as a Markdown table.
pub fn markdown(variants: &[Variant]) -> String {
    let base = &variants[0].seconds;
    let mut out = String::from(
        "| variant | runs | mean | 95 % CI | min | max | outliers | speed-up | against default |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for (at, variant) in variants.iter().enumerate() {
        let seconds = &variant.seconds;
        let words = match verdict(at, base, variant) {
            Verdict::Default => "-",
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Open => "not significant",
        };
        out += &format!(
            "| {} | {} | {:.4} s | +- {:.4} s | {:.4} s | {:.4} s | {} | {:.3} x | {words} |\n",
            variant.name.replace('|', "\\|"),
            seconds.len(),
            seconds.mean(),
            seconds.half_width(),
            seconds.least(),
            seconds.most(),
            seconds.outliers(),
            base.mean() / seconds.mean(),
        );
    }
    out
}

/// The times as CSV.
pub fn csv(variants: &[Variant]) -> String {
    let base = &variants[0].seconds;
    let mut out = String::from(
        "variant,runs,mean_s,ci95_half_width_s,min_s,max_s,outliers,speed_up,significant\n",
    );
    for (at, variant) in variants.iter().enumerate() {
        let seconds = &variant.seconds;
        let significant = !matches!(verdict(at, base, variant), Verdict::Default | Verdict::Open);
        out += &format!(
            "{},{},{},{},{},{},{},{},{significant}\n",
            csv_cell(&variant.name),
            seconds.len(),
            seconds.mean(),
            seconds.half_width(),
            seconds.least(),
            seconds.most(),
            seconds.outliers(),
            base.mean() / seconds.mean(),
        );
    }
    out
}

/// A text as one cell, whatever is in it.
fn csv_cell(text: &str) -> String {
    let cell = numaloc_files::cell::cell(text);
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.into_owned(),
    }
}

/// The comparison as text.
pub fn text(variants: &[Variant], meters: &Meters, missing: &Missing) -> String {
    let counters = &meters.counters;
    let base = &variants[0].seconds;
    let width = variants.iter().map(|v| v.name.len()).max().unwrap_or(0);
    let width = width.max("variant".len());
    let mut out = format!(
        "{:<width$} {:>10} {:>12} {:>10} {:>10} {:>9}  {:<16} {:>10}",
        "variant", "mean", "95 % CI +-", "min", "max", "speed-up", "against default", "energy"
    );
    for name in counters.names() {
        out += &format!(" {name:>20}");
    }
    out.push('\n');
    for (at, variant) in variants.iter().enumerate() {
        let (verdict, colour) = match verdict(at, base, variant) {
            Verdict::Default => ("-", ""),
            Verdict::Faster => ("significant", GREEN),
            Verdict::Slower => ("significant", RED),
            Verdict::Open => ("not significant", ""),
        };
        let end = if colour.is_empty() { "" } else { PLAIN };
        let joules = match variant.joules.len() {
            0 => "n/a".to_owned(),
            _ => format!("{:.2} J", variant.joules.mean()),
        };
        out += &format!(
            "{:<width$} {:>8.4} s {:>10.4} s {:>8.4} s {:>8.4} s {colour}{:>8.3}x  {verdict:<16}{end} {joules:>10}",
            variant.name,
            variant.seconds.mean(),
            variant.seconds.half_width(),
            variant.seconds.least(),
            variant.seconds.most(),
            base.mean() / variant.seconds.mean(),
        );
        for count in &variant.counts {
            let shown = match count.len() {
                0 => "n/a".to_owned(),
                _ => format!("{:.4e}", count.mean()),
            };
            out += &format!(" {shown:>20}");
        }
        out.push('\n');
    }
    out += &outliers(variants);
    for (what, why) in missing.reasons() {
        out += &format!("{what}: n/a ({why})\n");
    }
    let rows: Vec<(&str, &[Sample])> = variants
        .iter()
        .map(|variant| (variant.name.as_str(), &variant.memory[..]))
        .collect();
    out + &memory::text(meters.memory.figures(), meters.memory.missing(), &rows)
}

/// The comparison as JSON.
pub fn json(variants: &[Variant], meters: &Meters, missing: &Missing) -> Value {
    let counters = &meters.counters;
    let base = &variants[0].seconds;
    let rows: Vec<Value> = variants
        .iter()
        .enumerate()
        .map(|(at, variant)| {
            let energy = (variant.joules.len() > 0).then(|| variant.joules.mean());
            let counts: Map<String, Value> = counters
                .names()
                .iter()
                .zip(&variant.counts)
                .map(|(name, count)| {
                    let mean = (count.len() > 0).then(|| count.mean());
                    (name.clone(), json!(mean))
                })
                .collect();
            json!({
                "variant": variant.name,
                "runs": variant.seconds.len(),
                "seconds": variant.seconds.values(),
                "mean_s": variant.seconds.mean(),
                "ci95_half_width_s": variant.seconds.half_width(),
                "min_s": variant.seconds.least(),
                "max_s": variant.seconds.most(),
                "outliers": variant.seconds.outliers(),
                "speed_up": base.mean() / variant.seconds.mean(),
                "significant": at > 0 && differ(base, &variant.seconds),
                "energy_j": energy,
                "counters": counts,
                "remote_share": remote_share(variant, counters),
                "memory_system": memory::json(meters.memory.figures(), &variant.memory),
            })
        })
        .collect();
    json!({
        "version": 1,
        "variants": rows,
        "not_available": {
            "autonuma": missing.autonuma,
            "energy": missing.energy,
            "counters": missing.counters,
            "memory_system": memory::missing_json(meters.memory.missing()),
        },
    })
}

/// Share of loads from DRAM that went to another node, where the events for it exist.
fn remote_share(variant: &Variant, counters: &Counters) -> Option<f64> {
    let mean = |event: &str| {
        let at = counters.names().iter().position(|name| name == event)?;
        let count = variant.counts.get(at)?;
        (count.len() > 0).then(|| count.mean())
    };
    let (all, remote) = (mean("node-loads")?, mean("node-load-misses")?);
    (all > 0.0).then(|| remote / all)
}
