//! What a journal tells.

/// Version of the records; raised when their meaning changes.
pub const VERSION: u64 = 3;
/// In the number of a source thread: it is that of [`Record::CrossProcessNumber`], perhaps in another journal.
pub const CROSS_PROCESS_NUMBER: u32 = 1 << 31;

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
        /// Source thread (or [`CROSS_PROCESS_NUMBER`]), events, bytes.
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
    CrossProcessNumber {
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
    /// Events of a cell in each of the [`crate::GROUPS`] parts of the lines watched; several such records add up.
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
    /// A function was called that hands work to threads while the program runs; its symbol.
    Sharing(String),
    /// The process ended and everything was written.
    End,
}
