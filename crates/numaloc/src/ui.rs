//! Output of commands: results to stdout as text or JSON, remarks and progress to stderr.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

use numaloc_files::FileOutput;

use serde_json::Value;

use crate::error::{CliError, without_numbers};

/// Output settings of the user and of the terminal.
pub struct Ui {
    /// One JSON object on stdout instead of text.
    pub json: bool,
    /// No progress, no remarks.
    pub quiet: bool,
    /// File that gets the JSON object, while standard output gets text.
    json_file: Option<FileOutput>,
    /// Why a result could not be written.
    unwritten: OnceLock<String>,
}

/// Writes to standard error and ignores failures: there is nowhere left to report them, and a program that we run must
/// not be affected.
pub fn stderr(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

impl Ui {
    /// Resolves the global flags against the terminal.
    ///
    /// `json`: no `--json`, `--json`, or `--json=FILE`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(json: Option<Option<&Path>>, quiet: bool) -> Result<Self, CliError> {
        let file = json.flatten().map(|path| FileOutput::check(path, true));
        let file = file.transpose()?;
        let stdout = file.as_ref().is_some_and(FileOutput::is_stdout);
        Ok(Self {
            json: stdout || json == Some(None),
            json_file: file.filter(|_| !stdout),
            quiet,
            unwritten: OnceLock::new(),
        })
    }

    /// Whether the result is wanted as an object, on standard output or in a file.
    pub fn wants_json(&self) -> bool {
        self.json || self.json_file.is_some()
    }

    /// Whether progress may be drawn: stderr is a terminal and nobody asked for silence.
    pub fn progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Columns of the terminal that results go to; `usize::MAX` if they go elsewhere, so that nothing is cut.
    pub fn columns(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let columns = size.map_or(0, |size| size.ws_col);
        // Some terminals do not report their width.
        match columns {
            0 if std::io::stdout().is_terminal() => 80,
            0 => usize::MAX,
            known => known.into(),
        }
    }

    /// Columns of the terminal that standard error is; `usize::MAX` if it is none.
    pub fn columns_of_stderr(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        match size.map_or(0, |size| size.ws_col) {
            0 => usize::MAX,
            known => known.into(),
        }
    }

    /// A remark for people, on stderr.
    pub fn remark(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            let text = without_numbers(&text.to_string());
            stderr(&format!("numaloc: {text}\n"));
        }
    }

    /// The command's result: `text` for people, `json` for scripts. Without text, standard output is left alone.
    pub fn result(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        let json = || {
            let mut value = json();
            without_negative_zero(&mut value);
            value.to_string() + "\n"
        };
        let shown = if self.json {
            json()
        } else {
            if let Some(file) = &self.json_file
                && let Err(error) = file.write(json().as_bytes())
            {
                let _ = self.unwritten.set(error.to_string());
            }
            text()
        };
        if !shown.is_empty()
            && let Err(error) = numaloc_files::stdout::write(&plain(&shown))
        {
            let message = format!("cannot write standard output: {error}");
            let _ = self.unwritten.set(message);
        }
    }

    /// The result of a command that wrote `output`; nothing if that was standard output itself.
    pub fn written(
        &self,
        output: &FileOutput,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) {
        if !output.is_stdout() {
            self.result(text, json);
        }
    }

    /// Checks a single-file output when the command starts.
    ///
    /// # Errors
    /// As [`FileOutput::check`]; `--json` with standard output as the file.
    pub fn output(&self, path: &Path, force: bool) -> Result<FileOutput, CliError> {
        let output = FileOutput::check(path, force)?;
        if output.is_stdout() && self.json {
            return Err(
                CliError::usage("--json and the output both go to standard output")
                    .hint("a file with -o, or leave out --json"),
            );
        }
        Ok(output)
    }

    /// The failure to write a result, if there was one. The command itself has done its work.
    pub fn failure(&self) -> Option<CliError> {
        self.unwritten.get().map(CliError::tool)
    }
}

/// Text with its colours if standard output is a terminal that shows them.
fn plain(text: &str) -> Vec<u8> {
    let choice = anstream::AutoStream::choice(&std::io::stdout());
    let mut stream = anstream::AutoStream::new(Vec::new(), choice);
    match stream.write_all(text.as_bytes()) {
        Ok(()) => stream.into_inner(),
        Err(_) => text.as_bytes().to_owned(),
    }
}

/// Replaces -0, the sum of no numbers, by 0: scripts would print the sign.
fn without_negative_zero(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) && number.is_f64() => {
            *value = 0.0.into()
        }
        Value::Array(values) => values.iter_mut().for_each(without_negative_zero),
        Value::Object(fields) => fields.values_mut().for_each(without_negative_zero),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_has_no_negative_zero() {
        let mut value = json!({"sum": -0.0, "rows": [[-0.0, 0, -1.5]], "name": "-0.0"});
        without_negative_zero(&mut value);
        assert_eq!(
            value.to_string(),
            r#"{"name":"-0.0","rows":[[0.0,0,-1.5]],"sum":0.0}"#
        );
    }
}
