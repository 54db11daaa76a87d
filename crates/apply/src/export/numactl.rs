//! `numactl`: a set of PUs, and the plan's node as preferred or its nodes interleaved. Plans by `weighted-interleave`
//! use the kernel's policy of this name (numactl 2.0.19, Linux 6.9), whose weights are those of the whole system.

use super::{Target, commas, memory_nodes, set};
use numaloc_model::Plan;
use std::collections::BTreeMap;

/// The kernel's weights, a file for each node.
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// Largest weight that the kernel accepts.
const MOST: u64 = 255;
/// Relative error of a weight that is small enough: the kernel places as many pages in a row as the weight is.
const ERROR: f64 = 0.02;

/// See the module.
pub struct Numactl;

impl Target for Numactl {
    fn name(&self) -> &'static str {
        "numactl"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn memory(&self) -> Option<&'static str> {
        Some("one memory policy for the whole program")
    }

    fn needs(&self, plan: &Plan) -> Option<String> {
        if !is_weighted(plan) {
            return None;
        }
        let weights = weights(plan).into_iter();
        let lines: Vec<String> = weights
            .map(|(node, weight)| format!("echo {weight} > {WEIGHTS}/node{node}"))
            .collect();
        Some(format!(
            "numactl 2.0.19 and Linux 6.9 or newer; the weights of the whole system, set by root: {}",
            lines.join("; ")
        ))
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let memory = match nodes.as_slice() {
            [] => String::new(),
            [one] => format!(" --preferred={one}"),
            several if is_weighted(plan) => {
                format!(" --weighted-interleave={}", commas(several.iter().copied()))
            }
            several => format!(" --interleave={}", commas(several.iter().copied())),
        };
        format!("numactl --physcpubind={}{memory} --", commas(set(threads)))
    }
}

fn is_weighted(plan: &Plan) -> bool {
    plan.provenance.page_policy == "weighted-interleave" && memory_nodes(plan).len() > 1
}

/// The least weights with the proportions of the planned pages, by kernel number of the node.
fn weights(plan: &Plan) -> BTreeMap<u32, u64> {
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
