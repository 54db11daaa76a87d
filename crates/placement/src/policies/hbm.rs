//! `hbm`: whole objects in high-bandwidth memory, those with most lines for their size first; all else by first touch.
//!
//! This is what a programmer decides with memkind (Cantalupo et al., "memkind: An Extensible Heap Memory Manager for
//! Heterogeneous Memory Platforms", 2015): `hbw_malloc` instead of `malloc` for the arrays that need bandwidth.
//! Where the library leaves it to the programmer:
//!
//! - High-bandwidth memory: nodes without PUs whose memory has more bandwidth than that of any node with PUs.
//! - Objects are taken by the lines beyond private caches that they have for each page, largest first, if at least half
//!   of their lines are swept: HBM has more bandwidth than DDR, and no lower latency.
//! - Each page of an object goes to the high-bandwidth node that is nearest to the node that uses the page most, as
//!   `MEMKIND_HBW` takes the nearest node of the thread that allocates.
//! - An object goes there as a whole or not at all; one that does not fit is skipped, and smaller ones may follow.
//! - Pages of no known object cannot be allocated otherwise and stay.

use std::collections::BTreeMap;

use numaloc_model::{LogicalNode, ObjectIdx};

use super::PlacementPolicy;
use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::tiers::{self, Demand, Machine};
use crate::view::View;

/// The policy; see the module documentation.
pub struct Hbm;

impl PlacementPolicy for Hbm {
    fn name(&self) -> &'static str {
        "hbm"
    }

    fn summary(&self) -> &'static str {
        "whole objects that are swept in HBM"
    }

    fn source(&self) -> &'static str {
        "memkind, Cantalupo et al. 2015"
    }

    fn counts_lines(&self) -> bool {
        true
    }

    fn check(&self, input: &PlaceInput) -> Result<(), PlaceError> {
        let policy = self.name();
        let Some(hardware) = input.topology.hardware() else {
            return Err(PlaceError::NoBandwidth { policy });
        };
        match tiers::high_bandwidth(input.topology, hardware).is_empty() {
            true => Err(PlaceError::NoHighBandwidth { policy }),
            false => Ok(()),
        }
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        choose(view).nodes
    }

    fn remark(&self, view: &View) -> Option<String> {
        let chosen = choose(view);
        let pages = chosen.nodes.iter().flatten().count() as u64;
        let mib = (pages * view.usage().page_size()) as f64 / f64::from(1 << 20);
        Some(format!(
            "in high-bandwidth memory: {} of {} objects, {mib:.1} MiB; swept but too large for it: {}",
            chosen.taken, chosen.objects, chosen.too_large
        ))
    }
}

/// Lines of an object, all and of sweeps, and its pages.
#[derive(Default)]
struct Use {
    lines: f64,
    swept: f64,
    pages: Vec<usize>,
}

impl Use {
    fn lines_of_page(&self) -> f64 {
        self.lines / self.pages.len() as f64
    }
}

struct Chosen {
    nodes: Vec<Option<LogicalNode>>,
    objects: usize,
    taken: usize,
    too_large: usize,
}

fn choose(view: &View) -> Chosen {
    let hardware = view.topology().hardware().expect("figures, as checked");
    let near = nearest(view, &tiers::high_bandwidth(view.topology(), hardware));
    let demand = Demand::of(view);
    let mut objects: BTreeMap<ObjectIdx, Use> = BTreeMap::new();
    for item in &demand.items {
        let Some(object) = item.object else { continue };
        let used = objects.entry(object).or_default();
        used.lines += item.total();
        used.swept += if item.swept { item.total() } else { 0.0 };
        used.pages.extend(&item.pages);
    }
    let mut order: Vec<(&ObjectIdx, &Use)> = objects.iter().collect();
    order.retain(|(_, used)| used.lines > 0.0 && used.swept * 2.0 >= used.lines);
    order.sort_by(|a, b| {
        let larger = b.1.lines_of_page().total_cmp(&a.1.lines_of_page());
        larger.then(a.0.cmp(b.0))
    });
    let mut chosen = Chosen {
        nodes: vec![None; view.usage().pages().len()],
        objects: objects.len(),
        taken: 0,
        too_large: 0,
    };
    let mut room = view.capacity();
    let mut counts = view.counts();
    for (_, used) in order {
        let mut homes = Vec::with_capacity(used.pages.len());
        let mut rest = room.clone();
        let mut fits = true;
        for &at in &used.pages {
            let page = &view.usage().pages()[at];
            view.by_node(page, &mut counts);
            let user = view.max_node(page, &counts).map_or(0, LogicalNode::index);
            let home = near[user];
            fits &= rest[home.index()] > 0;
            rest[home.index()] = rest[home.index()].saturating_sub(1);
            homes.push((at, home));
        }
        if !fits {
            chosen.too_large += 1;
            continue;
        }
        room = rest;
        chosen.taken += 1;
        for (at, home) in homes {
            chosen.nodes[at] = Some(home);
        }
    }
    chosen
}

/// The high-bandwidth node that is nearest to each node; ties: the lower node.
fn nearest(view: &View, high: &[LogicalNode]) -> Vec<LogicalNode> {
    let hardware = view.topology().hardware().expect("figures, as checked");
    let machine = Machine::of(view.topology(), hardware);
    (0..view.counts().len())
        .map(|user| {
            let all = high.iter().copied();
            let seconds = |node: LogicalNode| machine.memory_s(user, node.index());
            all.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b)).then(a.cmp(&b)))
                .expect("high-bandwidth memory, as checked")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::test_support::{machine, mapping, nodes_of, of_objects, usage};
    use crate::{PlaceError, PlaceInput, place, policy};

    const NAME: &str = "hbm";

    #[test]
    fn objects_that_are_swept_go_as_a_whole_by_their_lines_for_each_page() {
        // Threads 0 and 1 run on the first and third node of xeon-max, whose high-bandwidth memory is node 1 and 5.
        // Object 0: swept, 2 pages; object 1: swept twice, 1 page of each thread; object 2: read here and there.
        let topology = numaloc_topology::resolve("xeon-max-9480-snc4").unwrap();
        let pu = |node: usize| topology.nodes()[node].pus[0].0;
        let mapping = mapping(&[pu(0), pu(4)]);
        let pages = of_objects(&[
            (0, &[(0, 512)]),
            (0, &[(0, 512)]),
            (1, &[(0, 1024)]),
            (1, &[(1, 1024)]),
            (2, &[(0, 90)]),
        ]);
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of(NAME, &input), [1, 1, 1, 5, -1]);
        // With room for two pages on node 1, object 0 does not fit after object 1, and no part of it goes there.
        let mut capacity = vec![9; 16];
        capacity[1] = 2;
        input.capacity = Some(&capacity);
        assert_eq!(nodes_of(NAME, &input), [-1, -1, 1, 5, -1]);
        let placed = place(policy(NAME).unwrap(), &input).unwrap();
        assert!(
            placed.diagnostics[0].contains("1 of 3 objects"),
            "{:?}",
            placed.diagnostics
        );
    }

    #[test]
    fn machines_without_high_bandwidth_memory_are_refused() {
        let pages = usage(&[&[(0, 512)]]);
        let mapping = mapping(&[0]);
        let error = |topology| {
            let input = PlaceInput::new(&pages, &mapping, topology);
            place(policy(NAME).unwrap(), &input).unwrap_err()
        };
        let plain = machine(2);
        assert_eq!(error(&plain), PlaceError::NoBandwidth { policy: NAME });
        // The memory of its expanders is slower.
        let cxl = numaloc_topology::resolve("cxl-2s").unwrap();
        assert_eq!(error(&cxl), PlaceError::NoHighBandwidth { policy: NAME });
    }
}
