//! Weights of the kernel's weighted interleaving (Linux 6.9) with the proportions of a plan's pages.

use numaloc_model::Plan;
use std::collections::BTreeMap;

/// The kernel's weights, a file for each node.
const FOLDER: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// Largest weight that the kernel accepts.
const MOST: u64 = 255;
/// Relative error of a weight that is small enough: the kernel places as many pages in a row as the weight is.
const ERROR: f64 = 0.02;

/// A line for `sh` for each node, which sets its weight.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    of(plan)
        .into_iter()
        .map(|(node, weight)| format!("echo {weight} > {FOLDER}/node{node}"))
        .collect()
}

/// The least weights with the proportions of the planned pages, by kernel number of the node.
fn of(plan: &Plan) -> BTreeMap<u32, u64> {
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for range in &plan.pages {
        *pages.entry(range.os_node.0).or_default() += range.pages;
    }
    let most = pages.values().copied().max().unwrap_or(1) as f64;
    let scaled = |largest: u64| -> BTreeMap<u32, u64> {
        let weight = |&pages: &u64| ((pages as f64 / most * largest as f64).round() as u64).max(1);
        pages
            .iter()
            .map(|(&node, pages)| (node, weight(pages)))
            .collect()
    };
    let is_close = |weights: &BTreeMap<u32, u64>, largest: u64| {
        pages.iter().all(|(node, &pages)| {
            let wanted = pages as f64 / most * largest as f64;
            (weights[node] as f64 - wanted).abs() <= ERROR * wanted
        })
    };
    let mut found = (1..=MOST).map(|largest| (largest, scaled(largest)));
    let close = found.find(|(largest, weights)| is_close(weights, *largest));
    close.map_or_else(|| scaled(MOST), |(_, weights)| weights)
}
