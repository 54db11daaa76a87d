//! Errors of commands: one line that says what was tried, on what, and what was found; where they help,
//! a line with what was expected and a line with what to do.

use std::fmt::Display;

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
        text
    }
}

impl From<numaloc_topology::TopologyError> for CliError {
    fn from(error: numaloc_topology::TopologyError) -> Self {
        match error {
            numaloc_topology::TopologyError::Spec { .. } => Self::usage(error),
            _ => Self::tool(error),
        }
    }
}

impl From<numaloc_formats::FormatError> for CliError {
    fn from(error: numaloc_formats::FormatError) -> Self {
        let hint = error.hint();
        Self {
            hint: hint.map(str::to_owned),
            ..Self::tool(error)
        }
    }
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
        .map(|name| (edit_distance(given, name), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(given.len()))
        .min()
        .map(|(_, name)| name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let cost = (corner + usize::from(x != y)).min(row[j].min(row[j + 1]) + 1);
            corner = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_close() {
        let known = ["packed", "scatter", "deloc"];
        assert_eq!(did_you_mean("scater", known), Some("scatter"));
        assert_eq!(did_you_mean("deLoc", known), Some("deloc"));
        assert_eq!(did_you_mean("xyzzy", known), None);
    }
}
