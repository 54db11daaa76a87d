//! EagerMap (Cruz, Diener, Pilla, Navaux, PDP 2015): greedy groups, level by level from the PUs up.
//!
//! A group starts with the first free element and grows by the free element that exchanges most with its members (ties:
//! the first). Groups of a level are as equal in size as possible; they are the elements of the next level. Each child
//! of a machine object gets one member of the object's group.
//!
//! Deviations: groups are filled exactly if the elements fit the level exactly (uneven machines, where the paper's
//! equal sizes would overload PUs); the published code is limited to two shared levels and 1,024 tasks, this is not.
//! O(levels x N x cells per task) time with sparse rows, at worst O(N^3).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::hierarchy::Hierarchy;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::repair::repair;
use crate::slots::Spread;
use crate::tasks::TaskGraph;

/// The policy; see the module documentation.
pub struct EagerMap;

impl MappingPolicy for EagerMap {
    fn name(&self) -> &'static str {
        "eager-map"
    }

    fn summary(&self) -> &'static str {
        "greedy groups from the PUs up"
    }

    fn source(&self) -> &'static str {
        "EagerMap 2015"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let capacity = input.slots(Spread::Auto).capacity().to_vec();
        let hierarchy = Hierarchy::new(input.topology(), &capacity);
        let mut members: Vec<Vec<Vec<usize>>> = Vec::new();
        let mut graph = input.graph().clone();
        let pus = hierarchy.pus.len();
        // The per-PU level comes first: it holds the tasks of each PU.
        let per_pu: Vec<usize> = hierarchy
            .pus
            .iter()
            .map(|&pu| capacity[pu] as usize)
            .collect();
        for children in std::iter::once(&per_pu).chain(&hierarchy.children) {
            let groups = grow(&graph, &sizes(graph.tasks(), children));
            let mut group_of = vec![0; graph.tasks()];
            for (group, elements) in groups.iter().enumerate() {
                elements
                    .iter()
                    .for_each(|&element| group_of[element] = group as u32);
            }
            graph = graph.contracted(&group_of, groups.len());
            members.push(groups);
        }
        let mut pu = vec![0; input.tasks()];
        descend(&hierarchy, &members, &mut |task, position| {
            pu[task] = hierarchy.pus[position.min(pus - 1)];
        });
        let repaired = repair(input, &capacity, &mut pu);
        Ok(Mapped {
            repaired,
            ..Mapped::plain(pu.into_iter().map(LogicalPu::from_index).collect())
        })
    }
}

/// Sizes of the groups of a level: those of its blocks if they fit, else as equal as possible, the larger ones first.
fn sizes(elements: usize, children: &[usize]) -> Vec<usize> {
    if children.iter().sum::<usize>() == elements {
        return children.to_vec();
    }
    let groups = elements.min(children.len()).max(1);
    (0..groups)
        .map(|k| elements / groups + usize::from(k < elements % groups))
        .collect()
}

/// Greedy groups of the given sizes.
fn grow(graph: &TaskGraph, sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut free = vec![true; graph.tasks()];
    let mut first = 0;
    let mut exchange = vec![0.0_f64; graph.tasks()];
    let mut near = Vec::new();
    sizes
        .iter()
        .map(|&size| {
            let mut group = Vec::with_capacity(size);
            while group.len() < size {
                while first < free.len() && !free[first] {
                    first += 1;
                }
                // The free neighbour with the largest exchange, or else the first free element.
                near.retain(|&element: &usize| free[element]);
                let best = near
                    .iter()
                    .copied()
                    .max_by(|&a, &b| exchange[a].total_cmp(&exchange[b]).then(b.cmp(&a)));
                let next = best.unwrap_or(first);
                free[next] = false;
                group.push(next);
                for (other, weight) in graph.row(next) {
                    if free[other] {
                        if exchange[other] == 0.0 {
                            near.push(other);
                        }
                        exchange[other] += weight;
                    }
                }
            }
            near.clear();
            exchange.fill(0.0);
            group
        })
        .collect()
}

/// Descends groups and blocks together and calls `seat` with every task and its position among the PUs in use.
fn descend(
    hierarchy: &Hierarchy,
    members: &[Vec<Vec<usize>>],
    seat: &mut impl FnMut(usize, usize),
) {
    // Positions of blocks: where a block's children start at the level below.
    let starts: Vec<Vec<usize>> = hierarchy
        .children
        .iter()
        .map(|level| {
            let start = |sum: &mut usize, &count: &usize| {
                let here = *sum;
                *sum += count;
                Some(here)
            };
            level.iter().scan(0, start).collect()
        })
        .collect();
    // (level, group, block), level 0 being the PUs.
    let top = members.len() - 1;
    let mut open: Vec<(usize, usize, usize)> = (0..members[top].len())
        .map(|group| (top, group, group))
        .collect();
    while let Some((level, group, block)) = open.pop() {
        for (k, &member) in members[level][group].iter().enumerate() {
            if level == 0 {
                seat(member, block);
            } else {
                let children = hierarchy.children[level - 1][block];
                open.push((
                    level - 1,
                    member,
                    starts[level - 1][block] + k.min(children - 1),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluate;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    fn map(spec: &str, tasks: usize, cells: &[(usize, usize, f64)]) -> (Vec<u32>, f64) {
        let machine = resolve(spec).unwrap();
        let comm = CommMatrix::from_cells(tasks, cells.iter().copied()).unwrap();
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&EagerMap, &input).unwrap();
        assert_eq!(mapped.repaired, 0);
        let value = evaluate(&input, &mapped.mapping);
        (
            mapped.mapping.pu.iter().map(|pu| pu.0).collect(),
            value.remote,
        )
    }

    #[test]
    fn groups_by_hand() {
        // Cores of two PUs, nodes of two cores. Core groups: 0 takes 3 (8); 1 takes 6 (7); 2 takes 7
        // (6); 4 and 5 are left. Between groups: A={0,3} B={1,6} C={2,7} D={4,5}; A-D 3 (0-4),
        // B-C 2 (1-2). Node groups: A with D, B with C.
        let cells = [
            (0, 3, 8.0),
            (1, 6, 7.0),
            (2, 7, 6.0),
            (0, 4, 3.0),
            (1, 2, 2.0),
        ];
        let (pu, remote) = map("numa:2 core:2 pu:2", 8, &cells);
        assert_eq!(pu, [0, 4, 6, 1, 2, 3, 5, 7]);
        assert_eq!(remote, 0.0);
    }

    #[test]
    fn fewer_tasks_spread_and_more_tasks_share() {
        let (pu, _) = map("numa:2 core:2 pu:1", 2, &[(0, 1, 1.0)]);
        assert_eq!(pu, [0, 2]);
        let (pu, _) = map("numa:2 core:2 pu:1", 8, &[(0, 7, 1.0), (1, 6, 1.0)]);
        assert_eq!(pu, [0, 1, 2, 2, 3, 3, 1, 0]);
    }
}
