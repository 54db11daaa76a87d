//! Opens and reads regular files with a size limit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::roles;

/// Opens a file named by the user, which may be a pipe.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] for a file that the command is to replace.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    roles::input(path, &file)?;
    Ok(file)
}

/// Opens a regular file. Refused are a FIFO, whose open would wait for a writer, and a
/// device, which may be endless.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] for anything but a regular file, and for one that the command is to
/// replace.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    let about = file.metadata()?;
    if about.is_file() {
        roles::input(path, &file)?;
        return Ok(file);
    }
    let found = if about.is_dir() {
        "it is a folder, not a file"
    } else {
        "it is a FIFO or a device, not a file"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, found))
}

/// The content of a file that `open` opened, of at most `limit` bytes whatever size the file states.
///
/// # Errors
/// The system's; [`io::ErrorKind::FileTooLarge`] for a longer file.
pub fn read_bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let why = format!("it is longer than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(content)
}

/// The content of a regular file of at most `limit` bytes.
///
/// # Errors
/// Those of [`open_regular`] and [`read_bounded`].
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path)?, limit)
}

/// The text of a file named by the user, which may be a pipe, of at most `limit` bytes.
///
/// # Errors
/// The system's, those of [`read_bounded`], and [`io::ErrorKind::InvalidData`] for invalid UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(open(path)?, limit)
}

/// The text of an opened file of at most `limit` bytes.
pub(crate) fn text_of(file: File, limit: u64) -> io::Result<String> {
    String::from_utf8(read_bounded(file, limit)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_bounded_length_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        for path in [fifo.as_path(), folder.path(), Path::new("/dev/zero")] {
            let refused = open_regular(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, [7; 100]).unwrap();
        assert_eq!(read_regular(&file, 100).unwrap(), [7; 100]);
        let refused = read_regular(&file, 99).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let endless = read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
