//! A cluster of equal hosts under two levels of switches, and a 3-D halo exchange.

use numaloc_mapping::MapInput;
use numaloc_model::{CommMatrix, Mapping};
use numaloc_topology::cluster::compose;
use numaloc_topology::network::Network;
use numaloc_topology::{Topology, resolve};

/// 4 NUMA nodes of 16 cores.
pub const HOST: &str = "numa:4 core:16 pu:1";

/// `switch` leaf switches of `switch` hosts each.
pub fn cluster(switch: usize, host: &str) -> Topology {
    let host = resolve(host).expect("the host resolves");
    let names = (0..switch * switch).map(|at| (format!("n{at:04}"), &host));
    let hosts: Vec<(String, &Topology)> = names.collect();
    let network = Network::Tree {
        arities: vec![switch, switch],
        distances: Vec::new(),
        latency_ns: Vec::new(),
        bandwidth_bytes_per_s: Vec::new(),
    };
    compose("a cluster", &hosts, Some(&network)).expect("the cluster is well formed")
}

/// Ranks in row-major order, or shuffled; open borders; blocks of 32^3 doubles, so that a face is 8,192 bytes, an edge
/// 256, a corner 8.
pub fn halo([x, y, z]: [usize; 3], shuffle: bool) -> CommMatrix {
    let ranks = x * y * z;
    let mut name: Vec<usize> = (0..ranks).collect();
    if shuffle {
        fastrand::Rng::with_seed(7).shuffle(&mut name);
    }
    let mut cells = Vec::with_capacity(26 * ranks);
    let around = |at: usize, sides: usize| at.saturating_sub(1)..(at + 2).min(sides);
    for rank in 0..ranks {
        let (i, j, k) = (rank / (y * z), rank / z % y, rank % z);
        for a in around(i, x) {
            for b in around(j, y) {
                for c in around(k, z) {
                    let bytes = match [a != i, b != j, c != k].iter().filter(|&&far| far).count() {
                        0 => continue,
                        1 => 8192.0,
                        2 => 256.0,
                        _ => 8.0,
                    };
                    cells.push((name[rank], name[(a * y + b) * z + c], bytes));
                }
            }
        }
    }
    CommMatrix::from_cells(ranks, cells).expect("generated cells are valid")
}

/// Share of communication between PUs of different hosts.
pub fn share_between_hosts(input: &MapInput, mapping: &Mapping, hosts: usize) -> f64 {
    let pus_per_host = input.topology().pus().len() / hosts;
    let host = |task: usize| mapping.pu[task].index() / pus_per_host;
    let apart = input
        .graph()
        .pairs()
        .filter(|&(a, b, _)| host(a) != host(b));
    apart.map(|(.., bytes)| bytes).sum::<f64>() / input.graph().total()
}
