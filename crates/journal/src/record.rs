//! The records of a journal: one table, from which `table` makes the enum, the bytes, the visitor and the documented
//! layout (docs/formats/journal.md).

use crate::decode::Decoder;
use crate::encode::{Encoder, Visitor};
use crate::field::{AccessSample, AccessSamples, SiteCount};
use crate::field::{
    Differences, Field, Flag, Number, Numbers, PageCounts, PageTimes, Positive, Share, Shift,
    SiteCounts, Text, Triples,
};
use crate::table::{FieldLayout, RecordLayout, records};

/// Version of the records; raised when their meaning changes.
pub const VERSION: u64 = 9;
/// Flag in the number of a source thread: the number is that of [`Record::CrossProcessNumber`], possibly in another
/// journal.
pub const CROSS_PROCESS_NUMBER: u32 = 1 << 31;

records! {
    /// First record of a journal.
    1 Process {
        /// [`VERSION`] of the writer.
        version: u64 as Number,
        /// Process id.
        pid: u32 as Number,
        /// Path of the process's first thread.
        path: String as Text,
        /// Number of the process image: 0, and one more after each `execve`.
        image: u32 as Number,
        /// Name of the frontend.
        frontend: String as Text,
        /// Whether times are virtual (accesses) or wall (ns).
        virtual_clock: bool as Flag,
        /// log2 of the line size.
        line_shift: u32 as Shift,
        /// Sampled share of the time, in millionths.
        time_share_ppm: u32 as Share,
        /// Sampled share of the lines, in millionths.
        line_share_ppm: u32 as Share,
        /// The program's file.
        program: String as Text,
    };
    /// A thread began.
    2 ThreadStart {
        /// Number of the thread in this journal, from 0.
        thread: u32 as Number,
        /// Stable path.
        path: String as Text,
        /// Kernel's thread id.
        tid: u32 as Number,
        /// Time of its start.
        time: u64 as Number,
        /// Address of its start routine, or of what a C++ `std::thread` calls; 0 if unknown.
        routine: u64 as Number,
    };
    /// Totals of a thread so far; the last such record counts.
    3 ThreadTotals {
        /// The thread.
        thread: u32 as Number,
        /// Time of the record.
        time: u64 as Number,
        /// Loads and stores.
        accesses: u64 as Number,
        /// Accesses that were recorded: all, or those sampled.
        seen: u64 as Number,
        /// Bytes loaded by recorded accesses.
        read_bytes: u64 as Number,
        /// Bytes stored by recorded accesses.
        write_bytes: u64 as Number,
    };
    /// Communication received by a thread in a slice.
    4 Comm {
        /// The reader (directed layers).
        thread: u32 as Number,
        /// [`numaloc_model::Layer::ALL`] index.
        layer: u8 as Number,
        /// Start of the slice.
        start: u64 as Number,
        /// Length of the slice.
        length: u64 as Positive,
        /// Source thread (or [`CROSS_PROCESS_NUMBER`]), events, bytes.
        cells: Vec<(u32, u64, u64)> as Triples,
    };
    /// Page accesses of a thread since its last such record.
    5 Pages {
        /// The thread.
        thread: u32 as Number,
        /// Start of the span.
        start: u64 as Number,
        /// Length of the span.
        length: u64 as Positive,
        /// Page (of 4 KiB), reads, writes; ascending.
        cells: Vec<(u64, u64, u64)> as PageCounts,
    };
    /// Pages a thread touched first, and when.
    6 FirstTouch {
        /// The thread.
        thread: u32 as Number,
        /// Page (of 4 KiB), time.
        cells: Vec<(u64, u64)> as PageTimes,
    };
    /// A mapping was made (or moved here by `mremap` when `moved_from` is not 0).
    7 Map {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// The thread that made it.
        thread: u32 as Number,
        /// First address.
        address: u64 as Number,
        /// Length in bytes.
        length: u64 as Number,
        /// `PROT_*`.
        protection: u64 as Number,
        /// `MAP_*`.
        flags: u64 as Number,
        /// Mapped file, empty for anonymous memory.
        file: String as Text,
        /// Offset in the file.
        offset: u64 as Number,
        /// Earlier address, 0 for a new mapping.
        moved_from: u64 as Number,
    };
    /// A range was unmapped.
    8 Unmap {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// First address.
        address: u64 as Number,
        /// Length in bytes.
        length: u64 as Number,
    };
    /// The program break has moved.
    9 Break {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// The new break.
        address: u64 as Number,
    };
    /// A new thread was given a stack.
    10 Stack {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// Path of the new thread.
        path: String as Text,
        /// Its initial stack pointer.
        pointer: u64 as Number,
    };
    /// An ELF file that was mapped before the first instruction.
    11 Image {
        /// Path of the file.
        file: String as Text,
        /// Address of its first byte.
        start: u64 as Number,
        /// First address after it.
        end: u64 as Number,
    };
    /// A note for readers of the profile.
    12 Note(
        /// The note.
        text: String as Text
    );
    /// The process ended and everything was written.
    13 End;
    /// The lines a thread accessed in a slice (layer `shared_line`).
    14 Lines {
        /// The thread.
        thread: u32 as Number,
        /// Start of the slice.
        start: u64 as Number,
        /// Length of the slice.
        length: u64 as Positive,
        /// Line numbers, ascending.
        lines: Vec<u64> as Differences,
    };
    /// Lines through which threads of a process communicated: line number, events, false events.
    15 SharedLines(
        /// Line number, events, false events.
        lines: Vec<(u64, u64, u64)> as Triples
    );
    /// Events of a cell in each of the [`crate::GROUPS`] parts of the sampled lines; several such records add up.
    16 Groups {
        /// The reader.
        thread: u32 as Number,
        /// Layer as in `Comm`.
        layer: u8 as Number,
        /// The writer.
        src: u32 as Number,
        /// Counts by part.
        counts: Vec<u64> as Numbers,
    };
    /// A detail was dropped to keep the memory bound: a note for the profile.
    17 Reduced(
        /// The note.
        text: String as Text
    );
    /// The mapping at `address` is of memory that other processes may map too; follows its `Map`.
    18 Backing {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// First address.
        address: u64 as Number,
        /// Length in bytes.
        length: u64 as Number,
        /// Number of the object mapped, the same in all processes that use the cross-process table.
        object: u32 as Number,
        /// Offset of the first address in the object.
        offset: u64 as Number,
    };
    /// A thread's number among all threads that use the cross-process table.
    19 CrossProcessNumber {
        /// The thread.
        thread: u32 as Number,
        /// Its number in the cross-process table.
        number: u32 as Number,
    };
    /// The process uses the cross-process table of a host without the recorder: numbers of objects and threads that
    /// processes share are those of that table. Comes before them; without it, they are those of the recorder's table.
    20 TableOfHost(
        /// The host's name.
        host: String as Text
    );
    /// A process image will have a journal of its own: a created process, or the next program of this one. If there is
    /// no such journal, the profile lacks the process.
    21 Expected {
        /// Path of its first thread.
        path: String as Text,
        /// Its number, as in `Process`.
        image: u32 as Number,
        /// Time of the thread that creates or executes it.
        time: u64 as Number,
        /// The program's file.
        program: String as Text,
    };
    /// `execve` failed: the process continues, and this image of it is not expected any more.
    22 Withdrawn {
        /// Path as in `Expected`.
        path: String as Text,
        /// Number as in `Expected`.
        image: u32 as Number,
    };
    /// The process was forked from another one of the recording, whose files, memory events and call stacks up to then
    /// it inherits. The order of its own memory events goes on where the other's was.
    23 Forked {
        /// Path of the other process's first thread.
        parent: String as Text,
        /// Number of its image.
        image: u32 as Number,
        /// The other's next number in the order of memory events.
        sequence: u64 as Number,
    };
    /// A call stack that allocated memory; comes before the first `Block` that names it.
    30 Site {
        /// Number of the site in this journal.
        site: u32 as Number,
        /// Return addresses, innermost first.
        frames: Vec<u64> as Numbers,
    };
    /// A block of memory was allocated.
    31 Block {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// The thread that allocated it.
        thread: u32 as Number,
        /// First address.
        address: u64 as Number,
        /// Bytes requested.
        length: u64 as Number,
        /// Number of the site.
        site: u32 as Number,
    };
    /// A thread set its name.
    32 ThreadName {
        /// The thread.
        thread: u32 as Number,
        /// The name as the kernel keeps it: at most 15 bytes.
        name: String as Text,
    };
    /// A function that hands work to threads at run time was called; its symbol.
    33 Sharing(
        /// The symbol.
        symbol: String as Text
    );
    /// A place whose passes are recorded; comes before the first `Mark` that names it.
    34 MarkPlace {
        /// Number of the place in this journal.
        place: u32 as Number,
        /// [`numaloc_model::MarkKind::ALL`] index.
        kind: u8 as Number,
        /// The entry point that is called, or the name that the program gives.
        name: String as Text,
        /// Address of the region's function, 0 if the name says it all.
        function: u64 as Number,
    };
    /// A place was passed.
    35 Mark {
        /// The thread.
        thread: u32 as Number,
        /// Number of the place.
        place: u32 as Number,
        /// The how-many-eth pass by any thread of this process image, from 1.
        occurrence: u64 as Positive,
        /// Time of the pass.
        time: u64 as Number,
    };
    /// Samples of the instructions of a thread that communicate or access memory; several such records add up.
    36 Sites {
        /// The thread.
        thread: u32 as Number,
        /// [`numaloc_model::SiteKind::ALL`] index; the writer, as in `Comm`, or the thread itself; page (of 4 KiB);
        /// address of the instruction; address of the writer's; samples; events or accesses for which they stand.
        cells: Vec<SiteCount> as SiteCounts,
    };
    /// A memory policy that the program, or the one that executed it, set.
    37 MemoryPolicy {
        /// Its number in this journal, from 1.
        policy: u32 as Number,
        /// `MPOL_*`, without flags.
        mode: u8 as Number,
        /// Mask of its nodes, by OS index.
        nodes: u64 as Number,
        /// Home node plus 1, 0 for none.
        home: u64 as Number,
    };
    /// Pages that a thread placed in another way than by touching them first.
    38 Placed {
        /// The thread, by its number in its process's journal.
        thread: u32 as Number,
        /// Number of forks between its process and this one: 0 for a thread of this process.
        forks: u32 as Number,
        /// The rule: 0 access, 1 store to one page of a transparent huge page, 2 store by the kernel for the thread,
        /// 3 populated or locked, 4 copied on write after a fork, 5 inherited by a fork, 6 moved by `mremap`.
        rule: u8 as Number,
        /// Number of the policy, 0 for none.
        policy: u32 as Number,
        /// When.
        time: u64 as Number,
        /// First page (of 4 KiB).
        page: u64 as Number,
        /// Number of pages.
        count: u64 as Positive,
    };
    /// Samples of a thread's accesses, for the contention of lines; several such records add up.
    39 Accesses {
        /// The thread.
        thread: u32 as Number,
        /// The samples, in their order.
        cells: Vec<AccessSample> as AccessSamples,
    };
    /// A thread was named through its file in `/proc`; comes before or after the `ThreadStart` of this thread.
    40 TaskName {
        /// Kernel's thread id.
        tid: u32 as Number,
        /// The name as the kernel keeps it: at most 15 bytes.
        name: String as Text,
    };
    /// The process has replaced its arguments by a title; at its end.
    41 Title(
        /// The title, at most 256 bytes.
        title: String as Text
    );
    /// The program named anonymous memory (`PR_SET_VMA_ANON_NAME`).
    42 MemoryName {
        /// Order among the process's memory events.
        sequence: u64 as Number,
        /// First address.
        address: u64 as Number,
        /// Length in bytes.
        length: u64 as Number,
        /// The name.
        name: String as Text,
    };
}

impl Record {
    /// Appends the record to a payload: its kind, then its fields.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Encoder(out);
        to.leb128(u64::from(self.kind()));
        self.visit(&mut to);
    }
}
