//! The exact frontend for unmodified programs: `qemu-x86_64` with our plugin.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use numaloc_launch::emulator::{ALLOCATOR, HIDES_ALLOCATOR};
use numaloc_launch::{Part, sibling};
use numaloc_trace::Config;
use object::{Object as _, ObjectSymbol as _};

use super::OWN_FAILURE;
use super::program::Program;
use crate::error::CliError;

const EMULATOR: &str = "qemu-x86_64";
/// A function that every plugin needs; an emulator without it cannot load plugins.
const PLUGIN_FUNCTION: &str = "qemu_plugin_register_vcpu_tb_trans_cb";
/// Environment variable with the path of the emulator.
const CHOSEN: &str = "NUMALOC_QEMU";
const PLUGIN: &str = "libnumaloc_qemu.so";
/// Environment variable with the folder of the frontends' libraries.
pub(super) const PLUGIN_DIR: &str = "NUMALOC_PLUGIN_DIR";

/// Value of the emulator's `-plugin` option for a recording with `settings`.
pub fn plugin_option(settings: Config) -> Result<OsString, CliError> {
    let plugin = plugin()?;
    Ok(Config { plugin, ..settings }.plugin_option())
}

/// The command that runs `program`, recorded as `settings` say.
pub fn command(program: &Program, settings: Config) -> Result<Command, CliError> {
    let file = program
        .file
        .canonicalize()
        .unwrap_or_else(|_| program.file.clone());
    let option = plugin_option(Config {
        program: file,
        ..settings
    })?;
    let mut command = Command::new(emulator()?);
    let (name, value) = ALLOCATOR;
    if std::env::var_os(name).is_none() {
        command.env(name, value).args(HIDES_ALLOCATOR);
    }
    command.arg("-plugin").arg(option);
    if let Some(name) = program.arguments.first() {
        command.arg("-0").arg(name);
    }
    // The emulator would parse a leading dash as an option.
    command.arg(if program.file.to_string_lossy().starts_with('-') {
        Path::new(".").join(&program.file)
    } else {
        program.file.clone()
    });
    command.args(program.arguments.iter().skip(1));
    Ok(command)
}

/// Path of the emulator: `NUMALOC_QEMU`, or the first on `PATH`.
pub fn emulator() -> Result<PathBuf, CliError> {
    let found = emulator_file().ok_or_else(|| {
        CliError::tool(format!("cannot record: {EMULATOR} is not on PATH"))
            .hint(format!(
                "apt-get install qemu-user (Debian 12: QEMU 7.2), or set {CHOSEN} to its file"
            ))
            .status(OWN_FAILURE)
    })?;
    // Debian 13 links qemu-user statically, so it cannot load plugins.
    if takes_plugins(&found) == Some(false) {
        return Err(CliError::tool(format!(
            "cannot record: {} was built without TCG plugins (it exports no {PLUGIN_FUNCTION})",
            found.display()
        ))
        .hint(format!(
            "Debian 12's qemu-user has them; `make newer-qemu` builds one that has; set {CHOSEN} to its file"
        ))
        .status(OWN_FAILURE));
    }
    Ok(found)
}

/// The emulator's file, whether it can load plugins or not.
pub fn emulator_file() -> Option<PathBuf> {
    match std::env::var_os(CHOSEN) {
        Some(file) => Some(PathBuf::from(file)),
        None => numaloc_launch::find(EMULATOR.as_ref()).ok(),
    }
}

/// Whether an emulator can load plugins; `None` if the file does not show it, such as a script that starts an emulator.
pub fn takes_plugins(emulator: &Path) -> Option<bool> {
    let file = object::ReadCache::new(std::fs::File::open(emulator).ok()?);
    let program = object::File::parse(&file).ok()?;
    let mut exported = program.dynamic_symbols();
    Some(exported.any(|symbol| symbol.name() == Ok(PLUGIN_FUNCTION)))
}

/// The plugin that belongs to this program, or the one in `NUMALOC_PLUGIN_DIR`.
pub fn plugin() -> Result<PathBuf, CliError> {
    sibling(PLUGIN, Part::Library, std::env::var_os(PLUGIN_DIR)).map_err(|why| {
        CliError::tool(format!("cannot record: {why}"))
            .hint(why.hint(PLUGIN_DIR))
            .status(OWN_FAILURE)
    })
}
