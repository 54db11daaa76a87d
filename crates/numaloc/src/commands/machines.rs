//! `numaloc machines`: the described machines.

use numaloc_topology::{described_machines, resolve};
use serde_json::json;

use crate::error::CliError;
use crate::ui::Ui;

/// List the described machines that --machine accepts by name
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    /// Prints every built-in machine with its size and where its numbers come from.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let mut rows = Vec::new();
        for (name, description) in described_machines() {
            let machine = resolve(&name)?;
            rows.push((name, machine.summary(), description));
        }
        ui.result(
            || {
                rows.iter()
                    .map(|(name, size, about)| format!("{name:<14} {size}\n{:15}{about}\n", ""))
                    .collect()
            },
            || {
                json!({"machines": rows.iter().map(|(name, size, about)|
                    json!({"name": name, "size": size, "description": about})).collect::<Vec<_>>()})
            },
        );
        Ok(0)
    }
}
