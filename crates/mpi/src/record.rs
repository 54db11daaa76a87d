//! Runs an MPI program under the tracer and merges what its ranks wrote.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::launcher::Launcher;
use crate::merge::{MergeError, Merged, Options, merge};
use crate::shims::{self, MpiLibrary};
use crate::under::{self, Under};

/// What to record.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The launcher's command line, e.g. `mpirun -n 16 ./app`.
    pub argv: Vec<OsString>,
    /// The MPI library; `None` finds out.
    pub library: Option<MpiLibrary>,
    /// A folder that does not exist yet, on a file system that every host sees: ranks write there.
    pub spool: PathBuf,
    /// First slice length in nanoseconds; `None`: 1 ms. Doubles in long runs.
    pub slice_ns: Option<u64>,
    /// Bounds of the profile.
    pub options: Options,
    /// How the ranks' memory accesses are traced; `None` for messages only.
    pub under: Option<Under>,
}

/// A recorded run.
#[derive(Debug)]
pub struct Recorded {
    /// The program's exit status as a shell reports it (128 + signal when killed).
    pub status: i32,
    /// Which library was traced.
    pub library: MpiLibrary,
    /// What the ranks counted, or why it could not be merged (the spool folder is kept then).
    pub merged: Result<Merged, MergeError>,
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No launcher we know and no MPI program on the command line.
    #[error(
        "cannot tell which MPI library {command:?} uses: no word of it is a program linked against Open MPI or MPICH"
    )]
    UnknownLibrary {
        /// The command line.
        command: String,
    },
    /// The spool folder.
    #[error("cannot prepare {path} for the ranks' files: {source}", path = path.display())]
    Spool {
        /// The folder.
        path: PathBuf,
        /// The kernel's words.
        source: std::io::Error,
    },
    /// The launcher does not start.
    #[error("cannot run {program}: {source}")]
    Launch {
        /// First word of the command line.
        program: String,
        /// The kernel's words.
        source: std::io::Error,
    },
}

impl RecordError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownLibrary { .. } => Some("say which: --mpi openmpi or --mpi mpich"),
            Self::Spool { .. } => {
                Some("choose an output on a file system that every host can write")
            }
            Self::Launch { .. } => None,
        }
    }

    /// Exit status as `env` has it: 127 not found, 126 not runnable, 125 our own failure.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Launch { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 127,
            Self::Launch { .. } => 126,
            _ => 125,
        }
    }
}

/// Runs the program to its end, merges, and removes the spool folder if that went well.
///
/// Interrupts (Ctrl-C) and terminations reach the launcher, which ends its ranks; what they wrote until
/// then is still merged.
///
/// # Errors
/// [`RecordError`] when the program was not run.
pub fn record(recording: &Recording) -> Result<Recorded, RecordError> {
    let argv = &recording.argv;
    let launcher = Launcher::of_command(argv);
    let library = recording
        .library
        .or_else(|| MpiLibrary::of_command(argv, launcher));
    let library = library.ok_or_else(|| RecordError::UnknownLibrary {
        command: shown(argv).join(" "),
    })?;
    let spool = |source| RecordError::Spool {
        path: recording.spool.clone(),
        source,
    };
    std::fs::create_dir_all(&recording.spool).map_err(spool)?;
    let folder = recording.spool.canonicalize().map_err(spool)?;
    let zero_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let mut environment = shims::install(library, &folder, zero_ns).map_err(spool)?;
    if let Some(slice_ns) = recording.slice_ns {
        environment.push(("NUMALOC_MPI_SLICE", slice_ns.to_string().into()));
    }
    if let Some(tracer) = &recording.under {
        let variable = under::rank_variable(launcher, library);
        under::install(tracer, &folder, variable, library, &mut environment).map_err(spool)?;
    }
    let told = shims::forwarding(argv, launcher, &environment);
    let status = run_to_the_end(&told, &environment);
    let status = match status {
        Ok(status) => status,
        Err(source) => {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(RecordError::Launch {
                program: shown(argv).swap_remove(0),
                source,
            });
        }
    };
    let files = shims::rank_files(&folder).map_err(spool)?;
    let merged = merge(&files, &shown(argv), recording.options);
    if merged.is_ok() || files.is_empty() {
        remove(&folder);
    }
    Ok(Recorded {
        status,
        library,
        merged,
    })
}

fn shown(argv: &[OsString]) -> Vec<String> {
    argv.iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Only what we put there goes; nothing happens if something else is inside.
fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".nlmpi") || (name.starts_with("numaloc-") && name.ends_with(".so")) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

/// Starts the program and waits; signals meant for it do not end us.
pub(crate) fn run_to_the_end(
    argv: &[OsString],
    environment: &[(&'static str, OsString)],
) -> std::io::Result<i32> {
    let noticed = Arc::new(AtomicBool::new(false));
    let mut handlers = Vec::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        // The terminal sends these to the launcher as well.
        handlers.push(signal_hook::flag::register(signal, Arc::clone(&noticed))?);
    }
    let child = Command::new(&argv[0])
        .args(&argv[1..])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        // The launcher is no rank, even if it is itself started by a batch system.
        .env_remove("SLURM_PROCID")
        .env_remove("PMI_RANK")
        .env_remove("PMIX_RANK")
        .env_remove("OMPI_COMM_WORLD_RANK")
        .spawn();
    let result = child.and_then(|mut child| child.wait());
    for handler in handlers {
        signal_hook::low_level::unregister(handler);
    }
    let status = result?;
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}
