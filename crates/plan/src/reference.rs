//! The machine or number of nodes that a profile is characterised for, what is assumed about it, and the
//! characterisation with the verdicts, which judge the answers of our policies.

use numaloc_analysis::beyond_caches::PRIVATE_CACHE;
use numaloc_analysis::{Characterisation, NodeAssignment, Setting, characterise};
use numaloc_model::number::plural;
use numaloc_model::{CommError, Layer, Mapping, Profile};
use numaloc_topology::{ObjectKind, Topology, TopologyError, resolve};

use crate::candidates::{self, Simulated};
use crate::private_cache::private_cache;
use crate::ranks::layout::launched;

/// Number of nodes assumed if this machine has only one: the papers' machines have 2 to 8, most have 4.
const ASSUMED_NODES: usize = 4;

/// What a profile is characterised for.
#[derive(Clone, Debug)]
pub struct Reference {
    /// For the analysis.
    pub setting: Setting,
    /// What was assumed, for the reader: "4 nodes, threads in blocks of 4".
    pub assumed: String,
    /// The machine; `None` if only a number of nodes is known.
    pub machine: Option<Topology>,
}

impl Reference {
    /// This many nodes, with `threads` distributed in blocks.
    #[must_use]
    pub fn nodes(threads: usize, layer: Option<Layer>, nodes: usize) -> Self {
        Self::blocks(threads, layer, nodes, "")
    }

    /// The machine that numaloc runs on; an assumed number of nodes if it has only one.
    #[must_use]
    pub fn this_machine(threads: usize, layer: Option<Layer>, machine: Topology) -> Self {
        match machine.nodes().len() {
            1 => Self::blocks(
                threads,
                layer,
                ASSUMED_NODES,
                "; this machine has one (--machine, --nodes)",
            ),
            _ => Self::machine(threads, layer, machine),
        }
    }

    /// A machine that was named, with `threads` distributed in blocks over its nodes.
    #[must_use]
    pub fn machine(threads: usize, layer: Option<Layer>, machine: Topology) -> Self {
        let homes = machine.nodes_with_pus();
        // A cache without a thread below it holds nothing of the program.
        let pus = Mapping::blocks(threads, machine.pus().len()).pu;
        let caches: u64 = machine
            .objects()
            .iter()
            .filter(|object| matches!(object.kind, ObjectKind::Cache(_)))
            .filter(|object| pus.iter().any(|pu| object.pus.contains(&pu.0)))
            .filter_map(|object| object.cache_bytes)
            .sum();
        Self {
            setting: Setting {
                layer,
                assignment: NodeAssignment {
                    nodes: machine.nodes().len(),
                    of_thread: pus.iter().map(|&pu| machine.node_of(pu)).collect(),
                    homes,
                },
                cache_bytes: (caches > 0).then_some(caches),
                private_cache_bytes: private_cache(&machine),
                segments: Vec::new(),
            },
            assumed: format!(
                "{} ({}), threads in blocks",
                machine.name(),
                plural(machine.nodes_with_pus().len(), "node")
            ),
            machine: Some(machine),
        }
    }

    /// Of ranks, one thread each: where their launcher starts them, which the recorded command shows, instead of blocks
    /// over the whole machine.
    #[must_use]
    pub fn for_ranks(mut self, profile: &Profile) -> Self {
        let threads = profile.threads();
        let mut ranks: Vec<_> = threads.iter().map(|thread| thread.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let are_ranks = ranks.len() == threads.len() && ranks.first().is_some_and(Option::is_some);
        if let Some(machine) = &self.machine
            && machine.hosts().len() > 1
            && are_ranks
        {
            let command = &profile.meta().command;
            let launched = launched(command, machine, threads.len(), None);
            let pus = launched.mapping(machine, threads.len()).pu;
            self.setting.assignment.of_thread = pus.iter().map(|&pu| machine.node_of(pu)).collect();
            self.assumed = self
                .assumed
                .replace("threads in blocks", "ranks as launched");
        }
        self
    }

    fn blocks(threads: usize, layer: Option<Layer>, nodes: usize, why: &str) -> Self {
        Self {
            setting: Setting {
                layer,
                assignment: NodeAssignment::blocks(threads, nodes),
                cache_bytes: None,
                private_cache_bytes: PRIVATE_CACHE,
                segments: Vec::new(),
            },
            assumed: format!("{}, threads in blocks{why}", plural(nodes, "node")),
            machine: None,
        }
    }

    /// Characterises a profile; the verdicts judge the answers of our policies.
    ///
    /// # Errors
    /// [`CharacteriseError`] if the profile's communication is no matrix, or no machine has that many equal nodes.
    pub fn characterise(&self, profile: &Profile) -> Result<Characterisation, CharacteriseError> {
        self.characterise_with(profile, None)
    }

    /// The same where changes of the program were simulated.
    ///
    /// # Errors
    /// As [`characterise`](Self::characterise).
    pub fn characterise_with(
        &self,
        profile: &Profile,
        simulated: Option<Simulated>,
    ) -> Result<Characterisation, CharacteriseError> {
        let mut found = characterise(profile, &self.setting)?;
        let assumed;
        let machine = match &self.machine {
            Some(machine) => machine,
            None => {
                assumed = equal_nodes(found.assignment.nodes, profile.threads().len())?;
                &assumed
            }
        };
        found.judge(
            profile,
            &candidates::ask(profile, &found, machine, simulated),
        );
        Ok(found)
    }
}

/// Why a profile cannot be characterised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CharacteriseError {
    /// The profile's communication is no matrix of its threads.
    #[error(transparent)]
    Communication(#[from] CommError),
    /// There is no machine of that many equal nodes.
    #[error(transparent)]
    Machine(#[from] TopologyError),
}

/// A machine of equal nodes with a PU for each of `threads`.
///
/// # Errors
/// [`TopologyError`] if hwloc has no machine of that size.
pub fn equal_nodes(nodes: usize, threads: usize) -> Result<Topology, TopologyError> {
    let cores = threads.div_ceil(nodes.max(1)).max(1);
    resolve(&format!("numa:{nodes} core:{cores} pu:1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_one_node_is_replaced_only_if_nobody_named_it() {
        let one = resolve("numa:1 core:4 pu:1").expect("a machine");
        let assumed = Reference::this_machine(8, None, one.clone());
        assert_eq!(assumed.setting.assignment.nodes, ASSUMED_NODES);
        assert!(assumed.machine.is_none() && assumed.assumed.contains("this machine has one"));
        let named = Reference::machine(8, None, one);
        assert_eq!(named.setting.assignment.nodes, 1);
        assert!(named.machine.is_some());
    }

    #[test]
    fn threads_are_distributed_in_blocks_over_nodes_with_pus() {
        let machine = resolve("numa:2 core:2 pu:1").expect("a machine");
        let reference = Reference::machine(4, None, machine);
        let nodes: Vec<u32> = reference
            .setting
            .assignment
            .of_thread
            .iter()
            .map(|n| n.0)
            .collect();
        assert_eq!(nodes, [0, 0, 1, 1]);
        let by_number = Reference::nodes(4, None, 2);
        assert_eq!(
            by_number.setting.assignment.of_thread,
            reference.setting.assignment.of_thread
        );
    }
}
