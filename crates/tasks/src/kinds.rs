//! The kind of object behind a GUID, numbered as in `ocrGuidUserKind`.

use crate::abi::Guid;
use crate::object::Kind;
use crate::worker::Worker;
use crate::{event, label};

const NONE: u32 = 0;
const BLOCK: u32 = 1;
const TASK: u32 = 2;
const TEMPLATE: u32 = 3;
/// Event kinds follow in the order of their types, which start at 1.
const BEFORE_EVENTS: u32 = 3;

/// The kind of the object behind a GUID or label; `NONE` if it is gone.
pub fn of(w: &Worker, guid: Guid) -> u32 {
    let Ok(guid) = label::resolve(w, guid) else {
        return NONE;
    };
    let Ok(header) = w.rt.object(guid) else {
        return NONE;
    };
    // SAFETY: memory of objects is always readable as a header.
    let is = |kind| unsafe { (*header).is(kind, guid) };
    if is(Kind::Block) {
        BLOCK
    } else if is(Kind::Edt) {
        TASK
    } else if is(Kind::Template) {
        TEMPLATE
    } else if let Ok(kind) = event::kind_of(w, guid) {
        BEFORE_EVENTS + kind
    } else {
        NONE
    }
}
