//! The access traces in a profile's folder: lists, checks and adds them.

use std::path::{Path, PathBuf};

use super::{META, checksums, meta};
use crate::access_trace::EXTENSION;
use crate::error::FormatError;

/// Name of the folder in a profile.
pub const FOLDER: &str = "accesses";

/// Whether the profile in a folder was recorded with access traces; they are not checked.
#[must_use]
pub fn are_in(profile: &Path) -> bool {
    profile.join(FOLDER).is_dir()
}

/// Bytes of the traces in a profile's folder, which are neither read nor checked; 0 if there are none.
#[must_use]
pub fn bytes_in(profile: &Path) -> u64 {
    let entries = std::fs::read_dir(profile.join(FOLDER))
        .into_iter()
        .flatten();
    let sizes = entries.filter_map(|entry| entry.and_then(|entry| entry.metadata()).ok());
    sizes.map(|file| file.len()).sum()
}

/// The traces in a profile's folder, ordered by process image; empty if none were recorded.
///
/// # Errors
/// [`FormatError`] if the folder cannot be read, or a trace does not match the profile's `meta.json`.
pub fn files(profile: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let folder = profile.join(FOLDER);
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FormatError::io("read", &folder, error)),
    };
    for entry in entries {
        let path = entry
            .map_err(|error| FormatError::io("read", &folder, error))?
            .path();
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        if path.extension().is_some_and(|e| e == EXTENSION)
            && let Some(number) = number
        {
            found.push((number, path));
        }
    }
    found.sort();
    for (_, path) in &found {
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            verify(profile, &format!("{FOLDER}/{name}"))?;
        }
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Whether numaloc writes a file of this name, relative to a profile's folder.
pub(super) fn owns(name: &Path) -> bool {
    match name.strip_prefix(FOLDER) {
        Ok(trace) if trace.as_os_str().is_empty() => true,
        Ok(trace) => {
            let number = trace
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            number.is_some() && trace.extension().is_some_and(|e| e == EXTENSION)
        }
        Err(_) => false,
    }
}

/// Links (or else copies) traces into a profile's folder under the numbers of their process images. Returns their names
/// there.
pub(super) fn put_into(
    profile: &Path,
    traces: &[(u64, PathBuf)],
) -> Result<Vec<String>, FormatError> {
    if traces.is_empty() {
        return Ok(Vec::new());
    }
    let folder = profile.join(FOLDER);
    std::fs::create_dir(&folder).map_err(|error| FormatError::io("create", &folder, error))?;
    let mut names = Vec::new();
    for (image, from) in traces {
        let name = format!("{image}.{EXTENSION}");
        let to = folder.join(&name);
        names.push(format!("{FOLDER}/{name}"));
        std::fs::hard_link(from, &to)
            .or_else(|_| std::fs::copy(from, &to).map(|_| ()))
            .map_err(|error| FormatError::io("write", &to, error))?;
    }
    Ok(names)
}

/// Checks the access trace `name` of a folder against the checksum in `meta.json`. Without `meta.json` (the
/// folder is no profile yet) or without checksums (an earlier release) nothing is checked.
fn verify(folder: &Path, name: &str) -> Result<(), FormatError> {
    let meta = folder.join(META);
    if meta.symlink_metadata().is_err() {
        return Ok(());
    }
    let meta = meta::read(&meta)?;
    checksums::verify(folder, name, meta.sums.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_a_profile_come_in_the_order_of_its_images() {
        let folder = tempfile::tempdir().unwrap();
        assert!(files(folder.path()).unwrap().is_empty());
        std::fs::create_dir(folder.path().join(FOLDER)).unwrap();
        for name in ["10.trace", "9.trace", "x.trace", "1.txt"] {
            std::fs::write(folder.path().join(FOLDER).join(name), []).unwrap();
        }
        let names: Vec<_> = files(folder.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["9.trace", "10.trace"]);
    }
}
