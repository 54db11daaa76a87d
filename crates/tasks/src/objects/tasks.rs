//! Tasks (EDTs): templates, creation, execution and end.
//!
//! A task becomes ready when every slot is satisfied, then acquires its data blocks, then goes to a scheduler. The
//! output event exists only if it was requested.

use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::block::mode;
use super::header::Kind;
use super::task::{Dep, Edt, EdtFunction, Held, Home, Progress, Template};
use super::{blocks, dependences, event, events, labels, scopes, slots};
use crate::config::Stealing;
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::machine::NO_NODE;
use crate::placement::{guard, guarded, place_task, settle};
use crate::state::{self, Worker};

/// The number of parameters or slots is that of the template (`EDT_PARAM_DEF`).
pub const PARAM_DEFAULT: u32 = u32::MAX - 1;
/// The number is left open in the template, or is that of the template in a task (`EDT_PARAM_UNK`).
pub const PARAM_UNKNOWN: u32 = u32::MAX;

/// The number of a template's name, which is the expression `name` (a C string, or null) in the program.
///
/// # Safety
/// `name` is null or a C string.
pub unsafe fn name(w: &mut Worker, function: EdtFunction, name: *const c_char) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { w.names.number(&w.rt.names, function, name) }
}

/// Creates a template for tasks that run `function`, with the number of a name from [`name`].
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn create_template(
    w: &mut Worker,
    function: EdtFunction,
    paramc: u32,
    depc: u32,
    name: u32,
) -> Result<Guid> {
    let template: *mut Template =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Template>())
            .ok_or(Error::OutOfMemory)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays.
    unsafe {
        ptr::addr_of_mut!((*template).function).write(function);
        (*template).paramc = paramc;
        (*template).depc = depc;
        (*template).name = name;
        (*template).hinted = NO_NODE;
        (*template).header.begin(Kind::Template);
        Ok(w.rt.arena.guid(template.cast()))
    }
}

/// The template behind a GUID.
#[inline]
fn template(w: &Worker, guid: Guid) -> Result<*mut Template> {
    let guid = labels::resolve(w, guid)?;
    Ok(w.rt.live(guid, Kind::Template, Error::Invalid)?.cast())
}

/// Node hinted for tasks made from a template; [`NO_NODE`]: none.
///
/// # Errors
/// [`Error::Invalid`]: no such template (any more).
pub fn template_node(w: &Worker, guid: Guid) -> Result<u16> {
    // SAFETY: alive.
    Ok(unsafe { (*template(w, guid)?).hinted })
}

/// Sets the node hinted for tasks made from a template.
///
/// # Errors
/// [`Error::Invalid`]: no such template (any more).
pub fn set_template_node(w: &Worker, guid: Guid, node: u16) -> Result<()> {
    let template = template(w, guid)?;
    // SAFETY: alive.
    unsafe { (*template).hinted = node };
    Ok(())
}

/// Number of parameters of tasks made from a template, if the template specifies it.
///
/// # Errors
/// [`Error::Invalid`]: no such template (any more), or it does not specify the number.
pub fn template_paramc(w: &Worker, guid: Guid) -> Result<u32> {
    // SAFETY: alive.
    let paramc = unsafe { (*template(w, guid)?).paramc };
    (paramc < PARAM_DEFAULT)
        .then_some(paramc)
        .ok_or(Error::Invalid)
}

/// Changes the node of a task that is not ready yet.
///
/// # Errors
/// [`Error::Invalid`]: no such task.
pub fn set_node(w: &Worker, guid: Guid, node: u16) -> Result<()> {
    let edt = slots::find(w, guid).map_err(|_| Error::Invalid)?;
    // SAFETY: alive; if it becomes ready meanwhile, either node is acceptable.
    unsafe {
        (*edt).hinted = node;
        if w.rt.config.hints && w.rt.plan().is_none() {
            (*edt).ready.node = node;
        }
    }
    Ok(())
}

/// Destroys a template; tasks made from it do not need it any more.
///
/// # Errors
/// [`Error::Invalid`]: no such template (any more).
#[inline]
pub fn destroy_template(w: &mut Worker, guid: Guid) -> Result<()> {
    let template = template(w, guid)?;
    // SAFETY: alive; no pointers to templates are kept.
    unsafe { w.rt.arena.release(&mut w.lists, template.cast()) };
    Ok(())
}

/// Parameters of a new task.
pub struct New {
    /// Its template.
    pub template: Guid,
    /// Number of parameters, [`PARAM_DEFAULT`] or [`PARAM_UNKNOWN`].
    pub paramc: u32,
    /// Number of slots, [`PARAM_DEFAULT`] or [`PARAM_UNKNOWN`].
    pub depc: u32,
    /// Whether it opens a finish scope.
    pub finish: bool,
    /// The node that the program's hint asks for, or [`NO_NODE`].
    pub hinted: u16,
    /// An existing output event, or null.
    pub output: Guid,
    /// Whether to make an output event.
    pub want_output: bool,
}

/// The number of parameters or slots of a task, from those given for the task and specified by its template.
#[inline]
fn count(given: u32, specified: u32) -> Result<u32> {
    match given {
        PARAM_DEFAULT | PARAM_UNKNOWN if specified < PARAM_DEFAULT => Ok(specified),
        PARAM_DEFAULT | PARAM_UNKNOWN => Err(Error::Invalid),
        given if specified < PARAM_DEFAULT && specified != given => Err(Error::Invalid),
        given => Ok(given),
    }
}

/// Creates a task that cannot run until [`start`]. Returns the task, its GUID and its output event.
///
/// # Errors
/// [`Error::Invalid`]: no such template, or a count that was left unspecified; [`Error::OutOfMemory`].
///
/// # Safety
/// `params` has as many values as the task gets.
#[inline]
pub unsafe fn create(
    w: &mut Worker,
    new: &New,
    params: *const u64,
) -> Result<(*mut Edt, Guid, Guid)> {
    let template = template(w, new.template)?;
    // SAFETY: alive.
    let template = unsafe { &*template };
    let paramc = count(new.paramc, template.paramc)?;
    let depc = count(new.depc, template.depc)?;
    let output = if new.want_output && new.output.is_null() {
        events::create(w, &event::New::Once)?
    } else {
        new.output
    };
    let parent = w.current;
    let outer = if parent.is_null() {
        ptr::null_mut()
    } else {
        // SAFETY: the current task is alive.
        unsafe { (*parent).inner_scope() }
    };
    let size = size_of::<Edt>() + paramc as usize * 8 + depc as usize * size_of::<Dep>();
    let edt: *mut Edt =
        w.rt.arena
            .allocate(&mut w.lists, size)
            .ok_or(Error::OutOfMemory)?
            .cast();
    let own_scope = if new.finish {
        scopes::open(w, outer, output)?
    } else {
        ptr::null_mut()
    };
    scopes::enter(w, outer);
    // SAFETY: fresh memory of that size; the header stays. `params` as the caller promises.
    unsafe {
        ptr::addr_of_mut!((*edt).function).write(template.function);
        ptr::addr_of_mut!((*edt).pending).write(AtomicU32::new(depc + 1));
        (*edt).depc = depc;
        (*edt).paramc = paramc;
        (*edt).name = template.name;
        (*edt).scope = outer;
        (*edt).own_scope = own_scope;
        (*edt).output = if new.finish { Guid::NULL } else { output };
        (*edt).acquiring = ptr::null_mut();
        (*edt).children = 0;
        (*edt).blocks = 0;
        (*edt).progress = Progress::Created;
        (*edt).home = Home::Chosen;
        (*edt).hinted = if new.hinted == NO_NODE {
            template.hinted
        } else {
            new.hinted
        };
        if paramc > 0 {
            ptr::copy_nonoverlapping(params, Edt::params(edt), paramc as usize);
        }
        Edt::clear_slots(edt);
        place_task(w, parent, &mut *edt);
        if let Some(observer) = &w.rt.observer {
            observer.task_created(w, parent, &mut *edt);
        }
        (*edt).ready.header.begin(Kind::Edt);
        Ok((edt, w.rt.arena.guid(edt.cast()), output))
    }
}

/// Connects the first slots to `sources` (UNINITIALIZED_GUID: later) and allows the task to run when ready.
///
/// # Errors
/// The error of the first dependence that cannot be added; the task then never runs.
///
/// # Safety
/// `edt` was just made by [`create`], `sources` has `depc` GUIDs or is null.
#[inline]
pub unsafe fn start(w: &mut Worker, edt: *mut Edt, guid: Guid, sources: *const Guid) -> Result<()> {
    // SAFETY: alive until its guard (one extra pending count) is released.
    let depc = unsafe { (*edt).depc };
    if !sources.is_null() {
        for at in 0..depc {
            // SAFETY: as the caller promises.
            let source = unsafe { *sources.add(at as usize) };
            if source != Guid::UNINITIALIZED {
                dependences::add(w, source, guid, at, mode::RW)?;
            }
        }
    }
    // SAFETY: as above. Only this thread changes a task's progress before it starts.
    unsafe {
        if (*edt).progress == Progress::Held {
            hold(w, edt, guid);
        } else {
            let_go(w, edt);
        }
    }
    Ok(())
}

/// A task may start when its slots are satisfied.
///
/// # Safety
/// `edt` is alive, and this was not called before.
#[inline]
unsafe fn let_go(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: alive until its guard (one extra pending count) is released.
    if unsafe { (*edt).depc == 0 || (*edt).pending.fetch_sub(1, Ordering::AcqRel) == 1 } {
        slots::ready(w, edt);
    }
}

/// Tasks held at most: one that creates more of them lets them start before it ends.
const MOST_HELD: usize = 1 << 16;

/// # Safety
/// `edt` was just created by the current task.
#[cold]
unsafe fn hold(w: &mut Worker, edt: *mut Edt, guid: Guid) {
    // SAFETY: the current task is alive and this thread's.
    let position = unsafe { (*w.current).children - 1 };
    w.held.push(Held {
        edt,
        guid,
        position,
    });
    if w.held.len() >= MOST_HELD {
        release_held(w, false);
    }
}

/// Lets the tasks start that the current task created and that were held. `ended`: it creates no more.
pub(crate) fn release_held(w: &mut Worker, ended: bool) {
    if w.held.is_empty() {
        return;
    }
    let mut held = std::mem::take(&mut w.held);
    // Unless the program has destroyed it.
    held.retain(|held| slots::find(w, held.guid).is_ok());
    // SAFETY: alive, and not started.
    unsafe {
        settle(w, &held, ended);
        for held in held {
            (*held.edt).progress = Progress::Created;
            let_go(w, held.edt);
        }
    }
}

/// The node of the live task behind a GUID; `None` if there is no such task.
pub fn node_of(w: &Worker, guid: Guid) -> Option<u16> {
    // SAFETY: alive a moment ago; memory of objects stays readable.
    let edt = slots::find(w, guid).ok()?;
    // SAFETY: as above.
    Some(unsafe { (*edt).ready.node })
}

/// A worker looks at the size of the data of one in this many tasks.
const SAMPLED: u64 = 16;

/// Runs a task on this thread to its end.
///
/// # Safety
/// `w` is this thread's worker, and no reference to it is in use; `edt` is ready and owned by the caller.
pub(crate) unsafe fn execute(w: *mut Worker, edt: *mut Edt) {
    // SAFETY: as the caller promises. References to the worker end before the program's code runs, because that code
    // makes its own.
    unsafe {
        {
            let w = &mut *w;
            w.current = edt;
            (*edt).progress = Progress::Started;
            if w.rt.count_traffic {
                blocks::count_traffic(w, edt);
            }
            if w.counters.tasks.is_multiple_of(SAMPLED)
                && w.rt.queues.stealing() == Stealing::Surplus
            {
                blocks::sample(w, edt);
            }
            if guarded(w) {
                let (mut local, mut remote) = (0, 0);
                blocks::for_each_held(w, edt, |_, block, _| match (*block).place() {
                    Some(node) if node != w.node => remote += (*block).size,
                    _ => local += (*block).size,
                });
                guard(w, &*edt, local, remote);
            }
        }
        if let Some(observer) = &(*w).rt.observer {
            observer.before_run(&mut *w, edt);
        }
        let result = Edt::call(edt);
        let w = match (*edt).progress {
            Progress::Waited => &mut *state::current_again(),
            _ => &mut *w,
        };
        if let Some(observer) = &w.rt.observer {
            observer.after_run(&*edt);
        }
        finish(w, edt, result);
        w.current = ptr::null_mut();
    }
}

/// # Safety
/// `edt` has run and is owned by the caller.
unsafe fn finish(w: &mut Worker, edt: *mut Edt, result: Guid) {
    // SAFETY: alive until released below.
    unsafe {
        release_held(w, true);
        if (*edt).depc > 0 {
            blocks::release_slots(w, edt);
        }
        while let Some(created) = w.created.pop() {
            blocks::release(w, created, mode::RW);
        }
        let (output, scope) = ((*edt).output, (*edt).inner_scope());
        if !output.is_null() {
            let result = labels::resolve(w, result).unwrap_or(Guid::NULL);
            // An event that a task returns satisfies its output event when it fires.
            if !events::exists(w, result) {
                events::satisfy_quietly(w, output, result, 0);
            } else if dependences::add(w, result, output, 0, mode::RW).is_err() {
                w.complain("a task returned an event", || {
                    "no dependence of its output event can be added to it".to_owned()
                });
            }
        }
        if let Some(observer) = &w.rt.observer {
            observer.task_left_scope(scope as usize, &*edt);
        }
        w.counters.tasks += 1;
        if !w.storage.is_empty() {
            w.storage.retain(|(owner, _)| *owner != edt);
        }
        w.rt.arena.release(&mut w.lists, edt.cast());
        // A FINISH task's credit in the outer scope is returned when its own scope is done.
        scopes::leave(w, scope);
    }
}

/// Destroys a task that never ran.
///
/// # Errors
/// [`Error::Invalid`]: no such task; [`Error::NotNow`]: it is ready or running.
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = labels::resolve(w, guid)?;
    let edt = slots::find(w, guid).map_err(|_| Error::Invalid)?;
    // SAFETY: alive.
    unsafe {
        if (*edt).pending.load(Ordering::Acquire) == 0 {
            return Err(Error::NotNow);
        }
        let scope = (*edt).inner_scope();
        w.rt.arena.release(&mut w.lists, edt.cast());
        scopes::leave(w, scope);
    }
    Ok(())
}
