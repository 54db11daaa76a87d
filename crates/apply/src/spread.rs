//! Which pages of a plan by `weighted-interleave` the kernel can distribute by its own policy of this name, and why it
//! does not distribute the others: its weights are those of the whole system, set by the administrator.
//!
//! The kernel chooses the node of a page by the page's position in its mapping, modulo the sum of the weights. Every
//! whole round of neighbouring pages therefore has as many pages on each node as its weight is, wherever it begins.
//! What remains of an object after its last whole round is placed page by page, so both ways give the same counts.

use numaloc_model::Plan;
use std::collections::BTreeMap;
use std::io;

use crate::index::{PlanIndex, Run};
use crate::ptrace::errno_name;
use crate::weights;

/// The kernel's pages, in which it counts rounds.
const PAGE_BYTES: u64 = 4096;
/// Neighbouring pages of an object from which the policy is used: a single page has no proportion.
const LEAST_PAGES: u64 = 64;
/// Difference of a node's pages from its weight in a planned object: that of the rule by which pages are dealt.
const DEALT: f64 = 2.0;

/// How the pages of a plan by `weighted-interleave` are placed; for all other plans it is empty.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// By object: ranges of pages that the kernel distributes.
    rounds: Vec<Vec<(u64, u64)>>,
    nodes: Vec<u32>,
    /// Which way is taken, and why.
    note: Option<String>,
}

impl Spread {
    /// Compares a plan, indexed by `index`, with the weights of the system ([`numaloc_sys::weights`]).
    #[must_use]
    pub fn of(plan: &Plan, index: &PlanIndex, system: io::Result<BTreeMap<u32, u8>>) -> Self {
        if !weights::is_weighted(plan) {
            return Self::default();
        }
        match rounds(plan, index, system) {
            Ok((rounds, nodes, note)) => Self {
                rounds,
                nodes,
                note: Some(format!(
                    "weighted-interleave by the kernel's policy: {note}"
                )),
            },
            Err(why) => Self::by_pages(&why),
        }
    }

    fn by_pages(why: &str) -> Self {
        Self {
            note: Some(format!("weighted-interleave page by page: {why}")),
            ..Self::default()
        }
    }

    /// The ranges of pages of an object that the kernel distributes, in their order.
    #[must_use]
    pub fn rounds(&self, object: usize) -> &[(u64, u64)] {
        self.rounds.get(object).map_or(&[], Vec::as_slice)
    }

    /// The nodes over which it distributes them (kernel numbers).
    #[must_use]
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The kernel has refused the policy: from now on all pages are placed one by one.
    pub fn refused(&mut self, errno: i32) {
        let errno = errno_name(errno);
        *self = Self::by_pages(&format!("the kernel refuses its policy ({errno})"));
    }

    /// Which way is taken, and why; `None` for plans by other policies.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

type Rounds = (Vec<Vec<(u64, u64)>>, Vec<u32>, String);

fn rounds(
    plan: &Plan,
    index: &PlanIndex,
    system: io::Result<BTreeMap<u32, u8>>,
) -> Result<Rounds, String> {
    if plan.page_size != PAGE_BYTES {
        return Err(format!(
            "the plan has pages of {} bytes, the kernel counts by 4096",
            plan.page_size
        ));
    }
    if !plan.schedule.is_empty() {
        return Err("the plan moves pages later".to_owned());
    }
    let system = system.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "this kernel has no such policy (Linux 6.9 has it)".to_owned(),
        _ => format!("the system's weights cannot be read: {error}"),
    })?;
    let pages = weights::pages(plan);
    let weight = |node: &u32| {
        let none = || format!("the system has no weight for node {node}");
        system.get(node).copied().map(u64::from).ok_or_else(none)
    };
    let each: Vec<u64> = pages.keys().map(weight).collect::<Result<_, _>>()?;
    let shares = Shares {
        nodes: pages.keys().copied().collect(),
        round: each.iter().sum(),
        each,
    };
    let shown = |weights: Vec<u64>| {
        let weights: Vec<String> = weights.iter().map(u64::to_string).collect();
        weights.join(":")
    };
    let counts: Vec<u64> = pages.into_values().collect();
    if !shares.fit(&counts) {
        return Err(format!(
            "the system's weights are {}, the plan's {} (plan --export sysfs-weights writes what sets them)",
            shown(shares.each),
            shown(weights::of(plan).into_values().collect())
        ));
    }
    let rounds: Vec<Vec<(u64, u64)>> = (0..plan.objects.len())
        .map(|object| shares.rounds(index.runs(object)))
        .collect();
    let taken: u64 = rounds
        .iter()
        .flatten()
        .map(|(first, end)| end - first)
        .sum();
    let all: u64 = counts.iter().sum();
    if taken == 0 {
        return Err(format!(
            "no object has {LEAST_PAGES} neighbouring pages in the proportions of the system's weights"
        ));
    }
    let note = format!(
        "the system's weights are the plan's ({}); {taken} of {all} pages, the rest page by page",
        shown(shares.each)
    );
    Ok((rounds, shares.nodes, note))
}

/// The system's weights of the nodes of a plan.
struct Shares {
    nodes: Vec<u32>,
    each: Vec<u64>,
    /// Their sum.
    round: u64,
}

impl Shares {
    /// Whether the numbers of pages of each node have the proportions of the weights.
    fn fit(&self, pages: &[u64]) -> bool {
        let all: u64 = pages.iter().sum();
        pages.iter().zip(&self.each).all(|(&pages, &weight)| {
            let by_weight = all as f64 * weight as f64 / self.round as f64;
            (by_weight - pages as f64).abs() <= weights::ERROR * pages as f64 + DEALT
        })
    }

    /// The whole rounds of neighbouring pages that have the proportions of the weights.
    fn rounds(&self, runs: &[Run]) -> Vec<(u64, u64)> {
        let neighbours = runs.chunk_by(|one, next| one.end == next.first);
        let whole = neighbours.filter_map(|runs| {
            let (first, last) = (runs.first()?.first, runs.last()?.end);
            let end = first + (last - first) / self.round * self.round;
            let mut pages = vec![0; self.nodes.len()];
            for run in runs.iter().filter(|run| run.first < end) {
                let at = self.nodes.iter().position(|&node| node == run.node)?;
                pages[at] += run.end.min(end) - run.first;
            }
            (end - first >= LEAST_PAGES && self.fit(&pages)).then_some((first, end))
        });
        whole.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::plan::{ObjectKey, PagePlan};
    use numaloc_model::profile::ObjectKind;
    use numaloc_model::{LogicalNode, OsNode};

    /// Objects of these numbers of pages, dealt 3:1 over nodes 0 and 2.
    fn plan(objects: &[u64]) -> Plan {
        let key = |order| ObjectKey {
            kind: ObjectKind::Mapping,
            name: "[anon]".to_owned(),
            creator: Some("0".to_owned()),
            size: 4096,
            order,
        };
        let mut plan = Plan::by_hand("test", "test");
        plan.provenance.page_policy = "weighted-interleave".to_owned();
        plan.page_size = PAGE_BYTES;
        plan.objects = (0..objects.len() as u32).map(key).collect();
        let pages = objects.iter().enumerate().flat_map(|(object, &pages)| {
            (0..pages).map(move |page| PagePlan {
                object: object as u32,
                first_page: page,
                pages: 1,
                node: LogicalNode(0),
                os_node: OsNode(if page % 4 == 1 { 2 } else { 0 }),
            })
        });
        plan.pages = pages.collect();
        plan
    }

    fn of(plan: &Plan, system: &[(u32, u8)]) -> Spread {
        let index = PlanIndex::new(plan, usize::MAX);
        Spread::of(plan, &index, Ok(system.iter().copied().collect()))
    }

    #[test]
    fn whole_rounds_are_the_kernels_and_the_rest_is_not() {
        let plan = plan(&[101, 63, 1000]);
        let spread = of(&plan, &[(0, 3), (1, 9), (2, 1)]);
        assert_eq!(spread.nodes(), [0, 2]);
        assert_eq!(spread.rounds(0), [(0, 100)]);
        assert!(spread.rounds(1).is_empty(), "too small");
        assert_eq!(spread.rounds(2), [(0, 1000)]);
        let note = spread.note().unwrap();
        assert!(note.contains("by the kernel's policy"), "{note}");
        assert!(note.contains("(3:1); 1100 of 1164 pages"), "{note}");
        // A common factor makes longer rounds only.
        assert_eq!(of(&plan, &[(0, 6), (2, 2)]).rounds(0), [(0, 96)]);
    }

    #[test]
    fn a_hole_ends_the_neighbours() {
        let mut plan = plan(&[1000]);
        plan.pages.remove(403);
        let spread = of(&plan, &[(0, 3), (2, 1)]);
        assert_eq!(spread.rounds(0), [(0, 400), (404, 1000)]);
    }

    #[test]
    fn other_weights_a_missing_one_and_an_old_kernel_leave_all_pages_to_us() {
        let plan = plan(&[1000]);
        let why = |spread: Spread| {
            assert!(spread.rounds(0).is_empty());
            spread.note().unwrap().to_owned()
        };
        let other = why(of(&plan, &[(0, 1), (2, 1)]));
        assert!(other.contains("page by page"), "{other}");
        assert!(other.contains("weights are 1:1, the plan's 3:1"), "{other}");
        let missing = why(of(&plan, &[(0, 3)]));
        assert!(missing.contains("no weight for node 2"), "{missing}");
        let index = PlanIndex::new(&plan, usize::MAX);
        let none = Err(io::Error::from(io::ErrorKind::NotFound));
        let old = why(Spread::of(&plan, &index, none));
        assert!(old.contains("no such policy (Linux 6.9"), "{old}");
    }

    #[test]
    fn an_object_that_is_dealt_otherwise_is_placed_page_by_page() {
        // As many pages on each node as by the weights, but no object has their proportions.
        let mut plan = plan(&[400, 400]);
        for page in &mut plan.pages {
            let is_far = page.object == 1 && page.first_page < 200;
            page.os_node = OsNode(if is_far { 2 } else { 0 });
        }
        let spread = of(&plan, &[(0, 3), (2, 1)]);
        assert!(spread.rounds(0).is_empty() && spread.rounds(1).is_empty());
        let note = spread.note().unwrap();
        assert!(note.contains("no object has"), "{note}");
    }

    #[test]
    fn plans_by_other_policies_say_nothing_of_it() {
        let mut plan = plan(&[1000]);
        plan.provenance.page_policy = "interleave".to_owned();
        let spread = of(&plan, &[(0, 3), (2, 1)]);
        assert!(spread.note().is_none() && spread.rounds(0).is_empty());
    }

    #[test]
    fn larger_pages_and_later_moves_are_refused_in_one_line() {
        let mut large = plan(&[1000]);
        large.page_size = 2 << 20;
        let note = of(&large, &[(0, 3), (2, 1)]).note().unwrap().to_owned();
        assert!(note.contains("pages of 2097152 bytes"), "{note}");
        let mut later = plan(&[1000]);
        later.schedule.push(numaloc_model::plan::PhasePlan {
            at: 0.5,
            trigger: None,
            predicted: None,
            threads: Vec::new(),
            pages: Vec::new(),
        });
        let note = of(&later, &[(0, 3), (2, 1)]).note().unwrap().to_owned();
        assert!(note.contains("moves pages later"), "{note}");
    }
}
