//! Waiting inside a task. The thread runs other tasks meanwhile, on another stack, and the task continues as soon as
//! its wait is over and its thread is between two tasks. When nothing can run and no awaited event has fired, the run
//! ends with a report ([`crate::observe::stuck`]).

use super::waits::Wait;
use super::{blocks, describe, events, labels, scopes, tasks};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::observe::stuck;
use crate::scheduler;
use crate::state::{self, Worker};

/// Lets other tasks run until `poll` returns a value. `what` is the event or label that the task waits for, named in
/// the report if it never comes. The caller's reference to the worker ends here: the task may continue on another
/// thread, whose worker is returned.
pub(crate) fn until<'w, T>(
    w: &'w mut Worker,
    what: Guid,
    poll: &mut dyn FnMut(&mut Worker) -> Option<T>,
) -> (&'w mut Worker, T) {
    if let Some(found) = poll(w) {
        return (w, found);
    }
    // Completions of this task, and tasks that it created, must not be delayed until it ends.
    tasks::release_held(w, false);
    scopes::return_credits(w);
    let rt = w.rt;
    let number = rt.waits.begin(Wait {
        task: describe::task(rt, w.current),
        what,
        holds: blocks::held_by_current(w),
    });
    let mut found = None;
    let pointer: *mut Worker = w;
    debug_assert_eq!(pointer, state::current());
    // SAFETY: this thread's worker; `w` is not used afterwards.
    let waited = unsafe {
        scheduler::wait(pointer, &mut |w| {
            found = poll(w);
            found.is_some()
        })
    };
    match waited {
        Ok(true) => {}
        Ok(false) => stuck::end(rt),
        Err(error) => {
            let count = rt.waits.count();
            rt.report(&format!(
                "cannot make a stack for one more waiting task: {error} ({count} tasks wait inside themselves)"
            ));
            std::process::exit(1);
        }
    }
    rt.waits.end(number);
    // SAFETY: the worker of the thread that the task is on now; no other reference to it is in use.
    let w = unsafe { &mut *state::current_again() };
    (w, found.expect("the wait is over"))
}

/// Waits for an event and returns its payload.
///
/// # Errors
/// [`Error::Invalid`]: no such event, unless it may still be created; [`Error::Pending`]: not fired, with `check`.
pub fn wait(w: &mut Worker, guid: Guid, wait_for_create: bool, check: bool) -> Result<Guid> {
    payload(w, guid, wait_for_create, check).1
}

fn payload(
    w: &mut Worker,
    guid: Guid,
    wait_for_create: bool,
    check: bool,
) -> (&mut Worker, Result<Guid>) {
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
    let (w, payload) = payload(w, guid, wait_for_create, check);
    let payload = payload?;
    if payload.is_null() {
        return Ok((payload, std::ptr::null_mut(), 0));
    }
    let (data, size) = blocks::hold(w, payload)?;
    Ok((payload, data, size))
}
