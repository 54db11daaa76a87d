//! Finds a file that a command reads and would replace.
//!
//! A command that replaces its own input destroys what it was given. Paths cannot show that (links, relative names), so
//! files are compared by device and inode: each input when it is opened, each output when it is checked, whichever
//! comes first. The comparison is made for a process that is one command ([`keep_apart`]); a library's caller may well
//! write what it has read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Stat, fstat};

use crate::OutputError;

/// Device and inode.
type Identity = (u64, u64);

#[derive(Default)]
struct Roles {
    is_on: bool,
    inputs: BTreeMap<Identity, PathBuf>,
    outputs: BTreeMap<Identity, PathBuf>,
}

static ROLES: Mutex<Roles> = Mutex::new(Roles {
    is_on: false,
    inputs: BTreeMap::new(),
    outputs: BTreeMap::new(),
});

fn roles() -> MutexGuard<'static, Roles> {
    ROLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(about: &Stat) -> Identity {
    (about.st_dev, about.st_ino)
}

impl Roles {
    fn read(&mut self, path: &Path, file: Identity) -> io::Result<()> {
        if let Some(output) = self.outputs.get(&file) {
            let why = format!("the command would replace it as {}", output.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.is_on {
            self.inputs.insert(file, path.to_owned());
        }
        Ok(())
    }

    fn write(&mut self, path: &Path, file: Identity) -> Result<(), OutputError> {
        if let Some(input) = self.inputs.get(&file) {
            return Err(OutputError::Input {
                path: path.to_owned(),
                input: input.clone(),
            });
        }
        if self.is_on {
            self.outputs.insert(file, path.to_owned());
        }
        Ok(())
    }
}

/// From now on, a file that has been read is not replaced, and a file to be replaced is not read.
pub fn keep_apart() {
    roles().is_on = true;
}

/// A file is read; for inputs that others open.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] for a file that the command is to replace.
pub fn input(path: &Path, file: &File) -> io::Result<()> {
    roles().read(path, identity(&fstat(file)?))
}

/// An existing file is to be replaced.
pub(crate) fn output(path: &Path, about: &Stat) -> Result<(), OutputError> {
    roles().write(path, identity(about))
}

/// An output has been replaced: its inode may belong to a new file from now on.
pub(crate) fn replaced(about: &Stat) {
    roles().outputs.remove(&identity(about));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_input_or_output_whichever_comes_first() {
        let mut roles = Roles {
            is_on: true,
            ..Roles::default()
        };
        let (one, other) = ((1, 7), (1, 8));
        roles.read(Path::new("in"), one).unwrap();
        roles.read(Path::new("again"), one).unwrap();
        let refused = roles.write(Path::new("x"), one).unwrap_err();
        assert!(matches!(refused, OutputError::Input { .. }), "{refused}");
        roles.write(Path::new("out"), other).unwrap();
        roles.write(Path::new("out"), other).unwrap();
        let refused = roles.read(Path::new("y"), other).unwrap_err();
        assert!(
            refused.to_string().contains("replace it as out"),
            "{refused}"
        );
        roles.outputs.remove(&other);
        roles.read(Path::new("y"), other).unwrap();
    }

    #[test]
    fn a_library_may_write_what_it_has_read() {
        let mut roles = Roles::default();
        roles.read(Path::new("x"), (1, 7)).unwrap();
        roles.write(Path::new("x"), (1, 7)).unwrap();
        roles.read(Path::new("x"), (1, 7)).unwrap();
    }
}
