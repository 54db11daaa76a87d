//! What its user sees of a defect in numaloc: one line and an exit status, as for other errors.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use crate::error::CliError;
use crate::ui;

/// Calls `command`, which may panic: one line is written and the result is `None`.
pub fn contained<T>(command: impl FnOnce() -> T) -> Option<T> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        ui::stderr(&shown(panic).text());
        // For those who look for the defect.
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            usual(panic);
        }
    }));
    catch_unwind(AssertUnwindSafe(command)).ok()
}

fn shown(panic: &PanicHookInfo<'_>) -> CliError {
    let place = panic.location().map(ToString::to_string);
    CliError::tool(format!(
        "a defect in numaloc, at {}: {}",
        place.unwrap_or_default(),
        panic.payload_as_str().unwrap_or_default()
    ))
    .hint(
        "a report of this line and the command to the authors (SECURITY.md if the input is secret)",
    )
}
