//! `numaloc machines calibrate`: measures this machine and writes a machine file for `numaloc simulate`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numaloc_model::LogicalNode;
use numaloc_topology::{ObjectKind, Topology, from_this_machine};
use serde_json::{Value, json};

use super::measure::{self, Access, FRESH};
use crate::commands::report::today;
use crate::error::CliError;
use crate::ui::{Ui, stderr};

/// Measure this machine and write a machine file: latency by pointer chase and bandwidth by streams, for each pair of
/// nodes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc machines calibrate -o mine.toml
  numaloc simulate app.numaloc --machine mine.toml

Other programs should not run meanwhile. The file describes a symmetric machine; plans for this machine are
made without --machine, because the file numbers PUs as hwloc does, not as the kernel does.")]
pub struct Args {
    /// Machine file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Name of the machine [default: the file's name]
    #[arg(long)]
    name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Memory that each thread reads [default: four times the last-level cache, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = crate::size::byte_size)]
    memory: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 60".to_owned()),
    }
}

/// A cache of the first PU.
struct Cache {
    level: u8,
    bytes: u64,
    ways: u32,
    latency_cycles: f64,
}

/// What was measured.
struct Measured {
    clock_hz: f64,
    line_bytes: usize,
    caches: Vec<Cache>,
    /// Nodes with PUs, by the logical index.
    from: Vec<usize>,
    /// Nanoseconds: a row for each of `from`, a column for each node.
    latency_ns: Vec<Vec<f64>>,
    /// Bytes per second that all cores of a node read from a node, in the same order.
    bytes_per_s: Vec<Vec<f64>>,
}

impl Args {
    /// Measures and writes the file.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = ui.output(&self.output, self.force)?;
        let topology = from_this_machine()?;
        let synthetic = synthetic(&topology)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => self
                .output
                .file_stem()
                .map_or("measured".to_owned(), |stem| {
                    stem.to_string_lossy().into_owned()
                }),
        };
        // On a thread of its own, whose affinity ends with it.
        let measured = std::thread::scope(|scope| {
            let measuring = scope.spawn(|| self.measure(&topology, ui));
            measuring
                .join()
                .unwrap_or_else(|_| Err(CliError::tool("cannot measure: a thread ended")))
        })?;
        let text = file(&name, &synthetic, &topology, &measured);
        output.write(text.as_bytes())?;
        let path = output.path();
        ui.result(
            || {
                if output.is_stdout() {
                    return String::new();
                }
                shown(&measured, path)
            },
            || as_json(&measured, &name, path),
        );
        Ok(0)
    }

    fn measure(&self, topology: &Topology, ui: &Ui) -> Result<Measured, CliError> {
        let time = Duration::from_secs_f64(self.seconds);
        let os = |pu: usize| topology.pus()[pu].os.0;
        let nodes = topology.nodes();
        let from: Vec<usize> = (0..nodes.len())
            .filter(|&node| !nodes[node].pus.is_empty())
            .collect();
        let (line_bytes, mut caches) = caches(os(0));
        let steps = 1 + caches.len() + 2 * from.len() * nodes.len();
        let mut done = 0;
        let mut step = |what: &str| {
            done += 1;
            if ui.progress() {
                let left = (steps - done + 1) as f64 * self.seconds * 1.3;
                stderr(&format!(
                    "\r{:<70}",
                    format!("measuring {done} of {steps}: {what}, about {left:.0} s left")
                ));
            }
        };
        step("clock");
        let clock_hz = measure::clock(os(0), time)?;
        let of_node = |node: usize| (nodes.len() > 1).then(|| nodes[node].os.0);
        for cache in &mut caches {
            step(&format!("cache of level {}", cache.level));
            let at = Access {
                pus: &[os(0)],
                node: of_node(from[0]),
                line_bytes,
            };
            // Half of it, so that it holds everything.
            let ns = measure::latency(at, (cache.bytes / 2) as usize, time)?;
            cache.latency_cycles = (ns * clock_hz / 1e9).max(1.0);
        }
        let largest = caches.iter().map(|cache| cache.bytes).max().unwrap_or(0);
        // Where memory is matters on several nodes only.
        let least = if nodes.len() > 1 { FRESH } else { 1 << 16 };
        let bytes = self.memory.unwrap_or((4 * largest).max(FRESH as u64));
        let bytes = (bytes as usize).max(least);
        let (mut latency_ns, mut bytes_per_s) = (Vec::new(), Vec::new());
        for &node in &from {
            let pus = cores(topology, node);
            let (mut latencies, mut rates) = (Vec::new(), Vec::new());
            for memory in 0..nodes.len() {
                let at = Access {
                    pus: &pus,
                    node: of_node(memory),
                    line_bytes,
                };
                step(&format!("latency from node {node}"));
                latencies.push(measure::latency(at, bytes, time)?);
                step(&format!("bandwidth from node {node}"));
                rates.push(measure::bandwidth(at, bytes, time)?);
            }
            latency_ns.push(latencies);
            bytes_per_s.push(rates);
        }
        if ui.progress() {
            stderr(&format!("\r{:<70}\r", ""));
        }
        Ok(Measured {
            clock_hz,
            line_bytes,
            caches,
            from,
            latency_ns,
            bytes_per_s,
        })
    }
}

/// The first PU of each core of a node, by the kernel's numbers.
fn cores(topology: &Topology, node: usize) -> Vec<u32> {
    let mut pus: Vec<_> = topology.nodes()[node]
        .pus
        .iter()
        .map(|pu| topology.pus()[pu.index()])
        .collect();
    pus.dedup_by_key(|pu| pu.core);
    pus.into_iter().map(|pu| pu.os.0).collect()
}

/// Line size and data caches of a PU, as the kernel reports them; latencies are still unknown.
fn caches(pu: u32) -> (usize, Vec<Cache>) {
    let read = |index: usize, name: &str| -> Option<String> {
        let path = format!("/sys/devices/system/cpu/cpu{pu}/cache/index{index}/{name}");
        let text = numaloc_files::input::read_text(Path::new(&path), 4096).ok()?;
        Some(text.trim().to_owned())
    };
    let number = |index, name| read(index, name)?.parse::<u32>().ok();
    let mut line_bytes = 64;
    let mut caches = Vec::new();
    for index in 0..8 {
        let (Some(level), Some(kind)) = (number(index, "level"), read(index, "type")) else {
            continue;
        };
        let bytes = read(index, "size").and_then(|size| crate::size::byte_size(&size).ok());
        let Some(bytes) = bytes.filter(|&bytes| bytes > 0 && kind != "Instruction") else {
            continue;
        };
        let line = number(index, "coherency_line_size").filter(|line| line.is_power_of_two());
        line_bytes = line.map_or(line_bytes, |line| (line as usize).clamp(8, PAGE));
        caches.push(Cache {
            level: level as u8,
            bytes,
            ways: number(index, "ways_of_associativity")
                .filter(|ways| *ways > 0)
                .unwrap_or(8),
            latency_cycles: 0.0,
        });
    }
    (line_bytes, caches)
}

const PAGE: usize = 4096;

/// hwloc's synthetic string of a machine whose objects of one depth are equal.
fn synthetic(topology: &Topology) -> Result<String, CliError> {
    let objects = topology.objects();
    let attached = |object: usize| -> Vec<u64> {
        let nodes = topology.nodes().iter();
        nodes
            .filter(|node| node.object as usize == object)
            .map(|node| node.memory_bytes)
            .collect()
    };
    let deepest = objects.iter().map(|object| object.depth).max().unwrap_or(0);
    let mut words = Vec::new();
    for depth in 0..=deepest {
        let level: Vec<usize> = (0..objects.len())
            .filter(|&object| objects[object].depth == depth)
            .collect();
        let first = level[0];
        let shape = |object: usize| {
            let found = &objects[object];
            (found.kind, found.children.len(), attached(object).len())
        };
        if level.iter().any(|&object| shape(object) != shape(first)) {
            return Err(CliError::tool(
                "cannot describe this machine: its parts differ, and a machine file describes equal ones",
            )
            .hint("lstopo --of xml describes it for every command but simulate"));
        }
        if let Some(parent) = objects[first].parent {
            let count = objects[parent as usize].children.len();
            let size = match objects[first].cache_bytes {
                Some(bytes) => format!("(size={bytes})"),
                None => String::new(),
            };
            let name = match objects[first].kind {
                ObjectKind::Package => "pack".to_owned(),
                ObjectKind::Die => "die".to_owned(),
                ObjectKind::Core => "core".to_owned(),
                ObjectKind::Pu => "pu".to_owned(),
                ObjectKind::Cache(1) => "l1d".to_owned(),
                ObjectKind::Cache(level) => format!("l{level}"),
                _ => "group".to_owned(),
            };
            words.push(format!("{name}:{count}{size}"));
        }
        words.extend(
            attached(first)
                .iter()
                .map(|bytes| format!("[numa(memory={bytes})]")),
        );
    }
    Ok(words.join(" "))
}

/// The machine file.
fn file(name: &str, synthetic: &str, topology: &Topology, measured: &Measured) -> String {
    let source = format!(
        "measured by numaloc {} on {}, {}",
        env!("CARGO_PKG_VERSION"),
        today(),
        host_cpu()
    );
    let mut out = format!(
        "name = {}\ndescription = {}\nsynthetic = {}\n",
        toml_text(name),
        toml_text(&format!("{}, {source}", topology.summary())),
        toml_text(synthetic)
    );
    if let Some(matrix) = topology.node_matrix() {
        out += &format!("# Of the firmware.\nnode_distances = {matrix:?}\n");
    }
    // Nothing is measured from nodes without PUs; the first node's own memory is the standard.
    let standard = (
        measured.latency_ns[0][measured.from[0]],
        measured.bytes_per_s[0][measured.from[0]],
    );
    let _ = write!(
        out,
        "\n# All values: {source}.\n[hardware]\n# Rate of dependent instructions.\nclock_hz = {:e}\nline_bytes = {}\n\
         # Pointer chase and streams of all cores, first node with its own memory.\nmemory_latency_ns = {:.1}\n\
         memory_bandwidth_bytes_per_s = {:e}\n# Sizes and ways as the kernel reports them; pointer chase through half of each.\ncaches = [\n",
        measured.clock_hz.round(),
        measured.line_bytes,
        standard.0,
        standard.1.round(),
    );
    for cache in &measured.caches {
        let _ = writeln!(
            out,
            "  {{ level = {}, size_bytes = {}, associativity = {}, latency_cycles = {:.1} }},",
            cache.level, cache.bytes, cache.ways, cache.latency_cycles
        );
    }
    out += "]\n";
    let nodes = topology.nodes().len();
    if nodes > 1 {
        out += "# Pointer chase and streams from the node itself, or from the nearest one if it has no PUs.\nnodes = [\n";
        for node in 0..nodes {
            let row = nearest(measured, topology, node);
            let (latency, rate) = (
                measured.latency_ns[row][node],
                measured.bytes_per_s[row][node],
            );
            let _ = writeln!(
                out,
                "  {{ node = {node}, memory_latency_ns = {latency:.1}, memory_bandwidth_bytes_per_s = {:e} }},",
                rate.round()
            );
        }
        out += "]\n# Latency: half of what a remote access takes longer than the memory's own. Bandwidth: of remote streams, with headers.\nlinks = [\n";
        for link in links(measured, topology) {
            let _ = writeln!(
                out,
                "  {{ from = {}, to = {}, bandwidth_bytes_per_s = {:e}, latency_ns = {:.1} }},",
                link.0,
                link.1,
                link.2.round(),
                link.3
            );
        }
        out += "]\n";
    }
    out
}

/// The row of the node from which a node's memory is nearest: itself if it has PUs.
fn nearest(measured: &Measured, topology: &Topology, node: usize) -> usize {
    let distance = |row: usize| {
        let from = measured.from[row];
        let apart =
            topology.node_distance(LogicalNode::from_index(from), LogicalNode::from_index(node));
        (from != node, apart)
    };
    (0..measured.from.len())
        .min_by(|&a, &b| {
            distance(a)
                .partial_cmp(&distance(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        })
        .unwrap_or(0)
}

/// Directed links between all nodes: from, to, bytes per second and nanoseconds.
fn links(measured: &Measured, topology: &Topology) -> Vec<(usize, usize, f64, f64)> {
    /// Bytes of a line on a link with its header, as in the simulator, over those of the line.
    const WITH_HEADER: f64 = 80.0 / 64.0;
    let nodes = topology.nodes().len();
    let own = |node: usize| measured.latency_ns[nearest(measured, topology, node)][node];
    let row = |node: usize| measured.from.iter().position(|from| *from == node);
    let mut links = Vec::new();
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            // Data that cores of `to` read from memory of `from` uses the link from `from` to `to`; a link from a node
            // with PUs to one without carries requests and lines written, as fast as the other direction.
            let (reader, memory) = match (row(to), row(from)) {
                (Some(reader), _) => (reader, from),
                (None, Some(reader)) => (reader, to),
                // No core reads over it.
                (None, None) => continue,
            };
            let rate = measured.bytes_per_s[reader][memory] * WITH_HEADER;
            let longer = measured.latency_ns[reader][memory] - own(memory);
            let on_link = 96.0 / rate * 1e9;
            links.push((from, to, rate, ((longer - on_link) / 2.0).max(0.1)));
        }
    }
    links
}

/// A basic string of TOML, which has the escapes of JSON.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Name of the host and model of its processor.
fn host_cpu() -> String {
    let read = |path: &str| numaloc_files::input::read_text(Path::new(path), 1 << 22).ok();
    let model = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    model.unwrap_or("unknown processor".to_owned())
}

fn shown(measured: &Measured, path: &Path) -> String {
    let mut out = format!(
        "clock {:.2} GHz; latency of caches:",
        measured.clock_hz / 1e9
    );
    for cache in &measured.caches {
        let _ = write!(out, " L{} {:.1} cycles", cache.level, cache.latency_cycles);
    }
    out += "\n";
    for (row, node) in measured.from.iter().enumerate() {
        for memory in 0..measured.latency_ns[row].len() {
            let _ = writeln!(
                out,
                "node {node} to memory of node {memory}: {:.1} ns, {:.1} GB/s",
                measured.latency_ns[row][memory],
                measured.bytes_per_s[row][memory] / 1e9
            );
        }
    }
    let _ = writeln!(out, "written to {}", path.display());
    out
}

fn as_json(measured: &Measured, name: &str, path: &Path) -> Value {
    let caches: Vec<Value> = measured
        .caches
        .iter()
        .map(|cache| {
            json!({
                "level": cache.level,
                "size_bytes": cache.bytes,
                "associativity": cache.ways,
                "latency_cycles": cache.latency_cycles,
            })
        })
        .collect();
    json!({
        "version": 1,
        "name": name,
        "output": path.to_string_lossy(),
        "clock_hz": measured.clock_hz,
        "line_bytes": measured.line_bytes,
        "caches": caches,
        "nodes_with_pus": measured.from,
        "latency_ns": measured.latency_ns,
        "bandwidth_bytes_per_s": measured.bytes_per_s,
    })
}
