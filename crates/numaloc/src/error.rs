//! Errors of commands: one line that says what was tried, on what, and what was found; where they help,
//! a line with what was expected and a line with what to do.

use std::fmt::Display;
use std::path::Path;

/// Exit status for a failure of the tool itself.
pub const TOOL: u8 = 1;
/// Exit status for wrong usage.
pub const USAGE: u8 = 2;

/// A failed command.
#[derive(Debug)]
pub struct CliError {
    /// What was tried, on what, what was found. Lower case, no full stop.
    pub message: String,
    /// What was expected.
    pub expected: Option<String>,
    /// What the user can do about it.
    pub hint: Option<String>,
    /// Exit status.
    pub status: u8,
}

impl CliError {
    /// A failure of the tool: exit status 1.
    pub fn tool(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            expected: None,
            hint: None,
            status: TOOL,
        }
    }

    /// Wrong usage: exit status 2.
    pub fn usage(message: impl Display) -> Self {
        Self {
            status: USAGE,
            ..Self::tool(message)
        }
    }

    /// Adds what was expected.
    #[must_use]
    pub fn expected(mut self, expected: impl Display) -> Self {
        self.expected = Some(expected.to_string());
        self
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Sets the exit status (125 to 127 for `record` and `run`).
    #[must_use]
    pub fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// What standard error gets: the message, what was expected, what to do, a line each.
    pub fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.message.replace('\n', " "));
        if let Some(expected) = &self.expected {
            text += &format!("  expected: {expected}\n");
        }
        if let Some(hint) = &self.hint {
            text += &format!("  try: {hint}\n");
        }
        without_numbers(&text)
    }
}

/// A text without the numbers of the system's errors: `No such file or directory (os error 2)` says it twice.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out += before;
        match after.split_once(')') {
            Some((number, after)) if number.bytes().all(|b| b.is_ascii_digit()) => rest = after,
            _ => {
                out += " (os error ";
                rest = after;
            }
        }
    }
    out + rest
}

impl From<numaloc_topology::TopologyError> for CliError {
    fn from(error: numaloc_topology::TopologyError) -> Self {
        let numaloc_topology::TopologyError::Spec { spec, .. } = &error else {
            return Self::tool(error);
        };
        let machines = numaloc_topology::described_machines();
        let names = machines.iter().map(|(name, _)| name.as_str());
        let near = did_you_mean(spec, names.chain(["this"]));
        let hint = near.map(|near| format!("--machine {near}"));
        let text = error.to_string();
        let (message, expected) = match text.split_once("; expected ") {
            Some((message, expected)) => (message, Some(expected.to_owned())),
            None => (text.as_str(), None),
        };
        Self {
            expected,
            hint,
            ..Self::usage(message)
        }
    }
}

impl From<numaloc_formats::FormatError> for CliError {
    fn from(error: numaloc_formats::FormatError) -> Self {
        let hint = error.hint().map(str::to_owned);
        let missing = match &error {
            numaloc_formats::FormatError::Io { path, source, .. } => {
                let missing = source.kind() == std::io::ErrorKind::NotFound;
                missing.then_some(path)
            }
            _ => None,
        };
        // `show app` where the program `app` has the profile `app.numaloc`.
        let beside = match &error {
            numaloc_formats::FormatError::WrongKind { path, .. } => profile_of(path),
            _ => None,
        };
        let near = || missing.and_then(|path| near(path));
        Self {
            hint: beside.or(hint).or_else(near),
            ..Self::tool(error)
        }
    }
}

/// The profile that has the name of another file.
fn profile_of(path: &Path) -> Option<String> {
    let mut name = path.file_name()?.to_owned();
    name.push(".numaloc");
    let profile = path.with_file_name(name);
    profile.is_dir().then(|| profile.display().to_string())
}

/// The file or folder whose name is closest to one that does not exist.
fn near(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && !name.contains(char::is_control))
        .collect();
    // The same whatever the order of the folder.
    names.sort();
    let profile = format!("{name}.numaloc");
    let found = match names.contains(&profile) {
        true => &profile,
        false => did_you_mean(name, names.iter().map(String::as_str))?,
    };
    Some(path.with_file_name(found).display().to_string())
}

impl From<numaloc_model::ProfileError> for CliError {
    fn from(error: numaloc_model::ProfileError) -> Self {
        Self::tool(error)
    }
}

impl From<numaloc_files::OutputError> for CliError {
    fn from(error: numaloc_files::OutputError) -> Self {
        let hint = error.hint();
        Self {
            hint: hint.map(str::to_owned),
            ..Self::tool(error)
        }
    }
}

/// The name among `known` that is closest to `given`, if any is close enough to be meant.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(given, name), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(given.len()))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_close() {
        let known = ["packed", "scatter", "deloc"];
        assert_eq!(did_you_mean("scater", known), Some("scatter"));
        assert_eq!(did_you_mean("deLoc", known), Some("deloc"));
        assert_eq!(did_you_mean("delco", known), Some("deloc"));
        assert_eq!(did_you_mean("xyzzy", known), None);
    }

    #[test]
    fn the_numbers_of_errors_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        let shown = CliError::tool(format!("cannot read x: {error}; (os error here)")).text();
        assert_eq!(
            shown,
            "error: cannot read x: No such file or directory; (os error here)\n"
        );
    }

    #[test]
    fn a_file_of_a_similar_name_is_suggested() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["app.numaloc", "plan.json", ".app.numalox"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let at = |name: &str| folder.path().join(name);
        let shown = |name: &str| Some(at(name).display().to_string());
        assert_eq!(near(&at("app")), shown("app.numaloc"));
        assert_eq!(near(&at("ap.numaloc")), shown("app.numaloc"));
        assert_eq!(near(&at("paln.json")), shown("plan.json"));
        assert_eq!(near(&at("other")), None);
        assert_eq!(near(Path::new("/no/such/folder")), None);
    }
}
