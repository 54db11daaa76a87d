//! Fast distances between PUs, for the inner loops of the policies.
//!
//! A tree whose levels have one distance each needs no P x P table: every PU gets a code with one bit field per level,
//! and the highest differing bit of two codes gives the level at which their paths part. Node matrices (firmware,
//! measurement) add a table of nodes x nodes. Anything else (objects of one depth with different distances) falls back
//! to P x P, or to walking the tree if that table would be too large.

use numaloc_model::LogicalPu;
use numaloc_topology::Topology;

/// Above this many PUs no P x P table is kept: 4,096 PUs cost 128 MiB.
const TABLE_LIMIT: usize = 4096;

/// Distances of all PUs of a machine, in the unit of [`Topology::distance`].
#[derive(Clone, Debug)]
pub struct Distances<'a> {
    topology: &'a Topology,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// Distance by the position of the highest differing bit (0: none differs).
    Codes(Codes),
    /// As `Codes` inside a node; row-major nodes x nodes between nodes.
    Nodes {
        inside: Codes,
        node: Vec<u32>,
        nodes: usize,
        between: Vec<f64>,
    },
    /// Row-major P x P.
    Table { pus: usize, table: Vec<f64> },
    /// Walk the tree.
    Walk,
}

#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub code: Vec<u32>,
    pub by_bit: [f64; 33],
}

impl Codes {
    #[inline]
    fn get(&self, a: usize, b: usize) -> f64 {
        self.by_bit[(32 - (self.code[a] ^ self.code[b]).leading_zeros()) as usize]
    }

    /// Codes of a tree whose levels have one distance each; with `inside_nodes`, only objects inside
    /// one NUMA node must agree.
    fn new(topology: &Topology, inside_nodes: bool) -> Option<Self> {
        let objects = topology.objects();
        let deepest = objects.iter().map(|o| o.depth).max()? as usize;
        let mut bits = vec![0u32; deepest + 1];
        let mut distance: Vec<Option<f64>> = vec![None; deepest + 1];
        for object in objects.iter().filter(|o| o.children.len() > 1) {
            let depth = object.depth as usize;
            bits[depth] =
                bits[depth].max(usize::BITS - (object.children.len() - 1).leading_zeros());
            let home = |pu: u32| topology.node_of(LogicalPu(pu));
            let one_node = || {
                object
                    .pus
                    .clone()
                    .all(|pu| home(pu) == home(object.pus.start))
            };
            if inside_nodes && !one_node() {
                continue;
            }
            if *distance[depth].get_or_insert(object.distance) != object.distance {
                return None;
            }
        }
        if bits.iter().sum::<u32>() > 32 {
            return None;
        }
        // The deepest level takes the lowest bits.
        let mut shift = vec![0u32; deepest + 1];
        for depth in (0..deepest).rev() {
            shift[depth] = shift[depth + 1] + bits[depth + 1];
        }
        let mut by_bit = [0.0; 33];
        for depth in 0..=deepest {
            for bit in shift[depth]..shift[depth] + bits[depth] {
                by_bit[bit as usize + 1] = distance[depth].unwrap_or(0.0);
            }
        }
        let mut code = vec![0u32; topology.pus().len()];
        for object in objects {
            for (at, &child) in object.children.iter().enumerate() {
                for pu in objects[child as usize].pus.clone() {
                    // A single child needs no bits.
                    if object.children.len() > 1 {
                        code[pu as usize] |= (at as u32) << shift[object.depth as usize];
                    }
                }
            }
        }
        Some(Self { code, by_bit })
    }
}

impl<'a> Distances<'a> {
    /// Prepares the distances of a machine.
    #[must_use]
    pub fn new(topology: &'a Topology) -> Self {
        let pus = topology.pus().len();
        let form = match topology.node_matrix() {
            None => Codes::new(topology, false).map(Form::Codes),
            Some(matrix) => Codes::new(topology, true).map(|inside| Form::Nodes {
                inside,
                node: topology.pus().iter().map(|pu| pu.node.0).collect(),
                nodes: topology.nodes().len(),
                between: matrix.to_vec(),
            }),
        };
        let form = form.unwrap_or_else(|| {
            if pus > TABLE_LIMIT {
                return Form::Walk;
            }
            let all = || (0..pus).map(LogicalPu::from_index);
            Form::Table {
                pus,
                table: all()
                    .flat_map(|a| all().map(move |b| topology.distance(a, b)))
                    .collect(),
            }
        });
        Self { topology, form }
    }

    /// Distance of two PUs by logical index.
    ///
    /// # Panics
    /// If the machine has no such PU.
    #[inline]
    #[must_use]
    pub fn get(&self, a: usize, b: usize) -> f64 {
        match &self.form {
            Form::Codes(codes) => codes.get(a, b),
            Form::Nodes {
                inside,
                node,
                nodes,
                between,
            } => {
                if node[a] == node[b] {
                    inside.get(a, b)
                } else {
                    between[node[a] as usize * nodes + node[b] as usize]
                }
            }
            Form::Table { pus, table } => table[a * pus + b],
            Form::Walk => self
                .topology
                .distance(LogicalPu::from_index(a), LogicalPu::from_index(b)),
        }
    }

    /// The codes, if they determine all distances.
    pub(crate) fn codes(&self) -> Option<&Codes> {
        match &self.form {
            Form::Codes(codes) => Some(codes),
            _ => None,
        }
    }

    /// Mean of both directions of a pair: a measured node matrix need not be symmetric, but communication goes both
    /// ways.
    #[inline]
    #[must_use]
    pub fn mean(&self, a: usize, b: usize) -> f64 {
        match &self.form {
            Form::Codes(codes) => codes.get(a, b),
            _ => (self.get(a, b) + self.get(b, a)) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_topology::resolve;

    fn agrees(topology: &Topology) {
        let fast = Distances::new(topology);
        for a in 0..topology.pus().len() {
            for b in 0..topology.pus().len() {
                let slow = topology.distance(LogicalPu::from_index(a), LogicalPu::from_index(b));
                assert_eq!(fast.get(a, b), slow, "{} {a} {b}", topology.name());
            }
        }
    }

    #[test]
    fn fast_distances_equal_the_topologys() {
        for spec in [
            "numa:4 core:8 pu:2",
            "package:2 numa:3 l3:3 core:5 pu:1",
            "core:1 pu:1",
        ] {
            agrees(&resolve(spec).unwrap());
        }
        let levels = resolve("numa:4 core:8 pu:2").unwrap();
        agrees(&levels.with_level_distances(&[10.0, 2.0, 1.0]).unwrap());
        for (name, _) in numaloc_topology::described_machines() {
            agrees(&resolve(&name).unwrap());
        }
        let ring = vec![10.0, 16.0, 22.0, 15.0, 10.0, 16.0, 22.0, 17.0, 10.0];
        let uneven = resolve("numa:3 core:3 pu:2").unwrap();
        agrees(&uneven.with_node_distances(ring).unwrap());
    }
}
