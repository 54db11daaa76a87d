//! `numaloc run`: runs a program under a plan, from start to outcome.

use numaloc_launch::{Signals, status_of_signal};
use numaloc_model::Plan;
use numaloc_model::outcome::Outcome;
use numaloc_model::plan::Flaw;
use numaloc_model::roles::RolesPlan;
use numaloc_sys::{affinity, weights};
use numaloc_topology::Identity;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use crate::controller::{ApplyOptions, Controller};
use crate::index::PlanIndex;
use crate::launch::{Waiting, fork_with, may_trace};
use crate::moves::Moves;
use crate::preload::Preloaded;
use crate::program;
use crate::ptrace::{self, Wait};
use crate::spread::Spread;
use crate::supervise::{End, Supervisor};
use crate::tally::Tally;

/// Whether pages are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageMode {
    /// If the machine has more than one node.
    #[default]
    Auto,
    /// Even on one node, where it has no effect (to test and to measure the cost).
    Always,
    /// Never: only threads are placed.
    Never,
}

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether pages are placed.
    pub pages: PageMode,
    /// Read back the node of every planned page.
    pub verify: bool,
    /// Overrule the program's own `sched_setaffinity`.
    pub enforce: bool,
    /// Apply a plan of another machine by its kernel numbers.
    pub force_machine: bool,
    /// Apply a plan that was made from a recording of another program.
    pub force_program: bool,
    /// Whether loops are dealt by node; `None`: as in the recording from which the plan was made.
    pub deal: Option<bool>,
}

/// Why the program could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The plan is for another machine.
    #[error(
        "the plan was made for {planned} [{planned_digest}], the machine is {found} [{found_digest}]"
    )]
    OtherMachine {
        /// The plan's machine.
        planned: String,
        /// Its fingerprint.
        planned_digest: String,
        /// This machine, summarised.
        found: String,
        /// Its fingerprint.
        found_digest: String,
    },
    /// The plan holds values that cannot be applied.
    #[error("cannot apply the plan: {0}")]
    Plan(Flaw),
    /// The program does not exist.
    #[error("cannot run {program}: no such program")]
    NotFound {
        /// As given.
        program: String,
    },
    /// The program cannot be executed.
    #[error("cannot run {program}: {why}")]
    NotExecutable {
        /// As given.
        program: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// An error before or while following the program.
    #[error("cannot follow {program}: {why}")]
    Follow {
        /// As given.
        program: String,
        /// The kernel's error.
        why: io::Error,
    },
}

impl LaunchError {
    /// `command` could not be followed.
    pub(crate) fn follow(command: &[OsString], why: io::Error) -> Self {
        let program = program_of(command);
        Self::Follow { program, why }
    }

    /// The kernel refused to execute `command` with `errno`.
    pub(crate) fn not_executed(command: &[OsString], errno: i32) -> Self {
        let program = program_of(command);
        match errno {
            libc::ENOENT => Self::NotFound { program },
            _ => Self::NotExecutable {
                program,
                why: io::Error::from_raw_os_error(errno),
            },
        }
    }
}

/// The program of a command, as given.
fn program_of(command: &[OsString]) -> String {
    command.first().map_or(String::new(), |program| {
        program.to_string_lossy().into_owned()
    })
}

impl LaunchError {
    /// The exit status by the convention of `env`: 127 not found, 126 not executable, 125 failure of numaloc.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }
}

/// Checks that `plan` was made for `machine`, unless `options` override that.
///
/// # Errors
/// [`LaunchError::OtherMachine`] otherwise.
pub fn check_machine(
    plan: &Plan,
    machine: &Identity,
    options: &Options,
) -> Result<(), LaunchError> {
    if options.force_machine || machine.fingerprint == plan.fingerprint {
        return Ok(());
    }
    Err(LaunchError::OtherMachine {
        planned: plan.machine.clone(),
        planned_digest: plan.fingerprint.clone(),
        found: machine.summary.clone(),
        found_digest: machine.fingerprint.clone(),
    })
}

/// Why `plan` says nothing about the program in `command`, unless `options` override that.
fn of_another_program(plan: &Plan, command: &[OsString], options: &Options) -> Option<String> {
    if options.force_program || program::is_in(&plan.provenance.command, command) {
        return None;
    }
    let planned: Vec<OsString> = plan.provenance.command.iter().map(Into::into).collect();
    let (planned, found) = (program::shown(&planned), program::shown(command));
    Some(format!(
        "the plan was made for {planned}, the program is {found} (--force-program applies it)"
    ))
}

/// Runs `command` under `plan` on `machine`, which must be this machine. Returns when the program and all
/// processes it started have ended.
///
/// # Errors
/// [`LaunchError`]: the program has not run, or was killed because it could not be followed.
pub fn run(
    plan: &Plan,
    machine: &Identity,
    command: &[OsString],
    options: &Options,
) -> Result<Outcome, LaunchError> {
    check_machine(plan, machine, options)?;
    plan.check().map_err(LaunchError::Plan)?;
    let other = of_another_program(plan, command, options);
    let whole = plan;
    // The program runs all the same, and the report counts what of the plan is not in place.
    let nothing = other.is_some().then(|| without_content(plan));
    let plan = nothing.as_ref().unwrap_or(whole);
    let follow = |why| LaunchError::follow(command, why);
    let pages = match options.pages {
        PageMode::Auto => machine.nodes > 1,
        PageMode::Always => true,
        PageMode::Never => false,
    };
    let (index, spread) = indexed(plan, pages);
    let places_memory = pages;
    let pages = pages && (index.has_pages() || plan.roles.has_memory());
    let allowed = affinity::get(0).map_err(follow)?;
    let apply_options = ApplyOptions {
        verify: options.verify,
        enforce: options.enforce,
    };
    let moves = Moves::of(plan, pages);
    let preloaded = Preloaded {
        marks: moves.any(),
        dealer: options.deal.unwrap_or(whole.provenance.is_dealt()) && other.is_none(),
    };
    let environment = preloaded.environment(command);
    let mut controller = Controller::new(index, apply_options, allowed)
        .with_moves(moves)
        .with_spread(spread)
        .with_roles(&plan.roles, places_memory);
    for note in preloaded.notes(&environment) {
        controller.tally().note(note);
    }
    if !pages && (plan.roles.has_memory() || !plan.pages.is_empty()) {
        let why = match options.pages {
            PageMode::Never => "as asked",
            _ => "this machine has one NUMA node",
        };
        controller.tally().note(format!(
            "pages are left where they are ({why}); threads only"
        ));
    }
    let started = Instant::now();
    let environment = environment.ok().flatten();
    let waiting = fork_with(command, environment.as_deref()).map_err(follow)?;
    let untraced = other.or_else(|| {
        let why = match set_user_id(command) {
            Some(why) => Some(why),
            None if filtered() && !may_trace() => {
                Some("the seccomp filter in force kills processes that call ptrace".to_owned())
            }
            None => ptrace::seize(waiting.pid)
                .err()
                .map(|error| no_trace(waiting.pid, &error)),
        };
        why.map(|why| format!("cannot follow the program: {why}"))
    });
    let (end, tally) = match untraced {
        None => {
            let supervisor = Supervisor::new(controller, pages, options.verify, &waiting);
            let (end, controller) = supervisor.run(&waiting).map_err(follow)?;
            (end, controller.into_tally())
        }
        Some(why) => run_untraced(plan, &waiting, controller, &why).map_err(follow)?,
    };
    if let Some(errno) = waiting.exec_failure() {
        return Err(LaunchError::not_executed(command, errno));
    }
    let status = match end {
        End::Exited(status) => status,
        End::Killed(signal) => status_of_signal(signal).into(),
    };
    Ok(tally.outcome(whole, pages, started.elapsed().as_secs_f64(), status))
}

/// The plan for lookups, and what of its pages the kernel distributes itself.
fn indexed(plan: &Plan, pages: bool) -> (PlanIndex, Spread) {
    if !pages {
        return (PlanIndex::threads_only(plan), Spread::default());
    }
    let mut index = PlanIndex::fine(plan, max_runs());
    let spread = Spread::of(plan, &index, weights::of_system());
    index.coarsen(|object| spread.rounds(object));
    (index, spread)
}

/// A plan that decides nothing.
fn without_content(plan: &Plan) -> Plan {
    Plan {
        threads: Vec::new(),
        objects: Vec::new(),
        pages: Vec::new(),
        schedule: Vec::new(),
        roles: RolesPlan::default(),
        ..plan.clone()
    }
}

/// Mappings the plan may add: the kernel's limit less the third that is reserved for the program itself.
fn max_runs() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .map_or(40_000, |limit| limit / 3 * 2)
}

/// Why the program must run without a tracer, if it is set-user-id: traced, it would run without its privileges.
fn set_user_id(command: &[OsString]) -> Option<String> {
    let program = numaloc_launch::find(command.first()?).ok()?;
    let file = std::fs::metadata(&program).ok()?;
    let me = std::fs::metadata("/proc/self").ok()?.uid();
    let raises = file.mode() & 0o6000 != 0 && me != 0;
    raises.then(|| {
        format!(
            "{} is set-user-id or set-group-id and would lose these rights under a tracer",
            program.display()
        )
    })
}

/// Whether a seccomp filter applies to this process.
fn filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Why ptrace was refused, as a message for the user.
fn no_trace(pid: i32, error: &io::Error) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line[name.len()..].trim().to_owned())
    };
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match field("TracerPid:").as_deref() {
        Some(tracer) if tracer != "0" => format!("process {tracer} already traces it"),
        _ if scope.trim() == "3" => {
            "kernel.yama.ptrace_scope is 3, which forbids ptrace".to_owned()
        }
        _ if field("Seccomp:").as_deref() == Some("2") => {
            format!("ptrace: {error} (a seccomp filter is in force, as in a container)")
        }
        _ => format!("ptrace: {error}"),
    }
}

/// Runs the program without ptrace: it is restricted to the plan's PUs as a set, and the kernel schedules its threads.
fn run_untraced(
    plan: &Plan,
    waiting: &Waiting,
    mut controller: Controller,
    why: &str,
) -> io::Result<(End, Tally)> {
    let mut pus: Vec<u32> = plan.threads.iter().map(|thread| thread.os_pu.0).collect();
    pus.retain(|pu| controller.allowed().contains(pu));
    pus.sort_unstable();
    pus.dedup();
    let bound = !pus.is_empty() && affinity::set(waiting.pid, &pus).is_ok();
    let what = if bound {
        "it runs on the plan's PUs as a set, its threads and pages are not placed individually"
    } else {
        "it runs as if there were no plan"
    };
    controller.tally().note(format!("{why}; {what}"));
    let _forwarding = Signals::catch()?.forward_to(waiting.pid as u32);
    waiting.release()?;
    loop {
        match ptrace::wait(waiting.pid)?.1 {
            Wait::Exited(status) => return Ok((End::Exited(status), controller.into_tally())),
            Wait::Killed(signal) => return Ok((End::Killed(signal), controller.into_tally())),
            _ => {}
        }
    }
}
