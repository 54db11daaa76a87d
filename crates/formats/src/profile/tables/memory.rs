//! Tables about memory: `objects`, `variables`, `pages`, `page_slices`, `shared_lines`, `contended_lines`,
//! `contended_visits` and `slow_loads`.

use std::borrow::Cow;

use numaloc_model::pages::{PageHead, ThreadAccess};
use numaloc_model::profile::{
    ContendedLine, ContendedVisits, Object, ObjectKind, PageSlice, SharedLine, SlowLoad,
    Table as Part, Variable, VisitedKind,
};
use numaloc_model::{ObjectIdx, PageNumber, SliceIdx, ThreadIdx};

use crate::profile::schema::{
    Field, Schema, Unit, column, later_text, maybe_index, plain, text, word,
};

/// A row of the table `variables`.
pub(in crate::profile) struct VariableRow {
    pub(in crate::profile) object: ObjectIdx,
    pub(in crate::profile) variable: Variable,
}

/// A row of the table `pages`.
#[derive(Clone, Copy)]
pub(in crate::profile) struct PageRow {
    /// The page; its first toucher counts for writing only.
    pub(in crate::profile) head: PageHead,
    pub(in crate::profile) access: ThreadAccess,
    /// Whether the thread touched the page first.
    pub(in crate::profile) is_first: bool,
}

/// A column with a part of a place in the code.
macro_rules! place {
    ($name:literal, $($part:ident).+, $about:literal) => {
        column(
            $name,
            Unit::None,
            Field::MaybeText(
                |row| row.$($part).+.as_deref().map(Cow::Borrowed),
                |row, text| row.$($part).+ = text,
            ),
            $about,
        )
    };
}

pub(in crate::profile) static OBJECTS: Schema<Object> = Schema {
    table: Part::Objects,
    row: "memory object",
    since: 1,
    may_be_missing: false,
    blank: || Object {
        kind: ObjectKind::Static,
        name: String::new(),
        size: 0,
        order: 0,
        thread: None,
        base: 0,
        variables: Vec::new(),
    },
    columns: &[
        column("object", Unit::Own, Field::Own, "dense id from 0"),
        column(
            "kind",
            Unit::None,
            word!(ObjectKind, "an object kind", kind),
            "`static`, `heap`, `mapping`, `stack` or `shared`",
        ),
        column(
            "name",
            Unit::None,
            text!(name),
            "file and section, mapped file, call site, or stack owner",
        ),
        column(
            "size",
            Unit::Of("bytes"),
            plain!(U64, size),
            "0 for the heap, which grows",
        ),
        column(
            "order",
            Unit::None,
            plain!(U32, order),
            "number among the objects with the same kind, name, creator and size, from 0",
        ),
        column(
            "thread",
            Unit::Row(Part::Threads),
            maybe_index!(ThreadIdx, thread),
            "creating or owning thread",
        ),
        column(
            "base",
            Unit::Of("address"),
            plain!(U64, base),
            "its first byte in the recorded run; it differs from run to run",
        ),
    ],
};

pub(in crate::profile) static VARIABLES: Schema<VariableRow> = Schema {
    table: Part::Variables,
    row: "variable of a static section, or block of the heap",
    since: 1,
    may_be_missing: true,
    blank: || VariableRow {
        object: ObjectIdx(0),
        variable: Variable {
            name: String::new(),
            offset: 0,
            size: 0,
            source: None,
        },
    },
    columns: &[
        column(
            "object",
            Unit::Row(Part::Objects),
            plain!(U32, object.0),
            "the section, or the object that holds the block",
        ),
        column(
            "name",
            Unit::None,
            text!(variable.name),
            "the name in the source if there is debugging information, else the symbol",
        ),
        column(
            "offset",
            Unit::Of("bytes"),
            plain!(U64, variable.offset),
            "from the object's first byte",
        ),
        column(
            "size",
            Unit::Of("bytes"),
            plain!(U64, variable.size),
            "its size",
        ),
        column(
            "source",
            Unit::None,
            Field::MaybeText(
                |row| row.variable.source.as_deref().map(Cow::Borrowed),
                |row, source| row.variable.source = source,
            ),
            "line of the declaration, `FILE:LINE`; null without debugging information",
        ),
    ],
};

pub(in crate::profile) static PAGES: Schema<PageRow> = Schema {
    table: Part::Pages,
    row: "page and thread",
    since: 1,
    may_be_missing: false,
    blank: || PageRow {
        head: PageHead {
            number: PageNumber(0),
            object: None,
            object_page: 0,
            first_touch: None,
            first_touch_time: 0,
            policy: None,
        },
        access: ThreadAccess {
            thread: ThreadIdx(0),
            reads: 0,
            writes: 0,
        },
        is_first: false,
    },
    columns: &[
        column(
            "page",
            Unit::Of("page number"),
            plain!(U64, head.number.0),
            "address divided by page size, in the recorded run's address space",
        ),
        column(
            "object",
            Unit::Row(Part::Objects),
            maybe_index!(ObjectIdx, head.object),
            "the object that it belongs to",
        ),
        column(
            "object_page",
            Unit::Of("pages"),
            plain!(U64, head.object_page),
            "page within the object: page 0 holds the object's first byte",
        ),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, access.thread.0),
            "the thread",
        ),
        column(
            "reads",
            Unit::Count("accesses"),
            plain!(U64, access.reads),
            "loads",
        ),
        column(
            "writes",
            Unit::Count("accesses"),
            plain!(U64, access.writes),
            "stores",
        ),
        column(
            "first_touch",
            Unit::None,
            plain!(Bool, is_first),
            "this thread touched the page first; false for all threads if the first touch was not observed, and for \
             pages of the page cache (below)",
        ),
        column(
            "first_touch_time",
            Unit::Time,
            plain!(U64, head.first_touch_time),
            "the page's first touch",
        ),
        later_text(
            "policy",
            |row| row.head.policy.map(|policy| policy.to_string().into()),
            |row, policy| row.head.policy = policy.and_then(|policy| policy.parse().ok()),
            "the memory policy that the program had set when the page was placed, as `MODE:NODES` (`interleave:all`, \
             `bind:0+2`; nodes of the recording machine); null for first touch, and in profiles of earlier releases",
        ),
    ],
};

pub(in crate::profile) static PAGE_SLICES: Schema<PageSlice> = Schema {
    table: Part::PageSlices,
    row: "slice, page and thread",
    since: 1,
    may_be_missing: false,
    blank: || PageSlice {
        slice: SliceIdx(0),
        page: PageNumber(0),
        thread: ThreadIdx(0),
        accesses: 0,
    },
    columns: &[
        column(
            "slice",
            Unit::Row(Part::Slices),
            plain!(U32, slice.0),
            "time slice",
        ),
        column("page", Unit::Page, plain!(U64, page.0), "the page"),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the thread",
        ),
        column(
            "accesses",
            Unit::Count("accesses"),
            plain!(U64, accesses),
            "loads and stores",
        ),
    ],
};

pub(in crate::profile) static SHARED_LINES: Schema<SharedLine> = Schema {
    table: Part::SharedLines,
    row: "cache line that threads communicated through",
    since: 1,
    may_be_missing: true,
    blank: || SharedLine {
        line: 0,
        object: None,
        object_offset: 0,
        events: 0,
        false_events: 0,
    },
    columns: &[
        column(
            "line",
            Unit::Of("line number"),
            plain!(U64, line),
            "address divided by line size, in the recorded run's address space",
        ),
        column(
            "object",
            Unit::Row(Part::Objects),
            maybe_index!(ObjectIdx, object),
            "the object that contains it",
        ),
        column(
            "object_offset",
            Unit::Of("bytes"),
            plain!(U64, object_offset),
            "from the object's first byte to the line's",
        ),
        column(
            "events",
            Unit::Count("events"),
            plain!(U64, events),
            "events of layer `write_read` through the line",
        ),
        column(
            "false_events",
            Unit::Count("events"),
            plain!(U64, false_events),
            "number of these events that are false sharing",
        ),
    ],
};

pub(in crate::profile) static CONTENDED_LINES: Schema<ContendedLine> = Schema {
    table: Part::ContendedLines,
    row: "cache line for which threads would contend if they ran at the same time",
    since: 2,
    may_be_missing: true,
    blank: ContendedLine::default,
    columns: &[
        column(
            "line",
            Unit::Of("line number"),
            plain!(U64, line),
            "as in `shared_lines`",
        ),
        column(
            "object",
            Unit::Row(Part::Objects),
            maybe_index!(ObjectIdx, object),
            "the object that contains it",
        ),
        column(
            "object_offset",
            Unit::Of("bytes"),
            plain!(U64, object_offset),
            "from the object's first byte to the line's",
        ),
        column(
            "threads",
            Unit::Count("threads"),
            plain!(U32, threads),
            "threads that contend",
        ),
        column(
            "writers",
            Unit::Count("threads"),
            plain!(U32, writers),
            "those of them that write",
        ),
        column(
            "visits",
            Unit::Count("visits"),
            plain!(U64, visits),
            "visits to the line, an upper bound of the transfers: a load and the store that follows it are one",
        ),
        column(
            "transfers",
            Unit::Count("transfers"),
            plain!(U64, transfers),
            "estimated transfers between caches if the threads run at the same time \
             ([model](../tracing.md#contention))",
        ),
        column(
            "false_transfers",
            Unit::Count("transfers"),
            plain!(U64, false_transfers),
            "those between threads of which neither uses bytes that the other writes",
        ),
        column(
            "atomics",
            Unit::Count("visits"),
            plain!(U64, atomics),
            "visits by atomic instructions",
        ),
        column(
            "samples",
            Unit::Count("samples"),
            plain!(U64, samples),
            "samples from which this is estimated; the relative error is 1 over their square root",
        ),
        place!(
            "writer_function",
            writer.function,
            "function of most stores: as in `sites`"
        ),
        place!("writer_source", writer.source, "its line"),
        place!("reader_function", reader.function, "function of most loads"),
        place!("reader_source", reader.source, "its line"),
    ],
};

pub(in crate::profile) static CONTENDED_VISITS: Schema<ContendedVisits> = Schema {
    table: Part::ContendedVisits,
    row: "contended line, thread and part of the run in which it visits the line",
    since: 2,
    may_be_missing: true,
    blank: ContendedVisits::default,
    columns: &[
        column(
            "line",
            Unit::Of("line number"),
            plain!(U64, line),
            "as in `shared_lines`",
        ),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the thread",
        ),
        column(
            "from",
            Unit::Of("accesses"),
            plain!(U64, from),
            "accesses of the thread before the first visit",
        ),
        column(
            "until",
            Unit::Of("accesses"),
            plain!(U64, until),
            "and before it would visit the line again",
        ),
        column(
            "visits",
            Unit::Count("visits"),
            plain!(U64, visits),
            "visits in between; of a lock its critical sections",
        ),
        column(
            "writes",
            Unit::Count("visits"),
            plain!(U64, writes),
            "visits that write",
        ),
        column(
            "atomics",
            Unit::Count("visits"),
            plain!(U64, atomics),
            "visits by atomic instructions",
        ),
        column(
            "held",
            Unit::Of("accesses"),
            plain!(U64, held),
            "of a lock: how long the thread has it, in the mean of the sections; otherwise 0",
        ),
        column(
            "kind",
            Unit::None,
            word!(VisitedKind, "a kind of contended line", kind),
            "`data`, `counter` (changed by atomic instructions in any order) or `lock`",
        ),
    ],
};

pub(in crate::profile) static SLOW_LOADS: Schema<SlowLoad> = Schema {
    table: Part::SlowLoads,
    row: "page and thread, where loads that take long are known",
    since: 1,
    may_be_missing: true,
    blank: || SlowLoad {
        page: PageNumber(0),
        thread: ThreadIdx(0),
        loads: 0,
    },
    columns: &[
        column("page", Unit::Page, plain!(U64, page.0), "the page"),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the thread",
        ),
        column(
            "loads",
            Unit::Count("loads"),
            plain!(U64, loads),
            "slow loads as defined by `slow_loads_source` in `meta.json`",
        ),
    ],
};
