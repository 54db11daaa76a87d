//! Where a command's words go: results to stdout, remarks to stderr, JSON when asked.

use std::io::IsTerminal;

/// The user's wishes about output, and whether a person is watching.
pub struct Ui {
    /// One JSON object on stdout instead of text.
    pub json: bool,
    /// No progress, no remarks.
    pub quiet: bool,
}

impl Ui {
    /// Resolves the global flags against the terminal.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether progress may be drawn: stderr is a terminal and nobody asked for silence.
    pub fn progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// A remark for people, on stderr.
    pub fn remark(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            anstream::eprintln!("numaloc: {text}");
        }
    }

    /// The command's result: `text` for people, `json` for scripts.
    pub fn result(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> serde_json::Value) {
        use std::io::Write;
        let shown = if self.json {
            json().to_string() + "\n"
        } else {
            text()
        };
        // A reader that closed the pipe has seen enough: not an error.
        let _ = anstream::stdout().write_all(shown.as_bytes());
    }
}
