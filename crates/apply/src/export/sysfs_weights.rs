//! Weights of the kernel's weighted interleaving, as lines for `sh` by root: they hold for the whole system, and
//! programs use them under `numactl --weighted-interleave`.

use super::{Target, commas, memory_nodes};
use crate::weights;
use numaloc_model::Plan;

/// See the module.
pub struct SysfsWeights;

impl Target for SysfsWeights {
    fn name(&self) -> &'static str {
        "sysfs-weights"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn has_threads(&self) -> bool {
        false
    }

    fn has_comments(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<&'static str> {
        Some("weights of the whole system")
    }

    fn needs(&self, plan: &Plan) -> Option<String> {
        Some(format!(
            "Linux 6.9 or newer and root; a program uses the weights under numactl --weighted-interleave={}",
            commas(memory_nodes(plan))
        ))
    }

    fn write(&self, _threads: &[u32], plan: &Plan) -> String {
        weights::lines(plan).join("\n")
    }
}
