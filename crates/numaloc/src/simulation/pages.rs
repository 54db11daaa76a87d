//! Nodes of the profile's pages under a plan, and of the trace's pages from those.

use std::collections::HashMap;

use numaloc_model::plan::{ObjectKey, PagePlan, Plan};
use numaloc_model::{LogicalNode, Profile};
use numaloc_sim::Trace;

/// Node of each page of the profile that is in `pages`, by the plan's objects.
pub fn placed(plan: &Plan, pages: &[PagePlan], profile: &Profile) -> Vec<Option<LogicalNode>> {
    // Of objects with one identity (copies in forked processes), the first is placed.
    let mut known: HashMap<&ObjectKey, u32> = HashMap::new();
    for (key, at) in plan.objects.iter().zip(0..) {
        known.entry(key).or_insert(at);
    }
    // The plan's object of each object of the profile.
    let planned: Vec<Option<u32>> = profile
        .objects()
        .iter()
        .map(|object| {
            let creator = object
                .thread
                .map(|thread| profile.threads()[thread.index()].path.clone());
            let key = ObjectKey {
                kind: object.kind,
                name: object.name.clone(),
                creator,
                size: object.size,
                order: object.order,
            };
            known.get(&key).copied()
        })
        .collect();
    let mut ranges: Vec<Vec<&PagePlan>> = vec![Vec::new(); plan.objects.len()];
    for range in pages {
        ranges[range.object as usize].push(range);
    }
    let factor = (profile.pages().page_size(), plan.page_size);
    profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let object = planned[page.object?.index()]?;
            let at = page.object_page * factor.0 / factor.1;
            let holds = |range: &&&PagePlan| {
                (range.first_page..range.first_page + range.pages).contains(&at)
            };
            ranges[object as usize]
                .iter()
                .find(holds)
                .map(|range| range.node)
        })
        .collect()
}

/// Node of each page of the trace, from those of the profile's pages.
pub fn on_trace(
    nodes: &[Option<LogicalNode>],
    trace: &Trace,
    profile: &Profile,
) -> Vec<Option<LogicalNode>> {
    let factor = (trace.page_bytes() / profile.pages().page_size()).max(1);
    let mut known: HashMap<u64, Vec<LogicalNode>> = HashMap::new();
    for (page, node) in profile.pages().pages().iter().zip(nodes) {
        let parts = known.entry(page.number.0 / factor).or_default();
        parts.extend(node);
    }
    let home = |page: &u64| most_frequent(known.get(page)?);
    trace.pages().iter().map(home).collect()
}

/// The node of most parts of a page; of equally frequent ones, the lowest.
fn most_frequent(nodes: &[LogicalNode]) -> Option<LogicalNode> {
    let count = |node: LogicalNode| nodes.iter().filter(|other| **other == node).count();
    nodes
        .iter()
        .copied()
        .max_by_key(|&node| (count(node), std::cmp::Reverse(node)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_page_is_on_the_node_of_most_of_its_parts() {
        let of = |nodes: &[u32]| {
            most_frequent(&nodes.iter().map(|n| LogicalNode(*n)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2, 1, 1, 2]), Some(LogicalNode(1)));
        assert_eq!(of(&[0, 3, 3]), Some(LogicalNode(3)));
    }
}
