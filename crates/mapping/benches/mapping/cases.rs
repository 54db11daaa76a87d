//! The cases: family x size x machine.

use crate::families::Family;
use numaloc_topology::{Topology, resolve};

/// One machine: synthetic string, distance per level.
pub struct Machine {
    pub name: &'static str,
    pub spec: &'static str,
    pub distances: &'static [f64],
    pub pus: usize,
}

pub const MACHINES: &[Machine] = &[
    Machine {
        name: "4x16",
        spec: "numa:4 core:16 pu:1",
        distances: &[10.0, 2.0],
        pus: 64,
    },
    Machine {
        name: "4x8x2",
        spec: "numa:4 core:8 pu:2",
        distances: &[10.0, 2.0, 1.0],
        pus: 64,
    },
    Machine {
        name: "8x8x2",
        spec: "numa:8 core:8 pu:2",
        distances: &[10.0, 2.0, 1.0],
        pus: 128,
    },
    Machine {
        name: "2x4x8",
        spec: "package:2 numa:4 core:8 pu:1",
        distances: &[20.0, 10.0, 2.0],
        pus: 64,
    },
    Machine {
        name: "4n 4x16",
        spec: "group:4 numa:4 core:16 pu:1",
        distances: &[40.0, 10.0, 2.0],
        pus: 256,
    },
    Machine {
        name: "16n 4x16",
        spec: "group:16 numa:4 core:16 pu:1",
        distances: &[40.0, 10.0, 2.0],
        pus: 1024,
    },
    Machine {
        name: "64n 4x16",
        spec: "group:64 numa:4 core:16 pu:1",
        distances: &[40.0, 10.0, 2.0],
        pus: 4096,
    },
    Machine {
        name: "1024n 4x16",
        spec: "group:1024 numa:4 core:16 pu:1",
        distances: &[40.0, 10.0, 2.0],
        pus: 65_536,
    },
];

impl Machine {
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
}

/// All cases up to `largest` tasks: every machine with as many tasks as PUs, and the node-sized
/// machines also with several tasks a PU.
pub fn cases(largest: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for machine in MACHINES {
        for tasks in [64, 256, 1024, 4096, 65_536] {
            let fits = tasks == machine.pus
                || (machine.pus == 128 && tasks == 256)
                || (machine.pus == 64 && tasks == 256 && machine.distances.len() == 3)
                || (machine.pus == 256 && tasks == 1024)
                || (machine.pus == 1024 && tasks == 4096);
            if !fits || tasks > largest {
                continue;
            }
            for family in Family::ALL {
                if tasks < 65_536 || !family.is_dense() {
                    all.push(Case {
                        family,
                        tasks,
                        machine,
                    });
                }
            }
        }
    }
    all
}
