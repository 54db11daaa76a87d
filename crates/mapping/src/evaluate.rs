//! Evaluates a mapping from scratch, sharing no code with any policy's search.

use numaloc_model::Mapping;
use numaloc_topology::ObjectKind;

use crate::error::MappingFlaw;
use crate::input::MapInput;
use crate::lower_bound::lower_bound;

/// Figures of a mapping. Amounts are in the matrix's unit, distances in the topology's.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// J: sum over unordered pairs of weight x distance of their PUs.
    pub cost: f64,
    /// Sum of weights of pairs on different NUMA nodes (CMLB Eq. 4).
    pub remote: f64,
    /// Sum of weights of all pairs.
    pub total: f64,
    /// Load of every node that has PUs, in node order: the sum of the load vector, or without one the communication of
    /// the node's tasks.
    pub node_load: Vec<f64>,
    /// Population standard deviation of `node_load` (CMLB Eq. 6, with the missing square).
    pub load_std: f64,
    /// Largest of `node_load`.
    pub worst_load: f64,
    /// Largest of `node_load` over their mean, at least 1; 1 when there is no load.
    pub node_imbalance: f64,
    /// With concurrency groups: the largest amount that one group's pairs bring to one node's memory
    /// controller, half of a pair's amount at either task's node.
    pub worst_concurrent: Option<f64>,
    /// No mapping can have a lower cost.
    pub lower_bound: f64,
}

impl Evaluation {
    /// Upper bound of `cost` over the optimal cost: 1 is proven optimal.
    #[must_use]
    pub fn at_most_times_optimal(&self) -> f64 {
        if self.lower_bound > 0.0 {
            self.cost / self.lower_bound
        } else if self.cost > 0.0 {
            f64::INFINITY
        } else {
            1.0
        }
    }
}

/// J alone. Cost: O(pairs that communicate).
///
/// # Panics
/// If the mapping has fewer tasks than the input.
#[must_use]
pub fn cost(input: &MapInput, mapping: &Mapping) -> f64 {
    let pu = |task: usize| mapping.pu[task].index();
    input
        .graph()
        .pairs()
        .map(|(a, b, w)| w * input.distances().mean(pu(a), pu(b)))
        .sum()
}

/// Sum of the weights of pairs on different NUMA nodes (CMLB eq. 4). Cost: O(pairs that communicate).
///
/// # Panics
/// If the mapping has fewer tasks than the input.
#[must_use]
pub fn remote(input: &MapInput, mapping: &Mapping) -> f64 {
    let node = |task: usize| input.topology().node_of(mapping.pu[task]);
    input
        .graph()
        .pairs()
        .filter(|&(a, b, _)| node(a) != node(b))
        .map(|(_, _, w)| w)
        .sum()
}

/// Sum of the weights of pairs on different hosts of a cluster; `None` on a machine of one host.
/// Cost: O(objects + pairs that communicate).
///
/// # Panics
/// If the mapping has fewer tasks than the input.
#[must_use]
pub fn between_hosts(input: &MapInput, mapping: &Mapping) -> Option<f64> {
    let objects = input.topology().objects().iter();
    let hosts: Vec<u32> = objects
        .filter(|object| object.kind == ObjectKind::Host && !object.pus.is_empty())
        .map(|object| object.pus.start)
        .collect();
    let host = |task: usize| hosts.partition_point(|&first| first <= mapping.pu[task].0);
    let pairs = input.graph().pairs();
    (hosts.len() > 1).then(|| {
        pairs
            .filter(|&(a, b, _)| host(a) != host(b))
            .map(|(_, _, w)| w)
            .sum()
    })
}

/// Load of every node that has PUs, in node order; see [`Evaluation::node_load`].
///
/// # Panics
/// If the mapping has fewer tasks than the input.
#[must_use]
pub fn node_loads(input: &MapInput, mapping: &Mapping) -> Vec<f64> {
    by_node(input, mapping, &input.task_loads())
}

/// Sums amounts of tasks by node. Nodes without PUs hold no tasks and are left out.
fn by_node(input: &MapInput, mapping: &Mapping, amounts: &[f64]) -> Vec<f64> {
    let topology = input.topology();
    let mut sum = vec![0.0; topology.nodes().len()];
    for (task, amount) in amounts.iter().enumerate() {
        sum[topology.node_of(mapping.pu[task]).index()] += amount;
    }
    let nodes = topology.nodes_with_pus().into_iter();
    nodes.map(|n| sum[n.index()]).collect()
}

/// Population standard deviation (CMLB eq. 6, with the missing square); 0 for an empty slice.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}

/// Evaluates a mapping in full.
///
/// # Panics
/// If the mapping has fewer tasks than the input.
#[must_use]
pub fn evaluate(input: &MapInput, mapping: &Mapping) -> Evaluation {
    let node_load = node_loads(input, mapping);
    let mean = node_load.iter().sum::<f64>() / node_load.len() as f64;
    let worst_load = node_load.iter().copied().fold(0.0, f64::max);
    let worst_concurrent = (!input.groups().is_empty()).then(|| {
        let of_group = |group: &numaloc_model::TaskGroup| {
            let mut half = vec![0.0; input.tasks()];
            for pair in &group.pairs {
                half[pair.a.index()] += pair.in_group / 2.0;
                half[pair.b.index()] += pair.in_group / 2.0;
            }
            by_node(input, mapping, &half)
                .into_iter()
                .fold(0.0, f64::max)
        };
        input.groups().iter().map(of_group).fold(0.0, f64::max)
    });
    Evaluation {
        cost: cost(input, mapping),
        remote: remote(input, mapping),
        total: input.graph().total(),
        load_std: deviation(&node_load),
        worst_load,
        node_imbalance: if mean > 0.0 { worst_load / mean } else { 1.0 },
        node_load,
        worst_concurrent,
        lower_bound: lower_bound(input),
    }
}

/// Checks that a mapping gives every task one existing PU and no PU more than ceil(tasks / PUs).
///
/// # Errors
/// [`MappingFlaw`] names the violation.
pub fn check_mapping(input: &MapInput, mapping: &Mapping) -> Result<(), MappingFlaw> {
    let (tasks, pus) = (input.tasks(), input.topology().pus().len());
    if mapping.pu.len() != tasks {
        let pus = mapping.pu.len();
        return Err(MappingFlaw::Length { pus, tasks });
    }
    let limit = tasks.div_ceil(pus);
    let mut used = vec![0; pus];
    for (task, pu) in mapping.pu.iter().enumerate() {
        match used.get_mut(pu.index()) {
            None => return Err(MappingFlaw::Outside { task, pu: *pu, pus }),
            Some(used) => *used += 1,
        }
        if used[pu.index()] > limit {
            return Err(MappingFlaw::Crowded {
                pu: *pu,
                limit,
                tasks,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::{CommMatrix, LogicalPu};
    use numaloc_topology::resolve;

    #[test]
    fn four_threads_on_two_nodes_by_hand() {
        // Nodes {L#0, L#1} and {L#2, L#3}; distance 10 between nodes, 2 inside.
        let machine = resolve("numa:2 core:2 pu:1").unwrap();
        let machine = machine.with_level_distances(&[10.0, 2.0]).unwrap();
        let comm = CommMatrix::from_cells(4, [(0, 1, 3.0), (1, 2, 5.0), (3, 0, 1.0)]).unwrap();
        let load = [1.0, 2.0, 3.0, 6.0];
        let input = MapInput::new(&comm, &machine).with_load(Some(&load));
        let mapping = Mapping {
            pu: [0, 2, 3, 1].map(LogicalPu).to_vec(),
        };
        let found = evaluate(&input, &mapping);
        // 0-1: 3 x 10, 1-2: 5 x 2, 3-0: 1 x 2.
        assert_eq!((found.cost, found.remote, found.total), (42.0, 3.0, 9.0));
        // Node 0 has tasks 0 and 3, node 1 has 1 and 2: 7 and 5, mean 6.
        assert_eq!(found.node_load, [7.0, 5.0]);
        assert_eq!((found.load_std, found.worst_load), (1.0, 7.0));
        assert_eq!(found.node_imbalance, 7.0 / 6.0);
        assert!(found.lower_bound <= 42.0 && found.lower_bound > 0.0);
    }

    #[test]
    fn a_broken_mapping_is_refused_with_a_reason() {
        let machine = resolve("numa:2 core:2 pu:1").unwrap();
        let input = MapInput::new(&CommMatrix::empty(3), &machine);
        let says = |pu: &[u32]| {
            let pu = pu.iter().copied().map(LogicalPu).collect();
            check_mapping(&input, &Mapping { pu })
        };
        assert!(says(&[0, 3, 1]).is_ok());
        let why = |pu: &[u32]| says(pu).unwrap_err().to_string();
        assert_eq!(why(&[0, 3]), "2 PUs for 3 tasks");
        assert_eq!(why(&[0, 3, 4]), "task 2 is on L#4 of a machine of 4 PUs");
        assert_eq!(why(&[0, 3, 3]), "L#3 has more than 1 of 3 tasks");
    }
}
