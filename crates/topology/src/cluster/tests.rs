//! Tests of clusters: distances, numbering, refused descriptions.

use super::*;
use crate::resolve;

fn tree(arities: &[usize]) -> Network {
    Network::Tree {
        arities: arities.to_vec(),
        distances: Vec::new(),
        latency_ns: Vec::new(),
        bandwidth_bytes_per_s: Vec::new(),
    }
}

fn cluster(
    hosts: usize,
    machine: &str,
    network: Option<Network>,
) -> Result<Topology, TopologyError> {
    ClusterFile {
        name: "test".into(),
        description: String::new(),
        cluster: Cluster {
            hosts: vec![HostGroup {
                names: format!("n[0-{}]", hosts - 1),
                machine: machine.into(),
            }],
            network,
            links: None,
        },
    }
    .build("test.toml", crate::resolve)
}

#[test]
fn levels_determine_the_distance_of_hosts() {
    // 2 switches of 2 hosts of 2 nodes of 2 cores: 16 PUs, 4 per host.
    let t = cluster(4, "numa:2 core:2 pu:1", Some(tree(&[2, 2]))).unwrap();
    assert_eq!(
        (t.pus().len(), t.nodes().len(), t.hosts().len()),
        (16, 8, 4)
    );
    let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
    // Same node, other node of the host, other host of the switch, other switch.
    assert_eq!(
        [d(0, 1), d(0, 2), d(0, 4), d(0, 8)],
        [10.0, 20.0, 100.0, 150.0]
    );
    assert_eq!(t.host_name(t.hosts()[3].0), Some("n3"));
    assert_eq!(t.pus()[13].os.0, 1, "OS indexes are the host's");
    let starts: Vec<_> = t
        .hosts()
        .iter()
        .map(|(at, _)| t.objects()[*at as usize].pus.start)
        .collect();
    assert_eq!(starts, [0, 4, 8, 12]);
    assert!(t.node_matrix().is_none());
}

#[test]
fn latencies_are_converted_to_distances() {
    // purple's memory latency is 95 ns: 950 ns is distance 100, 1900 ns is 200; its own nodes have distance 21.
    let network = Network::Tree {
        arities: vec![2, 1],
        distances: Vec::new(),
        latency_ns: vec![1900.0, 950.0],
        bandwidth_bytes_per_s: vec![25e9, 12.5e9],
    };
    let t = cluster(2, "purple", Some(network)).unwrap();
    let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
    assert_eq!([d(0, 28), d(0, 56)], [21.0, 200.0]);
}

#[test]
fn a_torus_uses_the_shorter_way_round() {
    let torus = Network::Torus {
        dims: vec![2, 4],
        first_hop: 100.0,
        per_hop: 40.0,
    };
    let t = cluster(8, "core:1 pu:1", Some(torus)).unwrap();
    let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
    // Host 0 = (0,0): 1 = (0,1) is one hop away, 3 = (0,3) one hop backwards, 2 two hops, 6 = (1,2) three.
    assert_eq!(
        [d(0, 1), d(0, 3), d(0, 2), d(0, 6)],
        [100.0, 100.0, 140.0, 180.0]
    );
}

#[test]
fn hosts_may_differ_and_the_last_switch_may_be_partly_filled() {
    let file = r#"
        name = "mixed"
        description = "two kinds of hosts"
        [cluster]
        network = { kind = "tree", arities = [2, 2] }
        [[cluster.hosts]]
        names = "big[1-2]"
        machine = "numa:2 core:4 pu:1"
        [[cluster.hosts]]
        names = "small"
        machine = "core:2 pu:1"
    "#;
    let file: ClusterFile = toml::from_str(file).unwrap();
    let t = file.build("mixed.toml", crate::resolve).unwrap();
    assert_eq!((t.pus().len(), t.hosts().len()), (18, 3));
    assert_eq!(t.distance(LogicalPu(0), LogicalPu(17)), 150.0);
    assert_eq!(
        toml::from_str::<ClusterFile>(&file.to_toml().unwrap()).unwrap(),
        file
    );
}

#[test]
fn uneven_hosts_keep_their_own_distances() {
    // A host with unequal distances between its nodes: the built-in opteron-6386.
    let host = resolve("opteron-6386").unwrap();
    let t = cluster(2, "opteron-6386", None).unwrap();
    let nodes = host.nodes().len();
    for a in 0..nodes {
        for b in 0..nodes {
            let (x, y) = (LogicalNode::from_index(a), LogicalNode::from_index(b));
            let (u, v) = (
                LogicalNode::from_index(a + nodes),
                LogicalNode::from_index(b + nodes),
            );
            assert_eq!(t.node_distance(u, v), host.node_distance(x, y));
            assert_eq!(t.node_distance(x, v), 100.0);
        }
    }
}

#[test]
fn implausible_figures_are_refused_with_their_place() {
    let refused = |network: &str| {
        let text = format!(
            "name = \"x\"\ndescription = \"x\"\n[cluster]\nhosts = [{{ names = \"n[0-3]\", machine = \"core:1 pu:1\" }}]\n\
             network = {{ {network} }}\n"
        );
        let file: ClusterFile = toml::from_str(&text).unwrap();
        file.build("test.toml", crate::resolve)
            .unwrap_err()
            .to_string()
    };
    for value in ["-1.0", "nan", "inf", "1e300"] {
        for field in ["distances", "latency_ns", "bandwidth_bytes_per_s"] {
            let error = refused(&format!(
                "kind = \"tree\", arities = [2, 2], {field} = [1.0, {value}]"
            ));
            let place = format!("{field} has ");
            assert!(
                error.contains("test.toml")
                    && error.contains(&place)
                    && error.contains("number 2 of 2"),
                "{error}"
            );
        }
        let torus = |rest: &str| format!("kind = \"torus\", dims = [2, 2], {rest}");
        for (network, field) in [
            (
                format!(
                    "kind = \"dragonfly\", groups = 1, routers = 2, hosts = 2, distances = [1.0, {value}, 1.0]"
                ),
                "distances",
            ),
            (torus(&format!("first_hop = {value}")), "first_hop"),
            (torus(&format!("per_hop = {value}")), "per_hop"),
            (
                format!(
                    "kind = \"matrix\", distances = [{}{value}]",
                    "1.0, ".repeat(15)
                ),
                "distances",
            ),
        ] {
            let error = refused(&network);
            assert!(error.contains(field), "{network}: {error}");
        }
    }
    // 2^64 hosts overflow to 0 in 64 bits.
    let error = refused("kind = \"torus\", dims = [4294967296, 4294967296]");
    assert!(error.contains("no room"), "{error}");
    let error = refused("kind = \"torus\", dims = [0, 4]");
    assert!(error.contains("no room"), "{error}");
}

#[test]
fn errors_of_inconsistent_clusters_are_one_line() {
    for network in [
        tree(&[2]),
        tree(&[]),
        tree(&[0, 9]),
        Network::Torus {
            dims: vec![3],
            first_hop: 1.0,
            per_hop: 1.0,
        },
        Network::Matrix {
            distances: vec![1.0; 9],
        },
        Network::Dragonfly {
            groups: 2,
            routers: 1,
            hosts: 1,
            distances: vec![],
        },
        Network::Dragonfly {
            groups: 2,
            routers: 2,
            hosts: 2,
            distances: vec![1.0],
        },
    ] {
        let error = cluster(4, "core:1 pu:1", Some(network))
            .unwrap_err()
            .to_string();
        assert!(
            !error.contains('\n') && error.contains("test.toml"),
            "{error}"
        );
    }
    let twice = ["a", "a"].map(|name| (name.to_owned(), resolve("core:1 pu:1").unwrap()));
    let twice: Vec<_> = twice
        .iter()
        .map(|(name, machine)| (name.clone(), machine))
        .collect();
    let error = compose("x", &twice, None).unwrap_err();
    assert_eq!(error, ClusterError::NamedTwice { host: "a".into() });
}

#[test]
fn switches_by_name_make_trees_of_any_form() {
    let build = |network: &str| {
        let text = format!(
            "name = \"x\"\ndescription = \"x\"\n[cluster]\nhosts = [{{ names = \"n[1-4]\", machine = \"core:1 pu:1\" }}]\n\
             network = {{ kind = \"switches\", switches = [{network}] }}\n"
        );
        let file: ClusterFile = toml::from_str(&text).unwrap();
        let again: ClusterFile = toml::from_str(&file.to_toml().unwrap()).unwrap();
        assert_eq!(again, file);
        file.build("test.toml", resolve)
    };
    let t = build(
        "{ name = \"b\", hosts = \"n[2-4],other\" }, { name = \"a\", hosts = \"n1\" }, \
         { name = \"top\", switches = \"b,a\", distance = 170.0 }",
    )
    .unwrap();
    // n2, n3, n4, n1: in the order of the switches.
    let names: Vec<&str> = t.hosts().iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["n2", "n3", "n4", "n1"]);
    let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
    assert_eq!([d(0, 2), d(0, 3), d(2, 3)], [100.0, 170.0, 170.0]);
    for (network, why) in [
        ("", "host n1 is below no switch"),
        (
            "{ name = \"a\", hosts = \"n[1-3]\" }",
            "host n4 is below no switch",
        ),
        (
            "{ name = \"a\", hosts = \"n[1-4]\" }, { name = \"a\" }",
            "described twice",
        ),
        (
            "{ name = \"a\", hosts = \"n[1-4]\" }, { name = \"b\", hosts = \"n1\" }",
            "n1 is below two",
        ),
        (
            "{ name = \"a\", hosts = \"n[1-4]\", switches = \"c\" }",
            "a is above c, which is not",
        ),
        (
            "{ name = \"a\", hosts = \"n[1-4]\", switches = \"a\" }",
            "circle",
        ),
        (
            "{ name = \"a\", hosts = \"n[1-4]\", distance = -1.0 }",
            "distance has -1",
        ),
        ("{ name = \"a\", hosts = \"n[1-\" }", "without a ]"),
    ] {
        let error = build(network).unwrap_err().to_string();
        assert!(
            error.contains(why) && error.contains("test.toml"),
            "{network}: {error}"
        );
    }
}
