//! The file that a name runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where programs are looked for if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a name runs nothing. The texts say what is wrong with the program, which the caller names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No folder of `PATH` has a file of that name.
    #[error("no such program on PATH")]
    NotOnPath {
        /// The name.
        name: OsString,
    },
    /// The file's metadata cannot be read.
    #[error("{source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a folder, a device or the like.
    #[error("it is not a file")]
    NotAFile {
        /// What was found.
        file: PathBuf,
    },
    /// The file may not be executed by anybody.
    #[error("it is not executable")]
    NotExecutable {
        /// The file.
        file: PathBuf,
    },
}

impl FindError {
    /// What could not be run: the file, or the name that no folder has.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        match self {
            Self::NotOnPath { name } => name,
            Self::Unreadable { file, .. }
            | Self::NotAFile { file }
            | Self::NotExecutable { file } => file.as_os_str(),
        }
    }

    /// Whether there is no such file, rather than one that cannot be run: a shell ends with 127 then, else with 126.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NotOnPath { .. } => true,
            Self::Unreadable { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

/// The file that running `name` executes: `name` itself if it has a slash, else the first executable file of that name
/// on `PATH`.
///
/// # Errors
/// [`FindError`]; where `PATH` has files of that name, but none that can be executed, the first one's.
pub fn find(name: &OsStr) -> Result<PathBuf, FindError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    find_on(name, &path)
}

fn find_on(name: &OsStr, path: &OsStr) -> Result<PathBuf, FindError> {
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name));
    }
    let mut refused = None;
    let folders = std::env::split_paths(path).filter(|_| !name.is_empty());
    for candidate in folders
        .map(|folder| folder.join(name))
        .filter(|file| file.is_file())
    {
        match check(&candidate) {
            Ok(file) => return Ok(file),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| FindError::NotOnPath {
        name: name.to_owned(),
    }))
}

fn check(file: &Path) -> Result<PathBuf, FindError> {
    let of = file.to_owned();
    match std::fs::metadata(file) {
        Err(source) => Err(FindError::Unreadable { file: of, source }),
        Ok(data) if !data.is_file() => Err(FindError::NotAFile { file: of }),
        Ok(data) if data.permissions().mode() & 0o111 == 0 => {
            Err(FindError::NotExecutable { file: of })
        }
        Ok(_) => Ok(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_executable_on_the_path_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let place = |part: &str, mode: u32| {
            let part = folder.path().join(part);
            std::fs::create_dir(&part).unwrap();
            let file = part.join("tool");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            part
        };
        let (plain, first, second) = (
            place("plain", 0o644),
            place("first", 0o755),
            place("second", 0o755),
        );
        let path = |folders: &[&Path]| std::env::join_paths(folders).unwrap();
        let name = OsStr::new("tool");
        let found = find_on(name, &path(&[folder.path(), &plain, &first, &second]));
        assert_eq!(found.unwrap(), first.join("tool"));
        let refused = find_on(name, &path(&[&plain])).unwrap_err();
        assert!(matches!(refused, FindError::NotExecutable { .. }) && !refused.is_missing());
        let missing = find_on(name, &path(&[folder.path()])).unwrap_err();
        assert!(matches!(missing, FindError::NotOnPath { .. }) && missing.is_missing());
        assert!(find_on(OsStr::new(""), &path(&[&first])).is_err());
        // A name with a slash is a path, whatever PATH says.
        let direct = find_on(second.join("tool").as_os_str(), &path(&[&first]));
        assert_eq!(direct.unwrap(), second.join("tool"));
        let folder_itself = find_on(first.as_os_str(), OsStr::new("")).unwrap_err();
        assert!(matches!(folder_itself, FindError::NotAFile { .. }) && !folder_itself.is_missing());
        assert!(
            find_on(OsStr::new("./no/such"), OsStr::new(""))
                .unwrap_err()
                .is_missing()
        );
    }
}
