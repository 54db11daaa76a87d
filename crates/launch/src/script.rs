//! Interpreters of scripts: the `#!` line as Linux reads it (`fs/binfmt_script.c`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a file that Linux looks at: a longer first line is cut.
pub const HEAD_BYTES: usize = 256;
/// Interpreters that Linux follows if scripts interpret scripts.
pub const MAX_DEPTH: usize = 5;

/// The interpreter that a script names, and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    /// Its file; empty if the line names none, which cannot be executed.
    pub file: &'a OsStr,
    /// The rest of the line: one argument, blanks included.
    pub argument: Option<&'a OsStr>,
}

impl<'a> Interpreter<'a> {
    /// The interpreter of the file that begins with `head`; `None` if it is no script.
    #[must_use]
    pub fn of(head: &'a [u8]) -> Option<Self> {
        let head = &head[..head.len().min(HEAD_BYTES - 1)];
        let line = head.strip_prefix(b"#!")?;
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = line.trim_ascii();
        let end = line.iter().position(|byte| b" \t".contains(byte));
        let (file, rest) = line.split_at(end.unwrap_or(line.len()));
        let argument = rest.trim_ascii();
        Some(Self {
            file: OsStr::from_bytes(file),
            argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_file_and_at_most_one_argument() {
        let of = |head: &'static str| {
            let found = Interpreter::of(head.as_bytes())?;
            Some((
                found.file.to_str().unwrap(),
                found.argument.map(|text| text.to_str().unwrap()),
            ))
        };
        assert_eq!(of("#!/bin/sh\necho"), Some(("/bin/sh", None)));
        assert_eq!(
            of("#! /usr/bin/env  python3 -u \n"),
            Some(("/usr/bin/env", Some("python3 -u")))
        );
        assert_eq!(of("#!/bin/cat"), Some(("/bin/cat", None)));
        assert_eq!(of("#!\n"), Some(("", None)));
        assert_eq!(of("\x7fELF"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn long_lines_are_cut_as_linux_cuts_them() {
        let long = format!("#!/{}", "x".repeat(2 * HEAD_BYTES));
        assert_eq!(
            Interpreter::of(long.as_bytes()).unwrap().file.len(),
            HEAD_BYTES - 3
        );
    }
}
