//! `numactl`: a set of PUs, and the plan's node as preferred or its nodes interleaved. Plans by `weighted-interleave`
//! use the kernel's policy of this name (numactl 2.0.19, Linux 6.9), whose weights are those of the whole system.

use super::{Target, commas, memory_nodes, roles, set};
use crate::weights;
use numaloc_model::Plan;
use numaloc_model::roles::RolesPlan;

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

    fn needs(&self, plan: &Plan) -> Option<String> {
        if !weights::is_weighted(plan) {
            return None;
        }
        Some(format!(
            "numactl 2.0.19 and Linux 6.9 or newer; the weights of the whole system, set by root: {}",
            weights::lines(plan).join("; ")
        ))
    }

    fn is_for_roles(&self) -> bool {
        true
    }

    fn write_roles(&self, plan: &RolesPlan) -> Option<String> {
        let pus = roles::all_pus(plan).map(|pus| format!(" --physcpubind={}", commas(pus)));
        let nodes = roles::whole(plan).map(|nodes| format!(" --interleave={}", commas(nodes)));
        let words: String = pus.into_iter().chain(nodes).collect();
        (!words.is_empty()).then(|| format!("numactl{words} --"))
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let memory = match nodes.as_slice() {
            [] => String::new(),
            [one] => format!(" --preferred={one}"),
            several if weights::is_weighted(plan) => {
                format!(" --weighted-interleave={}", commas(several.iter().copied()))
            }
            several => format!(" --interleave={}", commas(several.iter().copied())),
        };
        format!("numactl --physcpubind={}{memory} --", commas(set(threads)))
    }
}
