//! Where a command's words go: results to stdout, remarks to stderr, JSON when asked.

use std::io::IsTerminal;

use serde_json::Value;

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

    /// Columns of the terminal that results go to; `usize::MAX` where they go elsewhere, so that nothing need be cut.
    pub fn columns(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let columns = size.map_or(0, |size| size.ws_col);
        // Some terminals do not know how wide they are.
        match columns {
            0 if std::io::stdout().is_terminal() => 80,
            0 => usize::MAX,
            known => known.into(),
        }
    }

    /// A remark for people, on stderr.
    pub fn remark(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            anstream::eprintln!("numaloc: {text}");
        }
    }

    /// The command's result: `text` for people, `json` for scripts.
    pub fn result(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        use std::io::Write;
        let shown = if self.json {
            let mut value = json();
            without_negative_zero(&mut value);
            value.to_string() + "\n"
        } else {
            text()
        };
        // A reader that closed the pipe has seen enough: not an error.
        let _ = anstream::stdout().write_all(shown.as_bytes());
    }
}

/// A sum of no numbers is -0, which scripts would print as such.
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
