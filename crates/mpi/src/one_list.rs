//! Finds one list of PUs that serves all hosts, because Hydra and Slurm can express only one.
//!
//! Equal hosts often get different lists for no good reason: a plan fills one host from its first node and the next
//! from its last. If lists differ only by a symmetry of the hosts' trees, the PUs of each host are renumbered: in the
//! order of the host's threads, each object of the tree that occurs for the first time becomes the first of its equal
//! siblings that is still free. Lists that a symmetry maps to each other become equal by this.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::LogicalPu;
use numaloc_topology::{ObjectKind, Topology};

use crate::rank_map::{HostPu, RankMap, RankPlace};

/// Why no single list serves all hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "host {host} needs other PUs than host {model} ({list}, there {model_list}), and no symmetry of the hosts maps one to the other"
)]
pub struct Unequal {
    /// The first host, in the order of ranks, whose list differs.
    pub host: String,
    /// The host it is compared with: the one with most ranks.
    pub model: String,
    /// PUs of the first host's ranks, kernel numbers, at the first difference.
    pub list: String,
    /// PUs of the model host's ranks there.
    pub model_list: String,
}

/// The first host, if any, whose ranks are on other PUs than those of the host with most ranks.
fn differing(map: &RankMap) -> Option<Unequal> {
    let hosts = map.by_host();
    let longest = hosts.iter().map(|(_, ranks)| ranks.len()).max()?;
    let (model, model_ranks) = hosts.iter().find(|(_, ranks)| ranks.len() == longest)?;
    let shown = |rank: u32| {
        let pus = map.places[rank as usize].distinct_pus();
        let numbers: Vec<String> = pus.iter().map(|pu| pu.os.to_string()).collect();
        format!("rank {rank}: PU {}", numbers.join("+"))
    };
    let same = |a: u32, b: u32| {
        let of = |rank: u32| map.places[rank as usize].distinct_pus().into_iter();
        of(a).map(|pu| pu.os).eq(of(b).map(|pu| pu.os))
    };
    hosts.iter().find_map(|(host, ranks)| {
        let pairs = ranks.iter().zip(model_ranks);
        let (&rank, &other) = pairs.into_iter().find(|&(&a, &b)| !same(a, b))?;
        Some(Unequal {
            host: (*host).to_owned(),
            model: (*model).to_owned(),
            list: shown(rank),
            model_list: shown(other),
        })
    })
}

/// Returns `map` if one list of PUs serves all hosts, else `map` renumbered by symmetries of the hosts of `machine`.
///
/// # Errors
/// [`Unequal`] if no such renumbering makes the lists equal.
pub fn one_list(map: &RankMap, machine: &Topology) -> Result<RankMap, Unequal> {
    let Some(unequal) = differing(map) else {
        return Ok(map.clone());
    };
    let classes = Classes::of(machine);
    let mut aligned = map.clone();
    for (host, ranks) in map.by_host() {
        let Some(root) = (0..machine.objects().len() as u32).find(|&object| {
            machine.objects()[object as usize].kind == ObjectKind::Host
                && machine.host_name(object) == Some(host)
        }) else {
            return Err(unequal);
        };
        let mut renumbering = Renumbering::new(machine, &classes, root);
        for rank in ranks {
            let place = &mut aligned.places[rank as usize];
            if renumbering.apply(place).is_none() {
                return Err(unequal);
            }
        }
        if !renumbering.keeps_distances() {
            return Err(unequal);
        }
    }
    match differing(&aligned) {
        None => Ok(aligned),
        Some(unequal) => Err(unequal),
    }
}

/// A class number for each object: objects with equal trees below them have equal numbers.
struct Classes(Vec<u32>);

/// The shape of an object: kind, cache bytes, distance, memory of its nodes, classes of its children.
type Shape = (ObjectKind, Option<u64>, u64, Vec<u64>, Vec<u32>);

impl Classes {
    fn of(machine: &Topology) -> Self {
        let objects = machine.objects();
        let mut memories: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for node in machine.nodes() {
            memories
                .entry(node.object)
                .or_default()
                .push(node.memory_bytes);
        }
        let mut deepest_first: Vec<usize> = (0..objects.len()).collect();
        deepest_first.sort_by_key(|&at| std::cmp::Reverse(objects[at].depth));
        let mut known: BTreeMap<Shape, u32> = BTreeMap::new();
        let mut classes = vec![0; objects.len()];
        for at in deepest_first {
            let object = &objects[at];
            let children = object.children.iter().map(|&child| classes[child as usize]);
            let mut children: Vec<u32> = children.collect();
            children.sort_unstable();
            let mut memory = memories.remove(&(at as u32)).unwrap_or_default();
            memory.sort_unstable();
            let distance = object.distance.to_bits();
            let shape = (object.kind, object.cache_bytes, distance, memory, children);
            let next = known.len() as u32;
            classes[at] = *known.entry(shape).or_insert(next);
        }
        Self(classes)
    }
}

/// A symmetry of one host, built object by object.
struct Renumbering<'a> {
    machine: &'a Topology,
    classes: &'a Classes,
    root: u32,
    /// Image of each object that occurred.
    image: BTreeMap<u32, u32>,
    taken: BTreeSet<u32>,
    /// Image of each PU of the machine that occurred, logical numbers.
    pus: BTreeMap<u32, u32>,
}

impl<'a> Renumbering<'a> {
    fn new(machine: &'a Topology, classes: &'a Classes, root: u32) -> Self {
        Self {
            machine,
            classes,
            root,
            image: BTreeMap::from([(root, root)]),
            taken: BTreeSet::new(),
            pus: BTreeMap::new(),
        }
    }

    /// The image of an object of the host.
    fn image_of(&mut self, object: u32) -> Option<u32> {
        if let Some(&image) = self.image.get(&object) {
            return Some(image);
        }
        let objects = self.machine.objects();
        let above = self.image_of(objects[object as usize].parent?)?;
        let class = self.classes.0[object as usize];
        let free = |&&child: &&u32| {
            self.classes.0[child as usize] == class && !self.taken.contains(&child)
        };
        let image = *objects[above as usize].children.iter().find(free)?;
        self.taken.insert(image);
        self.image.insert(object, image);
        Some(image)
    }

    /// Maps a rank's threads to their images; `None` if the tree does not determine them.
    fn apply(&mut self, place: &mut RankPlace) -> Option<()> {
        let objects = self.machine.objects();
        let first = objects[self.root as usize].pus.start;
        // Cores are numbered from 0 on each host, as in a rank map.
        let core_of = |pu: u32| {
            let cores = (first..=pu).map(|pu| self.machine.pus()[pu as usize].core);
            cores.collect::<BTreeSet<u32>>().len() as u32 - 1
        };
        let mut moved = Vec::with_capacity(place.pus.len());
        for pu in &place.pus {
            let from = first + pu.logical;
            let object = self.machine.pus().get(from as usize)?.object;
            let image = self.image_of(object)?;
            let to = objects[image as usize].pus.start;
            self.pus.insert(from, to);
            moved.push(HostPu {
                logical: to - first,
                os: self.machine.pus()[to as usize].os.0,
                core: core_of(to),
            });
        }
        place.pus = moved;
        Some(())
    }

    /// Whether distances between PUs and nodes are preserved: a distance matrix may be less regular than the tree.
    fn keeps_distances(&self) -> bool {
        let node = |pu: u32| self.machine.node_of(LogicalPu(pu));
        self.pus.iter().all(|(&a, &to_a)| {
            self.pus.iter().all(|(&b, &to_b)| {
                let pu = LogicalPu;
                self.machine.distance(pu(a), pu(b)) == self.machine.distance(pu(to_a), pu(to_b))
                    && self.machine.node_distance(node(a), node(b))
                        == self.machine.node_distance(node(to_a), node(to_b))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use numaloc_model::plan::{Plan, ThreadPlan};
    use numaloc_topology::cluster::compose;
    use numaloc_topology::resolve;

    use super::*;
    use crate::export::{hydra, slurm};

    /// Three hosts, each described by an element of `machine`.
    fn cluster(machine: [&str; 3]) -> Topology {
        let hosts = machine.map(|machine| resolve(machine).unwrap());
        let names = ["a", "b", "c"].map(str::to_owned);
        let hosts: Vec<(String, &Topology)> = names.into_iter().zip(&hosts).collect();
        compose("trio", &hosts, None).unwrap()
    }

    /// Ranks with the PUs of their threads.
    fn map(machine: &Topology, ranks: &[&[u32]]) -> RankMap {
        let threads = ranks.iter().enumerate().flat_map(|(rank, pus)| {
            pus.iter().enumerate().map(move |(thread, &pu)| ThreadPlan {
                path: format!("r{rank}/0.{thread}"),
                pu: LogicalPu(pu),
                os_pu: machine.pus()[pu as usize].os,
            })
        });
        let plan = Plan {
            threads: threads.collect(),
            ..Plan::by_hand(machine.name(), &machine.fingerprint())
        };
        RankMap::from_plan(&plan, machine).unwrap()
    }

    const HOST: &str = "numa:2 core:2 pu:2";

    #[test]
    fn lists_that_a_symmetry_makes_equal_become_one() {
        let machine = cluster([HOST; 3]);
        // Host a: cores 0 and 1 of node 0, then node 1. Host b: node 1 first, with cores and threads reversed. Host
        // c: fewer.
        let found = map(
            &machine,
            &[&[0], &[2], &[4], &[15], &[13], &[9], &[22], &[20]],
        );
        assert_eq!(hydra::options(&found), None);
        let one = one_list(&found, &machine).unwrap();
        assert_eq!(hydra::options(&one).unwrap().last().unwrap(), "user:0,2,4");
        assert_eq!(slurm::cpu_bind(&one).unwrap(), "map_cpu:0,2,4");
        let cores: Vec<u32> = one.places.iter().map(|place| place.pus[0].core).collect();
        assert_eq!(cores, [0, 1, 2, 0, 1, 2, 0, 1]);
        // Ranks stay on their hosts.
        for (before, after) in found.places.iter().zip(&one.places) {
            assert_eq!(before.host, after.host);
        }
        // Ranks with threads: a whole node each, with the nodes exchanged.
        let found = map(&machine, &[&[0, 2], &[4, 6], &[12, 14], &[8, 10]]);
        let one = one_list(&found, &machine).unwrap();
        assert_eq!(slurm::cpu_bind(&one).unwrap(), "mask_cpu:0x5,0x50");
    }

    #[test]
    fn lists_that_are_one_already_stay() {
        let machine = cluster([HOST; 3]);
        let found = map(&machine, &[&[7], &[5], &[15], &[13]]);
        assert_eq!(one_list(&found, &machine).unwrap(), found);
    }

    #[test]
    fn the_host_that_differs_is_named() {
        let machine = cluster([HOST; 3]);
        // On host b the second rank shares a core with the first, on the other hosts it does not.
        let found = map(&machine, &[&[0], &[2], &[8], &[9], &[16], &[18]]);
        let unequal = one_list(&found, &machine).unwrap_err();
        assert_eq!((&*unequal.host, &*unequal.model), ("b", "a"));
        assert!(
            unequal
                .to_string()
                .contains("rank 3: PU 1, there rank 1: PU 2"),
            "{unequal}"
        );
        // Host c has one node of four cores: two ranks on one node differ from two ranks on two nodes.
        let machine = cluster([HOST, HOST, "numa:1 core:4 pu:2"]);
        let found = map(&machine, &[&[0], &[4], &[8], &[12], &[16], &[18]]);
        let unequal = one_list(&found, &machine).unwrap_err();
        assert_eq!(unequal.host, "c");
    }
}
