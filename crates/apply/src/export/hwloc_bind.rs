//! `hwloc-bind`: a set of PUs by kernel number; memory on the plan's node if there is only one, else
//! interleaved over the plan's nodes.

use super::{Target, memory_nodes, set};
use numaloc_model::Plan;

/// See the module.
pub struct HwlocBind;

impl Target for HwlocBind {
    fn name(&self) -> &'static str {
        "hwloc-bind"
    }

    fn pins_threads(&self) -> bool {
        false
    }

    fn memory(&self) -> Option<&'static str> {
        Some("one memory binding for the whole program")
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let mut words = vec!["hwloc-bind --physical".to_owned()];
        let nodes = memory_nodes(plan);
        if !nodes.is_empty() {
            let policy = if nodes.len() == 1 {
                "bind"
            } else {
                "interleave"
            };
            let list: Vec<String> = nodes.iter().map(|node| format!("numa:{node}")).collect();
            // hwloc-bind takes several locations of --membind as one quoted argument.
            words.push(format!(
                "--mempolicy {policy} --membind \"{}\"",
                list.join(" ")
            ));
        }
        words.push("--cpubind".to_owned());
        words.extend(set(threads).iter().map(|pu| format!("pu:{pu}")));
        words.push("--".to_owned());
        words.join(" ")
    }
}
