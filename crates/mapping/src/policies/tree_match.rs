//! TreeMatch (Jeannot, Mercier, Tessier, TPDS 2014): groups of exactly the arity, level by level from the PUs up, with
//! the least exchange between groups.
//!
//! How a level of n elements is grouped in groups of a depends on how many candidate groups there are:
//! - at most 30,000: search for the best complete choice of groups, depth first with a bound;
//! - pairs (a = 2): heaviest free pair first;
//! - a up to 5: for every group in turn the best of the first few combinations of free elements;
//! - else: k-way partition with Scotch (as TreeMatch does where Scotch is compiled in), made exact.
//!
//! Elements are padded with silent ones to a multiple of the arity, so fewer tasks than PUs are compacted; more tasks
//! than PUs add a level of ceil(N/P) below the PUs. On uneven machines or with some PUs left out, the task tree of the
//! smallest even tree that contains them is laid out on the PUs in order.
//!
//! Deviations: the original stops searching after 0.1 s of wall clock, this after [`SEARCH_STEPS`] steps, for
//! reproducibility; it tries four orders of candidates, this takes cheap groups first, with a bound that makes small
//! cases provably optimal; dummies are last in every order; it exits the process when there are too many tasks, this
//! adds the level. Distances are not used, as in the original. Ties: the lower index. O(E log E) per level, plus the
//! search.

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::hierarchy::Hierarchy;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::scotch_sys::{self, Graph, Target};
use crate::slots::Spread;
use crate::tasks::TaskGraph;

/// The policy; see the module documentation.
pub struct TreeMatch;

/// Largest number of candidate groups for which a level is searched.
const MOST_CANDIDATES: f64 = 30_000.0;
/// Steps of one search.
const SEARCH_STEPS: usize = 300_000;
/// Marks a padding element.
const DUMMY: usize = usize::MAX;

impl MappingPolicy for TreeMatch {
    fn name(&self) -> &'static str {
        "tree-match"
    }

    fn summary(&self) -> &'static str {
        "groups of the arity with least exchange between them"
    }

    fn source(&self) -> &'static str {
        "TreeMatch 2014"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let capacity = input.slots(Spread::Auto).capacity().to_vec();
        let hierarchy = Hierarchy::new(input.topology(), &capacity);
        let a_pu = capacity.iter().copied().max().unwrap_or(1) as usize;
        let mut graph = input.graph().clone();
        let mut leaves: Vec<Vec<usize>> = (0..input.tasks()).map(|task| vec![task]).collect();
        let mut width = 1;
        for arity in std::iter::once(a_pu).chain(hierarchy.widest()) {
            if arity < 2 {
                continue;
            }
            let groups = self.group(&graph, arity, input.seed())?;
            let mut group_of = vec![0; graph.tasks()];
            let mut next = Vec::with_capacity(groups.len());
            for (group, elements) in groups.iter().enumerate() {
                let mut below = Vec::with_capacity(arity * width);
                for &element in elements {
                    group_of[element] = group as u32;
                    below.append(&mut leaves[element]);
                }
                below.resize(arity * width, DUMMY);
                next.push(below);
            }
            (leaves, width) = (next, width * arity);
            graph = graph.contracted(&group_of, groups.len());
        }
        let leaves: Vec<usize> = leaves.concat();
        let even = hierarchy.arities().is_some() && capacity.iter().all(|&c| c as usize == a_pu);
        let mut seats = (0..capacity.len())
            .flat_map(|pu| std::iter::repeat_n(LogicalPu::from_index(pu), capacity[pu] as usize));
        let mut pu = vec![LogicalPu(0); input.tasks()];
        for task in leaves {
            if task != DUMMY {
                pu[task] = seats.next().expect("seats for all tasks");
            } else if even {
                seats.next();
            }
        }
        Ok(Mapped::plain(pu))
    }
}

impl TreeMatch {
    /// Groups of at most `arity`, the incomplete ones completed by dummies.
    fn group(
        &self,
        graph: &TaskGraph,
        arity: usize,
        seed: u64,
    ) -> Result<Vec<Vec<usize>>, MapError> {
        let real = graph.tasks();
        let padded = real.next_multiple_of(arity);
        let groups = padded / arity;
        if groups <= 1 {
            return Ok(vec![(0..real).collect()]);
        }
        let candidates = combinations(padded, arity);
        if candidates <= MOST_CANDIDATES {
            return Ok(search(graph, padded, arity));
        }
        Ok(match arity {
            2 => pairs(graph),
            3..=5 => fast(graph, padded, arity, candidates),
            _ => partition(graph, groups, arity, seed).map_err(|call| MapError::Library {
                policy: self.name(),
                library: "libscotch",
                call,
            })?,
        })
    }
}

fn combinations(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// Exchange of a group with all elements outside it.
fn outside(graph: &TaskGraph, group: &[usize]) -> f64 {
    let real = group.iter().filter(|&&element| element < graph.tasks());
    real.map(|&element| {
        let out = graph
            .row(element)
            .filter(|(other, _)| !group.contains(other));
        out.map(|(_, weight)| weight).sum::<f64>()
    })
    .sum()
}

/// Depth-first search for the groups with the least exchange between them.
fn search(graph: &TaskGraph, n: usize, arity: usize) -> Vec<Vec<usize>> {
    // Candidates by their lowest element, cheap ones first.
    let mut by_first: Vec<Vec<(f64, Vec<usize>)>> = vec![Vec::new(); n];
    let mut least = vec![f64::INFINITY; n];
    let mut group: Vec<usize> = (0..arity).collect();
    loop {
        let value = outside(graph, &group);
        by_first[group[0]].push((value, group.clone()));
        for &element in &group {
            least[element] = f64::min(least[element], value / arity as f64);
        }
        // The next combination in lexicographic order.
        let Some(at) = (0..arity).rev().find(|&at| group[at] < n - arity + at) else {
            break;
        };
        group[at] += 1;
        for after in at + 1..arity {
            group[after] = group[after - 1] + 1;
        }
    }
    for candidates in &mut by_first {
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut search = Search {
        by_first: &by_first,
        least: &least,
        free: vec![true; n],
        chosen: Vec::new(),
        best: (f64::INFINITY, Vec::new()),
        steps: 0,
    };
    search.descend(0, 0.0, least.iter().sum());
    let real = |group: &Vec<usize>| {
        group
            .iter()
            .copied()
            .filter(|&element| element < graph.tasks())
            .collect()
    };
    let mut groups: Vec<Vec<usize>> = search.best.1.iter().map(real).collect();
    groups.retain(|group: &Vec<usize>| !group.is_empty());
    groups
}

struct Search<'a> {
    by_first: &'a [Vec<(f64, Vec<usize>)>],
    /// By element: a lower bound of its share of any group's value.
    least: &'a [f64],
    free: Vec<bool>,
    chosen: Vec<&'a [usize]>,
    best: (f64, Vec<Vec<usize>>),
    steps: usize,
}

impl Search<'_> {
    /// `open` is the sum of `least` over free elements.
    fn descend(&mut self, from: usize, value: f64, open: f64) {
        let Some(first) = (from..self.free.len()).find(|&element| self.free[element]) else {
            if value < self.best.0 {
                let chosen = self.chosen.iter().map(|group| group.to_vec()).collect();
                self.best = (value, chosen);
            }
            return;
        };
        let by_first = self.by_first;
        for (extra, group) in &by_first[first] {
            // The first descent always completes, so there is an answer when the steps are used up.
            if self.steps >= SEARCH_STEPS && self.best.0 < f64::INFINITY {
                return;
            }
            if !group.iter().all(|&element| self.free[element]) {
                continue;
            }
            self.steps += 1;
            let rest = open
                - group
                    .iter()
                    .map(|&element| self.least[element])
                    .sum::<f64>();
            // Slightly below: rounding of sums in another order must not hide the better choice.
            if value + extra + rest >= self.best.0 * (1.0 - 1e-12) {
                continue;
            }
            group.iter().for_each(|&element| self.free[element] = false);
            self.chosen.push(group);
            self.descend(first + 1, value + extra, rest);
            self.chosen.pop();
            group.iter().for_each(|&element| self.free[element] = true);
        }
    }
}

/// Heaviest free pair first; remaining elements pair up in order.
fn pairs(graph: &TaskGraph) -> Vec<Vec<usize>> {
    let mut edges: Vec<(usize, usize, f64)> = graph.pairs().collect();
    edges.sort_by(|x, y| y.2.total_cmp(&x.2).then((x.0, x.1).cmp(&(y.0, y.1))));
    let mut free = vec![true; graph.tasks()];
    let mut groups = Vec::new();
    for (a, b, _) in edges {
        if free[a] && free[b] {
            (free[a], free[b]) = (false, false);
            groups.push(vec![a, b]);
        }
    }
    let remaining: Vec<usize> = (0..free.len()).filter(|&element| free[element]).collect();
    groups.extend(remaining.chunks(2).map(<[usize]>::to_vec));
    groups
}

/// For each group, the best of the first few combinations of free elements in index order.
fn fast(graph: &TaskGraph, n: usize, arity: usize, candidates: f64) -> Vec<Vec<usize>> {
    let groups = n / arity;
    let examined = (50.0 - candidates.log2() - groups as f64 / 10.0).max(10.0) as usize;
    let mut free: Vec<usize> = (0..n).collect();
    let mut chosen = Vec::with_capacity(groups);
    while !free.is_empty() {
        let mut at: Vec<usize> = (0..arity).collect();
        let mut best = (f64::INFINITY, Vec::new());
        for _ in 0..examined {
            let group: Vec<usize> = at.iter().map(|&position| free[position]).collect();
            let value = outside(graph, &group);
            if value < best.0 {
                best = (value, group);
            }
            let Some(last) = (0..arity).rev().find(|&i| at[i] < free.len() - arity + i) else {
                break;
            };
            at[last] += 1;
            for after in last + 1..arity {
                at[after] = at[after - 1] + 1;
            }
        }
        free.retain(|element| !best.1.contains(element));
        let real: Vec<usize> = best.1.into_iter().filter(|&e| e < graph.tasks()).collect();
        if !real.is_empty() {
            chosen.push(real);
        }
    }
    chosen
}

/// Scotch's k-way partition; then the most loosely connected elements of too large parts move where they fit best.
fn partition(
    graph: &TaskGraph,
    groups: usize,
    arity: usize,
    seed: u64,
) -> Result<Vec<Vec<usize>>, &'static str> {
    let total = graph.total().max(1.0);
    let scale = (1u64 << 40) as f64 / total;
    let mut flat = Graph {
        start: vec![0],
        to: Vec::new(),
        weight: Vec::new(),
    };
    for element in 0..graph.tasks() {
        for (other, weight) in graph.row(element) {
            flat.to.push(other as i64);
            flat.weight
                .push(((weight * scale.min(1e6)).round() as i64).max(1));
        }
        flat.start.push(flat.to.len() as i64);
    }
    let target = Target {
        sizes: vec![groups as i64],
        links: vec![1],
        leaves: Vec::new(),
    };
    let seed = (seed % 1_000_000_007) as i64;
    let part = scotch_sys::map(&flat, &target, scotch_sys::DEFAULT, 0.01, seed)?;
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); groups];
    for (element, &part) in part.iter().enumerate() {
        parts[part as usize].push(element);
    }
    let mut of: Vec<usize> = part.into_iter().map(|part| part as usize).collect();
    let tie = |of: &[usize], element: usize, part: usize| -> f64 {
        let there = graph.row(element).filter(|&(other, _)| of[other] == part);
        there.map(|(_, weight)| weight).sum()
    };
    for full in 0..groups {
        while parts[full].len() > arity {
            let ties = |at: usize| tie(&of, parts[full][at], full);
            let loosest = (0..parts[full].len())
                .min_by(|&a, &b| ties(a).total_cmp(&ties(b)))
                .expect("a part that is too large has elements");
            let element = parts[full].remove(loosest);
            let best = (0..groups)
                .filter(|&part| parts[part].len() < arity)
                .map(|part| (tie(&of, element, part), part))
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
                .expect("there is room for all");
            of[element] = best.1;
            parts[best.1].push(element);
        }
    }
    parts.retain(|part| !part.is_empty());
    // Incomplete groups last, so that padding elements stay together.
    parts.sort_by_key(|part| part.len() < arity);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluate;
    use fastrand::Rng;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    /// The least exchange between groups of `arity`, by exhaustive search.
    fn brute(graph: &TaskGraph, remaining: &[usize], arity: usize) -> f64 {
        let Some((&first, others)) = remaining.split_first() else {
            return 0.0;
        };
        let mut best = f64::INFINITY;
        for mask in 0..1u32 << others.len() {
            if mask.count_ones() as usize != arity - 1 {
                continue;
            }
            let chosen = |at: usize| mask >> at & 1 == 1;
            let mut group = vec![first];
            group.extend(
                (0..others.len())
                    .filter(|&at| chosen(at))
                    .map(|at| others[at]),
            );
            let rest: Vec<usize> = (0..others.len())
                .filter(|&at| !chosen(at))
                .map(|at| others[at])
                .collect();
            best = best.min(outside(graph, &group) + brute(graph, &rest, arity));
        }
        best
    }

    #[test]
    fn small_levels_are_grouped_optimally() {
        let mut rng = Rng::with_seed(3);
        for (n, arity) in [(6, 2), (8, 4), (9, 3), (10, 5), (10, 2), (12, 4)] {
            for _ in 0..4 {
                let cells = (0..n).flat_map(|a| (0..a).map(move |b| (a, b)));
                let cells: Vec<_> = cells
                    .map(|(a, b)| (a, b, f64::from(rng.u32(0..20))))
                    .collect();
                let comm = CommMatrix::from_cells(n, cells).unwrap();
                let graph = TaskGraph::new(&comm, crate::Direction::Auto);
                let groups = search(&graph, n, arity);
                let value: f64 = groups.iter().map(|group| outside(&graph, group)).sum();
                let all: Vec<usize> = (0..n).collect();
                assert_eq!(
                    value,
                    brute(&graph, &all, arity),
                    "{n} in groups of {arity}"
                );
            }
        }
    }

    #[test]
    fn a_ring_of_16_and_a_chain_with_room() {
        let next = |tasks: usize| (0..tasks).map(move |t| (t, (t + 1) % tasks, 1.0));
        let machine = resolve("numa:4 core:4 pu:1").unwrap();
        let comm = CommMatrix::from_cells(16, next(16)).unwrap();
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&TreeMatch, &input).unwrap();
        assert_eq!(evaluate(&input, &mapped.mapping).remote, 4.0);
        // Four tasks that all communicate: one node.
        let comm = CommMatrix::from_cells(4, next(4)).unwrap();
        let input = MapInput::new(&comm, &machine);
        let mapped = crate::policy::map(&TreeMatch, &input).unwrap();
        assert_eq!(evaluate(&input, &mapped.mapping).remote, 0.0);
    }

    #[test]
    fn uneven_machines_and_more_tasks_than_pus() {
        for (spec, tasks) in [
            ("package:2 numa:3 core:7 pu:1", 42),
            ("numa:3 core:2 pu:1", 13),
        ] {
            let machine = resolve(spec).unwrap();
            let comm = CommMatrix::from_cells(tasks, (1..tasks).map(|t| (t - 1, t, 1.0))).unwrap();
            for spread in [Spread::Auto, Spread::Compact, Spread::Spread] {
                let input = MapInput::new(&comm, &machine).with_spread(spread);
                crate::policy::map(&TreeMatch, &input).unwrap();
            }
        }
    }
}
