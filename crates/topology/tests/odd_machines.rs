//! Machines as containers, batch systems, firmware and accelerators make them: packages and groups without PUs, nodes
//! without memory or without PUs, nodes and PUs that may not be used, numbers with gaps. Each is written as hwloc's
//! XML.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use numaloc_model::{LogicalNode, LogicalPu};
use numaloc_topology::{Topology, from_xml};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const GIB: u64 = 1 << 30;

/// A part of a machine: a package or a group.
#[derive(Clone, Debug)]
struct Part {
    is_package: bool,
    /// The kernel's numbers of its PUs, by core.
    cores: Vec<Vec<u32>>,
    /// The kernel's number and the memory of each NUMA node attached to it.
    nodes: Vec<(u32, u64)>,
    /// Whether PUs and nodes may be used.
    may_use: (bool, bool),
    /// Whether there is a group around it.
    is_wrapped: bool,
}

#[derive(Clone, Debug)]
struct Odd {
    parts: Vec<Part>,
    /// Nodes attached to the whole machine that are local to no PU.
    far: Vec<(u32, u64)>,
    has_distances: bool,
}

fn mask(bits: impl IntoIterator<Item = u32>) -> String {
    let mut words = [0_u32; 32];
    for bit in bits {
        words[bit as usize / 32] |= 1 << (bit % 32);
    }
    let last = words.iter().rposition(|&word| word != 0).unwrap_or(0);
    let words: Vec<String> = words[..=last]
        .iter()
        .rev()
        .map(|w| format!("0x{w:08x}"))
        .collect();
    words.join(",")
}

impl Odd {
    fn pus(&self, only_usable: bool) -> Vec<u32> {
        let parts = self
            .parts
            .iter()
            .filter(|part| !only_usable || part.may_use.0);
        parts.flat_map(|part| part.cores.concat()).collect()
    }

    fn nodes(&self, only_usable: bool) -> Vec<u32> {
        let parts = self
            .parts
            .iter()
            .filter(|part| !only_usable || part.may_use.1);
        let own = parts.flat_map(|part| part.nodes.iter());
        own.chain(&self.far).map(|(os, _)| *os).collect()
    }

    fn xml(&self) -> String {
        let mut id = 0;
        let mut object = |kind: &str, pus: &[u32], nodes: &[u32], more: &str, inner: &str| {
            id += 1;
            let (pus, nodes) = (mask(pus.to_vec()), mask(nodes.to_vec()));
            format!(
                "<object type=\"{kind}\" {more} cpuset=\"{pus}\" complete_cpuset=\"{pus}\" nodeset=\"{nodes}\" \
                 complete_nodeset=\"{nodes}\" gp_index=\"{id}\">{inner}</object>\n"
            )
        };
        let mut inner = String::new();
        for (os, bytes) in &self.far {
            let more = format!("os_index=\"{os}\" local_memory=\"{bytes}\"");
            inner += &object("NUMANode", &[], &[*os], &more, "");
        }
        for (number, part) in self.parts.iter().enumerate() {
            let pus = part.cores.concat();
            let nodes: Vec<u32> = part.nodes.iter().map(|(os, _)| *os).collect();
            let mut below = String::new();
            for (os, bytes) in &part.nodes {
                let more = format!("os_index=\"{os}\" local_memory=\"{bytes}\"");
                below += &object("NUMANode", &pus, &[*os], &more, "");
            }
            for (core, pus) in part.cores.iter().enumerate() {
                let each = pus
                    .iter()
                    .map(|pu| object("PU", &[*pu], &nodes, &format!("os_index=\"{pu}\""), ""));
                let each: String = each.collect();
                below += &object("Core", pus, &nodes, &format!("os_index=\"{core}\""), &each);
            }
            let (kind, more) = match part.is_package {
                true => ("Package", format!("os_index=\"{number}\"")),
                false => ("Group", "kind=\"1001\" subkind=\"0\"".to_owned()),
            };
            let mut whole = object(kind, &pus, &nodes, &more, &below);
            if part.is_wrapped && !pus.is_empty() {
                whole = object("Die", &pus, &nodes, "os_index=\"0\"", &whole);
            }
            inner += &whole;
        }
        let (pus, nodes) = (mask(self.pus(false)), mask(self.nodes(false)));
        let (may_pus, may_nodes) = (mask(self.pus(true)), mask(self.nodes(true)));
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n\
             <object type=\"Machine\" os_index=\"0\" cpuset=\"{pus}\" complete_cpuset=\"{pus}\" allowed_cpuset=\"{may_pus}\" \
             nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\" allowed_nodeset=\"{may_nodes}\" gp_index=\"9999\">\n{inner}</object>\n"
        );
        let all = self.nodes(false);
        if self.has_distances && all.len() > 1 {
            let join = |numbers: Vec<String>| numbers.join(" ");
            let indexes = join(all.iter().map(u32::to_string).collect());
            let values = all.iter().flat_map(|a| {
                all.iter()
                    .map(move |b| if a == b { 10 } else { 20 + (a ^ b) })
            });
            let values = join(values.map(|v| v.to_string()).collect());
            let _ = writeln!(
                text,
                "<distances2 type=\"NUMANode\" nbobjs=\"{}\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">\
                 <indexes length=\"{}\">{indexes}</indexes><u64values length=\"{}\">{values}</u64values></distances2>",
                all.len(),
                indexes.len(),
                values.len()
            );
        }
        text + "</topology>\n"
    }

    fn read(&self) -> Option<Topology> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.xml");
        std::fs::write(&path, self.xml()).unwrap();
        from_xml(&path).ok()
    }
}

/// What every user of a topology takes for granted.
fn is_sound(odd: &Odd, machine: &Topology) {
    let objects = machine.objects();
    for (at, object) in objects.iter().enumerate() {
        assert!(!object.pus.is_empty(), "object {at} has no PU: {object:?}");
        assert!(object.distance.is_finite());
        let mut next = object.pus.start;
        for &child in &object.children {
            let below = &objects[child as usize];
            assert_eq!(below.parent, Some(at as u32));
            assert_eq!(below.pus.start, next, "children follow each other");
            next = below.pus.end;
        }
        assert!(object.children.is_empty() || next == object.pus.end);
        assert_eq!(object.parent.is_none(), at == 0);
    }
    let usable: BTreeSet<u32> = odd.pus(true).into_iter().collect();
    let found: BTreeSet<u32> = machine.pus().iter().map(|pu| pu.os.0).collect();
    assert_eq!(found, usable);
    let has_node = |os: u32| odd.nodes(true).contains(&os);
    for (at, pu) in machine.pus().iter().enumerate() {
        let node = &machine.nodes()[pu.node.index()];
        assert!(node.pus.contains(&LogicalPu::from_index(at)));
        let part = odd
            .parts
            .iter()
            .find(|part| part.cores.concat().contains(&pu.os.0))
            .unwrap();
        let own: Vec<u32> = part.nodes.iter().map(|(os, _)| *os).collect();
        if own.iter().any(|&os| has_node(os)) {
            assert!(
                own.contains(&node.os.0),
                "PU {:?} is local to {:?}, not to {own:?}",
                pu.os,
                node.os
            );
        } else if !own.is_empty() && odd.far.is_empty() {
            // Its own memory may not be used, so that no memory is local. (With nodes that are attached to the whole
            // machine, hwloc may give them its PUs.)
            assert_eq!(
                node.memory_bytes, 0,
                "PU {:?} is local to {:?}",
                pu.os, node.os
            );
        }
        assert_eq!(objects[pu.object as usize].pus, at as u32..at as u32 + 1);
        assert!(objects[pu.core as usize].pus.contains(&(at as u32)));
    }
    for a in 0..machine.nodes().len() {
        assert!((machine.nodes()[a].object as usize) < objects.len());
        for b in 0..machine.nodes().len() {
            let distance =
                machine.node_distance(LogicalNode::from_index(a), LogicalNode::from_index(b));
            assert!(distance.is_finite() && distance > 0.0);
        }
        let memory = machine.nearest_memory(LogicalNode::from_index(a));
        assert_ne!(machine.memory_of(memory), Some(0));
    }
    for a in 0..machine.pus().len() {
        let (a, b) = (
            LogicalPu::from_index(a),
            LogicalPu::from_index(machine.pus().len() - 1),
        );
        assert!(machine.distance(a, b).is_finite());
    }
    let _ = (machine.levels(), machine.summary(), machine.fingerprint());
}

fn part() -> impl Strategy<Value = Part> {
    let cores = prop::collection::vec(1..=3_usize, 0..=4);
    let nodes = prop::collection::vec(prop::sample::select(vec![0, GIB, 8 * GIB]), 0..=3);
    let may_use = prop::sample::select(vec![
        (true, true),
        (true, true),
        (true, false),
        (false, true),
    ]);
    (any::<bool>(), cores, nodes, may_use, any::<bool>()).prop_map(
        |(is_package, cores, nodes, may_use, is_wrapped)| Part {
            is_package,
            cores: cores.into_iter().map(|pus| vec![0; pus]).collect(),
            nodes: nodes.into_iter().map(|bytes| (0, bytes)).collect(),
            may_use,
            is_wrapped,
        },
    )
}

/// A machine whose PUs and nodes get numbers with gaps, in an order of their own.
fn odd() -> impl Strategy<Value = Odd> {
    let far = prop::collection::vec(prop::sample::select(vec![0, GIB]), 0..=2);
    let parts = prop::collection::vec(part(), 1..=5);
    (parts, far, any::<bool>(), 1..=3_u32, any::<u64>()).prop_map(
        |(mut parts, far, has_distances, gap, order)| {
            let mut pu = 0;
            let mut node = 0;
            let number = |next: &mut u32| {
                let this = *next;
                *next += gap;
                this
            };
            let rotation = order as usize % parts.len();
            for step in 0..parts.len() {
                let at = (rotation + step) % parts.len();
                let part = &mut parts[at];
                for core in &mut part.cores {
                    core.iter_mut().for_each(|one| *one = number(&mut pu));
                }
                part.nodes
                    .iter_mut()
                    .for_each(|one| one.0 = number(&mut node));
            }
            let far = far
                .into_iter()
                .map(|bytes| (number(&mut node), bytes))
                .collect();
            Odd {
                parts,
                far,
                has_distances,
            }
        },
    )
}

fn package(cores: &[&[u32]], nodes: &[(u32, u64)]) -> Part {
    Part {
        is_package: true,
        cores: cores.iter().map(|core| core.to_vec()).collect(),
        nodes: nodes.to_vec(),
        may_use: (true, true),
        is_wrapped: false,
    }
}

#[test]
fn a_container_with_the_pus_of_some_packages_and_the_memory_of_all() {
    let odd = Odd {
        parts: vec![
            package(&[&[0], &[1]], &[(0, GIB)]),
            package(&[], &[(1, GIB)]),
            package(&[&[4]], &[(2, GIB)]),
            package(&[], &[(3, GIB)]),
        ],
        far: vec![],
        has_distances: true,
    };
    let machine = odd.read().unwrap();
    is_sound(&odd, &machine);
    assert_eq!(
        (machine.nodes().len(), machine.nodes_with_pus().len()),
        (4, 2)
    );
    assert_eq!(machine.levels()[0].arity, (2, 2));
}

#[test]
fn pus_whose_node_may_not_be_used_are_local_to_no_other() {
    let mut odd = Odd {
        parts: vec![
            package(&[&[0], &[1]], &[(0, GIB)]),
            package(&[&[2], &[3]], &[(1, GIB)]),
        ],
        far: vec![],
        has_distances: true,
    };
    odd.parts[1].may_use.1 = false;
    let machine = odd.read().unwrap();
    is_sound(&odd, &machine);
    let home = machine.node_of(LogicalPu(2));
    assert_ne!(home, machine.node_of(LogicalPu(0)));
    assert_eq!(machine.nodes()[home.index()].os.0, 1);
    assert_eq!(machine.nearest_memory(home), machine.node_of(LogicalPu(0)));
}

#[test]
fn a_node_without_memory_is_no_node_of_unknown_size() {
    let odd = Odd {
        parts: vec![
            package(&[&[0], &[1]], &[(0, 0)]),
            package(&[&[2]], &[(1, GIB)]),
        ],
        far: vec![],
        has_distances: false,
    };
    let machine = odd.read().unwrap();
    is_sound(&odd, &machine);
    assert_eq!(machine.memory_of(LogicalNode(0)), Some(0));
    assert_eq!(machine.nearest_memory(LogicalNode(0)), LogicalNode(1));
    // No node has a size: then none is known.
    let mut unknown = odd;
    unknown.parts[1].nodes[0].1 = 0;
    assert_eq!(unknown.read().unwrap().memory_of(LogicalNode(0)), None);
}

/// The number of the first machine that a child process of the test below tries.
const FIRST: &str = "NUMALOC_TEST_FIRST_MACHINE";
const MACHINES: u32 = 200;

/// hwloc ends the process at some of them where its own assertions are on, as in builds with ours: a child process
/// tries the machines, and the next goes on behind the one that hwloc refused so.
#[test]
fn every_odd_machine_that_hwloc_reads_is_sound() {
    if let Ok(first) = std::env::var(FIRST) {
        return try_from(first.parse().unwrap());
    }
    let (mut first, mut refused) = (0, 0);
    while first < MACHINES {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "every_odd_machine_that_hwloc_reads_is_sound",
            ])
            .env(FIRST, first.to_string())
            .output()
            .unwrap();
        if child.status.success() {
            break;
        }
        let output =
            [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let is_hwlocs = child.status.signal() == Some(6) && output[1].contains("hwloc");
        assert!(is_hwlocs, "{}\n{}\n{}", child.status, output[0], output[1]);
        let mut tried = output[0]
            .lines()
            .filter_map(|line| line.strip_prefix("machine "));
        first = tried.next_back().unwrap().parse::<u32>().unwrap() + 1;
        refused += 1;
    }
    assert!(
        refused < MACHINES / 2,
        "{refused} of {MACHINES} machines end hwloc"
    );
}

/// Tries the machines from this one on.
fn try_from(first: u32) {
    let (strategy, mut runner) = (odd(), TestRunner::deterministic());
    for number in 0..MACHINES {
        let odd = strategy.new_tree(&mut runner).unwrap().current();
        if number < first {
            continue;
        }
        println!("machine {number}");
        if let Some(machine) = odd.read() {
            is_sound(&odd, &machine);
        }
    }
}
