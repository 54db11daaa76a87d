//! Objects and errors in words, for reports.

use std::sync::atomic::Ordering;

use super::block::Block;
use super::header::Kind;
use super::task::Edt;
use super::{event, label};
use crate::guid::{Guid, affinity_node};
use crate::state::{Runtime, Worker};

/// Name and GUID of a task, for reports.
pub fn task(rt: &Runtime, edt: *mut Edt) -> String {
    if edt.is_null() {
        return "outside any task".to_owned();
    }
    // SAFETY: memory of objects is always readable.
    let (name, header) = unsafe { ((*edt).name, &(*edt).ready.header) };
    let guid = header.guid(rt.arena.offset(edt.cast()));
    format!("task {} ({:#x})", rt.names.name(name), guid.0)
}

/// Current state of the object behind a GUID, with the GUID.
pub fn describe(rt: &Runtime, guid: Guid) -> String {
    match guid {
        Guid::NULL => return "NULL_GUID".to_owned(),
        Guid::ERROR => return "ERROR_GUID".to_owned(),
        Guid::UNINITIALIZED => return "UNINITIALIZED_GUID".to_owned(),
        _ => {}
    }
    if guid.is_label() {
        return match label::target(&rt.arena, guid) {
            Ok(Guid::NULL) => format!("label {:#x} (nothing was created under it)", guid.0),
            Ok(target) => format!("label {:#x} of {}", guid.0, describe(rt, target)),
            Err(_) => format!("{:#x} (a label of no range)", guid.0),
        };
    }
    if let Some(node) = affinity_node(guid.0 as u64) {
        return format!("{:#x} (the affinity of node {node})", guid.0);
    }
    let Ok(header) = rt.object(guid) else {
        return format!("{:#x} (no GUID)", guid.0);
    };
    // SAFETY: memory of objects is always readable as a header.
    let is = |kind| unsafe { (*header).is(kind, guid) };
    if is(Kind::Edt) {
        task(rt, header.cast())
    } else if is(Kind::Event) {
        format!("event {:#x} ({})", guid.0, event::state(header.cast()))
    } else if is(Kind::Block) {
        format!(
            "data block {:#x} ({} bytes)",
            guid.0,
            // SAFETY: alive a moment ago; memory of objects stays readable.
            unsafe { (*header.cast::<Block>()).size }
        )
    } else if is(Kind::Template) {
        format!("template {:#x}", guid.0)
    } else if is(Kind::Range) {
        format!("range {:#x}", guid.0)
    } else {
        format!("{:#x} (gone: destroyed, or never existed)", guid.0)
    }
}

/// The number of errors after which no more are reported: an error in a loop must not fill the disk.
const MOST_COMPLAINTS: u64 = 100;

impl Worker {
    /// In checked mode: reports an error of the program and where it occurred.
    #[cold]
    pub fn complain(&self, during: &str, what: impl FnOnce() -> String) {
        if !self.rt.config.checked
            || self.rt.complaints.fetch_add(1, Ordering::Relaxed) >= MOST_COMPLAINTS
        {
            return;
        }
        let task = task(self.rt, self.current);
        self.rt.report(&format!("{task}: {during}: {}", what()));
    }

    /// Current state of the object behind a GUID, with the GUID.
    #[must_use]
    pub fn describe(&self, guid: Guid) -> String {
        describe(self.rt, guid)
    }
}
