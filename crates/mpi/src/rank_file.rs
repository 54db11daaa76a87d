//! Reads the files the shims write, one per rank (`docs/formats/mpi-rank-file.md`).
//!
//! A file is a checksummed header and checksummed blocks, all little endian. It is read front to back
//! in constant memory (one block); bytes after the last intact block are counted but not used.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

pub use self::calls::{Event, EventKind, Sum, Times};

mod calls;

/// Latest version of the format this reads. Files of version 1 have no times.
pub const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"NLMPIRNK";
const FIXED_HEADER: usize = 64;
const BLOCK_HEADER: usize = 24;
const ENTRY: usize = 24;
/// Longest header and block accepted: far above what the shims write, and still harmless.
const MAX_HEADER: usize = 1 << 16;
const MAX_PAYLOAD: usize = 1 << 20;
const KINDS: usize = 8;
const BLOCK_SLICE: u32 = 1;
const BLOCK_END: u32 = 2;
const BLOCK_EVENTS: u32 = 3;
const BLOCK_TIMES: u32 = 4;

/// The name of this host, as in [`Header::host`].
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Kind of a counted message. The numbers are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Sent by the program; from this rank to the peer.
    PointToPoint,
    /// Sent by the program from a persistent request (`MPI_Start`); from this rank to the peer.
    Persistent,
    /// One-sided put or accumulate; from this rank to the peer.
    Put,
    /// One-sided get; from the peer to this rank.
    Get,
    /// Sent by the library inside a collective; from this rank to the peer.
    Collective,
    /// Like [`Self::Collective`], but sent through the library's own persistent requests.
    Started,
    /// Part of a collective that was decomposed by its standard algorithm; from this rank to the peer.
    Modelled,
    /// The library's own per-call estimate of a collective: a second view of the same messages, never added to them.
    Operation,
}

impl Kind {
    /// Every kind, by its number in the file.
    pub const ALL: [Self; KINDS] = [
        Self::PointToPoint,
        Self::Persistent,
        Self::Put,
        Self::Get,
        Self::Collective,
        Self::Started,
        Self::Modelled,
        Self::Operation,
    ];
}

/// The observer of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Open MPI's monitoring components.
    OpenMpiMonitoring,
    /// The MPI profiling interface.
    Pmpi,
}

/// The header of a rank file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Ranks in `MPI_COMM_WORLD`; `None` if the shim could not know.
    pub world_size: Option<u32>,
    /// Process id.
    pub pid: u32,
    /// The observer.
    pub source: Source,
    /// Realtime clock (ns since 1970) at time 0 of this file.
    pub zero_ns: u64,
    /// Length of the first slices in ns; later slices have this length times a power of two.
    pub slice_ns: u64,
    /// The launcher's name for the world of this rank.
    pub job: String,
    /// Host name.
    pub host: String,
    /// OS indexes of the PUs in the rank's affinity when MPI started, ascending.
    pub affinity: Vec<u32>,
}

/// Messages of one kind to (or from) one peer in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// World rank of the peer.
    pub peer: u32,
    /// Kind of the messages.
    pub kind: Kind,
    /// Number of messages.
    pub events: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
}

/// One intact block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Messages of `start_ns..end_ns`.
    Slice {
        /// Start, ns since the file's zero.
        start_ns: u64,
        /// End (exclusive), ns since the file's zero.
        end_ns: u64,
        /// One per peer and kind; a pair may occur again in a later block of the same slice.
        entries: Vec<Entry>,
    },
    /// Times of messages and collectives, each with its call.
    Events(Vec<Event>),
    /// Sums of time so far; the last of a file counts.
    Times {
        /// Start of MPI, ns since the file's zero.
        start_ns: u64,
        /// Time of these sums, ns since the file's zero.
        end_ns: u64,
        /// The sums.
        times: Times,
    },
    /// Totals so far; the last block of a file that was closed properly.
    End {
        /// Time, ns since the file's zero.
        at_ns: u64,
        /// Number of events and bytes by [`Kind`].
        totals: [(u64, u64); KINDS],
        /// Number of events the shim could not write (disk full).
        dropped: u64,
    },
}

/// Why a rank file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankFileError {
    /// The file cannot be opened or read.
    #[error("cannot read MPI rank file {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The header is not valid.
    #[error("{path}: not a usable MPI rank file: {found}, expected {expected}", path = path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// After an END block.
    Closed,
    /// After an intact slice: the rank died or was killed. At most its last slice is missing.
    Cut,
    /// Within a block: the bytes after the last intact block are unusable.
    Damaged {
        /// Number of unusable bytes.
        bytes: u64,
    },
}

/// A rank file being read.
pub struct RankFile {
    path: PathBuf,
    input: BufReader<File>,
    length: u64,
    intact: u64,
    header: Header,
    last_was_end: bool,
    tail: Option<Tail>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The error for a header with something else than `expected`.
fn refused(path: &Path, found: String, expected: &str) -> RankFileError {
    RankFileError::Header {
        path: path.to_owned(),
        found,
        expected: expected.to_owned(),
    }
}

/// Checks magic and version; returns the header's length in bytes, and those of its parts of variable length.
fn lengths(path: &Path, fixed: &[u8]) -> Result<(usize, [usize; 3]), RankFileError> {
    if &fixed[..8] != MAGIC {
        let found = String::from_utf8_lossy(&fixed[..8])
            .escape_debug()
            .to_string();
        let found = format!("it begins with \"{found}\"");
        return Err(refused(path, found, "\"NLMPIRNK\""));
    }
    let version = u32_at(fixed, 8);
    if version == 0 || version > VERSION {
        let found = format!("format version {version}");
        return Err(refused(path, found, "version 1 or 2"));
    }
    let whole = u32_at(fixed, 12) as usize;
    let parts = [48, 52, 56].map(|at| u32_at(fixed, at) as usize);
    let sum: usize = parts
        .iter()
        .fold(FIXED_HEADER + 4, |sum, part| sum.saturating_add(*part));
    if whole > MAX_HEADER || sum != whole {
        let found = format!("a header of {whole} bytes with parts of {sum}");
        return Err(refused(path, found, "both the same, at most 65536"));
    }
    Ok((whole, parts))
}

/// The header from its fixed part and from its `strings`: job, host and affinity mask of `parts` bytes.
fn header(
    path: &Path,
    fixed: &[u8],
    strings: &[u8],
    parts: [usize; 3],
) -> Result<Header, RankFileError> {
    let source = match u32_at(fixed, 28) {
        1 => Source::OpenMpiMonitoring,
        2 => Source::Pmpi,
        other => return Err(refused(path, format!("source {other}"), "1 or 2")),
    };
    let (job, others) = strings.split_at(parts[0]);
    let (host, mask) = others.split_at(parts[1]);
    let bits = mask.iter().enumerate().flat_map(|(byte, bits)| {
        (0..8)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| byte as u32 * 8 + bit)
    });
    let (rank, size) = (u32_at(fixed, 16), u32_at(fixed, 20));
    if size > 0 && rank >= size {
        let found = format!("rank {rank} of {size}");
        return Err(refused(path, found, "a rank below the size"));
    }
    Ok(Header {
        rank,
        world_size: (size > 0).then_some(size),
        pid: u32_at(fixed, 24),
        source,
        zero_ns: u64_at(fixed, 32),
        slice_ns: u64_at(fixed, 40),
        job: String::from_utf8_lossy(job).into_owned(),
        host: String::from_utf8_lossy(host).into_owned(),
        affinity: bits.collect(),
    })
}

impl RankFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`RankFileError`] with the file, what was found and what was expected.
    pub fn open(path: &Path) -> Result<Self, RankFileError> {
        let io = |source| RankFileError::Io {
            path: path.to_owned(),
            source,
        };
        let refuse = |found: String, expected: &str| refused(path, found, expected);
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut input = BufReader::new(file);
        let mut fixed = [0; FIXED_HEADER];
        read_fully(&mut input, &mut fixed)
            .map_err(io)?
            .ok_or_else(|| refuse(format!("{length} bytes"), "a header of at least 68"))?;
        let (whole, parts) = lengths(path, &fixed)?;
        let mut rest = vec![0; whole - FIXED_HEADER];
        read_fully(&mut input, &mut rest)
            .map_err(io)?
            .ok_or_else(|| refuse(format!("{length} bytes"), "the whole header"))?;
        let strings = rest.len() - 4;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&fixed);
        crc.update(&rest[..strings]);
        if crc.finalize() != u32_at(&rest, strings) {
            return Err(refuse(
                "a header that fails its checksum".into(),
                "an intact one",
            ));
        }
        let header = header(path, &fixed, &rest[..strings], parts)?;
        Ok(Self {
            path: path.to_owned(),
            input,
            length,
            intact: whole as u64,
            header,
            last_was_end: false,
            tail: None,
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the file ended; `None` until its end was reached.
    #[must_use]
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// The next intact block; `None` at the end of the file or of its intact part (see [`Self::tail`]).
    ///
    /// # Errors
    /// [`RankFileError::Io`] if the file cannot be read.
    pub fn next_block(&mut self) -> Result<Option<Block>, RankFileError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let found = self.read_block().map_err(|source| RankFileError::Io {
            path: self.path.clone(),
            source,
        })?;
        if found.is_none() {
            let unread = self.length.saturating_sub(self.intact);
            self.tail = Some(match (unread, self.last_was_end) {
                (0, true) => Tail::Closed,
                (0, false) => Tail::Cut,
                (bytes, _) => Tail::Damaged { bytes },
            });
        }
        Ok(found)
    }

    fn read_block(&mut self) -> std::io::Result<Option<Block>> {
        let mut head = [0; BLOCK_HEADER];
        if read_fully(&mut self.input, &mut head)?.is_none() {
            return Ok(None);
        }
        let payload = u32_at(&head, 4) as usize;
        if payload > MAX_PAYLOAD {
            return Ok(None);
        }
        let mut body = vec![0; payload + 4];
        if read_fully(&mut self.input, &mut body)?.is_none() {
            return Ok(None);
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(&body[..payload]);
        if crc.finalize() != u32_at(&body, payload) {
            return Ok(None);
        }
        let (start_ns, end_ns) = (u64_at(&head, 8), u64_at(&head, 16));
        let block = match u32_at(&head, 0) {
            BLOCK_SLICE if payload.is_multiple_of(ENTRY) && end_ns > start_ns => {
                let entries: Option<Vec<Entry>> =
                    body[..payload].chunks_exact(ENTRY).map(entry).collect();
                entries.map(|entries| Block::Slice {
                    start_ns,
                    end_ns,
                    entries,
                })
            }
            BLOCK_END if payload == KINDS * 16 + 8 => {
                let mut totals = [(0, 0); KINDS];
                for (kind, total) in totals.iter_mut().enumerate() {
                    *total = (u64_at(&body, kind * 16), u64_at(&body, kind * 16 + 8));
                }
                let dropped = u64_at(&body, KINDS * 16);
                Some(Block::End {
                    at_ns: start_ns,
                    totals,
                    dropped,
                })
            }
            BLOCK_EVENTS => calls::events(&body[..payload]).map(Block::Events),
            BLOCK_TIMES if end_ns >= start_ns => {
                calls::times(&body[..payload]).map(|times| Block::Times {
                    start_ns,
                    end_ns,
                    times,
                })
            }
            _ => None,
        };
        if let Some(block) = &block {
            self.intact += (BLOCK_HEADER + payload + 4) as u64;
            self.last_was_end = matches!(block, Block::End { .. });
        }
        Ok(block)
    }
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    Some(Entry {
        peer: u32_at(bytes, 0),
        kind: *Kind::ALL.get(u32_at(bytes, 4) as usize)?,
        events: u64_at(bytes, 8),
        bytes: u64_at(bytes, 16),
    })
}

/// Fills `buffer`; `None` if the file ends first.
fn read_fully(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<Option<()>> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
