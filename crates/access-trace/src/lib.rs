//! The access trace: what a thread asked of the memory system below its private caches, and where it synchronised.
//!
//! Written inside the program under study, read by the recorder and by analysis, so this crate has neither I/O nor dependencies:
//! [`Record`]s, the columns of a block of them ([`columns`]), and the messages that carry blocks ([`message`]).
//! The file that messages end up in is `numaloc-formats`' business; `docs/formats/access-trace.md` describes both.

#![forbid(unsafe_code)]

pub mod columns;
pub mod message;
pub mod numbers;

/// Version of records, columns and messages; raised when their meaning changes.
pub const VERSION: u64 = 1;
/// Most records in a block.
pub const BLOCK_RECORDS: usize = 1 << 14;
/// Longest columns of a block: more is damage.
pub const BLOCK_BYTES: usize = BLOCK_RECORDS * 21;

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A load missed the private caches. Value: line number.
    Read,
    /// A store missed the private caches: the line is fetched to be written.
    Write,
    /// A store hit a line that the thread had not yet written, or had shared since: other copies become invalid.
    Own,
    /// A written line left the private caches.
    WriteBack,
    /// The thread took the clock that was left at a synchronisation word: it continues not before those who released it.
    /// Value: word number (address divided by 4).
    Acquire,
    /// The thread left its clock at a synchronisation word.
    Release,
    /// The thread is about to create another. Value: its number among those this thread creates, from 1.
    Create,
    /// The thread's clock moves on by this many units without work, because of the acquire that follows; 0 tells of work alone.
    Clock,
}

impl Kind {
    /// Every kind, by its number.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Own,
        Self::WriteBack,
        Self::Acquire,
        Self::Release,
        Self::Create,
        Self::Clock,
    ];

    /// The name in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Own => "own",
            Self::WriteBack => "write_back",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Create => "create",
            Self::Clock => "clock",
        }
    }

    /// Whether the value is a line number.
    #[must_use]
    pub fn has_line(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Own | Self::WriteBack)
    }
}

/// One entry of a thread's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kind in the low 3 bits, value above.
    packed: u64,
    /// Accesses of the thread since its last record, the one that this record is of included.
    pub work: u64,
}

impl Record {
    /// A record; of `value` the low 61 bits count.
    #[inline(always)]
    #[must_use]
    pub fn new(kind: Kind, value: u64, work: u64) -> Self {
        Self {
            packed: value << 3 | kind as u64,
            work,
        }
    }

    /// What it tells.
    #[inline(always)]
    #[must_use]
    pub fn kind(self) -> Kind {
        Kind::ALL[(self.packed & 7) as usize]
    }

    /// Of what: see [`Kind`].
    #[inline(always)]
    #[must_use]
    pub fn value(self) -> u64 {
        self.packed >> 3
    }
}
