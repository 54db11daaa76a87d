//! Libraries of ours that the dynamic linker loads into a program, and the environment that asks it to.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use numaloc_launch::script::{HEAD_BYTES, MAX_DEPTH};
use numaloc_launch::{Interpreter, Part};
use numaloc_model::conditions::DEAL;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::agent::LIBRARY;

/// The variable that names libraries to preload.
pub const PRELOAD: &str = "LD_PRELOAD";
/// File name of the library that deals loops (`crates/deal`).
pub const DEALER: &str = "libnumaloc_deal.so";
/// Value of [`DEAL`] for a run: threads that have finished take from others.
pub const TAKING: &str = "node";
/// Value of [`DEAL`] for a recording, where the speed of threads is not the program's: each keeps what it was dealt.
pub const RECORDING: &str = "record";

/// A variable and its value.
type Variable = (OsString, OsString);

/// What [`PRELOAD`] has to be so that the libraries with these file names are loaded into `command`, before those that
/// are preloaded anyway.
///
/// # Errors
/// Why the program cannot have them, for the user.
fn preloading(command: &[OsString], libraries: &[&str]) -> Result<OsString, String> {
    let mut value = OsString::new();
    for file in libraries {
        let chosen = std::env::var_os("NUMALOC_PLUGIN_DIR");
        let library = numaloc_launch::sibling(file, Part::Library, chosen);
        let library = library.map_err(|why| why.to_string())?;
        let name = library.as_os_str().as_bytes();
        if name.iter().any(|byte| b" :".contains(byte)) {
            let path = library.display();
            return Err(format!("the path {path} cannot be preloaded"));
        }
        if !value.is_empty() {
            value.push(":");
        }
        value.push(library);
    }
    let program = command
        .first()
        .and_then(|program| numaloc_launch::find(program).ok());
    let is_dynamic = program.is_some_and(|program| is_dynamic(program, 0));
    if !is_dynamic {
        return Err("the program is not loaded by a dynamic linker".to_owned());
    }
    if let Some(before) = std::env::var_os(PRELOAD) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// The variables with which the loops of `command` are dealt; `value` is [`TAKING`] or [`RECORDING`].
///
/// # Errors
/// Why they cannot be, for the user.
pub fn dealing(command: &[OsString], value: &str) -> Result<[Variable; 2], String> {
    let preload = preloading(command, &[DEALER])?;
    Ok([(PRELOAD.into(), preload), (DEAL.into(), value.into())])
}

/// Libraries of ours in a program that runs under a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preloaded {
    /// The agent that counts marks.
    pub marks: bool,
    /// The library that deals loops.
    pub dealer: bool,
}

impl Preloaded {
    /// The environment of `command`; `None`: that of this process.
    ///
    /// # Errors
    /// Why the program cannot have the libraries, for the user.
    pub fn environment(self, command: &[OsString]) -> Result<Option<Vec<CString>>, String> {
        let libraries = [(self.marks, LIBRARY), (self.dealer, DEALER)];
        let libraries = libraries.iter().filter(|(is_wanted, _)| *is_wanted);
        let libraries: Vec<&str> = libraries.map(|(_, library)| *library).collect();
        if libraries.is_empty() {
            return Ok(None);
        }
        let more: &[_] = if self.dealer { &[(DEAL, TAKING)] } else { &[] };
        environment(command, &libraries, more).map(Some)
    }

    /// What the user should know of [`Preloaded::environment`]'s result.
    pub fn notes<T>(self, environment: &Result<T, String>) -> Vec<String> {
        let notes = match environment {
            Ok(_) => [
                None,
                Some("loops with a dynamic or guided schedule are dealt by node".to_owned()),
            ],
            Err(why) => [
                Some(format!(
                    "the library that counts marks is not loaded: {why}"
                )),
                Some(format!("loops are not dealt by node: {why}")),
            ],
        };
        let wanted = [self.marks, self.dealer];
        let notes = wanted.into_iter().zip(notes);
        notes
            .filter_map(|(is_wanted, note)| note.filter(|_| is_wanted))
            .collect()
    }
}

/// The environment in which the dynamic linker loads `libraries` into `command`: that of this process, with the
/// libraries, and with `more` variables. The agent, if it is the first, removes itself from it again.
///
/// # Errors
/// Why the program cannot have them, for the user.
pub(crate) fn environment(
    command: &[OsString],
    libraries: &[&str],
    more: &[(&str, &str)],
) -> Result<Vec<CString>, String> {
    let value = preloading(command, libraries)?;
    let more = more.iter().map(|(name, value)| (name.into(), value.into()));
    let set: Vec<Variable> = more.chain([(PRELOAD.into(), value)]).collect();
    let is_set = |name: &OsString| set.iter().any(|(known, _)| known == name);
    let others: Vec<Variable> = std::env::vars_os()
        .filter(|(name, _)| !is_set(name))
        .collect();
    let entry = |(name, value): Variable| {
        let mut text = name;
        text.push("=");
        text.push(value);
        CString::new(text.into_vec()).ok()
    };
    Ok(others.into_iter().chain(set).filter_map(entry).collect())
}

/// Whether a program, or the interpreter that runs it, is loaded by a dynamic linker.
fn is_dynamic(program: PathBuf, depth: usize) -> bool {
    let head = || {
        let mut head = Vec::new();
        let file = File::open(&program).ok()?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        Some(head)
    };
    let Some(head) = head() else { return false };
    match Interpreter::of(&head) {
        Some(script) if depth < MAX_DEPTH => {
            is_dynamic(Path::new(OsStr::new(script.file)).into(), depth + 1)
        }
        Some(_) => false,
        None => has_interpreter(&program).unwrap_or(false),
    }
}

fn has_interpreter(program: &Path) -> Option<bool> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    Some(
        segments
            .iter()
            .any(|segment| segment.p_type(endian) == elf::PT_INTERP),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts_are_dynamic_by_what_loads_them() {
        assert!(is_dynamic("/bin/sh".into(), 0));
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
        assert!(is_dynamic(script.clone(), 0));
        std::fs::write(&script, "#!/nowhere\n").unwrap();
        assert!(!is_dynamic(script, 0));
    }
}
