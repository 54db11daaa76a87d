//! The registry of commands: one file each, one line here.

use clap::Subcommand;

use crate::error::CliError;
use crate::ui::Ui;

pub mod advise;
mod attach;
mod cc;
mod check;
mod compare;
mod completions;
mod diff;
mod doctor;
mod export;
mod import;
mod lab;
mod machines;
mod map;
mod online;
mod plan;
mod policies;
mod ranks;
mod record;
mod report;
mod run;
mod separated;
mod show;
mod simulate;
mod store;
mod tasks;
mod top;
mod topology;
mod validate;

pub use completions::declare;
pub use doctor::frontends;
pub use record::{ANSWER, HOST_FOLDER, MERGE_SHARE, answer_of, host_folder, merge_share};
pub use separated::set_words;
pub use show::locale_is_utf8;
pub use validate::{KERNEL, run_kernel};

/// Declares the subcommands; each module has an `Args` with `run(&self, &Ui)`.
macro_rules! commands {
    ($($name:ident => $module:ident),* $(,)?) => {
        // There is one value per process, so its size does not matter.
        #[allow(clippy::large_enum_variant)]
        #[derive(Subcommand)]
        pub enum Command {
            $(#[allow(missing_docs)] $name($module::Args)),*
        }

        impl Command {
            /// Runs the command and returns its exit status.
            pub fn run(self, ui: &Ui) -> Result<u8, CliError> {
                match self {
                    $(Self::$name(args) => args.run(ui)),*
                }
            }
        }
    };
}

impl Command {
    /// Exit status of our own failures after the command has done its work: that of `env` for commands that pass a
    /// program's status through.
    pub fn own_failure(&self) -> u8 {
        match self {
            Self::Record(_) | Self::Run(_) | Self::Lab(_) | Self::Tasks(_) | Self::Cc(_) => 125,
            _ => crate::error::TOOL,
        }
    }
}

commands! {
    Advise => advise,
    Attach => attach,
    Cc => cc,
    Check => check,
    Diff => diff,
    Doctor => doctor,
    Export => export,
    Import => import,
    Compare => compare,
    Completions => completions,
    Lab => lab,
    Machines => machines,
    Map => map,
    Plan => plan,
    Ranks => ranks,
    Record => record,
    Report => report,
    Run => run,
    Show => show,
    Simulate => simulate,
    Store => store,
    Tasks => tasks,
    Top => top,
    Topology => topology,
    Validate => validate,
}

/// A communication layer by name, for clap.
fn layer(given: &str) -> Result<numaloc_model::Layer, String> {
    use numaloc_model::Layer;
    Layer::from_choice(given).ok_or_else(|| {
        let names: Vec<&str> = Layer::choices().into_iter().map(Layer::name).collect();
        format!("expected one of: {}", names.join(", "))
    })
}
