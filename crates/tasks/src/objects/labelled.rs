//! Creation of objects under labels: with CHECK, an atomic get-or-create.

use std::sync::atomic::{Ordering, fence};

use super::describe::describe;
use super::label::{BEING_CREATED, cell};
use super::{dependences, waiting};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// What to do if an object exists under the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// Replace it.
    Replace,
    /// Fail with [`Error::Exists`].
    Fail,
    /// Wait until it is destroyed.
    Wait,
}

/// Continues the dependences that waited for something under this label.
fn created(w: &mut Worker, guid: Guid) {
    fence(Ordering::SeqCst);
    let awaited = &w.rt.awaited;
    if awaited.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    let waited = awaited
        .by_label
        .lock()
        .expect("no panic while locked")
        .remove(&guid)
        .unwrap_or_default();
    awaited.count.fetch_sub(waited.len(), Ordering::SeqCst);
    for dependence in waited {
        if dependences::resume(w, dependence).is_err() {
            w.complain("an object was created under a label", || {
                format!(
                    "the dependence of {} slot {} on {} cannot be added",
                    describe(w.rt, dependence.destination),
                    dependence.slot,
                    describe(w.rt, guid)
                )
            });
        }
    }
}

/// Creates an object under a label. `occupied` is what to do with an existing object, unless `shared` says that all
/// creators mean the same one.
///
/// # Errors
/// [`Error::Exists`] if an object exists there; [`Error::Invalid`] if the GUID is not a label; errors of `create`.
pub fn create_under(
    mut w: &mut Worker,
    guid: Guid,
    occupied: Occupied,
    shared: impl Fn(&Worker, Guid) -> bool,
    create: impl FnOnce(&mut Worker) -> Result<Guid>,
) -> Result<()> {
    let cell = cell(&w.rt.arena, guid)?;
    let old = loop {
        let old = cell.target.load(Ordering::Acquire);
        if old == BEING_CREATED {
            std::thread::yield_now();
            continue;
        }
        if old != 0 && w.rt.arena.is_alive(Guid(old)) {
            if occupied == Occupied::Fail {
                return Err(Error::Exists);
            }
            if occupied == Occupied::Wait {
                let free = |w: &mut Worker| {
                    let now = cell.target.load(Ordering::Acquire);
                    (now != BEING_CREATED && !w.rt.arena.is_alive(Guid(now))).then_some(())
                };
                w = waiting::until(w, guid, &mut { free }).0;
                continue;
            }
            if shared(w, Guid(old)) {
                return Ok(());
            }
        }
        let claim =
            cell.target
                .compare_exchange(old, BEING_CREATED, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_ok() {
            break old;
        }
    };
    let new = create(w);
    let now = new.map_or(old, |guid| guid.0);
    cell.target.store(now, Ordering::Release);
    if new.is_ok() {
        created(w, guid);
    }
    new.map(|_| ())
}
