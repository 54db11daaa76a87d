//! The kind of object behind a GUID, numbered as in `ocrGuidUserKind`.

use numaloc_tasks::objects::{blocks, events, labels, tasks};
use numaloc_tasks::state::Worker;

use super::abi::Guid;

const NONE: u32 = 0;
const BLOCK: u32 = 1;
const TASK: u32 = 2;
const TEMPLATE: u32 = 3;
/// Event kinds follow in the order of their types, which start at 1.
const BEFORE_EVENTS: u32 = 3;

/// The kind of the object behind a GUID or label; `NONE` if it is gone.
pub fn of(w: &Worker, guid: Guid) -> u32 {
    let Ok(guid) = labels::resolve(w, guid) else {
        return NONE;
    };
    if blocks::exists(w, guid) {
        BLOCK
    } else if tasks::node_of(w, guid).is_some() {
        TASK
    } else if tasks::template_node(w, guid).is_ok() {
        TEMPLATE
    } else {
        events::kind_of(w, guid).map_or(NONE, |kind| BEFORE_EVENTS + u32::from(kind))
    }
}
