//! A recorded run: the tables of a profile folder, in memory.
//!
//! The columns are described in `docs/formats/profile.md`. Readers fill these tables for the analyses.

use std::collections::BTreeMap;

use crate::comm::{CommError, CommMatrix, Layer};
use crate::conditions::Conditions;
use crate::ids::{ObjectIdx, SliceIdx, ThreadIdx};
use crate::pages::{Page, PageUsage};

/// The unit of times and slice borders in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Nanoseconds of wall time since the program started.
    Wall,
    /// Accesses per thread, synchronised between threads where the program synchronises: independent of the host's
    /// scheduler.
    Virtual,
}

impl Clock {
    /// The name in profile tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Virtual => "virtual",
        }
    }

    /// The unit of a time in this clock.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Wall => "ns",
            Self::Virtual => "accesses",
        }
    }
}

/// The origin of a profile and its known limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The frontend that observed it: `qemu`, `instrument`, `perf`, `mpi`, `import`.
    pub frontend: String,
    /// The clock of every time in the profile.
    pub clock: Clock,
    /// Bytes per cache line of the communication layers.
    pub line_size: u64,
    /// False if the run was interrupted, crashed or hit a limit: see `notes`.
    pub complete: bool,
    /// Notes for the reader: limits hit, detail reduced, sampling, exclusions.
    pub notes: Vec<String>,
    /// Fraction of accesses observed, 1 if exact.
    pub sampled: f64,
    /// The source of the threads' `dram_bytes`, with its parameters; `None` if they were not observed.
    pub dram_source: Option<String>,
    /// What influenced the run apart from the command.
    pub conditions: Conditions,
}

/// A thread, task or rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Stable name: process path and n-th child, the same in every run.
    pub path: String,
    /// Start routine or role if known, e.g. `runtime helper`.
    pub label: Option<String>,
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
}

/// A time slice, `start..end` in the profile's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Start time.
    pub start: u64,
    /// End time (exclusive).
    pub end: u64,
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

/// Accesses to a page by a thread in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSliceRow {
    /// The slice.
    pub slice: SliceIdx,
    /// Index into [`PageUsage::pages`].
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
        for (slice, thread, accesses) in rows {
            let sum = sums.entry((slice, thread)).or_default();
            *sum = sum.saturating_add(accesses);
        }
        let row = |((slice, thread), accesses)| Self {
            slice,
            thread,
            accesses,
        };
        sums.into_iter().map(row).collect()
    }
}

/// Long loads of a page by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLoadRow {
    /// Index into [`PageUsage::pages`].
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

impl SlowLoads {
    /// Sums `loads` to one row per page and thread, in that order; sums saturate.
    #[must_use]
    pub fn sums(source: String, loads: impl Iterator<Item = SlowLoadRow>) -> Self {
        let mut sums: BTreeMap<(u32, ThreadIdx), u64> = BTreeMap::new();
        for row in loads {
            let sum = sums.entry((row.page, row.thread)).or_default();
            *sum = sum.saturating_add(row.loads);
        }
        let row = |((page, thread), loads)| SlowLoadRow {
            page,
            thread,
            loads,
        };
        let rows = sums.into_iter().map(row).collect();
        Self { source, rows }
    }
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
    /// Address in the recorded run divided by the line size; processes after the first as in [`PageUsage`].
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

/// A recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Origin and known limits.
    pub meta: Meta,
    /// By [`ThreadIdx`].
    pub threads: Vec<Thread>,
    /// By [`SliceIdx`], in time order.
    pub slices: Vec<Slice>,
    /// Sorted by slice, layer, src, dst.
    pub communication: Vec<CommRow>,
    /// Whole-run page usage.
    pub pages: PageUsage,
    /// Page usage per slice; may be empty if it was not recorded.
    pub page_slices: Vec<PageSliceRow>,
    /// Sums of the rows that a reader left out of `page_slices`, by slice, then thread; otherwise empty.
    pub access_slices: Vec<AccessSliceRow>,
    /// By [`ObjectIdx`].
    pub objects: Vec<Object>,
    /// For sampled runs; sorted by layer, src, dst. Empty if exact.
    pub cell_errors: Vec<CellError>,
    /// Lines with the most false events first, then the most events; a limited list.
    pub shared_lines: Vec<SharedLine>,
    /// Long loads; `None` if the source does not distinguish them.
    pub slow_loads: Option<SlowLoads>,
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

impl Profile {
    /// Whether a page is in the kernel's page cache ([`Object::is_page_cached`]).
    #[must_use]
    pub fn is_in_page_cache(&self, page: &Page) -> bool {
        let stores = || {
            self.pages
                .accesses(page)
                .iter()
                .map(|access| access.writes)
                .sum()
        };
        page.object
            .is_some_and(|object| self.object(object).is_page_cached(stores()))
    }

    /// Accesses by slice and thread, in that order; empty if page usage per slice was not recorded.
    #[must_use]
    pub fn accesses_by_slice(&self) -> Vec<AccessSliceRow> {
        if self.page_slices.is_empty() {
            return self.access_slices.clone();
        }
        let rows = self.page_slices.iter();
        AccessSliceRow::sums(rows.map(|row| (row.slice, row.thread, row.accesses)))
    }

    /// The layers with at least one row, in the order of [`Layer::ALL`].
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        Layer::ALL
            .into_iter()
            .filter(|&layer| self.communication.iter().any(|row| row.layer == layer))
            .collect()
    }

    /// Whether a layer, or one layer of a view, has at least one row.
    #[must_use]
    pub fn has_layer(&self, layer: Layer) -> bool {
        self.layers().into_iter().any(|stored| layer.holds(stored))
    }

    /// Whole-run matrix (threads x threads) of a layer.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix(&self, layer: Layer, amount: Amount) -> Result<CommMatrix, CommError> {
        self.matrix_of_slices(layer, amount, 0..u32::MAX)
    }

    /// Whole-run matrix of a layer in cache lines moved, the unit that is comparable with accesses to pages:
    /// an event of shared memory moves one line, messages move their bytes.
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix_in_lines(&self, layer: Layer) -> Result<CommMatrix, CommError> {
        let matrix = self.matrix(layer, Amount::of_layer(layer))?;
        match Amount::of_layer(layer) {
            Amount::Events => Ok(matrix),
            Amount::Bytes => {
                let line = self.meta.line_size.max(1) as f64;
                let cells = matrix
                    .cells()
                    .map(|(src, dst, bytes)| (src, dst, bytes / line));
                CommMatrix::from_cells(matrix.threads(), cells)
            }
        }
    }

    /// Matrix of the slices `slices` (indexes).
    ///
    /// # Errors
    /// [`CommError::OutOfRange`] if a row has a thread that the profile does not have.
    pub fn matrix_of_slices(
        &self,
        layer: Layer,
        amount: Amount,
        slices: std::ops::Range<u32>,
    ) -> Result<CommMatrix, CommError> {
        let rows = self
            .communication
            .iter()
            .filter(|row| layer.holds(row.layer) && slices.contains(&row.slice.0));
        let threads = self.threads.len();
        let cells = rows.map(|row| (row.src.index(), row.dst.index(), amount.of(row) as f64));
        if self.communication.len() < threads * threads {
            return CommMatrix::from_cells(threads, cells);
        }
        // More rows than cells: adding in place is faster than sorting, with the same order of additions.
        let mut dense = vec![0.0; threads * threads];
        for (src, dst, value) in cells {
            if src >= threads || dst >= threads {
                return Err(CommError::OutOfRange { src, dst, threads });
            }
            dense[src * threads + dst] += value;
        }
        CommMatrix::from_dense(threads, &dense)
    }

    /// The object with that index.
    #[must_use]
    pub fn object(&self, object: ObjectIdx) -> &Object {
        &self.objects[object.index()]
    }
}
