//! The engine's own arguments, before the program's.

use std::ffi::CString;

/// What the engine is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The file to execute, where the program's name is another.
    pub path: Option<Vec<u8>>,
    /// KiB of translated code in half of the cache, if bounded below its size.
    pub cache_kib: Option<u64>,
}

/// Shown where the arguments make no sense.
pub const USAGE: &str =
    "usage: numaloc-native [--cache KIB] [--path FILE] [--] PROGRAM [ARGUMENT...]";

impl Options {
    /// Splits the engine's arguments from the program's.
    ///
    /// # Errors
    /// A line for people.
    pub fn parse(arguments: &[Vec<u8>]) -> Result<(Self, Vec<Vec<u8>>), String> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        loop {
            let before = rest.as_slice();
            let Some(argument) = rest.next() else {
                return Err(USAGE.to_owned());
            };
            match argument.as_slice() {
                b"--" => {
                    let rest = rest.as_slice().to_vec();
                    return Self::whole(options, rest);
                }
                b"--path" => options.path = Some(rest.next().ok_or(USAGE)?.clone()),
                b"--cache" => {
                    let kib = rest.next().and_then(|kib| std::str::from_utf8(kib).ok());
                    let kib = kib.and_then(|kib| kib.parse().ok());
                    options.cache_kib = Some(kib.ok_or("--cache: not a number of KiB")?);
                }
                argument if argument.starts_with(b"-") => {
                    let argument = String::from_utf8_lossy(argument);
                    return Err(format!("{argument}: unknown; {USAGE}"));
                }
                _ => return Self::whole(options, before.to_vec()),
            }
        }
    }

    fn whole(self, program: Vec<Vec<u8>>) -> Result<(Self, Vec<Vec<u8>>), String> {
        if program.is_empty() && self.path.is_none() {
            return Err(USAGE.to_owned());
        }
        Ok((self, program))
    }

    /// The arguments that engines of further programs get.
    pub fn passed_on(&self) -> Vec<CString> {
        let Some(kib) = self.cache_kib else {
            return Vec::new();
        };
        let kib = CString::new(kib.to_string()).unwrap_or_default();
        vec![c"--cache".to_owned(), kib]
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(arguments: &[&str]) -> Result<(Options, Vec<Vec<u8>>), String> {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|a| a.as_bytes().to_vec()).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn the_program_begins_at_the_first_word_or_behind_two_dashes() {
        let (options, program) = parse(&["--cache", "256", "sort", "-r"]).unwrap();
        assert_eq!(options.cache_kib, Some(256));
        assert_eq!(program, [b"sort".to_vec(), b"-r".to_vec()]);
        let (options, program) = parse(&["--path", "/bin/sh", "--", "-sh"]).unwrap();
        assert_eq!(options.path.as_deref(), Some(&b"/bin/sh"[..]));
        assert_eq!(program, [b"-sh".to_vec()]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--cache", "x", "sort"]).is_err());
        assert!(
            parse(&["--what", "sort"])
                .unwrap_err()
                .starts_with("--what")
        );
        assert!(parse(&["--"]).is_err());
    }
}
