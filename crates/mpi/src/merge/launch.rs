//! Starts the MPI program that merges rank files, and the part of it that runs in each of its processes.
//!
//! The program's processes are a small C program (`shims/mpi/merge_node.c`), which starts `numaloc` and carries its
//! messages. It is written into the folder of the rank files, which all hosts see.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numaloc_launch::exit_status;

use super::shares::{self, Peers};
use super::{MergeError, Merged, Options, merge};
use crate::launcher::{Launcher, host_options};
use crate::shims::MpiLibrary;

const OPEN_MPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-merge-openmpi"));
const MPICH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-merge-mpich"));

/// When rank files are merged by an MPI program, and by which.
#[derive(Clone, Debug)]
pub struct Merging {
    /// Largest number of rank files that this process merges by itself.
    pub above: usize,
    /// Number of processes of the MPI program.
    pub processes: u32,
    /// What each process runs: a program and its first arguments, under the same path on all hosts. It gets the
    /// folder and the limits as further arguments and calls [`run_share`].
    pub program: Vec<OsString>,
}

/// The launcher's output during a merge, in the folder of the rank files.
const LOG: &str = "merge.log";

/// Merges `files`, which are in `folder`: by an MPI program if there are many and `argv` begins with a launcher.
///
/// # Errors
/// Those of [`merge`], and [`MergeError::Processes`] if the MPI program did not end well. The files stay, so the merge
/// can be repeated.
pub(crate) fn merge_files(
    files: &[PathBuf],
    folder: &Path,
    argv: &[OsString],
    library: Option<MpiLibrary>,
    options: Options,
    merging: Option<&Merging>,
) -> Result<Merged, MergeError> {
    let command: Vec<String> = argv
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let launcher = Launcher::of_command(argv);
    let (Some(merging), Some(library)) = (merging, library) else {
        return merge(files, &command, options);
    };
    if files.len() <= merging.above || launcher == Launcher::None {
        return merge(files, &command, options);
    }
    let folder = &folder.canonicalize()?;
    run_processes(folder, argv, launcher, library, options, merging)?;
    shares::result(folder, &command, options)
}

/// Runs the MPI program to its end.
fn run_processes(
    folder: &Path,
    argv: &[OsString],
    launcher: Launcher,
    library: MpiLibrary,
    options: Options,
    merging: &Merging,
) -> Result<(), MergeError> {
    let failed = |why: String| MergeError::Processes {
        processes: merging.processes,
        why,
    };
    let node = folder.join(format!("numaloc-merge-{}", library.name()));
    let log = folder.join(LOG);
    let prepared = || -> std::io::Result<File> {
        shares::clear(folder)?;
        std::fs::write(
            &node,
            match library {
                MpiLibrary::OpenMpi => OPEN_MPI,
                MpiLibrary::Mpich => MPICH,
            },
        )?;
        std::fs::set_permissions(&node, PermissionsExt::from_mode(0o755))?;
        File::create(&log)
    };
    let output = prepared().map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let mut command = Command::new(&argv[0]);
    command
        .args(host_options(argv, launcher))
        .args(["-n", &merging.processes.to_string()])
        .arg(&node)
        .args(&merging.program)
        .arg(folder)
        .args([options.slices.to_string(), options.rows.to_string()])
        // Processes that wait leave their PU to others, so there may be more processes than PUs.
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = command.status().map_err(|error| {
        let launcher = argv[0].to_string_lossy();
        failed(format!("cannot run {launcher}: {error}"))
    })?;
    if status.success() {
        // What was written for the merge; the rank files stay until their profile is written.
        let _ = std::fs::remove_file(&node);
        let _ = std::fs::remove_file(&log);
        return Ok(());
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let reason = said
        .lines()
        .find_map(|line| line.strip_prefix("numaloc merge: "));
    let reason = reason.map_or_else(String::new, |reason| format!("{reason}; "));
    Err(failed(format!(
        "{reason}{} ended with status {}, its messages are in {}",
        argv[0].to_string_lossy(),
        exit_status(status),
        log.display()
    )))
}

/// Why a process of the merge could not do its part.
#[derive(Debug, thiserror::Error)]
#[error("numaloc merge: {0}")]
pub struct ShareError(#[from] MergeError);

/// Does the part of a merge that falls to this process, whose standard input and output are connected to
/// `merge_node.c`.
///
/// # Errors
/// [`ShareError`] if there is no result.
pub fn run_share(
    folder: &Path,
    options: Options,
    input: impl Read,
    output: impl Write,
) -> Result<(), ShareError> {
    let mut node = Node::connect(input, output).map_err(MergeError::from)?;
    shares::share(&mut node, folder, options)?;
    node.request(FINISH, 0, 0).map_err(MergeError::from)?;
    Ok(())
}

const SEND: u32 = 1;
const RECEIVE: u32 = 2;
const FINISH: u32 = 3;

/// The connection to the process that carries messages; its protocol is in `merge_node.c`.
struct Node<R, W> {
    input: R,
    output: W,
    rank: u32,
    size: u32,
}

impl<R: Read, W: Write> Node<R, W> {
    fn connect(mut input: R, output: W) -> std::io::Result<Self> {
        let mut place = [0; 8];
        input.read_exact(&mut place)?;
        let [rank, size] = [&place[..4], &place[4..]]
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        Ok(Self {
            input,
            output,
            rank,
            size,
        })
    }

    fn request(&mut self, request: u32, peer: u32, length: u64) -> std::io::Result<()> {
        let mut frame = [0; 16];
        frame[..4].copy_from_slice(&request.to_le_bytes());
        frame[4..8].copy_from_slice(&peer.to_le_bytes());
        frame[8..].copy_from_slice(&length.to_le_bytes());
        self.output.write_all(&frame)?;
        self.output.flush()
    }
}

impl<R: Read, W: Write> Peers for Node<R, W> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.request(SEND, to, bytes.len() as u64)?;
        self.output.write_all(bytes)?;
        self.output.flush()
    }

    fn receive(&mut self, from: u32) -> std::io::Result<Vec<u8>> {
        self.request(RECEIVE, from, 0)?;
        let mut length = [0; 8];
        self.input.read_exact(&mut length)?;
        let mut bytes = Vec::new();
        let length = u64::from_le_bytes(length);
        let read = self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        if read as u64 == length {
            Ok(bytes)
        } else {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }
}
