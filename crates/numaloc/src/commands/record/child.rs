//! Runs the program: passes signals on, returns its exit status, shows progress on stderr.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use numaloc_launch::{Signals, exit_status};
use numaloc_model::number::{count, plural};
use signal_hook::consts::SIGXFSZ;

use super::program::Program;
use super::{CANNOT_RUN, OWN_FAILURE};
use crate::error::CliError;
use crate::ui::{Ui, stderr};

/// Interval between progress updates.
const TICK: Duration = Duration::from_millis(200);

/// Signals to pass on to the program, caught from before it starts. At a file-size limit a write must fail instead of
/// killing the recorder, so that it can report the failure and keep the trace.
pub fn catch_signals() -> std::io::Result<Signals> {
    signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default())?;
    Signals::catch()
}

/// Runs `command` to its end, signals passed on.
pub fn passing_signals(command: Command) -> std::io::Result<ExitStatus> {
    signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default())?;
    numaloc_launch::passing_signals(command)
}

/// Runs a program whose file gives it rights without recording it, and says so.
pub fn natively(program: &Program, rights: &str) -> Result<u8, CliError> {
    use std::os::unix::process::CommandExt as _;
    let name = program.name.to_string_lossy();
    stderr(&format!(
        "numaloc: {name} is {rights}: it runs natively, without a profile\n"
    ));
    let mut command = Command::new(&program.file);
    if let Some(name) = program.arguments.first() {
        command.arg0(name);
    }
    command.args(program.arguments.iter().skip(1));
    let status = passing_signals(command).map_err(|error| {
        CliError::tool(format!("cannot run {name}: {error}")).status(CANNOT_RUN)
    })?;
    Ok(exit_status(status))
}

/// Runs `command` to its end; the status is the program's own, 128 + number for a signal.
pub fn run(mut command: Command, folder: &Path, ui: &Ui) -> Result<u8, CliError> {
    let emulator = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| {
        CliError::tool(format!("cannot run the emulator {emulator}: {error}")).status(OWN_FAILURE)
    };
    let signals = catch_signals().map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    let forwarding = signals.forward_to(child.id());
    let began = Instant::now();
    let mut drawn = false;
    let status = loop {
        if !ui.progress() {
            break child.wait();
        }
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) => std::thread::sleep(TICK),
            Err(error) => break Err(error),
        }
        if began.elapsed() > 2 * TICK {
            draw(folder, began);
            drawn = true;
        }
    };
    if drawn {
        stderr("\r\x1b[K");
    }
    drop(forwarding);
    status.map_err(failed).map(exit_status)
}

fn draw(folder: &Path, began: Instant) {
    let (mut accesses, mut threads) = (0u64, 0u64);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "status")
            && let Ok(bytes) = std::fs::read(path)
            && bytes.len() == 16
        {
            let number =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            accesses += number(0);
            threads += number(8);
        }
    }
    stderr(&format!(
        "\r\x1b[Knumaloc: recording, {:.1} s, {} accesses, {}",
        began.elapsed().as_secs_f64(),
        count(accesses as f64),
        plural(threads as usize, "thread")
    ));
}
