//! Reads topologies: with `identity` and `isolated`, the part of this crate that does I/O.

use hwlocality::Topology as Hwloc;
use std::path::Path;

use crate::cluster::ClusterFile;
use crate::described::Described;
use crate::error::TopologyError;
use crate::hwloc::{Allowed, convert};
use crate::isolated;
use crate::tree::Topology;

/// Largest machine file that is read, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 16 << 20;

/// Largest number that the kernel gives a PU.
const MAX_PU: u32 = 1 << 20;

/// The name, in plans, of the machine on which they were made; resolves like `this`.
const THIS_MACHINE: &str = "this machine";

const BUILT_IN: &[(&str, &str)] = &[
    (
        "altix-450",
        include_str!("../../../machines/altix-450.toml"),
    ),
    ("cxl-2s", include_str!("../../../machines/cxl-2s.toml")),
    ("deloc-4n", include_str!("../../../machines/deloc-4n.toml")),
    (
        "epyc-7501",
        include_str!("../../../machines/epyc-7501.toml"),
    ),
    (
        "epyc-9575f-nps4",
        include_str!("../../../machines/epyc-9575f-nps4.toml"),
    ),
    (
        "epyc-9654-nps4",
        include_str!("../../../machines/epyc-9654-nps4.toml"),
    ),
    ("grace-2n", include_str!("../../../machines/grace-2n.toml")),
    ("numa4x4", include_str!("../../../machines/numa4x4.toml")),
    (
        "opteron-6386",
        include_str!("../../../machines/opteron-6386.toml"),
    ),
    ("purple", include_str!("../../../machines/purple.toml")),
    (
        "skylake-4s",
        include_str!("../../../machines/skylake-4s.toml"),
    ),
    (
        "xeon-e7-4809",
        include_str!("../../../machines/xeon-e7-4809.toml"),
    ),
    (
        "xeon-max-9480-snc4",
        include_str!("../../../machines/xeon-max-9480-snc4.toml"),
    ),
    (
        "xeon-x7550",
        include_str!("../../../machines/xeon-x7550.toml"),
    ),
    (
        "xeon6-cxl",
        include_str!("../../../machines/xeon6-cxl.toml"),
    ),
];

/// Name of every built-in machine.
pub fn machine_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Name and one-line description of every built-in machine.
///
/// # Panics
/// Never: a test parses every built-in description.
#[must_use]
pub fn described_machines() -> Vec<(String, String)> {
    BUILT_IN
        .iter()
        .map(|(name, text)| {
            let described: Described = toml::from_str(text).expect("built-in machine parses");
            ((*name).to_owned(), described.description)
        })
        .collect()
}

/// This machine as far as this process may use it: the PUs and nodes of its cgroup, and of these the PUs of the
/// affinity mask with which it was started (`taskset`, a batch system).
///
/// # Errors
/// [`TopologyError::Live`] if hwloc fails.
pub fn from_this_machine() -> Result<Topology, TopologyError> {
    let hwloc = Hwloc::new().map_err(|error| TopologyError::Live {
        why: error.to_string(),
    })?;
    // hwloc's variables may name another machine.
    let allowed = hwloc.is_this_system().then(allowed_pus).flatten();
    match convert(&hwloc, THIS_MACHINE, allowed.as_ref()) {
        // The kernel of a sandbox may number PUs in two ways.
        Err(TopologyError::Empty { .. }) => convert(&hwloc, THIS_MACHINE, None),
        other => other,
    }
}

/// The PUs that this process may run on, by the kernel's numbers: those of its first thread, which binds no other.
fn allowed_pus() -> Option<Allowed> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_list(list.trim())
}

/// The numbers of a list of the kernel such as `0-3,8`.
fn parse_list(list: &str) -> Option<Allowed> {
    let mut numbers = Allowed::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        if to > MAX_PU {
            return None;
        }
        numbers.extend(from..=to);
    }
    Some(numbers)
}

/// Reads an hwloc XML file (`lstopo --of xml`).
///
/// # Errors
/// [`TopologyError::Xml`] if the file cannot be read or hwloc refuses it.
pub fn from_xml(path: &Path) -> Result<Topology, TopologyError> {
    let shown = path.display().to_string();
    let fail = |why: String| TopologyError::Xml {
        path: shown.clone(),
        why,
    };
    let text = numaloc_files::input::read_text(path, isolated::MAX_XML_BYTES)
        .map_err(|error| fail(error.to_string()))?;
    isolated::read(&text, &shown).map_err(fail)
}

/// Largest number of PUs in a synthetic string: hwloc takes minutes for a hundred thousand.
const MAX_PUS: u64 = 1 << 14;

/// The number of PUs of a synthetic string: the product of its levels' numbers (`numa:4 core:8` or `4 8`).
fn pus_of_synthetic(spec: &str) -> Option<u64> {
    let number = |level: &str| -> Option<u64> {
        let number = level.rsplit_once(':').map_or(level, |(_, number)| number);
        let end = number
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(number.len());
        // Anything but a number is left to hwloc.
        match &number[..end] {
            "" => Some(1),
            digits => digits.parse().ok(),
        }
    };
    let mut inside_brackets = false;
    let outside: String = spec
        .chars()
        .filter(|&c| {
            inside_brackets = c == '(' || (inside_brackets && c != ')');
            !inside_brackets && c != ')'
        })
        .collect();
    outside
        .split_whitespace()
        .filter(|level| !level.starts_with('['))
        .try_fold(1u64, |product, level| product.checked_mul(number(level)?))
}

fn from_synthetic(spec: &str, name: &str) -> Result<Topology, TopologyError> {
    let fail = |why: String| TopologyError::Spec {
        spec: spec.to_owned(),
        why,
    };
    if pus_of_synthetic(spec).is_none_or(|pus| pus > MAX_PUS) {
        return Err(fail(format!(
            "more than {MAX_PUS} processing units on one machine; larger ones are clusters"
        )));
    }
    let hwloc = Hwloc::builder()
        .from_synthetic(spec)
        .map(hwlocality::topology::builder::TopologyBuilder::build)
        .map_err(|error| fail(error.to_string()))?
        .map_err(|error| fail(error.to_string()))?;
    convert(&hwloc, name, None)
}

fn from_description(text: &str, path: &str) -> Result<Topology, TopologyError> {
    let fail = |why: String| TopologyError::Description {
        path: path.to_owned(),
        why,
    };
    // A file with a [cluster] table is a cluster; any other is a single machine.
    let table: toml::Table = toml::from_str(text).map_err(|error| fail(error.to_string()))?;
    if table.contains_key("cluster") {
        let cluster: ClusterFile = toml::from_str(text).map_err(|error| fail(error.to_string()))?;
        return resolve_cluster(&cluster, path);
    }
    let described: Described = toml::from_str(text).map_err(|error| fail(error.to_string()))?;
    let mut topology = from_synthetic(&described.synthetic, &described.name)?;
    if !described.node_distances.is_empty() {
        topology = topology
            .with_node_distances(described.node_distances)
            .map_err(|why| fail(why.to_string()))?;
    }
    if let Some(hardware) = &described.hardware {
        hardware.check(topology.nodes().len()).map_err(fail)?;
    }
    topology.hardware = described.hardware;
    Ok(topology)
}

/// The machine specified by a user: `this`, an hwloc XML file, a machine file (`.toml`), a built-in
/// described machine, or an hwloc synthetic string such as `numa:4 l3:1 core:8 pu:2`.
///
/// # Errors
/// [`TopologyError`] states what was attempted and what is accepted.
pub fn resolve(spec: &str) -> Result<Topology, TopologyError> {
    let trimmed = spec.trim();
    if matches!(trimmed, "" | "this" | THIS_MACHINE) {
        return from_this_machine();
    }
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == trimmed) {
        return from_description(text, name);
    }
    let path = Path::new(trimmed);
    if path.extension().is_some_and(|ext| ext == "toml") {
        let text =
            numaloc_files::input::read_text(path, MAX_DESCRIPTION_BYTES).map_err(|error| {
                TopologyError::Description {
                    path: trimmed.to_owned(),
                    why: error.to_string(),
                }
            })?;
        return from_description(&text, trimmed);
    }
    if path.extension().is_some_and(|ext| ext == "xml") || path.is_file() {
        return from_xml(path);
    }
    // Every level of a synthetic string has a number; a bare word is a misspelt machine name.
    if !trimmed.contains(|c: char| c.is_ascii_digit()) || !trimmed.contains([':', ' ']) {
        let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        return Err(TopologyError::Spec {
            spec: trimmed.to_owned(),
            why: format!(
                "no such file and no described machine of that name; expected `this`, a .xml or .toml \
                 file, a synthetic string such as \"numa:4 core:8 pu:2\", or one of: {}",
                known.join(", ")
            ),
        });
    }
    from_synthetic(trimmed, trimmed)
}

/// The cluster of a description, with the hosts' machines as found by [`resolve`]. Errors name the description `path`.
///
/// # Errors
/// [`TopologyError`] states what is inconsistent, or which host's machine was not found.
pub fn resolve_cluster(file: &ClusterFile, path: &str) -> Result<Topology, TopologyError> {
    file.build(path, resolve_host)
}

/// The machine of a cluster's host: as for [`resolve`], but not another cluster (or itself).
fn resolve_host(spec: &str) -> Result<Topology, TopologyError> {
    if spec.trim().ends_with(".toml")
        && let Ok(text) =
            numaloc_files::input::read_text(Path::new(spec.trim()), MAX_DESCRIPTION_BYTES)
        && toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("cluster"))
    {
        return Err(TopologyError::Spec {
            spec: spec.to_owned(),
            why: "a host of a cluster cannot be a cluster".to_owned(),
        });
    }
    resolve(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::{LogicalNode, LogicalPu};

    #[test]
    fn synthetic_machine_has_contiguous_nodes_and_level_distances() {
        let t = resolve("numa:4 core:8 pu:2").unwrap();
        assert_eq!((t.nodes().len(), t.pus().len()), (4, 64));
        assert_eq!(t.node_of(LogicalPu(17)), LogicalNode(1));
        assert_eq!(t.levels().len(), 3);
        let t = t.with_level_distances(&[10.0, 2.0, 1.0]).unwrap();
        let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
        assert_eq!([d(0, 0), d(0, 1), d(0, 2), d(0, 16)], [0.0, 1.0, 2.0, 10.0]);
        assert!(
            t.with_level_distances(&[10.0])
                .unwrap_err()
                .to_string()
                .contains("3 levels")
        );
    }

    #[test]
    fn this_machine_has_a_pu_and_a_fingerprint_that_repeats() {
        let t = from_this_machine().unwrap();
        assert!(!t.pus().is_empty() && t.is_this_machine());
        assert_eq!(t.fingerprint(), from_this_machine().unwrap().fingerprint());
    }

    #[test]
    fn every_built_in_machine_resolves() {
        for (name, description) in described_machines() {
            let t = resolve(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(t.hardware().is_some() && !description.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_machine_that_would_take_hwloc_minutes_is_refused_at_once() {
        for spec in [
            "numa:256 core:512 pu:1",
            "numa:99999999999999999999 pu:1",
            "4294967296 4294967296",
            "numa:2(memory=1GB) core:70000 pu:1",
        ] {
            let error = resolve(spec).unwrap_err().to_string();
            assert!(error.contains("16384 processing units"), "{error}");
        }
        assert_eq!(
            pus_of_synthetic("pack:2 [numa(memory=8GB)] l3:2(size=1MB) core:4 2"),
            Some(32)
        );
    }

    #[test]
    fn implausible_hardware_is_refused_with_the_field() {
        let good = include_str!("../../../machines/numa4x4.toml");
        for (field, nonsense) in [
            ("clock_hz", "0.0"),
            ("clock_hz", "nan"),
            ("line_bytes", "0"),
            ("line_bytes", "65"),
            ("memory_latency_ns", "-1.0"),
            ("memory_bandwidth_bytes_per_s", "inf"),
            ("line_bytes", "64\npage_bytes = 5000"),
            ("line_bytes", "64\nmemory_write_bandwidth_bytes_per_s = 0"),
            (
                "line_bytes",
                "64\nnodes = [{ node = 4, memory_latency_ns = 1, memory_bandwidth_bytes_per_s = 1 }]",
            ),
        ] {
            let mut found = false;
            let text: String = good
                .lines()
                .map(|line| match line.split_once('=') {
                    Some((name, _)) if name.trim() == field => {
                        found = true;
                        format!("{field} = {nonsense}\n")
                    }
                    _ => format!("{line}\n"),
                })
                .collect();
            assert!(found, "{field}");
            let error = from_description(&text, "x.toml").unwrap_err().to_string();
            // A line that was added is the field at fault.
            let field = nonsense
                .split(['\n', ' '])
                .nth(1)
                .map_or(field, |added| added);
            assert!(error.contains(field) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn errors_of_invalid_machines_are_one_line() {
        for spec in [
            "purpel",
            "numa:0 pu:1",
            "nonsense:3 7:x",
            "missing.xml",
            "missing.toml",
        ] {
            let error = resolve(spec).unwrap_err().to_string();
            assert!(!error.contains('\n') && error.contains(spec), "{error}");
        }
    }
}
