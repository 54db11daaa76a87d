//! Reads a trace file into events.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use numaloc_access_trace::columns::Columns;
use numaloc_access_trace::message::{Block, Head, Message, SharedPages, Thread, Unreadable};
use numaloc_access_trace::windows::{Mark, Part, Thinner, Windows};
use numaloc_access_trace::{BLOCK_BYTES, Kind, Record, VERSION};
use numaloc_model::trace::{Action, Event, TracePart};

use super::{FRAME_HEAD, MAGIC, MAX_MESSAGE_BYTES};
use crate::error::FormatError;

/// log2 of the address distance in bytes between the memory of consecutive process images: 2^40 pages of 4 KiB, as in
/// `pages`.
const SPACE_SHIFT: u32 = 52;

/// log2 of the bytes of a word of synchronisation.
const WORD_SHIFT: u32 = 2;

/// Sums over the heads of a thread's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of records.
    pub records: u64,
    /// Number of loads and stores.
    pub accesses: u64,
    /// Accesses to lines that hit in the first-level cache.
    pub l1_hits: u64,
    /// Accesses to lines that hit in the second-level cache.
    pub l2_hits: u64,
    /// Misses of lines that another thread had written since they were fetched.
    pub coherence_misses: u64,
    /// Bytes in the file.
    pub bytes: u64,
}

impl Tally {
    /// The counts in a block's head.
    fn of(at: &BlockAt) -> Self {
        Self {
            records: at.block.count.into(),
            accesses: at.block.accesses,
            l1_hits: at.block.l1_hits,
            l2_hits: at.block.l2_hits,
            coherence_misses: at.block.coherence_misses,
            bytes: (FRAME_HEAD + at.length) as u64,
        }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            records: a.records.saturating_add(b.records),
            accesses: a.accesses.saturating_add(b.accesses),
            l1_hits: a.l1_hits.saturating_add(b.l1_hits),
            l2_hits: a.l2_hits.saturating_add(b.l2_hits),
            coherence_misses: a.coherence_misses.saturating_add(b.coherence_misses),
            bytes: a.bytes.saturating_add(b.bytes),
        })
    }
}

/// A thread of a trace.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Stable path, which identifies it in the profile's `threads`.
    pub path: String,
    /// Its virtual clock when it began.
    pub start: u64,
    /// Sums over its blocks.
    pub tally: Tally,
    blocks: Vec<BlockAt>,
}

#[derive(Clone, Copy, Debug)]
struct BlockAt {
    /// Offset of the frame.
    offset: u64,
    /// Length of the message.
    length: usize,
    block: Block,
}

/// A trace file whose frames have been checked.
#[derive(Debug)]
pub struct AccessTrace {
    path: PathBuf,
    file: File,
    /// The process and its cache filter.
    pub head: Head,
    /// Threads, in the order of their numbers in the process.
    pub streams: Vec<Stream>,
    /// The process ended and everything it reported is here.
    pub complete: bool,
    /// Why recording stopped before the process ended, if it did.
    pub cut: Option<String>,
    /// Bytes at the end that are no complete frame: a write was interrupted there.
    pub torn_bytes: u64,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Process image of the profile, which distinguishes its lines and words from those of other images.
    image: u64,
    /// Memory that an earlier process image has mapped too, in the order of its addresses.
    shared: Vec<SharedPages>,
    /// Windows to which a trace with all requests is reduced as it is read.
    reduced: Option<Windows>,
}

/// One frame: its message, or why it has none.
enum Frame {
    Message(Vec<u8>),
    Torn,
    End,
}

impl AccessTrace {
    /// Opens the trace of the profile's `image`-th process image and checks every frame.
    ///
    /// Memory: about 100 bytes per block of up to 16,384 records.
    ///
    /// # Errors
    /// [`FormatError`]. A truncated file is no error: see `torn_bytes`.
    pub fn open(path: &Path, image: u64) -> Result<Self, FormatError> {
        let read_error = |error| FormatError::io("read", path, error);
        let file = numaloc_files::input::open(path).map_err(read_error)?;
        let bytes = file.metadata().map_err(read_error)?.len();
        let mut reader = BufReader::with_capacity(1 << 16, &file);
        let mut frames = Frames::default();
        let mut offset = 0;
        let mut torn_bytes = 0;
        loop {
            match frame(&mut reader).map_err(read_error)? {
                Frame::Message(message) => {
                    frames.message(path, offset, &message)?;
                    offset += (FRAME_HEAD + message.len()) as u64;
                }
                Frame::Torn => {
                    torn_bytes = bytes.saturating_sub(offset);
                    break;
                }
                Frame::End => break,
            }
        }
        let Some(head) = frames.head.take() else {
            return Err(FormatError::WrongKind {
                path: path.to_owned(),
                found: format!(
                    "{bytes} bytes that do not begin with {}",
                    MAGIC.escape_ascii()
                ),
                expected: "numaloc access trace",
            });
        };
        let (streams, whole) = frames.streams();
        let shared = frames.shared;
        Ok(Self {
            path: path.to_owned(),
            file,
            head,
            streams,
            complete: frames.ended && whole && torn_bytes == 0,
            cut: frames.cut,
            torn_bytes,
            bytes,
            image,
            shared,
            reduced: None,
        })
    }

    /// The byte address in the profile's numbering of one of this process image: lines of memory that processes share
    /// are those of the first process image that mapped it.
    fn address(&self, own: u64) -> u64 {
        let page = own >> SharedPages::SHIFT;
        let behind = self.shared.partition_point(|range| range.first <= page);
        if let Some(range) = self.shared[..behind].last()
            && page - range.first < range.pages
        {
            return own
                .wrapping_add(range.known_as.wrapping_sub(range.first) << SharedPages::SHIFT);
        }
        own.wrapping_add(self.image << SPACE_SHIFT)
    }

    /// Adds what an earlier process image has mapped too, in the order of addresses: to the file, and to the trace.
    ///
    /// # Errors
    /// [`FormatError::Io`]: the file is as it was before.
    pub fn add_shared(&mut self, ranges: &[SharedPages]) -> Result<(), FormatError> {
        // Behind an incomplete frame nothing would be read.
        let kept = self.bytes - self.torn_bytes;
        self.bytes = super::write::append_shared(&self.path, kept, ranges)?;
        self.torn_bytes = 0;
        self.shared.extend_from_slice(ranges);
        Ok(())
    }

    /// The same trace as one of the profile's `image`-th process image.
    #[must_use]
    pub fn with_image(self, image: u64) -> Self {
        Self { image, ..self }
    }

    /// The same trace as if it had been recorded with these windows; one that has windows already is not changed.
    #[must_use]
    pub fn reduced_to(mut self, windows: Windows) -> Self {
        if self.head.windows.is_none() {
            self.head.windows = Some(windows);
            self.reduced = Some(windows);
        }
        self
    }

    /// The process image of the profile.
    #[must_use]
    pub fn image(&self) -> u64 {
        self.image
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sums over all threads.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.streams.iter().map(|stream| stream.tally).sum()
    }

    /// The events of thread `stream` of [`AccessTrace::streams`], in its order, [`Action::End`] last.
    #[must_use]
    pub fn events(&self, stream: usize) -> StreamEvents<'_> {
        let start = self.streams[stream].start;
        StreamEvents {
            trace: self,
            stream: &self.streams[stream],
            next: 0,
            columns: None,
            clock: start,
            reduction: self.reduced.map(|windows| Reduction {
                thinner: Thinner::new(windows, self.head.line_shift, start),
                kept: Vec::new().into_iter(),
            }),
            time: start,
            work: 0,
            over: false,
        }
    }

    fn corrupt(&self, at: &BlockAt, found: impl Into<String>, expected: &str) -> FormatError {
        FormatError::corrupt(
            &self.path,
            format!("block at byte {}", at.offset),
            found,
            expected,
        )
    }

    /// Reads and decompresses a block.
    fn columns(&self, at: &BlockAt) -> Result<Columns, FormatError> {
        let mut frame = vec![0; FRAME_HEAD + at.length];
        self.file
            .read_exact_at(&mut frame, at.offset)
            .map_err(|error| FormatError::io("read", &self.path, error))?;
        let (head, message) = frame.split_at(FRAME_HEAD);
        if crc32fast::hash(message).to_le_bytes() != head[8..] {
            return Err(self.corrupt(
                at,
                "another checksum than before",
                "a file that does not change while it is read",
            ));
        }
        let Ok(Message::Block(block, packed)) = Message::decode(message) else {
            return Err(self.corrupt(at, "something else", "a block"));
        };
        let columns = zstd::bulk::decompress(packed, BLOCK_BYTES)
            .map_err(|error| self.corrupt(at, error.to_string(), "zstd-compressed columns"))?;
        Columns::new(columns, block.count as usize).ok_or_else(|| {
            let found = "columns of another length";
            self.corrupt(at, found, &format!("{} records", block.count))
        })
    }
}

/// Reads the next frame.
fn frame(reader: &mut impl Read) -> std::io::Result<Frame> {
    let mut head = [0; FRAME_HEAD];
    match fill(reader, &mut head)? {
        0 => return Ok(Frame::End),
        FRAME_HEAD => {}
        _ => return Ok(Frame::Torn),
    }
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let length = word(4) as usize;
    if head[..4] != MAGIC || length > MAX_MESSAGE_BYTES {
        return Ok(Frame::Torn);
    }
    let mut message = vec![0; length];
    if fill(reader, &mut message)? < length || crc32fast::hash(&message) != word(8) {
        return Ok(Frame::Torn);
    }
    Ok(Frame::Message(message))
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The content of a file's frames.
#[derive(Default)]
struct Frames {
    head: Option<Head>,
    threads: BTreeMap<u32, Thread>,
    blocks: BTreeMap<u32, Vec<BlockAt>>,
    cut: Option<String>,
    shared: Vec<SharedPages>,
    ended: bool,
}

impl Frames {
    fn message(&mut self, path: &Path, offset: u64, message: &[u8]) -> Result<(), FormatError> {
        let bad = |found: &str, expected: &str| {
            Err(FormatError::corrupt(
                path,
                format!("byte {offset}"),
                found,
                expected,
            ))
        };
        let length = message.len();
        match Message::decode(message) {
            Err(Unreadable::Version(found)) if found > VERSION => {
                return Err(FormatError::Newer {
                    path: path.to_owned(),
                    found,
                    supported: VERSION,
                });
            }
            Err(_) => return bad("an unknown message", "a message of version 1 to 3"),
            Ok(Message::Head(head)) if self.head.is_none() => self.head = Some(head),
            Ok(_) if self.head.is_none() => return bad("another message", "the process's head"),
            Ok(Message::Head(_)) => return bad("a second head", "one for each process"),
            Ok(Message::Thread(thread)) => {
                if self.threads.insert(thread.number, thread).is_some() {
                    return bad("a thread of the same number again", "one of each");
                }
            }
            Ok(Message::Block(block, _)) => {
                self.blocks.entry(block.thread).or_default().push(BlockAt {
                    offset,
                    length,
                    block,
                });
            }
            Ok(Message::Cut(why)) => self.cut = Some(why),
            Ok(Message::End) => {}
            Ok(Message::Shared(ranges)) => {
                let behind = self.shared.last().map_or(0, |last| last.first + last.pages);
                if ranges.first().is_some_and(|range| range.first < behind) {
                    return bad("shared memory again", "ranges in the order of addresses");
                }
                self.shared.extend(ranges);
                return Ok(());
            }
        }
        // A message after the end: that was an `execve` which failed.
        self.ended = matches!(Message::decode(message), Ok(Message::End));
        Ok(())
    }

    /// The threads with those of their blocks that follow each other without a gap, and whether these are all.
    fn streams(&mut self) -> (Vec<Stream>, bool) {
        let mut whole = true;
        let streams = std::mem::take(&mut self.threads)
            .into_values()
            .map(|thread| {
                // Several threads of the recorder may have written them in a different order.
                let mut blocks = self.blocks.remove(&thread.number).unwrap_or_default();
                blocks.sort_by_key(|at| at.block.first);
                let mut next = Some(0);
                let before = blocks.len();
                blocks.truncate(
                    blocks
                        .iter()
                        .take_while(|at| {
                            let fits = next == Some(at.block.first);
                            next = at.block.first.checked_add(at.block.count.into());
                            fits
                        })
                        .count(),
                );
                whole &= blocks.len() == before;
                Stream {
                    path: thread.path,
                    start: thread.clock,
                    tally: blocks.iter().map(Tally::of).sum(),
                    blocks,
                }
            })
            .collect();
        (streams, whole && self.blocks.is_empty())
    }
}

/// The events of one thread; ends after an error.
#[derive(Debug)]
pub struct StreamEvents<'a> {
    trace: &'a AccessTrace,
    stream: &'a Stream,
    /// Index of the next block to read.
    next: usize,
    columns: Option<Columns>,
    /// After the last record that was read from the file.
    clock: u64,
    reduction: Option<Reduction>,
    /// After the last event.
    time: u64,
    /// Accesses not yet included in an event.
    work: u64,
    over: bool,
}

/// What a thread's records are reduced to.
#[derive(Debug)]
struct Reduction {
    thinner: Thinner,
    /// Records to return before others are read.
    kept: std::vec::IntoIter<Record>,
}

/// The accesses and the jump by which a record advances the clock.
fn advance(clock: u64, record: Record) -> Option<u64> {
    let jump = match record.kind() {
        Kind::Clock => record.value(),
        _ => 0,
    };
    clock.checked_add(record.work)?.checked_add(jump)
}

impl StreamEvents<'_> {
    /// Loads the next block; `None` after the last.
    fn block(&mut self) -> Result<Option<()>, FormatError> {
        if self.columns.as_ref().is_some_and(|columns| !columns.done()) {
            let at = &self.stream.blocks[self.next - 1];
            let found = "columns that do not hold together";
            return Err(self.trace.corrupt(at, found, "records"));
        }
        let Some(at) = self.stream.blocks.get(self.next) else {
            return Ok(None);
        };
        if at.block.clock != self.clock {
            let found = format!("clock {}", at.block.clock);
            return Err(self
                .trace
                .corrupt(at, found, &format!("clock {}", self.clock)));
        }
        self.columns = Some(self.trace.columns(at)?);
        self.next += 1;
        Ok(Some(()))
    }

    /// The next record of the file.
    fn stored(&mut self) -> Result<Option<Record>, FormatError> {
        loop {
            if let Some(record) = self.columns.as_mut().and_then(Iterator::next) {
                let Some(clock) = advance(self.clock, record) else {
                    let at = &self.stream.blocks[self.next - 1];
                    let found = "a clock beyond 64 bits";
                    return Err(self.trace.corrupt(at, found, "a clock in accesses"));
                };
                self.clock = clock;
                return Ok(Some(record));
            }
            if self.block()?.is_none() {
                return Ok(None);
            }
        }
    }

    /// The next record that the trace has after its reduction.
    fn record(&mut self) -> Result<Option<Record>, FormatError> {
        loop {
            let kept = self.reduction.as_mut().map(|reduction| &mut reduction.kept);
            if let Some(record) = kept.and_then(Iterator::next) {
                return Ok(Some(record));
            }
            let stored = self.stored()?;
            let Some(reduction) = &mut self.reduction else {
                return Ok(stored);
            };
            let mut out = Vec::new();
            match stored {
                Some(record) => reduction.thinner.thin(&[record], &mut out),
                None => reduction.thinner.flush(&mut out),
            }
            if stored.is_none() && out.is_empty() {
                return Ok(None);
            }
            reduction.kept = out.into_iter();
        }
    }

    fn event(&mut self) -> Result<Option<Event>, FormatError> {
        loop {
            let Some(record) = self.record()? else {
                self.over = true;
                return Ok(Some(Event {
                    time: self.time,
                    work: self.work,
                    action: Action::End,
                    after: 0,
                }));
            };
            let (kind, value) = (record.kind(), record.value());
            // No later than the clock of the file.
            let time = advance(self.time, record).unwrap_or(u64::MAX);
            self.time = time;
            self.work += record.work;
            let numbered = |shift: u32| self.trace.address(value << shift) >> shift;
            let line = |of: fn(u64) -> Action| of(numbered(self.trace.head.line_shift));
            let word = |of: fn(u64) -> Action| of(numbered(WORD_SHIFT));
            let action = match kind {
                Kind::Read => line(Action::Read),
                Kind::Write => line(Action::Write),
                Kind::Own => line(Action::Own),
                Kind::WriteBack => line(Action::WriteBack),
                Kind::Acquire => word(Action::Acquire),
                Kind::Release => word(Action::Release),
                Kind::Create => Action::Create(value),
                Kind::Clock => continue,
                Kind::Omitted => Action::Omitted(value),
                Kind::Part => Action::Part(self.part(value)?),
            };
            return Ok(Some(Event {
                time,
                work: std::mem::take(&mut self.work),
                action,
                after: record.after(),
            }));
        }
    }
}

impl StreamEvents<'_> {
    /// The part of the trace that begins at a record with this value.
    fn part(&self, value: u64) -> Result<TracePart, FormatError> {
        let Some(Mark { interval, part }) = Mark::of(value) else {
            let at = &self.stream.blocks[self.next - 1];
            let found = format!("part {value}");
            return Err(self
                .trace
                .corrupt(at, found, "a part of a trace with windows"));
        };
        Ok(match part {
            Part::Gap => TracePart::Gap(interval),
            Part::Warm => TracePart::Warm(interval),
            Part::Window => TracePart::Window(interval),
        })
    }
}

impl Iterator for StreamEvents<'_> {
    type Item = Result<Event, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let event = self.event().transpose();
        self.over |= matches!(event, Some(Err(_)));
        event
    }
}
