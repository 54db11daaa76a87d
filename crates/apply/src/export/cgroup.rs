//! A cgroup of version 2 with the controller `cpuset`: lines for sh that write `cpuset.cpus` and `cpuset.mems`.

use super::{CPUSET_MEMORY, Target, memory_nodes, ranges, set};
use numaloc_model::Plan;

/// See the module.
pub struct Cgroup;

impl Target for Cgroup {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn has_all_processes(&self) -> bool {
        true
    }

    fn has_comments(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<&'static str> {
        Some(CPUSET_MEMORY)
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let memory = match nodes.is_empty() {
            true => String::new(),
            false => format!("\necho {} > \"$CGROUP/cpuset.mems\"", ranges(&nodes)),
        };
        format!(
            "# CGROUP=/sys/fs/cgroup/NAME, after: echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control\n\
             echo {} > \"$CGROUP/cpuset.cpus\"{memory}",
            ranges(&set(threads))
        )
    }
}
