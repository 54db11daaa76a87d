//! The cases: family x size x machine.

use crate::families::Family;
use numaloc_topology::{Topology, resolve};

/// One machine: synthetic string, distance per level.
pub struct Machine {
    pub name: &'static str,
    pub spec: &'static str,
    pub distances: &'static [f64],
}

/// Distances of hosts with NUMA nodes.
const CLUSTER: &[f64] = &[40.0, 10.0, 2.0];

pub const MACHINES: &[Machine] = &[
    Machine::of("4x16", "numa:4 core:16 pu:1", &[10.0, 2.0]),
    Machine::of("4x8x2", "numa:4 core:8 pu:2", &[10.0, 2.0, 1.0]),
    Machine::of("8x8x2", "numa:8 core:8 pu:2", &[10.0, 2.0, 1.0]),
    Machine::of("2x4x8", "package:2 numa:4 core:8 pu:1", &[20.0, 10.0, 2.0]),
    Machine::of("4n 4x16", "group:4 numa:4 core:16 pu:1", CLUSTER),
    Machine::of("16n 4x16", "group:16 numa:4 core:16 pu:1", CLUSTER),
    Machine::of("64n 4x16", "group:64 numa:4 core:16 pu:1", CLUSTER),
    Machine::of("1024n 4x16", "group:1024 numa:4 core:16 pu:1", CLUSTER),
];

impl Machine {
    const fn of(name: &'static str, spec: &'static str, distances: &'static [f64]) -> Self {
        Self {
            name,
            spec,
            distances,
        }
    }

    /// Product of the numbers in the synthetic string.
    pub fn pus(&self) -> usize {
        let numbers = self.spec.split([' ', ':']);
        numbers.filter_map(|n| n.parse::<usize>().ok()).product()
    }

    pub fn topology(&self) -> Topology {
        resolve(self.spec)
            .map(|t| {
                t.with_level_distances(self.distances)
                    .expect("one per level")
            })
            .expect("the synthetic machines resolve")
    }
}

/// One problem.
#[derive(Clone, Copy)]
pub struct Case {
    pub family: Family,
    pub tasks: usize,
    pub machine: &'static Machine,
    pub seed: u64,
}

/// All cases up to `largest` tasks: every machine with as many tasks as PUs, and the node-sized
/// machines also with several tasks a PU.
pub fn cases(families: &[Family], largest: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for machine in MACHINES {
        let pus = machine.pus();
        for tasks in [64, 256, 1024, 4096, 65_536] {
            let fits = tasks == pus
                || (pus == 128 && tasks == 256)
                || (pus == 64 && tasks == 256 && machine.distances.len() == 3)
                || (pus == 256 && tasks == 1024)
                || (pus == 1024 && tasks == 4096);
            if !fits || tasks > largest {
                continue;
            }
            for &family in families {
                if tasks < 65_536 || !family.is_dense() {
                    all.push(Case {
                        family,
                        tasks,
                        machine,
                        // Cases of more tasks come later, so `largest` changes no seed.
                        seed: 1000 + all.len() as u64,
                    });
                }
            }
        }
    }
    all
}
