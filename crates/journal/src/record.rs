//! The records of a journal.

/// Version of the records; raised when their meaning changes.
pub const VERSION: u64 = 3;
/// Flag in the number of a source thread: the number is that of [`Record::CrossProcessNumber`], possibly in another
/// journal.
pub const CROSS_PROCESS_NUMBER: u32 = 1 << 31;

/// A record.
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
        /// Number of the process image: 0, and one more after each `execve`.
        image: u32,
        /// Name of the frontend.
        frontend: String,
        /// Whether times are virtual (accesses) or wall (ns).
        virtual_clock: bool,
        /// log2 of the line size.
        line_shift: u32,
        /// Sampled share of the time, in millionths.
        time_share_ppm: u32,
        /// Sampled share of the lines, in millionths.
        line_share_ppm: u32,
        /// The program's file.
        program: String,
    },
    /// A thread began.
    ThreadStart {
        /// Number of the thread in this journal, from 0.
        thread: u32,
        /// Stable path.
        path: String,
        /// Kernel's thread id.
        tid: u32,
        /// Time of its start.
        time: u64,
        /// Address of its start routine, 0 if unknown.
        routine: u64,
    },
    /// Totals of a thread so far; the last such record counts.
    ThreadTotals {
        /// The thread.
        thread: u32,
        /// Time of the record.
        time: u64,
        /// Loads and stores.
        accesses: u64,
        /// Accesses that were recorded: all, or those sampled.
        seen: u64,
        /// Bytes loaded by recorded accesses.
        read_bytes: u64,
        /// Bytes stored by recorded accesses.
        write_bytes: u64,
    },
    /// Communication received by a thread in a slice.
    Comm {
        /// The reader (directed layers).
        thread: u32,
        /// [`numaloc_model::Layer::ALL`] index.
        layer: u8,
        /// Start of the slice.
        start: u64,
        /// Length of the slice.
        length: u64,
        /// Source thread (or [`CROSS_PROCESS_NUMBER`]), events, bytes.
        cells: Vec<(u32, u64, u64)>,
    },
    /// Page accesses of a thread since its last such record.
    Pages {
        /// The thread.
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
        /// The thread.
        thread: u32,
        /// Page (of 4 KiB), time.
        cells: Vec<(u64, u64)>,
    },
    /// A mapping was made (or moved here by `mremap` when `moved_from` is not 0).
    Map {
        /// Order among the process's memory events.
        sequence: u64,
        /// The thread that made it.
        thread: u32,
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// `PROT_*`.
        protection: u64,
        /// `MAP_*`.
        flags: u64,
        /// Mapped file, empty for anonymous memory.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// Earlier address, 0 for a new mapping.
        moved_from: u64,
    },
    /// A range was unmapped.
    Unmap {
        /// Order among the process's memory events.
        sequence: u64,
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The mapping at `address` is of memory that other processes may map too; follows its `Map`.
    Backing {
        /// Order among the process's memory events.
        sequence: u64,
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// Number of the object mapped, the same in all processes of the recording.
        object: u32,
        /// Offset of the first address in the object.
        offset: u64,
    },
    /// A thread set its name.
    ThreadName {
        /// The thread.
        thread: u32,
        /// The name as the kernel keeps it: at most 15 bytes.
        name: String,
    },
    /// A call stack that allocated memory; comes before the first `Block` that names it.
    Site {
        /// Number of the site in this journal.
        site: u32,
        /// Return addresses, innermost first.
        frames: Vec<u64>,
    },
    /// A block of memory was allocated.
    Block {
        /// Order among the process's memory events.
        sequence: u64,
        /// The thread that allocated it.
        thread: u32,
        /// First address.
        address: u64,
        /// Bytes requested.
        length: u64,
        /// Number of the site.
        site: u32,
    },
    /// A thread's number among all threads of the recording that use shared memory.
    CrossProcessNumber {
        /// The thread.
        thread: u32,
        /// Its number in the cross-process table.
        number: u32,
    },
    /// The program break has moved.
    Break {
        /// Order among the process's memory events.
        sequence: u64,
        /// The new break.
        address: u64,
    },
    /// A new thread was given a stack.
    Stack {
        /// Order among the process's memory events.
        sequence: u64,
        /// Path of the new thread.
        path: String,
        /// Its initial stack pointer.
        pointer: u64,
    },
    /// An ELF file that was mapped before the first instruction.
    Image {
        /// Path of the file.
        file: String,
        /// Address of its first byte.
        start: u64,
        /// First address after it.
        end: u64,
    },
    /// The lines a thread accessed in a slice (layer `shared_line`).
    Lines {
        /// The thread.
        thread: u32,
        /// Start of the slice.
        start: u64,
        /// Length of the slice.
        length: u64,
        /// Line numbers, ascending.
        lines: Vec<u64>,
    },
    /// Lines through which threads of a process communicated: line number, events, false events.
    SharedLines(Vec<(u64, u64, u64)>),
    /// Events of a cell in each of the [`crate::GROUPS`] parts of the sampled lines; several such records add up.
    Groups {
        /// The reader.
        thread: u32,
        /// Layer as in `Comm`.
        layer: u8,
        /// The writer.
        src: u32,
        /// Counts by part.
        counts: Vec<u64>,
    },
    /// A detail was dropped to keep the memory bound: a note for the profile.
    Reduced(String),
    /// A note for readers of the profile.
    Note(String),
    /// A function that hands work to threads at run time was called; its symbol.
    Sharing(String),
    /// The process ended and everything was written.
    End,
}
