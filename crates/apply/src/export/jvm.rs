//! The HotSpot Java virtual machine: its options for NUMA machines. `UseNUMA` gives each node its part of the young
//! generation, in which the node's threads allocate (Parallel collector; G1 since JDK 14);
//! `UseNUMAInterleaving` spreads the heap over the nodes.

use super::{Target, memory_nodes, set};
use numaloc_model::Plan;

/// See the module.
pub struct Jvm;

impl Target for Jvm {
    fn name(&self) -> &'static str {
        "jvm"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn has_all_processes(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<&'static str> {
        Some("how the heap is spread over the nodes that the process may use")
    }

    fn needs(&self, _: &Plan) -> Option<String> {
        Some("`--export numactl` before it for the PUs: these options bind nothing".to_owned())
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let heap = match memory_nodes(plan).len() {
            // The pages are left to first touch: so is the choice.
            0 => "",
            1 => " -XX:-UseNUMA",
            _ if plan.provenance.page_policy.contains("interleave") => " -XX:+UseNUMAInterleaving",
            _ => " -XX:+UseNUMA",
        };
        let cpus = set(threads).len();
        format!("java{heap} -XX:ActiveProcessorCount={cpus}")
    }
}
