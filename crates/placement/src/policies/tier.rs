//! `tier`: pages that threads wait for on the fastest memory, as far as this stays the fastest; what is swept or
//! cold on the others.
//!
//! The rule is that of Colloid (Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!",
//! SOSP 2024): a page moves to the tier with the lower *loaded* latency, until both are equal. Colloid measures
//! latencies and moves pages while the program runs; here latencies follow from controllers, links and the profile,
//! and all pages are placed before the run. Where the paper is silent, and deviations:
//!
//! - Any number of nodes: every node with memory is a tier of its own for each node that has threads.
//! - Pages of one object, one main user and one class of heat (a power of two) are one item. Items are placed in
//!   the order of the time that threads wait for them, in small parts; each part goes to the node where its lines
//!   take least time at the load so far, of those with room.
//! - The time that threads wait: slow loads, if the profile has them; else lines beyond private caches, of which
//!   twenty of a sweep are waited for at once.
//! - Three orders are tried: by wait for each page (capacity decides), by lines for each page (capacity decides,
//!   and the others' bandwidth is short; not if the profile has slow loads) and by wait for each line (bandwidth
//!   decides). The load that an item adds depends on the time of the run; the shortest time for which the estimate
//!   holds is searched.
//! - An item on several nodes is dealt page by page, so that its neighbouring pages use all of them.
//! - Pages without lines come last and stay where their main user's memory has room.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::deal::deal;
use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::tiers::{self, Demand, Item, Loads, Machine};
use crate::view::View;

/// Parts of an item, if it were all of the program.
const PARTS: f64 = 128.0;
/// Steps of the search for the time of a run.
const STEPS: usize = 24;

/// The policy; see the module documentation.
pub struct Tier;

impl PlacementPolicy for Tier {
    fn name(&self) -> &'static str {
        "tier"
    }

    fn summary(&self) -> &'static str {
        "pages that threads wait for on the fastest memory"
    }

    fn source(&self) -> &'static str {
        "Colloid, Vuppalapati 2024"
    }

    fn counts_lines(&self) -> bool {
        true
    }

    fn check(&self, input: &PlaceInput) -> Result<(), PlaceError> {
        tiers::check(self.name(), input)
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let demand = Demand::of(view);
        let machine = machine(view);
        let found = search(&demand, &machine, view);
        let mut nodes = vec![None; view.usage().pages().len()];
        for (item, parts) in demand.items.iter().zip(&found.pages) {
            if parts.iter().all(|&pages| pages == 0) {
                continue;
            }
            let dealt = deal(parts, item.pages.len());
            for (&page, node) in item.pages.iter().zip(dealt) {
                nodes[page] = Some(LogicalNode::from_index(node));
            }
        }
        nodes
    }

    fn remark(&self, view: &View) -> Option<String> {
        let demand = Demand::of(view);
        let machine = machine(view);
        let found = search(&demand, &machine, view);
        let nodes = view.counts().len();
        let mut lines = vec![0.0; nodes];
        for (item, parts) in demand.items.iter().zip(&found.pages) {
            for (sum, &pages) in lines.iter_mut().zip(parts) {
                *sum += item.total() * pages as f64 / item.pages.len() as f64;
            }
        }
        let total = lines.iter().sum::<f64>().max(1.0);
        let used = (0..nodes).filter(|&node| lines[node] > 0.0);
        let of_node = used.map(|node| {
            let share = lines[node] / total * 100.0;
            let readers = (0..nodes).filter(|&reader| demand.readers[reader].accesses > 0.0);
            let nearest = readers
                .map(|reader| found.loads.latency_s(reader, node, found.run_s))
                .fold(f64::INFINITY, f64::min);
            format!("node {node} {share:.1} % at {:.0} ns", nearest * 1e9)
        });
        let of_node: Vec<String> = of_node.collect();
        (!of_node.is_empty()).then(|| {
            format!(
                "lines by node, and how long one takes at this load: {}",
                of_node.join(", ")
            )
        })
    }
}

fn machine(view: &View) -> Machine {
    let hardware = view.topology().hardware().expect("figures, as checked");
    Machine::of(view.topology(), hardware)
}

/// Pages of every item on every node.
struct Found<'a> {
    pages: Vec<Vec<u64>>,
    loads: Loads<'a>,
    run_s: f64,
}

/// The placement with the shortest time.
fn search<'a>(demand: &Demand, machine: &'a Machine, view: &View) -> Found<'a> {
    let by_page = |item: &Item| item.stall_of_page();
    let by_lines = |item: &Item| item.total() / item.pages.len() as f64;
    let by_line = |item: &Item| item.stall / item.total().max(f64::MIN_POSITIVE);
    let mut best: Option<Found> = None;
    let mut orders = vec![
        order(&demand.items, &[&by_page]),
        order(&demand.items, &[&by_line, &by_page]),
    ];
    if !demand.stall_is_measured {
        orders.insert(1, order(&demand.items, &[&by_lines]));
    }
    for order in orders {
        let mut offer = |run_s: f64| {
            let found = fill(demand, &order, machine, view, run_s);
            let is_shorter = best.as_ref().is_none_or(|best| found.run_s < best.run_s);
            let seconds = found.run_s;
            if is_shorter {
                best = Some(found);
            }
            seconds
        };
        let mut high = offer(f64::INFINITY);
        let mut low = 0.0;
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            // The load in a time that is too short is spread too far.
            match offer(middle) > middle {
                true => low = middle,
                false => high = middle,
            }
        }
    }
    best.expect("a placement")
}

/// Items by the largest values first; of equals the lower index.
fn order(items: &[Item], values: &[&dyn Fn(&Item) -> f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| {
        let larger = |value: &&dyn Fn(&Item) -> f64| value(&items[b]).total_cmp(&value(&items[a]));
        let compared = values.iter().map(larger);
        compared
            .fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            .then(a.cmp(&b))
    });
    order
}

/// Places items in order at the latencies of a run of `run_s`.
fn fill<'a>(
    demand: &Demand,
    order: &[usize],
    machine: &'a Machine,
    view: &View,
    run_s: f64,
) -> Found<'a> {
    let nodes = view.counts().len();
    let mut room = view.capacity();
    for (node, room) in room.iter_mut().enumerate() {
        if view.topology().memory_of(LogicalNode::from_index(node)) == Some(0) {
            *room = 0;
        }
    }
    let all_pages = view.usage().pages().len() as f64;
    let all_lines: f64 = demand.items.iter().map(Item::total).sum::<f64>().max(1.0);
    let mut loads = Loads::none(machine);
    let mut pages = vec![vec![0; nodes]; demand.items.len()];
    for &at in order {
        let item = &demand.items[at];
        let share = (item.total() / all_lines).max(item.pages.len() as f64 / all_pages);
        let parts = (PARTS * share).ceil().max(1.0);
        let of_part = ((item.pages.len() as f64 / parts).ceil() as u64).max(1);
        let mut left = item.pages.len() as u64;
        while left > 0 {
            let with_room = (0..nodes).filter(|&node| room[node] > 0);
            let costs =
                with_room.map(|node| (cost_s(&loads, item, node, demand, machine, run_s), node));
            let Some((_, node)) = costs.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                break;
            };
            let taken = of_part.min(left).min(room[node]);
            room[node] -= taken;
            left -= taken;
            pages[at][node] += taken;
            loads.add(item, node, taken as f64 / item.pages.len() as f64);
        }
    }
    let run_s = loads.run_s(demand);
    Found {
        pages,
        loads,
        run_s,
    }
}

/// What an item costs on a node; without lines, how far it is from its threads.
fn cost_s(
    loads: &Loads,
    item: &Item,
    node: usize,
    demand: &Demand,
    machine: &Machine,
    run_s: f64,
) -> f64 {
    if item.total() > 0.0 {
        return loads.cost_s(item, node, run_s);
    }
    let readers = demand.readers.iter().enumerate();
    let working = readers.filter(|(_, of)| of.accesses > 0.0);
    working
        .map(|(reader, _)| machine.memory_s(reader, node))
        .fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use crate::test_support::{machine, mapping, nodes_of, of_objects, usage};
    use crate::{PlaceError, PlaceInput, place, policy};
    use numaloc_model::ThreadIdx;
    use numaloc_model::profile::{SlowLoadRow, SlowLoads};

    const NAME: &str = "tier";

    #[test]
    fn hot_pages_take_the_fast_memory_and_cold_ones_what_is_left() {
        // Node 0 of cxl-2s holds two pages, its expander is node 1.
        let topology = numaloc_topology::resolve("cxl-2s").unwrap();
        let mapping = mapping(&[0]);
        let pages = usage(&[&[(0, 3)], &[(0, 100)], &[(0, 2)], &[(0, 200)]]);
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of(NAME, &input), [0, 0, 0, 0]);
        input.capacity = Some(&[2, 9, 0, 0]);
        assert_eq!(nodes_of(NAME, &input), [1, 0, 1, 0]);
        // Loads that hardware saw to be slow decide, if the profile has them.
        let slow = |page, loads| SlowLoadRow {
            page,
            thread: ThreadIdx(0),
            loads,
        };
        let loads = SlowLoads {
            source: "samples".to_owned(),
            rows: vec![slow(0, 40), slow(2, 90)],
        };
        input.slow_loads = Some(&loads);
        assert_eq!(nodes_of(NAME, &input), [0, 1, 0, 1]);
    }

    #[test]
    fn promotion_stops_where_the_loaded_latencies_of_the_tiers_are_equal() {
        // 32 threads of the first socket sweep 960 pages: 215 GB/s of the socket's memory and 24 of the expander's are
        // not enough, so both are full and finish together: 24 / 239 = 10.0 % of the pages are on the expander.
        let topology = numaloc_topology::resolve("cxl-2s").unwrap();
        let pus: Vec<u32> = (0..32).collect();
        let on_one = mapping(&pus);
        let rows: Vec<[(u32, u64); 1]> = (0..960).map(|page| [(page % 32, 512)]).collect();
        let rows: Vec<(u32, &[(u32, u64)])> = rows.iter().map(|row| (0, &row[..])).collect();
        let pages = of_objects(&rows);
        let mut input = PlaceInput::new(&pages, &on_one, &topology);
        input.capacity = Some(&[2000, 2000, 0, 0]);
        let nodes = nodes_of(NAME, &input);
        let slow = nodes.iter().filter(|node| **node == 1).count();
        assert!((77..=105).contains(&slow), "{slow}");
        // Spread over the whole sweep, not a block of neighbours.
        let in_front = nodes[..480].iter().filter(|node| **node == 1).count();
        assert!(in_front.abs_diff(slow - in_front) <= 2, "{in_front} {slow}");
        // One thread does not fill the socket's memory.
        let one = mapping(&[0; 32]);
        let input = PlaceInput {
            mapping: &one,
            ..input
        };
        assert!(nodes_of(NAME, &input).iter().all(|node| *node == 0));
    }

    #[test]
    fn what_threads_wait_for_goes_before_what_is_swept() {
        // Object 0 is swept by 32 threads, object 1 read here and there: if bandwidth is short, object 0 is spread.
        let topology = numaloc_topology::resolve("cxl-2s").unwrap();
        let pus: Vec<u32> = (0..32).collect();
        let on_one = mapping(&pus);
        let swept: Vec<[(u32, u64); 1]> = (0..640).map(|page| [(page % 32, 512)]).collect();
        let random: Vec<Vec<(u32, u64)>> = (0..64)
            .map(|_| (0..32).map(|thread| (thread, 2)).collect())
            .collect();
        let swept = swept.iter().map(|row| (0, &row[..]));
        let rows: Vec<(u32, &[(u32, u64)])> = swept
            .chain(random.iter().map(|row| (1, &row[..])))
            .collect();
        let pages = of_objects(&rows);
        let mut input = PlaceInput::new(&pages, &on_one, &topology);
        input.capacity = Some(&[2000, 2000, 0, 0]);
        let nodes = nodes_of(NAME, &input);
        assert!(nodes[..640].contains(&1), "{nodes:?}");
        assert!(nodes[640..].iter().all(|node| *node == 0), "{nodes:?}");
    }

    #[test]
    fn machines_that_it_is_not_for_are_refused() {
        let pages = usage(&[&[(0, 3)], &[(0, 9)]]);
        let mapping = mapping(&[0]);
        let error = |input: &PlaceInput| place(policy(NAME).unwrap(), input).unwrap_err();
        let plain = machine(2);
        let input = PlaceInput::new(&pages, &mapping, &plain);
        assert_eq!(error(&input), PlaceError::NoBandwidth { policy: NAME });
        let even = numaloc_topology::resolve("skylake-4s").unwrap();
        let input = PlaceInput::new(&pages, &mapping, &even);
        assert_eq!(error(&input), PlaceError::OneKind { policy: NAME });
        let cxl = numaloc_topology::resolve("cxl-2s").unwrap();
        let mut input = PlaceInput::new(&pages, &mapping, &cxl);
        input.capacity_bytes = Some(&[4096, 4095, 0, 0]);
        assert_eq!(
            error(&input),
            PlaceError::TooSmall {
                policy: NAME,
                pages: 2,
                room: 1
            }
        );
        input.capacity_bytes = Some(&[4096]);
        assert_eq!(error(&input), PlaceError::Capacity { given: 1, nodes: 4 });
    }
}
