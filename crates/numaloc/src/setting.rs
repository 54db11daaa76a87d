//! Options that `show`, `report` and `diff` share: the machine, number of nodes and layer for the analysis of a
//! profile.

use std::path::{Path, PathBuf};

use numaloc_analysis::beyond_caches::PRIVATE_CACHE;
use numaloc_analysis::{Characterisation, NodeAssignment, Setting, characterise};
use numaloc_formats::profile::{self, Parts};
use numaloc_model::{Layer, Profile};
use numaloc_plan::candidates;
use numaloc_report::next::{self, Step};
use numaloc_topology::{ObjectKind, Topology, resolve};

use crate::error::{CliError, did_you_mean};

/// Number of nodes assumed if this machine has only one: the papers' machines have 2 to 8, most have 4.
const ASSUMED_NODES: usize = 4;

/// Options for the analysis of a profile.
#[derive(clap::Args, Clone, Debug)]
pub struct SettingArgs {
    /// Communication layer to look at: write_read, shared_line, last_two, sampled_line, message,
    /// collective [default: the profile's first, write_read before others]
    #[arg(long, value_name = "LAYER")]
    pub layer: Option<String>,
    /// Machine whose NUMA nodes the page metrics are for: `this`, an hwloc XML file, a .toml file, a
    /// described machine or a synthetic string [default: this; 4 nodes if this machine has one]
    #[arg(long, value_name = "MACHINE", conflicts_with = "nodes")]
    pub machine: Option<String>,
    /// Number of NUMA nodes the page metrics assume, with threads distributed in blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: Option<u32>,
}

/// A resolved setting, with a description of what was assumed.
pub struct Resolved {
    /// For the analysis.
    pub setting: Setting,
    /// What was assumed, for the reader: "4 nodes, threads in blocks of 4".
    pub assumed: String,
    /// The machine, if one was named or this machine has several nodes.
    pub machine: Option<Topology>,
    /// Whether only a number of nodes is known, not the machine.
    pub nodes_only: bool,
    /// The value of `--machine`, if given.
    pub named: Option<String>,
}

impl Resolved {
    /// Commands that follow from the verdict on the profile at `path`.
    pub fn next(
        &self,
        path: &Path,
        profile: &Profile,
        found: &Characterisation,
        plans: &[PathBuf],
    ) -> Vec<Step> {
        let path = path.display().to_string();
        let plans: Vec<String> = plans.iter().map(|p| p.display().to_string()).collect();
        next::steps(
            &path,
            profile,
            found,
            self.named.as_deref(),
            self.nodes_only,
            &plans,
        )
    }
}

impl SettingArgs {
    /// Reads a profile. Control characters in its text are replaced, so that they cannot move a terminal's cursor.
    pub fn read(path: &Path, page_slices: bool) -> Result<Profile, CliError> {
        let mut profile = profile::read_parts(path, Parts { page_slices })?;
        profile.for_each_text(|text| {
            if text.contains(char::is_control) {
                *text = text.replace(char::is_control, "\u{fffd}");
            }
        });
        Ok(profile)
    }

    /// The layer of `--layer`; an error if the profile has no data for it.
    pub fn layer(&self, profile: &Profile) -> Result<Option<Layer>, CliError> {
        let Some(name) = &self.layer else {
            return Ok(None);
        };
        let known = Layer::choices().map(Layer::name);
        let Some(layer) = Layer::from_choice(name) else {
            let error = CliError::usage(format!("there is no communication layer {name:?}"))
                .expected(known.join(", "));
            return Err(match did_you_mean(name, known) {
                Some(near) => error.hint(format!("--layer {near}")),
                None => error,
            });
        };
        let layers = profile.layers();
        if !layers.is_empty() && !profile.has_layer(layer) {
            let present: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
            return Err(
                CliError::usage(format!("the profile has no data of layer {name}"))
                    .expected(present.join(", ")),
            );
        }
        Ok(Some(layer))
    }

    /// Resolves all options for a profile.
    pub fn resolve(&self, profile: &Profile) -> Result<Resolved, CliError> {
        let layer = self.layer(profile)?;
        let threads = profile.threads().len();
        if let Some(nodes) = self.nodes {
            return Ok(blocks(layer, threads, nodes as usize, ""));
        }
        let machine = resolve(self.machine.as_deref().unwrap_or("this"))?;
        if self.machine.is_none() && machine.nodes().len() == 1 {
            return Ok(blocks(
                layer,
                threads,
                ASSUMED_NODES,
                "; this machine has one (--machine, --nodes)",
            ));
        }
        let homes = machine.nodes_with_pus();
        let blocks = NodeAssignment::blocks(threads, homes.len());
        let caches: u64 = machine
            .objects()
            .iter()
            .filter(|object| matches!(object.kind, ObjectKind::Cache(_)))
            .filter_map(|object| object.cache_bytes)
            .sum();
        Ok(Resolved {
            setting: Setting {
                layer,
                assignment: NodeAssignment {
                    nodes: machine.nodes().len(),
                    of_thread: (0..threads).map(|t| homes[blocks.node(t)]).collect(),
                    homes,
                },
                cache_bytes: (caches > 0).then_some(caches),
                private_cache_bytes: private_cache(&machine),
            },
            assumed: format!(
                "{} ({} nodes), threads in blocks",
                machine.name(),
                blocks.homes.len()
            ),
            machine: Some(machine),
            nodes_only: false,
            named: self.machine.clone().filter(|name| name != "this"),
        })
    }

    /// Resolves the options and characterises the profile; the verdicts judge the answers of our policies.
    pub fn characterise(
        &self,
        profile: &Profile,
    ) -> Result<(Characterisation, Resolved), CliError> {
        let resolved = self.resolve(profile)?;
        let mut found = characterise(profile, &resolved.setting).map_err(CliError::tool)?;
        let assumed;
        let machine = match &resolved.machine {
            Some(machine) => machine,
            None => {
                assumed = equal_nodes(found.assignment.nodes, profile.threads().len())?;
                &assumed
            }
        };
        found.judge(profile, &candidates::ask(profile, &found, machine));
        Ok((found, resolved))
    }
}

/// A machine of equal nodes with a PU for each of `threads`.
pub fn equal_nodes(nodes: usize, threads: usize) -> Result<Topology, CliError> {
    let cores = threads.div_ceil(nodes.max(1)).max(1);
    Ok(resolve(&format!("numa:{nodes} core:{cores} pu:1"))?)
}

/// Size of the smallest second-level cache, or the assumed size.
fn private_cache(machine: &Topology) -> u64 {
    machine
        .objects()
        .iter()
        .filter(|object| object.kind == ObjectKind::Cache(2))
        .filter_map(|object| object.cache_bytes)
        .min()
        .unwrap_or(PRIVATE_CACHE)
}

fn blocks(layer: Option<Layer>, threads: usize, nodes: usize, why: &str) -> Resolved {
    Resolved {
        setting: Setting {
            layer,
            assignment: NodeAssignment::blocks(threads, nodes),
            cache_bytes: None,
            private_cache_bytes: PRIVATE_CACHE,
        },
        assumed: format!("{nodes} nodes, threads in blocks{why}"),
        machine: None,
        nodes_only: true,
        named: None,
    }
}
