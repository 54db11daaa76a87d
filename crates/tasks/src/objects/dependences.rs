//! Dependences between blocks, events and tasks, in the order in which a program may add them.

use std::sync::atomic::Ordering;

use super::delivery::Waiter;
use super::label::Dependence;
use super::task::{Edt, slot_state};
use super::{blocks, events, labels, slots};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// Adds a dependence: when `source` (nothing, a data block, an event) is satisfied, so is the slot of `destination` (a
/// task or an event). If one of them is a label under which nothing exists yet, the dependence waits until something is
/// created there.
///
/// # Errors
/// [`Error::Invalid`]: one of them is gone or the wrong kind, no such slot, the slot has a source already.
#[inline]
pub fn add(w: &mut Worker, source: Guid, destination: Guid, slot: u32, mode: u32) -> Result<()> {
    let dependence = Dependence {
        source,
        destination,
        slot,
        mode,
        connected: false,
    };
    let Some(destination) = labels::resolve_or_await(w, destination, dependence)? else {
        return Ok(());
    };
    let dependence = Dependence {
        destination,
        ..dependence
    };
    let Ok(edt) = slots::find(w, destination) else {
        if !events::exists(w, destination) {
            return Err(Error::Invalid);
        }
        return link(w, dependence);
    };
    slots::connect(edt, slot, mode)?;
    let result = link(
        w,
        Dependence {
            connected: true,
            ..dependence
        },
    );
    if result.is_err() {
        // SAFETY: alive: this slot is not satisfied.
        let state = unsafe { &(*Edt::slot(edt, slot)).state };
        state.store(slot_state::FREE, Ordering::Relaxed);
    }
    result
}

/// Continues a dependence that waited for a label, now that something was created under it.
///
/// # Errors
/// As for [`add`].
pub(crate) fn resume(w: &mut Worker, dependence: Dependence) -> Result<()> {
    if dependence.connected {
        return link(w, dependence);
    }
    let Dependence {
        source,
        destination,
        slot,
        mode,
        ..
    } = dependence;
    add(w, source, destination, slot, mode)
}

/// Connects the source to an existing destination; if that is a task, its slot is already taken.
#[inline]
fn link(w: &mut Worker, dependence: Dependence) -> Result<()> {
    let Dependence {
        source,
        destination,
        slot,
        connected,
        ..
    } = dependence;
    let Some(source) = labels::resolve_or_await(w, source, dependence)? else {
        return Ok(());
    };
    let waiter = Waiter {
        to: destination,
        slot,
    };
    if !source.is_null() && !blocks::exists(w, source) {
        events::add_waiter(w, source, waiter)
    } else if connected {
        slots::satisfy(w, destination, slot, source)
    } else {
        events::satisfy(w, destination, source, slot)
    }
}

/// As [`add`] from contributor `from`'s side of a collective event.
///
/// # Errors
/// As for [`add`].
pub fn add_collective(
    w: &mut Worker,
    source: Guid,
    from: u32,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> Result<()> {
    let source = labels::resolve(w, source)?;
    let destination = labels::resolve(w, destination)?;
    if let Ok(edt) = slots::find(w, destination) {
        slots::connect(edt, slot, mode)?;
    }
    let waiter = Waiter {
        to: destination,
        slot,
    };
    events::add_collective_waiter(w, source, from, waiter)
}
