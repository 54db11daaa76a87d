//! `numaloc run --online` starts a program and follows it; `numaloc attach` follows one that runs.

use std::ffi::OsString;
use std::io;

use numaloc_launch::{Signals, Stop, status_of_signal};

use super::follow::{Follower, Following, LOOK, is_ours};
use super::keeper::Keeper;
use super::{Advisor, Report, threads};
use crate::agent::LIBRARY;
use crate::launch::fork_with;
use crate::preload;
use crate::ptrace::{self, Wait};
use crate::run::LaunchError;

/// Why a process cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is none, or it has ended.
    #[error("cannot attach to process {pid}: there is no such process")]
    NoProcess {
        /// As given.
        pid: i32,
    },
    /// It is another user's.
    #[error(
        "cannot attach to process {pid}: it belongs to another user, whose threads and memory are never moved"
    )]
    OtherUser {
        /// As given.
        pid: i32,
    },
    /// The system refused something.
    #[error("cannot follow process {pid}: {why}")]
    Follow {
        /// As given.
        pid: i32,
        /// The kernel's error.
        why: io::Error,
    },
}

/// Runs `command` and follows it, if there is a way (else the reason is in the report). Returns its exit status, or 128
/// and the number of the signal that killed it.
///
/// # Errors
/// [`LaunchError`]: the program has not run.
pub fn run_online(
    command: &[OsString],
    following: Result<Following, String>,
    advisor: &mut dyn Advisor,
) -> Result<(i32, Report), LaunchError> {
    let follow = |why| LaunchError::follow(command, why);
    // Forked first: this process has one thread yet.
    let keeper = Keeper::start().map_err(follow)?;
    let marks = following.as_ref().is_ok_and(|following| following.marks);
    let (environment, following) =
        match marks.then(|| preload::environment(command, &[LIBRARY], &[])) {
            None => (None, following),
            Some(Ok(environment)) => (Some(environment), following),
            Some(Err(why)) => (
                None,
                Err(format!("the program's marks cannot be counted: {why}")),
            ),
        };
    let waiting = fork_with(command, environment.as_deref()).map_err(follow)?;
    let _forwarding = Signals::catch()
        .map_err(follow)?
        .forward_to(waiting.pid as u32);
    waiting.release().map_err(follow)?;
    let (mut follower, mut report) = match following {
        Ok(of) => {
            let follower = Follower::new(waiting.pid, of, keeper);
            (Some(follower), Report::default())
        }
        Err(why) => {
            let note = format!("{why}; the program ran at the kernel's placement");
            let report = Report {
                notes: vec![note],
                ..Report::default()
            };
            (None, report)
        }
    };
    let end = loop {
        let ended = match follower.is_some() {
            true => ptrace::poll(waiting.pid).map_err(follow)?,
            false => Some(ptrace::wait(waiting.pid).map_err(follow)?.1),
        };
        match ended {
            Some(Wait::Exited(status)) => break status,
            Some(Wait::Killed(signal)) => break status_of_signal(signal).into(),
            _ => {}
        }
        if let Some(active) = &mut follower
            && let Err(why) = active.look(advisor)
        {
            // Its threads get their affinity back; it runs on.
            let active = follower.take();
            report = active.map_or(report, |active| active.end(advisor));
            report.notes.push(format!(
                "given up: {why}; the program ran on at the kernel's placement"
            ));
            continue;
        }
        std::thread::sleep(LOOK);
    };
    if let Some(errno) = waiting.exec_failure() {
        return Err(LaunchError::not_executed(command, errno));
    }
    let report = follower.map_or(report, |active| active.end(advisor));
    Ok((end, report))
}

/// Follows process `pid` until it ends or a signal (Ctrl-C) asks this process to end. Its threads then have their own
/// affinity again.
///
/// # Errors
/// [`AttachError`]: nothing was changed.
pub fn attach(
    pid: i32,
    following: Following,
    advisor: &mut dyn Advisor,
) -> Result<Report, AttachError> {
    let follow = |why| AttachError::Follow { pid, why };
    let begun = match threads::stat(pid) {
        Some(stat) if !stat.ended && threads::of(pid).is_ok() => stat.began,
        _ => return Err(AttachError::NoProcess { pid }),
    };
    if !is_ours(pid).map_err(follow)? {
        return Err(AttachError::OtherUser { pid });
    }
    let keeper = Keeper::start().map_err(follow)?;
    let stop = Stop::new().map_err(follow)?;
    let mut follower = Follower::new(pid, following, keeper);
    let lives = || threads::stat(pid).is_some_and(|stat| !stat.ended && stat.began == begun);
    while lives() && !stop.asked() {
        if let Err(why) = follower.look(advisor) {
            let mut report = follower.end(advisor);
            report.notes.push(format!(
                "given up: {why}; the program runs on at the kernel's placement"
            ));
            return Ok(report);
        }
        std::thread::sleep(LOOK);
    }
    let mut report = follower.end(advisor);
    let how = match lives() {
        true => "detached; the threads have their own affinity again",
        false => "the program has ended",
    };
    report.notes.push(how.to_owned());
    Ok(report)
}
