//! The rows of a profile's tables.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::role::ThreadRole;
use crate::comm::Layer;
use crate::ids::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};
use crate::sites::CodePlace;

/// A thread, task or rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Stable name: process path and n-th child, the same in every run.
    pub path: String,
    /// What it is for, if known.
    pub role: ThreadRole,
    /// Process id in the recorded run.
    pub pid: u32,
    /// Thread id in the recorded run.
    pub tid: u32,
    /// MPI rank.
    pub rank: Option<u32>,
    /// Time of its first event, in the profile's clock.
    pub start: u64,
    /// Time of its last event, in the profile's clock.
    pub end: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Bytes loaded.
    pub read_bytes: u64,
    /// Bytes stored.
    pub write_bytes: u64,
    /// Bytes that came from memory below the caches, if observed.
    pub dram_bytes: Option<u64>,
    /// Name that the program has set, as the kernel keeps it: at most 15 bytes. Not part of the identity.
    pub name: Option<String>,
    /// Of a process's first thread: the title by which the process has replaced its arguments, otherwise the name of
    /// the program that a created process runs. Not part of the identity.
    pub title: Option<String>,
}

impl Thread {
    /// A thread with that path of which nothing else is known.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            role: ThreadRole::Unknown,
            pid: 0,
            tid: 0,
            rank: None,
            start: 0,
            end: 0,
            accesses: 0,
            read_bytes: 0,
            write_bytes: 0,
            dram_bytes: None,
            name: None,
            title: None,
        }
    }

    /// What readers see: the role of one that serves a run-time system, otherwise the name that the program has set
    /// (the whole title where the name is its beginning), the title, or what the role says.
    #[must_use]
    pub fn shown(&self) -> Option<Cow<'_, str>> {
        if self.role.is_helper() {
            return self.role.label();
        }
        let own = match (self.name.as_deref(), self.title.as_deref()) {
            (Some(name), Some(title)) if title.starts_with(name) => Some(title),
            (Some(name), _) => Some(name),
            (None, title) => title,
        };
        own.map(Cow::Borrowed).or_else(|| self.role.label())
    }
}

/// A time slice, `start..end` in the profile's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Start time.
    pub start: u64,
    /// End time (exclusive).
    pub end: u64,
}

impl Slice {
    /// Slices of `length` from 0 to `end`; the last may be shorter. At least one, from 0 to 1 at least.
    pub fn even(length: u64, end: u64) -> impl Iterator<Item = Self> {
        let (length, end) = (length.max(1), end.max(1));
        (0..end.div_ceil(length)).map(move |at| Self {
            start: at * length,
            end: (at + 1).saturating_mul(length).min(end),
        })
    }
}

/// Communication of a pair in a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommRow {
    /// The slice.
    pub slice: SliceIdx,
    /// Writer or sender.
    pub src: ThreadIdx,
    /// Reader or receiver.
    pub dst: ThreadIdx,
    /// The layer.
    pub layer: Layer,
    /// Number of events.
    pub events: u64,
    /// Their size in bytes, in total.
    pub bytes: u64,
}

/// Sums of communication: one row for each slice, layer and pair.
#[derive(Clone, Debug, Default)]
pub struct CommSums(BTreeMap<(SliceIdx, Layer, ThreadIdx, ThreadIdx), (u64, u64)>);

impl CommSums {
    /// Adds a row; sums saturate.
    pub fn add(&mut self, row: CommRow) {
        let key = (row.slice, row.layer, row.src, row.dst);
        let (events, bytes) = self.0.entry(key).or_default();
        *events = events.saturating_add(row.events);
        *bytes = bytes.saturating_add(row.bytes);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same sums with neighbouring pairs of slices merged.
    #[must_use]
    pub fn halved(self) -> Self {
        let mut halved = Self::default();
        for row in self.into_rows() {
            halved.add(CommRow {
                slice: SliceIdx(row.slice.0 / 2),
                ..row
            });
        }
        halved
    }

    /// The rows, by slice, layer, source and destination.
    pub fn into_rows(self) -> impl Iterator<Item = CommRow> {
        self.0
            .into_iter()
            .map(|((slice, layer, src, dst), (events, bytes))| CommRow {
                slice,
                src,
                dst,
                layer,
                events,
                bytes,
            })
    }
}

/// What kind of memory an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A writable section or symbol of the program or a library.
    Static,
    /// The program break's heap, or a block of it.
    Heap,
    /// An anonymous or file mapping.
    Mapping,
    /// A thread's stack.
    Stack,
    /// Memory shared between processes.
    Shared,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Static,
        Self::Heap,
        Self::Mapping,
        Self::Stack,
        Self::Shared,
    ];

    /// The name in profile tables and plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Heap => "heap",
            Self::Mapping => "mapping",
            Self::Stack => "stack",
            Self::Shared => "shared",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A piece of memory with an identity that another run of the program has too.
///
/// Identity is `(kind, name, creator path, size, order)`, never the address: another run has other
/// addresses (ASLR), and a profile taken under emulation has another address space altogether.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Kind of memory.
    pub kind: ObjectKind,
    /// File and section, mapped file, call site, or stack owner.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// n-th object (from 0) of this kind, name, creator and size.
    pub order: u32,
    /// The thread that created it (or owns the stack); `None` for objects that exist before the first thread runs.
    pub thread: Option<ThreadIdx>,
    /// Address of its first byte in the recorded run.
    pub base: u64,
    /// Its named parts, by ascending offset; not part of its identity. Empty if none are known.
    pub variables: Vec<Variable>,
}

impl Object {
    /// Whether one of its pages, to which `stores` stores went, is in the kernel's page cache: a page of a private
    /// mapping of a file, or of the constants and text of a program or library, without any. Such a page is on the node
    /// where the file was read, perhaps long before; neither first touch nor a plan places it. A store makes a copy,
    /// which is placed like any page. Names in brackets denote memory without a file.
    #[must_use]
    pub fn is_page_cached(&self, stores: u64) -> bool {
        self.kind == ObjectKind::Mapping && !self.name.starts_with('[') && stores == 0
    }
}

/// A variable of a static section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source if debugging information was found, else its symbol.
    pub name: String,
    /// Offset in bytes from the object's first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Where it is declared, `FILE:LINE`.
    pub source: Option<String>,
}

/// Accesses to a page by a thread in a slice, for [`super::ProfileBuilder::page_slices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSlice {
    /// The slice.
    pub slice: SliceIdx,
    /// The page, which must be in the table of pages.
    pub page: PageNumber,
    /// The thread.
    pub thread: ThreadIdx,
    /// Loads and stores.
    pub accesses: u64,
}

/// Accesses to a page by a thread in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSliceRow {
    /// The slice.
    pub slice: SliceIdx,
    /// Index into [`PageUsage::pages`](crate::pages::PageUsage::pages).
    pub page: u32,
    /// The thread.
    pub thread: ThreadIdx,
    /// Loads and stores.
    pub accesses: u64,
}

/// Accesses by a thread in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSliceRow {
    /// The slice.
    pub slice: SliceIdx,
    /// The thread.
    pub thread: ThreadIdx,
    /// Loads and stores.
    pub accesses: u64,
}

impl AccessSliceRow {
    /// Sums the rows to one per slice and thread, in that order; sums saturate.
    #[must_use]
    pub fn sums(rows: impl Iterator<Item = (SliceIdx, ThreadIdx, u64)>) -> Vec<Self> {
        let mut sums: BTreeMap<(SliceIdx, ThreadIdx), u64> = BTreeMap::new();
        // Rows of a slice follow each other, and there are far more of them than threads.
        let mut of_thread: Vec<Option<u64>> = Vec::new();
        let mut rows = rows.peekable();
        while let Some((slice, thread, accesses)) = rows.next() {
            let at = thread.index();
            if at >= of_thread.len() {
                of_thread.resize(at + 1, None);
            }
            let sum = of_thread[at].get_or_insert(0);
            *sum = sum.saturating_add(accesses);
            if rows.peek().is_some_and(|next| next.0 == slice) {
                continue;
            }
            for (at, sum) in of_thread.iter_mut().enumerate() {
                if let Some(accesses) = sum.take() {
                    let sum = sums.entry((slice, ThreadIdx::from_index(at))).or_default();
                    *sum = sum.saturating_add(accesses);
                }
            }
        }
        let row = |((slice, thread), accesses)| Self {
            slice,
            thread,
            accesses,
        };
        sums.into_iter().map(row).collect()
    }
}

/// Long loads of a page by a thread, for [`super::ProfileBuilder::slow_loads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLoad {
    /// The page, which must be in the table of pages.
    pub page: PageNumber,
    /// The thread.
    pub thread: ThreadIdx,
    /// Number of long loads.
    pub loads: u64,
}

/// Long loads of a page by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLoadRow {
    /// Index into [`PageUsage::pages`](crate::pages::PageUsage::pages).
    pub page: u32,
    /// The thread.
    pub thread: ThreadIdx,
    /// Number of long loads.
    pub loads: u64,
}

/// The long loads of a run, if its source distinguishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowLoads {
    /// What observed them and the definition of a long load, with all parameters.
    pub source: String,
    /// By page, then thread.
    pub rows: Vec<SlowLoadRow>,
}

/// The error of an estimated cell of a whole-run matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellError {
    /// The layer of the matrix.
    pub layer: Layer,
    /// Row of the cell.
    pub src: ThreadIdx,
    /// Column of the cell.
    pub dst: ThreadIdx,
    /// Standard error of the cell's events, as a share of them.
    pub relative_error: f64,
}

/// A cache line through which threads communicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLine {
    /// Address in the recorded run divided by the line size; processes after the first as in [`image`](super::image).
    pub line: u64,
    /// The object that contains it.
    pub object: Option<ObjectIdx>,
    /// Bytes from the object's first byte to the line's (0 if the line begins before the object).
    pub object_offset: u64,
    /// Events of layer `write_read`.
    pub events: u64,
    /// Those of `events` in which the reader used none of the bytes written by the writer.
    pub false_events: u64,
}

/// A cache line for which threads would contend if they ran at the same time, with estimates for such a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContendedLine {
    /// As in [`SharedLine`].
    pub line: u64,
    /// The object that contains it.
    pub object: Option<ObjectIdx>,
    /// As in [`SharedLine`].
    pub object_offset: u64,
    /// Threads that contend.
    pub threads: u32,
    /// Those of them that write.
    pub writers: u32,
    /// Visits to the line, an upper bound of the transfers: a load and the store that follows it are one.
    pub visits: u64,
    /// Transfers between caches.
    pub transfers: u64,
    /// Those between threads of which neither uses bytes that the other writes.
    pub false_transfers: u64,
    /// Visits by atomic instructions.
    pub atomics: u64,
    /// Samples from which this is estimated.
    pub samples: u64,
    /// The place of most stores.
    pub writer: CodePlace,
    /// The place of most loads.
    pub reader: CodePlace,
}

/// Visits of a thread to a contended line in a part of the run, evenly spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContendedVisits {
    /// As in [`SharedLine`].
    pub line: u64,
    /// The thread.
    pub thread: ThreadIdx,
    /// Accesses of the thread before the first visit.
    pub from: u64,
    /// And before it would visit the line again.
    pub until: u64,
    /// Visits, or critical sections of a lock.
    pub visits: u64,
    /// Those that write.
    pub writes: u64,
    /// Those by atomic instructions.
    pub atomics: u64,
    /// Of a lock: accesses of the thread while it has it, in the mean of the sections. 0 for other lines.
    pub held: u64,
    /// What the line holds.
    pub kind: VisitedKind,
}

/// What a contended line holds, as far as its order of visits matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VisitedKind {
    /// Data; atomic instructions may order threads.
    #[default]
    Data,
    /// Counters that several threads change by atomic instructions, often: in any order.
    Counter,
    /// A lock, which threads take in any order.
    Lock,
}

impl VisitedKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Data, Self::Counter, Self::Lock];

    /// The name in profile tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Counter => "counter",
            Self::Lock => "lock",
        }
    }
}

impl ContendedLine {
    /// Relative standard error of the estimates by the number of samples.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        1.0 / (self.samples.max(1) as f64).sqrt()
    }
}

/// The amount of a communication row that a matrix sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Number of events.
    Events,
    /// Bytes.
    Bytes,
}

impl Amount {
    /// The amount in which a layer's communication is weighted: bytes for messages, events for lines of memory.
    #[must_use]
    pub fn of_layer(layer: Layer) -> Self {
        if layer.is_message() {
            Self::Bytes
        } else {
            Self::Events
        }
    }

    /// This amount of a row.
    #[must_use]
    pub fn of(self, row: &CommRow) -> u64 {
        match self {
            Self::Events => row.events,
            Self::Bytes => row.bytes,
        }
    }
}
