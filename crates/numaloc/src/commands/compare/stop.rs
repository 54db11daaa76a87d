//! Ctrl-C and SIGTERM: end the running program, then let the caller clean up and show the results so far.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::CliError;

/// Handler of Ctrl-C and SIGTERM; see the module.
pub struct Stop {
    signal: Arc<AtomicI32>,
    /// Process id of the running program, 0 if there is none.
    child: Arc<AtomicI32>,
}

impl Stop {
    /// Installs the handler: these signals no longer end this process.
    pub fn new() -> Result<Self, CliError> {
        let signal = Arc::new(AtomicI32::new(0));
        let child = Arc::new(AtomicI32::new(0));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(CliError::tool)?;
        let (seen, target) = (signal.clone(), child.clone());
        std::thread::spawn(move || {
            for number in &mut signals {
                seen.store(number, Ordering::SeqCst);
                let pid = rustix::process::Pid::from_raw(target.load(Ordering::SeqCst));
                if let Some(pid) = pid {
                    // Ctrl-C on a terminal has already reached the program; a second signal does no harm.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
        });
        Ok(Self { signal, child })
    }

    /// Runs a command to its end.
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
    pub fn asked(&self) -> bool {
        self.signal.load(Ordering::SeqCst) != 0
    }

    /// Exit status for the signal.
    pub fn status(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::SeqCst);
        (signal != 0).then(|| 128 + signal as u8)
    }
}
