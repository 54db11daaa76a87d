//! Text in cells of CSV files.
//!
//! A spreadsheet takes a cell that begins with one of six characters for a formula, which can send the table to
//! somebody else or start a program. Names come from programs and profiles that somebody else may have written, so such
//! a cell gets an apostrophe in front, which a spreadsheet takes for "this is text". Our own readers remove it again.

use std::borrow::Cow;

/// Whether a spreadsheet may take the cell for a formula.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err()
}

/// The cell for a text.
#[must_use]
pub fn cell(text: &str) -> Cow<'_, str> {
    // A text that looks like a protected one is protected too, so that it is read back as it was.
    if is_formula(text.trim_start_matches('\'')) {
        format!("'{text}").into()
    } else {
        text.into()
    }
}

/// The text of a cell.
#[must_use]
pub fn text(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(text) if is_formula(text.trim_start_matches('\'')) => text,
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_every_text_comes_back() {
        for first in ["", "'", "''", "=", "+", "-", "@", "\t", "\r", "x", "1"] {
            for rest in [
                "",
                "1",
                "1e3",
                "inf",
                "SUM(A1)",
                "'=1",
                "cmd|' /C calc'!A1",
                "-1",
            ] {
                let name = format!("{first}{rest}");
                let cell = cell(&name);
                assert!(!is_formula(&cell), "{cell:?}");
                assert_eq!(text(&cell), name);
            }
        }
    }

    #[test]
    fn numbers_and_usual_names_stay_as_they_are() {
        for plain in [
            "-1.5", "+2", "1e-3", "heap", "'quoted'", "a=b", "", "main:x-1",
        ] {
            assert_eq!(cell(plain), plain);
        }
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("-x"), "'-x");
    }
}
