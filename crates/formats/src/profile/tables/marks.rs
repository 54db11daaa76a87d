//! The table `marks`: recorded passes of places in the program.

use numaloc_model::profile::Table as Part;
use numaloc_model::{MarkKind, MarkPlace, MarkRow, ThreadIdx};

use crate::profile::schema::{Schema, Unit, column, plain, text, word};

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
