//! Hosts that share no folder: one is prepared on each before the run, and what the ranks wrote there is brought to the
//! recorder's host after it.
//!
//! Both steps are programs that the launcher of the run starts on its hosts, one process on each. The processes are
//! `numaloc` under the same path everywhere; the second step is an MPI program ([`crate::peers`]), whose messages carry
//! the files. Which hosts share a folder is found out, not configured: of the processes that see the same folder, the
//! first to create a file there works for it, and the folder in which the recorder left its mark receives.
//!
//! A file is deleted where it was written after the receiver has it on disk with the right checksum. So an
//! interrupted gathering loses nothing and is repeated by [`crate::record::salvage`].

mod exchange;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numaloc_launch::exit_status;

use crate::launcher::{Launcher, one_on_each_host};
use crate::peers::{Node, node_program};
use crate::rank_file;
use crate::shims::MpiLibrary;

/// How the processes on the hosts are started.
#[derive(Clone, Debug)]
pub struct Gathering {
    /// A program and its first arguments, under the same path on all hosts. It passes its further arguments to
    /// [`serve`].
    pub program: Vec<OsString>,
}

/// Why folders were not prepared or files not gathered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// The command line begins with no launcher.
    #[error(
        "cannot reach the hosts of the run: {program} is not an MPI launcher that numaloc knows"
    )]
    NoLauncher {
        /// First word of the command line.
        program: String,
    },
    /// A folder was not prepared.
    #[error("cannot prepare {folder} on the hosts of the run: {why}", folder = folder.display())]
    Prepare {
        /// The folder.
        folder: PathBuf,
        /// What happened.
        why: String,
    },
    /// Files are still on the hosts where they were written.
    #[error("cannot gather the files in {folder} from the hosts of the run: {why}", folder = folder.display())]
    Gather {
        /// The folder.
        folder: PathBuf,
        /// What happened.
        why: String,
    },
}

impl GatherError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoLauncher { .. } => {
                Some("start the program with mpirun, mpiexec or srun after the --")
            }
            Self::Prepare { .. } | Self::Gather { .. } => {
                Some("numaloc must be the same, under the same path, on every host of the run")
            }
        }
    }
}

/// A file of ours that every host needs; its content is in every `numaloc`.
pub(crate) struct Needed {
    /// Below the folder.
    pub name: String,
    pub content: &'static [u8],
}

/// First words of [`serve`].
const PREPARE: &str = "prepare";
const CARRY: &str = "carry";
const GATHER: &str = "gather";
/// How a process begins the line that says why it failed.
const PREFIX: &str = "numaloc gather: ";

/// Creates `folder` with the files `needed` on every host of `argv`'s run, and marks the one of this host as the
/// receiver.
pub(crate) fn prepare(
    gathering: &Gathering,
    argv: &[OsString],
    folder: &Path,
    needed: &[Needed],
) -> Result<(), GatherError> {
    let failed = |why: String| GatherError::Prepare {
        folder: folder.to_owned(),
        why,
    };
    exchange::mark(folder).map_err(|error| failed(error.to_string()))?;
    let mut words = vec![OsString::from(PREPARE), folder.into()];
    words.extend(needed.iter().map(|file| {
        let crc = crc32fast::hash(file.content);
        format!("{crc}:{}", file.name).into()
    }));
    on_each_host(gathering, argv, &words, &failed)
}

/// Brings the files that ranks wrote into `folder` on other hosts to this host's.
pub(crate) fn gather(
    gathering: &Gathering,
    argv: &[OsString],
    library: MpiLibrary,
    folder: &Path,
) -> Result<(), GatherError> {
    let failed = |why: String| GatherError::Gather {
        folder: folder.to_owned(),
        why,
    };
    let words = [CARRY.into(), library.name().into(), folder.into()];
    on_each_host(gathering, argv, &words, &failed)?;
    exchange::unmark(folder).map_err(|error| failed(error.to_string()))
}

/// Whether files of `folder` have still to be gathered.
pub(crate) fn is_pending(folder: &Path) -> bool {
    exchange::is_marked(folder)
}

/// Whether files of `folder` came from hosts that do not see it.
pub(crate) fn is_done(folder: &Path) -> bool {
    exchange::is_done(folder)
}

/// Runs the program with `words` on each host, to its end.
fn on_each_host(
    gathering: &Gathering,
    argv: &[OsString],
    words: &[OsString],
    failed: &dyn Fn(String) -> GatherError,
) -> Result<(), GatherError> {
    let launcher = Launcher::of_command(argv);
    let shown = argv
        .first()
        .map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    if launcher == Launcher::None {
        return Err(GatherError::NoLauncher { program: shown });
    }
    let output = Command::new(&argv[0])
        .args(one_on_each_host(argv, launcher))
        .args(&gathering.program)
        .args(words)
        // A second program on the same hosts, whatever else runs there.
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("cannot run {shown}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [&output.stderr[..], &output.stdout[..]].concat();
    let said = String::from_utf8_lossy(&said);
    let ours = said.lines().find_map(|line| line.strip_prefix(PREFIX));
    let reason = ours.or_else(|| {
        said.lines()
            .find(|line| line.bytes().any(|b| b.is_ascii_alphanumeric()))
    });
    let status = exit_status(output.status);
    Err(failed(format!(
        "{shown} ended with status {status}: {}",
        reason.unwrap_or("it printed nothing").trim()
    )))
}

/// Does the part of a step that falls to this process. `words`: what the program was given after its first
/// arguments. Standard input and output are connected to `merge_node.c` in the second step.
///
/// # Errors
/// One line that says why it failed, and on which host.
pub fn serve(words: &[OsString], program: &[OsString]) -> Result<(), String> {
    let host = rank_file::host_name();
    let failed = |why: &dyn std::fmt::Display| format!("{PREFIX}host {host}: {why}");
    match words {
        [step, folder, files @ ..] if step == PREPARE => {
            here(Path::new(folder), files).map_err(|error| failed(&error))
        }
        [step, library, folder] if step == CARRY => {
            let error = carried(library, folder, program);
            Err(failed(&error))
        }
        [step, folder] if step == GATHER => {
            let output = std::io::BufWriter::new(std::io::stdout().lock());
            Node::connect(std::io::stdin().lock(), output)
                .and_then(|mut node| {
                    exchange::gather(&mut node, Path::new(folder), &host)?;
                    node.finish()
                })
                .map_err(|error| failed(&error))
        }
        _ => Err(failed(
            &"it is run by record --gather and run --gather only",
        )),
    }
}

/// Prepares the folder on this host.
fn here(folder: &Path, files: &[OsString]) -> std::io::Result<()> {
    let mut needed = Vec::new();
    for file in files {
        let known = file.to_str().and_then(|file| file.split_once(':'));
        let known = known.and_then(|(crc, name)| {
            let content = crate::shims::content_of(Path::new(name).file_name()?)?;
            (crc.parse() == Ok(crc32fast::hash(content))).then(|| Needed {
                name: name.to_owned(),
                content,
            })
        });
        needed.push(known.ok_or_else(|| {
            std::io::Error::other("the numaloc here is of another version than the recorder's")
        })?);
    }
    exchange::fill(
        folder,
        &needed
            .iter()
            .map(|f| (&*f.name, f.content))
            .collect::<Vec<_>>(),
    )
}

/// Replaces this process by the C program, which starts `program` again; returns only if that fails. The C program is
/// executed from memory, because no folder of this host is known to be writable.
fn carried(library: &OsStr, folder: &OsStr, program: &[OsString]) -> std::io::Error {
    let libraries = [MpiLibrary::OpenMpi, MpiLibrary::Mpich];
    let Some(library) = libraries.into_iter().find(|known| library == known.name()) else {
        return std::io::Error::other("the MPI library is unknown");
    };
    let name = format!("numaloc-node-{}", library.name());
    let file = rustix::fs::memfd_create(&*name, rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = match file {
        Ok(file) => std::fs::File::from(file),
        Err(error) => return error.into(),
    };
    if let Err(error) = file.write_all(node_program(library)) {
        return error;
    }
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    Command::new(format!("/proc/self/fd/{descriptor}"))
        .arg0(name)
        .args(program)
        .arg(GATHER)
        .arg(folder)
        .exec()
}
