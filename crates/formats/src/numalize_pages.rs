//! Reads and writes page use in numalize's format: CSV with the header
//! `page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1,...`.
//!
//! `page.address` is the page *number* in decimal; `T0...` are accesses, reads and writes
//! together. Fields are not quoted; a comma in a name is replaced by a blank.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

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
    for thread in 0..profile.threads.len() {
        out += &format!(",T{thread}");
    }
    out.push('\n');
    let mut counts = vec![0u64; profile.threads.len()];
    for page in profile.pages.pages() {
        let object = page.object.map(|at| profile.object(at));
        let name = object.map_or_else(String::new, |o| o.name.replace([',', '\n', '\r'], " "));
        let thread = |t: Option<ThreadIdx>| t.map_or_else(String::new, |t| t.0.to_string());
        out += &format!(
            "{},{},,{},,{name}",
            page.number.0,
            thread(object.and_then(|o| o.thread)),
            thread(page.first_touch)
        );
        counts.fill(0);
        for access in profile.pages.accesses(page) {
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

/// Reads a file in numalize's format.
///
/// # Errors
/// [`FormatError`] with the line, what was found and what was expected.
pub fn read(path: &Path, page_size: u64) -> Result<PageTable, FormatError> {
    let io = |error| FormatError::io("read", path, error);
    let file = std::fs::File::open(path).map_err(io)?;
    let mut input = BufReader::new(file);
    let fail = |line: usize, found: String, expected: &str| {
        FormatError::corrupt(path, format!("line {line}"), found, expected.to_owned())
    };
    let mut line = String::new();
    let mut next = |line: &mut String| -> Result<bool, FormatError> {
        line.clear();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_line(line)
            .map_err(io)?;
        if read as u64 == MAX_LINE_BYTES {
            return Err(fail(0, "an endless line".into(), "lines of at most 2 MiB"));
        }
        Ok(read > 0)
    };
    if !next(&mut line)? {
        return Err(fail(1, "an empty file".into(), "numalize's page header"));
    }
    let header_line = line.clone();
    let header: Vec<&str> = header_line.trim_end().split(',').collect();
    let fixed_matches = header.len() >= FIXED.len() && header[..FIXED.len()] == FIXED;
    let threads = header.len().saturating_sub(FIXED.len());
    if !fixed_matches || threads == 0 {
        let found = line.trim_end().chars().take(60).collect();
        return Err(fail(
            1,
            found,
            "page.address,alloc.thread,...,structure.name,T0,...",
        ));
    }
    let mut names: Vec<String> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut total = 0u64;
    let mut rows: Vec<Row> = Vec::new();
    let mut number = 1;
    while next(&mut line)? {
        number += 1;
        let text = line.trim_end();
        if text.is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').collect();
        if fields.len() != header.len() {
            let found = format!("{} fields", fields.len());
            return Err(fail(number, found, &format!("{} fields", header.len())));
        }
        let whole = |field: &str| {
            field
                .trim()
                .parse::<u64>()
                .map_err(|_| fail(number, format!("{field:?}"), "a whole number"))
        };
        let page = whole(fields[0])?;
        if page > u64::MAX / page_size.max(1) {
            let expected = format!("a page number, at most {}", u64::MAX / page_size.max(1));
            return Err(fail(number, format!("{page}"), &expected));
        }
        let first_touch = match fields[3].trim() {
            "" | "-1" => None,
            field => Some(whole(field)?)
                .filter(|&t| t < threads as u64)
                .map(|t| t as u32),
        };
        let name = fields[5].trim();
        let name = (!name.is_empty()).then(|| {
            *numbers.entry(name.to_owned()).or_insert_with(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        });
        let mut counts = Vec::new();
        for (thread, field) in fields[FIXED.len()..].iter().enumerate() {
            let count = whole(field)?;
            total = total
                .checked_add(count)
                .filter(|&total| total <= crate::profile::MAX_COUNTED)
                .ok_or_else(|| {
                    fail(
                        number,
                        format!("{field:?}"),
                        "accesses whose sum is at most 2^60",
                    )
                })?;
            if count > 0 {
                counts.push((thread as u32, count));
            }
        }
        rows.push(Row {
            number: page,
            first_touch,
            name,
            counts,
        });
        if rows.len() > MAX_PAGES {
            return Err(fail(
                number,
                "too many pages".into(),
                "at most 67,108,864 pages",
            ));
        }
    }
    rows.sort_by_key(|row| row.number);
    if let Some(twice) = rows.windows(2).find(|w| w[0].number == w[1].number) {
        let found = format!("page {} twice", twice[0].number);
        return Err(fail(number, found, "every page once"));
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
