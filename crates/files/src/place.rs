//! Finds the folder that an output lies in, and opens it.
//!
//! The components of a path are opened one after the other, none by way of a symbolic link, as
//! `openat2(RESOLVE_NO_SYMLINKS)` does on newer kernels. A link is read and followed here, unless another user could
//! have put it there: the kernel's `fs.protected_symlinks` protects sticky folders, and only if the link comes last.
//! What is done with the output afterwards is done in the opened folder, where no path can be redirected any more.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::OutputError;

/// Longest chain of symbolic links, as in the kernel.
const MAX_LINKS: usize = 40;
/// `PROC_SUPER_MAGIC` of `linux/magic.h`.
const PROC: u64 = 0x9fa0;

/// A name in an opened folder.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder, opened with `O_PATH`.
    pub folder: OwnedFd,
    /// The name in it, never that of a symbolic link that was there when it was looked up.
    pub name: OsString,
    /// Path of the folder without symbolic links, for messages and for programs that want a path.
    pub path: PathBuf,
    /// Whether another user can rename a folder on the way or an entry of the folder itself.
    pub is_exposed: bool,
}

/// The target of a path.
#[derive(Debug)]
pub(crate) enum Target {
    Place(Place),
    /// An open descriptor by its path in `/proc`; true if it is our own standard output.
    Descriptor(PathBuf, bool),
}

impl Place {
    /// What has the name now; a symbolic link is not followed.
    pub fn present(&self) -> io::Result<Option<Stat>> {
        present(&self.folder, &self.name)
    }
}

/// What has the name `name` in `folder`; a symbolic link is not followed.
pub(crate) fn present(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(about) => Ok(Some(about)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The type of what `about` describes.
pub(crate) fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

/// Whether both describe the same file.
pub(crate) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether only we and root can give it away or change it as its owner.
pub(crate) fn is_ours(about: &Stat) -> bool {
    about.st_uid == 0 || about.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether another user can create entries in this folder.
fn is_open_to_others(folder: &Stat) -> bool {
    !is_ours(folder) || folder.st_mode & 0o022 != 0
}

/// Whether another user can rename or remove entries of this folder that are not theirs.
fn is_changeable_by_others(folder: &Stat) -> bool {
    !is_ours(folder) || folder.st_mode & 0o022 != 0 && folder.st_mode & 0o1000 == 0
}

/// Whether another user may have put `entry` into `folder`.
pub(crate) fn may_be_planted(folder: &OwnedFd, entry: &Stat) -> io::Result<bool> {
    Ok(!is_ours(entry) && is_open_to_others(&fstat(folder)?))
}

/// What was checked is there no more.
pub(crate) fn changed() -> io::Error {
    io::Error::other("it was changed by another process")
}

/// Opens the folder of `path`; symbolic links of others are refused, all others are followed to their end.
///
/// # Errors
/// [`OutputError::Link`] for a link that another user may have put there, [`OutputError::Kind`] for a path without a
/// name (`/`), [`OutputError::Io`] if a folder on the way is missing.
pub(crate) fn find(path: &Path) -> Result<Target, OutputError> {
    Walk::along(path)
        .and_then(Walk::finish)
        .map_err(|stop| match stop {
            Stop::Io(error) => OutputError::io("write", path, error),
            Stop::NoName => OutputError::Kind {
                path: path.to_owned(),
                found: "a folder",
            },
            Stop::Link(link, owner) => OutputError::Link {
                path: path.to_owned(),
                link,
                owner,
            },
        })
}

/// Why a walk ended early.
enum Stop {
    Io(io::Error),
    NoName,
    Link(PathBuf, u32),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// A path of which a part is left to walk.
struct Walk {
    folder: OwnedFd,
    path: PathBuf,
    is_exposed: bool,
    /// Names and `..`.
    left: VecDeque<OsString>,
    links: usize,
}

impl Walk {
    fn along(path: &Path) -> Result<Self, Stop> {
        let start = if path.has_root() { "/" } else { "." };
        // A path that ends in `.` or `..` has a name only under another path.
        let path = match path.file_name() {
            Some(_) => path.to_owned(),
            None if path.as_os_str().is_empty() => return Err(Errno::NOENT.into()),
            None => path.canonicalize()?,
        };
        let mut walk = Self {
            folder: open_folder(CWD, OsStr::new(start))?,
            path: PathBuf::from(start),
            is_exposed: false,
            left: VecDeque::new(),
            links: 0,
        };
        walk.restart(&path)?;
        Ok(walk)
    }

    /// Puts a path, that of the user or of a link, before what is left.
    fn restart(&mut self, path: &Path) -> Result<(), Stop> {
        if path.has_root() {
            self.folder = open_folder(CWD, OsStr::new("/"))?;
            self.path = PathBuf::from("/");
        }
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            Component::ParentDir => Some(OsStr::new("..")),
            _ => None,
        });
        let names: Vec<_> = names.collect();
        for name in names.into_iter().rev() {
            self.left.push_front(name.to_owned());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Target, Stop> {
        loop {
            self.is_exposed |= is_changeable_by_others(&fstat(&self.folder)?);
            let Some(name) = self.left.pop_front() else {
                return Err(Stop::NoName);
            };
            let is_last = self.left.is_empty();
            if name == ".." {
                self.enter(&name)?;
                continue;
            }
            let is_proc = rustix::fs::fstatfs(&self.folder)?.f_type as u64 == PROC;
            if is_proc
                && is_last
                && let Some(descriptor) = self.descriptor(&name)
            {
                return Ok(descriptor);
            }
            let about = match statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => about,
                Err(Errno::NOENT) if is_last => return Ok(self.place(name)),
                Err(error) => return Err(error.into()),
            };
            match kind(&about) {
                FileType::Symlink => self.follow(&name, &about, is_proc && !is_last)?,
                _ if is_last => return Ok(self.place(name)),
                _ => self.enter(&name)?,
            }
        }
    }

    fn place(self, name: OsString) -> Target {
        Target::Place(Place {
            folder: self.folder,
            name,
            path: self.path,
            is_exposed: self.is_exposed,
        })
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Stop> {
        self.folder = open_folder(&self.folder, name)?;
        self.path.push(name);
        Ok(())
    }

    fn follow(&mut self, name: &OsStr, about: &Stat, is_magic: bool) -> Result<(), Stop> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let link = self.path.join(name);
        if may_be_planted(&self.folder, about)? {
            return Err(Stop::Link(link, about.st_uid));
        }
        if is_magic {
            // A link of `/proc` leads to a folder that may have no path.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.folder = openat(&self.folder, name, flags, Mode::empty())?;
            self.path = link;
            return Ok(());
        }
        let target = readlinkat(&self.folder, name, Vec::new())?;
        self.restart(Path::new(&OsString::from_vec(target.into_bytes())))
    }

    /// The descriptor that the entry `name` of a folder `/proc/PID/fd` stands for. The kernel's link has the name of
    /// its file, which may have been removed or reused.
    fn descriptor(&self, name: &OsStr) -> Option<Target> {
        let folder = std::fs::read_link(own_descriptor(&self.folder)).ok()?;
        let own = Path::new("/proc").join(std::process::id().to_string());
        folder.ends_with("fd").then(|| {
            let is_stdout = name == "1" && folder.starts_with(own);
            Target::Descriptor(folder.join(name), is_stdout)
        })
    }
}

fn open_folder(at: impl std::os::fd::AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// A path of an open descriptor, also for our children.
pub(crate) fn own_descriptor(file: &OwnedFd) -> PathBuf {
    let process = std::process::id();
    PathBuf::from(format!("/proc/{process}/fd/{}", file.as_raw_fd()))
}
