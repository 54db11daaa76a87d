//! `numaloc machines`: the described machines, and a description of this one.

use numaloc_topology::{described_machines, resolve};
use serde_json::json;

use crate::error::CliError;
use crate::ui::Ui;

mod calibrate;
mod measure;

/// List the described machines that --machine accepts by name
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Calibrate(calibrate::Args),
}

impl Args {
    /// Prints every built-in machine with its size and where its numbers come from, or runs the subcommand.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        if let Some(Command::Calibrate(args)) = &self.command {
            return args.run(ui);
        }
        let mut rows = Vec::new();
        for (name, description) in described_machines() {
            let machine = resolve(&name)?;
            rows.push((name, machine, description));
        }
        ui.result(
            || {
                rows.iter()
                    .map(|(name, machine, about)| {
                        format!("{name:<19} {}\n{:20}{about}\n", machine.summary(), "")
                    })
                    .collect()
            },
            || {
                let machines = rows.iter().map(|(name, machine, about)| {
                    json!({
                        "name": name,
                        "size": machine.summary(),
                        "nodes": machine.nodes().len(),
                        "pus": machine.pus().len(),
                        "description": about,
                    })
                });
                json!({"version": 1, "machines": machines.collect::<Vec<_>>()})
            },
        );
        Ok(0)
    }
}
