//! Where a launcher starts ranks if nobody says more: consecutive ranks fill one host after the other.
//!
//! | launcher | ranks on a host, by default |
//! |---|---|
//! | `mpirun` of Open MPI, PRRTE | as many as cores, or as its host list says (`n1:4`); what exceeds all of them is divided evenly |
//! | Hydra (MPICH, Intel MPI) with a host list | as the list says, 1 if it does not; then again from the first host |
//! | `srun` | one on each of its nodes (`-N`), then as many as PUs, one node after the other |
//!
//! Options for the number on each host (`-npernode`, `-ppn`, `--map-by ppr:N:node`, `--ntasks-per-node`) and for one
//! rank after the other on the next host (`--map-by node`, `--distribution=cyclic`) are read from the recorded command.
//! Host files and settings in the environment are not: the user's number replaces all of that.

use std::ops::Range;

use numaloc_model::{LogicalPu, Mapping};
use numaloc_topology::{Topology, hostlist};

/// The PUs of each host.
#[must_use]
pub fn hosts(machine: &Topology) -> Vec<Range<u32>> {
    let hosts = machine.hosts().iter();
    hosts
        .map(|(object, _)| machine.objects()[*object as usize].pus.clone())
        .collect()
}

/// How a launcher starts ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The hosts in its order, by their position in the cluster, and the most ranks on each before the next is filled.
    slots: Vec<(usize, usize)>,
    order: Order,
    /// Whether the recorded command names several hosts of the cluster, so that the recorded run was there.
    pub is_recorded_there: bool,
}

/// In which order hosts get ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One host after the other, each with all its slots; what exceeds them is divided evenly.
    Fill,
    /// The same, but each host has a rank before one has two.
    FillAll,
    /// One rank on each host, then again.
    Cyclic,
    /// All slots of each host, then again.
    Again,
}

/// Options of launchers that have no value, of those that often come last before the program.
const FLAGS: [&str; 9] = [
    "--oversubscribe",
    "-oversubscribe",
    "--allow-run-as-root",
    "--use-hwthread-cpus",
    "--bynode",
    "-bynode",
    "--overcommit",
    "--exclusive",
    "-rr",
];
/// Options with two values.
const PAIRS: [&str; 6] = ["--mca", "-mca", "--prtemca", "--pmixmca", "-genv", "-env"];

/// What a command line says.
#[derive(Default)]
struct Said {
    per_host: Option<usize>,
    is_cyclic: bool,
    hosts: Vec<(String, Option<usize>)>,
    nodes: Option<usize>,
}

impl Said {
    fn of(command: &[String], is_slurm: bool) -> Self {
        let mut said = Self::default();
        let mut words = command.iter().skip(1).map(String::as_str);
        while let Some(word) = words.next() {
            // The program begins; its options are its own.
            if !word.starts_with('-') || word == "--" {
                break;
            }
            let glued = word
                .strip_prefix("-N")
                .filter(|rest| is_slurm && !rest.is_empty());
            let (name, value) = match (word.split_once('='), glued) {
                (_, Some(value)) => ("-N", value),
                (Some(pair), None) => pair,
                (None, None) if FLAGS.contains(&word) => (word, ""),
                (None, None) => {
                    if PAIRS.contains(&word) {
                        words.next();
                    }
                    // `-n4` of srun has its value already.
                    match is_slurm && word.len() > 2 && !word.starts_with("--") {
                        true => (word, ""),
                        false => (word, words.next().unwrap_or("")),
                    }
                }
            };
            match name {
                "-npernode" | "--npernode" | "-ppn" | "--ppn" | "-perhost"
                | "--ntasks-per-node" => {
                    said.per_host = value.parse().ok();
                }
                "-N" | "--nodes" if is_slurm => said.nodes = value.parse().ok(),
                "-N" => said.per_host = value.parse().ok(),
                "--map-by" | "-map-by" => {
                    let mut parts = value.split(':');
                    match (parts.next(), parts.next(), parts.next()) {
                        (Some("ppr"), Some(count), Some("node")) => {
                            said.per_host = count.parse().ok();
                        }
                        (Some("node"), ..) => said.is_cyclic = true,
                        _ => {}
                    }
                }
                "--bynode" | "-bynode" | "-rr" => said.is_cyclic = true,
                "-m" | "--distribution" if is_slurm => {
                    said.is_cyclic = value.starts_with("cyclic");
                }
                "-w" | "--nodelist" if is_slurm => {
                    let names = hostlist::expand(value).unwrap_or_default();
                    said.hosts = names.into_iter().map(|name| (name, None)).collect();
                }
                "-H" | "-host" | "--host" | "-hosts" | "--hosts" if !is_slurm => {
                    let names = value.split(',').map(|host| match host.split_once(':') {
                        Some((name, count)) => (name.to_owned(), count.parse().ok()),
                        None => (host.to_owned(), None),
                    });
                    said.hosts = names.collect();
                }
                _ => {}
            }
        }
        said
    }
}

/// How the recorded command starts `ranks` on a cluster; `per_host`: the user's number of ranks on each host.
#[must_use]
pub fn launched(
    command: &[String],
    machine: &Topology,
    ranks: usize,
    per_host: Option<usize>,
) -> Launched {
    let program = command.first().map_or("", |program| program.as_str());
    let program = program.rsplit('/').next().unwrap_or("");
    let is_slurm = program == "srun" && per_host.is_none();
    let is_hydra = program.contains("hydra") || program.contains("mpich");
    let said = Said::of(command, program == "srun");
    let pus = hosts(machine);
    let known = |name: &str| machine.hosts().iter().position(|(_, host)| host == name);
    let mut named: Vec<(usize, Option<usize>)> = Vec::new();
    for (name, count) in &said.hosts {
        let Some(at) = known(name) else { continue };
        match named.iter_mut().find(|(host, _)| *host == at) {
            // A host that is named twice has two slots.
            Some((_, slots)) => *slots = Some(slots.unwrap_or(1) + count.unwrap_or(1)),
            None => named.push((at, *count)),
        }
    }
    let is_recorded_there = named.len() > 1
        || is_slurm
            && said
                .nodes
                .is_some_and(|nodes| nodes > 1 && nodes <= pus.len());
    let all_named = !named.is_empty() && named.len() == said.hosts.len() && per_host.is_none();
    let order: Vec<(usize, Option<usize>)> = match (all_named, said.nodes) {
        (true, _) => named,
        (false, Some(nodes)) => (0..nodes.clamp(1, pus.len()))
            .map(|at| (at, None))
            .collect(),
        (false, None) => (0..pus.len()).map(|at| (at, None)).collect(),
    };
    let own = per_host.or(said.per_host);
    let slots = order.into_iter().map(|(host, count)| {
        let range = pus[host].clone();
        let by_default = match (is_slurm, is_hydra && all_named) {
            (true, _) => range.len(),
            (_, true) => 1,
            _ => cores(machine, range).len(),
        };
        (host, own.or(count).unwrap_or(by_default).max(1))
    });
    let order = match per_host {
        Some(_) => Order::Fill,
        None if said.is_cyclic => Order::Cyclic,
        None if is_slurm && own.is_none() => Order::FillAll,
        None if is_hydra && all_named => Order::Again,
        None => Order::Fill,
    };
    Launched {
        slots: slots.collect(),
        order,
        is_recorded_there: is_recorded_there && ranks > 1,
    }
}

/// The first PU of each core of a host, then the second ones and so on.
fn cores(machine: &Topology, pus: Range<u32>) -> Vec<u32> {
    let mut seen = Vec::new();
    for pu in pus {
        let core = machine.pus()[pu as usize].core;
        if seen
            .last()
            .is_none_or(|&last: &u32| machine.pus()[last as usize].core != core)
        {
            seen.push(pu);
        }
    }
    seen
}

impl Launched {
    /// Number of ranks on each of its hosts, in its order.
    fn counts(&self, ranks: usize) -> Vec<usize> {
        let hosts = self.slots.len();
        let mut counts = vec![0; hosts];
        let mut left = ranks;
        if self.order == Order::FillAll {
            for count in counts.iter_mut().take(left) {
                *count = 1;
            }
            left -= left.min(hosts);
        }
        for (count, (_, slots)) in counts.iter_mut().zip(&self.slots) {
            let more = slots.saturating_sub(*count).min(left);
            *count += more;
            left -= more;
        }
        for (at, count) in counts.iter_mut().enumerate() {
            *count += left / hosts + usize::from(at < left % hosts);
        }
        counts
    }

    /// The host of each rank, by its position in the cluster.
    fn hosts(&self, ranks: usize) -> Vec<usize> {
        let is_again = self.order == Order::Again;
        if !is_again && self.order != Order::Cyclic {
            let blocks = self.slots.iter().zip(self.counts(ranks));
            let each = blocks.flat_map(|(&(host, _), count)| std::iter::repeat_n(host, count));
            return each.collect();
        }
        // Hydra begins again at the first host, whatever is there already.
        let least = match is_again {
            true => ranks,
            false => ranks.div_ceil(self.slots.len()),
        };
        let slots = self.slots.iter();
        let mut left: Vec<usize> = slots.map(|(_, slots)| least.max(*slots)).collect();
        let mut found = Vec::with_capacity(ranks);
        while found.len() < ranks {
            for (left, &(host, slots)) in left.iter_mut().zip(&self.slots) {
                let turn = if is_again { slots } else { 1 };
                let now = turn.min(*left).min(ranks - found.len());
                found.extend(std::iter::repeat_n(host, now));
                *left -= now;
            }
        }
        found
    }

    /// A PU for each rank: the cores of its host in order, one rank on each while there are cores.
    ///
    /// # Panics
    /// If the machine is not the one that this was made for.
    #[must_use]
    pub fn mapping(&self, machine: &Topology, ranks: usize) -> Mapping {
        let all = hosts(machine);
        let mut order: Vec<Option<Vec<u32>>> = vec![None; all.len()];
        let mut used = vec![0; all.len()];
        let pu = self.hosts(ranks).into_iter().map(|host| {
            let pus = order[host].get_or_insert_with(|| {
                let mut first = cores(machine, all[host].clone());
                let others = all[host]
                    .clone()
                    .filter(|pu| first.binary_search(pu).is_err());
                let others: Vec<u32> = others.collect();
                first.extend(others);
                first
            });
            let pu = pus[used[host] % pus.len()];
            used[host] += 1;
            LogicalPu(pu)
        });
        Mapping { pu: pu.collect() }
    }

    /// The layout in words.
    #[must_use]
    pub fn words(&self) -> String {
        let most = self.slots.iter().map(|(_, slots)| *slots).max();
        let most = most.unwrap_or(0);
        match self.order {
            Order::Cyclic => "one rank on each host, then again".to_owned(),
            Order::Again => format!("{most} consecutive on each host, then again"),
            Order::Fill | Order::FillAll => {
                format!("consecutive ranks on a host, at most {most} before the next")
            }
        }
    }
}
