//! Tests of Slurm's networks: which hosts are under one switch, and how far hosts are apart.

use super::*;
use crate::cluster::compose;
use crate::resolve;
use numaloc_model::LogicalPu;

/// The distances of all pairs of hosts of the cluster that `text` describes, by their names.
fn distances(text: &str, hosts: &str) -> BTreeMap<(String, String), f64> {
    let (ordered, network) = network(text, &expand(hosts).unwrap()).unwrap();
    let machine = resolve("core:1 pu:1").unwrap();
    let hosts: Vec<_> = ordered.into_iter().map(|name| (name, &machine)).collect();
    let cluster = compose("test", &hosts, Some(&network)).unwrap();
    let depths: BTreeSet<u32> = cluster
        .hosts()
        .iter()
        .map(|(at, _)| cluster.objects()[*at as usize].depth)
        .collect();
    assert_eq!(depths.len(), 1, "hosts of one depth");
    let names: Vec<&str> = cluster
        .hosts()
        .iter()
        .map(|(_, name)| name.as_str())
        .collect();
    let mut all = BTreeMap::new();
    for (a, &one) in (0..).zip(&names) {
        for (b, &other) in (0..).zip(&names) {
            let distance = cluster.distance(LogicalPu(a), LogicalPu(b));
            all.insert((one.to_owned(), other.to_owned()), distance);
        }
    }
    all
}

fn expect(text: &str, hosts: &str, pairs: &[(&str, &str, f64)]) {
    let found = distances(text, hosts);
    for &(a, b, distance) in pairs {
        assert_eq!(
            found[&(a.to_owned(), b.to_owned())],
            distance,
            "{a} {b} of {hosts}"
        );
    }
}

const TWO_LEVELS: &str = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-8]\n\
    SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[9-16]\n\
    SwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-16] Switches=s[0-1]\n";

#[test]
fn an_uneven_allocation_keeps_each_host_under_its_switch() {
    expect(
        TWO_LEVELS,
        "n[8-11]",
        &[
            ("n8", "n9", 150.0),
            ("n9", "n11", 100.0),
            ("n8", "n11", 150.0),
        ],
    );
    let (order, network) = network(TWO_LEVELS, &expand("n[8-11]").unwrap()).unwrap();
    assert_eq!(order, ["n8", "n9", "n10", "n11"]);
    let Network::Switches { switches } = network else {
        panic!("{network:?}")
    };
    let under: Vec<_> = switches
        .iter()
        .map(|s| (&*s.name, s.hosts.as_deref(), s.switches.as_deref()))
        .collect();
    assert_eq!(
        under,
        [
            ("s0", Some("n8"), None),
            ("s1", Some("n9,n10,n11"), None),
            ("root", None, Some("s0,s1"))
        ]
    );
}

#[test]
fn an_even_allocation_is_a_tree_of_levels() {
    let of = |hosts: &str| match network(TWO_LEVELS, &expand(hosts).unwrap()) {
        Some((order, Network::Tree { arities, .. })) => (order.join(" "), arities),
        other => panic!("{other:?}"),
    };
    assert_eq!(of("n[9-10,7-8]"), ("n7 n8 n9 n10".to_owned(), vec![2, 2]));
    assert_eq!(of("n[2-4]"), ("n2 n3 n4".to_owned(), vec![3]));
    let text =
        "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nswitchname=r switches=a,b # above\n";
    assert!(matches!(
        network(text, &expand("n[0-3]").unwrap()),
        Some((_, Network::Tree { .. }))
    ));
}

#[test]
fn switches_of_several_heights_and_hosts_next_to_switches() {
    // d is directly under the root, which is three levels above a, b, and two above c; x is at m.
    let text = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=c Nodes=n[3-4]\nSwitchName=d Nodes=n[5-6]\n\
        SwitchName=m Switches=a,b Nodes=n1,n2,x\nSwitchName=p Switches=m,c\nSwitchName=r Switches=p,d\n";
    let pairs = [
        ("n1", "n2", 150.0),
        ("n1", "x", 150.0),
        ("n3", "n4", 100.0),
        ("n1", "n3", 200.0),
        ("n5", "n6", 100.0),
        ("n1", "n5", 250.0),
        ("n4", "n6", 250.0),
    ];
    expect(text, "n[1-6],x", &pairs);
    // What is not allocated does not bring hosts closer together.
    expect(text, "n[3-6]", &[("n3", "n5", 250.0), ("n5", "n6", 100.0)]);
    expect(text, "n5,n6", &[("n5", "n6", 100.0)]);
}

#[test]
fn several_roots_and_hosts_without_a_switch() {
    let text = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=c Nodes=n[5-6]\nSwitchName=ab Switches=a,b";
    expect(
        text,
        "n[1-3,5]",
        &[
            ("n1", "n2", 100.0),
            ("n1", "n3", 150.0),
            ("n1", "n5", 200.0),
        ],
    );
    expect(
        text,
        "n[1-2],z1,z2",
        &[
            ("n1", "n2", 100.0),
            ("n1", "z1", 200.0),
            ("z1", "z2", 200.0),
        ],
    );
}

#[test]
fn blocks_are_under_the_smallest_aggregated_block_that_has_their_hosts() {
    let text = "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\nBlockName=b2 BlockIndex=1 Nodes=n[5-8] BlockSize=4\n\
        BlockName=b3 BlockIndex=2 Nodes=n[9-12] BlockSize=4\nBlockName=b4 BlockIndex=3 Nodes=n[13-16] BlockSize=4\n\
        AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n[1-8] BlockSize=8\n\
        AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n[9-16] BlockSize=8\n";
    expect(
        text,
        "n[4-6,9]",
        &[
            ("n5", "n6", 100.0),
            ("n4", "n5", 150.0),
            ("n4", "n9", 200.0),
        ],
    );
    let two = "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\nBlockName=b2 BlockIndex=1 Nodes=n[5-8] BlockSize=4\n";
    expect(two, "n[3-5]", &[("n3", "n4", 100.0), ("n4", "n5", 150.0)]);
}

#[test]
fn what_is_no_tree_is_refused_or_cut() {
    let hosts = expand("n[0-2]").unwrap();
    assert!(network("SwitchName=a Switches=a", &hosts).is_none());
    assert!(
        network(
            "SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n0",
            &hosts
        )
        .is_none()
    );
    assert!(network("", &hosts).is_none());
    assert!(network("SwitchName=a Nodes=n[", &hosts).is_none());
    assert!(network("SwitchName=a Nodes=m1", &hosts).is_none());
    // Overlapping switches, and names that are used twice.
    expect(
        "SwitchName=a Nodes=n[0-1]\nSwitchName=a Nodes=n[1-2]",
        "n[0-2]",
        &[("n0", "n1", 100.0)],
    );
    expect(
        "SwitchName=a Nodes=n0\nSwitchName=a Nodes=n[1-2]",
        "n[0-2]",
        &[("n0", "n1", 150.0), ("n1", "n2", 100.0)],
    );
}
