//! What the memory system of this machine can count: DRAM traffic, the memory controllers' read queues,
//! bytes on the links between sockets, local and remote reads, DRAM energy.
//!
//! [`discover`] asks sysfs only, so that it can be shown any machine as a folder. PMUs are known by their
//! names; what they count is taken from `events/NAME` where the kernel lists it, else encoded by
//! `format/NAME`. Events that the kernel does not list are in `recipes`, with their sources.
//!
//! | module | holds |
//! |---|---|
//! | `recipes` | which event of which PMU counts what |
//! | [`figures`] | formulas from counts to figures with units |
//! | [`crate::live::counting`] | the counters, opened and read |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::events::{Pmu, cpu_list};

pub mod figures;
mod recipes;

use recipes::{Encoding, Recipe, Scale};

/// Where the kernel shows the machine.
pub const SYSFS: &str = "/sys";
const PMUS: &str = "bus/event_source/devices";
const CPUS: &str = "devices/system/cpu";
const NODES: &str = "devices/system/node";
const POWERCAP: &str = "class/powercap";

/// What a counter counts, in the unit that its scale gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Bytes read from DRAM.
    DramRead,
    /// Bytes written to DRAM.
    DramWritten,
    /// Bytes read or written, where the controller does not tell them apart.
    DramMoved,
    /// Requests in the controller's read queue, summed over its clock cycles.
    QueueOccupancy,
    /// Requests that entered the read queue.
    QueueInserts,
    /// Clock cycles of the controller, where its queue is known to count in the same clock.
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

/// A group of figures that a machine offers or not.
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
    /// In the order they are shown.
    pub const ALL: [Self; 5] = [
        Self::Dram,
        Self::Queue,
        Self::Link,
        Self::Home,
        Self::Energy,
    ];

    /// For people.
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

    /// Where a machine would have it.
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
    /// What it belongs to.
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
        /// The CPU that stands for the socket.
        cpu: u32,
    },
    /// A file with a growing number, which starts again at 0 behind its range.
    File {
        /// The number.
        path: PathBuf,
        /// Its range, where the kernel states it.
        range: Option<u64>,
    },
}

/// One counter of one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The PMU's folder, or that of the file.
    pub pmu: String,
    /// The event, as `perf stat -e PMU/EVENT/` takes it.
    pub event: String,
    /// Where to read.
    pub source: Source,
    /// The package whose memory system it counts (`physical_package_id`).
    pub socket: u32,
    /// What one count is.
    pub quantity: Quantity,
    /// Units (bytes, requests, cycles, joules) of one count.
    pub scale: f64,
}

/// What a machine offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// What can be counted.
    pub counters: Vec<Counter>,
    /// The nodes of each socket, ascending.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// What cannot, and why.
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

/// Drops what gives no figure alone.
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

/// What is read once of the tree.
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
                // Machines without the notion say -1: one package.
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

    /// One counter for each CPU of the PMU's `cpumask`: the kernel names one a socket.
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
            return refuse(format!("{name}/{event}/ has no scale that makes sense"));
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

    /// `intel-rapl:N:M` named `dram`, the way to the same registers without perf.
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
            // `package-1`, or `package-1-die-0` where a package has several.
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

/// What was counted between two readings of a number that starts again at 0 behind `range`.
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

/// Names in a folder, sorted; none if there is no folder.
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
