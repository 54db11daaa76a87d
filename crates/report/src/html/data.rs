//! What the page's script needs: matrices by layer and by stretch of the run, orders, names.

use std::fmt::Write;
use std::ops::Range;

use numaloc_model::Layer;
use numaloc_model::profile::Amount;
use serde_json::{Value, json};

use super::{Report, encode, lanes};
use crate::figures::{self, escape};
use crate::number;
use crate::plan::PlanView;

/// Maximum number of characters of matrix data in one report, so that the file stays below 5 MB.
const MATRIX_BUDGET: usize = 2_400_000;

/// A part of the run with its own matrix.
pub(super) struct View {
    /// Stable name, which is also displayed.
    name: String,
    slices: Range<usize>,
    colour: Option<&'static str>,
    pairs: Option<usize>,
}

/// Clusters of concurrent communication and phases of the pattern; a kind with only one member is left out.
pub(super) fn views(report: &Report<'_>) -> Vec<View> {
    let c = report.found;
    let mut views = Vec::new();
    let clusters = &c.concurrency.clusters;
    if clusters.len() > 1 {
        for (at, (cluster, group)) in clusters.iter().zip(&c.concurrency.groups).enumerate() {
            views.push(View {
                name: format!("cluster {}", at + 1),
                slices: cluster.first.index()..cluster.last.index() + 1,
                colour: Some(figures::SERIES[at % figures::SERIES.len()]),
                pairs: Some(group.pairs.len()),
            });
        }
    }
    let phases = figures::shown_phases(c);
    if phases.len() > 1 {
        views.extend(phases.into_iter().map(|at| View {
            name: format!("phase {}", at + 1),
            slices: c.pattern_phases[at].clone(),
            colour: None,
            pairs: None,
        }));
    }
    views
}

/// A button for each view.
pub(super) fn chips(out: &mut String, report: &Report<'_>, views: &[View]) {
    if views.is_empty() {
        return;
    }
    *out += "<div class=\"chips\" role=\"group\" aria-label=\"Show one part of the run in the matrix\">\
             <button type=\"button\" class=\"chip\" data-view=\"whole run\">whole run</button>";
    for view in views {
        let c = report.found;
        let sum: u64 = c.timeline.weighed(c.layer)[view.slices.clone()]
            .iter()
            .sum();
        let dot = view.colour.map_or_else(String::new, |colour| {
            format!("<i style=\"background:{colour}\"></i>")
        });
        let pairs = view.pairs.map_or_else(String::new, |pairs| {
            format!(
                ", {} pair{}",
                number::count(pairs as f64),
                if pairs == 1 { "" } else { "s" }
            )
        });
        let _ = write!(
            out,
            "<button type=\"button\" class=\"chip\" data-view=\"{name}\" title=\"slices {} to {}\">{dot}{name}: {}{pairs}</button>",
            view.slices.start,
            view.slices.end - 1,
            number::weighed(c.layer, sum as f64),
            name = escape(&view.name),
        );
    }
    *out += "</div>\n";
}

/// The data block.
pub(super) fn of(report: &Report<'_>, views: &[View]) -> Value {
    let (profile, c) = (report.profile, report.found);
    let threads = profile.threads().len();
    let bins = threads.min(encode::SIDE);
    let mut spent = 0;
    let mut left_out = 0;
    let mut layers: Vec<(Layer, Vec<Value>)> = Vec::new();
    let mut push = |layer: Layer, name: &str, unit: &str, matrix: &numaloc_model::CommMatrix| {
        let coded = encode::matrix(matrix, bins);
        let size = coded["cells"].as_str().map_or(0, str::len);
        if spent + size > MATRIX_BUDGET {
            left_out += 1;
            return;
        }
        spent += size;
        let view = json!({"name": name, "unit": unit, "matrix": coded});
        match layers.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, views)) => views.push(view),
            None => layers.push((layer, vec![view])),
        }
    };
    // Most important first, because the budget cuts off the end.
    let unit = |layer| match Amount::of_layer(layer) {
        Amount::Bytes => "bytes",
        Amount::Events => "events",
    };
    push(c.layer, "whole run", unit(c.layer), c.weighed());
    let others = profile
        .layers()
        .into_iter()
        .filter(|&layer| layer != c.layer);
    for layer in others {
        if let Ok(matrix) = profile.matrix(layer, Amount::of_layer(layer)) {
            push(layer, "whole run", unit(layer), &matrix);
        }
    }
    if c.layer.is_message() {
        push(c.layer, "whole run, events", "events", &c.events);
    } else if c.bytes.stored_cells() > 0 {
        push(c.layer, "whole run, bytes", "bytes", &c.bytes);
    }
    for view in views {
        let slices = view.slices.start as u32..view.slices.end as u32;
        if let Ok(matrix) = profile.matrix_of_slices(c.layer, Amount::of_layer(c.layer), slices) {
            push(c.layer, &view.name, unit(c.layer), &matrix);
        }
    }
    let orders: Vec<Value> = if bins < threads {
        Vec::new()
    } else {
        let plans = report.plans.iter();
        plans.map(|plan| order(plan, threads)).collect()
    };
    json!({
        "threads": threads,
        "bins": bins,
        "labels": profile.threads().iter().map(|t| match t.shown() {
            Some(label) => format!("{} {label}", t.path),
            None => t.path.clone(),
        }).take(encode::SIDE).collect::<Vec<_>>(),
        "layers": layers.into_iter().map(|(layer, views)| {
            json!({"name": layer.name(), "views": views})
        }).collect::<Vec<_>>(),
        "orders": orders,
        "leftOut": left_out,
        "timelines": lanes::of(report),
    })
}

/// Threads by planned node and PU, and where a new node begins.
fn order(plan: &PlanView, threads: usize) -> Value {
    let mut order: Vec<usize> = (0..threads).collect();
    let key = |t: usize| (plan.assignment.node(t), plan.pus[t], t);
    order.sort_by_key(|&t| key(t));
    let starts: Vec<usize> = (1..threads)
        .filter(|&at| plan.assignment.node(order[at]) != plan.assignment.node(order[at - 1]))
        .collect();
    json!({"name": format!("by node of {}", plan.name), "order": order, "starts": starts})
}
