//! The machine as used by grouping policies: its branching levels, deepest first.
//!
//! Level 0 is the objects right above the PUs in use, the last level is the root. Objects with one child are omitted;
//! in uneven trees an object that is not split at a level is a single element of that level.

use numaloc_topology::Topology;

/// For every level, deepest first, the number of elements of the level below in each of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// PUs in use, ascending.
    pub pus: Vec<usize>,
    /// By level and block: children.
    pub children: Vec<Vec<usize>>,
}

impl Hierarchy {
    /// The hierarchy over the PUs with capacity.
    pub(crate) fn new(topology: &Topology, capacity: &[u32]) -> Self {
        let pus: Vec<usize> = (0..capacity.len()).filter(|&pu| capacity[pu] > 0).collect();
        let objects = topology.objects();
        let deepest = objects.iter().map(|o| o.depth).max().unwrap_or(0);
        // Where each block of the level below starts, in positions of `pus`.
        let mut below: Vec<usize> = (0..pus.len()).collect();
        let mut children = Vec::new();
        for depth in (0..=deepest).rev() {
            let mut starts = vec![true; pus.len()];
            for object in objects.iter().filter(|o| o.depth == depth) {
                let from = pus.partition_point(|&pu| pu < object.pus.start as usize);
                let to = pus.partition_point(|&pu| pu < object.pus.end as usize);
                starts[from..to].fill(false);
                if from < to {
                    starts[from] = true;
                }
            }
            // A block starts only where one of the level below does.
            let here: Vec<usize> = below.iter().copied().filter(|&at| starts[at]).collect();
            if here.len() == below.len() {
                continue;
            }
            let mut counts = vec![0; here.len()];
            for &at in &below {
                counts[here.partition_point(|&start| start <= at) - 1] += 1;
            }
            children.push(counts);
            below = here;
        }
        Self { pus, children }
    }

    /// The number of children at every level, deepest first, if it is the same for all its blocks.
    pub(crate) fn arities(&self) -> Option<Vec<usize>> {
        self.children
            .iter()
            .map(|level| level.iter().all(|&c| c == level[0]).then(|| level[0]))
            .collect()
    }

    /// The widest block of every level, deepest first: arities of the smallest even tree that contains this one.
    pub(crate) fn widest(&self) -> Vec<usize> {
        self.children
            .iter()
            .map(|level| level.iter().copied().max().unwrap_or(1))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_topology::resolve;

    #[test]
    fn levels_that_branch() {
        let machine = resolve("package:2 numa:2 l3:1 core:3 pu:2").unwrap();
        let all = Hierarchy::new(&machine, &[1; 24]);
        assert_eq!(all.arities(), Some(vec![2, 3, 2, 2]));
        let mut some = [0; 24];
        some[..7].fill(1);
        // One node whole, a core's first PU of the next: 3 cores of 2 and one of 1.
        let part = Hierarchy::new(&machine, &some);
        assert_eq!(part.children, [vec![2, 2, 2, 1], vec![3, 1], vec![2]]);
        assert_eq!(part.arities(), None);
    }
}
