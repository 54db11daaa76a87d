//! The registry of commands: one file each, one line here.

use clap::Subcommand;

use crate::error::CliError;
use crate::ui::Ui;

mod machines;
mod topology;

/// Declares the subcommands; each module has an `Args` with `run(&self, &Ui)`.
macro_rules! commands {
    ($($name:ident => $module:ident),* $(,)?) => {
        #[derive(Subcommand)]
        pub enum Command {
            $(#[allow(missing_docs)] $name($module::Args)),*
        }

        impl Command {
            /// Runs the command; the exit status of success is the command's to say.
            pub fn run(self, ui: &Ui) -> Result<u8, CliError> {
                match self {
                    $(Self::$name(args) => args.run(ui)),*
                }
            }
        }
    };
}

commands! {
    Machines => machines,
    Topology => topology,
}
