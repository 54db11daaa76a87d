//! `numaloc topology`: shows a machine as numaloc sees it.

mod cluster;
mod picture;

use std::path::PathBuf;

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
  numaloc topology --machine epyc-7501 --picture
  numaloc topology --machine epyc-7501 --json
  numaloc topology --hostfile hosts --host node.xml -o cluster.toml
  numaloc topology --from-slurm --host node.xml -o cluster.toml      (inside an allocation)")]
pub struct Args {
    /// Machine to show: `this`, an hwloc XML file, a .toml machine file, a described machine or a
    /// synthetic string
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Draw the machine as nested boxes; of a cluster the first host
    #[arg(long)]
    picture: bool,
    /// Describe a cluster from the hosts of an Open MPI or MPICH host file
    #[arg(long, value_name = "FILE", conflicts_with = "machine")]
    hostfile: Option<PathBuf>,
    /// Describe a cluster from the current Slurm allocation, with its switches
    #[arg(long, conflicts_with_all = ["machine", "hostfile"])]
    from_slurm: bool,
    /// Machine of each host of the cluster; any value that --machine accepts
    #[arg(long, value_name = "MACHINE")]
    host: Option<String>,
    /// Write the cluster to this machine file; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Columns of a picture if the output is no terminal.
const COLUMNS: usize = 100;

impl Args {
    /// Prints the machine.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let cluster = match (&self.hostfile, self.from_slurm) {
            (Some(file), _) => Some(cluster::of_hostfile(file)?),
            (None, true) => Some(cluster::of_slurm()?),
            (None, false) => None,
        };
        let machine = match cluster {
            None if self.host.is_some() || self.output.is_some() => {
                return Err(CliError::usage("--host and -o describe a cluster")
                    .hint("add --hostfile FILE or --from-slurm"));
            }
            None => resolve(&self.machine)?,
            Some(found) => {
                let host = self.host.as_deref().ok_or_else(|| {
                    CliError::usage("a cluster needs --host MACHINE: what each host is")
                        .hint("run `lstopo --of xml > node.xml` on one of them")
                })?;
                let file = found.describe(host);
                let machine = numaloc_topology::resolve_cluster(&file, "the cluster")?;
                if let Some(output) = &output {
                    let text = file.to_toml().map_err(CliError::tool)?;
                    output.write(text.as_bytes())?;
                }
                machine
            }
        };
        if !output.is_some_and(|output| output.is_stdout()) {
            let shown = || match self.picture {
                true => picture::picture(&machine, ui.columns().min(COLUMNS)),
                false => text(&machine),
            };
            ui.result(shown, || json(&machine));
        }
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
    if !machine.hosts().is_empty() {
        let names: Vec<&str> = machine
            .hosts()
            .iter()
            .map(|(_, name)| name.as_str())
            .collect();
        let shown = match names[..] {
            [first, .., last] => format!("{first} to {last}"),
            _ => names.join(" "),
        };
        out += &format!("{} hosts: {shown}\n", names.len());
    }
    // A cluster has too many nodes to list one by one; its levels describe it.
    let nodes = if machine.hosts().is_empty() {
        machine.nodes()
    } else {
        &[]
    };
    for (at, node) in nodes.iter().enumerate() {
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
    // Distances of all pairs of a large cluster would be hundreds of megabytes.
    let with_distances = machine.hosts().is_empty();
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
                "distances": (0..if with_distances { machine.nodes().len() } else { 0 })
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
        "hosts": machine.hosts().iter().map(|(at, name)| {
            let pus = &machine.objects()[*at as usize].pus;
            json!({"name": name, "first_pu": pus.start, "pus": pus.len()})
        }).collect::<Vec<_>>(),
        "nodes": nodes,
        "pus": pus,
    })
}
