//! The access trace: a thread's accesses below its private caches, and where it synchronised.
//!
//! Written inside the program under study, read by the recorder and by analysis, so this crate has neither I/O nor
//! dependencies: [`Record`]s, the columns of a block of them ([`columns`]), and the messages that carry blocks
//! ([`message`]). `numaloc-formats` writes the file; `docs/formats/access-trace.md` describes both.

#![forbid(unsafe_code)]

pub mod columns;
pub mod message;
pub mod numbers;
pub mod windows;

/// Version of records, columns and messages; raised when their meaning changes. A trace is written as the first version
/// that has what it contains: 3 with marked loads, 2 with windows, otherwise 1.
pub const VERSION: u64 = 3;
/// Most records in a block.
pub const BLOCK_RECORDS: usize = 1 << 14;
/// Most bytes in the columns of a block: more is damage.
pub const BLOCK_BYTES: usize = BLOCK_RECORDS * 22;
/// Largest [`Record::after`].
pub const MOST_AFTER: u8 = 63;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A load missed the private caches. Value: line number.
    Read,
    /// A store missed the private caches: the line is fetched for writing. Value: line number.
    Write,
    /// A store hit a line that was clean, or shared since: other copies become invalid. Value: line number.
    Own,
    /// A dirty line left the private caches. Value: line number.
    WriteBack,
    /// The thread took the clock of a synchronisation word: it continues no earlier than those who released it. Value:
    /// word number (address divided by 4).
    Acquire,
    /// The thread left its clock at a synchronisation word. Value: word number.
    Release,
    /// The thread is about to create another one. Value: number of the child among those of this thread, from 1.
    Create,
    /// The thread's clock advances by the value without work, because of the acquire that follows. With value 0 the
    /// record has work alone.
    Clock,
    /// Requests that are not in the trace, outside its windows. Value: their number.
    Omitted,
    /// Another part of the trace begins: see [`windows::Mark`].
    Part,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Write,
        Self::Own,
        Self::WriteBack,
        Self::Acquire,
        Self::Release,
        Self::Create,
        Self::Clock,
        Self::Omitted,
        Self::Part,
    ];

    /// Whether it is a request to the memory system.
    #[must_use]
    pub fn is_request(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Own | Self::WriteBack)
    }

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
            Self::Omitted => "omitted",
            Self::Part => "part",
        }
    }
}

/// One entry of a thread's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kind in the low 4 bits, value above.
    packed: u64,
    /// Accesses of the thread since its last record, including the one that made this record.
    pub work: u64,
    after: u8,
}

impl Record {
    /// A record with the low 60 bits of `value`.
    #[inline(always)]
    #[must_use]
    pub fn new(kind: Kind, value: u64, work: u64) -> Self {
        Self {
            packed: value << 4 | kind as u64,
            work,
            after: 0,
        }
    }

    /// A load whose address comes from the thread's `after`-th fetch before it, of those by loads and stores
    /// ([`Kind::Read`], [`Kind::Write`]); 0 or more than [`MOST_AFTER`]: from none that may still be under way.
    #[inline(always)]
    #[must_use]
    pub fn load(line: u64, work: u64, after: u64) -> Self {
        Self {
            after: if after > u64::from(MOST_AFTER) {
                0
            } else {
                after as u8
            },
            ..Self::new(Kind::Read, line, work)
        }
    }

    /// Number of fetches back to the one that the address of a load comes from; 0 if it comes from none.
    #[inline(always)]
    #[must_use]
    pub fn after(self) -> u8 {
        self.after
    }

    /// Kind of the record.
    #[inline(always)]
    #[must_use]
    pub fn kind(self) -> Kind {
        // The low bits are those of a kind.
        Kind::ALL
            .get((self.packed & 15) as usize)
            .copied()
            .unwrap_or(Kind::Clock)
    }

    /// Value of the record: see [`Kind`].
    #[inline(always)]
    #[must_use]
    pub fn value(self) -> u64 {
        self.packed >> 4
    }
}
