//! Weights of the kernel's weighted interleaving (Linux 6.9) with the proportions of a plan's pages.

use numaloc_model::Plan;
use numaloc_sys::weights::FOLDER;
use std::collections::BTreeMap;

/// Largest weight that the kernel accepts.
const MOST: u64 = 255;
/// Relative error of a weight that is small enough: the kernel places as many pages in a row as the weight is.
pub(crate) const ERROR: f64 = 0.01;
/// The page policy whose plans have weights.
const POLICY: &str = "weighted-interleave";

/// Whether a plan distributes pages over several nodes by weights.
pub(crate) fn is_weighted(plan: &Plan) -> bool {
    plan.provenance.page_policy == POLICY && pages(plan).len() > 1
}

/// A line for `sh` for each node, which sets its weight.
pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    of(plan)
        .into_iter()
        .map(|(node, weight)| format!("echo {weight} > {FOLDER}/node{node}"))
        .collect()
}

/// Planned pages, by kernel number of the node.
pub(crate) fn pages(plan: &Plan) -> BTreeMap<u32, u64> {
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for range in &plan.pages {
        *pages.entry(range.os_node.0).or_default() += range.pages;
    }
    pages
}

/// The least weights with the proportions of the planned pages, by kernel number of the node; if none are as close as
/// [`ERROR`], those that are closest.
pub(crate) fn of(plan: &Plan) -> BTreeMap<u32, u64> {
    let pages = pages(plan);
    let most = pages.values().copied().max().unwrap_or(1) as f64;
    let scaled = |largest: u64| -> BTreeMap<u32, u64> {
        let weight = |&pages: &u64| ((pages as f64 / most * largest as f64).round() as u64).max(1);
        pages
            .iter()
            .map(|(&node, pages)| (node, weight(pages)))
            .collect()
    };
    let error = |largest: u64, weights: &BTreeMap<u32, u64>| {
        let of_node = pages.iter().map(|(node, &pages)| {
            let wanted = pages as f64 / most * largest as f64;
            (weights[node] as f64 / wanted - 1.0).abs()
        });
        of_node.fold(0.0, f64::max)
    };
    let mut closest = (f64::INFINITY, BTreeMap::new());
    for largest in 1..=MOST {
        let weights = scaled(largest);
        let error = error(largest, &weights);
        if error < closest.0 {
            closest = (error, weights);
        }
        if closest.0 <= ERROR {
            break;
        }
    }
    closest.1
}
