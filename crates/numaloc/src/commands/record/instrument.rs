//! The exact frontend for programs built with `numaloc cc`, which trace themselves.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use numaloc_trace::cross_process::Board;
use object::Object as _;

use super::Args;
use super::program::Program;

/// Whether the program carries our run-time library.
pub fn carries(program: &Program) -> bool {
    std::fs::read(&program.file).is_ok_and(|bytes| {
        object::File::parse(&*bytes).is_ok_and(|file| file.section_by_name(".numaloc").is_some())
    })
}

/// Settings of the run-time library in the program, as environment variables.
pub fn environment(
    folder: &Path,
    cross_process: Option<&Board>,
    args: &Args,
) -> Vec<(&'static str, OsString)> {
    vec![
        ("NUMALOC_JOURNAL", folder.as_os_str().to_owned()),
        ("NUMALOC_CLOCK", args.clock.clone().into()),
        ("NUMALOC_SLICE", args.slice_length().to_string().into()),
        ("NUMALOC_SLICES", args.slices.to_string().into()),
        ("NUMALOC_ENGINE", args.engine_options(cross_process).into()),
        ("NUMALOC_LAYERS", args.layer_names().into()),
        (
            "NUMALOC_LINE_SHIFT",
            args.line_size.trailing_zeros().to_string().into(),
        ),
    ]
}

/// The command that runs `program` natively and leaves journals in `folder`.
pub fn command(
    program: &Program,
    folder: &Path,
    cross_process: Option<&Board>,
    args: &Args,
) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(&program.file);
    if let Some(name) = program.arguments.first() {
        command.arg0(name);
    }
    command
        .args(program.arguments.iter().skip(1))
        .envs(environment(folder, cross_process, args));
    command
}
