//! Determines what a program needs to start: its interpreter and libraries, as resolved by the dynamic loader itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use numaloc_launch::Interpreter;
use object::LittleEndian;
use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::LabError;

/// Largest program that is read, in bytes; larger ones do not fit into the guest either.
const MAX_PROGRAM_BYTES: u64 = 4 << 30;

/// How a file is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A static program.
    Static,
    /// A program with this loader and these libraries.
    Dynamic {
        /// The loader (`PT_INTERP`).
        loader: PathBuf,
        /// Soname or path, and the file the loader found for it.
        libraries: Vec<(String, PathBuf)>,
    },
    /// A script with this interpreter line.
    Script(PathBuf),
}

/// Examines the file and, if it is dynamic, runs its loader to list the libraries.
pub(crate) fn examine(program: &Path) -> Result<Kind, LabError> {
    let bytes = numaloc_files::input::read_regular(program, MAX_PROGRAM_BYTES)
        .map_err(|error| LabError::file("read", program, error))?;
    if let Some(interpreter) = Interpreter::of(&bytes) {
        return Ok(Kind::Script(interpreter.file.into()));
    }
    let Some(loader) = interpreter(&bytes).map_err(|why| LabError::file("use", program, why))?
    else {
        return Ok(Kind::Static);
    };
    let libraries = listed(&loader, program)?;
    Ok(Kind::Dynamic { loader, libraries })
}

/// The libraries that a shared library needs, as found by the loader of this program.
pub(crate) fn needed_by(library: &Path) -> Result<Vec<(String, PathBuf)>, LabError> {
    let own = numaloc_launch::own_file()
        .map_err(|error| LabError::file("find", Path::new("our own program"), error))?;
    match examine(&own)? {
        Kind::Dynamic { loader, .. } => listed(&loader, library),
        _ => Err(LabError::file("preload", library, "numaloc has no loader")),
    }
}

/// The libraries of a program or library, as its loader finds them: soname or path, and the file.
fn listed(loader: &Path, of: &Path) -> Result<Vec<(String, PathBuf)>, LabError> {
    let output = Command::new(loader)
        .arg("--list")
        .arg(of)
        .output()
        .map_err(|error| LabError::file("run the loader", loader, error))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::file("list the libraries of", of, words));
    }
    parse_list(&String::from_utf8_lossy(&output.stdout))
        .map_err(|missing| LabError::file("use", of, format!("library {missing} not found")))
}

/// Parses `name => /path (0x...)` lines; lines without a path are the vDSO and the loader itself.
fn parse_list(text: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else {
            continue;
        };
        if place.starts_with("not found") {
            return Err(name.to_owned());
        }
        let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
        libraries.push((name.to_owned(), PathBuf::from(path)));
    }
    Ok(libraries)
}

/// `PT_INTERP` of an x86-64 ELF file; `None` for a static program.
fn interpreter(bytes: &[u8]) -> Result<Option<PathBuf>, String> {
    let not_ours = || "not a 64-bit x86 ELF program or a script".to_owned();
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| not_ours())?;
    let endian = header.endian().map_err(|_| not_ours())?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(not_ours());
    }
    let damaged = |error: object::read::Error| format!("a damaged ELF file: {error}");
    for segment in header.program_headers(endian, bytes).map_err(damaged)? {
        if let Some(name) = segment.interpreter(endian, bytes).map_err(damaged)? {
            if name.is_empty() {
                return Err("a damaged ELF file: its interpreter has no name".to_owned());
            }
            return Ok(Some(OsStr::from_bytes(name).into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_lists_its_loader_and_libc() {
        let Kind::Dynamic { loader, libraries } = examine(Path::new("/bin/true")).unwrap() else {
            panic!("/bin/true is dynamic");
        };
        assert!(loader.ends_with("ld-linux-x86-64.so.2"));
        assert!(
            libraries
                .iter()
                .any(|(name, path)| name == "libc.so.6" && path.is_file())
        );
    }

    #[test]
    fn a_library_lists_what_it_needs() {
        let Kind::Dynamic { libraries, .. } = examine(Path::new("/bin/sh")).unwrap() else {
            panic!("/bin/sh is dynamic");
        };
        let libc = |list: &[(String, PathBuf)]| {
            let found = list.iter().find(|(name, _)| name == "libc.so.6");
            found.map(|(_, path)| path.clone())
        };
        let own = std::env::current_exe().unwrap();
        // Of a program or a library, by the same loader: the same libc.
        assert_eq!(libc(&needed_by(&own).unwrap()), libc(&libraries));
        assert!(needed_by(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn files_that_are_no_programs_are_refused() {
        assert!(interpreter(b"hello").is_err());
        assert!(interpreter(b"\x7fELF\x02\x01").is_err());
        let arm = elf(183, &[]);
        assert!(interpreter(&arm).unwrap_err().contains("x86"));
        assert_eq!(interpreter(&elf(62, &[])), Ok(None));
    }

    /// An ELF header and one program header per (offset, length) of a `PT_INTERP`, and 16 bytes after them.
    fn elf(machine: u8, interpreters: &[(u64, u64)]) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = machine;
        elf[20] = 1;
        elf[32] = 64;
        elf[52] = 64;
        elf[54] = 56;
        elf[56] = interpreters.len() as u8;
        for (offset, length) in interpreters {
            let mut header = [0; 56];
            header[0] = 3;
            header[8..16].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&length.to_le_bytes());
            elf.extend(header);
        }
        elf.extend(b"/lib/ld.so\0\0\0\0\0\0");
        elf
    }

    #[test]
    fn crafted_program_headers_are_refused_without_a_panic() {
        assert_eq!(
            interpreter(&elf(62, &[(120, 11)])),
            Ok(Some("/lib/ld.so".into()))
        );
        for crafted in [
            (120, 1 << 40),
            (u64::MAX, 8),
            (u64::MAX - 4, u64::MAX),
            (130, 3),
        ] {
            assert!(interpreter(&elf(62, &[crafted])).is_err(), "{crafted:?}");
        }
        // The offset, size and number of the program headers, all set to invalid values.
        let good = elf(62, &[(120, 11)]);
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = interpreter(&bad);
                bad[at..].fill(byte);
                let _ = interpreter(&bad);
            }
        }
    }

    #[test]
    fn missing_libraries_are_named() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f00)\n\tlibx.so => not found\n";
        assert_eq!(parse_list(text), Err("libx.so".into()));
        let fine = parse_list(&text.replace("not found", "/opt/my libs/libx.so (0x1)")).unwrap();
        assert_eq!(fine[1], ("libx.so".into(), "/opt/my libs/libx.so".into()));
    }
}
