//! Figures of the memory system as text and JSON, with their sources and with what the machine does not offer.

use std::collections::BTreeSet;

use numaloc_perf::uncore::Topic;
use numaloc_perf::uncore::figures::Figure;
use serde_json::{Value, json};

use super::statistics::Sample;

/// One line for each figure of each socket, one column for each variant (its name and samples).
pub fn text(figures: &[Figure], missing: &[(Topic, String)], rows: &[(&str, &[Sample])]) -> String {
    let mut out = String::new();
    if !figures.is_empty() {
        let widths: Vec<usize> = rows.iter().map(|(name, _)| name.len().max(10)).collect();
        out += &format!("\n{:<22} {:<24} {:<8}", "memory system", "socket", "unit");
        for ((name, _), width) in rows.iter().zip(&widths) {
            out += &format!(" {name:>width$}");
        }
        out.push('\n');
        for (at, figure) in figures.iter().enumerate() {
            out += &format!(
                "{:<22} {:<24} {:<8}",
                figure.name,
                place(figure),
                figure.unit
            );
            for ((_, samples), width) in rows.iter().zip(&widths) {
                let shown = match samples.get(at).filter(|sample| sample.len() > 0) {
                    Some(sample) => format!("{:.4}", sample.mean()),
                    None => "n/a".to_owned(),
                };
                out += &format!(" {shown:>width$}");
            }
            out.push('\n');
        }
        let from: BTreeSet<(&str, &str)> = figures
            .iter()
            .map(|figure| (figure.name, figure.from.as_str()))
            .collect();
        out += "measured by:\n";
        for (name, from) in from {
            out += &format!("  {name}: {from}\n");
        }
    }
    if !missing.is_empty() {
        out += "not offered by this machine:\n";
        for (topic, why) in missing {
            out += &format!("  {} ({why})\n", topic.name());
        }
    }
    out
}

/// `0 (nodes 0,1)`.
fn place(figure: &Figure) -> String {
    let nodes: Vec<String> = figure.nodes.iter().map(u32::to_string).collect();
    match &nodes[..] {
        [] => figure.socket.to_string(),
        [node] => format!("{} (node {node})", figure.socket),
        nodes => format!("{} (nodes {})", figure.socket, nodes.join(",")),
    }
}

/// The figures of a variant.
pub fn json(figures: &[Figure], samples: &[Sample]) -> Vec<Value> {
    let each = figures.iter().zip(samples).map(|(figure, sample)| {
        json!({
            "figure": figure.name,
            "socket": figure.socket,
            "nodes": figure.nodes,
            "unit": figure.unit,
            "mean": (sample.len() > 0).then(|| sample.mean()),
            "values": sample.values(),
            "from": figure.from,
        })
    });
    each.collect()
}

/// Topics that are not measured, and why.
pub fn missing_json(missing: &[(Topic, String)]) -> Vec<Value> {
    let each = missing
        .iter()
        .map(|(topic, why)| json!({ "what": topic.name(), "why": why }));
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use numaloc_perf::uncore::{Counter, Quantity, Source, figures};

    #[test]
    fn every_figure_has_a_line_a_unit_and_a_source() {
        let counter = |socket, quantity, pmu: &str| Counter {
            pmu: pmu.to_owned(),
            event: "e".to_owned(),
            source: Source::Event {
                kind: 9,
                config: [0; 3],
                cpu: 0,
            },
            socket,
            quantity,
            scale: 1.0,
        };
        let counters = [
            counter(0, Quantity::LinkSent, "uncore_upi_0"),
            counter(1, Quantity::LinkSent, "uncore_upi_0"),
            counter(1, Quantity::DramEnergy, "power"),
        ];
        let nodes = BTreeMap::from([(0, vec![0, 1]), (1, vec![2])]);
        let figures = figures::of(&counters, &nodes);
        let mut samples = vec![Sample::default(); figures.len()];
        samples[0].push(1.0);
        samples[0].push(2.0);
        let missing = [(Topic::Dram, "no such PMU".to_owned())];
        let text = text(&figures, &missing, &[("os-default", &samples[..])]);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            words[2],
            ["link-sent", "0", "(nodes", "0,1)", "GB", "1.5000"]
        );
        assert_eq!(words[3], ["link-sent", "1", "(node", "2)", "GB", "n/a"]);
        assert_eq!(words[4], ["dram-energy", "1", "(node", "2)", "J", "n/a"]);
        assert!(text.contains("  link-sent: uncore_upi_0/e/\n"), "{text}");
        let end = "not offered by this machine:\n  DRAM volume and bandwidth (no such PMU)\n";
        assert!(text.ends_with(end), "{text}");
        let json = json(&figures, &samples);
        assert_eq!(json[0]["mean"], 1.5);
        assert_eq!(json[0]["nodes"], json!([0, 1]));
        assert_eq!(json[1]["mean"], Value::Null);
        assert_eq!(json[2]["from"], "power/e/");
    }
}
