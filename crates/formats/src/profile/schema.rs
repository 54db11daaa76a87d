//! A table of the profile folder as one declaration: names, types, units and meanings of its columns, and how a row of
//! type `R` has their values. Writing, reading and the tables of `docs/formats/profile.md` follow from it.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::vec::IntoIter;

use numaloc_model::profile::Table as Part;

use super::arrays::{Array, Columns};
use crate::columns::{self, Source, Table};
use crate::error::FormatError;

/// Tables of at least this many rows are decoded by two threads.
const MANY_ROWS: u64 = 1 << 16;
/// Number of rows that are made together: they stay in a cache while their columns are set.
const BLOCK: usize = 256;

/// What the numbers of a column count or refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing: a name, a label, a truth value, an identifier of the operating system.
    None,
    /// The row's own number, from 0 without gaps.
    Own,
    /// The number of a row of that table.
    Row(Part),
    /// The column `page` of the table `pages`.
    Page,
    /// A point in time, in the profile's clock.
    Time,
    /// Occurrences of this; their sum over all rows is limited
    /// ([`MAX_COUNTED`](numaloc_model::profile::MAX_COUNTED)).
    Count(&'static str),
    /// Any other unit.
    Of(&'static str),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Own => f.write_str("row"),
            Self::Row(table) => write!(f, "row of `{}`", table.name()),
            Self::Page => f.write_str("`page` of `pages`"),
            Self::Time => f.write_str("time"),
            Self::Count(unit) | Self::Of(unit) => f.write_str(unit),
        }
    }
}

/// A column as its table declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: &'static str,
    /// Its type, in the words of the documentation.
    pub type_name: &'static str,
    /// What its numbers count or refer to.
    pub unit: Unit,
    /// Its meaning, in Markdown.
    pub about: &'static str,
}

/// A table of the profile folder as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The table.
    pub table: Part,
    /// The file's name without its extension.
    pub name: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// The version of the format that it came with.
    pub since: u64,
    /// Whether profiles of earlier releases lack it. It reads as empty then.
    pub may_be_missing: bool,
    /// Its columns, in the order in which they are written.
    pub columns: Vec<ColumnInfo>,
}

/// How a row has a value: how to get it and how to set it.
pub(super) enum Field<R: 'static> {
    /// The row's own number: checked when read, not stored.
    Own,
    U32(fn(&R) -> u32, fn(&mut R, u32)),
    U64(fn(&R) -> u64, fn(&mut R, u64)),
    MaybeU64(fn(&R) -> Option<u64>, fn(&mut R, Option<u64>)),
    F64(fn(&R) -> f64, fn(&mut R, f64)),
    Bool(fn(&R) -> bool, fn(&mut R, bool)),
    Text(fn(&R) -> Cow<'_, str>, fn(&mut R, String)),
    MaybeText(fn(&R) -> Option<Cow<'_, str>>, fn(&mut R, Option<String>)),
    /// One of a list of words.
    Word(Word<R>),
    /// A word for other tools; our reader has it from `meta.json`.
    Written(fn(&R) -> &'static str),
}

/// A word of a list, decoded as its place there.
pub(super) struct Word<R: 'static> {
    /// What a word denotes, for messages.
    pub(super) expected: &'static str,
    pub(super) get: fn(&R) -> &'static str,
    /// The place of a word; `None` if it is not in the list.
    pub(super) place: fn(&str) -> Option<u8>,
    /// The list.
    pub(super) all: fn() -> Vec<&'static str>,
    /// Sets the word at a place.
    pub(super) set: fn(&mut R, u8),
}

/// A column of a table.
pub(super) struct Column<R: 'static> {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) field: Field<R>,
    /// Meaning, in Markdown.
    pub(super) about: &'static str,
    /// Whether earlier files lack it.
    pub(super) is_later: bool,
}

/// A table.
pub(super) struct Schema<R: 'static> {
    pub(super) table: Part,
    /// What a row is, for the documentation.
    pub(super) row: &'static str,
    /// The version of the format that the table came with.
    pub(super) since: u64,
    /// Whether profiles of earlier releases lack it.
    pub(super) may_be_missing: bool,
    /// A row before its columns are read.
    pub(super) blank: fn() -> R,
    pub(super) columns: &'static [Column<R>],
}

/// A column; see [`Column`] for the parameters.
pub(super) const fn column<R>(
    name: &'static str,
    unit: Unit,
    field: Field<R>,
    about: &'static str,
) -> Column<R> {
    Column {
        name,
        unit,
        field,
        about,
        is_later: false,
    }
}

/// A nullable column of text that came after its table's first release: null where it is missing.
pub(super) const fn later_text<R>(
    name: &'static str,
    get: fn(&R) -> Option<Cow<'_, str>>,
    set: fn(&mut R, Option<String>),
    about: &'static str,
) -> Column<R> {
    Column {
        name,
        unit: Unit::None,
        field: Field::MaybeText(get, set),
        about,
        is_later: true,
    }
}

/// A nullable column of numbers that came after its table's first release: null where it is missing.
pub(super) const fn later_number<R>(
    name: &'static str,
    unit: Unit,
    get: fn(&R) -> Option<u64>,
    set: fn(&mut R, Option<u64>),
    about: &'static str,
) -> Column<R> {
    Column {
        name,
        unit,
        field: Field::MaybeU64(get, set),
        about,
        is_later: true,
    }
}

/// The rows to write.
pub(super) enum Rows<'a, R> {
    /// Rows in memory.
    All(&'a [R]),
    /// This many rows, each made when one of its values is needed.
    Made(usize, &'a dyn Fn(usize) -> R),
}

/// The values of a decoded column that are not in a row yet.
enum Values {
    U32(IntoIter<u32>),
    U64(IntoIter<u64>),
    MaybeU64(IntoIter<Option<u64>>),
    F64(IntoIter<f64>),
    Bool(IntoIter<bool>),
    Text(IntoIter<String>),
    MaybeText(IntoIter<Option<String>>),
    Word(IntoIter<u8>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::MaybeU64(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::MaybeText(values) => values.len(),
            Self::Word(values) => values.len(),
        }
    }
}

impl<R> Field<R> {
    /// The type, in the words of the documentation.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Own | Self::U32(..) => "u32",
            Self::U64(..) => "u64",
            Self::MaybeU64(..) => "u64, nullable",
            Self::F64(..) => "f64",
            Self::Bool(..) => "bool",
            Self::Text(..) | Self::Word(..) | Self::Written(..) => "text",
            Self::MaybeText(..) => "text, nullable",
        }
    }

    fn source<'a>(&self, rows: &'a Rows<'a, R>) -> Source<'a> {
        match *self {
            Self::Own => Source::U32(Box::new(|at| at as u32)),
            Self::U32(get, _) => Source::U32(Box::new(move |at| rows.value(at, get))),
            Self::U64(get, _) => Source::U64(Box::new(move |at| rows.value(at, get))),
            Self::MaybeU64(get, _) => Source::MaybeU64(Box::new(move |at| rows.value(at, get))),
            Self::F64(get, _) => Source::F64(Box::new(move |at| rows.value(at, get))),
            Self::Bool(get, _) => Source::Bool(Box::new(move |at| rows.value(at, get))),
            Self::Text(get, _) => Source::Text(Box::new(move |at| match rows {
                Rows::All(rows) => get(&rows[at]),
                Rows::Made(_, row) => get(&row(at)).into_owned().into(),
            })),
            Self::MaybeText(get, _) => Source::MaybeText(Box::new(move |at| match rows {
                Rows::All(rows) => get(&rows[at]),
                Rows::Made(_, row) => get(&row(at)).map(|text| text.into_owned().into()),
            })),
            Self::Word(Word { get, .. }) | Self::Written(get) => {
                Source::Text(Box::new(move |at| rows.value(at, get).into()))
            }
        }
    }

    /// Decodes the column `name`.
    fn decode(&self, table: &Table<'_>, name: &str) -> Result<Values, FormatError> {
        Ok(match self {
            Self::Own | Self::U32(..) => Values::U32(table.u32(name)?.into_iter()),
            Self::U64(..) => Values::U64(table.u64(name)?.into_iter()),
            Self::MaybeU64(..) => Values::MaybeU64(table.maybe_u64(name)?.into_iter()),
            Self::F64(..) => Values::F64(table.f64(name)?.into_iter()),
            Self::Bool(..) => Values::Bool(table.bool(name)?.into_iter()),
            Self::Text(..) | Self::Written(_) => {
                let texts = table.text(name, "UTF-8 text", |text| Some(text.to_owned()))?;
                Values::Text(texts.into_iter())
            }
            Self::MaybeText(..) => Values::MaybeText(table.maybe_text(name)?.into_iter()),
            Self::Word(word) => {
                Values::Word(table.text(name, word.expected, word.place)?.into_iter())
            }
        })
    }

    /// A column that a file of `rows` rows lacks: nulls, or no values if it is not nullable.
    fn none(&self, rows: usize) -> Values {
        match self {
            Self::Own | Self::U32(..) => Values::U32(Vec::new().into_iter()),
            Self::U64(..) => Values::U64(Vec::new().into_iter()),
            Self::MaybeU64(..) => Values::MaybeU64(vec![None; rows].into_iter()),
            Self::F64(..) => Values::F64(Vec::new().into_iter()),
            Self::Bool(..) => Values::Bool(Vec::new().into_iter()),
            Self::Text(..) | Self::Written(_) => Values::Text(Vec::new().into_iter()),
            Self::MaybeText(..) => Values::MaybeText(vec![None; rows].into_iter()),
            Self::Word(_) => Values::Word(Vec::new().into_iter()),
        }
    }

    /// The decoded column as an array; nothing is copied.
    fn array(&self, values: Values) -> Array {
        match (values, self) {
            (Values::U32(values), _) => Array::U32(values.collect()),
            (Values::U64(values), _) => Array::U64(values.collect()),
            (Values::MaybeU64(values), _) => Array::MaybeU64(values.collect()),
            (Values::F64(values), _) => Array::F64(values.collect()),
            (Values::Bool(values), _) => Array::Bool(values.collect()),
            (Values::Text(values), _) => Array::Text(values.collect()),
            (Values::MaybeText(values), _) => Array::MaybeText(values.collect()),
            (Values::Word(values), field) => Array::Word {
                places: values.collect(),
                words: match field {
                    Self::Word(word) => (word.all)(),
                    _ => Vec::new(),
                },
            },
        }
    }

    /// Sets the next values in the rows.
    fn set(&self, rows: &mut [R], values: &mut Values) {
        fn each<R, T>(rows: &mut [R], values: &mut IntoIter<T>, set: fn(&mut R, T)) {
            for (row, value) in rows.iter_mut().zip(values) {
                set(row, value);
            }
        }
        match (self, values) {
            (Self::U32(_, set), Values::U32(values)) => each(rows, values, *set),
            (Self::U64(_, set), Values::U64(values)) => each(rows, values, *set),
            (Self::MaybeU64(_, set), Values::MaybeU64(values)) => each(rows, values, *set),
            (Self::F64(_, set), Values::F64(values)) => each(rows, values, *set),
            (Self::Bool(_, set), Values::Bool(values)) => each(rows, values, *set),
            (Self::Text(_, set), Values::Text(values)) => each(rows, values, *set),
            (Self::MaybeText(_, set), Values::MaybeText(values)) => each(rows, values, *set),
            (Self::Word(word), Values::Word(values)) => each(rows, values, word.set),
            // A row's own number is checked, not stored; other pairs are not decoded.
            _ => {}
        }
    }
}

/// The rows of a table that was read, in its order.
pub(super) struct ReadRows<R: 'static> {
    columns: Vec<(&'static Column<R>, Values)>,
    blank: fn() -> R,
    /// Number of rows that are not made yet.
    remaining: usize,
    /// Rows that are made, column by column, because that is faster.
    block: IntoIter<R>,
}

impl<R> Iterator for ReadRows<R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        if let Some(row) = self.block.next() {
            return Some(row);
        }
        let mut block = Vec::new();
        block.resize_with(self.remaining.min(BLOCK), self.blank);
        self.remaining -= block.len();
        for (column, values) in &mut self.columns {
            column.field.set(&mut block, values);
        }
        self.block = block.into_iter();
        self.block.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rows = self.remaining + self.block.len();
        (rows, Some(rows))
    }
}

impl<R> Rows<'_, R> {
    fn len(&self) -> usize {
        match self {
            Self::All(rows) => rows.len(),
            Self::Made(rows, _) => *rows,
        }
    }

    fn value<T>(&self, at: usize, get: fn(&R) -> T) -> T {
        match self {
            Self::All(rows) => get(&rows[at]),
            Self::Made(_, row) => get(&row(at)),
        }
    }
}

impl<R> Schema<R> {
    /// Name of the file in the profile's folder.
    pub(super) fn file(&self) -> String {
        file_of(self.table)
    }

    /// The declaration, as the documentation lists it.
    pub(super) fn info(&self) -> TableInfo {
        let columns = self.columns.iter().map(|column| ColumnInfo {
            name: column.name,
            type_name: column.field.type_name(),
            unit: column.unit,
            about: column.about,
        });
        TableInfo {
            table: self.table,
            name: self.table.name(),
            row: self.row,
            since: self.since,
            may_be_missing: self.may_be_missing,
            columns: columns.collect(),
        }
    }

    /// Writes the table into the folder `to`.
    pub(super) fn write(&self, rows: &Rows<'_, R>, to: &Path) -> Result<(), FormatError> {
        let sources: Vec<_> = self
            .columns
            .iter()
            .map(|column| (column.name, column.field.source(rows)))
            .collect();
        columns::write(&to.join(self.file()), rows.len(), &sources)
    }

    /// Reads the table at `path`, which is empty if it may be missing and is. Columns that are not declared are
    /// ignored, so that later releases may add some.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<R>, FormatError> {
        if self.may_be_missing && !path.exists() {
            return Ok(Vec::new());
        }
        Ok(self.read_columns(path, |_| true)?.collect())
    }

    /// Reads the `chosen` columns of the table at `path`, which must exist; the others have the blank row's values.
    pub(super) fn read_columns(
        &self,
        path: &Path,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<ReadRows<R>, FormatError> {
        let is_read =
            |column: &&Column<R>| !matches!(column.field, Field::Written(_)) && chosen(column.name);
        let columns: Vec<&'static Column<R>> = self.columns.iter().filter(is_read).collect();
        let values = decode(path, &columns)?;
        let lengths: Vec<usize> = values.iter().map(Values::len).collect();
        let remaining = same(path, &lengths)?;
        for (column, values) in columns.iter().zip(&values) {
            if let (Field::Own, Values::U32(numbers)) = (&column.field, values) {
                check_dense(path, column.name, numbers.as_slice())?;
            }
        }
        Ok(ReadRows {
            columns: columns.into_iter().zip(values).collect(),
            blank: self.blank,
            remaining,
            block: Vec::new().into_iter(),
        })
    }
}

/// Columns of a table that is read without making rows of it.
pub(super) trait Arrays {
    /// The `chosen` columns of the table at `path`, in the order of their declaration. Columns that are not declared
    /// are left out; a table that may be missing and is has columns without values.
    ///
    /// # Errors
    /// [`FormatError`] if the file is damaged or lacks a column.
    fn arrays(&self, path: &Path, chosen: &dyn Fn(&str) -> bool) -> Result<Columns, FormatError>;
}

impl<R> Arrays for Schema<R> {
    fn arrays(&self, path: &Path, chosen: &dyn Fn(&str) -> bool) -> Result<Columns, FormatError> {
        let columns: Vec<&'static Column<R>> =
            self.columns.iter().filter(|c| chosen(c.name)).collect();
        let values = match self.may_be_missing && !path.exists() {
            true => columns.iter().map(|c| c.field.none(0)).collect(),
            false => decode(path, &columns)?,
        };
        let lengths: Vec<usize> = values.iter().map(Values::len).collect();
        same(path, &lengths)?;
        let named = columns.iter().zip(values);
        Ok(named
            .map(|(c, values)| (c.name, c.field.array(values)))
            .collect())
    }
}

/// Name of a table's file in the profile's folder.
pub(super) fn file_of(table: Part) -> String {
    format!("{}.parquet", table.name())
}

/// Decodes columns of the table at `path`: two threads share those of a large table.
fn decode<R>(path: &Path, columns: &[&Column<R>]) -> Result<Vec<Values>, FormatError> {
    let all = |table: &Table<'_>, columns: &[&Column<R>]| -> Result<Vec<Values>, FormatError> {
        columns
            .iter()
            .map(|column| match column.is_later && !table.has(column.name) {
                // Filled below: the number of rows that the file states may be wrong.
                true => Ok(column.field.none(0)),
                false => column.field.decode(table, column.name),
            })
            .collect()
    };
    let table = Table::open(path)?;
    let filled = |mut values: Vec<Values>| {
        let rows = values.iter().map(Values::len).max().unwrap_or(0);
        for (column, values) in columns.iter().zip(&mut values) {
            if column.is_later && !table.has(column.name) {
                *values = column.field.none(rows);
            }
        }
        values
    };
    if table.rows() < MANY_ROWS {
        return all(&table, columns).map(filled);
    }
    let (first, second) = columns.split_at(columns.len().div_ceil(2));
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| all(&Table::open(path)?, second));
        (all(&table, first), second.join())
    });
    let mut values = first?;
    values.extend(second.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    Ok(filled(values))
}

/// Checks that all columns have the same length and returns it.
fn same(path: &Path, lengths: &[usize]) -> Result<usize, FormatError> {
    let first = lengths.first().copied().unwrap_or(0);
    match lengths.iter().find(|&&length| length != first) {
        None => Ok(first),
        Some(other) => Err(FormatError::corrupt(
            path,
            "columns",
            format!("{first} and {other} rows"),
            "columns of one length",
        )),
    }
}

/// Checks that ids count from 0 without gaps.
fn check_dense(path: &Path, column: &str, ids: &[u32]) -> Result<(), FormatError> {
    let mut rows = ids.iter().enumerate();
    match rows.find(|&(row, &id)| id as usize != row) {
        None => Ok(()),
        Some((row, id)) => Err(FormatError::corrupt(
            path,
            format!("row {row}, column {column}"),
            id.to_string(),
            row.to_string(),
        )),
    }
}

/// A field of the row with the column's own type.
macro_rules! plain {
    ($kind:ident, $($part:tt).+) => {
        $crate::profile::schema::Field::$kind(|row| row.$($part).+, |row, value| row.$($part).+ = value)
    };
}

/// A field of text.
macro_rules! text {
    ($($part:tt).+) => {
        $crate::profile::schema::Field::Text(
            |row| std::borrow::Cow::Borrowed(row.$($part).+.as_str()),
            |row, value| row.$($part).+ = value,
        )
    };
}

/// A field that may be an index, stored in 64 bits because the column is nullable. A larger number is read as the
/// largest index, which no table has.
macro_rules! maybe_index {
    ($index:ident, $($part:tt).+) => {
        $crate::profile::schema::Field::MaybeU64(
            |row| row.$($part).+.map(|index| u64::from(index.0)),
            |row, value| {
                row.$($part).+ =
                    value.map(|index| $index(u32::try_from(index).unwrap_or(u32::MAX)));
            },
        )
    };
}

/// A field that is one of the values of `$all`, by its name.
macro_rules! word {
    ($type:ident, $expected:literal, $($part:tt).+) => {
        $crate::profile::schema::Field::Word($crate::profile::schema::Word {
            expected: $expected,
            get: |row| row.$($part).+.name(),
            place: |name| {
                let place = $type::ALL.iter().position(|word| word.name() == name);
                place.and_then(|place| u8::try_from(place).ok())
            },
            all: || $type::ALL.iter().map(|word| word.name()).collect(),
            set: |row, place| row.$($part).+ = $type::ALL[usize::from(place)],
        })
    };
}

pub(super) use {maybe_index, plain, text, word};
