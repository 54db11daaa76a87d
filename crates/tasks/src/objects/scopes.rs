//! Finish scopes: all tasks that a FINISH task creates, directly or indirectly, count in its scope; when all have
//! ended, the task's output event fires.
//!
//! Counting uses the credits of [`numaloc_task_queues::Latch`]. A worker holds credits of one scope at a time and
//! returns them when it switches to a task of another scope or finds its own queue empty, so the end of a scope is
//! detected at the latest when its workers run out of tasks.

use std::ptr;

use super::events;
use super::task::Scope;
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// Opens a scope for a FINISH task that itself counts in `parent`; the task holds the first credit.
pub fn open(w: &mut Worker, parent: *mut Scope, output: Guid) -> Result<*mut Scope> {
    let scope: *mut Scope =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Scope>())
            .ok_or(Error::OutOfMemory)?
            .cast();
    // SAFETY: fresh memory of that size.
    unsafe { Scope::set_up(scope, parent, output) };
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
        if let Some(observer) = &w.rt.observer {
            observer.scope_done(scope as usize, parent as usize, output);
        }
        // SAFETY: as above; it has no GUID.
        unsafe { w.rt.arena.release(&mut w.lists, scope.cast()) };
        if !parent.is_null() {
            w.scope = parent;
            // SAFETY: the FINISH task's own credit keeps its parent scope alive.
            w.credits.regain(unsafe { &(*parent).latch });
        }
        if !output.is_null() {
            events::satisfy_quietly(w, output, Guid::NULL, 0);
        }
    }
}
