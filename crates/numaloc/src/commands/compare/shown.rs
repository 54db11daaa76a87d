//! The table and the JSON of a comparison.

use numaloc_files::cell::cell;
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

impl Verdict {
    fn is_significant(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }
}

/// The times of a variant, in seconds, as every form of the comparison has them.
struct Times {
    runs: usize,
    mean: f64,
    half_width: f64,
    least: f64,
    most: f64,
    outliers: usize,
    speed_up: f64,
    verdict: Verdict,
}

/// Every variant with its times; the first is the system's default.
fn timed(variants: &[Variant]) -> impl Iterator<Item = (&Variant, Times)> {
    let base = &variants[0].seconds;
    variants.iter().enumerate().map(move |(at, variant)| {
        let seconds = &variant.seconds;
        let times = Times {
            runs: seconds.len(),
            mean: seconds.mean(),
            half_width: seconds.half_width(),
            least: seconds.least(),
            most: seconds.most(),
            outliers: seconds.outliers(),
            speed_up: base.mean() / seconds.mean(),
            verdict: match at {
                0 => Verdict::Default,
                _ if !differ(base, seconds) => Verdict::Open,
                _ if seconds.mean() < base.mean() => Verdict::Faster,
                _ => Verdict::Slower,
            },
        };
        (variant, times)
    })
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
    let mut out = String::from(
        "| variant | runs | mean | 95 % CI | min | max | outliers | speed-up | against default |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for (variant, times) in timed(variants) {
        let words = match times.verdict {
            Verdict::Default => "-",
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Open => "not significant",
        };
        out += &format!(
            "| {} | {} | {:.4} s | +- {:.4} s | {:.4} s | {:.4} s | {} | {:.3} x | {words} |\n",
            variant.name.replace('|', "\\|"),
            times.runs,
            times.mean,
            times.half_width,
            times.least,
            times.most,
            times.outliers,
            times.speed_up,
        );
    }
    out
}

/// The times as CSV.
pub fn csv(variants: &[Variant]) -> String {
    const HEADER: [&str; 9] = [
        "variant",
        "runs",
        "mean_s",
        "ci95_half_width_s",
        "min_s",
        "max_s",
        "outliers",
        "speed_up",
        "significant",
    ];
    let rows = timed(variants).map(|(variant, times)| {
        [
            cell(&variant.name).into_owned(),
            times.runs.to_string(),
            times.mean.to_string(),
            times.half_width.to_string(),
            times.least.to_string(),
            times.most.to_string(),
            times.outliers.to_string(),
            times.speed_up.to_string(),
            times.verdict.is_significant().to_string(),
        ]
    });
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in std::iter::once(HEADER.map(str::to_owned)).chain(rows) {
        writer.write_record(row).expect("memory takes every row");
    }
    let bytes = writer.into_inner().expect("memory takes every row");
    String::from_utf8(bytes).expect("rows of text")
}

/// The comparison as text.
pub fn text(variants: &[Variant], meters: &Meters, missing: &Missing) -> String {
    let counters = &meters.counters;
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
    for (variant, times) in timed(variants) {
        let (verdict, colour) = match times.verdict {
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
            variant.name, times.mean, times.half_width, times.least, times.most, times.speed_up,
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
    let rows: Vec<Value> = timed(variants)
        .map(|(variant, times)| {
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
                "runs": times.runs,
                "seconds": variant.seconds.values(),
                "mean_s": times.mean,
                "ci95_half_width_s": times.half_width,
                "min_s": times.least,
                "max_s": times.most,
                "outliers": times.outliers,
                "speed_up": times.speed_up,
                "significant": times.verdict.is_significant(),
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
