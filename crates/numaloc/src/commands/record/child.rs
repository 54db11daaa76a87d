//! Runs the program: passes signals on, returns its exit status, shows progress on stderr.

use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use super::OWN_FAILURE;
use crate::error::CliError;
use crate::ui::{Ui, stderr};

/// Signals sent to the recorder that are meant for the program. The recorder survives them to write the profile.
const PASSED_ON: [i32; 11] = [
    SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
    SIGWINCH,
];

/// Interval between progress updates.
const TICK: Duration = Duration::from_millis(200);

/// Signals meant for the program, caught from before it starts.
pub struct Signals(SignalsInfo<WithOrigin>);

/// Signals passed on to the program while this lives.
pub struct Forwarding {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Installs the handlers.
    pub fn catch() -> std::io::Result<Self> {
        let wanted: Vec<i32> = PASSED_ON
            .into_iter()
            .filter(|&signal| !ignored(signal))
            .collect();
        // At a file-size limit a write must fail instead of killing us, so that we can report it and keep the trace.
        signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default())?;
        SignalsInfo::<WithOrigin>::new(wanted).map(Self)
    }

    /// Passes the signals on to process `pid`.
    pub fn forward_to(mut self, pid: u32) -> Forwarding {
        let handle = self.0.handle();
        let thread = std::thread::spawn(move || {
            for origin in self.0.forever() {
                if !from_terminal(&origin) {
                    forward(pid, origin.signal);
                }
            }
        });
        Forwarding {
            handle,
            thread: Some(thread),
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.handle.close();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs `command` to its end, signals passed on.
pub fn passing_signals(mut command: Command) -> std::io::Result<ExitStatus> {
    let signals = Signals::catch()?;
    let mut child = command.spawn()?;
    let forwarding = signals.forward_to(child.id());
    let status = child.wait();
    drop(forwarding);
    status
}

/// Runs `command` to its end; the status is the program's own, 128 + number for a signal.
pub fn run(mut command: Command, folder: &Path, ui: &Ui) -> Result<u8, CliError> {
    let emulator = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| {
        CliError::tool(format!("cannot run the emulator {emulator}: {error}")).status(OWN_FAILURE)
    };
    let signals = Signals::catch().map_err(failed)?;
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
    status.map_err(failed).map(own_status)
}

/// Exit status for how a program ended: its own, or 128 + number for a signal.
pub fn own_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => OWN_FAILURE,
    }
}

/// Whether a signal was ignored when we were started (`nohup`); it stays ignored, also for the program.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// Whether the terminal sends this signal: a key such as Ctrl-C signals the whole foreground group, including the
/// program.
fn from_terminal(origin: &Origin) -> bool {
    std::io::stdin().is_terminal()
        && matches!(origin.signal, SIGINT | SIGQUIT | SIGWINCH)
        && matches!(origin.cause, Cause::Kernel)
}

/// Sends a signal to the program; fails silently if it has just ended.
fn forward(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (
        rustix::process::Pid::from_raw(pid as i32),
        rustix::process::Signal::from_named_raw(signal),
    ) {
        let _ = rustix::process::kill_process(pid, signal);
    }
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
        "\r\x1b[Knumaloc: recording, {:.1} s, {:.1} M accesses, {threads} threads",
        began.elapsed().as_secs_f64(),
        accesses as f64 / 1e6
    ));
}
