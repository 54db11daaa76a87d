//! systemd: a drop-in for a service, with `CPUAffinity=`, `NUMAPolicy=` and `NUMAMask=` (systemd.exec(5), systemd 243).

use super::{Target, memory_nodes, ranges, roles, set};
use numaloc_model::Plan;
use numaloc_model::roles::RolesPlan;

/// Where the text goes, and its section.
const HEAD: &str = "# /etc/systemd/system/NAME.service.d/numaloc.conf, then: systemctl daemon-reload, systemctl restart NAME\n[Service]";

/// See the module.
pub struct Systemd;

impl Target for Systemd {
    fn name(&self) -> &'static str {
        "systemd"
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
        Some("one memory policy for the whole service")
    }

    fn is_for_roles(&self) -> bool {
        true
    }

    fn write_roles(&self, plan: &RolesPlan) -> Option<String> {
        let pus = roles::all_pus(plan).map(|pus| format!("\nCPUAffinity={}", ranges(&pus)));
        let nodes = roles::whole(plan)
            .map(|nodes| format!("\nNUMAPolicy=interleave\nNUMAMask={}", ranges(&nodes)));
        let words: String = pus.into_iter().chain(nodes).collect();
        (!words.is_empty()).then(|| format!("{HEAD}{words}"))
    }

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let policy = match nodes.as_slice() {
            [] => String::new(),
            [one] => format!("\nNUMAPolicy=preferred\nNUMAMask={one}"),
            _ => format!("\nNUMAPolicy=interleave\nNUMAMask={}", ranges(&nodes)),
        };
        format!("{HEAD}\nCPUAffinity={}{policy}", ranges(&set(threads)))
    }
}
