//! Pages and accesses on every node (data mapping Figs. 2 and 3).

use super::exclusivity::legend;
use super::{Axes, Drawing, Paint, SERIES};
use crate::number;

/// What one placement puts on every node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSeries {
    /// Name for the legend: `first touch` or the plan's.
    pub name: String,
    /// Pages or accesses by node.
    pub by_node: Vec<u64>,
}

/// Grouped bars: a group per node, a bar per placement; the first placement is the baseline.
#[must_use]
pub fn per_node(series: &[NodeSeries], word: &str, paint: Paint) -> String {
    let (width, height) = (530.0, 250.0);
    let mut drawing = Drawing::new(width, height, paint);
    let nodes = series.iter().map(|s| s.by_node.len()).max().unwrap_or(0);
    let most = series
        .iter()
        .flat_map(|s| &s.by_node)
        .max()
        .copied()
        .unwrap_or(0);
    let axes = Axes::draw(
        &mut drawing,
        (56.0, 30.0, width - 68.0, 172.0),
        most as f64,
        number::count,
    );
    let group = axes.width / nodes.max(1) as f64;
    let bar = (group * 0.76 / series.len().max(1) as f64).min(64.0);
    let colour = |at: usize| match at {
        0 => paint.other,
        1 => paint.accent,
        _ => SERIES[at % SERIES.len()],
    };
    for node in 0..nodes {
        let middle = axes.left + (node as f64 + 0.5) * group;
        let left = middle - bar * series.len() as f64 / 2.0;
        for (at, s) in series.iter().enumerate() {
            let value = s.by_node.get(node).copied().unwrap_or(0);
            let y = axes.y(value as f64).min(axes.bottom() - 1.5);
            let tip = format!(
                "node {node}, {}: {} {word}",
                s.name,
                number::count(value as f64)
            );
            drawing.rounded(
                left + at as f64 * bar + 1.0,
                y,
                (bar - 2.0).max(1.0),
                axes.bottom() - y,
                1.5,
                colour(at),
                "none",
                &tip,
            );
        }
        if nodes <= 32 || node % 8 == 0 {
            let label = if nodes <= 8 {
                format!("node {node}")
            } else {
                node.to_string()
            };
            drawing.label(middle, axes.bottom() + 17.0, &label);
        }
    }
    let entries: Vec<(&str, &str)> = series
        .iter()
        .enumerate()
        .map(|(at, s)| (colour(at), s.name.as_str()))
        .collect();
    legend(&mut drawing, axes.left, &entries);
    drawing.finish(&format!("{word} on every node"))
}
