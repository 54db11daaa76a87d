//! Reports of a run that cannot continue: which tasks never ran, which wait inside themselves, for what, and which task
//! holds it; and the end of a run whose tasks wait inside themselves.

use std::sync::atomic::Ordering;

use crate::abi::{Guid, mode};
use crate::block;
use crate::edt::{self, Edt};
use crate::label;
use crate::object::{Kind, affinity_node, guid_of};
use crate::runtime::{Runtime, conclude};
use crate::scheduler;
use crate::worker::Worker;
use crate::{event, worker};

/// A task that waits inside itself.
pub struct Wait {
    /// The worker on whose thread it waits.
    worker: usize,
    task: String,
    /// An event, or a label.
    what: Guid,
    /// Data blocks it holds while waiting.
    holds: Vec<Guid>,
}

/// Records that the current task starts to wait for an event or a label.
pub fn begin_wait(w: &Worker, what: Guid) {
    let wait = Wait {
        worker: w.index,
        task: task(w.rt, w.current),
        what,
        holds: block::held_by_current(w),
    };
    w.rt.waits.lock().expect("no panic while locked").push(wait);
}

/// Records the end of the latest wait on this worker.
pub fn end_wait(w: &Worker) {
    let mut waits = w.rt.waits.lock().expect("no panic while locked");
    if let Some(at) = waits.iter().rposition(|wait| wait.worker == w.index) {
        waits.remove(at);
    }
}

/// Whether an event that some task waits for has fired. The task continues at its next check, unless other waiting
/// tasks run above it on its thread.
#[cfg_attr(not(numaloc_tbb), allow(dead_code))]
pub fn something_came(rt: &Runtime) -> bool {
    let waits = rt.waits.lock().expect("no panic while locked");
    waits.iter().any(|wait| event::has_fired(rt, wait.what))
}

/// Name and GUID of a task, for reports.
pub fn task(rt: &Runtime, edt: *mut Edt) -> String {
    if edt.is_null() {
        return "outside any task".to_owned();
    }
    // SAFETY: memory of objects is always readable.
    let (name, header) = unsafe { ((*edt).name, &(*edt).header) };
    let guid = guid_of(header, rt.arena.offset(edt.cast()));
    format!("task {} ({:#x})", rt.names.name(name), guid.0)
}

/// Current state of the object behind a GUID, with the GUID.
pub fn describe(rt: &Runtime, guid: Guid) -> String {
    match guid {
        Guid::NULL => return "NULL_GUID".to_owned(),
        Guid::ERROR => return "ERROR_GUID".to_owned(),
        Guid::UNINITIALIZED => return "UNINITIALIZED_GUID".to_owned(),
        _ => {}
    }
    if label::is_label(guid) {
        return match label::target(rt, guid) {
            Ok(Guid::NULL) => format!("label {:#x} (nothing was created under it)", guid.0),
            Ok(target) => format!("label {:#x} of {}", guid.0, describe(rt, target)),
            Err(_) => format!("{:#x} (a label of no range)", guid.0),
        };
    }
    if let Some(node) = affinity_node(guid.0 as u64) {
        return format!("{:#x} (the affinity of node {node})", guid.0);
    }
    let Ok(header) = rt.object(guid) else {
        return format!("{:#x} (no GUID)", guid.0);
    };
    // SAFETY: memory of objects is always readable as a header.
    let is = |kind| unsafe { (*header).is(kind, guid) };
    if is(Kind::Edt) {
        task(rt, header.cast())
    } else if is(Kind::Event) {
        format!("event {:#x} ({})", guid.0, event::state(header.cast()))
    } else if is(Kind::Block) {
        format!(
            "data block {:#x} ({} bytes)",
            guid.0,
            block::size_of_live(header.cast())
        )
    } else if is(Kind::Template) {
        format!("template {:#x}", guid.0)
    } else if is(Kind::Range) {
        format!("range {:#x}", guid.0)
    } else {
        format!("{:#x} (gone: destroyed, or never existed)", guid.0)
    }
}

/// The word for a mode.
pub fn mode_name(mode: u32) -> &'static str {
    match mode {
        mode::CONST => "CONST",
        mode::EW => "EW",
        mode::RO => "RO",
        _ => "RW",
    }
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
    let count = offsets.filter(|&offset| edt::never_ran(rt, offset)).count();
    if count > 0 {
        rt.report(&format!("{count} tasks never ran"));
        report_tasks(rt);
    }
}

fn describe_task(rt: &Runtime, offset: usize) -> Option<String> {
    if !edt::never_ran(rt, offset) {
        return None;
    }
    let edt: *mut Edt = rt.arena.at(offset)?.cast();
    let who = task(rt, edt);
    let awaited = rt.awaited.of(edt::guid(rt, edt));
    let open = edt::open_slots(edt);
    let slots = edt::slot_count(edt);
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
    let Some((block, slot, mode)) = block::wanted_by(rt, edt) else {
        return Some(format!("{who}, {slots} slots, has not run"));
    };
    let waits = rt.waits.lock().expect("no panic while locked");
    let holder = waits.iter().find(|wait| wait.holds.contains(&block));
    Some(format!(
        "{who}, {slots} slots, needs {} (slot {slot}, {}), which {} holds",
        describe(rt, block),
        mode_name(mode),
        holder.map_or("another task", |wait| &wait.task)
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
        let waits = rt.waits.lock().expect("no panic while locked");
        for (at, wait) in waits.iter().enumerate() {
            let above = waits[at + 1..]
                .iter()
                .find(|other| other.worker == wait.worker);
            let satisfied = event::has_fired(rt, wait.what);
            let why = match above {
                Some(above) if satisfied => format!(
                    ", which has fired; but {} runs above it on the same thread and has to end first",
                    above.task
                ),
                _ => String::new(),
            };
            rt.report(&format!(
                "  {} waits for {}{why}",
                wait.task,
                describe(rt, wait.what)
            ));
        }
    }
    report_tasks(rt);
    if !shutdown {
        rt.status.store(1, Ordering::SeqCst);
    }
    let current = worker::current();
    if !current.is_null() {
        // SAFETY: this thread's worker.
        rt.publish_counters(unsafe { &*current });
    }
    if let Err(why) = conclude(rt, scheduler::simulated_seconds()) {
        rt.report(&why);
        rt.status.store(125, Ordering::SeqCst);
    }
    // SAFETY: flushes the C streams and ends the process; the other threads are idle.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(rt.status.load(Ordering::SeqCst));
    }
}
