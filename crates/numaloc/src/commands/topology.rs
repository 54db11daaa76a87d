//! `numaloc topology`: a machine as numaloc sees it.

use numaloc_model::{LogicalNode, LogicalPu};
use numaloc_topology::{Topology, resolve};
use serde_json::json;

use crate::error::CliError;
use crate::ui::Ui;

/// Show a machine: nodes, PUs, distances, fingerprint
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc topology
  numaloc topology --machine \"numa:4 l3:1 core:8 pu:2\"
  numaloc topology --machine epyc-7501 --json")]
pub struct Args {
    /// `this`, an hwloc XML file, a .toml machine file, a described machine or a synthetic string
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
}

impl Args {
    /// Prints the machine.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let machine = resolve(&self.machine)?;
        ui.result(|| text(&machine), || json(&machine));
        Ok(0)
    }
}

fn text(machine: &Topology) -> String {
    let mut out = format!(
        "{}: {}, fingerprint {}\n",
        machine.name(),
        machine.summary(),
        machine.fingerprint()
    );
    for (at, node) in machine.nodes().iter().enumerate() {
        let pus = match (node.pus.first(), node.pus.last()) {
            (Some(first), Some(last)) => format!("PUs {first} to {last}"),
            _ => "no PUs (memory only)".to_owned(),
        };
        let distances: Vec<String> = (0..machine.nodes().len())
            .map(|to| {
                machine
                    .node_distance(LogicalNode::from_index(at), LogicalNode::from_index(to))
                    .to_string()
            })
            .collect();
        out += &format!(
            "node L#{at} P#{}: {:.1} GiB, {pus}, distances {}\n",
            node.os.0,
            node.memory_bytes as f64 / f64::from(1 << 30),
            distances.join(" ")
        );
    }
    for level in machine.levels() {
        out += &format!(
            "level {:?}: {} to {} {:?} each\n",
            level.kind, level.arity.0, level.arity.1, level.child_kind
        );
    }
    out
}

fn json(machine: &Topology) -> serde_json::Value {
    let nodes: Vec<_> = machine
        .nodes()
        .iter()
        .enumerate()
        .map(|(at, node)| {
            json!({
                "node": at,
                "os_node": node.os.0,
                "memory_bytes": node.memory_bytes,
                "pus": node.pus.iter().map(|pu| pu.0).collect::<Vec<_>>(),
                "distances": (0..machine.nodes().len())
                    .map(|to| machine.node_distance(
                        LogicalNode::from_index(at), LogicalNode::from_index(to)))
                    .collect::<Vec<_>>(),
            })
        })
        .collect();
    let pus: Vec<_> = (0..machine.pus().len())
        .map(|at| {
            let pu = machine.pus()[at];
            json!({"pu": LogicalPu::from_index(at).0, "os_pu": pu.os.0, "node": pu.node.0})
        })
        .collect();
    json!({
        "version": 1,
        "machine": machine.name(),
        "fingerprint": machine.fingerprint(),
        "nodes": nodes,
        "pus": pus,
    })
}
