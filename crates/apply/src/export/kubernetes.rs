//! Kubernetes: the fragment of a pod that gets CPUs of its own from the kubelet's static CPU manager (whole CPUs,
//! requests equal to limits), and the kubelet's options. Which CPUs and nodes a pod gets is the kubelet's choice; its
//! topology manager can only be asked for one node.

use super::{Target, memory_nodes, set};
use numaloc_model::Plan;

const MIB: u64 = 1 << 20;

/// See the module.
pub struct Kubernetes;

impl Target for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
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
        Some("a request for memory, on nodes that the kubelet chooses")
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let cpus = set(threads).len();
        let pages: u64 = plan.pages.iter().map(|range| range.pages).sum();
        let memory = pages.saturating_mul(plan.page_size).div_ceil(MIB).max(1);
        let kubelet = match memory_nodes(plan).len() {
            0 | 1 => "--topology-manager-policy=single-numa-node",
            _ => {
                "--topology-manager-policy=best-effort \
                 --cpu-manager-policy-options=distribute-cpus-across-numa=true"
            }
        };
        format!(
            "# kubelet: --cpu-manager-policy=static {kubelet}\n\
             # memory: what the plan places; set it to what the program needs, the limit ends it\n\
             spec:\n  containers:\n  - name: NAME\n    resources:\n\
             \x20     requests:\n        cpu: \"{cpus}\"\n        memory: {memory}Mi\n\
             \x20     limits:\n        cpu: \"{cpus}\"\n        memory: {memory}Mi"
        )
    }
}
