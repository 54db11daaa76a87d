//! docker and podman: a container with `--cpuset-cpus` and `--cpuset-mems`.

use super::{CPUSET_MEMORY, Target, memory_nodes, ranges, set};
use numaloc_model::Plan;

/// See the module.
pub struct Docker;

impl Target for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn has_all_processes(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<&'static str> {
        Some(CPUSET_MEMORY)
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let memory = match nodes.is_empty() {
            true => String::new(),
            false => format!(" --cpuset-mems={}", ranges(&nodes)),
        };
        format!("docker run --cpuset-cpus={}{memory}", ranges(&set(threads)))
    }
}
