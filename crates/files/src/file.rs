//! Writes one file, or to a stream in its place.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{OutputError, parent, stdout, unfinished};

/// Longest chain of symbolic links, as in the kernel.
const MAX_LINKS: usize = 40;

/// An output file that has been checked before it is written.
#[derive(Debug)]
pub struct FileOutput {
    /// As the user named it.
    path: PathBuf,
    destination: Destination,
}

#[derive(Debug)]
enum Destination {
    Stdout,
    /// A FIFO, a character device or an open descriptor: written to, never replaced.
    Stream(PathBuf),
    /// A regular file: the target of its name, and the present file.
    File {
        target: PathBuf,
        old: Option<Metadata>,
    },
}

/// The target of a name.
enum Target {
    Path(PathBuf),
    /// An open descriptor by its path in `/proc`; true if it is our own standard output.
    Descriptor(PathBuf, bool),
}

impl FileOutput {
    /// Checks that `path` may be written: `-` and `/dev/stdout` are standard output.
    ///
    /// # Errors
    /// [`OutputError::Exists`] for a regular file without `force`; [`OutputError::Kind`] for what is never
    /// written (folders, block devices, sockets); [`OutputError::Io`] if its folder does not exist.
    pub fn check(path: &Path, force: bool) -> Result<Self, OutputError> {
        let output = |destination| Self {
            path: path.to_owned(),
            destination,
        };
        let kind = |found| OutputError::Kind {
            path: path.to_owned(),
            found,
        };
        if path.as_os_str() == "-" {
            return Ok(output(Destination::Stdout));
        }
        let fail = |error| OutputError::io("write", path, error);
        let target = match follow(path).map_err(fail)? {
            Target::Descriptor(_, true) => return Ok(output(Destination::Stdout)),
            Target::Descriptor(descriptor, false) => {
                return Ok(output(Destination::Stream(descriptor)));
            }
            Target::Path(target) => target,
        };
        let old = match fs::symlink_metadata(&target) {
            Ok(about) => Some(about),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if let Some(about) = &old {
            let what = about.file_type();
            if what.is_fifo() || what.is_char_device() {
                return Ok(output(Destination::Stream(target)));
            }
            if let Some(found) = describe_unwritable(what) {
                return Err(kind(found));
            }
            if !force {
                return Err(OutputError::Exists {
                    path: path.to_owned(),
                });
            }
        } else if !fs::metadata(parent(&target)).map_err(fail)?.is_dir() {
            return Err(fail(io::ErrorKind::NotADirectory.into()));
        }
        Ok(output(Destination::File { target, old }))
    }

    /// As the user named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it goes to standard output, to which nothing else may be written then.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        matches!(self.destination, Destination::Stdout)
    }

    /// Writes the whole content. A regular file appears complete or not at all.
    ///
    /// # Errors
    /// [`OutputError::Io`], or [`OutputError::Exists`] if the file was created by another process since the check;
    /// nothing is left behind.
    pub fn write(&self, content: &[u8]) -> Result<(), OutputError> {
        let fail = |error| OutputError::io("write", &self.path, error);
        match &self.destination {
            Destination::Stdout => stdout::write(content)
                .map_err(|error| OutputError::io("write", Path::new("standard output"), error)),
            Destination::Stream(stream) => OpenOptions::new()
                .append(true)
                .open(stream)
                .and_then(|mut file| file.write_all(content))
                .map_err(fail),
            Destination::File { target, old } => self.replace(target, old.as_ref(), content),
        }
    }

    fn replace(
        &self,
        target: &Path,
        old: Option<&Metadata>,
        content: &[u8],
    ) -> Result<(), OutputError> {
        let fail = |error| OutputError::io("write", &self.path, error);
        let mut partial = tempfile::Builder::new()
            .prefix(&unfinished(target))
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(parent(target))
            .map_err(|error| fail(plain(error)))?;
        let file = partial.as_file_mut();
        file.write_all(content).map_err(fail)?;
        if let Some(old) = old {
            keep_owner_and_mode(file, old).map_err(fail)?;
        }
        file.sync_all().map_err(fail)?;
        let persisted = match old {
            Some(_) => partial.persist(target),
            None => partial.persist_noclobber(target),
        };
        persisted
            .map(|_| ())
            .map_err(|failed| match failed.error.kind() {
                io::ErrorKind::AlreadyExists => OutputError::Exists {
                    path: self.path.clone(),
                },
                _ => fail(failed.error),
            })
    }
}

/// The system's error alone: an error of `tempfile` would name the random file.
fn plain(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.source()) {
        Some(source) => match source.downcast_ref::<io::Error>() {
            Some(io) => io
                .raw_os_error()
                .map_or_else(|| io.kind().into(), io::Error::from_raw_os_error),
            None => error.kind().into(),
        },
        None => error,
    }
}

/// A description of what is neither a file nor a stream.
fn describe_unwritable(what: fs::FileType) -> Option<&'static str> {
    if what.is_dir() {
        Some("a folder")
    } else if what.is_block_device() {
        Some("a block device")
    } else if what.is_socket() {
        Some("a socket")
    } else {
        None
    }
}

/// Gives `file` the owner and mode of the file it replaces. Only root can change owners.
fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
        let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

/// Follows symbolic links to their end; a link in `/proc/PID/fd` leads to an open descriptor, whose
/// name may have been removed or reused.
fn follow(path: &Path) -> io::Result<Target> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        if let Ok(folder) = parent(&at).canonicalize()
            && folder.starts_with("/proc")
            && folder.ends_with("fd")
        {
            let own = Path::new("/proc").join(std::process::id().to_string());
            let stdout = at.file_name().is_some_and(|name| name == "1");
            return Ok(Target::Descriptor(
                at.clone(),
                stdout && folder.starts_with(own),
            ));
        }
        match fs::read_link(&at) {
            Ok(target) => at = parent(&at).join(target),
            Err(_) => return Ok(Target::Path(at)),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_is_written_and_replacing_one_needs_force() {
        let folder = folder();
        let path = folder.path().join("x.json");
        FileOutput::check(&path, false)
            .unwrap()
            .write(b"one")
            .unwrap();
        let refused = FileOutput::check(&path, false).unwrap_err();
        assert!(matches!(refused, OutputError::Exists { .. }), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        FileOutput::check(&path, true)
            .unwrap()
            .write(b"two")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(names(folder.path()), ["x.json"]);
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_replaced() {
        let folder = folder();
        let path = folder.path().join("x");
        let output = FileOutput::check(&path, false).unwrap();
        fs::write(&path, "another's").unwrap();
        let refused = output.write(b"ours").unwrap_err();
        assert!(matches!(refused, OutputError::Exists { .. }), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"another's");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_symbolic_link_stays_and_leads_to_the_new_content() {
        let folder = folder();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        symlink("real", &link).unwrap();
        FileOutput::check(&link, true)
            .unwrap()
            .write(b"new")
            .unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("real"));
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }

    #[test]
    fn only_files_are_replaced() {
        let folder = folder();
        let inside = folder.path().join("folder");
        fs::create_dir(&inside).unwrap();
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [inside, socket] {
            let refused = FileOutput::check(&path, true).unwrap_err();
            assert!(matches!(refused, OutputError::Kind { .. }), "{refused}");
        }
        assert_eq!(names(folder.path()), ["folder", "socket"]);
    }

    #[test]
    fn a_fifo_is_written_into_and_stays() {
        let folder = folder();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || fs::read(path).unwrap())
        };
        FileOutput::check(&path, true)
            .unwrap()
            .write(b"through")
            .unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_missing_folder_is_refused_before_anything_is_written() {
        let folder = folder();
        let refused = FileOutput::check(&folder.path().join("no/x"), false).unwrap_err();
        assert!(refused.to_string().contains("No such file"), "{refused}");
    }

    #[test]
    fn long_names_are_supported() {
        let folder = folder();
        let path = folder.path().join("ä".repeat(127));
        FileOutput::check(&path, false)
            .unwrap()
            .write(b"x")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn standard_output_has_two_names() {
        for name in ["-", "/dev/stdout"] {
            assert!(
                FileOutput::check(Path::new(name), false)
                    .unwrap()
                    .is_stdout()
            );
        }
    }
}
