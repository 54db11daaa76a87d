//! Writes one file, or to a stream in its place.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};

use crate::place::{Place, Target, changed, find, is_same, kind, may_be_planted};
use crate::unfinished::UnfinishedFile;
use crate::{OutputError, roles, stdout};

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
    /// An open descriptor, by its path in `/proc`.
    Descriptor(PathBuf),
    /// A FIFO or a character device: written to, never replaced.
    Stream(Stat),
    /// A regular file, present or not.
    File(Option<Stat>),
}

impl FileOutput {
    /// Checks that `path` may be written: `-` and `/dev/stdout` are standard output.
    ///
    /// # Errors
    /// [`OutputError::Exists`] for a regular file without `force`; [`OutputError::Kind`] for what is never
    /// written (folders, block devices, sockets); [`OutputError::Link`] for a symbolic link that another user may have
    /// put there; [`OutputError::Input`] for a file that the command reads; [`OutputError::Io`] if its folder does not
    /// exist.
    pub fn check(path: &Path, force: bool) -> Result<Self, OutputError> {
        let output = |destination| Self {
            path: path.to_owned(),
            destination,
        };
        let refuse = |found| OutputError::Kind {
            path: path.to_owned(),
            found,
        };
        if path.as_os_str() == "-" {
            return Ok(output(Destination::Stdout));
        }
        let fail = |error| OutputError::io("write", path, error);
        let place = match find(path)? {
            Target::Descriptor(_, true) => return Ok(output(Destination::Stdout)),
            Target::Descriptor(descriptor, false) => {
                let about = rustix::fs::stat(&descriptor).map_err(|error| fail(error.into()))?;
                if kind(&about) == FileType::RegularFile {
                    roles::output(path, &about)?;
                }
                return Ok(output(Destination::Descriptor(descriptor)));
            }
            Target::Place(place) => place,
        };
        let Some(about) = place.present().map_err(fail)? else {
            return Ok(output(Destination::File(None)));
        };
        match kind(&about) {
            FileType::RegularFile if force => {
                roles::output(path, &about)?;
                Ok(output(Destination::File(Some(about))))
            }
            FileType::RegularFile => Err(OutputError::Exists {
                path: path.to_owned(),
            }),
            FileType::CharacterDevice => Ok(output(Destination::Stream(about))),
            FileType::Fifo if may_be_planted(&place.folder, &about).map_err(fail)? => {
                Err(refuse("a FIFO of another user"))
            }
            FileType::Fifo => Ok(output(Destination::Stream(about))),
            FileType::Directory => Err(refuse("a folder")),
            FileType::BlockDevice => Err(refuse("a block device")),
            FileType::Socket => Err(refuse("a socket")),
            _ => Err(refuse("neither a file nor a stream")),
        }
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

    /// The text of the present file, for a command that continues its own output; `None` if there is no file.
    ///
    /// # Errors
    /// As [`crate::input::read_text`].
    pub fn present_text(&self, limit: u64) -> io::Result<Option<String>> {
        let Destination::File(Some(_)) = self.destination else {
            return Ok(None);
        };
        crate::input::text_of(File::open(&self.path)?, limit).map(Some)
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
            Destination::Descriptor(descriptor) => File::options()
                .append(true)
                .open(descriptor)
                .and_then(|mut file| file.write_all(content))
                .map_err(fail),
            Destination::Stream(checked) => stream(&self.place()?, checked)
                .and_then(|mut file| file.write_all(content))
                .map_err(fail),
            Destination::File(old) => self.replace(&self.place()?, old.as_ref(), content),
        }
    }

    /// Where it is now: folders on the way may have been moved since the check.
    fn place(&self) -> Result<Place, OutputError> {
        match find(&self.path)? {
            Target::Place(place) => Ok(place),
            Target::Descriptor(..) => Err(OutputError::io("write", &self.path, changed())),
        }
    }

    fn replace(
        &self,
        place: &Place,
        old: Option<&Stat>,
        content: &[u8],
    ) -> Result<(), OutputError> {
        let fail = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Exists {
                path: self.path.clone(),
            },
            _ => OutputError::io("write", &self.path, error),
        };
        // A file that is to be private must not be readable before it is complete either.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut unfinished = UnfinishedFile::create(place, mode).map_err(fail)?;
        let file = &mut unfinished.file;
        file.write_all(content).map_err(fail)?;
        if let Some(old) = old {
            keep_owner_and_mode(file, old).map_err(fail)?;
        }
        file.sync_all().map_err(fail)?;
        match old {
            Some(old) => {
                unfinished.replace().map_err(fail)?;
                roles::replaced(old);
                Ok(())
            }
            None => unfinished.take_name().map_err(fail),
        }
    }
}

/// Opens the stream that was checked.
fn stream(place: &Place, checked: &Stat) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = openat(&place.folder, &place.name, flags, Mode::empty())?;
    if is_same(&fstat(&file)?, checked) {
        Ok(file.into())
    } else {
        Err(changed())
    }
}

/// Gives `file` the owner and mode of the file it replaces. Only root can change owners.
fn keep_owner_and_mode(file: &File, old: &Stat) -> io::Result<()> {
    let now = fstat(file)?;
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid) {
        let _ = std::os::unix::fs::fchown(file, Some(old.st_uid), Some(old.st_gid));
    }
    // An output is no program, so it does not need the rights of its owner when it is executed.
    file.set_permissions(Permissions::from_mode(old.st_mode & 0o777))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

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
