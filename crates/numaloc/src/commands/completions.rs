//! `numaloc completions`: a script that completes commands, options and their values in a shell.
//!
//! The parser takes policies, machines, layers and targets of exports as text, with its own answers to mistakes; here
//! they become values that a shell can list.

use std::sync::OnceLock;

use clap::ValueHint;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use numaloc_model::Layer;
use numaloc_plan::registry::{Kind, Place, entries};

use crate::error::CliError;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  numaloc completions bash > numaloc.bash
  numaloc completions fish > numaloc.fish

bash: put the script into ~/.local/share/bash-completion/completions/numaloc; zsh: into a folder of
$fpath as _numaloc; fish: into ~/.config/fish/completions/numaloc.fish. Packages and `make install`
have done it.";

/// Makes the command line that scripts are for.
static DECLARED: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Sets what makes the command line that scripts are for.
pub fn declare(command: fn() -> clap::Command) {
    let _ = DECLARED.set(command);
}

/// Print a script that completes commands, options, policies, machines, layers and profiles in a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    /// Prints the script.
    ///
    /// # Errors
    /// Standard output cannot be written, which the caller reports.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let command = DECLARED.get().map(|declared| declared());
        let script = script(self.shell, command.unwrap_or_default());
        ui.result(
            || script.clone(),
            || serde_json::json!({"version": 1, "shell": self.shell.to_string(), "script": script}),
        );
        Ok(0)
    }
}

fn script(shell: Shell, command: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_values(command), "numaloc", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A command with the values of its options, and those of its subcommands.
fn with_values(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|arg| with_values_of(&name, arg))
        .mut_subcommands(with_values)
}

fn with_values_of(command: &str, arg: clap::Arg) -> clap::Arg {
    let profile = |arg: &clap::Arg| arg.is_positional() && takes(arg, "PROFILE");
    match arg.get_long() {
        Some(_) if takes(&arg, "MACHINE") => arg.value_parser(values(machines())),
        Some("layer") => {
            let layers = Layer::choices().into_iter();
            arg.value_parser(values(layers.map(Layer::name)))
        }
        Some("export") => {
            let targets = numaloc_apply::export::TARGETS.iter();
            arg.value_parser(values(targets.map(|target| target.name())))
        }
        Some("threads" | "policy") if takes(&arg, "POLICY") => {
            arg.value_parser(values(policies(Kind::Threads, command)))
        }
        Some("pages") if takes(&arg, "POLICY") => {
            arg.value_parser(values(policies(Kind::Pages, command)))
        }
        None if profile(&arg) => arg.value_hint(ValueHint::DirPath),
        _ => arg,
    }
}

/// Whether an option's value is called `name`, alone or in a list.
fn takes(arg: &clap::Arg, name: &str) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().any(|value| value.starts_with(name))
}

fn values(names: impl IntoIterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(names)
}

fn machines() -> impl Iterator<Item = &'static str> {
    std::iter::once("this").chain(numaloc_topology::machine_names())
}

/// The policies that a command takes, and `all` where it compares them.
fn policies(kind: Kind, command: &str) -> Vec<&'static str> {
    let place = match command {
        "map" => Place::Matrix,
        "simulate" => Place::Simulation,
        _ => Place::Profile,
    };
    let names = entries(kind, place).into_iter();
    let names = names.map(|entry| entry.name);
    match command {
        "plan" | "map" | "simulate" => names.chain(["all"]).collect(),
        _ => names.collect(),
    }
}
