//! Reads and writes page use in numalize's format: CSV with the header
//! `page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1,...`.
//!
//! `page.address` is the page *number* in decimal; `T0...` are accesses, reads and writes
//! together. Fields are not quoted; a comma in a name is replaced by a blank.
//! Names that a spreadsheet would take for formulas have an apostrophe in front ([`numaloc_files::cell`]).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use numaloc_files::cell;
use numaloc_model::pages::{PageHead, PageUsage};
use numaloc_model::profile::{Object, ObjectKind, Profile};
use numaloc_model::{ObjectIdx, PageNumber, ThreadAccess, ThreadIdx};

use crate::error::FormatError;

const FIXED: [&str; 6] = [
    "page.address",
    "alloc.thread",
    "alloc.location",
    "firsttouch.thread",
    "firsttouch.location",
    "structure.name",
];
/// Longest line in bytes: enough for a name and 65,536 threads.
const MAX_LINE_BYTES: u64 = 2 << 20;
/// Largest number of pages: 64 Mi pages of 4 KiB are 256 GiB.
const MAX_PAGES: usize = 1 << 26;

/// The page table of a profile as CSV with numalize's columns.
#[must_use]
pub fn to_csv(profile: &Profile) -> String {
    let mut out = FIXED.join(",");
    for thread in 0..profile.threads().len() {
        out += &format!(",T{thread}");
    }
    out.push('\n');
    let mut counts = vec![0u64; profile.threads().len()];
    for page in profile.pages().pages() {
        let object = page.object.map(|at| profile.object(at));
        let name = object.map_or_else(String::new, |o| o.name.replace([',', '\n', '\r'], " "));
        let name = cell::cell(name.trim());
        let thread = |t: Option<ThreadIdx>| t.map_or_else(String::new, |t| t.0.to_string());
        out += &format!(
            "{},{},,{},,{name}",
            page.number.0,
            thread(object.and_then(|o| o.thread)),
            thread(page.first_touch)
        );
        counts.fill(0);
        for access in profile.pages().accesses(page) {
            counts[access.thread.index()] = access.total();
        }
        for count in &counts {
            out.push(',');
            out += &count.to_string();
        }
        out.push('\n');
    }
    out
}

/// The content of such a file.
#[derive(Debug)]
pub struct PageTable {
    /// Number of threads that have a column.
    pub threads: usize,
    /// Pages by ascending number; all accesses are counted as reads.
    pub pages: PageUsage,
    /// One per structure name: the span of its pages.
    pub objects: Vec<Object>,
}

struct Row {
    number: u64,
    first_touch: Option<u32>,
    name: Option<usize>,
    counts: Vec<(u32, u64)>,
}

/// A file that is read line by line.
struct Lines<'p> {
    path: &'p Path,
    input: BufReader<File>,
    /// Number of the current line, from 1.
    number: usize,
    line: String,
}

impl<'p> Lines<'p> {
    fn open(path: &'p Path) -> Result<Self, FormatError> {
        let file = numaloc_files::input::open(path)
            .map_err(|error| FormatError::io("read", path, error))?;
        Ok(Self {
            path,
            input: BufReader::new(file),
            number: 0,
            line: String::new(),
        })
    }

    /// Reads the next line; false at the end.
    fn next(&mut self) -> Result<bool, FormatError> {
        self.line.clear();
        let mut limited = self.input.by_ref().take(MAX_LINE_BYTES);
        let read = limited.read_line(&mut self.line);
        let read = read.map_err(|error| FormatError::io("read", self.path, error))?;
        if read as u64 == MAX_LINE_BYTES {
            let (found, expected) = ("an endless line", "lines of at most 2 MiB");
            return Err(self.fault_at(0, found, expected));
        }
        self.number += usize::from(read > 0);
        Ok(read > 0)
    }

    fn fault_at(
        &self,
        line: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> FormatError {
        FormatError::corrupt(self.path, format!("line {line}"), found, expected)
    }

    /// The error of the current line.
    fn fault(&self, found: impl Into<String>, expected: impl Into<String>) -> FormatError {
        self.fault_at(self.number.max(1), found, expected)
    }

    /// A field of the current line that is a whole number.
    fn whole(&self, field: &str) -> Result<u64, FormatError> {
        let number = field.trim().parse();
        number.map_err(|_| self.fault(format!("{field:?}"), "a whole number"))
    }
}

/// The rows of a file while it is read.
struct Rows {
    threads: usize,
    page_size: u64,
    /// Names of structures in the order of their first row.
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    /// Accesses so far.
    total: u64,
    rows: Vec<Row>,
}

impl Rows {
    /// Adds the current line, whose fields are those of the header.
    fn add(&mut self, fields: &[&str], lines: &Lines<'_>) -> Result<(), FormatError> {
        let number = lines.whole(fields[0])?;
        let most = u64::MAX / self.page_size.max(1);
        if number > most {
            let expected = format!("a page number, at most {most}");
            return Err(lines.fault(format!("{number}"), expected));
        }
        let first_touch = match fields[3].trim() {
            "" | "-1" => None,
            field => Some(lines.whole(field)?)
                .filter(|&t| t < self.threads as u64)
                .map(|t| t as u32),
        };
        let name = cell::text(fields[5].trim());
        let name = (!name.is_empty()).then(|| {
            *self.numbers.entry(name.to_owned()).or_insert_with(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            })
        });
        let mut counts = Vec::new();
        for (thread, field) in fields[FIXED.len()..].iter().enumerate() {
            let count = lines.whole(field)?;
            self.total = self
                .total
                .checked_add(count)
                .filter(|&total| total <= numaloc_model::profile::MAX_COUNTED)
                .ok_or_else(|| {
                    let expected = "accesses whose sum is at most 2^60";
                    lines.fault(format!("{field:?}"), expected)
                })?;
            if count > 0 {
                counts.push((thread as u32, count));
            }
        }
        self.rows.push(Row {
            number,
            first_touch,
            name,
            counts,
        });
        if self.rows.len() > MAX_PAGES {
            return Err(lines.fault("too many pages", "at most 67,108,864 pages"));
        }
        Ok(())
    }
}

/// Reads a file in numalize's format.
///
/// # Errors
/// [`FormatError`] with the line, what was found and what was expected.
pub fn read(path: &Path, page_size: u64) -> Result<PageTable, FormatError> {
    let mut lines = Lines::open(path)?;
    if !lines.next()? {
        return Err(lines.fault("an empty file", "numalize's page header"));
    }
    let header = lines.line.trim_end().split(',');
    let columns = header.clone().count();
    let fixed_matches = header.take(FIXED.len()).eq(FIXED);
    let threads = columns.saturating_sub(FIXED.len());
    if !fixed_matches || threads == 0 {
        let found: String = lines.line.trim_end().chars().take(60).collect();
        let expected = "page.address,alloc.thread,...,structure.name,T0,...";
        return Err(lines.fault(found, expected));
    }
    let mut rows = Rows {
        threads,
        page_size,
        names: Vec::new(),
        numbers: HashMap::new(),
        total: 0,
        rows: Vec::new(),
    };
    while lines.next()? {
        let text = lines.line.trim_end();
        if text.is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').collect();
        if fields.len() != columns {
            let found = format!("{} fields", fields.len());
            return Err(lines.fault(found, format!("{columns} fields")));
        }
        rows.add(&fields, &lines)?;
    }
    let Rows {
        names, mut rows, ..
    } = rows;
    rows.sort_by_key(|row| row.number);
    if let Some(twice) = rows.windows(2).find(|w| w[0].number == w[1].number) {
        let found = format!("page {} twice", twice[0].number);
        return Err(lines.fault(found, "every page once"));
    }
    Ok(build(threads, page_size, &names, rows))
}

fn build(threads: usize, page_size: u64, names: &[String], rows: Vec<Row>) -> PageTable {
    let mut span: Vec<Option<(u64, u64)>> = vec![None; names.len()];
    for row in &rows {
        if let Some(name) = row.name {
            let (low, _) = span[name].unwrap_or((row.number, row.number));
            span[name] = Some((low, row.number));
        }
    }
    let mut pages = PageUsage::new(page_size);
    for row in rows {
        let first = row
            .name
            .and_then(|name| span[name])
            .map_or(0, |(low, _)| low);
        let head = PageHead {
            number: PageNumber(row.number),
            object: row.name.map(ObjectIdx::from_index),
            object_page: row.name.map_or(0, |_| row.number - first),
            first_touch: row.first_touch.map(ThreadIdx),
            first_touch_time: 0,
            policy: None,
        };
        let accesses = row.counts.into_iter().map(|(thread, reads)| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        });
        pages.push(head, accesses.collect());
    }
    let objects = names
        .iter()
        .zip(&span)
        .map(|(name, span)| {
            let (low, high) = span.unwrap_or((0, 0));
            Object {
                kind: ObjectKind::Heap,
                name: name.clone(),
                size: (high - low + 1).saturating_mul(page_size),
                order: 0,
                thread: None,
                base: low.saturating_mul(page_size),
                variables: Vec::new(),
            }
        })
        .collect();
    PageTable {
        threads,
        pages,
        objects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<PageTable, FormatError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.csv");
        std::fs::write(&path, text).unwrap();
        read(&path, 4096)
    }

    const HEADER: &str = "page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1\n";

    #[test]
    fn reads_what_numalize_writes() {
        let table = read_text(&format!(
            "{HEADER}12,0,,1,,grid,5,0\n10,0,a.c:3,0,,grid,0,7\n11,,,,,,1,1\n"
        ))
        .unwrap();
        assert_eq!((table.threads, table.pages.pages().len()), (2, 3));
        assert_eq!(table.objects.len(), 1);
        assert_eq!(
            (table.objects[0].base, table.objects[0].size),
            (40960, 12288)
        );
        let last = &table.pages.pages()[2];
        assert_eq!(
            (last.object_page, last.first_touch),
            (2, Some(ThreadIdx(1)))
        );
        assert_eq!(table.pages.total(), 14);
    }

    #[test]
    fn errors_name_their_line() {
        for (text, word) in [
            (String::new(), "line 1"),
            ("a,b\n".to_owned(), "line 1"),
            (format!("{HEADER}1,,,,,x,1\n"), "line 2"),
            (format!("{HEADER}1,,,,,x,1,2\n2,,,,,x,1,-4\n"), "line 3"),
            (
                format!("{HEADER}1,,,,,x,1,2\n1,,,,,x,1,4\n"),
                "page 1 twice",
            ),
        ] {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }
}
