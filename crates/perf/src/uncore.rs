//! Finds what the memory system of this machine can count: DRAM traffic, the memory controllers' read queues,
//! bytes on the links between sockets, local and remote reads, DRAM energy.
//!
//! [`discover`] reads only sysfs, so that tests can present any machine as a folder. PMUs are identified by their
//! names; their events are taken from `events/NAME` if the kernel lists them, else encoded with
//! `format/NAME`. Events that the kernel does not list are in `recipes`, with their sources.
//!
//! | module | holds |
//! |---|---|
//! | `recipes` | the events of each PMU and what they count |
//! | [`figures`] | formulas from counts to figures with units |
//! | [`crate::live::counting`] | opens and reads the counters |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::events::{Pmu, cpu_list};

pub mod figures;
mod recipes;

use recipes::{Encoding, Recipe, Scale};

/// Where the kernel describes the machine.
pub const SYSFS: &str = "/sys";
const PMUS: &str = "bus/event_source/devices";
const CPUS: &str = "devices/system/cpu";
const NODES: &str = "devices/system/node";
const POWERCAP: &str = "class/powercap";

/// What a counter counts, in the unit given by its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Bytes read from DRAM.
    DramRead,
    /// Bytes written to DRAM.
    DramWritten,
    /// Bytes read or written, if the controller does not distinguish them.
    DramMoved,
    /// Requests in the controller's read queue, summed over its clock cycles.
    QueueOccupancy,
    /// Requests that entered the read queue.
    QueueInserts,
    /// Clock cycles of the controller, if its queue is known to count in the same clock.
    QueueClocks,
    /// Bytes sent to other sockets.
    LinkSent,
    /// Bytes received from other sockets.
    LinkReceived,
    /// Reads of this socket's memory by its own cores and devices.
    LocalReads,
    /// Reads of this socket's memory from other sockets.
    RemoteReads,
    /// Joules of this socket's DRAM.
    DramEnergy,
}

/// A group of figures that a machine may offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Volume and bandwidth.
    Dram,
    /// Read queues of the memory controllers.
    Queue,
    /// UPI, QPI, xGMI.
    Link,
    /// Local and remote reads.
    Home,
    /// RAPL.
    Energy,
}

impl Topic {
    /// Every topic, in display order.
    pub const ALL: [Self; 5] = [
        Self::Dram,
        Self::Queue,
        Self::Link,
        Self::Home,
        Self::Energy,
    ];

    /// Its name for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM volume and bandwidth",
            Self::Queue => "memory-controller queue and latency",
            Self::Link => "UPI/QPI/xGMI bytes",
            Self::Home => "local and remote reads",
            Self::Energy => "DRAM energy",
        }
    }

    /// Where the topic's counters would be listed.
    const fn places(self) -> &'static str {
        match self {
            Self::Dram => "uncore_imc_*, amd_umc_*, amd_df or arm_cmn_*",
            Self::Queue => "uncore_imc_*",
            Self::Link => "uncore_upi_*, uncore_qpi_* or amd_df",
            Self::Home => "uncore_cha_*, uncore_ha_* or amd_df",
            Self::Energy => "power/events/energy-ram, nor powercap a dram domain",
        }
    }
}

impl Quantity {
    /// The topic of the quantity.
    #[must_use]
    pub const fn topic(self) -> Topic {
        match self {
            Self::DramRead | Self::DramWritten | Self::DramMoved => Topic::Dram,
            Self::QueueOccupancy | Self::QueueInserts | Self::QueueClocks => Topic::Queue,
            Self::LinkSent | Self::LinkReceived => Topic::Link,
            Self::LocalReads | Self::RemoteReads => Topic::Home,
            Self::DramEnergy => Topic::Energy,
        }
    }
}

/// Where a count comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `perf_event_open`.
    Event {
        /// The PMU's number.
        kind: u32,
        /// `config`, `config1`, `config2`.
        config: [u64; 3],
        /// The CPU on which the socket's counter is read.
        cpu: u32,
    },
    /// A file with a growing number that wraps to 0 after its range.
    File {
        /// The file that holds the number.
        path: PathBuf,
        /// Its range, if the kernel states it.
        range: Option<u64>,
    },
}

/// One counter of one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The PMU's folder, or the folder of the file.
    pub pmu: String,
    /// The event, as `perf stat -e PMU/EVENT/` takes it.
    pub event: String,
    /// Where to read it.
    pub source: Source,
    /// The package whose memory system it counts (`physical_package_id`).
    pub socket: u32,
    /// What it counts.
    pub quantity: Quantity,
    /// Value of one count in the unit of the quantity (bytes, requests, cycles, joules).
    pub scale: f64,
}

/// What a machine can count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// The available counters.
    pub counters: Vec<Counter>,
    /// The NUMA nodes of each socket, ascending.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// The topics that are not available, and why.
    pub missing: BTreeMap<Topic, String>,
}

/// What the machine shown by `sysfs` ([`SYSFS`]) can count.
#[must_use]
pub fn discover(sysfs: &Path) -> Offer {
    let machine = Machine::read(sysfs);
    let mut offer = Offer {
        nodes: machine.nodes(),
        ..Offer::default()
    };
    let names: Vec<&str> = machine.pmus.iter().map(String::as_str).collect();
    for name in &names {
        let folder = sysfs.join(PMUS).join(name);
        let Some(pmu) = Pmu::read(&folder, name) else {
            continue;
        };
        let known = recipes::of(name, &names, &pmu, &machine.modalias);
        for (topic, why) in known.missing {
            offer.missing.entry(topic).or_insert(why);
        }
        for recipe in known.recipes {
            machine.add(&mut offer, name, &pmu, &folder, &recipe);
        }
    }
    machine.add_energy_files(&mut offer);
    keep_whole_topics(&mut offer.counters);
    for topic in Topic::ALL {
        if offer.counters.iter().any(|c| c.quantity.topic() == topic) {
            offer.missing.remove(&topic);
        } else {
            let pmus = sysfs.join(PMUS);
            let why = || format!("{} has no {}", pmus.display(), topic.places());
            offer.missing.entry(topic).or_insert_with(why);
        }
    }
    offer
}

/// Drops counters whose figure needs another counter that is missing.
fn keep_whole_topics(counters: &mut Vec<Counter>) {
    let has = |counters: &[Counter], quantity| counters.iter().any(|c| c.quantity == quantity);
    let queue = has(counters, Quantity::QueueOccupancy) && has(counters, Quantity::QueueInserts);
    let home = has(counters, Quantity::LocalReads) && has(counters, Quantity::RemoteReads);
    counters.retain(|counter| match counter.quantity.topic() {
        Topic::Queue => queue,
        Topic::Home => home,
        _ => true,
    });
}

/// What is read once from sysfs.
struct Machine<'a> {
    sysfs: &'a Path,
    pmus: Vec<String>,
    modalias: String,
    /// Package of each CPU.
    packages: BTreeMap<u32, u32>,
}

impl<'a> Machine<'a> {
    fn read(sysfs: &'a Path) -> Self {
        let packages = numbered(&sysfs.join(CPUS), "cpu")
            .into_iter()
            .filter_map(|(cpu, folder)| {
                // Machines that have no packages report -1: one package.
                let package: i64 = text(&folder.join("topology/physical_package_id"))?
                    .parse()
                    .ok()?;
                Some((cpu, u32::try_from(package).unwrap_or(0)))
            })
            .collect();
        Self {
            sysfs,
            pmus: entries(&sysfs.join(PMUS)),
            modalias: text(&sysfs.join(CPUS).join("modalias")).unwrap_or_default(),
            packages,
        }
    }

    fn nodes(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (node, folder) in numbered(&self.sysfs.join(NODES), "node") {
            let cpus = cpu_list(&text(&folder.join("cpulist")).unwrap_or_default());
            let packages: BTreeSet<u32> = cpus
                .iter()
                .filter_map(|cpu| self.packages.get(cpu).copied())
                .collect();
            for package in packages {
                nodes.entry(package).or_default().push(node);
            }
        }
        nodes
    }

    /// Adds one counter for each CPU in the PMU's `cpumask`: the kernel lists one CPU per socket.
    fn add(&self, offer: &mut Offer, name: &str, pmu: &Pmu<'_>, folder: &Path, recipe: &Recipe) {
        let topic = recipe.quantity.topic();
        let mut refuse = |why: String| {
            offer.missing.entry(topic).or_insert(why);
        };
        let (event, parameters) = match &recipe.encoding {
            Encoding::Listed(event) => match pmu.listed(event) {
                Some(parameters) => ((*event).to_owned(), parameters),
                None => return refuse(format!("{name} lists no event {event}")),
            },
            Encoding::Raw(parameters) => (shown(parameters), parameters.clone()),
        };
        let Some(config) = pmu.encode(&parameters) else {
            return refuse(format!("{name} has no format for {event}"));
        };
        let scale = match recipe.scale {
            Scale::Fixed(scale) => Some(scale),
            Scale::Listed { unstated } => listed_scale(folder, &event, unstated),
        };
        let Some(scale) = scale else {
            return refuse(format!("{name}/{event}/ has no valid scale"));
        };
        let cpus = cpu_list(&text(&folder.join("cpumask")).unwrap_or_default());
        if cpus.is_empty() {
            return refuse(format!("{name} has no cpumask"));
        }
        for cpu in cpus {
            offer.counters.push(Counter {
                pmu: name.to_owned(),
                event: event.clone(),
                source: Source::Event {
                    kind: pmu.kind,
                    config,
                    cpu,
                },
                socket: self.packages.get(&cpu).copied().unwrap_or(0),
                quantity: recipe.quantity,
                scale,
            });
        }
    }

    /// Adds `intel-rapl:N:M` named `dram`: the same registers without perf.
    fn add_energy_files(&self, offer: &mut Offer) {
        let powercap = self.sysfs.join(POWERCAP);
        for zone in entries(&powercap) {
            let folder = powercap.join(&zone);
            let Some((package, _)) = zone
                .strip_prefix("intel-rapl:")
                .and_then(|rest| rest.split_once(':'))
            else {
                continue;
            };
            if text(&folder.join("name")).as_deref() != Some("dram") {
                continue;
            }
            let parent = text(&powercap.join(format!("intel-rapl:{package}")).join("name"));
            // `package-1`, or `package-1-die-0` if a package has several dies.
            let socket = parent
                .as_deref()
                .and_then(|name| name.strip_prefix("package-"))
                .and_then(|rest| rest.split('-').next()?.parse().ok());
            offer.counters.push(Counter {
                pmu: format!("powercap/{zone}"),
                event: "energy_uj".to_owned(),
                source: Source::File {
                    path: folder.join("energy_uj"),
                    range: text(&folder.join("max_energy_range_uj"))
                        .and_then(|range| range.parse().ok()),
                },
                socket: socket.unwrap_or(0),
                quantity: Quantity::DramEnergy,
                scale: 1e-6,
            });
        }
    }
}

/// Bytes or joules of one count, from `events/EVENT.scale` and `.unit`.
fn listed_scale(folder: &Path, event: &str, unstated: Option<f64>) -> Option<f64> {
    let Some(scale) = text(&folder.join(format!("events/{event}.scale"))) else {
        return unstated;
    };
    let scale: f64 = scale.parse().ok()?;
    let unit = match text(&folder.join(format!("events/{event}.unit")))?.as_str() {
        "MiB" => 1_048_576.0,
        "Bytes" | "Joules" => 1.0,
        _ => return None,
    };
    (scale.is_finite() && scale > 0.0).then_some(scale * unit)
}

fn shown(parameters: &[(String, u64)]) -> String {
    let each = parameters
        .iter()
        .map(|(name, value)| format!("{name}={value:#x}"));
    each.collect::<Vec<_>>().join(",")
}

/// The increase between two readings of a number that wraps to 0 after `range`.
#[must_use]
pub fn counted(before: u64, after: u64, range: Option<u64>) -> Option<u64> {
    if after >= before {
        return Some(after - before);
    }
    range?.checked_sub(before)?.checked_add(after)
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Names in a folder, sorted; none if the folder does not exist.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Folders named `PREFIXnumber`, by number.
fn numbered(folder: &Path, prefix: &str) -> BTreeMap<u32, PathBuf> {
    let number = |name: String| {
        let number = name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, folder.join(name)))
    };
    entries(folder).into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests;
