//! Where a plan places each rank: the input of all launcher exports.

use std::collections::BTreeMap;

use numaloc_identity::ThreadPath;
use numaloc_model::LogicalPu;
use numaloc_model::plan::Plan;
use numaloc_topology::{ObjectKind, Topology};

/// A PU of a host with the numbers that launchers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPu {
    /// Position on its host (hwloc `L#`).
    pub logical: u32,
    /// The kernel's number on its host (hwloc `P#`).
    pub os: u32,
    /// Position of its core on its host.
    pub core: u32,
}

/// One rank: its host and the PUs of its threads, in thread order (a plain rank has one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// Host name; `localhost` on a machine that is no cluster.
    pub host: String,
    /// One per planned thread of the rank; may repeat.
    pub pus: Vec<HostPu>,
}

impl RankPlace {
    /// The rank's PUs, ascending, each once.
    #[must_use]
    pub fn distinct_pus(&self) -> Vec<HostPu> {
        let mut pus = self.pus.clone();
        pus.sort_unstable();
        pus.dedup();
        pus
    }
}

/// Places by rank, from 0 without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMap {
    /// By rank.
    pub places: Vec<RankPlace>,
    /// Whether a core of the machine has more than one PU, so that core and PU numbers differ.
    pub smt: bool,
}

/// Why a plan does not place ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankMapError {
    /// No path of the plan names a rank.
    #[error(
        "the plan has no MPI ranks: none of its {threads} thread paths begins with r and a number"
    )]
    NoRanks {
        /// Threads in the plan.
        threads: usize,
    },
    /// A rank below the highest is missing.
    #[error("the plan places {ranks} ranks up to rank {last}, but not rank {missing}")]
    Gap {
        /// Number of ranks in the plan.
        ranks: usize,
        /// The highest rank.
        last: u32,
        /// The first missing rank.
        missing: u32,
    },
    /// Threads of one process on several hosts.
    #[error(
        "the plan puts threads of rank {rank} on host {first} and on host {other}, but a process has one host"
    )]
    Split {
        /// The rank.
        rank: u32,
        /// The first thread's host.
        first: String,
        /// Another thread's host.
        other: String,
    },
    /// A PU the machine does not have.
    #[error("the plan puts rank {rank} on {pu}, but the machine has {pus} PUs")]
    NoSuchPu {
        /// The rank.
        rank: u32,
        /// The PU.
        pu: LogicalPu,
        /// PUs of the machine.
        pus: usize,
    },
}

impl RankMap {
    /// The ranks of a plan made for `machine`.
    ///
    /// # Errors
    /// [`RankMapError`] if the plan has no ranks, a gap, a rank on several hosts, or a PU that the machine does not
    /// have.
    pub fn from_plan(plan: &Plan, machine: &Topology) -> Result<Self, RankMapError> {
        let mut pus: BTreeMap<u32, Vec<LogicalPu>> = BTreeMap::new();
        for thread in &plan.threads {
            if let Some(rank) = ThreadPath::new(&thread.path).rank() {
                pus.entry(rank).or_default().push(thread.pu);
            }
        }
        let threads = plan.threads.len();
        let &last = pus
            .keys()
            .next_back()
            .ok_or(RankMapError::NoRanks { threads })?;
        if let Some(missing) = (0..=last).find(|rank| !pus.contains_key(rank)) {
            return Err(RankMapError::Gap {
                ranks: pus.len(),
                last,
                missing,
            });
        }
        let sites = Sites::of(machine);
        let mut places = Vec::with_capacity(pus.len());
        for (rank, pus) in pus {
            let found: Option<Vec<(&str, HostPu)>> =
                pus.iter().map(|&pu| sites.site(machine, pu)).collect();
            let found = found.ok_or_else(|| {
                let all = machine.pus().len();
                let pu = pus
                    .iter()
                    .copied()
                    .find(|pu| pu.index() >= all)
                    .unwrap_or_default();
                RankMapError::NoSuchPu { rank, pu, pus: all }
            })?;
            // Threads of a process share its memory, so they are all on this host.
            let host = found[0].0.to_owned();
            if let Some((other, _)) = found.iter().find(|(other, _)| *other != host) {
                return Err(RankMapError::Split {
                    rank,
                    first: host,
                    other: (*other).to_owned(),
                });
            }
            places.push(RankPlace {
                host,
                pus: found.into_iter().map(|(_, pu)| pu).collect(),
            });
        }
        Ok(Self {
            places,
            smt: sites.smt,
        })
    }

    /// The hosts in the order of their first rank, each with its ranks in order.
    #[must_use]
    pub fn by_host(&self) -> Vec<(&str, Vec<u32>)> {
        let mut hosts: Vec<(&str, Vec<u32>)> = Vec::new();
        let mut at: BTreeMap<&str, usize> = BTreeMap::new();
        for (rank, place) in self.places.iter().enumerate() {
            let host = *at.entry(&place.host).or_insert_with(|| {
                hosts.push((&place.host, Vec::new()));
                hosts.len() - 1
            });
            hosts[host].1.push(rank as u32);
        }
        hosts
    }

    /// Whether several ranks share a PU, so that a polling rank keeps another from running.
    #[must_use]
    pub fn shares_pus(&self) -> bool {
        let mut used = std::collections::BTreeSet::new();
        self.places.iter().any(|place| {
            let mut pus = place.distinct_pus().into_iter();
            pus.any(|pu| !used.insert((place.host.as_str(), pu.os)))
        })
    }

    /// Whether some rank has several threads.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.places.iter().any(|place| place.pus.len() > 1)
    }
}

/// Hosts of a machine with their first PU and first core.
struct Sites {
    hosts: Vec<(u32, u32, String)>,
    core_of_pu: Vec<u32>,
    smt: bool,
}

impl Sites {
    fn of(machine: &Topology) -> Self {
        let mut core_of_pu = Vec::with_capacity(machine.pus().len());
        let mut cores = 0;
        let mut last = None;
        for pu in machine.pus() {
            if last != Some(pu.core) {
                cores += 1;
                last = Some(pu.core);
            }
            core_of_pu.push(cores - 1);
        }
        let objects = machine.objects().iter().enumerate();
        let hosts: Vec<_> = objects
            .filter(|(_, object)| object.kind == ObjectKind::Host && !object.pus.is_empty())
            .map(|(at, object)| {
                let first = object.pus.start;
                let name = machine.host_name(at as u32).unwrap_or("localhost");
                (first, core_of_pu[first as usize], name.to_owned())
            })
            .collect();
        let hosts = if hosts.is_empty() {
            vec![(0, 0, "localhost".to_owned())]
        } else {
            hosts
        };
        Self {
            smt: (cores as usize) < machine.pus().len(),
            hosts,
            core_of_pu,
        }
    }

    fn site(&self, machine: &Topology, pu: LogicalPu) -> Option<(&str, HostPu)> {
        let known = machine.pus().get(pu.index())?;
        let host = self.hosts.partition_point(|(first, ..)| *first <= pu.0) - 1;
        let (first, first_core, name) = &self.hosts[host];
        Some((
            name,
            HostPu {
                logical: pu.0 - first,
                os: known.os.0,
                core: self.core_of_pu[pu.index()] - first_core,
            },
        ))
    }
}
