//! Reports of a run that cannot continue: which tasks never ran, which wait inside themselves, for what, and which task
//! holds it; and the end of a run whose tasks wait inside themselves.

use std::sync::atomic::Ordering;

use super::outcome::conclude;
use crate::objects::block::mode_name;
use crate::objects::describe::{describe, task};
use crate::objects::header::Kind;
use crate::objects::task::{Edt, Progress};
use crate::objects::{blocks, event};
use crate::scheduler;
use crate::state::{self, Runtime};

/// Nothing is ready and nothing runs: ends the run, with a report if the program did not ask for its end.
pub fn quiescent(rt: &Runtime) {
    if !rt.shutdown.load(Ordering::SeqCst) {
        rt.report("deadlock: no task is ready, none is running, and ocrShutdown was not called");
        report_tasks(rt);
        rt.status.store(1, Ordering::SeqCst);
    }
    rt.stop.store(true, Ordering::SeqCst);
}

/// Whether an event that some task waits for has fired: the task continues at its next check.
pub fn awaited_event_has_fired(rt: &Runtime) -> bool {
    let waits = rt.waits.lock();
    waits
        .iter()
        .any(|(_, wait)| event::has_fired(&rt.arena, wait.what))
}

/// The task at that offset of the arena, if it has not started.
fn never_ran(rt: &Runtime, offset: usize) -> Option<*mut Edt> {
    let edt: *mut Edt = rt.arena.at(offset)?.cast();
    // SAFETY: memory of objects is readable.
    let waits = unsafe {
        (*edt).ready.header.kind() == Kind::Edt as u8
            && matches!((*edt).progress, Progress::Created | Progress::Held)
    };
    waits.then_some(edt)
}

/// Reports tasks that never ran, and why.
pub fn report_tasks(rt: &Runtime) {
    let limit = if rt.config.checked { 100 } else { 5 };
    let mut more = false;
    let tasks = rt.arena.objects().into_iter();
    for (at, line) in tasks
        .filter_map(|offset| describe_task(rt, offset))
        .enumerate()
    {
        if at == limit {
            more = true;
            break;
        }
        rt.report(&format!("  {line}"));
    }
    if more {
        rt.report("  and more (NUMALOC_OCR_CHECKED=1 lists up to 100)");
    }
}

/// In checked mode, after a normal end: reports tasks that never ran.
pub fn report_never_run(rt: &Runtime) {
    let offsets = rt.arena.objects().into_iter();
    let count = offsets.filter_map(|offset| never_ran(rt, offset)).count();
    if count > 0 {
        rt.report(&format!("{count} tasks never ran"));
        report_tasks(rt);
    }
}

fn describe_task(rt: &Runtime, offset: usize) -> Option<String> {
    let edt = never_ran(rt, offset)?;
    let who = task(rt, edt);
    // SAFETY: the memory of a task of this run.
    let (guid, slots) = unsafe { (rt.arena.guid(edt.cast()), (*edt).depc) };
    let awaited = rt.awaited.of(guid);
    let open = Edt::open_slots(edt);
    if !open.is_empty() {
        let open: Vec<String> = open
            .iter()
            .map(|slot| match awaited.iter().find(|(at, _)| at == slot) {
                Some((_, label)) => format!("{slot} (waits for {})", describe(rt, *label)),
                None => slot.to_string(),
            })
            .collect();
        return Some(format!(
            "{who}, {slots} slots, slots not satisfied: {}",
            open.join(", ")
        ));
    }
    let Some((block, slot, mode)) = blocks::wanted_by(rt, edt) else {
        return Some(format!("{who}, {slots} slots, has not run"));
    };
    let waits = rt.waits.lock();
    let holder = waits.iter().find(|(_, wait)| wait.holds.contains(&block));
    Some(format!(
        "{who}, {slots} slots, needs {} (slot {slot}, {}), which {} holds",
        describe(rt, block),
        mode_name(mode),
        holder.map_or("another task", |(_, wait)| &wait.task)
    ))
}

/// Ends the process: tasks wait inside themselves for events that never fire, and their stack frames cannot be unwound.
pub fn end(rt: &'static Runtime) -> ! {
    if rt.stop.swap(true, Ordering::SeqCst) {
        // Another thread has reached this point and ends the process.
        loop {
            std::thread::park();
        }
    }
    let shutdown = rt.shutdown.load(Ordering::SeqCst);
    rt.report(if shutdown {
        "ocrShutdown was called and nothing can run any more, but tasks wait inside themselves; they are terminated:"
    } else {
        "deadlock: no task is ready, and those that run wait inside themselves for events that cannot occur"
    });
    {
        let waits = rt.waits.lock();
        for (_, wait) in waits.iter() {
            rt.report(&format!(
                "  {} waits for {}",
                wait.task,
                describe(rt, wait.what)
            ));
        }
    }
    report_tasks(rt);
    if !shutdown {
        rt.status.store(1, Ordering::SeqCst);
    }
    let current = state::current();
    if !current.is_null() {
        // SAFETY: this thread's worker.
        rt.publish_counters(unsafe { &*current });
    }
    if let Err(why) = conclude(rt, scheduler::simulated_seconds()) {
        rt.report(&why.to_string());
        rt.status.store(125, Ordering::SeqCst);
    }
    // SAFETY: flushes the C streams and ends the process; the other threads are idle.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(rt.status.load(Ordering::SeqCst));
    }
}
