//! Chooses the node of a new task or data block: the plan's, else the hint's, else the creator's. A task that does not
//! match the plan is counted and falls back to hints, with all tasks that it creates.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::Stealing;
use crate::fit::{LookUp, Settled};
use crate::machine::NO_NODE;
use crate::objects::task::{Edt, Held, Home, Progress};
use crate::plan::{FlatPlan, UNPLANNED};
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
    let Some(plan) = w.rt.plan() else {
        return;
    };
    if parent.class == 0 && position == 0 && !plan.knows(edt.name) {
        refuse(w, edt.name);
    }
    if matches!(plan.fit.look_up(parent.class), LookUp::Rank) {
        edt.progress = Progress::Held;
        return;
    }
    let class = plan.step(parent.class, position, edt.name, edt.depc);
    take_class(w, plan, edt, class);
}

/// Sets class and node of tasks that were held until their creator, the current task, ended (or waits).
///
/// # Safety
/// They are alive and have not started.
pub(crate) unsafe fn settle(w: &mut Worker, held: &[Held], ended: bool) {
    let Some(plan) = w.rt.plan() else {
        return;
    };
    // SAFETY: the current task is alive and this thread's; the others as the caller promises.
    let kind = |held: &Held| unsafe { ((*held.edt).name, (*held.edt).depc) };
    // SAFETY: as above.
    let (class, blocks) = unsafe { ((*w.current).class, (*w.current).blocks) };
    let name = |name| w.rt.names.name(name);
    let settled = plan
        .fit
        .settle(class, ended, held.iter().map(kind), blocks, name);
    let settled = match settled {
        Ok(settled) => settled,
        Err(why) => return without_plan(w, &why),
    };
    let mut ranks: BTreeMap<u32, u32> = BTreeMap::new();
    for held in held {
        let kind = kind(held);
        let class = match &settled {
            Settled::Positions => plan.step(class, held.position, kind.0, kind.1),
            Settled::Ranks(counts) => {
                let rank = ranks.entry(kind.0).or_default();
                let count = counts.get(&kind.0).copied().unwrap_or(0);
                let part = plan.fit.part(class, kind, *rank, count);
                *rank += 1;
                // SAFETY: as the caller promises.
                unsafe {
                    (*held.edt).home = match part {
                        Some(part) if !part.in_order => Home::DataAndBlocks,
                        _ => Home::Chosen,
                    }
                };
                part.map_or(UNPLANNED, |part| part.class)
            }
        };
        // SAFETY: as the caller promises.
        take_class(w, plan, unsafe { &mut *held.edt }, class);
    }
}

/// Whether the guard wants to know of tasks that run ([`guard`]).
#[inline]
pub fn guarded(w: &Worker) -> bool {
    w.rt.plan().is_some_and(|plan| plan.fit.watching())
}

/// Tells the guard of a task that is about to run, and of the bytes of its blocks.
#[cold]
pub fn guard(w: &Worker, edt: &Edt, local: u64, remote: u64) {
    if let Some(plan) = w.rt.plan()
        && let Err(why) = plan
            .fit
            .count(edt.class != UNPLANNED, local, remote, |bytes| {
                w.rt.queues.longer(bytes)
            })
    {
        without_plan(w, &why);
    }
}

/// The plan does not fit: the run goes on without it.
#[cold]
fn without_plan(w: &Worker, why: &str) {
    let Some(plan) = &w.rt.plan else { return };
    if !plan.fit.drop_plan() {
        return;
    }
    if w.rt.config.stealing.is_none() {
        w.rt.queues.set_stealing(Stealing::Any);
    }
    let folder = w.rt.config.plan.as_deref().unwrap_or(Path::new("?"));
    w.rt.report(&format!(
        "the plan {} does not fit: {why}; the run goes on without it",
        folder.display()
    ));
}

/// A task has that class, and goes where the plan says.
#[inline]
fn take_class(w: &mut Worker, plan: &FlatPlan, edt: &mut Edt, class: u32) {
    edt.class = class;
    if class == UNPLANNED {
        w.counters.unplanned += 1;
        plan.fit.watch();
        if !w.rt.config.hints || edt.hinted == NO_NODE {
            edt.home = Home::DataAndBlocks;
        }
        return;
    }
    if edt.home == Home::Chosen && plan.fit.divided() {
        edt.home = Home::Data;
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
pub fn place_block(w: &mut Worker, parent: *mut Edt, hinted: u16, bytes: u64) -> u16 {
    let hinted = if w.rt.config.hints { hinted } else { NO_NODE };
    let fallback = if hinted == NO_NODE { w.node } else { hinted };
    if parent.is_null() {
        return fallback;
    }
    // SAFETY: the current task is alive and this thread's.
    let parent = unsafe { &mut *parent };
    let position = parent.blocks;
    parent.blocks += 1;
    let plan = w.rt.plan();
    if plan.is_some() && parent.home == Home::DataAndBlocks {
        // A part that was stolen leaves its blocks where it belongs: chance would not give every node its share.
        return if parent.class == UNPLANNED {
            fallback
        } else {
            parent.ready.node
        };
    }
    if let Some(plan) = plan
        && let Err(why) = plan.fit.check_size(parent.class, position, bytes)
    {
        without_plan(w, &why);
        return fallback;
    }
    plan.and_then(|plan| plan.block_node(parent.class, position))
        .unwrap_or(fallback)
}
