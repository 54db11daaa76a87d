//! memkind: the nodes that `hbw_malloc` takes, and the objects for which to call it instead of `malloc`.

use super::{Target, commas, memory_nodes};
use numaloc_model::Plan;
use std::collections::BTreeSet;

/// The page policy that decides as memkind's users do.
const POLICY: &str = "hbm";

/// See the module.
pub struct Memkind;

impl Target for Memkind {
    fn name(&self) -> &'static str {
        "memkind"
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
        Some("whole objects on a set of nodes")
    }

    fn needs(&self, plan: &Plan) -> Option<String> {
        let policy = &plan.provenance.page_policy;
        (policy != POLICY).then(|| {
            format!("a plan by --pages {POLICY}: {policy} may place parts of an object, and on nodes that are no high-bandwidth memory")
        })
    }

    fn write(&self, _threads: &[u32], plan: &Plan) -> String {
        let placed: BTreeSet<u32> = plan.pages.iter().map(|pages| pages.object).collect();
        let objects = placed.iter().map(|&at| {
            let object = &plan.objects[at as usize];
            format!(
                "# hbw_malloc: {} ({} bytes)\n",
                object.name.replace('\n', " "),
                object.size
            )
        });
        let nodes = commas(memory_nodes(plan));
        format!("{}MEMKIND_HBW_NODES={nodes}", objects.collect::<String>())
    }
}
