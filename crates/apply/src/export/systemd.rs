//! systemd: a drop-in for a service, with `CPUAffinity=`, `NUMAPolicy=` and `NUMAMask=` (systemd.exec(5), systemd 243).

use super::{Target, memory_nodes, ranges, set};
use numaloc_model::Plan;

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

    fn write(&self, threads: &[u32], plan: &Plan) -> String {
        let nodes = memory_nodes(plan);
        let policy = match nodes.as_slice() {
            [] => String::new(),
            [one] => format!("\nNUMAPolicy=preferred\nNUMAMask={one}"),
            _ => format!("\nNUMAPolicy=interleave\nNUMAMask={}", ranges(&nodes)),
        };
        format!(
            "# /etc/systemd/system/NAME.service.d/numaloc.conf, then: systemctl daemon-reload, systemctl restart NAME\n\
             [Service]\nCPUAffinity={}{policy}",
            ranges(&set(threads))
        )
    }
}
