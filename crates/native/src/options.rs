//! The engine's own arguments, which precede the program's.

use std::ffi::CString;
use std::os::fd::RawFd;
use std::str::FromStr;

/// Options of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The file to execute, if it differs from the program's name.
    pub path: Option<Vec<u8>>,
    /// That file, open: left by the engine that executes this one, as are the three below.
    pub file: Option<RawFd>,
    /// The engine's executable.
    pub engine: Option<RawFd>,
    /// The limits that the program has set.
    pub limits: Option<Vec<u8>>,
    /// Its filters of system calls.
    pub filters: Option<Vec<u8>>,
    /// Settings of a recording, encoded; `None` to record nothing.
    pub record: Option<Vec<u8>>,
    /// An emulator, and its plugin, for executed programs that are not for this recorder.
    pub emulator: Option<(Vec<u8>, Vec<u8>)>,
    /// Limit of translated code in half of the cache in KiB, if below its size.
    pub cache_kib: Option<u64>,
    /// Load the program, but do not run it: status 0 if it can be recorded, otherwise an error message.
    pub check: bool,
    /// Whether paths are noted wherever the program arrives first, and not only from hot code on: for tests.
    pub all_paths: bool,
}

/// Usage message for invalid arguments.
pub const USAGE: &str = "usage: numaloc-native [--check] [--cache KIB] [--all-paths] [--record SETTINGS] [--emulator FILE PLUGIN] [--path FILE] [--file NUMBER] [--engine NUMBER] [--limits LIMITS] [--filters FILTERS] [--] PROGRAM [ARGUMENT...]";

fn number<T: FromStr>(text: Option<&Vec<u8>>) -> Result<T, String> {
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok())
        .ok_or(USAGE.to_owned())
}

impl Options {
    /// Splits the engine's arguments from the program's.
    ///
    /// # Errors
    /// A message for the user.
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
                    return Self::with_program(options, rest);
                }
                b"--path" => options.path = Some(rest.next().ok_or(USAGE)?.clone()),
                b"--file" => options.file = Some(number(rest.next())?),
                b"--engine" => options.engine = Some(number(rest.next())?),
                b"--limits" => options.limits = Some(rest.next().ok_or(USAGE)?.clone()),
                b"--filters" => options.filters = Some(rest.next().ok_or(USAGE)?.clone()),
                b"--record" => options.record = Some(rest.next().ok_or(USAGE)?.clone()),
                b"--emulator" => {
                    let file = rest.next().ok_or(USAGE)?.clone();
                    options.emulator = Some((file, rest.next().ok_or(USAGE)?.clone()));
                }
                b"--check" => options.check = true,
                b"--all-paths" => options.all_paths = true,
                b"--cache" => {
                    let kib = number(rest.next()).map_err(|_| "--cache: not a number of KiB")?;
                    options.cache_kib = Some(kib);
                }
                argument if argument.starts_with(b"-") => {
                    let argument = String::from_utf8_lossy(argument);
                    return Err(format!("{argument}: unknown; {USAGE}"));
                }
                _ => return Self::with_program(options, before.to_vec()),
            }
        }
    }

    fn with_program(self, program: Vec<Vec<u8>>) -> Result<(Self, Vec<Vec<u8>>), String> {
        if program.is_empty() && self.path.is_none() {
            return Err(USAGE.to_owned());
        }
        Ok((self, program))
    }

    /// The arguments for engines of programs executed by this one; `record`: their settings.
    pub fn to_arguments(&self, record: Option<CString>) -> Vec<CString> {
        let mut arguments = Vec::new();
        if let Some(kib) = self.cache_kib {
            let kib = CString::new(kib.to_string()).unwrap_or_default();
            arguments.extend([c"--cache".to_owned(), kib]);
        }
        if self.all_paths {
            arguments.push(c"--all-paths".to_owned());
        }
        if let Some(settings) = record {
            arguments.extend([c"--record".to_owned(), settings]);
        }
        if let Some((file, plugin)) = &self.emulator {
            let own = |file: &[u8]| CString::new(file).unwrap_or_default();
            arguments.extend([c"--emulator".to_owned(), own(file), own(plugin)]);
        }
        arguments
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
    fn the_program_begins_at_the_first_word_or_after_two_dashes() {
        let (options, program) = parse(&["--cache", "256", "sort", "-r"]).unwrap();
        assert_eq!(options.cache_kib, Some(256));
        assert_eq!(program, [b"sort".to_vec(), b"-r".to_vec()]);
        let (options, program) = parse(&["--path", "/bin/sh", "--", "-sh"]).unwrap();
        assert_eq!(options.path.as_deref(), Some(&b"/bin/sh"[..]));
        assert_eq!(program, [b"-sh".to_vec()]);
    }

    #[test]
    fn executed_programs_get_settings_of_their_own() {
        let (options, program) = parse(&[
            "--cache",
            "256",
            "--record",
            "folder=a",
            "--emulator",
            "q",
            "p",
            "sort",
        ])
        .unwrap();
        assert_eq!(options.record.as_deref(), Some(&b"folder=a"[..]));
        assert_eq!(program, [b"sort".to_vec()]);
        let arguments = options.to_arguments(Some(c"folder=b".to_owned()));
        let expected = [
            c"--cache",
            c"256",
            c"--record",
            c"folder=b",
            c"--emulator",
            c"q",
            c"p",
        ];
        assert!(arguments.iter().map(|argument| &**argument).eq(expected));
        assert_eq!(options.to_arguments(None).len(), 5);
    }

    #[test]
    fn invalid_arguments_are_refused() {
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
