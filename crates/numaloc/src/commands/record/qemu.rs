//! The exact frontend for unmodified programs: `qemu-x86_64` with our plugin.

use std::path::{Path, PathBuf};
use std::process::Command;

use numaloc_trace::cross_process::Board;
use object::{Object as _, ObjectSymbol as _};

use super::program::Program;
use super::{Args, OWN_FAILURE};
use crate::error::CliError;

const EMULATOR: &str = "qemu-x86_64";
/// A function that every plugin needs; an emulator without it cannot load plugins.
const PLUGIN_FUNCTION: &str = "qemu_plugin_register_vcpu_tb_trans_cb";
/// Environment variable with the path of the emulator.
const CHOSEN: &str = "NUMALOC_QEMU";
const PLUGIN: &str = "libnumaloc_qemu.so";

/// Value of the emulator's `-plugin` option, without the program.
pub fn plugin_option(
    folder: &Path,
    cross_process: Option<&Board>,
    args: &Args,
) -> Result<String, CliError> {
    let plugin = plugin()?;
    let mut option = plugin.to_string_lossy().replace(',', ",,");
    for (name, value) in [
        ("folder", folder.to_string_lossy().into_owned()),
        ("plugin", plugin.to_string_lossy().into_owned()),
        ("wall", u8::from(args.clock == "wall").to_string()),
        ("slice", args.slice_length().to_string()),
        ("slices", args.slices.to_string()),
        ("layers", args.layer_names()),
        ("engine", args.engine_options(cross_process)),
        ("line", args.line_size.trailing_zeros().to_string()),
    ] {
        option += &format!(",{name}={}", escape(&value));
    }
    Ok(option)
}

/// The command that runs `program` and leaves journals in `folder`.
pub fn command(
    program: &Program,
    folder: &Path,
    cross_process: Option<&Board>,
    args: &Args,
) -> Result<Command, CliError> {
    let file = program
        .file
        .canonicalize()
        .unwrap_or_else(|_| program.file.clone());
    let option = plugin_option(folder, cross_process, args)?;
    let mut command = Command::new(emulator()?);
    command.arg("-plugin").arg(format!(
        "{option},program={}",
        escape(&file.to_string_lossy())
    ));
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

/// Escapes a value, because commas separate the plugin's arguments.
fn escape(value: &str) -> String {
    value
        .replace('%', "%25")
        .replace(',', "%2C")
        .replace('=', "%3D")
}

/// Path of the emulator: `NUMALOC_QEMU`, or the first on `PATH`.
pub fn emulator() -> Result<PathBuf, CliError> {
    let found = match std::env::var_os(CHOSEN) {
        Some(file) => Some(PathBuf::from(file)),
        None => numaloc_launch::find(EMULATOR.as_ref()).ok(),
    };
    let found = found.ok_or_else(|| {
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

/// Whether an emulator can load plugins; `None` if the file does not show it, such as a script that starts an emulator.
fn takes_plugins(emulator: &Path) -> Option<bool> {
    let file = object::ReadCache::new(std::fs::File::open(emulator).ok()?);
    let program = object::File::parse(&file).ok()?;
    let mut exported = program.dynamic_symbols();
    Some(exported.any(|symbol| symbol.name() == Ok(PLUGIN_FUNCTION)))
}

/// The plugin lies next to this executable, or where `NUMALOC_PLUGIN_DIR` says.
fn plugin() -> Result<PathBuf, CliError> {
    let folders: Vec<PathBuf> = match std::env::var_os("NUMALOC_PLUGIN_DIR") {
        Some(folder) => vec![folder.into()],
        None => {
            let own = std::env::current_exe().and_then(|exe| exe.canonicalize());
            let beside = own.ok().and_then(|exe| exe.parent().map(Path::to_owned));
            beside
                .into_iter()
                .flat_map(|folder| {
                    // Installed: bin/numaloc and lib/numaloc/. Test executables lie one folder below the build's.
                    let above = folder.parent().map(Path::to_owned).unwrap_or_default();
                    [folder.clone(), above.join("lib/numaloc"), above]
                })
                .collect()
        }
    };
    folders
        .iter()
        .map(|folder| folder.join(PLUGIN))
        .find(|file| file.is_file())
        .and_then(|file| file.canonicalize().ok())
        .ok_or_else(|| {
            CliError::tool(format!(
                "cannot record: {PLUGIN} is not in {}",
                folders
                    .iter()
                    .map(|folder| folder.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" or ")
            ))
            .hint("cargo build -p numaloc-qemu, or set NUMALOC_PLUGIN_DIR to its folder")
            .status(OWN_FAILURE)
        })
}
