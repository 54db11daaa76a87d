//! Signals sent to a tool while its child runs: passed on to the child ([`Signals`]), or taken as the wish to end the
//! child and the tool ([`Stop`]).

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::{SignalOnly, WithOrigin};
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals sent to the tool that are meant for the program. The tool survives them and ends after the program.
const PASSED_ON: [i32; 11] = [
    SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
    SIGWINCH,
];

/// Signals meant for the program, caught from before it starts.
pub struct Signals(SignalsInfo<WithOrigin>);

/// Signals passed on to the program while this lives. Afterwards they are caught, but have no effect.
pub struct Forwarding {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system's error if a handler cannot be installed.
    pub fn catch() -> io::Result<Self> {
        let wanted: Vec<i32> = PASSED_ON
            .into_iter()
            .filter(|&signal| !ignored(signal))
            .collect();
        SignalsInfo::<WithOrigin>::new(wanted).map(Self)
    }

    /// Passes the signals on to process `pid`.
    #[must_use]
    pub fn forward_to(mut self, pid: u32) -> Forwarding {
        let handle = self.0.handle();
        let thread = std::thread::spawn(move || {
            for origin in self.0.forever() {
                if !from_terminal(&origin) {
                    send(pid, origin.signal);
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
///
/// # Errors
/// The system's error if it cannot be started or waited for.
pub fn passing_signals(mut command: Command) -> io::Result<ExitStatus> {
    let signals = Signals::catch()?;
    let mut child = command.spawn()?;
    let forwarding = signals.forward_to(child.id());
    let status = child.wait();
    drop(forwarding);
    status
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
    matches!(origin.signal, SIGINT | SIGQUIT | SIGWINCH) && matches!(origin.cause, Cause::Kernel)
}

/// Sends a signal to a process; without effect if it has just ended.
fn send(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid as i32), Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Asks a process to end (SIGTERM); without effect if it has just ended.
pub fn ask_to_end(pid: u32) {
    send(pid, SIGTERM);
}

/// Handler of the signals that ask a tool to end: Ctrl-C, SIGTERM and SIGHUP. While it lives they end the program that
/// [`Stop::run`] runs, and the tool is to clean up and end too.
pub struct Stop {
    signal: Arc<AtomicI32>,
    /// Process id of the running program, 0 if there is none.
    child: Arc<AtomicI32>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Stop {
    /// Installs the handlers: these signals no longer end this process.
    ///
    /// # Errors
    /// The system's error if a handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        let signal = Arc::new(AtomicI32::new(0));
        let child = Arc::new(AtomicI32::new(0));
        let mut signals = SignalsInfo::<SignalOnly>::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let (seen, target) = (signal.clone(), child.clone());
        let thread = std::thread::spawn(move || {
            for number in &mut signals {
                seen.store(number, Ordering::SeqCst);
                let pid = target.load(Ordering::SeqCst);
                if pid != 0 {
                    // Ctrl-C on a terminal has already reached the program; a second signal does no harm.
                    send(pid as u32, SIGTERM);
                }
            }
        });
        Ok(Self {
            signal,
            child,
            handle,
            thread: Some(thread),
        })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// The system's error; `Interrupted` if a signal came before the start.
    pub fn run(&self, command: &mut Command) -> io::Result<ExitStatus> {
        if self.asked() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut child = command.spawn()?;
        self.child.store(child.id() as i32, Ordering::SeqCst);
        if self.asked() {
            // The signal came before the program's id was known.
            child.kill()?;
        }
        let status = child.wait();
        self.child.store(0, Ordering::SeqCst);
        status
    }

    /// Whether a signal has come.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that has come last.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        let signal = self.signal.load(Ordering::SeqCst);
        (signal != 0).then_some(signal)
    }

    /// Exit status for the signal.
    #[must_use]
    pub fn status(&self) -> Option<u8> {
        self.signal().map(crate::status_of_signal)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.handle.close();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
