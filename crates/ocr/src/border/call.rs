//! How a call of a program reaches the runtime: this thread's worker, error numbers and reports, and replays.
//!
//! During a replay of a task ([`numaloc_tasks::observe::replay`]) calls must have no effect. The thread then has no
//! current worker, so a call outside a replay pays nothing for this: only a call without a worker looks for a replay.

use numaloc_tasks::error::{Error, Result};
use numaloc_tasks::observe::replay;
use numaloc_tasks::state::{self, Worker};

use super::abi::{EPERM, Guid, errno};

/// An argument of a call, for error reports.
#[derive(Clone, Copy)]
pub enum Given {
    Guid(&'static str, Guid),
    Slot(&'static str, u32),
}

/// A call that changes something: runs `live` with this thread's worker, or `replayed` in a replay. Returns an OCR
/// error number, 0 for success.
#[inline]
pub fn effect(
    name: &str,
    given: &[Given],
    replayed: impl FnOnce(&mut Worker) -> Result<()>,
    live: impl FnOnce(&mut Worker) -> Result<()>,
) -> u8 {
    let w = state::current();
    if w.is_null() {
        return in_replay(name, given, replayed);
    }
    // SAFETY: this thread's worker; a task's code runs only while no reference to it is held.
    let w = unsafe { &mut *w };
    match live(w) {
        Ok(()) => 0,
        // SAFETY: as above; a task that waited may be on another thread now.
        Err(error) => failed(unsafe { &*state::current_again() }, name, given, error),
    }
}

/// A call that changes nothing outside the task, and does the same in a replay.
#[inline]
pub fn query(name: &str, given: &[Given], body: impl FnOnce(&mut Worker) -> Result<()>) -> u8 {
    let w = state::current();
    if w.is_null() {
        return in_replay(name, given, body);
    }
    // SAFETY: this thread's worker; a task's code runs only while no reference to it is held.
    let w = unsafe { &mut *w };
    match body(w) {
        Ok(()) => 0,
        Err(error) => failed(w, name, given, error),
    }
}

#[cold]
fn in_replay(name: &str, given: &[Given], body: impl FnOnce(&mut Worker) -> Result<()>) -> u8 {
    let w = state::replaying();
    if w.is_null() {
        // No thread of the runtime.
        return EPERM;
    }
    // SAFETY: the worker of this thread, whose task is being replayed; no reference to it is held meanwhile.
    let w = unsafe { &mut *w };
    match body(w) {
        Ok(()) => 0,
        Err(error) => failed(w, name, given, error),
    }
}

/// What a call without results does in a replay.
pub fn nothing(_: &mut Worker) -> Result<()> {
    Ok(())
}

/// What a creation does in a replay: it gives a GUID that refers to nothing.
///
/// # Safety
/// `guid` is null or writable.
pub unsafe fn fake(guid: *mut Guid) -> impl FnOnce(&mut Worker) -> Result<()> {
    move |_| {
        // SAFETY: the caller's promise.
        unsafe { put(guid, replay::fake_guid()) };
        Ok(())
    }
}

/// What a call does in a replay that cannot imitate it.
pub fn unfit(_: &mut Worker) -> Result<()> {
    replay::unfit();
    Err(Error::NotNow)
}

#[cold]
fn failed(w: &Worker, name: &str, given: &[Given], error: Error) -> u8 {
    let (number, code) = errno(error);
    if error != Error::Exists && error != Error::Pending {
        w.complain(name, || {
            let why = match code {
                Some(code) => format!("{code}: {error}"),
                None => "failed".to_owned(),
            };
            let given: Vec<String> = given
                .iter()
                .map(|given| match given {
                    Given::Guid(what, guid) => format!("{what} {}", w.describe(*guid)),
                    Given::Slot(what, slot) => format!("{what} {slot}"),
                })
                .collect();
            if given.is_empty() {
                format!("{why} (error {number})")
            } else {
                format!("{}: {why} (error {number})", given.join(", "))
            }
        });
    }
    number
}

/// Writes an optional out-parameter.
///
/// # Safety
/// `to` is null or writable.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}
