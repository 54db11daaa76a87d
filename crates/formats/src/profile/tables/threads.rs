//! Tables about threads: `threads`, `slices`, `communication` and `cell_errors`.

use numaloc_model::profile::{CellError, Clock, CommRow, Slice, Table as Part, Thread, ThreadRole};
use numaloc_model::{Layer, SliceIdx, ThreadIdx};

use std::borrow::Cow;

use crate::profile::schema::{Field, Schema, Unit, column, later_text, plain, text, word};

/// A row of the table `slices`.
#[derive(Clone, Copy)]
pub(in crate::profile) struct SliceRow {
    pub(in crate::profile) slice: Slice,
    /// The clock of the whole profile, for other tools.
    pub(in crate::profile) clock: Clock,
}

pub(in crate::profile) static THREADS: Schema<Thread> = Schema {
    table: Part::Threads,
    row: "thread or rank",
    since: 1,
    may_be_missing: false,
    blank: || Thread::new(String::new()),
    columns: &[
        column(
            "thread",
            Unit::Own,
            Field::Own,
            "dense id from 0; all other tables refer to it",
        ),
        column(
            "path",
            Unit::None,
            text!(path),
            "stable name, the same in every run, unique among the threads of a rank: see [identity](../identity.md)",
        ),
        column(
            "label",
            Unit::None,
            Field::MaybeText(
                |thread| thread.role.label(),
                |thread, label| thread.role = ThreadRole::from_label(label),
            ),
            "role, e.g. `runtime helper`",
        ),
        column(
            "pid",
            Unit::None,
            plain!(U32, pid),
            "process id of the recorded run",
        ),
        column(
            "tid",
            Unit::None,
            plain!(U32, tid),
            "thread id of the recorded run",
        ),
        column(
            "rank",
            Unit::None,
            Field::MaybeU64(
                |thread| thread.rank.map(u64::from),
                |thread, rank| thread.rank = rank.and_then(|rank| u32::try_from(rank).ok()),
            ),
            "MPI rank",
        ),
        column(
            "start",
            Unit::Time,
            plain!(U64, start),
            "the first observation",
        ),
        column("end", Unit::Time, plain!(U64, end), "the last observation"),
        column(
            "accesses",
            Unit::Count("accesses"),
            plain!(U64, accesses),
            "loads and stores",
        ),
        column(
            "read_bytes",
            Unit::Count("bytes"),
            plain!(U64, read_bytes),
            "bytes loaded",
        ),
        column(
            "write_bytes",
            Unit::Count("bytes"),
            plain!(U64, write_bytes),
            "bytes stored",
        ),
        column(
            "dram_bytes",
            Unit::Count("bytes"),
            plain!(MaybeU64, dram_bytes),
            "bytes of the lines fetched from DRAM; null where not observed",
        ),
        later_text(
            "name",
            |thread| thread.name.as_deref().map(Cow::Borrowed),
            |thread, name| thread.name = name,
            "name that the program has set, at most 15 bytes; not part of the identity",
        ),
        later_text(
            "title",
            |thread| thread.title.as_deref().map(Cow::Borrowed),
            |thread, title| thread.title = title,
            "of a process's first thread: the title by which the process has replaced its arguments, otherwise the \
             program that a created process runs",
        ),
    ],
};

pub(in crate::profile) static SLICES: Schema<SliceRow> = Schema {
    table: Part::Slices,
    row: "time slice",
    since: 1,
    may_be_missing: false,
    blank: || SliceRow {
        slice: Slice { start: 0, end: 0 },
        clock: Clock::Virtual,
    },
    columns: &[
        column("slice", Unit::Own, Field::Own, "dense id from 0"),
        column(
            "start",
            Unit::Time,
            plain!(U64, slice.start),
            "first moment",
        ),
        column(
            "end",
            Unit::Time,
            plain!(U64, slice.end),
            "first moment after it",
        ),
        column(
            "clock",
            Unit::None,
            Field::Written(|row| row.clock.name()),
            "`wall` or `virtual`, as in `meta.json`",
        ),
    ],
};

pub(in crate::profile) static COMMUNICATION: Schema<CommRow> = Schema {
    table: Part::Communication,
    row: "pair, slice and layer",
    since: 1,
    may_be_missing: false,
    blank: || CommRow {
        slice: SliceIdx(0),
        src: ThreadIdx(0),
        dst: ThreadIdx(0),
        layer: Layer::WriteRead,
        events: 0,
        bytes: 0,
    },
    columns: &[
        column(
            "slice",
            Unit::Row(Part::Slices),
            plain!(U32, slice.0),
            "time slice",
        ),
        column(
            "src",
            Unit::Row(Part::Threads),
            plain!(U32, src.0),
            "thread that wrote or sent",
        ),
        column(
            "dst",
            Unit::Row(Part::Threads),
            plain!(U32, dst.0),
            "thread that read or received",
        ),
        column(
            "layer",
            Unit::None,
            word!(Layer, "a communication layer", layer),
            "`write_read`, `false_sharing` (a part of `write_read`), `shared_line`, `last_two`, `sampled_line`, \
             `message` or `collective`: see [metrics](../metrics.md)",
        ),
        column(
            "events",
            Unit::Count("events"),
            plain!(U64, events),
            "number of events",
        ),
        column(
            "bytes",
            Unit::Count("bytes"),
            plain!(U64, bytes),
            "sum of their sizes",
        ),
    ],
};

pub(in crate::profile) static CELL_ERRORS: Schema<CellError> = Schema {
    table: Part::CellErrors,
    row: "cell of a whole-run matrix, sampled runs only",
    since: 1,
    may_be_missing: true,
    blank: || CellError {
        layer: Layer::WriteRead,
        src: ThreadIdx(0),
        dst: ThreadIdx(0),
        relative_error: 0.0,
    },
    columns: &[
        column(
            "layer",
            Unit::None,
            word!(Layer, "a communication layer", layer),
            "the cell's layer, as in `communication`",
        ),
        column(
            "src",
            Unit::Row(Part::Threads),
            plain!(U32, src.0),
            "the cell's row",
        ),
        column(
            "dst",
            Unit::Row(Part::Threads),
            plain!(U32, dst.0),
            "the cell's column",
        ),
        column(
            "relative_error",
            Unit::Of("share"),
            plain!(F64, relative_error),
            "standard error of the cell's events, as a share of them; 1 if the sample is too small for an estimate",
        ),
    ],
};
