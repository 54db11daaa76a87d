//! Finish scopes: all tasks that a FINISH task creates, directly or indirectly, count in its scope; when all have
//! ended, the task's output event fires.
//!
//! Counting uses the credits of [`numaloc_task_queues::Latch`]. A worker holds credits of one scope at a time and
//! returns them when it switches to a task of another scope or finds its own queue empty, so the end of a scope is
//! detected at the latest when its workers run out of tasks.

use std::ptr;

use numaloc_task_queues::Latch;

use crate::abi::{Errno, Guid, Result};
use crate::event;
use crate::object::{Header, Kind};
use crate::worker::Worker;

/// A finish scope.
#[repr(C)]
pub struct Scope {
    header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    latch: Latch,
    parent: *mut Scope,
    /// Fires when the scope is complete; may be null.
    pub(crate) output: Guid,
}

/// Opens a scope for a FINISH task that itself counts in `parent`; the task holds the first credit.
pub fn open(w: &mut Worker, parent: *mut Scope, output: Guid) -> Result<*mut Scope> {
    let scope: *mut Scope =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Scope>())
            .ok_or(Errno::ENOMEM)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays.
    unsafe {
        (*scope).header.begin(Kind::Scope);
        ptr::addr_of_mut!((*scope).latch).write(Latch::new(1));
        (*scope).parent = parent;
        (*scope).output = output;
    }
    Ok(scope)
}

/// Counts a new task in `scope` (null: none). The caller runs in that scope, or is its FINISH task.
#[inline]
pub fn enter(w: &mut Worker, scope: *mut Scope) {
    if !scope.is_null() {
        switch_to(w, scope);
        // SAFETY: a scope lives as long as any of its tasks.
        w.credits.spend(unsafe { &(*scope).latch });
    }
}

/// Records the end of a task of `scope` (null: none).
#[inline]
pub fn leave(w: &mut Worker, scope: *mut Scope) {
    if !scope.is_null() {
        switch_to(w, scope);
        // SAFETY: the leaving task's credit keeps it alive.
        w.credits.regain(unsafe { &(*scope).latch });
    }
}

#[inline]
fn switch_to(w: &mut Worker, scope: *mut Scope) {
    while w.scope != scope {
        if w.scope.is_null() {
            w.scope = scope;
        } else {
            return_credits(w);
        }
    }
}

/// Returns the worker's credits; completes the scope (and enclosing ones) if they were the last.
pub fn return_credits(w: &mut Worker) {
    while !w.scope.is_null() {
        let scope = std::mem::replace(&mut w.scope, ptr::null_mut());
        // SAFETY: the credits held keep it alive.
        if !w.credits.return_all(unsafe { &(*scope).latch }) {
            return;
        }
        // SAFETY: the last credit is ours, so we own the scope.
        let (parent, output) = unsafe { ((*scope).parent, (*scope).output) };
        if w.rt.recorder.is_some() {
            crate::record::scope_done(w, scope as usize, parent as usize, output);
        }
        // SAFETY: as above; it has no GUID.
        unsafe { w.rt.arena.release(&mut w.lists, scope.cast()) };
        if !parent.is_null() {
            w.scope = parent;
            // SAFETY: the FINISH task's own credit keeps its parent scope alive.
            w.credits.regain(unsafe { &(*parent).latch });
        }
        if !output.is_null() {
            event::satisfy_quietly(w, output, Guid::NULL, 0);
        }
    }
}
