//! Slots of tasks: connection, satisfaction, and what follows when the last one is satisfied.

use std::sync::atomic::Ordering;

use super::block::mode;
use super::blocks;
use super::header::Kind;
use super::task::{Edt, slot_state};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// The live task behind a GUID.
///
/// # Errors
/// [`Error::NotATask`]: not a task, or destroyed.
#[inline]
pub(crate) fn find(w: &Worker, guid: Guid) -> Result<*mut Edt> {
    Ok(w.rt.live(guid, Kind::Edt, Error::NotATask)?.cast())
}

/// Takes a slot for a dependence in that mode.
///
/// # Errors
/// [`Error::Invalid`]: no such slot or mode, or the slot is taken.
pub(crate) fn connect(edt: *mut Edt, slot: u32, mode: u32) -> Result<()> {
    if !matches!(
        mode,
        mode::NULL | mode::CONST | mode::RW | mode::EW | mode::RO
    ) {
        return Err(Error::Invalid);
    }
    // SAFETY: alive, because one of its slots is not satisfied (if the program is wrong, the memory
    // is still that of an object).
    unsafe {
        if slot >= (*edt).depc {
            return Err(Error::Invalid);
        }
        let dep = Edt::slot(edt, slot);
        (*dep)
            .state
            .compare_exchange(
                slot_state::FREE,
                slot_state::CONNECTED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .map_err(|_| Error::Invalid)?;
        (*dep).mode = mode;
    }
    Ok(())
}

/// Satisfies a slot of a task.
///
/// # Errors
/// [`Error::NotATask`], and [`Error::Invalid`]: no such slot, or already satisfied.
pub(crate) fn satisfy(w: &mut Worker, guid: Guid, slot: u32, payload: Guid) -> Result<()> {
    let edt = find(w, guid)?;
    // SAFETY: alive, because one of its slots is not satisfied yet.
    unsafe {
        if slot >= (*edt).depc {
            return Err(Error::Invalid);
        }
        let dep = Edt::slot(edt, slot);
        let before = (*dep).state.swap(slot_state::SATISFIED, Ordering::Relaxed);
        if before & slot_state::SATISFIED != 0 {
            (*dep).state.store(before, Ordering::Relaxed);
            return Err(Error::Invalid);
        }
        // The task does not see what it does not hold.
        (*dep).guid = if (*dep).mode == mode::NULL {
            Guid::NULL
        } else {
            payload
        };
        if let Some(observer) = &w.rt.observer {
            observer.slot_satisfied(w, &*edt);
        }
        if (*edt).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            ready(w, edt);
        }
    }
    Ok(())
}

/// Handles a task whose slots are all satisfied: acquires its data blocks, then schedules it.
#[inline]
pub(crate) fn ready(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: alive and, now that it is ready, owned by us.
    if unsafe { (*edt).depc } == 0 || blocks::acquire_all(w, edt) {
        blocks::schedule(w, edt);
    }
}
