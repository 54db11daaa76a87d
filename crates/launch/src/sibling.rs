//! Files that belong to the running program: libraries, plugins, programs and headers of its installation.
//!
//! This is the one place that knows the layout of an installation. A file is searched in folders relative to the
//! program's own file, so an installation can be moved as a whole.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// No folder has the file.
#[derive(Debug, thiserror::Error)]
#[error("{name} is not in {}", shown(folders))]
pub struct SiblingError {
    /// The file's name.
    pub name: String,
    /// The folders that were searched.
    pub folders: Vec<PathBuf>,
}

fn shown(folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    folders.join(" or ")
}

impl SiblingError {
    /// What the user can do: `chosen` is the environment variable that names another folder or file.
    #[must_use]
    pub fn hint(&self, chosen: &str) -> String {
        format!(
            "install numaloc with `make install` or its package (the program alone has no plugins), or set {chosen}"
        )
    }
}

/// What a file of the installation is for, which determines its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A library, plugin or program that users do not start themselves.
    Library,
    /// A C header.
    Header,
}

impl Part {
    /// The folders relative to that of the program: one folder with everything, then `bin` of an installation, then the
    /// build tree (`target/PROFILE`, and `target/PROFILE/deps` of its tests).
    const fn folders(self) -> &'static [&'static str] {
        match self {
            Self::Library => &[".", "../lib/numaloc", ".."],
            Self::Header => &[
                "include",
                "../include/numaloc",
                "../../crates/ocr/include",
                "../../../crates/ocr/include",
            ],
        }
    }
}

/// The file of the running program, without symbolic links.
///
/// # Errors
/// The system's: it was removed, or `/proc` is not mounted.
pub fn own_file() -> io::Result<PathBuf> {
    std::env::current_exe()?.canonicalize()
}

/// The file `name` that belongs to the running program: in the folder `chosen`, or else in one of the folders for
/// its `part`. The result is absolute and has no symbolic links.
///
/// # Errors
/// [`SiblingError`] with the folders.
pub fn sibling(name: &str, part: Part, chosen: Option<OsString>) -> Result<PathBuf, SiblingError> {
    let folders = match chosen {
        Some(folder) => vec![folder.into()],
        None => {
            let own = own_file().ok();
            let next = own.as_deref().and_then(Path::parent);
            next.map(|folder| folders_of(folder, part))
                .unwrap_or_default()
        }
    };
    find_in(name, folders)
}

/// The folders for a program in `folder`, which has no symbolic links.
fn folders_of(folder: &Path, part: Part) -> Vec<PathBuf> {
    let relative = part.folders().iter();
    relative.map(|path| join(folder, Path::new(path))).collect()
}

/// `folder` followed by `relative`, without `.` and `..`.
fn join(folder: &Path, relative: &Path) -> PathBuf {
    let mut joined = folder.to_owned();
    for component in relative.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                joined.pop();
            }
            other => joined.push(other),
        }
    }
    joined
}

fn find_in(name: &str, folders: Vec<PathBuf>) -> Result<PathBuf, SiblingError> {
    let found = folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .and_then(|file| file.canonicalize().ok());
    found.ok_or_else(|| SiblingError {
        name: name.to_owned(),
        folders,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_next_to_the_program_and_where_it_is_installed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib/numaloc"));
        for folder in [&bin, &lib] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let search = || find_in("x.so", folders_of(&bin, Part::Library));
        let missing = search().unwrap_err();
        assert_eq!(missing.folders, [bin.clone(), lib.clone(), root.clone()]);
        for folder in [&root, &lib, &bin] {
            std::fs::write(folder.join("x.so"), "").unwrap();
            assert_eq!(search().unwrap(), folder.join("x.so"));
        }
    }

    #[test]
    fn a_header_is_found_in_an_installation_and_in_the_build_tree() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for (program, header) in [
            ("target/debug/deps", "crates/ocr/include"),
            ("target/debug", "crates/ocr/include"),
            ("usr/bin", "usr/include/numaloc"),
            ("unpacked", "unpacked/include"),
        ] {
            let header = root.join(header);
            std::fs::create_dir_all(&header).unwrap();
            std::fs::write(header.join("x.h"), "").unwrap();
            let folders = folders_of(&root.join(program), Part::Header);
            assert_eq!(find_in("x.h", folders).unwrap(), header.join("x.h"));
        }
    }

    #[test]
    fn a_chosen_folder_is_the_only_one_searched() {
        let root = tempfile::tempdir().unwrap();
        let error = sibling("x.so", Part::Library, Some(root.path().into())).unwrap_err();
        assert_eq!(error.folders, [root.path()]);
    }
}
