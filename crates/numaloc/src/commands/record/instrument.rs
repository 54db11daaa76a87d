//! The exact frontend for programs built with `numaloc cc`, which trace themselves.

use std::process::Command;

use numaloc_trace::Config;
use numaloc_trace::settings::VARIABLE;
use object::Object as _;

use super::program::Program;

/// Whether the program carries our run-time library.
pub fn carries(program: &Program) -> bool {
    // Programs may be large: only what is looked at is read.
    std::fs::File::open(&program.file).is_ok_and(|file| {
        let file = object::ReadCache::new(file);
        object::File::parse(&file).is_ok_and(|file| file.section_by_name(".numaloc").is_some())
    })
}

/// The command that runs `program` natively, recorded as `settings` say.
pub fn command(program: &Program, settings: &Config) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(&program.file);
    if let Some(name) = program.arguments.first() {
        command.arg0(name);
    }
    command
        .args(program.arguments.iter().skip(1))
        .env(VARIABLE, settings.encode());
    command
}
