//! `taskset -c`: a set of PUs, or, for plans by role, lines for `sh` that bind the members which run.

use super::{Target, commas, roles, set};
use numaloc_model::Plan;
use numaloc_model::roles::RolesPlan;

/// See the module.
pub struct Taskset;

impl Target for Taskset {
    fn name(&self) -> &'static str {
        "taskset"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn has_roles(&self) -> bool {
        true
    }

    fn write_roles(&self, plan: &RolesPlan) -> Option<String> {
        let (named, _) = roles::named(plan);
        let lines = named.iter().map(|(_, role)| {
            let lists = roles::turns(plan, role).into_iter().map(|(_, pus)| pus);
            let all_threads = if role.key.is_process { "-a " } else { "" };
            format!(
                "set -- {}\nfor id in $({}); do\n  taskset {all_threads}-pc \"$1\" \"$id\"\n  set -- \"$@\" \"$1\"; shift\ndone",
                lists.collect::<Vec<_>>().join(" "),
                roles::find(role)
            )
        });
        (!named.is_empty()).then(|| lines.collect::<Vec<_>>().join("\n"))
    }

    fn write(&self, threads: &[u32], _: &Plan) -> String {
        format!("taskset -c {}", commas(set(threads)))
    }
}
