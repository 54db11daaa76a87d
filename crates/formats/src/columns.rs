//! Reads and writes tables with typed columns as Parquet.
//!
//! Integers are unsigned and have Parquet's `INTEGER(n, false)` annotation; text is `STRING`. Files
//! are Snappy-compressed with row groups of 2^20 rows, so that other tools can read them in parallel.

use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::Once;

use crate::error::FormatError;

const ROWS_PER_GROUP: usize = 1 << 20;
/// Records decoded at a time: limits the memory that a false row count can make us allocate.
const BATCH: usize = 1 << 16;

/// A column to write, borrowed from the caller's rows.
pub(crate) enum Source<'a> {
    U32(Box<dyn Fn(usize) -> u32 + 'a>),
    U64(Box<dyn Fn(usize) -> u64 + 'a>),
    MaybeU64(Box<dyn Fn(usize) -> Option<u64> + 'a>),
    F64(Box<dyn Fn(usize) -> f64 + 'a>),
    Bool(Box<dyn Fn(usize) -> bool + 'a>),
    Text(Box<dyn Fn(usize) -> Cow<'a, str> + 'a>),
    MaybeText(Box<dyn Fn(usize) -> Option<Cow<'a, str>> + 'a>),
}

impl Source<'_> {
    fn declaration(&self, name: &str) -> String {
        match self {
            Self::U32(_) => format!("REQUIRED INT32 {name} (INTEGER(32,false));"),
            Self::U64(_) => format!("REQUIRED INT64 {name} (INTEGER(64,false));"),
            Self::MaybeU64(_) => format!("OPTIONAL INT64 {name} (INTEGER(64,false));"),
            Self::F64(_) => format!("REQUIRED DOUBLE {name};"),
            Self::Bool(_) => format!("REQUIRED BOOLEAN {name};"),
            Self::Text(_) => format!("REQUIRED BYTE_ARRAY {name} (STRING);"),
            Self::MaybeText(_) => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
        }
    }
}

/// Writes `rows` rows of the named columns to `path`.
pub(crate) fn write(
    path: &Path,
    rows: usize,
    columns: &[(&str, Source<'_>)],
) -> Result<(), FormatError> {
    let declarations: String = columns
        .iter()
        .map(|(name, source)| source.declaration(name))
        .collect();
    let schema = Arc::new(
        parse_message_type(&format!("message table {{ {declarations} }}"))
            .expect("our own schema parses"),
    );
    let properties = Arc::new(
        WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("numaloc".to_owned())
            .build(),
    );
    let file = File::create(path).map_err(|error| FormatError::io("write", path, error))?;
    let fail = |error: ParquetError| FormatError::io("write", path, io_error(error));
    let mut writer = SerializedFileWriter::new(file, schema, properties).map_err(fail)?;
    let mut start = 0;
    while start < rows {
        let range = start..rows.min(start + ROWS_PER_GROUP);
        start = range.end;
        let mut group = writer.next_row_group().map_err(fail)?;
        for (_, source) in columns {
            write_chunk(&mut group, source, range.clone()).map_err(fail)?;
        }
        group.close().map_err(fail)?;
    }
    let file = writer.into_inner().map_err(fail)?;
    file.sync_all()
        .map_err(|error| FormatError::io("write", path, error))
}

fn write_chunk(
    group: &mut SerializedRowGroupWriter<'_, File>,
    source: &Source<'_>,
    rows: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    match source {
        Source::U32(get) => put::<Int32Type>(group, rows.map(|row| Some(get(row) as i32)), false),
        Source::U64(get) => put::<Int64Type>(group, rows.map(|row| Some(get(row) as i64)), false),
        Source::MaybeU64(get) => {
            put::<Int64Type>(group, rows.map(|row| get(row).map(|v| v as i64)), true)
        }
        Source::F64(get) => put::<DoubleType>(group, rows.map(|row| Some(get(row))), false),
        Source::Bool(get) => put::<BoolType>(group, rows.map(|row| Some(get(row))), false),
        Source::Text(get) => put::<ByteArrayType>(
            group,
            rows.map(|row| Some(ByteArray::from(&*get(row)))),
            false,
        ),
        Source::MaybeText(get) => put::<ByteArrayType>(
            group,
            rows.map(|row| get(row).map(|text| ByteArray::from(&*text))),
            true,
        ),
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = Option<T::T>>,
    nullable: bool,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns as declared");
    let mut levels = Vec::new();
    let mut present = Vec::with_capacity(values.size_hint().0);
    for value in values {
        if nullable {
            levels.push(i16::from(value.is_some()));
        }
        present.extend(value);
    }
    column
        .typed::<T>()
        .write_batch(&present, nullable.then_some(&levels[..]), None)?;
    column.close()
}

/// An input table, column by column.
pub(crate) struct Table<'p> {
    path: &'p Path,
    reader: SerializedFileReader<File>,
}

impl<'p> Table<'p> {
    /// Opens the table at `path`.
    pub(crate) fn open(path: &'p Path) -> Result<Self, FormatError> {
        let file = numaloc_files::input::open_regular(path)
            .map_err(|error| FormatError::io("read", path, error))?;
        let reader = guarded(path, "footer", || SerializedFileReader::new(file))?;
        Ok(Self { path, reader })
    }

    /// Number of rows that the file states.
    pub(crate) fn rows(&self) -> u64 {
        let stated = self.reader.metadata().file_metadata().num_rows();
        u64::try_from(stated).unwrap_or(0)
    }

    /// Whether there is a column with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns().iter().any(|column| column.name() == name)
    }

    /// A column of unsigned integers of at most 32 bits.
    pub(crate) fn u32(&self, name: &str) -> Result<Vec<u32>, FormatError> {
        let mut out = Vec::new();
        self.required(
            name,
            &mut |reader, buffer: &mut Vec<i32>| match reader {
                ColumnReader::Int32ColumnReader(r) => {
                    Some(r.read_records(BATCH, None, None, buffer))
                }
                _ => None,
            },
            |values| out.extend(values.iter().map(|&v| v as u32)),
        )?;
        Ok(out)
    }

    /// A column of unsigned integers.
    pub(crate) fn u64(&self, name: &str) -> Result<Vec<u64>, FormatError> {
        let mut out = Vec::new();
        self.required(
            name,
            &mut |reader, buffer: &mut Vec<i64>| match reader {
                ColumnReader::Int64ColumnReader(r) => {
                    Some(r.read_records(BATCH, None, None, buffer))
                }
                _ => None,
            },
            |values| out.extend(values.iter().map(|&v| v as u64)),
        )?;
        Ok(out)
    }

    /// A column of floating-point numbers.
    pub(crate) fn f64(&self, name: &str) -> Result<Vec<f64>, FormatError> {
        let mut out = Vec::new();
        self.required(
            name,
            &mut |reader, buffer: &mut Vec<f64>| match reader {
                ColumnReader::DoubleColumnReader(r) => {
                    Some(r.read_records(BATCH, None, None, buffer))
                }
                _ => None,
            },
            |values| out.extend_from_slice(values),
        )?;
        Ok(out)
    }

    /// A column of booleans.
    pub(crate) fn bool(&self, name: &str) -> Result<Vec<bool>, FormatError> {
        let mut out = Vec::new();
        self.required(
            name,
            &mut |reader, buffer: &mut Vec<bool>| match reader {
                ColumnReader::BoolColumnReader(r) => {
                    Some(r.read_records(BATCH, None, None, buffer))
                }
                _ => None,
            },
            |values| out.extend_from_slice(values),
        )?;
        Ok(out)
    }

    /// A column of text; `parse` converts each value and may refuse it.
    pub(crate) fn text<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, FormatError> {
        let mut out = Vec::new();
        let mut bad: Option<(usize, String)> = None;
        self.required(
            name,
            &mut |reader, buffer: &mut Vec<ByteArray>| match reader {
                ColumnReader::ByteArrayColumnReader(r) => {
                    Some(r.read_records(BATCH, None, None, buffer))
                }
                _ => None,
            },
            |values| {
                for value in values {
                    match std::str::from_utf8(value.data()).ok().and_then(&parse) {
                        Some(value) => out.push(value),
                        None if bad.is_none() => {
                            bad = Some((out.len(), String::from_utf8_lossy(value.data()).into()));
                        }
                        None => {}
                    }
                }
            },
        )?;
        match bad {
            None => Ok(out),
            Some((row, found)) => Err(FormatError::corrupt(
                self.path,
                format!("row {row}, column {name}"),
                format!("{found:?}"),
                expected,
            )),
        }
    }

    /// A nullable column of unsigned integers.
    pub(crate) fn maybe_u64(&self, name: &str) -> Result<Vec<Option<u64>>, FormatError> {
        self.optional(
            name,
            |reader, levels, buffer: &mut Vec<i64>| match reader {
                ColumnReader::Int64ColumnReader(r) => {
                    Some(r.read_records(BATCH, Some(levels), None, buffer))
                }
                _ => None,
            },
            |value| Some(*value as u64),
        )
    }

    /// A nullable column of text.
    pub(crate) fn maybe_text(&self, name: &str) -> Result<Vec<Option<String>>, FormatError> {
        self.optional(
            name,
            |reader, levels, buffer: &mut Vec<ByteArray>| match reader {
                ColumnReader::ByteArrayColumnReader(r) => {
                    Some(r.read_records(BATCH, Some(levels), None, buffer))
                }
                _ => None,
            },
            |value| std::str::from_utf8(value.data()).ok().map(str::to_owned),
        )
    }

    fn index(&self, name: &str) -> Result<usize, FormatError> {
        let schema = self.reader.metadata().file_metadata().schema_descr_ptr();
        schema
            .columns()
            .iter()
            .position(|column| column.name() == name)
            .ok_or_else(|| {
                let found: Vec<_> = schema
                    .columns()
                    .iter()
                    .map(|c| c.name().to_owned())
                    .collect();
                FormatError::corrupt(
                    self.path,
                    "columns",
                    found.join(", "),
                    format!("a column `{name}`"),
                )
            })
    }

    fn each_chunk(
        &self,
        name: &str,
        mut visit: impl FnMut(&mut ColumnReader) -> Result<usize, FormatError>,
    ) -> Result<(), FormatError> {
        let index = self.index(name)?;
        for group in 0..self.reader.num_row_groups() {
            let mut column = guarded(self.path, name, || {
                self.reader.get_row_group(group)?.get_column_reader(index)
            })?;
            while visit(&mut column)? > 0 {}
        }
        Ok(())
    }

    fn wrong_type(&self, name: &str) -> FormatError {
        FormatError::corrupt(
            self.path,
            format!("column {name}"),
            "another type",
            "the type in docs/formats/profile.md",
        )
    }

    #[allow(clippy::type_complexity)]
    fn required<V>(
        &self,
        name: &str,
        read: &mut dyn FnMut(
            &mut ColumnReader,
            &mut Vec<V>,
        ) -> Option<Result<(usize, usize, usize), ParquetError>>,
        mut take: impl FnMut(&[V]),
    ) -> Result<(), FormatError> {
        let mut buffer = Vec::new();
        self.each_chunk(name, |column| {
            buffer.clear();
            let mut typed = true;
            let (records, values, _) = guarded(self.path, name, || {
                read(column, &mut buffer).unwrap_or_else(|| {
                    typed = false;
                    Ok((0, 0, 0))
                })
            })?;
            if !typed || values != records {
                return Err(self.wrong_type(name));
            }
            take(&buffer);
            Ok(records)
        })
    }

    fn optional<V, T>(
        &self,
        name: &str,
        read: impl Fn(
            &mut ColumnReader,
            &mut Vec<i16>,
            &mut Vec<V>,
        ) -> Option<Result<(usize, usize, usize), ParquetError>>,
        convert: impl Fn(&V) -> Option<T>,
    ) -> Result<Vec<Option<T>>, FormatError> {
        let mut out = Vec::new();
        let (mut levels, mut buffer) = (Vec::new(), Vec::new());
        self.each_chunk(name, |column| {
            levels.clear();
            buffer.clear();
            let mut typed = true;
            let (records, _, _) = guarded(self.path, name, || {
                read(column, &mut levels, &mut buffer).unwrap_or_else(|| {
                    typed = false;
                    Ok((0, 0, 0))
                })
            })?;
            if !typed {
                return Err(self.wrong_type(name));
            }
            if levels.len() == records {
                let mut values = buffer.iter();
                for &level in &levels {
                    out.push(if level > 0 {
                        values.next().and_then(&convert)
                    } else {
                        None
                    });
                }
            } else {
                // A required column although null would be allowed.
                out.extend(buffer.iter().map(&convert));
            }
            Ok(records)
        })?;
        Ok(out)
    }
}

thread_local! {
    /// Whether the thread is in code whose panics are converted into errors.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `read`; a panic in it is not printed.
fn silently<T>(read: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                usual(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(false);
    result
}

/// Runs the Parquet library on untrusted bytes and converts its errors and panics into ours.
fn guarded<T>(
    path: &Path,
    place: &str,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, FormatError> {
    let expected = "an intact Parquet table";
    match silently(read) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(FormatError::corrupt(
            path,
            place,
            error.to_string(),
            expected,
        )),
        Err(_) => Err(FormatError::corrupt(path, place, "garbage", expected)),
    }
}

fn io_error(error: ParquetError) -> std::io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    }
}
