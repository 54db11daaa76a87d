//! Tables about time in MPI: `mpi_calls` and `mpi_waits`.

use std::borrow::Cow;

use numaloc_model::profile::Table as Part;
use numaloc_model::{MpiCall, MpiWait, ThreadIdx, WaitKind};

use crate::profile::schema::{Field, Schema, Unit, column, plain, text, word};

pub(in crate::profile) static MPI_CALLS: Schema<MpiCall> = Schema {
    table: Part::MpiCalls,
    row: "rank, MPI operation, size of communicator, call site and class of size",
    since: 2,
    may_be_missing: true,
    blank: MpiCall::default,
    columns: &[
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the rank",
        ),
        column(
            "operation",
            Unit::None,
            text!(operation),
            "the call, such as `MPI_Send`",
        ),
        column(
            "ranks",
            Unit::Of("ranks"),
            plain!(U32, ranks),
            "size of the communicator; 0 if the call names none, such as `MPI_Wait`",
        ),
        column(
            "function",
            Unit::None,
            Field::MaybeText(
                |row| row.place.function.as_deref().map(Cow::Borrowed),
                |row, text| row.place.function = text,
            ),
            "function that calls: its name in the source, else its symbol, else file and offset; null if unknown",
        ),
        column(
            "source",
            Unit::None,
            Field::MaybeText(
                |row| row.place.source.as_deref().map(Cow::Borrowed),
                |row, text| row.place.source = text,
            ),
            "line of the call, `FILE:LINE`; null without debugging information",
        ),
        column(
            "most_bytes",
            Unit::Of("bytes"),
            plain!(U64, most_bytes),
            "class of size: the calls have at most this number of bytes, and more than half of it",
        ),
        column(
            "calls",
            Unit::Count("calls"),
            plain!(U64, calls),
            "number of calls",
        ),
        column(
            "bytes",
            Unit::Count("bytes"),
            plain!(U64, bytes),
            "sum of the sizes that they name: of what is sent, for receives of the buffer",
        ),
        column(
            "time_ns",
            Unit::Count("ns"),
            plain!(U64, nanoseconds),
            "time in these calls",
        ),
        column(
            "late_sender_ns",
            Unit::Count("ns"),
            Field::U64(|row| row.waiting[0], |row, value| row.waiting[0] = value),
            "part of it before the message was sent",
        ),
        column(
            "late_receiver_ns",
            Unit::Count("ns"),
            Field::U64(|row| row.waiting[1], |row, value| row.waiting[1] = value),
            "part of it before the receive was posted",
        ),
        column(
            "imbalance_ns",
            Unit::Count("ns"),
            Field::U64(|row| row.waiting[2], |row, value| row.waiting[2] = value),
            "part of it before the last rank entered the collective",
        ),
        column(
            "partners",
            Unit::Count("events"),
            plain!(U64, partners),
            "messages and collectives that the calls waited for",
        ),
        column(
            "matched",
            Unit::Count("events"),
            plain!(U64, matched),
            "those of them whose other side was kept, so that their waiting is known",
        ),
    ],
};

pub(in crate::profile) static MPI_WAITS: Schema<MpiWait> = Schema {
    table: Part::MpiWaits,
    row: "pair of ranks and kind of waiting",
    since: 2,
    may_be_missing: true,
    blank: || MpiWait {
        thread: ThreadIdx(0),
        other: ThreadIdx(0),
        kind: WaitKind::LateSender,
        calls: 0,
        nanoseconds: 0,
    },
    columns: &[
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the rank that waited",
        ),
        column(
            "other",
            Unit::Row(Part::Threads),
            plain!(U32, other.0),
            "the rank that it waited for",
        ),
        column(
            "kind",
            Unit::None,
            word!(WaitKind, "a kind of waiting", kind),
            "`late_sender`, `late_receiver` or `imbalance`: see [MPI](../mpi.md#time-in-mpi)",
        ),
        column(
            "calls",
            Unit::Count("calls"),
            plain!(U64, calls),
            "number of calls that waited; estimated if messages were left out",
        ),
        column(
            "time_ns",
            Unit::Count("ns"),
            plain!(U64, nanoseconds),
            "time of waiting",
        ),
    ],
};
