//! The sampled frontend: the program runs natively, the machine's PMU samples its accesses.

use std::path::Path;
use std::process::{Command, ExitStatus};

use numaloc_model::Profile;
use numaloc_perf::events::{self, MemoryEvent};
use numaloc_perf::{Origin, PerfError, Session};

use super::child::catch_signals;
use super::program::Program;
use super::{Args, CANNOT_RUN, OWN_FAILURE};
use crate::error::CliError;

/// The memory events of this machine.
///
/// # Errors
/// Says what is missing and what to use instead.
pub fn events() -> Result<Vec<MemoryEvent>, CliError> {
    events::discover(Path::new(events::SYSFS)).map_err(failure)
}

/// Runs the program while sampling `events`; returns its status and the profile or the reason why there is none.
pub fn record(
    program: &Program,
    events: &[MemoryEvent],
    args: &Args,
) -> Result<(u8, Result<Profile, CliError>), CliError> {
    let mut command = Command::new(&program.file);
    command.args(program.arguments.iter().skip(1));
    if let Some(name) = program.arguments.first() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
    }
    if args.wait_policy == "passive" && std::env::var_os("OMP_WAIT_POLICY").is_none() {
        command.env("OMP_WAIT_POLICY", "passive");
    }
    // Faults are rare enough to sample all; one left out could be the first of its page.
    let faults = events.iter().all(|event| event.faults);
    let period = if faults { 1 } else { args.period };
    let options = args.sampling();
    let signals = catch_signals().map_err(|error| {
        CliError::tool(format!("cannot catch signals: {error}")).status(OWN_FAILURE)
    })?;
    let session = Session::start(command, events, period, &options).map_err(failure)?;
    let forwarding = signals.forward_to(session.pid());
    let ended = session.finish(Origin {
        command: args
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        complete: true,
        notes: Vec::new(),
        name: program.file.display().to_string(),
        window: None,
    });
    drop(forwarding);
    let (status, profile) = ended.map_err(failure)?;
    let profile = profile
        .map_err(failure)
        .map(|profile| cut_short(profile, status));
    Ok((numaloc_launch::exit_status(status), profile))
}

impl Args {
    /// Granularity of a profile of samples.
    pub(super) fn sampling(&self) -> numaloc_perf::Options {
        numaloc_perf::Options {
            page_size: self.page_size,
            line_size: self.line_size,
            slice_ns: self.slice.unwrap_or(10) * 1_000_000,
            max_slices: u32::try_from(self.slices).unwrap_or(u32::MAX),
            ..numaloc_perf::Options::default()
        }
    }
}

/// Marks the profile as complete unless a signal ended the program.
fn cut_short(mut profile: Profile, status: ExitStatus) -> Profile {
    profile.set_complete(status.code().is_some());
    profile
}

fn failure(error: PerfError) -> CliError {
    let status = match error {
        PerfError::Spawn { .. } => CANNOT_RUN,
        _ => OWN_FAILURE,
    };
    CliError::from(error).status(status)
}
