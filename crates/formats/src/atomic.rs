//! Write beside the final name, then rename.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::FormatError;

/// A name beside `path` that no other writer uses.
fn beside(path: &Path, role: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{role}-{}", std::process::id()))
}

/// Writes a whole file so that it appears complete or not at all; an existing file is replaced.
///
/// # Errors
/// [`FormatError::Io`]; nothing is left behind.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), FormatError> {
    let partial = beside(path, "partial");
    let written = (|| {
        let mut file = fs::File::create(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        FormatError::io("write", path, error)
    })
}

/// Fills a new folder through `fill` and gives it its final name. An existing folder is replaced only
/// when `replaceable` says that it is one of ours.
///
/// # Errors
/// Whatever `fill` says, [`FormatError::Exists`] when something stands there and may not be replaced,
/// or [`FormatError::Io`]; nothing is left behind.
pub(crate) fn write_folder(
    path: &Path,
    replaceable: bool,
    fill: impl FnOnce(&Path) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let exists = path.symlink_metadata().is_ok();
    if exists && !replaceable {
        return Err(FormatError::Exists {
            path: path.to_owned(),
        });
    }
    let partial = beside(path, "partial");
    let _ = fs::remove_dir_all(&partial);
    let filled = fs::create_dir(&partial)
        .map_err(|error| FormatError::io("create", path, error))
        .and_then(|()| fill(&partial))
        .and_then(|()| {
            let old = beside(path, "old");
            if exists {
                fs::rename(path, &old).map_err(|error| FormatError::io("replace", path, error))?;
            }
            let renamed = fs::rename(&partial, path);
            if exists {
                // Put the old one back if the new one could not take its place.
                let _ = match renamed {
                    Ok(()) => fs::remove_dir_all(&old),
                    Err(_) => fs::rename(&old, path),
                };
            }
            renamed.map_err(|error| FormatError::io("write", path, error))
        });
    if filled.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    filled
}
