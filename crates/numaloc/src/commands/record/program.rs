//! The program to record: found as a shell finds it and checked before anything is started.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use numaloc_launch::script::{HEAD_BYTES, MAX_DEPTH};
use numaloc_launch::{FindError, Interpreter, rights};

use super::{CANNOT_RUN, NOT_FOUND};
use crate::error::CliError;

/// An x86-64 ELF file and its arguments.
#[derive(Debug)]
pub struct Program {
    /// File name that the user gave, without folders; names the output.
    pub name: OsString,
    /// The ELF file; for a script, its interpreter.
    pub file: PathBuf,
    /// `argv`, from `argv[0]` on.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// What executing the file makes of the process if it gives rights, which a recorder cannot pass on.
    pub fn rights(&self) -> Option<&'static str> {
        rights::gained(&std::fs::File::open(&self.file).ok()?)
    }
}

/// Finds the program of a command line.
///
/// # Errors
/// Status 127 if there is none, 126 if it cannot be run.
pub fn resolve(command: &[OsString]) -> Result<Program, CliError> {
    let given = command.first().cloned().unwrap_or_default();
    let mut file = find(&given)?;
    let name = file.file_name().unwrap_or(&given).to_owned();
    let mut arguments = command.to_vec();
    for _ in 0..MAX_DEPTH {
        let head = head(&file)?;
        if let Some(script) = Interpreter::of(&head) {
            if script.file.is_empty() {
                return Err(cannot_run(&file, "its #! line names no interpreter"));
            }
            let mut with = vec![script.file.to_owned()];
            with.extend(script.argument.map(OsStr::to_owned));
            with.push(file.into_os_string());
            with.extend(arguments.into_iter().skip(1));
            arguments = with;
            file = find(script.file)?;
            continue;
        }
        check_elf(&file, &head)?;
        return Ok(Program {
            name,
            file,
            arguments,
        });
    }
    Err(cannot_run(
        &file,
        "its #! interpreters are nested more than 5 levels deep",
    ))
}

/// The file that a name runs.
fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    numaloc_launch::find(name).map_err(|why| {
        let error = CliError::tool(format!("cannot record {}: {why}", why.program().display()));
        let error = error.status(if why.is_missing() {
            NOT_FOUND
        } else {
            CANNOT_RUN
        });
        match &why {
            FindError::NotOnPath { .. } => error.hint("a program in this folder is ./NAME"),
            FindError::NotExecutable { file } => error.hint(format!("chmod +x {}", file.display())),
            _ => error,
        }
    })
}

fn head(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut head = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(HEAD_BYTES as u64).read_to_end(&mut head))
        .map_err(|error| cannot_run(file, &error.to_string()))?;
    Ok(head)
}

fn check_elf(file: &Path, head: &[u8]) -> Result<(), CliError> {
    const X86_64: u16 = 62;
    const MACHINES: [(u16, &str); 5] = [
        (3, "32-bit x86"),
        (40, "32-bit Arm"),
        (183, "64-bit Arm"),
        (243, "RISC-V"),
        (21, "64-bit POWER"),
    ];
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return Err(cannot_run(
            file,
            "it is neither an ELF program nor a script with a #! line",
        )
        .expected("an x86-64 ELF program"));
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    if head[4] == 2 && head[5] == 1 && machine == X86_64 {
        return Ok(());
    }
    let found = match MACHINES.iter().find(|(number, _)| *number == machine) {
        _ if machine == X86_64 => "an x32 program (64-bit machine, 32-bit addresses)".to_owned(),
        Some((_, name)) => format!("a program for {name}"),
        None => format!("a program for ELF machine {machine}"),
    };
    Err(cannot_run(file, &format!("it is {found}")).expected("an x86-64 ELF program"))
}

fn cannot_run(file: &Path, why: &str) -> CliError {
    CliError::tool(format!("cannot record {}: {why}", file.display())).status(CANNOT_RUN)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_that_cannot_run_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app");
        let status = |content: &[u8], mode: u32| {
            std::fs::write(&file, content).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = resolve(&[file.clone().into()]).unwrap_err();
            (error.status, error.message)
        };
        let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = 3;
        let (code, message) = status(&elf, 0o755);
        assert_eq!(code, 126);
        assert!(
            message.ends_with("it is a program for 32-bit x86"),
            "{message}"
        );
        (elf[4], elf[18]) = (2, 183);
        assert!(status(&elf, 0o755).1.ends_with("64-bit Arm"));
        assert_eq!(status(b"hello", 0o755).0, 126);
        assert!(status(b"#!/bin/sh\n", 0o644).1.ends_with("not executable"));
        assert_eq!(status(b"#!/no/such/shell\n", 0o755).0, 127);
        assert_eq!(
            resolve(&["no-such-program".into()]).unwrap_err().status,
            127
        );
    }
}
