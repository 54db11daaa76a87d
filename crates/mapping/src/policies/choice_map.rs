//! ChoiceMap (Soomro, Sasongko, Unat, BindMe 2018), our reading: pairs by mutual choice, then pairs of
//! pairs.
//!
//! The paper's pseudocode was not available. What is public: tasks are paired fairly, respecting mutual priorities, and
//! the pairs make a mapping sequence. Our reading: every task ranks all others by what it exchanges with them (ties:
//! the lower id); while tasks are free, those that are each other's best free choice pair up, the heaviest first. With
//! an undirected matrix the heaviest free pair is always mutual, so this is greedy heaviest-edge matching, and
//! remaining free tasks pair up in order. Pairs are contracted and pair up again until a level's arity is reached; if
//! it is no power of two, the last step joins an odd number of clusters, each time the one with the largest exchange.
//! The sequence of groups is laid out on the PUs in order. O(levels x E log E).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::hierarchy::Hierarchy;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::Spread;
use crate::tasks::TaskGraph;

/// The policy; see the module documentation.
pub struct ChoiceMap;

impl MappingPolicy for ChoiceMap {
    fn name(&self) -> &'static str {
        "choice-map"
    }

    fn summary(&self) -> &'static str {
        "pairs by mutual choice, then pairs of pairs"
    }

    fn source(&self) -> &'static str {
        "ChoiceMap 2018, our reading"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let capacity = input.slots(Spread::Compact).capacity().to_vec();
        let hierarchy = Hierarchy::new(input.topology(), &capacity);
        let a_pu = capacity.iter().copied().max().unwrap_or(1) as usize;
        let mut sequence: Vec<Vec<usize>> = (0..input.tasks()).map(|task| vec![task]).collect();
        let mut graph = input.graph().clone();
        for arity in std::iter::once(a_pu).chain(hierarchy.widest()) {
            for joined in steps(arity) {
                let groups = join(&graph, joined);
                let mut group_of = vec![0; graph.tasks()];
                let mut next = Vec::with_capacity(groups.len());
                for (group, elements) in groups.iter().enumerate() {
                    let mut tasks = Vec::new();
                    for &element in elements {
                        group_of[element] = group as u32;
                        tasks.append(&mut sequence[element]);
                    }
                    next.push(tasks);
                }
                sequence = next;
                graph = graph.contracted(&group_of, groups.len());
            }
        }
        let seats = (0..capacity.len())
            .flat_map(|pu| std::iter::repeat_n(LogicalPu::from_index(pu), capacity[pu] as usize));
        let mut pu = vec![LogicalPu(0); input.tasks()];
        for (task, seat) in sequence.into_iter().flatten().zip(seats) {
            pu[task] = seat;
        }
        Ok(Mapped::plain(pu))
    }
}

/// Number of clusters joined by each step: twos while they divide the arity, then the odd rest.
fn steps(mut arity: usize) -> Vec<usize> {
    let mut steps = Vec::new();
    while arity > 1 && arity.is_multiple_of(2) {
        steps.push(2);
        arity /= 2;
    }
    if arity > 1 {
        steps.push(arity);
    }
    steps
}

/// Groups of `size` (the last may be smaller).
fn join(graph: &TaskGraph, size: usize) -> Vec<Vec<usize>> {
    let mut pairs: Vec<(usize, usize, f64)> = graph.pairs().collect();
    pairs.sort_by(|x, y| y.2.total_cmp(&x.2).then((x.0, x.1).cmp(&(y.0, y.1))));
    let mut free = vec![true; graph.tasks()];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (a, b, _) in pairs {
        if free[a] && free[b] {
            (free[a], free[b]) = (false, false);
            let mut group = vec![a, b];
            while group.len() < size {
                let Some(best) = favourite(graph, &group, &free) else {
                    break;
                };
                free[best] = false;
                group.push(best);
            }
            groups.push(group);
        }
    }
    // Elements without a partner complete groups, then form new ones.
    let mut remaining = (0..free.len()).filter(|&element| free[element]);
    for group in groups.iter_mut().filter(|group| group.len() < size) {
        let missing = size - group.len();
        group.extend(remaining.by_ref().take(missing));
    }
    let remaining: Vec<usize> = remaining.collect();
    groups.extend(remaining.chunks(size).map(<[usize]>::to_vec));
    // Only the last group may be incomplete: the sequence must not shift.
    groups.sort_by_key(|group| group.len() < size);
    groups
}

/// The free element that exchanges most with a group, if any does.
fn favourite(graph: &TaskGraph, group: &[usize], free: &[bool]) -> Option<usize> {
    let mut exchange: std::collections::BTreeMap<usize, f64> = std::collections::BTreeMap::new();
    for &member in group {
        for (other, weight) in graph.row(member).filter(|&(other, _)| free[other]) {
            *exchange.entry(other).or_default() += weight;
        }
    }
    exchange
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .map(|(element, _)| element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    fn map(spec: &str, tasks: usize, cells: &[(usize, usize, f64)]) -> Vec<u32> {
        let machine = resolve(spec).unwrap();
        let comm = CommMatrix::from_cells(tasks, cells.iter().copied()).unwrap();
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&ChoiceMap, &input).unwrap();
        mapped.mapping.pu.iter().map(|pu| pu.0).collect()
    }

    #[test]
    fn mutual_choices_by_hand() {
        // 1's best is 2 (9) and 2's is 1: a pair, although 0's best is 1 (8). Then 0 and 3 (1) remain. 4-5 pair (5).
        // {4,5} and {0,3}: 2; {1,2} and {0,3}: 8. So {1,2}{0,3} share a node.
        let cells = [
            (1, 2, 9.0),
            (0, 1, 8.0),
            (0, 3, 1.0),
            (4, 5, 5.0),
            (3, 4, 2.0),
        ];
        let pu = map("numa:2 core:2 pu:2", 6, &cells);
        assert_eq!(pu, [2, 0, 1, 3, 4, 5]);
    }

    #[test]
    fn arity_three_adds_the_best_third() {
        let cells = [
            (0, 5, 9.0),
            (5, 3, 4.0),
            (0, 1, 3.0),
            (1, 2, 8.0),
            (2, 4, 1.0),
        ];
        assert_eq!(map("numa:2 core:3 pu:1", 6, &cells), [0, 3, 4, 2, 5, 1]);
        assert_eq!(steps(12), [2, 2, 3]);
        assert_eq!(steps(1), [0; 0]);
    }
}
