//! The path of our own policy for large problems: a sparse halo exchange on a cluster. `make bench-mpi-mapping` runs
//! the same with 65,536 ranks.

#[path = "../benches/halo/instance.rs"]
mod instance;

use instance::{HOST, cluster, halo, share_between_hosts};
use numaloc_mapping::{MapInput, by_name, map};
use numaloc_model::{LogicalPu, Mapping};

#[test]
fn a_large_halo_is_cut_almost_into_cubes_and_reproducibly() {
    // 9,216 ranks in 24 x 24 x 16 on 12 x 12 hosts of 64 PUs.
    let machine = cluster(12, HOST);
    let grid @ [x, y, z] = [24, 24, 16];
    let comm = halo(grid, false);
    let input = MapInput::new(&comm, &machine);
    let mapped = |name: &str| map(by_name(name).unwrap(), &input).unwrap().mapping;
    let share = |mapping: &Mapping| share_between_hosts(&input, mapping, 144);

    let ours = mapped("numaloc");
    assert_eq!(mapped("numaloc"), ours);

    // 4 x 4 x 4 ranks per host: no mapping that fills hosts cuts less. Corners: 6 x 6 x 4 cubes.
    let mut filled = vec![0; 144];
    let cubes = (0..x * y * z).map(|rank| {
        let (i, j, k) = (rank / (y * z), rank / z % y, rank % z);
        let host = (i / 4 * (y / 4) + j / 4) * (z / 4) + k / 4;
        filled[host] += 1;
        LogicalPu::from_index(host * 64 + filled[host] - 1)
    });
    let cubes = share(&Mapping {
        pu: cubes.collect(),
    });
    let ours = share(&ours);
    // 12 hosts cannot be halved into cubes (6, 3, then 1 and 2): 16 % more.
    assert!(ours <= 1.2 * cubes, "{ours} against cubes {cubes}");
    // A launcher's block and cyclic layouts.
    for layout in ["packed", "scatter"] {
        let theirs = share(&mapped(layout));
        assert!(1.5 * ours < theirs, "{ours} against {layout} {theirs}");
    }
}
