//! The structure of a `perf.data` file, checked against the file's length before it is used.
//!
//! Layout (tools/perf/Documentation/perf.data-file-format.txt in Linux): magic, sizes, and three sections
//! (attributes, data, an obsolete one) of offset and size, then 256 feature bits; feature sections follow the data.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::error::PerfError;
use crate::record::kind;

/// Bytes of the file header.
pub const SIZE: usize = 104;
/// Bytes of a pipe's header: perf writes this when its output is not a file.
const PIPE_SIZE: u64 = 16;
/// Bytes of the oldest `perf_event_attr`.
const OLDEST_ATTR: u64 = 64;
/// Bytes of a section: offset and size.
const SECTION: u64 = 16;
/// Limit on events and ids: more than CPUs times events of any recording.
const MAX_ATTRS: u64 = 4096;
const MAX_IDS: u64 = 1 << 20;
/// Limit on a feature: no command line is longer (`MAX_ARG_STRLEN` times a few).
const MAX_FEATURE: u64 = 4 << 20;

const FEATURE_COMMAND: u32 = 11;
const FEATURE_EVENTS: u32 = 12;

/// A range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// The fields of an attribute that are needed besides those of `linux-perf-data`, which drops bits unknown to it.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    pub read_format: u64,
    pub branch_type: u64,
    pub sample_id_all: bool,
}

/// A checked header.
#[derive(Debug)]
pub struct Header {
    big_endian: bool,
    attr_size: u64,
    /// Where the attributes are.
    pub attr_section: Section,
    /// The records, up to the last complete one.
    pub data: Section,
    /// Whether the file ends before its records do, or perf never wrote their size.
    pub cut_short: bool,
    /// By event.
    pub attrs: Vec<Attr>,
    /// By event; empty if the file has none.
    pub event_names: Vec<String>,
    /// Perf's command line; empty if the file has none.
    pub command: Vec<String>,
}

struct Checker<'a> {
    path: &'a Path,
    file: BufReader<File>,
    length: u64,
    big_endian: bool,
}

impl Checker<'_> {
    fn corrupt(&self, offset: u64, found: impl Into<String>, expected: &'static str) -> PerfError {
        PerfError::Corrupt {
            path: self.path.to_owned(),
            offset,
            found: found.into(),
            expected,
        }
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, PerfError> {
        let mut bytes = vec![0; length as usize];
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|error| PerfError::io("read", self.path, error))?;
        Ok(bytes)
    }

    fn u64(&self, bytes: &[u8]) -> u64 {
        let bytes = bytes[..8].try_into().expect("eight bytes");
        if self.big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        }
    }

    fn u32(&self, bytes: &[u8]) -> u32 {
        let bytes = bytes[..4].try_into().expect("four bytes");
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn u16(&self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn section(&self, bytes: &[u8]) -> Section {
        Section {
            offset: self.u64(bytes),
            size: self.u64(&bytes[8..]),
        }
    }

    fn inside(&self, section: Section) -> bool {
        section
            .offset
            .checked_add(section.size)
            .is_some_and(|end| end <= self.length)
    }
}

impl Checker<'_> {
    /// Walks the records in a range of the file. Returns where the last complete one ends.
    fn records(&mut self, range: Range<u64>, cut_short: &mut bool) -> Result<u64, PerfError> {
        let path = self.path;
        let io = |error| PerfError::io("read", path, error);
        let (mut at, end) = (range.start, range.end);
        self.file.seek(SeekFrom::Start(at)).map_err(io)?;
        while at < end {
            let mut head = [0; 16];
            let length = (end - at).min(8) as usize;
            self.file.read_exact(&mut head[..length]).map_err(io)?;
            let (record, size) = (self.u32(&head), u64::from(self.u16(&head[6..])));
            if length < 8 || at + size > end {
                *cut_short = true;
                break;
            }
            if size < 8 {
                if *cut_short {
                    break;
                }
                let found = format!("a record of {size} bytes");
                return Err(self.corrupt(at, found, "at least 8"));
            }
            if record == kind::AUXTRACE {
                return Err(PerfError::Unsupported {
                    path: path.to_owned(),
                    found: "it holds a raw hardware trace (Arm SPE or Intel PT)",
                    hint: "perf inject --itrace=M -i FILE -o DECODED, then import DECODED",
                });
            }
            at += size;
            self.file.seek_relative(size as i64 - 8).map_err(io)?;
        }
        Ok(at)
    }
}

impl Header {
    /// Reads and checks everything except the records' contents.
    ///
    /// # Errors
    /// [`PerfError`] with the offset of the error.
    pub fn read(path: &Path) -> Result<Self, PerfError> {
        let io = |error| PerfError::io("read", path, error);
        let not = |found: String| PerfError::NotPerfData {
            path: path.to_owned(),
            found,
        };
        let file = File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(not("not a regular file".to_owned()));
        }
        let length = about.len();
        let mut checker = Checker {
            path,
            file: BufReader::with_capacity(1 << 16, file),
            length,
            big_endian: false,
        };
        if length < PIPE_SIZE {
            return Err(not(format!("{length} bytes")));
        }
        let start = checker.read(0, PIPE_SIZE)?;
        checker.big_endian = match &start[..8] {
            b"PERFILE2" => false,
            b"2ELIFREP" => true,
            b"PERFFILE" => {
                return Err(PerfError::Unsupported {
                    path: path.to_owned(),
                    found: "a file of perf before Linux 2.6.38",
                    hint: "a newer perf",
                });
            }
            other => return Err(not(format!("it begins with {}", other.escape_ascii()))),
        };
        if checker.u64(&start[8..]) == PIPE_SIZE {
            return Err(PerfError::Unsupported {
                path: path.to_owned(),
                found: "perf wrote it through a pipe",
                hint: "record to a file: perf mem record -o FILE",
            });
        }
        if length < SIZE as u64 {
            return Err(not(format!("{length} bytes, its header alone has {SIZE}")));
        }
        let bytes = checker.read(0, SIZE as u64)?;
        let mut header = Self {
            big_endian: checker.big_endian,
            attr_size: checker.u64(&bytes[16..]),
            attr_section: checker.section(&bytes[24..]),
            data: checker.section(&bytes[40..]),
            cut_short: false,
            attrs: Vec::new(),
            event_names: Vec::new(),
            command: Vec::new(),
        };
        let features: Vec<u64> = (0..4)
            .map(|at| checker.u64(&bytes[72 + at * 8..]))
            .collect();
        header.check_attributes(&mut checker)?;
        let recorded = header.data;
        header.check_records(&mut checker)?;
        if !header.cut_short {
            header.read_features(&mut checker, recorded, &features);
        }
        Ok(header)
    }

    fn check_attributes(&mut self, checker: &mut Checker<'_>) -> Result<(), PerfError> {
        let section = self.attr_section;
        if self.attr_size < OLDEST_ATTR + SECTION || self.attr_size > 4096 {
            let found = format!("events of {} bytes", self.attr_size);
            return Err(checker.corrupt(16, found, "80 to 4096"));
        }
        let count = section.size / self.attr_size;
        if !checker.inside(section) {
            let found = format!(
                "events that end at {:#x}",
                section.offset.saturating_add(section.size)
            );
            return Err(checker.corrupt(24, found, "a section inside the file"));
        }
        if !section.size.is_multiple_of(self.attr_size) || count == 0 || count > MAX_ATTRS {
            let found = format!("{} bytes of events of {}", section.size, self.attr_size);
            return Err(checker.corrupt(32, found, "1 to 4096 whole events"));
        }
        let mut ids = 0_u64;
        for index in 0..count {
            let at = section.offset + index * self.attr_size;
            let bytes = checker.read(at, self.attr_size)?;
            let own = u64::from(checker.u32(&bytes[4..]));
            if own < OLDEST_ATTR || own > self.attr_size - SECTION {
                let found = format!("an event of {own} bytes");
                return Err(checker.corrupt(at + 4, found, "one that fits its table"));
            }
            let id_section = checker.section(&bytes[self.attr_size as usize - 16..]);
            ids = ids.saturating_add(id_section.size / 8);
            if !checker.inside(id_section) || ids > MAX_IDS {
                let found = format!("{} bytes of ids", id_section.size);
                let at = at + self.attr_size - SECTION;
                return Err(checker.corrupt(at, found, "ids inside the file, at most 2^20"));
            }
            self.attrs.push(Attr {
                read_format: checker.u64(&bytes[32..]),
                branch_type: if own >= 80 {
                    checker.u64(&bytes[72..])
                } else {
                    0
                },
                sample_id_all: checker.u64(&bytes[40..]) & (1 << 18) != 0,
            });
        }
        Ok(())
    }

    /// Walks the records; the data ends after the last complete one.
    fn check_records(&mut self, checker: &mut Checker<'_>) -> Result<(), PerfError> {
        let data = self.data;
        if data.offset < SIZE as u64 || data.offset > checker.length {
            let found = format!("records at {:#x}", data.offset);
            return Err(checker.corrupt(40, found, "records between header and end of file"));
        }
        // perf writes the size when it ends; 0 means that it did not.
        let claimed = data.offset.checked_add(data.size);
        let unfinished = data.size == 0 && data.offset < checker.length;
        let end = match claimed {
            Some(end) if end <= checker.length && !unfinished => end,
            _ => {
                self.cut_short = true;
                checker.length
            }
        };
        let at = checker.records(data.offset..end, &mut self.cut_short)?;
        self.data.size = at - data.offset;
        Ok(())
    }

    /// The size of the complete records in a file that holds nothing else: what a thread of `perf record --threads`
    /// wrote.
    ///
    /// # Errors
    /// [`PerfError`] with the offset of the error.
    pub fn of_thread(&mut self, path: &Path) -> Result<u64, PerfError> {
        let io = |error| PerfError::io("read", path, error);
        let file = File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(PerfError::NotPerfData {
                path: path.to_owned(),
                found: "not a regular file".to_owned(),
            });
        }
        let mut checker = Checker {
            path,
            file: BufReader::with_capacity(1 << 16, file),
            length: about.len(),
            big_endian: self.big_endian,
        };
        checker.records(0..about.len(), &mut self.cut_short)
    }

    /// Reads command line and event names. They are optional, so corrupt ones are left out.
    fn read_features(&mut self, checker: &mut Checker<'_>, data: Section, features: &[u64]) {
        let table = data.offset + data.size;
        let mut position = 0;
        for feature in 0..256_u32 {
            if features[feature as usize / 64] >> (feature % 64) & 1 == 0 {
                continue;
            }
            let at = table + position * SECTION;
            position += 1;
            if feature != FEATURE_COMMAND && feature != FEATURE_EVENTS {
                continue;
            }
            let Ok(entry) = checker.read(at, SECTION) else {
                return;
            };
            let section = checker.section(&entry);
            if !checker.inside(section) || section.size > MAX_FEATURE {
                continue;
            }
            let Ok(bytes) = checker.read(section.offset, section.size) else {
                return;
            };
            if feature == FEATURE_COMMAND {
                self.command = strings(checker, &bytes).unwrap_or_default();
            } else {
                self.event_names =
                    event_names(checker, &bytes, self.attrs.len()).unwrap_or_default();
            }
        }
    }

    /// The header passed to `linux-perf-data`: the checked sections, no features, and the
    /// attributes as the obsolete section, because that crate reads the ids of that one. `size`: bytes of the records.
    #[must_use]
    pub fn rewritten(&self, size: u64) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(if self.big_endian {
            b"2ELIFREP"
        } else {
            b"PERFILE2"
        });
        let words = [
            SIZE as u64,
            self.attr_size - SECTION,
            self.attr_section.offset,
            self.attr_section.size,
            self.data.offset,
            size,
            self.attr_section.offset,
            self.attr_section.size,
        ];
        for (at, word) in words.into_iter().enumerate() {
            let word = if self.big_endian {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            };
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&word);
        }
        bytes
    }
}

/// A perf string: its padded length, then text up to NUL.
fn string(checker: &Checker<'_>, bytes: &mut &[u8]) -> Option<String> {
    let length = checker.u32(bytes.get(..4)?) as usize;
    let text = bytes.get(4..4_usize.checked_add(length)?)?;
    *bytes = &bytes[4 + length..];
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(length);
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

fn strings(checker: &Checker<'_>, mut bytes: &[u8]) -> Option<Vec<String>> {
    let count = checker.u32(bytes.get(..4)?);
    bytes = &bytes[4..];
    (0..count).map(|_| string(checker, &mut bytes)).collect()
}

fn event_names(checker: &Checker<'_>, mut bytes: &[u8], events: usize) -> Option<Vec<String>> {
    let count = checker.u32(bytes.get(..4)?) as usize;
    let attr_size = checker.u32(bytes.get(4..8)?) as usize;
    bytes = &bytes[8..];
    if count != events {
        return None;
    }
    (0..count)
        .map(|_| {
            let ids = checker.u32(bytes.get(attr_size..attr_size.checked_add(4)?)?) as usize;
            bytes = &bytes[attr_size + 4..];
            let name = string(checker, &mut bytes)?;
            bytes = bytes.get(ids.checked_mul(8)?..)?;
            Some(name)
        })
        .collect()
}
