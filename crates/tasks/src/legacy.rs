//! Waiting inside a task. The thread runs other tasks meanwhile, on the same stack: nested waits need a deep stack, and
//! a task continues only after the tasks started above it have ended. When nothing can run and no awaited event has
//! fired, the run ends with a report ([`crate::stuck`]).

use crate::abi::{Errno, Guid, Result};
use crate::worker::{self, Worker};
use crate::{block, event, label, scheduler, scope, stuck};

/// Runs another ready task now. False: there is none.
fn run_another(w: &mut Worker) -> bool {
    // Completions of this task must not be delayed until it ends.
    scope::return_credits(w);
    w.nesting += 1;
    let pointer: *mut Worker = w;
    debug_assert_eq!(pointer, worker::current());
    // SAFETY: this thread's worker; `w` is not used until the call returns.
    let ran = unsafe { scheduler::run_one(pointer) };
    // SAFETY: as above.
    unsafe { (*pointer).nesting -= 1 };
    ran
}

/// Runs other tasks until `poll` returns a value. `what` is the event or label that the task waits for, named in the
/// report if it never comes.
pub fn until<T>(w: &mut Worker, what: Guid, poll: &mut dyn FnMut(&mut Worker) -> Option<T>) -> T {
    if let Some(found) = poll(w) {
        return found;
    }
    stuck::begin_wait(w, what);
    loop {
        if let Some(found) = poll(w) {
            stuck::end_wait(w);
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
/// EINVAL: no such event, unless it may still be created; EPEND: not fired, with `check`.
pub fn wait(w: &mut Worker, guid: Guid, wait_for_create: bool, check: bool) -> Result<Guid> {
    until(w, guid, &mut |w| {
        let found = label::resolve(w, guid).and_then(|guid| event::payload(w, guid));
        match found {
            Ok(Some(payload)) => Some(Ok(payload)),
            Err(error) if !wait_for_create || !label::is_label(guid) => Some(Err(error)),
            _ if check => Some(Err(Errno::EPEND)),
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
    let (data, size) = block::hold(w, payload)?;
    Ok((payload, data, size))
}
