//! Our own policy on tori of hosts: not worse than a cuboid of ranks on each host, in the order of the torus.

#[path = "../benches/halo/instance.rs"]
#[allow(dead_code)]
mod instance;

use instance::halo;
use numaloc_mapping::{MapInput, by_name, evaluate, map};
use numaloc_model::{LogicalPu, Mapping};
use numaloc_topology::cluster::compose;
use numaloc_topology::network::Network;
use numaloc_topology::{Topology, resolve};

fn torus(dims: [usize; 3], host: &str) -> Topology {
    let host = resolve(host).unwrap();
    let names = (0..dims.iter().product()).map(|at| (format!("n{at:04}"), &host));
    let network = Network::Torus {
        dims: dims.to_vec(),
        first_hop: 100.0,
        per_hop: 50.0,
    };
    compose("a torus", &names.collect::<Vec<_>>(), Some(&network)).unwrap()
}

/// A cuboid of `sides` ranks on each host, the nodes of a host along the first side.
fn by_hand(grid: [usize; 3], dims: [usize; 3], sides: [usize; 3]) -> Mapping {
    let width: usize = sides.iter().product();
    let pu = |rank: usize| {
        let at = [
            rank / (grid[1] * grid[2]),
            rank / grid[2] % grid[1],
            rank % grid[2],
        ];
        let (mut host, mut inside) = (0, 0);
        for d in 0..3 {
            host = host * dims[d] + at[d] / sides[d];
            inside = inside * sides[d] + at[d] % sides[d];
        }
        LogicalPu::from_index(host * width + inside)
    };
    Mapping {
        pu: (0..grid.iter().product()).map(pu).collect(),
    }
}

/// J of our mapping over that of the cuboids by hand.
fn ratio(grid: [usize; 3], dims: [usize; 3], host: &str, sides: [usize; 3]) -> f64 {
    let machine = torus(dims, host);
    let comm = halo(grid, false);
    let input = MapInput::new(&comm, &machine);
    let start = std::time::Instant::now();
    let ours = map(by_name("numaloc").unwrap(), &input).unwrap().mapping;
    println!("{grid:?} on {dims:?}: {} s", start.elapsed().as_secs_f64());
    let cost = |mapping: &Mapping| evaluate(&input, mapping).cost;
    cost(&ours) / cost(&by_hand(grid, dims, sides))
}

#[test]
fn ranks_on_4x4x4_hosts_are_not_worse_than_cuboids() {
    let ratio = ratio([8, 8, 8], [4, 4, 4], "numa:2 core:4 pu:1", [2, 2, 2]);
    assert!(ratio <= 1.0 + 1e-9, "{ratio}");
}

#[test]
fn many_ranks_on_8x8x8_hosts_are_not_worse_than_cuboids() {
    let ratio = ratio([32, 32, 16], [8, 8, 8], "numa:4 core:8 pu:1", [4, 4, 2]);
    assert!(ratio <= 1.0 + 1e-9, "{ratio}");
}

/// In a test build this takes several times as long as in a release.
#[test]
#[ignore = "takes about a minute"]
fn ranks_by_the_ten_thousands_are_not_worse_than_cuboids() {
    let ratio = ratio([64, 32, 32], [8, 8, 8], "numa:4 core:32 pu:1", [8, 4, 4]);
    assert!(ratio <= 1.0 + 1e-9, "{ratio}");
}
