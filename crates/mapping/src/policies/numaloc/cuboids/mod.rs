//! Grids of tasks on hosts along a torus: cuboids of tasks on hosts, and the cuboids in the order of the torus.
//!
//! Recursive bisection cuts a grid well, but decides each half alone: the halves of different parts turn towards
//! different neighbours, and swaps of single hosts do not turn them back. Where the tasks are a grid in row-major order
//! ([`grid`]) and the hosts a full torus ([`torus`]), the good mappings are few enough to try: every dimension of the
//! torus is split over the dimensions of the grid, and what is left of these is the cuboid of a host. A dimension of
//! the grid that runs along several of the torus turns round at their ends. Inside a host, the nodes are split
//! likewise. The search that follows starts from the best one if that costs less than the bisection.
//!
//! Needs as many tasks as PUs and hosts of one size; else there is no answer. O(ways to split x sample + pairs).

mod factors;
mod grid;
mod layout;
mod torus;

use numaloc_model::{LogicalPu, Mapping};
use numaloc_topology::ObjectKind;

use crate::evaluate::cost;
use crate::input::MapInput;
use factors::ordered;
use layout::Layout;

/// Layouts that are compared in full, out of all that are compared by a sample.
const FINALISTS: usize = 4;
/// Ways to split a torus that are tried at most.
const MOST_LAYOUTS: usize = 20_000;
/// Tasks of the sample.
const SAMPLE: usize = 512;

/// The best mapping of cuboids; `None` if tasks or hosts have no such order.
pub(super) fn mapping(input: &MapInput) -> Option<Mapping> {
    let topology = input.topology();
    topology.node_matrix()?;
    let objects = topology.objects().iter();
    let hosts: Vec<_> = objects
        .filter(|object| object.kind == ObjectKind::Host && !object.pus.is_empty())
        .map(|object| object.pus.clone())
        .collect();
    let width = hosts.first()?.len();
    let even = hosts.iter().all(|pus| pus.len() == width);
    if hosts.len() < 2 || !even || input.tasks() != width * hosts.len() {
        return None;
    }
    let apart = |a: usize, b: usize| {
        let (a, b) = (hosts[a].start as usize, hosts[b].start as usize);
        input.distances().mean(a, b)
    };
    let torus = torus::recognised(hosts.len(), apart)?;
    let grid = grid::recognised(input.graph())?;

    let sample = sample(input);
    let mut found: Vec<(f64, Layout)> = Vec::new();
    for layout in Layout::all(&grid, &torus).take(MOST_LAYOUTS) {
        let host = layout.hosts();
        let cells = sample.iter().filter(|&&(a, b, _)| host[a] != host[b]);
        let value = cells.map(|&(a, b, w)| w * apart(host[a], host[b])).sum();
        if found.len() < FINALISTS || found.iter().any(|(v, _)| value < *v) {
            found.push((value, layout));
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            found.truncate(FINALISTS);
        }
    }
    let first = hosts[0].clone().map(|pu| topology.node_of(LogicalPu(pu)));
    let mut nodes: Vec<_> = first.collect();
    nodes.dedup();
    let mut best: Option<(f64, Mapping)> = None;
    for (_, layout) in &found {
        let host = layout.hosts();
        for nodes in ordered(nodes.len(), grid.len()) {
            let Some(inside) = layout.inside(&nodes) else {
                continue;
            };
            let pu = |task: usize| LogicalPu(hosts[host[task]].start + inside[task]);
            let mapping = Mapping {
                pu: (0..input.tasks()).map(pu).collect(),
            };
            let value = cost(input, &mapping);
            if best.as_ref().is_none_or(|(least, _)| value < *least) {
                best = Some((value, mapping));
            }
        }
    }
    best.map(|(_, mapping)| mapping)
}

/// What tasks evenly from all exchange with their partners.
fn sample(input: &MapInput) -> Vec<(usize, usize, f64)> {
    // An odd step meets all places within the cuboids of hosts, whose sides are mostly even.
    let step = (input.tasks() / SAMPLE) | 1;
    let tasks = (0..input.tasks()).step_by(step);
    let cells = tasks.flat_map(|a| input.graph().row(a).map(move |(b, w)| (a, b, w)));
    cells.collect()
}
