//! Runs an MPI program under the tracer and merges the ranks' files, at once or later.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use numaloc_launch::exit_status;
use rustix::process::{Pid, Signal, kill_process};

use crate::gather::{self, GatherError, Gathering, Needed};
use crate::launcher::Launcher;
use crate::merge::{MergeError, Merged, Merging, Options, merge_files};
use crate::passing::{Kept, passing};
use crate::rank_file::{self, RankFile};
use crate::shims::{self, MpiLibrary};
use crate::under::{self, Under};

/// What to record.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The launcher's command line, e.g. `mpirun -n 16 ./app`.
    pub argv: Vec<OsString>,
    /// The MPI library; `None` detects it.
    pub library: Option<MpiLibrary>,
    /// The folder to which ranks write. It must not exist yet, and its file system must be visible on every host.
    pub spool: PathBuf,
    /// Initial slice length in nanoseconds, `None`: 1 ms. Doubled in long runs.
    pub slice_ns: Option<u64>,
    /// Limits of the profile.
    pub options: Options,
    /// How the ranks' memory accesses are traced; `None` records only messages.
    pub under: Option<Under>,
    /// When an MPI program merges the rank files; `None`: never.
    pub merging: Option<Merging>,
    /// How files come from hosts that do not share the folder that `spool` is in, which is the recording's; `None`: all
    /// hosts share it.
    pub gathering: Option<Gathering>,
}

/// A recorded run.
#[derive(Debug)]
pub struct Recorded {
    /// The program's exit status as in a shell (128 + signal if killed).
    pub status: i32,
    /// The traced library.
    pub library: MpiLibrary,
    /// The merged counts of the ranks, or why merging failed. The files stay in the spool folder.
    pub merged: Result<Merged, MergeError>,
    /// Process ids of ranks on this host that outlived their launcher: their files may still grow.
    pub running: Vec<u32>,
}

/// Starts a launcher, forwards signals to it and waits for it.
pub type Runner<'a> = &'a dyn Fn(Command) -> std::io::Result<ExitStatus>;

/// File with the launcher's command line, kept with the rank files for a profile made from them later.
const COMMAND: &str = "command";
/// How long ranks may outlive their launcher before the profile is made without their last messages.
const SURVIVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a rank may take to end after a request.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The status that [`run_to_the_end`] returns for a killed launcher.
const KILLED: i32 = 128 + 9;

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Neither a known launcher nor an MPI program on the command line.
    #[error(
        "cannot determine which MPI library {command:?} uses: no word of it is a program linked against Open MPI or MPICH"
    )]
    UnknownLibrary {
        /// The command line.
        command: String,
    },
    /// A program that is linked against the interface of no particular library.
    #[error(
        "{program} is linked against MPI's standard binary interface (libmpi_abi), whose calls are not recorded yet"
    )]
    StandardInterface {
        /// The program.
        program: String,
    },
    /// The spool folder.
    #[error("cannot prepare {path} for the ranks' files: {source}", path = path.display())]
    Spool {
        /// The folder.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The command line keeps the tracer from the ranks.
    #[error(transparent)]
    Kept(#[from] Kept),
    /// Hosts that do not share the folder.
    #[error(transparent)]
    Hosts(#[from] GatherError),
    /// The launcher could not be started.
    #[error("cannot run {program}: {source}")]
    Launch {
        /// First word of the command line.
        program: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl RecordError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::StandardInterface { .. } => {
                Some("link it against Open MPI's or MPICH's own library")
            }
            Self::UnknownLibrary { .. } => Some("name it with --mpi openmpi or --mpi mpich"),
            Self::Spool { .. } => {
                Some("choose an output on a file system that every host can write")
            }
            Self::Hosts(error) => error.hint(),
            Self::Launch { .. } | Self::Kept(_) => None,
        }
    }

    /// The exit status by the convention of `env`: 127 not found, 126 not executable, 125 failure of numaloc.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Launch { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 127,
            Self::Launch { .. } => 126,
            _ => 125,
        }
    }
}

/// Runs the program to its end and merges the ranks' files. The spool folder is left in place: its files are the only
/// copy of the recording until the profile is written. `remark` reports what the user should know before the
/// program starts.
///
/// # Errors
/// [`RecordError`] if the program was not run.
pub fn record(
    recording: &Recording,
    run: Runner,
    remark: &dyn Fn(&str),
) -> Result<Recorded, RecordError> {
    let argv = &recording.argv;
    let launcher = Launcher::of_command(argv);
    let library = recording
        .library
        .or_else(|| MpiLibrary::of_command(argv, launcher));
    let library = library.ok_or_else(|| RecordError::UnknownLibrary {
        command: shown(argv).join(" "),
    })?;
    if let Some(program) = shims::standard_interface(argv) {
        return Err(RecordError::StandardInterface { program });
    }
    if let Some(words) = shims::foreign(argv, launcher) {
        remark(&words);
    }
    let spool = |source| RecordError::Spool {
        path: recording.spool.clone(),
        source,
    };
    std::fs::create_dir_all(&recording.spool).map_err(spool)?;
    let folder = recording.spool.canonicalize().map_err(spool)?;
    let words = argv.join(OsStr::from_bytes(b"\0"));
    std::fs::write(folder.join(COMMAND), words.as_bytes()).map_err(spool)?;
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
    let passed = passing(argv, launcher, &environment, |name| std::env::var_os(name))?;
    let shared = folder.parent().unwrap_or(&folder);
    if let Some(gathering) = &recording.gathering {
        let emulated = recording
            .under
            .as_ref()
            .is_some_and(|under| under.emulator.is_some());
        gather::prepare(gathering, argv, shared, &needed(library, &folder, emulated))?;
    }
    let forwarded = shims::forwarding(&passed, launcher, &environment);
    let status =
        run_to_the_end(&forwarded, &environment, run).map_err(|source| RecordError::Launch {
            program: shown(argv).swap_remove(0),
            source,
        })?;
    let gathered = recording.gathering.as_ref().map_or(Ok(()), |gathering| {
        gather::gather(gathering, argv, library, shared)
    });
    let files = shims::rank_files(&folder).map_err(spool)?;
    let mut running = surviving_ranks(&files, SURVIVAL_TIMEOUT);
    // Without an emulator a rank's MPI library notices that the launcher is gone. An emulated rank may miss it and
    // would run forever, with no process left to end it.
    let emulated = recording
        .under
        .as_ref()
        .is_some_and(|under| under.emulator.is_some());
    if emulated && status == KILLED {
        running = end_ranks(running, &folder, END_TIMEOUT);
    }
    // Processes on other hosts would not see the files.
    let merging = recording
        .merging
        .as_ref()
        .filter(|_| recording.gathering.is_none());
    let merged = gathered.map_err(MergeError::from).and_then(|()| {
        merge_files(
            &files,
            &folder,
            argv,
            Some(library),
            recording.options,
            merging,
        )
    });
    Ok(Recorded {
        status,
        library,
        merged,
        running,
    })
}

/// The libraries that ranks of every host load from `folder`.
fn needed(library: MpiLibrary, folder: &Path, emulated: bool) -> Vec<Needed> {
    let within = folder.file_name().unwrap_or_default().to_string_lossy();
    let under = emulated.then_some(shims::UNDER);
    let tracer = (&*library.shim_name(), library.shim());
    std::iter::once(tracer)
        .chain(under)
        .map(|(name, content)| Needed {
            name: format!("{within}/{name}"),
            content,
        })
        .collect()
}

/// Merges the ranks' files of an earlier recording in `folder`, the spool of [`record`]. Files that are still on other
/// hosts are gathered first.
///
/// # Errors
/// [`MergeError`]; an unreadable folder is treated as empty.
pub fn salvage(
    folder: &Path,
    options: Options,
    merging: Option<&Merging>,
    gathering: Option<&Gathering>,
) -> Result<Merged, MergeError> {
    let words = std::fs::read(folder.join(COMMAND)).unwrap_or_default();
    let argv: Vec<OsString> = words
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    // The library whose ranks were traced is the one whose preload library is in the folder.
    let mut libraries = [MpiLibrary::OpenMpi, MpiLibrary::Mpich].into_iter();
    let library = libraries.find(|library| folder.join(library.shim_name()).is_file());
    let shared = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let shared = shared.parent().unwrap_or(&shared);
    if let (Some(gathering), Some(library)) = (gathering, library)
        && gather::is_pending(shared)
    {
        gather::gather(gathering, &argv, library, shared)?;
    }
    let merging = merging.filter(|_| !gather::is_done(shared));
    let files = shims::rank_files(folder).unwrap_or_default();
    let mut merged = merge_files(&files, folder, &argv, library, options, merging)?;
    let running = surviving_ranks(&files, Duration::ZERO);
    if !running.is_empty() {
        merged.profile.set_complete(false);
        let note = format!("{} ranks were still running", running.len());
        merged.profile.add_notes([note]);
    }
    Ok(merged)
}

/// Ranks of these files that still run on this host after waiting for at most `patience`. Ranks of a killed launcher
/// usually end by themselves within a moment.
fn surviving_ranks(files: &[PathBuf], patience: Duration) -> Vec<u32> {
    let here = rank_file::host_name();
    let folder = files.first().and_then(|file| file.parent());
    let left = files
        .iter()
        .filter_map(|file| RankFile::open(file).ok())
        .map(|file| file.header().clone())
        .filter(|header| header.host == here)
        .map(|header| header.pid)
        .collect();
    folder.map_or_else(Vec::new, |folder| wait_for_end(left, folder, patience))
}

/// Those of these ranks that still run after `patience`.
fn wait_for_end(mut ranks: Vec<u32>, folder: &Path, patience: Duration) -> Vec<u32> {
    let began = Instant::now();
    loop {
        ranks.retain(|&pid| traced_into(pid, folder));
        if ranks.is_empty() || began.elapsed() >= patience {
            return ranks;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends orphaned ranks: requests it, then kills them. Returns those that still run.
fn end_ranks(mut ranks: Vec<u32>, folder: &Path, patience: Duration) -> Vec<u32> {
    for signal in [Signal::TERM, Signal::KILL] {
        for pid in ranks.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
            // An error means that it has ended meanwhile.
            let _ = kill_process(pid, signal);
        }
        ranks = wait_for_end(ranks, folder, patience);
    }
    ranks
}

/// Whether this process runs and writes into `folder`; its id alone may belong to another program by now.
fn traced_into(pid: u32, folder: &Path) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    let living = state.is_some_and(|state| !matches!(state, b'Z' | b'X'));
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    living
        && environment.split(|&byte| byte == 0).any(|variable| {
            variable
                .strip_prefix(b"NUMALOC_MPI_DIR=")
                .is_some_and(|named| named == folder.as_os_str().as_bytes())
        })
}

fn shown(argv: &[OsString]) -> Vec<String> {
    argv.iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Starts the program through `run` and returns its status as in a shell.
pub(crate) fn run_to_the_end(
    argv: &[OsString],
    environment: &[(&'static str, OsString)],
    run: Runner,
) -> std::io::Result<i32> {
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        // The launcher is no rank, even if it is itself started by a batch system.
        .env_remove("SLURM_PROCID")
        .env_remove("PMI_RANK")
        .env_remove("PMIX_RANK")
        .env_remove("OMPI_COMM_WORLD_RANK");
    let status = run(command)?;
    Ok(exit_status(status).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_rank_that_ignores_the_request_to_end_is_killed_and_other_processes_are_no_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let process = |into: &Path| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' TERM; exec sleep 1000"]);
            command.env("NUMALOC_MPI_DIR", into).spawn().unwrap()
        };
        let (mut rank, mut other) = (process(folder.path()), process(Path::new("/elsewhere")));
        let began = Instant::now();
        // The kernel renames a process before it shows its new environment.
        let ignores = |pid: u32| {
            let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            read("comm") == b"sleep\n" && !read("environ").is_empty()
        };
        while !(ignores(rank.id()) && ignores(other.id())) {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        let pids = vec![rank.id(), other.id()];
        let there = wait_for_end(pids, folder.path(), Duration::ZERO);
        assert_eq!(there, [rank.id()]);
        let short = Duration::from_millis(200);
        let lives = wait_for_end(there, folder.path(), short);
        assert!(end_ranks(lives, folder.path(), short).is_empty());
        assert_eq!(rank.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
