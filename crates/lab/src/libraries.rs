//! What a program needs to start: its interpreter and libraries, as the dynamic loader itself resolves them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;

/// How a file is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A static program.
    Static,
    /// A program with this loader and these libraries: (name asked for, file found).
    Dynamic {
        /// The loader (`PT_INTERP`).
        loader: PathBuf,
        /// Soname or path, and where the loader found it.
        libraries: Vec<(String, PathBuf)>,
    },
    /// A script with this interpreter line.
    Script(PathBuf),
}

/// Looks at the file and, if it is dynamic, asks its loader for the list.
pub(crate) fn examine(program: &Path) -> Result<Kind, LabError> {
    let bytes = fs::read(program).map_err(|error| LabError::file("read", program, error))?;
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let end = line.iter().position(|&b| b == b'\n').unwrap_or(line.len());
        let line = String::from_utf8_lossy(&line[..end]).into_owned();
        let interpreter = line.split_whitespace().next().unwrap_or_default();
        return Ok(Kind::Script(interpreter.into()));
    }
    let Some(loader) = interpreter(&bytes).map_err(|why| LabError::file("use", program, why))?
    else {
        return Ok(Kind::Static);
    };
    let output = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|error| LabError::file("run the loader", &loader, error))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::file("list the libraries of", program, words));
    }
    let libraries = parse_list(&String::from_utf8_lossy(&output.stdout)).map_err(|missing| {
        LabError::file("use", program, format!("library {missing} not found"))
    })?;
    Ok(Kind::Dynamic { loader, libraries })
}

/// `name => /path (0x...)` lines; lines without a path are the vDSO and the loader itself.
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

/// `PT_INTERP` of an x86-64 ELF file; `None` for a static one.
fn interpreter(bytes: &[u8]) -> Result<Option<PathBuf>, &'static str> {
    let number = |at: usize, size: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(size)?)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0, |value, &byte| value << 8 | u64::from(byte)),
        )
    };
    const NOT_OURS: &str = "not a 64-bit x86 ELF program or a script";
    // e_ident: magic, 64-bit, little endian; e_machine 62 = x86-64.
    if !bytes.starts_with(b"\x7fELF\x02\x01") || number(18, 2) != Some(62) {
        return Err(NOT_OURS);
    }
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let (Some(start), Some(size), Some(count)) = (start, size, count) else {
        return Err(NOT_OURS);
    };
    for at in 0..count {
        let header = (start + at * size) as usize;
        if number(header, 4) != Some(3) {
            continue; // not PT_INTERP
        }
        let (Some(offset), Some(length)) = (number(header + 8, 8), number(header + 32, 8)) else {
            return Err("program headers are cut off");
        };
        let end = offset.saturating_add(length);
        let text = bytes
            .get(offset as usize..end as usize)
            .ok_or("the interpreter's name is cut off")?;
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        return Ok(Some(PathBuf::from(
            String::from_utf8_lossy(text).into_owned(),
        )));
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
    fn what_is_no_program_is_refused() {
        assert!(interpreter(b"hello").is_err());
        assert!(interpreter(b"\x7fELF\x02\x01").is_err());
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = 62;
        assert_eq!(interpreter(&elf), Ok(None));
        // One program header, PT_INTERP, that points beyond the end.
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf.resize(120, 0xff);
        elf[64..68].copy_from_slice(&[3, 0, 0, 0]);
        assert!(interpreter(&elf).is_err());
    }

    #[test]
    fn missing_libraries_are_named() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f00)\n\tlibx.so => not found\n";
        assert_eq!(parse_list(text), Err("libx.so".into()));
        let fine = parse_list(&text.replace("not found", "/opt/my libs/libx.so (0x1)")).unwrap();
        assert_eq!(fine[1], ("libx.so".into(), "/opt/my libs/libx.so".into()));
    }
}
