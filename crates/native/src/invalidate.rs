//! Invalidation: drops translated code when the program's code changes.
//!
//! Mappings change by system calls, which call this module first. Pages that the program may both write and execute
//! are read-only while there is code from them ([`crate::translate`]); a write faults, and [`written`] drops the code
//! and makes the page writable. Code from memory that others may write, or that the program writes often, notices
//! changes by itself ([`crate::changes`]). What the kernel writes for the program to other pages is dropped by
//! [`rewritten`].
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::cache::{ENGINE, Engine};
use crate::state::State;
use crate::{blocks, record, sys};

/// Number of times that code was dropped from a page.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// So often a program that generates code drops some, and one that only loads libraries does not.
const OFTEN: u64 = 1000;

/// Whether the program writes code all the time. Translating it again and again takes longer than emulating it.
pub fn is_frequent() -> bool {
    DROPPED.load(Relaxed) >= OFTEN
}

/// Counts from nothing, in a new process.
pub fn begin() {
    DROPPED.store(0, Relaxed);
}

/// Drops code from `start..end`, because its mapping is about to change.
pub fn dropped(engine: &mut Engine, start: u64, end: u64) {
    for page in engine.pages_with_code(start, end) {
        DROPPED.fetch_add(1, Relaxed);
        engine.drop_page(page);
        engine.source.protected.remove(&page);
    }
}

/// Drops code at `pc` that has found out that memory does not contain it any more.
pub fn changed(pc: u64) {
    DROPPED.fetch_add(1, Relaxed);
    ENGINE.lock().changed(pc);
}

/// Handles a faulting write to `address`; true if our protection caused the fault, so that the write can be repeated.
pub fn written(address: u64) -> bool {
    let mut engine = ENGINE.lock();
    let page = sys::page_down(address);
    if !engine.source.protected.contains(&page) {
        // Another thread may have handled it already.
        return engine
            .source
            .regions
            .find(address)
            .is_some_and(|region| region.writable)
            && is_writable(page);
    }
    engine.source.changes.written(page);
    release(&mut engine, page);
    true
}

/// Drops code from `start..end`, which something else than the program's instructions writes or has written.
pub fn rewritten(engine: &mut Engine, start: u64, end: u64) {
    if start >= end {
        return;
    }
    for page in engine.pages_with_code(start, end) {
        match engine.source.protected.contains(&page) {
            true => release(engine, page),
            false => engine.drop_page(page),
        }
    }
}

/// Whether the page is writable now: asks the kernel with an advice that has no effect on writable pages.
fn is_writable(page: u64) -> bool {
    const MADV_POPULATE_WRITE: u64 = 23;
    // SAFETY: faults a page in.
    unsafe {
        sys::call(
            libc::SYS_madvise,
            [page, sys::PAGE, MADV_POPULATE_WRITE, 0, 0, 0],
        ) == 0
    }
}

fn release(engine: &mut Engine, page: u64) {
    DROPPED.fetch_add(1, Relaxed);
    engine.drop_page(page);
    engine.source.unprotect(page);
}

/// Makes all pages writable that the program regards as writable, after a system call failed on one that is not. False
/// if there was none.
pub fn release_all() -> bool {
    let mut engine = ENGINE.lock();
    let pages: Vec<u64> = engine.source.protected.iter().copied().collect();
    for &page in &pages {
        release(&mut engine, page);
    }
    !pages.is_empty()
}

/// Drops all code before the process gets a second thread, or memory that others share: it was made for one thread.
pub fn join_others(state: &State) {
    if record::join_others() {
        empty(state, |_| true);
    }
}

/// Drops all code, because it will be translated otherwise.
pub fn drop_all(state: &State) {
    empty(state, |_| true);
}

/// Makes room in a full cache.
pub fn flush(state: &State) {
    empty(state, Engine::is_full);
}

/// Empties the cache if it is necessary: waits until no thread is in the half to be used next, and switches to it.
fn empty(state: &State, necessary: impl Fn(&Engine) -> bool) {
    loop {
        let mut engine = ENGINE.lock();
        if !necessary(&engine) {
            return;
        }
        let now = engine.generation + 1;
        let elsewhere = blocks::all().into_iter().any(|other| {
            // SAFETY: blocks of threads are never unmapped.
            let inside = unsafe { (*other).inside.load(Acquire) };
            !std::ptr::eq(other, state) && inside != 0 && inside != now
        });
        if !elsewhere {
            if engine.reuses_code() {
                // Sweeps over memory have the same place again and again.
                let mut last = (0, None);
                record::rename_places(|place| {
                    if last.0 != place {
                        last = (place, engine.source_dropped(place));
                    }
                    last.1
                });
            }
            engine.flush();
            return;
        }
        drop(engine);
        // SAFETY: no preconditions.
        unsafe { sys::call(libc::SYS_sched_yield, [0; 6]) };
    }
}
