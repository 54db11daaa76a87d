//! Waiting inside a task. The thread runs other tasks meanwhile, on the same stack: nested waits need a deep stack, and
//! a task continues only after the tasks started above it have ended. When nothing can run and no awaited event has
//! fired, the run ends with a report ([`crate::observe::stuck`]).

use super::waits::Wait;
use super::{blocks, describe, events, labels, scopes};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::observe::stuck;
use crate::scheduler;
use crate::state::{self, Worker};

/// Runs another ready task now. False: there is none.
fn run_another(w: &mut Worker) -> bool {
    // Completions of this task must not be delayed until it ends.
    scopes::return_credits(w);
    w.nesting += 1;
    let pointer: *mut Worker = w;
    debug_assert_eq!(pointer, state::current());
    // SAFETY: this thread's worker; `w` is not used until the call returns.
    let ran = unsafe { scheduler::run_one(pointer) };
    // SAFETY: as above.
    unsafe { (*pointer).nesting -= 1 };
    ran
}

/// Runs other tasks until `poll` returns a value. `what` is the event or label that the task waits for, named in the
/// report if it never comes.
pub(crate) fn until<T>(
    w: &mut Worker,
    what: Guid,
    poll: &mut dyn FnMut(&mut Worker) -> Option<T>,
) -> T {
    if let Some(found) = poll(w) {
        return found;
    }
    w.rt.waits.begin(Wait {
        worker: w.index,
        task: describe::task(w.rt, w.current),
        what,
        holds: blocks::held_by_current(w),
    });
    loop {
        if let Some(found) = poll(w) {
            w.rt.waits.end(w.index);
            return found;
        }
        if !run_another(w) && !scheduler::pause(w, &mut |w| poll(w).is_some()) {
            stuck::end(w.rt);
        }
    }
}

/// Waits for an event and returns its payload.
///
/// # Errors
/// [`Error::Invalid`]: no such event, unless it may still be created; [`Error::Pending`]: not fired, with `check`.
pub fn wait(w: &mut Worker, guid: Guid, wait_for_create: bool, check: bool) -> Result<Guid> {
    until(w, guid, &mut |w| {
        let found = labels::resolve(w, guid).and_then(|guid| events::payload(w, guid));
        match found {
            Ok(Some(payload)) => Some(Ok(payload)),
            Err(error) if !wait_for_create || !guid.is_label() => Some(Err(error)),
            _ if check => Some(Err(Error::Pending)),
            _ => None,
        }
    })
}

/// Waits for an event; returns its payload and the payload's memory, held until the task ends.
///
/// # Errors
/// As [`wait`].
pub fn wait_and_hold(
    w: &mut Worker,
    guid: Guid,
    wait_for_create: bool,
    check: bool,
) -> Result<(Guid, *mut u8, u64)> {
    let payload = wait(w, guid, wait_for_create, check)?;
    if payload.is_null() {
        return Ok((payload, std::ptr::null_mut(), 0));
    }
    let (data, size) = blocks::hold(w, payload)?;
    Ok((payload, data, size))
}
