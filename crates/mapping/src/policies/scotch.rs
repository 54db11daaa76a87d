//! Scotch: mapping by dual recursive bipartitioning (Pellegrini 1994), the library itself.
//!
//! The machine becomes a tree-leaf target. Scotch's distance of two leaves is the *sum* of the link costs from their
//! common ancestor down, so it gets the differences of our levels' distances: 20, 10, 2 become 10, 8, 2. Uneven
//! machines, and restricted slots, are leaves of the smallest even tree that contains them. A node matrix cannot be
//! expressed in a tree: its mean over the pairs that part at a level represents the level.
//!
//! Weights are integers in Scotch: amounts that are not whole, or too large, are scaled so that their sum fits 2^40.
//! Its balance is a tolerance (1 %), not a capacity: tasks above ceil(N/P) on a PU are moved to the cheapest free seat
//! and counted. One thread, fixed seed. O(E log P).

use numaloc_model::LogicalPu;
use numaloc_topology::Topology;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::repair::repair;
use crate::scotch_sys::{self, Graph, Target};
use crate::slots::Spread;

/// Scotch's mapping strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Its default: multilevel k-way, recursive bipartitioning on the coarsest graph only.
    Default,
    /// Dual recursive bipartitioning throughout.
    Recursive,
    /// Its quality preset.
    Quality,
}

/// The policy; see the module documentation.
pub struct Scotch {
    /// The strategy.
    pub strategy: Strategy,
}

const IMBALANCE: f64 = 0.01;
/// The sum of all weights stays below this, so that sums of weight x distance fit 64 bits.
const WEIGHT_LIMIT: f64 = (1_u64 << 40) as f64;

impl MappingPolicy for Scotch {
    fn name(&self) -> &'static str {
        match self.strategy {
            Strategy::Recursive => "scotch",
            Strategy::Default => "scotch-kway",
            Strategy::Quality => "scotch-quality",
        }
    }

    fn summary(&self) -> &'static str {
        "dual recursive bipartitioning on the machine's tree"
    }

    fn source(&self) -> &'static str {
        "Scotch 1994, the library"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let capacity = input.slots(Spread::Auto).capacity().to_vec();
        let pus: Vec<usize> = (0..capacity.len()).filter(|&pu| capacity[pu] > 0).collect();
        if pus.len() < 2 || input.tasks() < 2 {
            let only = pus.first().copied().unwrap_or(0);
            return Ok(Mapped::plain(vec![
                LogicalPu::from_index(only);
                input.tasks()
            ]));
        }
        let (target, leaf) = target(input.topology(), &pus);
        let strategy = match self.strategy {
            Strategy::Default => scotch_sys::DEFAULT,
            Strategy::Recursive => scotch_sys::RECURSIVE,
            Strategy::Quality => scotch_sys::QUALITY,
        };
        // The library reduces its seed modulo a prime.
        let seed = (input.seed() % 1_000_000_007) as i64;
        let graph = graph(input);
        let part = scotch_sys::map(&graph, &target, strategy, IMBALANCE, seed).map_err(|call| {
            MapError::Library {
                policy: self.name(),
                library: "libscotch",
                call,
            }
        })?;
        let mut pu: Vec<usize> = part.iter().map(|&at| leaf[at as usize]).collect();
        let repaired = repair(input, &capacity, &mut pu);
        Ok(Mapped {
            repaired,
            ..Mapped::plain(pu.into_iter().map(LogicalPu::from_index).collect())
        })
    }
}

fn graph(input: &MapInput) -> Graph {
    let tasks = input.graph();
    let whole = tasks.pairs().all(|(_, _, w)| w.fract() == 0.0);
    let total = tasks.total().max(1.0);
    let scale = if whole && total <= WEIGHT_LIMIT {
        1.0
    } else {
        WEIGHT_LIMIT / total
    };
    let mut graph = Graph {
        start: vec![0],
        to: Vec::new(),
        weight: Vec::new(),
    };
    for task in 0..tasks.tasks() {
        for (other, w) in tasks.row(task) {
            graph.to.push(other as i64);
            graph.weight.push(((w * scale).round() as i64).max(1));
        }
        graph.start.push(graph.to.len() as i64);
    }
    graph
}

/// The smallest even tree that contains the PUs, and the PU of each of its used leaves.
fn target(topology: &Topology, pus: &[usize]) -> (Target, Vec<usize>) {
    let objects = topology.objects();
    let deepest = objects.iter().map(|o| o.depth as usize).max().unwrap_or(0);
    let mut children = vec![1; deepest + 1];
    for object in objects {
        let widest = &mut children[object.depth as usize];
        *widest = object.children.len().max(*widest);
    }
    let levels: Vec<usize> = (0..=deepest).filter(|&depth| children[depth] > 1).collect();
    let distances: Vec<f64> = levels
        .iter()
        .map(|&depth| level_distance(topology, depth))
        .collect();
    let mut position = vec![0; objects.len()];
    for object in objects {
        for (at, &child) in object.children.iter().enumerate() {
            position[child as usize] = at;
        }
    }
    let mut leaf_of: Vec<(i64, usize)> = pus
        .iter()
        .map(|&pu| {
            let (mut leaf, mut factor) = (0, 1);
            let mut path = vec![0; deepest + 1];
            let mut at = topology.pus()[pu].object;
            while let Some(parent) = objects[at as usize].parent {
                path[objects[parent as usize].depth as usize] = position[at as usize];
                at = parent;
            }
            for &depth in levels.iter().rev() {
                leaf += factor * path[depth] as i64;
                factor *= children[depth] as i64;
            }
            (leaf, pu)
        })
        .collect();
    leaf_of.sort_unstable();
    let sizes: Vec<i64> = levels.iter().map(|&depth| children[depth] as i64).collect();
    let all = sizes.iter().product::<i64>() == pus.len() as i64;
    let target = Target {
        links: links(&distances),
        leaves: if all {
            Vec::new()
        } else {
            leaf_of.iter().map(|&(leaf, _)| leaf).collect()
        },
        sizes,
    };
    (target, leaf_of.into_iter().map(|(_, pu)| pu).collect())
}

/// Integer link costs whose sums from a level down are proportional to the levels' distances.
fn links(distances: &[f64]) -> Vec<i64> {
    let below = |level: usize| distances.get(level + 1).copied().unwrap_or(0.0);
    let steps: Vec<f64> = (0..distances.len())
        .map(|l| distances[l] - below(l))
        .collect();
    let scale = if steps.iter().all(|s| s.fract() == 0.0) {
        1.0
    } else {
        100.0
    };
    // A level that is no farther than the one below still has a link cost in Scotch.
    steps
        .iter()
        .map(|s| ((s * scale).round() as i64).clamp(1, 1 << 20))
        .collect()
}

/// Mean distance of PUs whose paths part at objects of this depth, by the homes of their first PUs.
fn level_distance(topology: &Topology, depth: usize) -> f64 {
    let objects = topology.objects();
    let (mut sum, mut pairs) = (0.0, 0.0);
    for object in objects
        .iter()
        .filter(|o| o.depth as usize == depth && o.children.len() > 1)
    {
        // Without a matrix all pairs of an object are equally far apart: two children are enough.
        let examined = if topology.node_matrix().is_some() {
            object.children.len()
        } else {
            2
        };
        let first = |child: u32| LogicalPu(objects[child as usize].pus.start);
        for (at, &a) in object.children[..examined].iter().enumerate() {
            for &b in &object.children[at + 1..examined] {
                let (a, b) = (first(a), first(b));
                sum += topology.distance(a, b) + topology.distance(b, a);
                pairs += 2.0;
            }
        }
    }
    sum / f64::max(pairs, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluate;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    fn ring(tasks: usize) -> CommMatrix {
        let next = |t: usize| (t, (t + 1) % tasks, 1.0);
        CommMatrix::from_cells(tasks, (0..tasks).map(next)).unwrap()
    }

    const DRB: Scotch = Scotch {
        strategy: Strategy::Recursive,
    };

    #[test]
    fn a_ring_of_16_is_cut_four_times() {
        let machine = resolve("numa:4 core:4 pu:1").unwrap();
        let comm = ring(16);
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&DRB, &input).unwrap();
        assert_eq!(evaluate(&input, &mapped.mapping).remote, 4.0);
        assert_eq!(mapped.repaired, 0);
    }

    #[test]
    fn link_costs_are_differences_of_distances() {
        assert_eq!(links(&[20.0, 10.0, 2.0]), [10, 8, 2]);
        assert_eq!(links(&[1.5, 1.0]), [50, 100]);
    }

    #[test]
    fn uneven_and_restricted_machines_are_used_completely() {
        let machine = resolve("numa:3 core:3 pu:2").unwrap();
        for (tasks, spread) in [(18, Spread::Auto), (36, Spread::Auto), (5, Spread::Compact)] {
            let comm = ring(tasks);
            let input = MapInput::new(&comm, &machine).with_spread(spread);
            let mapped = crate::policy::map(&DRB, &input).unwrap();
            let mut used: Vec<u32> = mapped.mapping.pu.iter().map(|pu| pu.0).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used, (0..tasks.min(18) as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_same_from_any_thread() {
        let machine = resolve("numa:4 core:4 pu:2").unwrap();
        let comm = ring(32);
        let input = MapInput::new(&comm, &machine);
        let once = DRB.map(&input).unwrap();
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| DRB.map(&input).unwrap()))
                .collect();
            for run in runs {
                assert_eq!(run.join().unwrap(), once);
            }
        });
    }
}
