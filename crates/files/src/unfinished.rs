//! Names of unfinished outputs, and what is created under them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fstat, linkat, mkdirat,
    openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::place::{Place, changed, is_same, kind, present};

/// Longest part of a name that is used in the name of an unfinished output: names are limited to 255 bytes.
const KEPT_NAME: usize = 180;
/// Attempts to find a name that is not taken.
const ATTEMPTS: usize = 100;

/// Calls `create` with unpredictable names until one is not taken.
fn named<T>(
    name: &OsStr,
    create: impl Fn(&OsStr) -> Result<T, Errno>,
) -> io::Result<(OsString, T)> {
    let name = name.to_string_lossy();
    let kept: String = name
        .char_indices()
        .take_while(|(at, _)| *at < KEPT_NAME)
        .map(|(_, character)| character)
        .collect();
    for _ in 0..ATTEMPTS {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let random = u64::from_ne_bytes(random);
        let name = OsString::from(format!(".{kept}.partial-{random:016x}"));
        match create(&name) {
            Ok(created) => return Ok((name, created)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// A file without its final name, removed unless it gets it.
pub(crate) struct UnfinishedFile<'p> {
    place: &'p Place,
    name: OsString,
    pub file: File,
    is_named: bool,
}

impl<'p> UnfinishedFile<'p> {
    /// Creates a file next to `place`, with `mode` without the bits of the umask.
    pub fn create(place: &'p Place, mode: u32) -> io::Result<Self> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let (name, file) = named(&place.name, |name| openat(&place.folder, name, flags, mode))?;
        Ok(Self {
            place,
            name,
            file: file.into(),
            is_named: false,
        })
    }

    /// Gives it its final name, in place of what has it now.
    pub fn replace(mut self) -> io::Result<()> {
        let folder = &self.place.folder;
        renameat(folder, &self.name, folder, &self.place.name)?;
        self.is_named = true;
        Ok(())
    }

    /// Gives it its final name, which must be free.
    pub fn take_name(mut self) -> io::Result<()> {
        let (folder, name) = (&self.place.folder, &self.place.name);
        match renameat_with(folder, &self.name, folder, name, RenameFlags::NOREPLACE) {
            // The file system has no rename that refuses to replace. The first name is removed with `self`.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(folder, &self.name, folder, name, AtFlags::empty())?;
            }
            other => {
                other?;
                self.is_named = true;
            }
        }
        Ok(())
    }
}

impl Drop for UnfinishedFile<'_> {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = unlinkat(&self.place.folder, &self.name, AtFlags::empty());
        }
    }
}

/// A folder without its final name, removed with all its content unless it is kept.
pub(crate) struct UnfinishedFolder<'p> {
    place: &'p Place,
    pub name: OsString,
    pub folder: OwnedFd,
    /// The mode that it gets when it is complete; until then nobody else can enter it.
    pub mode: Mode,
    is_kept: bool,
}

impl<'p> UnfinishedFolder<'p> {
    /// Creates a folder next to `place`.
    pub fn create(place: &'p Place) -> io::Result<Self> {
        let (name, ()) = named(&place.name, |name| {
            mkdirat(&place.folder, name, Mode::from_raw_mode(0o777))
        })?;
        let folder = open_folder(&place.folder, &name)?;
        let about = fstat(&folder)?;
        // In a folder of others, it may have been exchanged or filled by now.
        let own = about.st_uid == rustix::process::geteuid().as_raw();
        if !own || fchmod(&folder, Mode::RWXU).is_err() || !names_in(&folder)?.is_empty() {
            return Err(changed());
        }
        Ok(Self {
            place,
            name,
            folder,
            mode: Mode::from_raw_mode(about.st_mode & 0o7777),
            is_kept: false,
        })
    }

    /// Leaves it where it is.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for UnfinishedFolder<'_> {
    fn drop(&mut self) {
        if !self.is_kept && remove_content(&self.folder).is_ok() {
            let _ = remove_emptied(self.place, &self.name, &self.folder);
        }
    }
}

/// Opens a folder to read and change it; a symbolic link is no folder.
pub(crate) fn open_folder(at: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// Names of the entries of a folder.
pub(crate) fn names_in(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// What an entry of a folder is; a symbolic link is not followed.
pub(crate) fn about(folder: &OwnedFd, name: &OsStr) -> io::Result<Stat> {
    Ok(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Removes an entry that is no folder.
pub(crate) fn remove_file(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    Ok(unlinkat(folder, name, AtFlags::empty())?)
}

/// Removes the empty folder `emptied`, if it still has the name.
pub(crate) fn remove_emptied(place: &Place, name: &OsStr, emptied: &OwnedFd) -> io::Result<()> {
    match present(&place.folder, name)? {
        Some(found) if is_same(&found, &fstat(emptied)?) => {
            Ok(unlinkat(&place.folder, name, AtFlags::REMOVEDIR)?)
        }
        _ => Err(Errno::NOENT.into()),
    }
}

fn remove_content(folder: &OwnedFd) -> io::Result<()> {
    for name in names_in(folder)? {
        if kind(&about(folder, &name)?) == FileType::Directory {
            remove_content(&open_folder(folder, &name)?)?;
            unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
        } else {
            remove_file(folder, &name)?;
        }
    }
    Ok(())
}
