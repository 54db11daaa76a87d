//! Chooses the node of a new task or data block: the plan's, else the hint's, else the creator's. A task that does not
//! match the plan is counted and falls back to hints, with all tasks that it creates.

use std::path::Path;

use crate::machine::NO_NODE;
use crate::objects::task::Edt;
use crate::plan::UNPLANNED;
use crate::state::Worker;

/// Sets class and node of a new task.
#[inline]
pub fn place_task(w: &mut Worker, parent: *mut Edt, edt: &mut Edt) {
    edt.class = UNPLANNED;
    let hinted = if w.rt.config.hints {
        edt.hinted
    } else {
        NO_NODE
    };
    edt.ready.node = if hinted == NO_NODE { w.node } else { hinted };
    if parent.is_null() {
        edt.class = 0;
        return;
    }
    // SAFETY: the current task is alive and this thread's.
    let parent = unsafe { &mut *parent };
    let position = parent.children;
    parent.children += 1;
    let Some(plan) = &w.rt.plan else {
        return;
    };
    edt.class = plan.step(parent.class, position, edt.name, edt.depc);
    if edt.class == UNPLANNED {
        w.counters.unplanned += 1;
        if parent.class == 0 && position == 0 && !plan.knows(edt.name) {
            refuse(w, edt.name);
        }
        return;
    }
    let node = plan.node(edt.class);
    if node == NO_NODE {
        w.counters.no_opinion += 1;
        return;
    }
    w.counters.planned += 1;
    if edt.hinted != NO_NODE {
        w.counters.hint_compared += 1;
        w.counters.hint_agrees += u64::from(edt.hinted == node);
    }
    edt.ready.node = node;
}

/// Ends the process: the template of the first task that the program creates does not occur in the plan.
#[cold]
fn refuse(w: &Worker, name: u32) -> ! {
    let folder = w.rt.config.plan.as_deref().unwrap_or(Path::new("?"));
    w.rt.report(&format!(
        "the plan {} is of another program: the first task here is of template {}, which it does not know; \
         make a plan of this program, or run it without",
        folder.display(),
        w.rt.names.name(name)
    ));
    // SAFETY: flushes the C streams and ends the process; only the program's first task has started.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(125);
    }
}

/// The node for the next data block that task `parent` (null: the runtime) creates.
pub fn place_block(w: &mut Worker, parent: *mut Edt, hinted: u16) -> u16 {
    let hinted = if w.rt.config.hints { hinted } else { NO_NODE };
    let fallback = if hinted == NO_NODE { w.node } else { hinted };
    if parent.is_null() {
        return fallback;
    }
    // SAFETY: the current task is alive and this thread's.
    let parent = unsafe { &mut *parent };
    let position = parent.blocks;
    parent.blocks += 1;
    let plan = w.rt.plan.as_ref();
    plan.and_then(|plan| plan.block_node(parent.class, position))
        .unwrap_or(fallback)
}
