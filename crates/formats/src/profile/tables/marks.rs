//! Tables about places in the program: `marks`, passed by threads, and `sites`, which communicate and access memory.

use std::borrow::Cow;

use numaloc_model::profile::Table as Part;
use numaloc_model::{
    CodePlace, MarkKind, MarkPlace, MarkRow, ObjectIdx, SiteKind, SiteRow, ThreadIdx,
};

use crate::profile::schema::{
    Field, Schema, Unit, column, later_number, maybe_index, plain, text, word,
};

pub(in crate::profile) static MARKS: Schema<MarkRow> = Schema {
    table: Part::Marks,
    row: "recorded pass of a mark",
    since: 1,
    may_be_missing: true,
    blank: || MarkRow {
        place: MarkPlace {
            kind: MarkKind::Region,
            name: String::new(),
        },
        occurrence: 0,
        thread: ThreadIdx(0),
        time: 0,
    },
    columns: &[
        column(
            "kind",
            Unit::None,
            word!(MarkKind, "a kind of mark", place.kind),
            "`region`, `barrier`, `thread` or `user`: see [tracing](../tracing.md#marks)",
        ),
        column(
            "name",
            Unit::None,
            text!(place.name),
            "the region's function, the entry point, or the name that the program gives",
        ),
        column(
            "occurrence",
            Unit::Of("passes"),
            plain!(U64, occurrence),
            "how often the place was passed up to here, by all threads of the process, from 1",
        ),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the thread that passed it",
        ),
        column("time", Unit::Time, plain!(U64, time), "its time then"),
    ],
};

pub(in crate::profile) static SITES: Schema<SiteRow> = Schema {
    table: Part::Sites,
    row: "kind, thread, other thread, object and places in the code",
    since: 1,
    may_be_missing: true,
    blank: || SiteRow {
        kind: SiteKind::Communication,
        thread: ThreadIdx(0),
        other: None,
        object: None,
        variable: None,
        here: CodePlace::default(),
        there: CodePlace::default(),
        samples: 0,
        amount: 0,
    },
    columns: &[
        column(
            "kind",
            Unit::None,
            word!(SiteKind, "a kind of code site", kind),
            "`communication` (a load of what another thread wrote), `load` or `store`",
        ),
        column(
            "thread",
            Unit::Row(Part::Threads),
            plain!(U32, thread.0),
            "the thread that loaded or stored",
        ),
        column(
            "other",
            Unit::Row(Part::Threads),
            maybe_index!(ThreadIdx, other),
            "the thread that wrote what was read; for `load` and `store` the page's first toucher; null if unknown",
        ),
        column(
            "object",
            Unit::Row(Part::Objects),
            maybe_index!(ObjectIdx, object),
            "the object that holds the memory",
        ),
        later_number(
            "variable",
            Unit::Of("bytes"),
            |row| row.variable,
            |row, offset| row.variable = offset,
            "its variable or block that holds at least half of the page, by its offset in the object; null if none does",
        ),
        column(
            "function",
            Unit::None,
            Field::MaybeText(
                |row| row.here.function.as_deref().map(Cow::Borrowed),
                |row, text| row.here.function = text,
            ),
            "function of the load or store: its name in the source, else its symbol, else file and offset; null if unknown",
        ),
        column(
            "source",
            Unit::None,
            Field::MaybeText(
                |row| row.here.source.as_deref().map(Cow::Borrowed),
                |row, text| row.here.source = text,
            ),
            "line of the load or store, `FILE:LINE`; null without debugging information",
        ),
        column(
            "other_function",
            Unit::None,
            Field::MaybeText(
                |row| row.there.function.as_deref().map(Cow::Borrowed),
                |row, text| row.there.function = text,
            ),
            "`communication` only: function of the other thread's store; null if unknown",
        ),
        column(
            "other_source",
            Unit::None,
            Field::MaybeText(
                |row| row.there.source.as_deref().map(Cow::Borrowed),
                |row, text| row.there.source = text,
            ),
            "line of that store",
        ),
        column(
            "samples",
            Unit::Count("samples"),
            plain!(U64, samples),
            "number of samples",
        ),
        column(
            "amount",
            Unit::Count("events or accesses"),
            plain!(U64, amount),
            "what the samples stand for",
        ),
    ],
};
