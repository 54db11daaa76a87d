//! The journal: what the tracing side leaves behind, readable up to the last frame whatever happens.
//!
//! One file for each process image, append only. A frame is one `write(2)` of
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic `NLJ1` |
//! | 4..8 | length of the payload, little endian |
//! | 8..12 | CRC-32 of the payload |
//! | 12.. | records, each a kind byte and LEB128 numbers |
//!
//! The file is opened with `O_APPEND`, so frames of several threads do not mix and no lock is needed. After the first
//! write that fails (disk full) nothing more is written: the journal stays a prefix of the run. A reader stops at the first
//! frame that is incomplete or fails its checksum.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"NLJ1";
/// Version of the records; raised when their meaning changes.
pub const VERSION: u64 = 3;
/// In the number of a source thread: it is that of [`Record::CommonNumber`], perhaps in another journal.
pub const COMMON_NUMBER: u32 = 1 << 31;
/// Longest payload a reader accepts.
const MAX_PAYLOAD: usize = 1 << 28;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// First record of a journal.
    Process {
        /// [`VERSION`] of the writer.
        version: u64,
        /// Process id.
        pid: u32,
        /// Path of the process's first thread.
        path: String,
        /// Which image of the process this is: 0, and one more after each `execve`.
        image: u32,
        /// Frontend's name.
        frontend: String,
        /// Whether times are virtual (accesses) or wall (ns).
        virtual_clock: bool,
        /// log2 of the line size.
        line_shift: u32,
        /// Millionths of the time that are watched.
        share: u32,
        /// Millionths of the lines that are watched.
        lines: u32,
        /// The program's file.
        program: String,
    },
    /// A thread began.
    ThreadStart {
        /// Number of the thread in this journal, from 0.
        thread: u32,
        /// Stable path.
        path: String,
        /// Kernel's id.
        tid: u32,
        /// When.
        time: u64,
        /// Address of its start routine, 0 where unknown.
        routine: u64,
    },
    /// Totals of a thread so far; the last one counts.
    ThreadTotals {
        /// Which.
        thread: u32,
        /// When.
        time: u64,
        /// Loads and stores.
        accesses: u64,
        /// Those of them that were looked at: all, or those in bursts.
        seen: u64,
        /// Bytes loaded by accesses that were looked at.
        read_bytes: u64,
        /// Bytes stored by accesses that were looked at.
        write_bytes: u64,
    },
    /// Communication towards a thread in a slice.
    Comm {
        /// The reader (directed layers).
        thread: u32,
        /// [`numaloc_model::Layer::ALL`] index.
        layer: u8,
        /// Start of the slice.
        start: u64,
        /// Length of the slice.
        length: u64,
        /// Source thread (or [`COMMON_NUMBER`]), events, bytes.
        cells: Vec<(u32, u64, u64)>,
    },
    /// Page accesses of a thread since its last such record.
    Pages {
        /// Who.
        thread: u32,
        /// Start of the span.
        start: u64,
        /// Length of the span.
        length: u64,
        /// Page (of 4 KiB), reads, writes; ascending.
        cells: Vec<(u64, u64, u64)>,
    },
    /// Pages a thread touched first, and when.
    FirstTouch {
        /// Who.
        thread: u32,
        /// Page (of 4 KiB), time.
        cells: Vec<(u64, u64)>,
    },
    /// A mapping was made (or moved here by `mremap` when `moved_from` is not 0).
    Map {
        /// Order among the process's memory events.
        sequence: u64,
        /// By whom.
        thread: u32,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
        /// `PROT_*`.
        protection: u64,
        /// `MAP_*`.
        flags: u64,
        /// Mapped file, empty for anonymous memory.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// Earlier address, 0 when new.
        moved_from: u64,
    },
    /// A range was unmapped.
    Unmap {
        /// Order among the process's memory events.
        sequence: u64,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// The mapping at `address` is of memory that other processes may map too; follows its `Map`.
    Backing {
        /// Order among the process's memory events.
        sequence: u64,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
        /// What is mapped: a number that is the same in all processes of the recording.
        object: u32,
        /// Of the first byte in it.
        offset: u64,
    },
    /// A thread gave itself a name.
    ThreadName {
        /// Which.
        thread: u32,
        /// As the kernel keeps it: 15 bytes at most.
        name: String,
    },
    /// A call stack from which memory was allocated; before the first `Block` that names it.
    Site {
        /// Number in this journal.
        site: u32,
        /// Return addresses, innermost first.
        frames: Vec<u64>,
    },
    /// A block of memory was allocated.
    Block {
        /// Order among the process's memory events.
        sequence: u64,
        /// By whom.
        thread: u32,
        /// First byte.
        address: u64,
        /// Bytes asked for.
        length: u64,
        /// From where.
        site: u32,
    },
    /// A thread's number among all threads of the recording that use shared memory.
    CommonNumber {
        /// Which.
        thread: u32,
        /// Its number there.
        number: u32,
    },
    /// The program break is here now.
    Break {
        /// Order among the process's memory events.
        sequence: u64,
        /// Address.
        address: u64,
    },
    /// A thread was given a stack pointer.
    Stack {
        /// Order among the process's memory events.
        sequence: u64,
        /// Path of the new thread.
        path: String,
        /// The stack pointer.
        pointer: u64,
    },
    /// An ELF file that was in memory before the first instruction.
    Image {
        /// Its file.
        file: String,
        /// Address of its first byte.
        start: u64,
        /// First address after it.
        end: u64,
    },
    /// The lines a thread accessed in a slice (layer `shared_line`).
    Lines {
        /// Who.
        thread: u32,
        /// Start of the slice.
        start: u64,
        /// Length of the slice.
        length: u64,
        /// Line numbers, ascending.
        lines: Vec<u64>,
    },
    /// The lines a process communicated through: line number, events, false events.
    SharedLines(Vec<(u64, u64, u64)>),
    /// Events of a cell in each part of the lines watched ([`crate::watch`]); several such records add up.
    Groups {
        /// The reader.
        thread: u32,
        /// As in `Comm`.
        layer: u8,
        /// The writer.
        src: u32,
        /// By part.
        counts: Vec<u64>,
    },
    /// Detail was given up to keep to the memory bound: a sentence.
    Reduced(String),
    /// Something a reader of the profile should know.
    Note(String),
    /// The process ended and everything was written.
    End,
}

/// Appends LEB128 numbers and strings.
struct Encoder<'a>(&'a mut Vec<u8>);

impl Encoder<'_> {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn numbers(&mut self, values: &[u64]) {
        for &value in values {
            self.number(value);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

impl Record {
    /// Appends the record to a payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Encoder(out);
        match self {
            Self::Process {
                version,
                pid,
                path,
                image,
                frontend,
                virtual_clock,
                line_shift,
                share,
                lines,
                program,
            } => {
                to.numbers(&[1, *version, (*pid).into()]);
                to.text(path);
                to.number((*image).into());
                to.text(frontend);
                to.numbers(&[
                    (*virtual_clock).into(),
                    (*line_shift).into(),
                    (*share).into(),
                    (*lines).into(),
                ]);
                to.text(program);
            }
            Self::ThreadStart {
                thread,
                path,
                tid,
                time,
                routine,
            } => {
                to.numbers(&[2, (*thread).into()]);
                to.text(path);
                to.numbers(&[(*tid).into(), *time, *routine]);
            }
            Self::ThreadTotals {
                thread,
                time,
                accesses,
                seen,
                read_bytes,
                write_bytes,
            } => to.numbers(&[
                3,
                (*thread).into(),
                *time,
                *accesses,
                *seen,
                *read_bytes,
                *write_bytes,
            ]),
            Self::Comm {
                thread,
                layer,
                start,
                length,
                cells,
            } => {
                to.numbers(&[4, (*thread).into(), (*layer).into(), *start, *length]);
                to.number(cells.len() as u64);
                for &(src, events, bytes) in cells {
                    to.numbers(&[src.into(), events, bytes]);
                }
            }
            Self::Pages {
                thread,
                start,
                length,
                cells,
            } => {
                to.numbers(&[5, (*thread).into(), *start, *length]);
                to.number(cells.len() as u64);
                let mut last = 0;
                for &(page, reads, writes) in cells {
                    to.numbers(&[page.wrapping_sub(last), reads, writes]);
                    last = page;
                }
            }
            Self::FirstTouch { thread, cells } => {
                to.numbers(&[6, (*thread).into(), cells.len() as u64]);
                for &(page, time) in cells {
                    to.numbers(&[page, time]);
                }
            }
            Self::Map {
                sequence,
                thread,
                address,
                length,
                protection,
                flags,
                file,
                offset,
                moved_from,
            } => {
                to.numbers(&[7, *sequence, (*thread).into(), *address, *length]);
                to.numbers(&[*protection, *flags]);
                to.text(file);
                to.numbers(&[*offset, *moved_from]);
            }
            Self::Unmap {
                sequence,
                address,
                length,
            } => to.numbers(&[8, *sequence, *address, *length]),
            Self::Break { sequence, address } => to.numbers(&[9, *sequence, *address]),
            Self::Stack {
                sequence,
                path,
                pointer,
            } => {
                to.numbers(&[10, *sequence]);
                to.text(path);
                to.number(*pointer);
            }
            Self::Image { file, start, end } => {
                to.number(11);
                to.text(file);
                to.numbers(&[*start, *end]);
            }
            Self::Note(text) => {
                to.number(12);
                to.text(text);
            }
            Self::Reduced(text) => {
                to.number(17);
                to.text(text);
            }
            Self::End => to.number(13),
            Self::SharedLines(cells) => {
                to.numbers(&[15, cells.len() as u64]);
                for &(line, events, false_events) in cells {
                    to.numbers(&[line, events, false_events]);
                }
            }
            Self::Groups {
                thread,
                layer,
                src,
                counts,
            } => {
                to.numbers(&[16, (*thread).into(), (*layer).into(), (*src).into()]);
                to.number(counts.len() as u64);
                to.numbers(counts);
            }
            Self::Backing {
                sequence,
                address,
                length,
                object,
                offset,
            } => to.numbers(&[18, *sequence, *address, *length, (*object).into(), *offset]),
            Self::ThreadName { thread, name } => {
                to.numbers(&[32, (*thread).into()]);
                to.text(name);
            }
            Self::Site { site, frames } => {
                to.numbers(&[30, (*site).into(), frames.len() as u64]);
                to.numbers(frames);
            }
            Self::Block {
                sequence,
                thread,
                address,
                length,
                site,
            } => to.numbers(&[
                31,
                *sequence,
                (*thread).into(),
                *address,
                *length,
                (*site).into(),
            ]),
            Self::CommonNumber { thread, number } => {
                to.numbers(&[19, (*thread).into(), (*number).into()]);
            }
            Self::Lines {
                thread,
                start,
                length,
                lines,
            } => {
                to.numbers(&[14, (*thread).into(), *start, *length]);
                to.number(lines.len() as u64);
                let mut last = 0;
                for &line in lines {
                    to.number(line.wrapping_sub(last));
                    last = line;
                }
            }
        }
    }
}

/// Takes LEB128 numbers and strings off a payload; `None` at its end or for an impossible value.
struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Millionths, more than none.
    fn share(&mut self) -> Option<u32> {
        self.small().filter(|share| (1..=1_000_000).contains(share))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // An item takes a byte at least: a count beyond the payload is damage, not a reason to allocate.
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.number()? {
            1 => Record::Process {
                version: self.number()?,
                pid: self.small()?,
                path: self.text()?,
                image: self.small()?,
                frontend: self.text()?,
                virtual_clock: self.number()? != 0,
                line_shift: self.small().filter(|&shift| shift < 20)?,
                share: self.share()?,
                lines: self.share()?,
                program: self.text()?,
            },
            2 => Record::ThreadStart {
                thread: self.small()?,
                path: self.text()?,
                tid: self.small()?,
                time: self.number()?,
                routine: self.number()?,
            },
            3 => Record::ThreadTotals {
                thread: self.small()?,
                time: self.number()?,
                accesses: self.number()?,
                seen: self.number()?,
                read_bytes: self.number()?,
                write_bytes: self.number()?,
            },
            4 => Record::Comm {
                thread: self.small()?,
                layer: u8::try_from(self.number()?).ok()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                cells: self.list(|from| Some((from.small()?, from.number()?, from.number()?)))?,
            },
            5 => Record::Pages {
                thread: self.small()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                cells: {
                    let mut last = 0u64;
                    self.list(|from| {
                        last = last.wrapping_add(from.number()?);
                        Some((last, from.number()?, from.number()?))
                    })?
                },
            },
            6 => Record::FirstTouch {
                thread: self.small()?,
                cells: self.list(|from| Some((from.number()?, from.number()?)))?,
            },
            7 => Record::Map {
                sequence: self.number()?,
                thread: self.small()?,
                address: self.number()?,
                length: self.number()?,
                protection: self.number()?,
                flags: self.number()?,
                file: self.text()?,
                offset: self.number()?,
                moved_from: self.number()?,
            },
            8 => Record::Unmap {
                sequence: self.number()?,
                address: self.number()?,
                length: self.number()?,
            },
            9 => Record::Break {
                sequence: self.number()?,
                address: self.number()?,
            },
            10 => Record::Stack {
                sequence: self.number()?,
                path: self.text()?,
                pointer: self.number()?,
            },
            11 => Record::Image {
                file: self.text()?,
                start: self.number()?,
                end: self.number()?,
            },
            12 => Record::Note(self.text()?),
            13 => Record::End,
            14 => Record::Lines {
                thread: self.small()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                lines: {
                    let mut last = 0u64;
                    self.list(|from| {
                        last = last.wrapping_add(from.number()?);
                        Some(last)
                    })?
                },
            },
            15 => Record::SharedLines(
                self.list(|from| Some((from.number()?, from.number()?, from.number()?)))?,
            ),
            17 => Record::Reduced(self.text()?),
            16 => Record::Groups {
                thread: self.small()?,
                layer: u8::try_from(self.number()?).ok()?,
                src: self.small()?,
                counts: self.list(Decoder::number)?,
            },
            18 => Record::Backing {
                sequence: self.number()?,
                address: self.number()?,
                length: self.number()?,
                object: self.small()?,
                offset: self.number()?,
            },
            19 => Record::CommonNumber {
                thread: self.small()?,
                number: self.small()?,
            },
            32 => Record::ThreadName {
                thread: self.small()?,
                name: self.text()?,
            },
            30 => Record::Site {
                site: self.small()?,
                frames: self.list(Decoder::number)?,
            },
            31 => Record::Block {
                sequence: self.number()?,
                thread: self.small()?,
                address: self.number()?,
                length: self.number()?,
                site: self.small()?,
            },
            _ => return None,
        })
    }
}

/// The writing end.
///
/// The descriptor lives in the traced program's table, and some programs close descriptors they never opened. So it
/// is moved to a high number, and before each frame we look whether it still is our file: writing to whatever the program has put
/// there would be worse than losing the trace.
pub struct Journal {
    file: ManuallyDrop<File>,
    identity: (u64, u64),
    failed: AtomicBool,
}

impl Journal {
    /// Creates the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let file = File::options().append(true).create_new(true).open(path)?;
        let file = File::from(out_of_the_way(file.into()));
        let data = file.metadata()?;
        Ok(Self {
            file: ManuallyDrop::new(file),
            identity: (data.dev(), data.ino()),
            failed: AtomicBool::new(false),
        })
    }

    fn still_ours(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|data| (data.dev(), data.ino()) == self.identity)
    }

    /// Writes `payload` as one frame and empties it; does nothing after a failure.
    ///
    /// `payload` must have been started with [`Journal::begin`].
    pub fn append(&self, payload: &mut Vec<u8>) {
        if payload.len() > FRAME_HEAD && !self.failed.load(Ordering::Relaxed) {
            let body = &payload[FRAME_HEAD..];
            let (length, crc) = (body.len() as u32, crc32fast::hash(body));
            payload[..4].copy_from_slice(&MAGIC);
            payload[4..8].copy_from_slice(&length.to_le_bytes());
            payload[8..12].copy_from_slice(&crc.to_le_bytes());
            // One write: a second one could land behind another thread's frame.
            let written = loop {
                if !self.still_ours() {
                    break Err(std::io::ErrorKind::NotFound.into());
                }
                match (&*self.file).write(payload) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            if written.is_err() || written.is_ok_and(|count| count < payload.len()) {
                self.failed.store(true, Ordering::Relaxed);
            }
        }
        Self::begin(payload);
    }

    /// Makes room for the frame's head.
    pub fn begin(payload: &mut Vec<u8>) {
        payload.clear();
        payload.resize(FRAME_HEAD, 0);
    }

    /// Writes nothing more.
    pub fn stop(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether a write has failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The same file under a high descriptor number where there is one: low numbers are the program's, which may expect them.
pub(crate) fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let from = limit.rlim_cur.min(1 << 16).saturating_sub(64) as libc::c_int;
    // SAFETY: duplicates a descriptor that `file` keeps open.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from) };
    if high < 0 {
        return file;
    }
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(high) }
}

/// Bytes before a frame's payload.
const FRAME_HEAD: usize = 12;

/// Calls `visit` with each record of a journal, and says whether the file ended where a frame ends.
pub fn replay(mut bytes: &[u8], mut visit: impl FnMut(Record)) -> bool {
    while let Some((head, rest)) = bytes.split_at_checked(FRAME_HEAD) {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let length = word(4) as usize;
        let payload = match rest.get(..length) {
            Some(payload)
                if head[..4] == MAGIC
                    && length <= MAX_PAYLOAD
                    && crc32fast::hash(payload) == word(8) =>
            {
                payload
            }
            _ => return false,
        };
        let mut decoder = Decoder(payload);
        while !decoder.0.is_empty() {
            match decoder.record() {
                Some(record) => visit(record),
                None => return false,
            }
        }
        bytes = &rest[length..];
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Record> {
        vec![
            Record::Process {
                version: VERSION,
                pid: 7,
                path: "0".into(),
                image: 0,
                frontend: "qemu".into(),
                virtual_clock: true,
                line_shift: 6,
                share: 50_000,
                lines: 1_000_000,
                program: "/bin/true".into(),
            },
            Record::Comm {
                thread: 1,
                layer: 0,
                start: 65536,
                length: 65536,
                cells: vec![(0, 3, 24), (70000, u64::MAX, 1)],
            },
            Record::Pages {
                thread: 1,
                start: 0,
                length: 1,
                cells: vec![(5, 1, 2), (9, 0, u64::MAX)],
            },
            Record::SharedLines(vec![(1 << 40, 9, 3), (0, 1, 0)]),
            Record::Groups {
                thread: 2,
                layer: 6,
                src: 1,
                counts: vec![0, 7, u64::MAX],
            },
            Record::Backing {
                sequence: 3,
                address: 0x7000_0000,
                length: 1 << 30,
                object: 65535,
                offset: 1 << 40,
            },
            Record::CommonNumber {
                thread: 1,
                number: 70000,
            },
            Record::ThreadName {
                thread: 1,
                name: "GC Thread#0".into(),
            },
            Record::Site {
                site: 3,
                frames: vec![u64::MAX, 5],
            },
            Record::Block {
                sequence: 9,
                thread: 1,
                address: 1 << 46,
                length: 40,
                site: 3,
            },
            Record::End,
        ]
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let journal = Journal::create(&path).unwrap();
        let mut payload = Vec::new();
        Journal::begin(&mut payload);
        for record in records {
            record.encode(&mut payload);
            journal.append(&mut payload);
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut seen = Vec::new();
        assert!(replay(&written(&sample()), |record| seen.push(record)));
        assert_eq!(seen, sample());
    }

    #[test]
    fn every_cut_and_every_flipped_byte_leaves_a_prefix() {
        let bytes = written(&sample());
        for cut in 0..bytes.len() {
            let mut seen = Vec::new();
            replay(&bytes[..cut], |record| seen.push(record));
            assert!(sample().starts_with(&seen), "cut at {cut}");
            let mut damaged = bytes.clone();
            damaged[cut] ^= 0x10;
            let mut seen = Vec::new();
            assert!(
                !replay(&damaged, |record| seen.push(record)),
                "byte {cut} flipped"
            );
            assert!(sample().starts_with(&seen), "byte {cut} flipped");
        }
    }
}
