//! What `numaloc validate` finds on this machine: nodes, settings of the kernel, counters, and ways to see accesses;
//! for what is not there, the reason.

use std::path::Path;
use std::process::{Command, Stdio};

use numaloc_launch::Stop;
use numaloc_perf::events;
use numaloc_sys::balancing::{self, Balancing};
use numaloc_topology::{Topology, from_this_machine, resolve};
use serde_json::{Value, json};

use crate::commands::compare::own;
use crate::error::CliError;

/// Something that is not done, and why.
pub(super) struct LeftOut {
    pub what: String,
    pub why: String,
}

/// This machine.
pub(super) struct Machine {
    /// As hwloc reports it, with measured latencies and bandwidths if it was calibrated.
    pub topology: Topology,
    /// What `machines calibrate` measured.
    pub calibration: Option<Value>,
    /// Model of the processor.
    pub processor: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Whether an emulator executes the instructions, so that times mean nothing.
    pub emulated: bool,
    /// Average number of programs and threads that ran or waited for a PU in the last minute.
    pub load: Option<f64>,
    /// Settings of the kernel: file and content.
    pub settings: Vec<(&'static str, String)>,
    /// Events of the PMU that sample memory accesses.
    pub sampled: Vec<String>,
    /// Source of samples that `run --online` uses without a PMU, and with one.
    pub online: [Option<&'static str>; 2],
    /// The switch of AutoNUMA.
    pub balancing: Option<Balancing>,
    /// What the machine does not offer.
    pub left_out: Vec<LeftOut>,
}

/// Settings that decide what can be measured, and what it means.
const SETTINGS: [&str; 6] = [
    balancing::SWITCH,
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
];
/// Sources of `run --online` that need no PMU, and those that do: the first that works is used.
const SOFTWARE: [&str; 3] = ["hint-faults", "soft-dirty", "page-faults"];
/// See [`SOFTWARE`].
const HARDWARE: [&str; 2] = ["pmu", "lab"];

/// What is left out without measured latencies and bandwidths.
pub(super) const CALIBRATION: &str = "calibration: predictions use the figures of a usual server";

fn text(path: &str) -> Option<String> {
    let text = numaloc_files::input::read_text(Path::new(path), 1 << 22).ok()?;
    Some(text.trim().to_owned())
}

impl Machine {
    /// Looks at this machine.
    pub fn of_this(stop: &Stop) -> Result<Self, CliError> {
        let load = text("/proc/loadavg");
        let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
        let topology = from_this_machine()?;
        let nodes = topology.nodes().len();
        let mut left_out = Vec::new();
        let mut leave_out = |what: &str, why: String| {
            left_out.push(LeftOut {
                what: what.to_owned(),
                why,
            });
        };
        let switch = match Balancing::take(nodes) {
            Ok(balancing) => Some(balancing),
            Err(why) => {
                leave_out("variant autonuma", why.to_string());
                None
            }
        };
        let sampled: Vec<String> = match numaloc_perf::live::permitted()
            .map_err(|error| error.to_string())
            .and_then(|()| {
                events::discover(Path::new(events::SYSFS)).map_err(|error| error.to_string())
            }) {
            Ok(events) => events.into_iter().map(|event| event.name).collect(),
            Err(why) => {
                leave_out("variant plan-pmu (a recording by samples)", why);
                Vec::new()
            }
        };
        let online = match nodes {
            // `run --online` samples nothing here; what it costs is measured all the same.
            1 => {
                leave_out(
                    "variant online-pmu",
                    "on a machine with one NUMA node nothing is sampled".to_owned(),
                );
                [Some(SOFTWARE[0]), None]
            }
            _ => sources(switch.as_ref(), !sampled.is_empty(), &mut leave_out, stop),
        };
        let processor = processor();
        Ok(Self {
            topology,
            calibration: None,
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            emulated: processor.contains("TCG"),
            processor,
            load,
            settings: SETTINGS
                .iter()
                .filter_map(|file| Some((*file, text(file)?)))
                .collect(),
            sampled,
            online,
            balancing: switch,
            left_out,
        })
    }

    /// Kernel numbers of the nodes that have memory.
    pub fn memory_nodes(&self) -> Vec<u32> {
        let nodes = self.topology.nodes();
        // Some machines report the memory of no node.
        let unknown = nodes.iter().all(|node| node.memory_bytes == 0);
        let nodes = nodes.iter();
        nodes
            .filter(|node| unknown || node.memory_bytes > 0)
            .map(|node| node.os.0)
            .collect()
    }

    /// Whether places can make a difference.
    pub fn has_places(&self) -> bool {
        self.topology.nodes().len() > 1
    }

    /// Bytes of all last-level caches.
    pub fn cache_bytes(&self) -> u64 {
        let of_level = |level: u8| -> u64 {
            let objects = self.topology.objects().iter();
            objects
                .filter(|object| object.kind == numaloc_topology::ObjectKind::Cache(level))
                .filter_map(|object| object.cache_bytes)
                .sum()
        };
        (1..=5)
            .rev()
            .map(of_level)
            .find(|&bytes| bytes > 0)
            .unwrap_or(0)
    }

    /// Measures latencies and bandwidths, each for this many seconds, and keeps them with the machine.
    pub fn calibrate(&mut self, seconds: f64, folder: &Path, stop: &Stop) {
        let done = calibrated(seconds, folder, stop).and_then(|(file, measured)| {
            let described = resolve(&file).map_err(|error| error.to_string())?;
            let with = self.topology.clone().with_hardware_of(&described);
            let with = with.ok_or("the measured machine has another number of PUs or nodes")?;
            Ok((with, measured))
        });
        match done {
            Ok((with, measured)) => {
                self.topology = with;
                self.calibration = Some(measured);
            }
            Err(why) => self.left_out.push(LeftOut {
                what: CALIBRATION.to_owned(),
                why,
            }),
        }
    }
}

/// Runs `machines calibrate`; the path of the machine file, and what was measured.
fn calibrated(seconds: f64, folder: &Path, stop: &Stop) -> Result<(String, Value), String> {
    let (file, json) = (folder.join("this.toml"), folder.join("this.json"));
    let mut command = own().map_err(|error| error.message)?;
    command.arg("--quiet").arg(option("--json", &json));
    command.args(["machines", "calibrate", "--seconds", &seconds.to_string()]);
    command.arg("-o").arg(&file);
    finished(&mut command, stop)?;
    let measured =
        numaloc_files::input::read_text(&json, 1 << 24).map_err(|why| why.to_string())?;
    let measured = serde_json::from_str(&measured).map_err(|why| why.to_string())?;
    Ok((file.to_string_lossy().into_owned(), measured))
}

/// `NAME=FILE`.
pub(super) fn option(name: &str, file: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from(name);
    word.push("=");
    word.push(file);
    word
}

/// Runs a command whose output nobody reads; the first line of its standard error if it fails.
pub(super) fn finished(command: &mut Command, stop: &Stop) -> Result<(), String> {
    let failed = |why: std::io::Error| why.to_string();
    let said = tempfile::NamedTempFile::new().map_err(failed)?;
    let error = said.reopen().map_err(failed)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(error);
    let status = stop.run(command).map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let said = std::fs::read_to_string(said.path()).unwrap_or_default();
    Err(match said.lines().next() {
        Some(line) => line.trim_start_matches("error: ").to_owned(),
        None => status.to_string(),
    })
}

/// The sources of samples of the variants `online` and `online-pmu`; why there is none.
fn sources(
    switch: Option<&Balancing>,
    has_pmu: bool,
    leave_out: &mut dyn FnMut(&str, String),
    stop: &Stop,
) -> [Option<&'static str>; 2] {
    // As it will be during those runs: hint faults come from the balancing itself.
    if let Some(Err(why)) = switch.map(|switch| switch.set(false)) {
        leave_out("variants online and online-pmu", why.to_string());
        return [None; 2];
    }
    let hardware = match has_pmu {
        true => &HARDWARE[..],
        false => &HARDWARE[1..],
    };
    [("online", &SOFTWARE[..]), ("online-pmu", hardware)].map(|(name, sources)| {
        let found = first_source(sources, stop);
        found
            .map_err(|why| leave_out(&format!("variant {name}"), why))
            .ok()
    })
}

/// The first source of samples with which `run --online` runs a program that does nothing.
fn first_source(sources: &[&'static str], stop: &Stop) -> Result<&'static str, String> {
    let mut reasons = Vec::new();
    for source in sources {
        let mut command = own().map_err(|error| error.message)?;
        command.args(["--quiet", "run", "--online", "--source", source, "--"]);
        command.arg(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args([
            "validate",
            super::kernel::KERNEL,
            "private",
            "--threads",
            "1",
        ]);
        match finished(&mut command, stop) {
            Ok(()) => return Ok(source),
            Err(why) => reasons.push(format!("{source}: {why}")),
        }
    }
    Err(reasons.join("; "))
}

fn processor() -> String {
    let text = text("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or("unknown processor".to_owned(), |(_, model)| {
        model.trim().to_owned()
    })
}

/// The machine as JSON.
pub(super) fn json(machine: &Machine) -> Value {
    let topology = &machine.topology;
    let nodes = topology.nodes().iter().map(|node| {
        json!({
            "node": node.os.0,
            "pus": node.pus.len(),
            "memory_bytes": node.memory_bytes,
        })
    });
    let settings = machine.settings.iter();
    json!({
        "summary": topology.summary(),
        "fingerprint": topology.fingerprint(),
        "processor": machine.processor,
        "kernel": machine.kernel,
        "emulated": machine.emulated,
        "nodes": nodes.collect::<Vec<_>>(),
        "distances": topology.node_matrix(),
        "settings": settings
            .map(|(file, content)| ((*file).to_owned(), json!(content)))
            .collect::<serde_json::Map<_, _>>(),
        "sampled_events": machine.sampled,
        "online_source": machine.online[0].filter(|_| machine.has_places()),
        "online_pmu_source": machine.online[1],
        "autonuma": machine.balancing.is_some(),
        "calibration": machine.calibration,
    })
}
