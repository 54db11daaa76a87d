//! The program to record: found as a shell finds it and checked before anything is started.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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

/// Maximum depth of scripts that interpret scripts, as in Linux.
const DEPTH: usize = 5;

/// Finds the program of a command line.
///
/// # Errors
/// Status 127 if there is none, 126 if it cannot be run.
pub fn resolve(command: &[OsString]) -> Result<Program, CliError> {
    let given = command.first().cloned().unwrap_or_default();
    let mut file = find(&given)?;
    let name = file.file_name().unwrap_or(&given).to_owned();
    let mut arguments = command.to_vec();
    for _ in 0..DEPTH {
        let head = head(&file)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let (interpreter, argument) = interpreter(line);
            if interpreter.is_empty() {
                return Err(cannot_run(&file, "its #! line names no interpreter"));
            }
            let mut with = vec![interpreter.clone()];
            with.extend(argument);
            with.push(file.into_os_string());
            with.extend(arguments.into_iter().skip(1));
            arguments = with;
            file = find(&interpreter)?;
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

/// Resolves a name: a path if it has a slash, else the first executable on `PATH`.
fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    if name.as_bytes().contains(&b'/') {
        return check_file(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        if name.is_empty() || !candidate.is_file() {
            continue;
        }
        match check_file(&candidate) {
            Ok(file) => return Ok(file),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        CliError::tool(format!(
            "cannot record {}: no such program on PATH",
            name.display()
        ))
        .hint("a program in this folder is ./NAME")
        .status(NOT_FOUND)
    }))
}

fn check_file(file: &Path) -> Result<PathBuf, CliError> {
    let data = std::fs::metadata(file).map_err(|error| {
        let status = match error.kind() {
            std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        };
        CliError::tool(format!("cannot record {}: {error}", file.display())).status(status)
    })?;
    if !data.is_file() {
        return Err(cannot_run(file, "it is not a file"));
    }
    if data.permissions().mode() & 0o111 == 0 {
        return Err(
            cannot_run(file, "it is not executable").hint(format!("chmod +x {}", file.display()))
        );
    }
    Ok(file.to_owned())
}

fn head(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut head = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(256).read_to_end(&mut head))
        .map_err(|error| cannot_run(file, &error.to_string()))?;
    Ok(head)
}

/// Interpreter and its one argument, from what follows `#!`.
fn interpreter(line: &[u8]) -> (OsString, Option<OsString>) {
    let line = line
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let at = line.iter().position(|byte| b" \t".contains(byte));
    let (interpreter, argument) = line.split_at(at.unwrap_or(line.len()));
    let argument = argument.trim_ascii();
    (
        OsString::from_vec(interpreter.to_vec()),
        (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
    )
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
    use super::*;

    #[test]
    fn interpreter_lines_have_one_argument() {
        let split = |line: &str| interpreter(line.as_bytes());
        assert_eq!(split("/bin/sh\necho"), ("/bin/sh".into(), None));
        assert_eq!(
            split(" /usr/bin/env  python3 -u \n"),
            ("/usr/bin/env".into(), Some("python3 -u".into()))
        );
    }

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
