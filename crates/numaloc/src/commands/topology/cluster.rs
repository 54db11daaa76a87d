//! Describes clusters from host files and Slurm allocations.

use std::path::Path;
use std::process::{Command, Stdio};

use numaloc_topology::cluster::{Cluster, ClusterFile, HostGroup};
use numaloc_topology::network::Network;
use numaloc_topology::{hostlist, slurm};

use crate::error::CliError;

/// Hosts, and the network between them if known.
pub struct Found {
    name: String,
    description: String,
    hosts: Vec<String>,
    network: Option<Network>,
}

impl Found {
    /// The machine file, every host being `machine`.
    pub fn describe(&self, machine: &str) -> ClusterFile {
        ClusterFile {
            name: self.name.clone(),
            description: self.description.clone(),
            cluster: Cluster {
                hosts: vec![HostGroup {
                    names: self.hosts.join(","),
                    machine: machine.to_owned(),
                }],
                network: self.network.clone(),
                links: None,
            },
        }
    }
}

/// Longest host file that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The hosts of a host file, under one switch.
pub fn of_hostfile(path: &Path) -> Result<Found, CliError> {
    let shown = path.display().to_string();
    let text = numaloc_files::input::read_text(path, MOST_BYTES)
        .map_err(|error| CliError::tool(format!("cannot read host file {shown}: {error}")))?;
    let hosts = hostlist::from_hostfile(&text)
        .map_err(|why| CliError::tool(format!("cannot read host file {shown}: {why}")))?;
    Ok(Found {
        name: format!("cluster of {} hosts", hosts.len()),
        description: format!("hosts of {shown}, all under one switch; distances are defaults"),
        hosts,
        network: None,
    })
}

/// The hosts of the current Slurm allocation, with their switches if Slurm knows them.
pub fn of_slurm() -> Result<Found, CliError> {
    let list = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok())
        .ok_or_else(|| {
            CliError::tool("no Slurm allocation: SLURM_JOB_NODELIST is not set")
                .hint("run this inside salloc or sbatch, or use --hostfile")
        })?;
    let hosts = hostlist::expand(&list)
        .map_err(|why| CliError::tool(format!("cannot read SLURM_JOB_NODELIST: {why}")))?;
    let asked = Command::new("scontrol")
        .args(["show", "topology"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = asked
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    let (hosts, network, source) = match slurm::network(&text, &hosts) {
        Some((ordered, network)) => (
            ordered,
            Some(network),
            "network as `scontrol show topology` has it",
        ),
        None => (hosts, None, "all under one switch"),
    };
    Ok(Found {
        name: format!("cluster of {} hosts", hosts.len()),
        description: format!("Slurm allocation {list}, {source}; distances are defaults"),
        hosts,
        network,
    })
}
