//! Times that are known by hand: LogGP's ping-pong, rings, what a bisection, a tapered tree, a torus and a dragonfly's
//! links between groups allow.

use numaloc_network::{Cell, Demand, Fabric, Phase, Seat, Times, times};
use numaloc_topology::cluster::compose;
use numaloc_topology::links::{Links, Routing, Uplink};
use numaloc_topology::network::{Network, Switch};
use numaloc_topology::{Topology, resolve};

/// o = 2 us, L = 10 us, 1 us a further switch, 1 GB/s.
fn links() -> Links {
    Links {
        overhead_ns: Some(2000.0),
        latency_ns: Some(10_000.0),
        hop_ns: Some(1000.0),
        host_bytes_per_s: Some(1e9),
        shared_latency_ns: Some(500.0),
        shared_bytes_per_s: Some(4e9),
        ..Links::default()
    }
}

fn cluster(hosts: usize, network: Option<&Network>, links: Links) -> Topology {
    let host = resolve("core:1 pu:1").unwrap();
    let names = (0..hosts).map(|at| (format!("n{at}"), &host));
    let built = compose("a cluster", &names.collect::<Vec<_>>(), network);
    built.unwrap().with_links(links)
}

fn tree(arities: &[usize]) -> Network {
    Network::Tree {
        arities: arities.to_vec(),
        distances: vec![],
        latency_ns: vec![],
        bandwidth_bytes_per_s: vec![],
    }
}

fn torus(dims: &[usize]) -> Network {
    Network::Torus {
        dims: dims.to_vec(),
        first_hop: 100.0,
        per_hop: 50.0,
    }
}

fn cell(src: u32, dst: u32, messages: u64, bytes: u64) -> Cell {
    Cell {
        src,
        dst,
        messages,
        bytes,
    }
}

/// Every rank sends `bytes` to every other.
fn all_to_all(ranks: u32, bytes: u64) -> Vec<Cell> {
    let pairs = (0..ranks).flat_map(|src| (0..ranks).map(move |dst| (src, dst)));
    let cells = pairs
        .filter(|(src, dst)| src != dst)
        .map(|(src, dst)| cell(src, dst, 1, bytes));
    cells.collect()
}

fn run(machine: &Topology, cells: Vec<Cell>, hosts: &[u32], serial: f64) -> Times {
    let fabric = Fabric::of(machine).unwrap();
    let seats: Vec<Seat> = hosts
        .iter()
        .map(|&host| Seat {
            host,
            node: host,
            slower: 1.0,
        })
        .collect();
    let demand = Demand {
        phases: vec![Phase {
            cells,
            compute_s: vec![],
        }],
        serial: vec![serial; seats.len()],
        non_blocking: 0.0,
    };
    times(&demand, &fabric, &seats, |_, _| 10.0)
}

fn near(found: f64, expected: f64) {
    let off = (found - expected).abs() / expected;
    assert!(off < 1e-9, "{found} instead of {expected}");
}

#[test]
fn a_ping_pong_takes_what_loggp_says() {
    let machine = cluster(2, None, links());
    for bytes in [1, 8, 1000, 1_000_000] {
        let rounds = 50;
        let cells = vec![
            cell(0, 1, rounds, rounds * bytes),
            cell(1, 0, rounds, rounds * bytes),
        ];
        let found = run(&machine, cells.clone(), &[0, 1], 1.0);
        let (o, l, g) = (2e-6, 10e-6, 1e-9);
        let one = 2.0 * (l + 2.0 * o + (bytes - 1) as f64 * g);
        near(found.seconds, rounds as f64 * one);
        // Inside a host: no overhead, its own latency and bandwidth.
        let inside = run(&machine, cells, &[1, 1], 1.0);
        let one = 2.0 * (0.5e-6 + (bytes - 1) as f64 / 4e9);
        near(inside.seconds, rounds as f64 * one);
        assert_eq!((inside.between_hosts, inside.busiest.len()), (0.0, 0));
    }
}

#[test]
fn a_further_switch_adds_its_time() {
    let machine = cluster(4, Some(&tree(&[2, 2])), links());
    let one = |to| run(&machine, vec![cell(0, to, 1, 1)], &[0, 1, 2, 3], 1.0).seconds;
    near(one(1), 14e-6);
    // By way of two more switches.
    near(one(2), 16e-6);
    let stated = Network::Tree {
        arities: vec![2, 2],
        distances: vec![],
        latency_ns: vec![50_000.0, 20_000.0],
        bandwidth_bytes_per_s: vec![4e9, 5e8],
    };
    let machine = cluster(4, Some(&stated), links());
    let one = |to, bytes| run(&machine, vec![cell(0, to, 1, bytes)], &[0, 1, 2, 3], 1.0).seconds;
    near(one(1, 1), 24e-6);
    near(one(2, 1), 54e-6);
    near(one(1, 500_000_001), 24e-6 + 1.0);
}

#[test]
fn in_a_ring_all_send_at_the_same_time() {
    let machine = cluster(8, None, links());
    let cells = (0..8).map(|rank| cell(rank, (rank + 1) % 8, 10, 10_000_010));
    let found = run(
        &machine,
        cells.clone().collect(),
        &[0, 1, 2, 3, 4, 5, 6, 7],
        0.0,
    );
    // 10 rounds of a send and a receive; in and out at once.
    near(found.seconds, 10.0 * (2.0 * 2e-6 + 10e-6) + 0.01);
    // Two ranks a host: half of the messages stay inside, the host's link carries one rank's.
    let packed = run(
        &machine,
        cells.clone().collect(),
        &[0, 0, 1, 1, 2, 2, 3, 3],
        0.0,
    );
    near(packed.between_hosts, 4.0 * 10_000_010.0);
    // Cyclic: a host's link carries those of both its ranks.
    let cyclic = run(&machine, cells.collect(), &[0, 1, 2, 3, 0, 1, 2, 3], 0.0);
    near(cyclic.busiest[0].seconds, 0.02);
    assert!(packed.seconds < 0.6 * cyclic.seconds);
}

#[test]
fn an_all_to_all_is_limited_by_the_bisection() {
    // 2 switches of 4 hosts with one link up each: 4 x 4 messages each way on one link.
    let links = Links {
        parallel: vec![1.0, 1.0],
        ..links()
    };
    let machine = cluster(8, Some(&tree(&[2, 4])), links);
    let found = run(
        &machine,
        all_to_all(8, 1_000_001),
        &[0, 1, 2, 3, 4, 5, 6, 7],
        0.0,
    );
    near(found.busiest[0].seconds, 16.0 * 1e6 / 1e9);
    // Its own 7 messages out and 7 in: overheads, and one latency.
    near(found.seconds, 14.0 * 2e-6 + 12e-6 + 0.016);
    assert!(found.busiest[0].name.starts_with("switch 1."), "{found:?}");
}

#[test]
fn tapering_slows_down_what_crosses_the_tree() {
    let time = |parallel: Vec<f64>| {
        let links = Links {
            parallel,
            ..links()
        };
        let machine = cluster(16, Some(&tree(&[4, 4])), links);
        let cells = (0..16).map(|rank| cell(rank, (rank + 8) % 16, 1, 100_000_001));
        let hosts: Vec<u32> = (0..16).collect();
        run(&machine, cells.collect(), &hosts, 0.0)
    };
    // As many links up as hosts: a host's link decides. 2:1 and 4:1 taper.
    let fixed = 2.0 * 2e-6 + 12e-6;
    near(time(vec![]).seconds, fixed + 0.1);
    near(time(vec![4.0, 1.0]).seconds, fixed + 0.1);
    near(time(vec![2.0, 1.0]).seconds, fixed + 0.2);
    near(time(vec![1.0, 1.0]).seconds, fixed + 0.4);
}

#[test]
fn switches_that_have_names_have_the_links_that_are_stated() {
    let switch = |name: &str, hosts: &str, switches: &str| Switch {
        name: name.to_owned(),
        hosts: (!hosts.is_empty()).then(|| hosts.to_owned()),
        switches: (!switches.is_empty()).then(|| switches.to_owned()),
        distance: None,
    };
    // Three hosts under one switch, one under another.
    let network = Network::Switches {
        switches: vec![
            switch("a", "n[0-2]", ""),
            switch("b", "n3", ""),
            switch("top", "", "a,b"),
        ],
    };
    let uneven = |uplinks| {
        let links = Links { uplinks, ..links() };
        let machine = cluster(4, Some(&network), links);
        let cells = (0..3).map(|rank| cell(rank, 3, 1, 1_000_000_001));
        run(&machine, cells.collect(), &[0, 1, 2, 3], 0.0)
    };
    // The receiver's link carries all three.
    let found = uneven(vec![]);
    near(found.busiest[0].seconds, 3.0);
    assert!(found.busiest[0].name.ends_with("in"));
    let slow = uneven(vec![Uplink {
        switch: "a".to_owned(),
        links: 2.0,
        bytes_per_s: Some(2.5e8),
    }]);
    near(slow.busiest[0].seconds, 6.0);
    assert_eq!(slow.busiest[0].name, "switch a, out");
    let unknown = vec![Uplink {
        switch: "c".to_owned(),
        links: 1.0,
        bytes_per_s: None,
    }];
    let machine = cluster(
        4,
        Some(&network),
        Links {
            uplinks: unknown,
            ..links()
        },
    );
    let error = Fabric::of(&machine).err().unwrap().to_string();
    assert_eq!(
        error,
        "links: an uplink of switch c, which is not described"
    );
}

#[test]
fn on_a_torus_messages_go_dimension_by_dimension_the_shorter_way() {
    let machine = cluster(12, Some(&torus(&[3, 4])), links());
    let fabric = Fabric::of(&machine).unwrap();
    let route = |from, to| {
        let mut names = Vec::new();
        fabric.each_link(from, to, 1.0, |link, share| {
            names.push(format!("{} x {share}", fabric.name(link)));
        });
        names
    };
    // From (0, 0) to (2, 1): the first dimension backwards over its border, then the second.
    assert_eq!(
        route(0, 9),
        [
            "n0, out x 1",
            "n9, in x 1",
            "place 0,0 to -1 x 1",
            "place 2,0 to +2 x 1"
        ]
    );
    // Half way around in the second dimension: both directions.
    assert_eq!(
        route(1, 3)[2..],
        [
            "place 0,1 to +2 x 0.5",
            "place 0,2 to +2 x 0.5",
            "place 0,1 to -2 x 0.5",
            "place 0,0 to -2 x 0.5"
        ]
    );
    near(fabric.way(0, 9, 10.0).latency_s, 11e-6);
    // A row in which every rank sends to the next but one: two messages on each link in the limit, here the halves of
    // two in each direction.
    let cells = (0..4).map(|rank| cell(rank, (rank + 2) % 4, 1, 1_000_000_001));
    let found = run(
        &cluster(4, Some(&torus(&[4])), links()),
        cells.collect(),
        &[0, 1, 2, 3],
        0.0,
    );
    near(found.busiest[0].seconds, 1.0);
    near(found.seconds, 2.0 * 2e-6 + 11e-6 + 1.0);
}

#[test]
fn between_two_groups_of_a_dragonfly_there_is_one_link_unless_messages_take_detours() {
    let network = Network::Dragonfly {
        groups: 5,
        routers: 2,
        hosts: 2,
        distances: vec![],
    };
    let time = |routing, parallel: Vec<f64>| {
        let links = Links {
            routing: Some(routing),
            parallel,
            // Only links between groups are narrow.
            bytes_per_s: vec![1e9, 1e12, 1e12],
            ..links()
        };
        let machine = cluster(20, Some(&network), links);
        // All four hosts of group 0 send to group 1.
        let cells = (0..4).map(|rank| cell(rank, rank + 4, 1, 1_000_000_001));
        run(&machine, cells.collect(), &(0..20).collect::<Vec<_>>(), 0.0)
    };
    let minimal = time(Routing::Minimal, vec![]);
    near(minimal.busiest[0].seconds, 4.0);
    assert_eq!(minimal.busiest[0].name, "group 0 to group 1");
    near(
        time(Routing::Minimal, vec![4.0, 1.0, 1.0]).busiest[0].seconds,
        1.0,
    );
    // By way of three other groups: 0.2 of the messages on the direct link, 0.8 / 3 on each detour.
    let adaptive = time(Routing::Adaptive, vec![]);
    near(adaptive.busiest[0].seconds, 4.0 * 0.8 / 3.0);
    near(time(Routing::Minimal, vec![]).seconds, 2e-6 + 13e-6 + 4.0);
}

#[test]
fn what_is_non_blocking_may_be_hidden_behind_computation() {
    let machine = cluster(2, None, links());
    let fabric = Fabric::of(&machine).unwrap();
    let seats = [0, 1].map(|host| Seat {
        host,
        node: host,
        slower: 1.0,
    });
    let demand = |non_blocking| Demand {
        phases: vec![Phase {
            cells: vec![cell(0, 1, 1, 1_000_000_001)],
            compute_s: vec![3.0, 2.0],
        }],
        serial: vec![0.0; 2],
        non_blocking,
    };
    let found = times(&demand(0.5), &fabric, &seats, |_, _| 10.0);
    let communication = 1.0 + 2e-6;
    near(found.seconds, 3.0 + communication);
    near(found.hidden_s, 3.0 + communication / 2.0);
    near(found.compute_s, 3.0);
    let on_one_core = seats.map(|seat| Seat {
        slower: 1.5,
        ..seat
    });
    let found = times(&demand(0.0), &fabric, &on_one_core, |_, _| 10.0);
    near(found.compute_s, 4.5);
    near(found.seconds, 4.5 + communication);
}

#[test]
fn networks_without_a_model_are_refused_in_one_line() {
    let refused = |machine: &Topology| Fabric::of(machine).err().unwrap().to_string();
    let one = resolve("core:2 pu:1").unwrap();
    assert!(refused(&one).contains("is one host, expected a cluster"));
    let wrong = Links {
        parallel: vec![1.0],
        ..links()
    };
    assert_eq!(
        refused(&cluster(4, Some(&tree(&[2, 2])), wrong)),
        "links: 1 values of parallel for 2 levels of links"
    );
    let huge = torus(&[1 << 20, 1 << 20]);
    assert!(refused(&cluster(2, Some(&huge), links())).contains("more than"));
    let huge = Network::Dragonfly {
        groups: 2,
        routers: 1 << 40,
        hosts: 2,
        distances: vec![],
    };
    assert!(refused(&cluster(4, Some(&huge), links())).contains("more than"));
}
