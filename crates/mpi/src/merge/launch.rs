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

use super::shares;
use super::times::{EVENTS, Times};
use super::{MergeError, Merged, Options, merge};
use crate::launcher::{Launcher, host_options};
use crate::peers::{Node, node_program};
use crate::shims::MpiLibrary;

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
    let mut merged = without_times(files, folder, argv, library, options, merging, &command)?;
    merged.times = Times::of(files, merged.profile.threads(), EVENTS)?;
    Ok(merged)
}

/// The merged messages.
fn without_times(
    files: &[PathBuf],
    folder: &Path,
    argv: &[OsString],
    library: Option<MpiLibrary>,
    options: Options,
    merging: Option<&Merging>,
    command: &[String],
) -> Result<Merged, MergeError> {
    let launcher = Launcher::of_command(argv);
    let (Some(merging), Some(library)) = (merging, library) else {
        return merge(files, command, options);
    };
    if files.len() <= merging.above || launcher == Launcher::None {
        return merge(files, command, options);
    }
    let folder = &folder.canonicalize()?;
    run_processes(folder, argv, launcher, library, options, merging)?;
    shares::result(folder, command, options)
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
        std::fs::write(&node, node_program(library))?;
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
    node.finish().map_err(MergeError::from)?;
    Ok(())
}
