//! `numactl`: a set of PUs, and the plan's node as preferred or its nodes interleaved.

use super::{Target, commas, memory_nodes, set};
use numaloc_model::Plan;

/// See the module.
pub struct Numactl;

impl Target for Numactl {
    fn name(&self) -> &'static str {
        "numactl"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn memory(&self) -> Option<&'static str> {
        Some("one memory policy for the whole program")
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let memory = match nodes.as_slice() {
            [] => String::new(),
            [one] => format!(" --preferred={one}"),
            several => format!(" --interleave={}", commas(several.iter().copied())),
        };
        format!("numactl --physcpubind={}{memory} --", commas(set(threads)))
    }
}
