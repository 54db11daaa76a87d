//! CSV files with a header line: written atomically, read with errors that name file and line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use numaloc_files::cell;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// An error of the operating system.
    #[error("cannot {doing} {path}: {why}")]
    Io {
        /// The operation: read or write.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error message.
        why: String,
    },
    /// The contents are not as expected.
    #[error("{path}, line {line}: {found}; expected {expected}")]
    Contents {
        /// The file.
        path: PathBuf,
        /// Line, from 1; 0 for the file as a whole.
        line: u64,
        /// What the file has there.
        found: String,
        /// What is expected there.
        expected: String,
    },
}

/// Largest table that is read, in bytes: some ten million rows.
const LARGEST: u64 = 1 << 30;

/// A table being read.
pub struct Table {
    path: PathBuf,
    rows: Vec<csv::StringRecord>,
}

/// One row of it.
pub struct Row<'a> {
    table: &'a Table,
    record: &'a csv::StringRecord,
    header: &'a [&'a str],
}

impl Table {
    /// Reads `folder/name`, which must have exactly these columns.
    pub fn read(folder: &Path, name: &str, columns: &[&str]) -> Result<Self, FileError> {
        let path = folder.join(name);
        let bytes =
            numaloc_files::input::read_regular(&path, LARGEST).map_err(|error| FileError::Io {
                doing: "read",
                path: path.clone(),
                why: error.to_string(),
            })?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(true)
            .from_reader(bytes.as_slice());
        let wrong = |line, found: String, expected: String| FileError::Contents {
            path: path.clone(),
            line,
            found,
            expected,
        };
        let header: Vec<String> = reader
            .headers()
            .map_err(|error| wrong(1, error.to_string(), "a header line".to_owned()))?
            .iter()
            .map(str::to_owned)
            .collect();
        if header != columns {
            return Err(wrong(1, header.join(","), columns.join(",")));
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            rows.push(record.map_err(|error| {
                let line = error.position().map_or(0, csv::Position::line);
                wrong(
                    line,
                    error.to_string().replace('\n', " "),
                    format!("{} fields", columns.len()),
                )
            })?);
        }
        Ok(Self { path, rows })
    }

    /// The rows, in order.
    pub fn rows<'a>(&'a self, header: &'a [&'a str]) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().map(move |record| Row {
            table: self,
            record,
            header,
        })
    }
}

impl Row<'_> {
    /// The text of a column.
    pub fn text(&self, column: &str) -> &str {
        let at = self.header.iter().position(|&name| name == column);
        cell::text(at.and_then(|at| self.record.get(at)).unwrap_or(""))
    }

    /// The value of a column.
    pub fn value<T: FromStr>(&self, column: &str, expected: &str) -> Result<T, FileError> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.wrong(format!("{column} is {text:?}"), expected))
    }

    /// The value of a column; `None` if it is empty.
    pub fn optional<T: FromStr>(
        &self,
        column: &str,
        expected: &str,
    ) -> Result<Option<T>, FileError> {
        if self.text(column).is_empty() {
            return Ok(None);
        }
        self.value(column, expected).map(Some)
    }

    /// An error that names this row.
    pub fn wrong(&self, found: String, expected: &str) -> FileError {
        FileError::Contents {
            path: self.table.path.clone(),
            line: self.record.position().map_or(0, csv::Position::line),
            found,
            expected: expected.to_owned(),
        }
    }
}

/// Writes `folder/name` with these columns and rows, atomically through a temporary file.
pub fn write(
    folder: &Path,
    name: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), FileError> {
    let path = folder.join(name);
    let fail = |error: String| FileError::Io {
        doing: "write",
        path: path.clone(),
        why: error,
    };
    std::fs::create_dir_all(folder).map_err(|error| fail(error.to_string()))?;
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record(columns)
        .map_err(|error| fail(error.to_string()))?;
    for row in rows {
        writer
            .write_record(row.iter().map(|text| cell::cell(text).into_owned()))
            .map_err(|error| fail(error.to_string()))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| fail(error.to_string()))?;
    numaloc_files::FileOutput::check(&path, true)
        .and_then(|output| output.write(&bytes))
        .map_err(|error| fail(error.to_string()))
}

/// Fails unless the version that file `name` of the folder gives is 1.
pub fn check_version(folder: &Path, name: &str, version: Option<u32>) -> Result<(), FileError> {
    if version == Some(1) {
        return Ok(());
    }
    Err(FileError::Contents {
        path: folder.join(name),
        line: 0,
        found: version.map_or("no version".to_owned(), |v| format!("version {v}")),
        expected: "version 1".to_owned(),
    })
}

/// A value as text; empty for `None`.
pub fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
