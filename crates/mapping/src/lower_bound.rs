//! A lower bound of the cost of any mapping.
//!
//! For any position of a task, its heaviest partner is at best on the nearest free seat, the next on the next nearest,
//! and so on; the cheapest seat for a task under that assumption bounds its share from below. Every pair is shared by
//! two tasks, so half the sum over tasks bounds J. Cost: O(N log N + cells) per kind of PU (PUs with the same distances
//! count once).

use numaloc_model::LogicalPu;

use crate::input::MapInput;

/// Distances from one PU to all seats, nearest first, as runs of equal distance.
#[derive(Clone, Debug, PartialEq)]
struct Profile(Vec<(f64, usize)>);

impl Profile {
    /// Every PU has ceil(N/P) seats, at least as many as in any mapping. Counts PUs by walking up from `pu`, so that a
    /// machine of P PUs costs O(P x depth) instead of P x P.
    fn new(input: &MapInput, pu: LogicalPu) -> Self {
        let topology = input.topology();
        let seats = input.tasks().div_ceil(topology.pus().len());
        let home = topology.node_of(pu);
        let mut runs = vec![(0.0, seats - 1)];
        let mut counted = 1;
        let mut up = Some(topology.pus()[pu.index()].object);
        while let Some(at) = up {
            let object = &topology.objects()[at as usize];
            let below = match topology.node_matrix() {
                None => object.pus.len(),
                Some(_) => {
                    let pus = &topology.nodes()[home.index()].pus;
                    pus.partition_point(|p| p.0 < object.pus.end)
                        - pus.partition_point(|p| p.0 < object.pus.start)
                }
            };
            runs.push((object.distance, (below - counted) * seats));
            counted = below;
            up = object.parent;
        }
        if let Some(matrix) = topology.node_matrix() {
            let (nodes, home) = (topology.nodes(), home.index());
            for (other, node) in nodes.iter().enumerate().filter(|&(n, _)| n != home) {
                let there = matrix[home * nodes.len() + other];
                let back = matrix[other * nodes.len() + home];
                runs.push(((there + back) / 2.0, node.pus.len() * seats));
            }
        }
        runs.retain(|&(_, seats)| seats > 0);
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        runs.dedup_by(|next, run| {
            let same = next.0 == run.0;
            run.1 += if same { next.1 } else { 0 };
            same
        });
        Self(runs)
    }

    fn cost(&self, heaviest_first: &[f64]) -> f64 {
        let (mut at, mut sum) = (0, 0.0);
        for &(distance, seats) in &self.0 {
            let end = (at + seats).min(heaviest_first.len());
            if distance > 0.0 {
                sum += distance * heaviest_first[at..end].iter().sum::<f64>();
            }
            at = end;
        }
        sum
    }
}

/// A lower bound of J over all mappings with at most ceil(N/P) tasks per PU.
#[must_use]
pub fn lower_bound(input: &MapInput) -> f64 {
    let pus = input.topology().pus().len();
    if input.tasks() == 0 {
        return 0.0;
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for pu in 0..pus {
        let profile = Profile::new(input, LogicalPu::from_index(pu));
        if !profiles.contains(&profile) {
            profiles.push(profile);
        }
    }
    let mut sum = 0.0;
    let mut weights = Vec::new();
    for task in 0..input.tasks() {
        weights.clear();
        weights.extend_from_slice(input.graph().neighbours(task).1);
        weights.sort_by(|a, b| b.total_cmp(a));
        let best = profiles
            .iter()
            .map(|p| p.cost(&weights))
            .fold(f64::INFINITY, f64::min);
        sum += best;
    }
    sum / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    #[test]
    fn a_star_by_hand() {
        // Two nodes of two PUs, 10 between and 2 inside. Task 0 communicates with all: 5, 3, 1.
        let machine = resolve("numa:2 core:2 pu:1").unwrap();
        let machine = machine.with_level_distances(&[10.0, 2.0]).unwrap();
        let cells = [(0, 1, 5.0), (0, 2, 3.0), (0, 3, 1.0)];
        let comm = CommMatrix::from_cells(4, cells).unwrap();
        let input = MapInput::new(&comm, &machine);
        // Task 0: 5x2 + 3x10 + 1x10 = 50; the others: (5 + 3 + 1) x 2 = 18; half of 68.
        assert_eq!(lower_bound(&input), 34.0);
    }

    #[test]
    fn a_walk_up_the_tree_agrees_with_the_distances() {
        let ring = vec![10.0, 16.0, 22.0, 15.0, 10.0, 16.0, 22.0, 17.0, 10.0];
        let uneven = resolve("numa:3 core:3 pu:2").unwrap();
        let plain = resolve("package:2 numa:2 l3:2 core:3 pu:2").unwrap();
        for machine in [plain, uneven.with_node_distances(ring).unwrap()] {
            let pus = machine.pus().len();
            let input = MapInput::new(&CommMatrix::empty(pus), &machine);
            for pu in 0..pus {
                let all = (0..pus).filter(|&other| other != pu);
                let mut slow: Vec<f64> =
                    all.map(|other| input.distances().mean(pu, other)).collect();
                slow.sort_by(f64::total_cmp);
                let runs = Profile::new(&input, LogicalPu::from_index(pu)).0;
                let fast: Vec<f64> = runs
                    .iter()
                    .flat_map(|&(d, n)| std::iter::repeat_n(d, n))
                    .collect();
                assert_eq!(fast, slow);
            }
        }
    }
}
