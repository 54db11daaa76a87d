//! The folder and the table that a recording works with.

use std::path::Path;

use numaloc_trace::cross_process::Board;

use super::OWN_FAILURE;
use crate::error::CliError;
use crate::ui::Ui;

/// A fresh folder for the journals, next to the output so that both are on one file system.
pub(super) fn work_folder(output: &Path) -> Result<tempfile::TempDir, CliError> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    parent
        .canonicalize()
        .and_then(|parent| {
            tempfile::Builder::new()
                .prefix(&format!(".{name}.recording-"))
                .tempdir_in(parent)
        })
        .map_err(|error| {
            CliError::tool(format!("cannot write in {}: {error}", parent.display()))
                .status(OWN_FAILURE)
        })
}

/// Creates the table through which the program's processes record memory that they share.
pub(super) fn cross_process_table(ui: &Ui) -> Option<Board> {
    Board::create()
        .map_err(|error| {
            ui.remark(format_args!(
                "cannot create the cross-process table, so each process counts shared memory by itself: {error}"
            ));
        })
        .ok()
}

/// The system's error if not even one page can be written in `folder`: disk full or quota.
pub(super) fn no_room(folder: &Path) -> Option<std::io::Error> {
    use std::io::Write;
    let written = tempfile::tempfile_in(folder).and_then(|mut file| {
        file.write_all(&[1; 4096])?;
        // Some file systems report a full disk only when data is flushed.
        file.sync_all()
    });
    written.err()
}

/// Whether the folder has a journal with data.
pub(super) fn journals(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "journal"))
            .any(|entry| entry.metadata().is_ok_and(|data| data.len() > 0))
    })
}
