//! Reads hwloc XML in a child process, because hwloc's parser crashes on some malformed files.
//!
//! A process that reads untrusted files first calls [`isolate_xml`] with the command that starts a child which calls
//! [`serve`]. The child reads the file's text from its standard input, lets hwloc parse it, and writes the
//! [`Topology`]; hwloc never parses the text in our process. Without [`isolate_xml`], as in a program linked with the
//! task runtime, the file is parsed in place.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use hwlocality::Topology as Hwloc;
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::hwloc::convert;
use crate::tree::{Node, Object, Pu, Topology};

/// Largest XML file that is read, in bytes: hwloc writes some 500 bytes per object.
pub(crate) const MAX_XML_BYTES: u64 = 64 << 20;
/// Limit on the child's processor time, in seconds.
const SECONDS: u64 = 4;
/// Limit on the child's address space, in bytes.
const MEMORY: u64 = 1 << 30;

static CHILD: OnceLock<fn() -> Command> = OnceLock::new();

/// From now on XML files are read by a child process, which `command` starts and which calls [`serve`].
pub fn isolate_xml(command: fn() -> Command) {
    let _ = CHILD.set(command);
}

/// The machine described by an XML text, or an error message.
pub(crate) fn read(text: &str, name: &str) -> Result<Topology, String> {
    match CHILD.get() {
        Some(command) => ask(command(), text, name),
        None => in_place(text, name),
    }
}

fn in_place(text: &str, name: &str) -> Result<Topology, String> {
    let hwloc = Hwloc::builder()
        .from_xml(text)
        .map_err(|error| error.to_string())?
        .build()
        .map_err(|error| error.to_string())?;
    convert(&hwloc, name, None).map_err(|error| error.to_string())
}

/// The child's side: reads a text from `input` and answers on `output`, with limits on time and memory.
///
/// # Errors
/// The system's error if the text cannot be read or the answer cannot be written.
pub fn serve(input: impl Read, mut output: impl Write) -> std::io::Result<()> {
    for (resource, bound) in [
        (Resource::Cpu, SECONDS),
        (Resource::As, MEMORY),
        (Resource::Core, 0),
    ] {
        // The limit set by the user may be lower.
        let bound = getrlimit(resource)
            .maximum
            .map_or(bound, |own| own.min(bound));
        let both = Rlimit {
            current: Some(bound),
            maximum: Some(bound),
        };
        setrlimit(resource, both)?;
    }
    let mut text = String::new();
    input.take(MAX_XML_BYTES).read_to_string(&mut text)?;
    let answer = in_place(&text, "").map(|topology| Plain::of(&topology));
    serde_json::to_writer(&mut output, &answer)?;
    output.flush()
}

fn ask(mut command: Command, text: &str, name: &str) -> Result<Topology, String> {
    let failed = |error: std::io::Error| format!("cannot start the process that reads it: {error}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // If the child ended early, its status is reported below.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if let Some(signal) = output.status.signal() {
        return Err(format!("hwloc crashed on it (signal {signal})"));
    }
    let answer: Result<Plain, String> = serde_json::from_slice(&output.stdout)
        .map_err(|_| "hwloc ended without an answer: it needed too much memory".to_owned())?;
    answer.map(|plain| plain.topology(name))
}

/// A topology without hosts, for serialisation.
#[derive(Serialize, Deserialize)]
struct Plain {
    objects: Vec<Object>,
    /// OS number, core, node, object.
    pus: Vec<(u32, u32, u32, u32)>,
    /// OS number, memory, PUs, object.
    nodes: Vec<(u32, u64, Vec<u32>, u32)>,
    node_matrix: Option<Vec<f64>>,
    this_machine: bool,
}

impl Plain {
    fn of(topology: &Topology) -> Self {
        let pu = |pu: &Pu| (pu.os.0, pu.core, pu.node.0, pu.object);
        let node = |node: &Node| {
            let pus = node.pus.iter().map(|pu| pu.0).collect();
            (node.os.0, node.memory_bytes, pus, node.object)
        };
        Self {
            objects: topology.objects.clone(),
            pus: topology.pus.iter().map(pu).collect(),
            nodes: topology.nodes.iter().map(node).collect(),
            node_matrix: topology.node_matrix.clone(),
            this_machine: topology.this_machine,
        }
    }

    fn topology(self, name: &str) -> Topology {
        let pu = |(os, core, node, object)| Pu {
            os: OsPu(os),
            core,
            node: LogicalNode(node),
            object,
        };
        let node = |(os, memory_bytes, pus, object): (u32, u64, Vec<u32>, u32)| Node {
            os: OsNode(os),
            memory_bytes,
            pus: pus.into_iter().map(LogicalPu).collect(),
            object,
        };
        Topology {
            name: name.to_owned(),
            objects: self.objects,
            pus: self.pus.into_iter().map(pu).collect(),
            nodes: self.nodes.into_iter().map(node).collect(),
            node_matrix: self.node_matrix,
            hardware: None,
            this_machine: self.this_machine,
            hosts: Vec::new(),
            network: None,
            links: crate::links::Links::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_passed_on_unchanged() {
        let topology = crate::resolve("numa:2 l3:1 core:3 pu:2").unwrap();
        let text = serde_json::to_string(&Plain::of(&topology)).unwrap();
        let plain: Plain = serde_json::from_str(&text).unwrap();
        assert_eq!(plain.topology(topology.name()), topology);
    }

    #[test]
    fn a_crash_is_an_error_with_its_signal() {
        let crash = || {
            let mut command = Command::new("sh");
            command.args(["-c", "cat >/dev/null; kill -SEGV $$"]);
            command
        };
        let error = ask(crash(), "<topology/>", "x").unwrap_err();
        assert_eq!(error, "hwloc crashed on it (signal 11)");
        let silent = ask(Command::new("true"), "<topology/>", "x").unwrap_err();
        assert!(silent.contains("without an answer"), "{silent}");
    }
}
