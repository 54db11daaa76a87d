//! Which exact frontend records a program.

use std::process::Command;

use numaloc_trace::Config;

use super::program::Program;
use super::{CANNOT_RUN, instrument, native, qemu};
use crate::error::CliError;
use crate::ui::Ui;

/// The command that runs `program` under the frontend `name`. `auto`: `instrument` if the program was built for it,
/// else `qemu`, else, where no emulator can load plugins (Debian 13, Ubuntu 24.04), `native`.
pub fn command(
    name: &str,
    program: &Program,
    settings: impl Fn() -> Config,
    ui: &Ui,
) -> Result<Command, CliError> {
    if name == "native" {
        return native::command(program, &settings());
    }
    let instrumented = name != "qemu" && instrument::carries(program);
    if name == "instrument" && !instrumented {
        return Err(CliError::tool(format!(
            "cannot record {} with frontend instrument: it was not built with numaloc cc",
            program.file.display()
        ))
        .hint("build it with `numaloc cc -- gcc ...`, or use --frontend qemu")
        .status(CANNOT_RUN));
    }
    if instrumented {
        ui.remark("frontend instrument: the program was built with numaloc cc");
        return Ok(instrument::command(program, &settings()));
    }
    if name == "auto" {
        if let Err(missing) = qemu::emulator() {
            let why = missing.message.trim_start_matches("cannot record: ");
            ui.remark(format_args!("frontend native: {why}"));
            return native::command(program, &settings());
        }
        ui.remark("frontend qemu: the program was not built with numaloc cc");
    }
    qemu::command(program, settings())
}
