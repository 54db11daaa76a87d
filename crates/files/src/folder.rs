//! Writes a folder of files.
//!
//! A folder that is replaced may belong to another user, who can rename and link in it at any time: its entries are
//! examined, moved and removed in folders that are opened without following links and whose owner is checked.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    FileType, Mode, RenameFlags, Stat, fchmod, fchown, fstat, mkdirat, renameat, renameat_with,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::place::{Place, Target, changed, find, is_ours, is_same, kind, own_descriptor, present};
use crate::unfinished::{
    UnfinishedFolder, about, names_in, open_folder, remove_emptied, remove_file,
};
use crate::{OutputError, roles};

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
    /// Whether there was a folder when it was checked.
    replaces: bool,
    kind: FolderKind,
}

/// A folder that is to be replaced.
struct Old {
    folder: OwnedFd,
    about: Stat,
}

impl FolderOutput {
    /// Checks that the folder `path` may be written.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if it exists and `force` is not set; [`OutputError::Foreign`] for a folder
    /// that is neither empty nor of this kind; [`OutputError::Kind`] if it is no folder; [`OutputError::Link`] for a
    /// symbolic link that another user may have put there; [`OutputError::Input`] if the command reads a file that
    /// would be removed; [`OutputError::Io`] if its parent does not exist.
    pub fn check(path: &Path, force: bool, kind: FolderKind) -> Result<Self, OutputError> {
        let mut output = Self {
            path: path.to_owned(),
            replaces: false,
            kind,
        };
        let place = output.place()?;
        let present = place.present().map_err(|error| output.fail(error))?;
        if present.is_none() {
            if path.symlink_metadata().is_ok() {
                return Err(output.refuse("a symbolic link to nothing"));
            }
        } else if force {
            let old = output.open(&place)?;
            output
                .each_owned(&old.folder, Path::new(""), &mut |folder, name| {
                    roles::output(path, &about(folder, name)?).map_err(io::Error::other)
                })
                .map_err(|error| match error.downcast::<OutputError>() {
                    Ok(refused) => refused,
                    Err(error) => output.fail(error),
                })?;
            output.replaces = true;
        } else {
            return Err(OutputError::Exists {
                path: path.to_owned(),
            });
        }
        Ok(output)
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
        let place = self.place()?;
        let new = UnfinishedFolder::create(&place)
            .map_err(|error| OutputError::io("create", &self.path, error))?;
        if place.is_exposed {
            // Another user could give its path to another folder.
            fill(&own_descriptor(&new.folder))?;
        } else {
            fill(&place.path.join(&new.name))?;
        }
        self.name(&place, new)?;
        Ok(())
    }

    fn fail(&self, error: impl Into<io::Error>) -> OutputError {
        OutputError::io("write", &self.path, error.into())
    }

    fn refuse(&self, found: &'static str) -> OutputError {
        OutputError::Kind {
            path: self.path.clone(),
            found,
        }
    }

    /// Where it is now: folders on the way may have been moved since the check.
    fn place(&self) -> Result<Place, OutputError> {
        match find(&self.path)? {
            Target::Place(place) => Ok(place),
            Target::Descriptor(..) => Err(self.refuse("not a folder")),
        }
    }

    /// Opens the folder that is there now, if it may be replaced.
    fn open(&self, place: &Place) -> Result<Old, OutputError> {
        let fail = |error| self.fail(error);
        let folder = match open_folder(&place.folder, &place.name) {
            Ok(folder) => folder,
            Err(error) if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => {
                return Err(self.refuse("not a folder"));
            }
            Err(error) => return Err(fail(error)),
        };
        let mark = present(&folder, OsStr::new(self.kind.mark)).map_err(fail)?;
        let is_whole = mark.is_some_and(|mark| kind(&mark) == FileType::RegularFile);
        if !is_whole && !names_in(&folder).map_err(fail)?.is_empty() {
            return Err(OutputError::Foreign {
                path: self.path.clone(),
                expected: self.kind.name,
            });
        }
        let about = fstat(&folder).map_err(|error| fail(error.into()))?;
        Ok(Old { folder, about })
    }

    fn name(&self, place: &Place, new: UnfinishedFolder<'_>) -> Result<(), OutputError> {
        let present = place.present().map_err(|error| self.fail(error))?;
        if self.replaces && present.is_some() {
            return self.exchange(place, new);
        }
        fchmod(&new.folder, new.mode).map_err(|error| self.fail(error))?;
        rename_new(&place.folder, &new.name, &place.folder, &place.name).map_err(|error| {
            match error {
                Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => OutputError::Exists {
                    path: self.path.clone(),
                },
                _ => self.fail(error),
            }
        })?;
        let has_name = has_name(place, &place.name, &new.folder);
        new.keep();
        if !has_name.map_err(|error| self.fail(error))? {
            return Err(self.fail(changed()));
        }
        Ok(())
    }

    fn exchange(&self, place: &Place, new: UnfinishedFolder<'_>) -> Result<(), OutputError> {
        let fail = |error: io::Error| OutputError::io("replace", &self.path, error);
        // Opened again: it need not be the folder that was checked when the command began.
        let old = self.open(place)?;
        fchmod(&new.folder, Mode::from_raw_mode(old.about.st_mode & 0o7777))
            .map_err(|error| fail(error.into()))?;
        exchange(place, &new.name).map_err(fail)?;
        // The old folder now has the random name and may contain files of the user: it is never removed as a whole.
        let (name, to) = (&new.name, &new.folder);
        let is_done = has_name(place, name, &old.folder)
            .and_then(|is_old| Ok(is_old && has_name(place, &place.name, to)?));
        if !is_done.map_err(fail)? {
            exchange(place, name).map_err(fail)?;
            return Err(fail(changed()));
        }
        let moved = self
            .move_out(&old, &old.folder, to, Path::new(""))
            .and_then(|()| remove_emptied(place, name, &old.folder));
        give(to, &old.about);
        let kept = place.path.join(name);
        new.keep();
        moved.map_err(|error| OutputError::Kept {
            path: self.path.clone(),
            kept,
            source: error,
        })
    }

    /// Calls `each` for the files in `folder`, the opened folder `inside`, that numaloc wrote.
    fn each_owned(
        &self,
        folder: &OwnedFd,
        inside: &Path,
        each: &mut dyn FnMut(&OwnedFd, &OsStr) -> io::Result<()>,
    ) -> io::Result<()> {
        for name in names_in(folder)? {
            let path = inside.join(&name);
            if !(self.kind.owns)(&path) {
                continue;
            }
            if kind(&about(folder, &name)?) == FileType::Directory {
                self.each_owned(&open_folder(folder, &name)?, &path, each)?;
            } else {
                each(folder, &name)?;
            }
        }
        Ok(())
    }

    /// Empties `from`, the opened folder `inside` of the old folder: our files are deleted, all others are moved to
    /// the new folder.
    fn move_out(&self, old: &Old, from: &OwnedFd, to: &OwnedFd, inside: &Path) -> io::Result<()> {
        for name in names_in(from)? {
            let path = inside.join(&name);
            let entry = about(from, &name)?;
            if !(self.kind.owns)(&path) {
                let to = subfolder(to, inside, &old.about)?;
                rename_new(from, &name, &to, &name)?;
            } else if kind(&entry) == FileType::Directory {
                let folder = open_folder(from, &name)?;
                // Whoever owns the old folder can exchange the names of any two folders in it.
                if fstat(&folder)?.st_uid != old.about.st_uid {
                    return Err(io::Error::other(format!(
                        "{} belongs to another user",
                        path.display()
                    )));
                }
                self.move_out(old, &folder, to, &path)?;
                rustix::fs::unlinkat(from, &name, rustix::fs::AtFlags::REMOVEDIR)?;
            } else {
                remove_file(from, &name)?;
                roles::replaced(&entry);
            }
        }
        Ok(())
    }
}

/// Whether `name` is that of the opened folder.
fn has_name(place: &Place, name: &OsStr, folder: &OwnedFd) -> io::Result<bool> {
    let about = fstat(folder)?;
    let found = present(&place.folder, name)?;
    Ok(found.is_some_and(|found| is_same(&found, &about)))
}

/// Opens the folder `inside` of the opened folder `to` and creates what is missing of it.
fn subfolder(to: &OwnedFd, inside: &Path, old: &Stat) -> io::Result<OwnedFd> {
    let mut folder = to.try_clone()?;
    for name in inside {
        match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = open_folder(&folder, name)?;
        let about = fstat(&folder)?;
        if !is_ours(&about) && about.st_uid != old.st_uid {
            return Err(Errno::PERM.into());
        }
    }
    Ok(folder)
}

/// Gives a folder the owner of the one that it replaces. Only root can do that; for others it is theirs already.
fn give(folder: &OwnedFd, old: &Stat) {
    let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    let _ = fchown(folder, Some(uid), Some(gid));
}

/// Renames to a name that must be free.
fn rename_new(from: &OwnedFd, old: &OsStr, to: &OwnedFd, new: &OsStr) -> Result<(), Errno> {
    match renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // The file system has no rename that refuses to replace.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(to, new, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => renameat(from, old, to, new),
                Err(error) => Err(error),
                Ok(_) => Err(Errno::EXIST),
            }
        }
        other => other,
    }
}

/// Exchanges the names of the new folder and the old one.
fn exchange(place: &Place, new: &OsStr) -> io::Result<()> {
    let (folder, old) = (&place.folder, &place.name);
    match renameat_with(folder, new, folder, old, RenameFlags::EXCHANGE) {
        // The file system cannot exchange names, so for a moment there is no folder.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let mut aside = new.to_owned();
            aside.push(".old");
            rename_new(folder, old, folder, &aside)?;
            if let Err(error) = rename_new(folder, new, folder, old) {
                rename_new(folder, &aside, folder, old)?;
                return Err(error.into());
            }
            rename_new(folder, &aside, folder, new)?;
            Ok(())
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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
