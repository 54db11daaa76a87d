//! Options that `show`, `report` and `diff` share: the machine, number of nodes and layer for the analysis of a
//! profile.

use std::path::{Path, PathBuf};

use numaloc_analysis::{Characterisation, segments};
use numaloc_formats::profile::{self, Parts};
use numaloc_formats::segments as rules;
use numaloc_model::segments::SegmentRule;
use numaloc_model::{Layer, Profile};
use numaloc_plan::Reference;
use numaloc_plan::candidates::Simulated;
pub use numaloc_plan::reference::equal_nodes;
use numaloc_report::next::{self, Step};
use numaloc_topology::{Topology, resolve};

use crate::error::{CliError, did_you_mean};

/// Options for the analysis of a profile.
#[derive(clap::Args, Clone, Debug, Default)]
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
    /// Rules that name memory, tried before the built-in ones: a .toml file, or a folder of them
    /// [also read: ~/.config/numaloc/segments/*.toml]
    #[arg(long, value_name = "FILE")]
    pub segments: Vec<PathBuf>,
}

/// What a profile was characterised for, with a description of what was assumed.
pub struct Resolved {
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
        recorded: &Profile,
        found: &Characterisation,
        plans: &[PathBuf],
    ) -> Vec<Step> {
        let has_trace = profile::traces::are_in(path);
        let path = path.display().to_string();
        let plans: Vec<String> = plans.iter().map(|p| p.display().to_string()).collect();
        next::steps(
            &path,
            recorded,
            found,
            self.named.as_deref(),
            self.nodes_only,
            has_trace,
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
                *text = text.replace(['\n', '\t', '\r'], " ");
                *text = text.replace(char::is_control, "\u{fffd}");
            }
        });
        Ok(profile)
    }

    /// Reads a profile whose memory has the names of its segments.
    pub fn open(&self, path: &Path) -> Result<Profile, CliError> {
        let mut profile = Self::read(path, true)?;
        segments::name_memory(&mut profile, &self.rules()?);
        Ok(profile)
    }

    /// The rules that name segments: those of `--segments`, then the user's, then the built-in ones.
    pub fn rules(&self) -> Result<Vec<SegmentRule>, CliError> {
        let mut rules = Vec::new();
        for path in self.segments.iter().cloned().chain(users_rules()) {
            rules.extend(rules::read(&path).map_err(CliError::tool)?);
        }
        rules.extend(rules::built_in());
        Ok(rules)
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

    /// What the options say that a profile is characterised for.
    pub fn reference(&self, profile: &Profile) -> Result<Reference, CliError> {
        let layer = self.layer(profile)?;
        let threads = profile.threads().len();
        let mut reference = match (self.nodes, self.machine.as_deref()) {
            (Some(nodes), _) => Reference::nodes(threads, layer, nodes as usize),
            (None, Some(name)) => Reference::machine(threads, layer, resolve(name)?),
            (None, None) => Reference::this_machine(threads, layer, resolve("this")?),
        };
        reference.setting.segments = self.rules()?;
        Ok(reference.for_ranks(profile))
    }

    /// Resolves the options and characterises the profile; the verdicts judge the answers of our policies.
    pub fn characterise(
        &self,
        profile: &Profile,
    ) -> Result<(Characterisation, Resolved), CliError> {
        let reference = self.reference(profile)?;
        self.characterised(profile, reference, None)
    }

    /// Characterises a profile for what the options say; `simulated`: what changes of the program are worth.
    pub fn characterised(
        &self,
        profile: &Profile,
        reference: Reference,
        simulated: Option<Simulated>,
    ) -> Result<(Characterisation, Resolved), CliError> {
        let found = reference.characterise_with(profile, simulated);
        let found = found.map_err(CliError::tool)?;
        let resolved = Resolved {
            nodes_only: reference.machine.is_none(),
            assumed: reference.assumed,
            machine: reference.machine,
            named: self.machine.clone().filter(|name| name != "this"),
        };
        Ok((found, resolved))
    }
}

/// The folder of the user's own rules, if there is one.
fn users_rules() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".config")))?;
    let folder = folder.join("numaloc/segments");
    folder.is_dir().then_some(folder)
}
