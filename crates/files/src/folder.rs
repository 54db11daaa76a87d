//! Writes a folder of files.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{OutputError, parent, unfinished};

/// A kind of folder that numaloc writes.
#[derive(Clone, Copy, Debug)]
pub struct FolderKind {
    /// Name for users: `numaloc profile`.
    pub name: &'static str,
    /// A file that every complete folder contains.
    pub mark: &'static str,
    /// Whether numaloc writes a file of this name, relative to the folder; also true for folders in it.
    pub owns: fn(&Path) -> bool,
}

/// An output folder that has been checked before it is written.
#[derive(Debug)]
pub struct FolderOutput {
    /// As the user named it.
    path: PathBuf,
    /// The target of the name.
    target: PathBuf,
    old: Option<Metadata>,
    kind: FolderKind,
}

impl FolderOutput {
    /// Checks that the folder `path` may be written.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if it exists and `force` is not set; [`OutputError::Foreign`] for a folder
    /// that is neither empty nor of this kind; [`OutputError::Kind`] if it is no folder;
    /// [`OutputError::Io`] if its parent does not exist.
    pub fn check(path: &Path, force: bool, kind: FolderKind) -> Result<Self, OutputError> {
        let fail = |error| OutputError::io("write", path, error);
        let (target, old) = match fs::metadata(path) {
            Ok(about) => (path.canonicalize().map_err(fail)?, Some(about)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.symlink_metadata().is_ok() {
                    return Err(OutputError::Kind {
                        path: path.to_owned(),
                        found: "a symbolic link to nothing",
                    });
                }
                (path.to_owned(), None)
            }
            Err(error) => return Err(fail(error)),
        };
        if let Some(about) = &old {
            if !force {
                return Err(OutputError::Exists {
                    path: path.to_owned(),
                });
            }
            if !about.is_dir() {
                return Err(OutputError::Kind {
                    path: path.to_owned(),
                    found: "not a folder",
                });
            }
            let empty = fs::read_dir(&target).map_err(fail)?.next().is_none();
            let whole = fs::symlink_metadata(target.join(kind.mark)).is_ok_and(|at| at.is_file());
            if !empty && !whole {
                return Err(OutputError::Foreign {
                    path: path.to_owned(),
                    expected: kind.name,
                });
            }
        } else if !fs::metadata(parent(&target)).map_err(fail)?.is_dir() {
            return Err(fail(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self {
            path: path.to_owned(),
            target,
            old,
            kind,
        })
    }

    /// As the user named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `fill` to write the files into a new folder, which then replaces the old one. Files that numaloc wrote
    /// into the old folder are removed, all others are moved into the new one.
    ///
    /// # Errors
    /// Those of `fill`, or an [`OutputError`]; the old folder is then unchanged and nothing is left
    /// behind, except after [`OutputError::Kept`].
    pub fn fill<E: From<OutputError>>(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let partial = tempfile::Builder::new()
            .prefix(&unfinished(&self.target))
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(parent(&self.target))
            .map_err(|error| OutputError::io("create", &self.path, error))?;
        fill(partial.path())?;
        match &self.old {
            None => self.name_new(partial)?,
            Some(old) => self.exchange(partial, old)?,
        }
        Ok(())
    }

    fn name_new(&self, partial: tempfile::TempDir) -> Result<(), OutputError> {
        match renameat_with(
            CWD,
            partial.path(),
            CWD,
            &self.target,
            RenameFlags::NOREPLACE,
        ) {
            // The file system has no rename that refuses to replace; a plain one replaces at most an empty folder.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::rename(partial.path(), &self.target)
            }
            other => other.map_err(Into::into),
        }
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                OutputError::Exists {
                    path: self.path.clone(),
                }
            }
            _ => OutputError::io("write", &self.path, error),
        })?;
        let _ = partial.keep();
        Ok(())
    }

    fn exchange(&self, partial: tempfile::TempDir, old: &Metadata) -> Result<(), OutputError> {
        let fail = |error| OutputError::io("replace", &self.path, error);
        let new = partial.path();
        let _ = std::os::unix::fs::chown(new, Some(old.uid()), Some(old.gid()));
        fs::set_permissions(new, Permissions::from_mode(old.mode() & 0o7777)).map_err(fail)?;
        match renameat_with(CWD, new, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // The file system cannot exchange names, so for a moment there is no folder.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                self.exchange_in_steps(new).map_err(fail)?;
            }
            Err(error) => return Err(fail(error.into())),
        }
        // The old folder now has the random name and may contain files of the user: it is never removed as a whole.
        let old = partial.keep();
        self.move_out(&old, Path::new(""))
            .map_err(|error| OutputError::Kept {
                path: self.path.clone(),
                kept: old,
                source: error,
            })
    }

    fn exchange_in_steps(&self, new: &Path) -> io::Result<()> {
        let mut aside = new.as_os_str().to_owned();
        aside.push(".old");
        let aside = PathBuf::from(aside);
        fs::rename(&self.target, &aside)?;
        if let Err(error) = fs::rename(new, &self.target) {
            fs::rename(&aside, &self.target)?;
            return Err(error);
        }
        fs::rename(&aside, new)
    }

    /// Empties `old/inside` and removes it: our files are deleted, all others are moved to the new folder.
    fn move_out(&self, old: &Path, inside: &Path) -> io::Result<()> {
        let folder = old.join(inside);
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = inside.join(entry.file_name());
            let is_folder = entry.file_type()?.is_dir();
            if !(self.kind.owns)(&name) {
                let to = self.target.join(&name);
                if let Some(folder) = to.parent() {
                    fs::create_dir_all(folder)?;
                }
                fs::rename(entry.path(), to)?;
            } else if is_folder {
                self.move_out(old, &name)?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        fs::remove_dir(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: FolderKind = FolderKind {
        name: "numaloc test",
        mark: "meta",
        owns: |name| {
            ["meta", "table", "traces"].map(Path::new).contains(&name)
                || name.starts_with("traces") && name.extension().is_some_and(|e| e == "trace")
        },
    };

    fn write(path: &Path, force: bool, text: &str) -> Result<(), OutputError> {
        FolderOutput::check(path, force, KIND)?.fill(|folder| {
            fs::write(folder.join("table"), text).unwrap();
            fs::write(folder.join("meta"), text).unwrap();
            Ok(())
        })
    }

    #[test]
    fn force_removes_our_files_and_keeps_the_users() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        write(&path, false, "one").unwrap();
        let refused = write(&path, false, "two").unwrap_err();
        assert!(matches!(refused, OutputError::Exists { .. }), "{refused}");
        fs::create_dir(path.join("traces")).unwrap();
        fs::create_dir(path.join("mine")).unwrap();
        for name in ["notes.txt", "mine/deep", "traces/1.trace", "traces/mine"] {
            fs::write(path.join(name), name).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        write(&path, true, "two").unwrap();
        for name in ["notes.txt", "mine/deep", "traces/mine"] {
            assert_eq!(fs::read_to_string(path.join(name)).unwrap(), name);
        }
        assert_eq!(fs::read_to_string(path.join("table")).unwrap(), "two");
        assert!(!path.join("traces/1.trace").exists());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_foreign_folder_is_refused_and_an_empty_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("thesis.tex"), "all of it").unwrap();
        let refused = write(&path, true, "x").unwrap_err();
        assert!(matches!(refused, OutputError::Foreign { .. }), "{refused}");
        fs::remove_file(path.join("thesis.tex")).unwrap();
        write(&path, true, "x").unwrap();
    }

    #[test]
    fn a_link_to_a_folder_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        write(&real, false, "one").unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        write(&link, true, "two").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("real"));
        assert_eq!(fs::read_to_string(real.join("table")).unwrap(), "two");
    }

    #[test]
    fn a_failed_fill_leaves_the_old_folder_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        write(&path, false, "one").unwrap();
        let output = FolderOutput::check(&path, true, KIND).unwrap();
        let failed = output.fill(|_| Err(OutputError::Exists { path: path.clone() }));
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(path.join("table")).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
