//! Waiting inside a task. The thread runs other tasks meanwhile, on the same stack: a program that
//! waits ever deeper needs an ever deeper stack.

use crate::abi::{Errno, Guid, Result};
use crate::worker::{self, Worker};
use crate::{block, event, label, scheduler, scope};

/// Runs another ready task now, or lets other threads run.
pub fn run_something_else(w: &mut Worker) {
    // What this task has completed must not wait for it to end.
    scope::settle(w);
    w.nesting += 1;
    let pointer: *mut Worker = w;
    debug_assert_eq!(pointer, worker::current());
    // SAFETY: this thread's worker; `w` is not used until the call returns.
    let ran = unsafe { scheduler::run_one(pointer) };
    // SAFETY: as above.
    unsafe { (*pointer).nesting -= 1 };
    if !ran {
        std::thread::yield_now();
    }
}

/// Waits for an event and gives its payload.
///
/// # Errors
/// EINVAL: no such event, unless it may still be created; EPEND: not fired, with `check`.
pub fn wait(w: &mut Worker, guid: Guid, wait_for_create: bool, check: bool) -> Result<Guid> {
    loop {
        let found = label::resolve(w, guid).and_then(|guid| event::payload(w, guid));
        match found {
            Ok(Some(payload)) => return Ok(payload),
            Err(error) if !wait_for_create || !label::is_label(guid) => return Err(error),
            _ if check => return Err(Errno::EPEND),
            _ => run_something_else(w),
        }
    }
}

/// Waits for an event; gives its payload, and its memory, held until the task ends.
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
