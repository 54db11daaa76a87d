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

/// The comparison as text.
pub fn text(variants: &[Variant], meters: &Meters, missing: &Missing) -> String {
    let counters = &meters.counters;
    let base = &variants[0].seconds;
    let width = variants.iter().map(|v| v.name.len()).max().unwrap_or(0);
    let width = width.max("variant".len());
    let mut out = format!(
        "{:<width$} {:>10} {:>12} {:>9}  {:<16} {:>10}",
        "variant", "mean", "95 % CI +-", "speed-up", "against default", "energy"
    );
    for name in counters.names() {
        out += &format!(" {name:>20}");
    }
    out.push('\n');
    for (at, variant) in variants.iter().enumerate() {
        let verdict = match at {
            0 => "-",
            _ if differ(base, &variant.seconds) => "significant",
            _ => "not significant",
        };
        let joules = match variant.joules.len() {
            0 => "n/a".to_owned(),
            _ => format!("{:.2} J", variant.joules.mean()),
        };
        out += &format!(
            "{:<width$} {:>8.4} s {:>10.4} s {:>8.3}x  {verdict:<16} {joules:>10}",
            variant.name,
            variant.seconds.mean(),
            variant.seconds.half_width(),
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
