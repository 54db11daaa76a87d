//! The recording of a process: begins at the program's start and again in a forked child.

use std::collections::BTreeMap;

use numaloc_trace::settings::VARIABLE;
use numaloc_trace::{Config, Engine};

use crate::libc::objects;
use crate::openmp::tasks;
use crate::{current, heap, sites};

/// Name of the variable in which an MPI launcher passes the rank.
pub const RANK_VARIABLE: &str = "NUMALOC_RANK_VARIABLE";
/// The rank of this process, if a launcher has set the variable named by [`RANK_VARIABLE`].
fn rank() -> Option<u64> {
    let variable = std::env::var(RANK_VARIABLE).ok()?;
    std::env::var(variable).ok()?.parse().ok()
}

/// Starts the recording requested by the environment, once.
pub(crate) fn start() {
    if current::has_begun() {
        return;
    }
    let Some(settings) = std::env::var_os(VARIABLE) else {
        return;
    };
    let mut config = Config {
        frontend: "instrument".to_owned(),
        ..Config::default()
    };
    if let Err(error) = config.decode(&settings) {
        // The program runs on, unrecorded.
        eprintln!("numaloc: {error}");
        return;
    }
    if let Some(rank) = rank() {
        config.path = format!("r{rank}");
    }
    let program = std::env::current_exe().unwrap_or_default();
    // A program that cannot be recorded still runs.
    if let Ok(engine) = Engine::start(config, &program.to_string_lossy()) {
        current::adopt_engine(engine);
        objects::describe_process();
        sites::begin();
    }
}

/// Forgets what belongs to the parent in a forked child.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn forget_parent() {
    current::forget_tracer();
    // SAFETY: as the caller guarantees; the heap comes first, because the others use it.
    unsafe {
        heap::renew();
        tasks::DETACHED.renew(BTreeMap::new);
        sites::forget();
        objects::renew_files();
        current::forget_recording();
    }
}
