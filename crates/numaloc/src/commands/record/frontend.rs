//! Which exact frontend records a program.

use std::process::Command;

use numaloc_trace::Config;

use super::program::Program;
use super::{CANNOT_RUN, instrument, native, qemu, sanitizer};
use crate::error::CliError;
use crate::ui::Ui;

/// The command that runs `program` under the frontend `name`. `auto`: `instrument` if the program was built for it,
/// else `native` if that can record it here, else `qemu`. `settings`: those of a recording under a frontend.
pub fn command(
    name: &str,
    program: &Program,
    settings: impl Fn(&str) -> Config,
    ui: &Ui,
) -> Result<Command, CliError> {
    let instrumented = instrument::carries(program);
    if !instrumented {
        // Our library has functions of such names.
        sanitizer::refuse(program)?;
    }
    if name == "native" {
        let command = native::command(program, &settings("native"))?;
        native::check(program).map_err(|why| {
            let file = program.file.display();
            CliError::tool(format!("cannot record {file} with frontend native: {why}"))
                .hint("use --frontend qemu")
                .status(CANNOT_RUN)
        })?;
        return Ok(command);
    }
    if name == "instrument" && !instrumented {
        return Err(CliError::tool(format!(
            "cannot record {} with frontend instrument: it was not built with numaloc cc",
            program.file.display()
        ))
        .hint("build it with `numaloc cc -- gcc ...`, or use --frontend native")
        .status(CANNOT_RUN));
    }
    if instrumented && name != "qemu" {
        ui.remark("frontend instrument: the program was built with numaloc cc");
        return Ok(instrument::command(program, &settings("instrument")));
    }
    if name == "auto" {
        match native::check(program) {
            Ok(()) => {
                ui.remark("frontend native: the program was not built with numaloc cc");
                return native::command(program, &settings("native"));
            }
            Err(why) => ui.remark(format_args!(
                "frontend qemu: native cannot record it: {why}"
            )),
        }
    }
    qemu::command(program, settings("qemu"))
}
