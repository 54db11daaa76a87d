//! A cgroup of version 2 with the controller `cpuset`: lines for sh that write `cpuset.cpus` and `cpuset.mems`.

use super::{CPUSET_MEMORY, Target, memory_nodes, ranges, roles, set};
use numaloc_model::Plan;
use numaloc_model::roles::RolesPlan;

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

    fn has_roles(&self) -> bool {
        true
    }

    fn write_roles(&self, plan: &RolesPlan) -> Option<String> {
        let (named, _) = roles::named(plan);
        let mut out = "# CGROUP=/sys/fs/cgroup/NAME, after: echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control\n\
             # members are found by name and moved to a cgroup of their role, threads to a threaded one\n\
             mkdir -p \"$CGROUP\"\n\
             echo +cpuset > \"$CGROUP/cgroup.subtree_control\""
            .to_owned();
        for (at, role) in &named {
            let turns = roles::turns(plan, role);
            let (kind, file) = match role.key.is_process {
                true => ("", "cgroup.procs"),
                false => ("threaded", "cgroup.threads"),
            };
            let mut groups = Vec::new();
            for (nodes, pus) in &turns {
                let mems = ranges(&plan.os_nodes(nodes));
                let group = format!("$CGROUP/role-{at}-nodes-{mems}");
                out += &format!("\nmkdir -p \"{group}\"");
                if !kind.is_empty() {
                    out += &format!("\necho {kind} > \"{group}/cgroup.type\"");
                }
                out += &format!("\necho {pus} > \"{group}/cpuset.cpus\"");
                groups.push(format!("\"{group}\""));
            }
            out += &format!(
                "\nset -- {}\nfor id in $({}); do\n  echo \"$id\" > \"$1/{file}\"\n  set -- \"$@\" \"$1\"; shift\ndone",
                groups.join(" "),
                roles::find(role)
            );
        }
        (!named.is_empty()).then_some(out)
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
