//! The exact frontend for unmodified programs on their own processor: `numaloc-native`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use numaloc_launch::{Part, sibling};
use numaloc_trace::Config;

use super::program::Program;
use super::qemu::PLUGIN_DIR;
use super::{OWN_FAILURE, qemu};
use crate::error::CliError;

const TRANSLATOR: &str = "numaloc-native";

/// The command that runs `program`, recorded as `settings` say.
pub fn command(program: &Program, settings: &Config) -> Result<Command, CliError> {
    let mut command = Command::new(translator()?);
    command.arg("--record").arg(settings.encode());
    // Without an emulator, everything that the program executes is translated.
    if let (Ok(emulator), Ok(plugin)) = (qemu::emulator(), qemu::plugin()) {
        command.arg("--emulator").arg(emulator).arg(plugin);
    }
    command.arg("--path").arg(&program.file).arg("--");
    command.args(&program.arguments);
    Ok(command)
}

/// Asks the translator, which loads the program without running it. The error says why it cannot record it.
pub fn check(program: &Program) -> Result<(), String> {
    let translator = translator().map_err(|error| {
        let why = error.message.trim_start_matches("cannot record: ");
        why.to_owned()
    })?;
    let mut command = Command::new(translator);
    command.arg("--check").arg("--path").arg(&program.file);
    command.arg("--").args(&program.arguments);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{TRANSLATOR}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or_default();
    let why = line.strip_prefix("numaloc-native: ").unwrap_or(line);
    Err(match why.split_once(": record with --frontend qemu") {
        _ if why.is_empty() => format!("{TRANSLATOR} ended with {}", output.status),
        Some((why, _)) => why.to_owned(),
        None => why.to_owned(),
    })
}

/// The translator lies next to this executable, or where `NUMALOC_PLUGIN_DIR` says.
pub fn translator() -> Result<PathBuf, CliError> {
    sibling(TRANSLATOR, Part::Library, std::env::var_os(PLUGIN_DIR)).map_err(|why| {
        CliError::tool(format!("cannot record: {why}"))
            .hint(why.hint(PLUGIN_DIR))
            .status(OWN_FAILURE)
    })
}
