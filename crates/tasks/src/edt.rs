//! Tasks (EDTs): creation, slots, data blocks, execution and end.
//!
//! A task is one allocation: the fixed part, its parameters, its slots (the same array that its function receives). It
//! becomes ready when every slot is satisfied, then acquires its data blocks, then goes to a scheduler. The output
//! event exists only if it was requested.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use numaloc_task_queues::Linked;

use crate::abi::{Dep, EdtFunction, Errno, Guid, PARAM_DEFAULT, PARAM_UNKNOWN, Result, mode};
use crate::block::{self, Acquiring, Block};
use crate::event::{self, Waiter};
use crate::label::Dependence;
use crate::object::{Header, Kind, guid_of};
use crate::runtime::Runtime;
use crate::scope::{self, Scope};
use crate::worker::{NO_NODE, Worker};
use crate::{label, plan, record};

/// Slot states, stored next to the mode.
pub(crate) mod slot_state {
    pub const FREE: u32 = 0;
    pub const CONNECTED: u32 = 1;
    pub const SATISFIED: u32 = 2;
    /// This slot represents the task's hold on its block; the hold's mode is in the bits above.
    pub const HELD: u32 = 4;
    pub const MODE_SHIFT: u32 = 8;
}

/// A task; parameters and slots follow.
#[repr(C)]
pub struct Edt {
    pub(crate) header: Header,
    pub(crate) link: AtomicPtr<Edt>,
    function: EdtFunction,
    pending: AtomicU32,
    pub(crate) depc: u32,
    paramc: u32,
    /// Interned name of the template.
    pub(crate) name: u32,
    /// The scope the task counts in; may be null.
    pub(crate) scope: *mut Scope,
    /// The scope the task opened, if it is a FINISH task.
    pub(crate) own_scope: *mut Scope,
    output: Guid,
    /// Progress in acquiring its blocks, while it waits for one.
    pub(crate) acquiring: *mut Acquiring,
    /// Number in creation order; only while recording.
    pub(crate) id: u64,
    /// State of the plan's automaton.
    pub(crate) class: u32,
    /// Tasks this task has created so far.
    pub(crate) children: u32,
    /// Data blocks this task has created so far.
    pub(crate) blocks: u32,
    /// The node the task should run on.
    pub(crate) node: u16,
    /// The node the program's hint asked for.
    pub(crate) hinted: u16,
    /// Set once the task starts to run.
    pub(crate) started: bool,
}

const _: () = assert!(size_of::<Edt>() <= 112);

// SAFETY: `link` always returns this field; a task is in at most one inbox or waiting list at a time.
unsafe impl Linked for Edt {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// A template.
#[repr(C)]
pub struct Template {
    header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    function: EdtFunction,
    paramc: u32,
    depc: u32,
    name: u32,
    /// Node hinted for tasks made from it.
    pub(crate) hinted: u16,
}

impl Edt {
    /// # Safety
    /// `edt` is alive.
    unsafe fn params(edt: *mut Self) -> *mut u64 {
        // SAFETY: they follow the fixed part in the same allocation.
        unsafe { edt.add(1).cast() }
    }

    /// # Safety
    /// `edt` is alive and this thread's alone.
    pub(crate) unsafe fn params_of<'a>(edt: *mut Self) -> &'a mut [u64] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(Self::params(edt), (*edt).paramc as usize) }
    }

    /// Calls the task's function.
    ///
    /// # Safety
    /// `edt` is ready, this thread's alone, and holds its blocks.
    pub(crate) unsafe fn call(edt: *mut Self) -> Guid {
        // SAFETY: as the caller promises.
        unsafe {
            ((*edt).function)(
                (*edt).paramc,
                Self::params(edt),
                (*edt).depc,
                Self::slots(edt),
            )
        }
    }

    /// # Safety
    /// `edt` is alive.
    pub(crate) unsafe fn slots(edt: *mut Self) -> *mut Dep {
        // SAFETY: they follow the parameters in the same allocation.
        unsafe { Self::params(edt).add((*edt).paramc as usize).cast() }
    }

    /// # Safety
    /// `edt` is alive, `at` below `depc`.
    pub(crate) unsafe fn slot(edt: *mut Self, at: u32) -> *mut Dep {
        // SAFETY: within the slots.
        unsafe { Self::slots(edt).add(at as usize) }
    }
}

/// Creates a template.
///
/// # Errors
/// ENOMEM.
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
            .ok_or(Errno::ENOMEM)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays.
    unsafe {
        ptr::addr_of_mut!((*template).function).write(function);
        (*template).paramc = paramc;
        (*template).depc = depc;
        (*template).name = name;
        (*template).hinted = NO_NODE;
        (*template).header.begin(Kind::Template);
        Ok(guid_of(
            &(*template).header,
            w.rt.arena.offset(template.cast()),
        ))
    }
}

/// The template behind a GUID.
///
/// # Errors
/// EINVAL: no such template (any more).
pub fn template(w: &Worker, guid: Guid) -> Result<*mut Template> {
    let guid = label::resolve(w, guid)?;
    Ok(w.rt.live(guid, Kind::Template, Errno::EINVAL)?.cast())
}

/// Number of parameters of tasks made from a template, if the template specifies it.
///
/// # Errors
/// EINVAL: no such template (any more), or it does not specify the number.
pub fn template_paramc(w: &Worker, guid: Guid) -> Result<u32> {
    // SAFETY: alive.
    let paramc = unsafe { (*template(w, guid)?).paramc };
    (paramc < PARAM_DEFAULT)
        .then_some(paramc)
        .ok_or(Errno::EINVAL)
}

/// Changes the node of a task that is not ready yet.
///
/// # Errors
/// EINVAL: no such task.
pub fn set_node(w: &Worker, guid: Guid, node: u16) -> Result<()> {
    let edt = find(w, guid).map_err(|_| Errno::EINVAL)?;
    // SAFETY: alive; if it becomes ready meanwhile, either node is acceptable.
    unsafe {
        (*edt).hinted = node;
        if w.rt.config.hints && w.rt.plan.is_none() {
            (*edt).node = node;
        }
    }
    Ok(())
}

/// Destroys a template; tasks made from it do not need it any more.
///
/// # Errors
/// EINVAL: no such template (any more).
pub fn destroy_template(w: &mut Worker, guid: Guid) -> Result<()> {
    let template = template(w, guid)?;
    // SAFETY: alive; no pointers to templates are kept.
    unsafe { w.rt.arena.release(&mut w.lists, template.cast()) };
    Ok(())
}

/// Parameters of a new task.
pub struct New {
    pub(crate) template: Guid,
    pub(crate) paramc: u32,
    pub(crate) depc: u32,
    pub(crate) finish: bool,
    pub(crate) hinted: u16,
    /// An existing output event, or null.
    pub(crate) output: Guid,
    /// Whether to make an output event.
    pub(crate) want_output: bool,
}

/// Creates a task that cannot run until [`start`]. Returns the task, its GUID and its output event.
///
/// # Errors
/// EINVAL: no such template, or a count that was left unspecified; ENOMEM.
///
/// # Safety
/// `params` has as many values as the task gets.
pub unsafe fn create(
    w: &mut Worker,
    new: &New,
    params: *const u64,
) -> Result<(*mut Edt, Guid, Guid)> {
    let template = template(w, new.template)?;
    // SAFETY: alive.
    let template = unsafe { &*template };
    let count = |given: u32, specified: u32| match given {
        PARAM_DEFAULT | PARAM_UNKNOWN if specified < PARAM_DEFAULT => Ok(specified),
        PARAM_DEFAULT | PARAM_UNKNOWN => Err(Errno::EINVAL),
        given if specified < PARAM_DEFAULT && specified != given => Err(Errno::EINVAL),
        given => Ok(given),
    };
    let (paramc, depc) = (
        count(new.paramc, template.paramc)?,
        count(new.depc, template.depc)?,
    );
    let output = if new.want_output && new.output.is_null() {
        event::create(w, crate::abi::event_type::ONCE, None)?
    } else {
        new.output
    };
    let parent = w.current;
    let outer = if parent.is_null() {
        ptr::null_mut()
    } else {
        // SAFETY: the current task is alive.
        unsafe {
            if (*parent).own_scope.is_null() {
                (*parent).scope
            } else {
                (*parent).own_scope
            }
        }
    };
    let size = size_of::<Edt>() + paramc as usize * 8 + depc as usize * size_of::<Dep>();
    let edt: *mut Edt =
        w.rt.arena
            .allocate(&mut w.lists, size)
            .ok_or(Errno::ENOMEM)?
            .cast();
    let own_scope = if new.finish {
        scope::open(w, outer, output)?
    } else {
        ptr::null_mut()
    };
    scope::enter(w, outer);
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
        (*edt).started = false;
        (*edt).hinted = if new.hinted == NO_NODE {
            template.hinted
        } else {
            new.hinted
        };
        if paramc > 0 {
            ptr::copy_nonoverlapping(params, Edt::params(edt), paramc as usize);
        }
        let slots = Edt::slots(edt);
        for at in 0..depc as usize {
            slots.add(at).write(Dep {
                guid: Guid::NULL,
                ptr: ptr::null_mut(),
                mode: mode::RW,
                state: AtomicU32::new(slot_state::FREE),
            });
        }
        plan::place_task(w, parent, &mut *edt);
        if w.rt.recorder.is_some() {
            record::task_created(w, parent, &mut *edt);
        }
        (*edt).header.begin(Kind::Edt);
        let guid = guid_of(&(*edt).header, w.rt.arena.offset(edt.cast()));
        Ok((edt, guid, output))
    }
}

/// Connects the first slots to `sources` (UNINITIALIZED_GUID: later) and allows the task to run when ready.
///
/// # Errors
/// The error of the first dependence that cannot be added; the task then never runs.
///
/// # Safety
/// `edt` was just made by [`create`], `sources` has `depc` GUIDs or is null.
pub unsafe fn start(w: &mut Worker, edt: *mut Edt, guid: Guid, sources: *const Guid) -> Result<()> {
    // SAFETY: alive until its guard (one extra pending count) is released.
    let depc = unsafe { (*edt).depc };
    if !sources.is_null() {
        for at in 0..depc {
            // SAFETY: as the caller promises.
            let source = unsafe { *sources.add(at as usize) };
            if source != Guid::UNINITIALIZED {
                add_dependence(w, source, guid, at, mode::RW)?;
            }
        }
    }
    // SAFETY: as above.
    if depc == 0 || unsafe { (*edt).pending.fetch_sub(1, Ordering::AcqRel) } == 1 {
        ready(w, edt);
    }
    Ok(())
}

/// The live task behind a GUID. ENOENT: not a task, or destroyed.
fn find(w: &Worker, guid: Guid) -> Result<*mut Edt> {
    Ok(w.rt.live(guid, Kind::Edt, Errno::ENOENT)?.cast())
}

/// The node of the live task behind a GUID; `None` if there is no such task.
pub fn node_of(w: &Worker, guid: Guid) -> Option<u16> {
    // SAFETY: alive a moment ago; memory of objects stays readable.
    find(w, guid).ok().map(|edt| unsafe { (*edt).node })
}

/// Adds a dependence: when `source` (nothing, a data block, an event) is satisfied, so is the slot of `destination` (a
/// task or an event). If one of them is a label under which nothing exists yet, the dependence waits until something is
/// created there.
///
/// # Errors
/// EINVAL: one of them is gone or the wrong kind, no such slot, the slot has a source already.
pub fn add_dependence(
    w: &mut Worker,
    source: Guid,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> Result<()> {
    let dependence = Dependence {
        source,
        destination,
        slot,
        mode,
        connected: false,
    };
    let Some(destination) = label::resolve_or_await(w, destination, dependence)? else {
        return Ok(());
    };
    let dependence = Dependence {
        destination,
        ..dependence
    };
    let Ok(edt) = find(w, destination) else {
        if !event::exists(w, destination) {
            return Err(Errno::EINVAL);
        }
        return link(w, dependence);
    };
    connect(edt, slot, mode)?;
    let result = link(
        w,
        Dependence {
            connected: true,
            ..dependence
        },
    );
    if result.is_err() {
        // SAFETY: alive: this slot is not satisfied.
        let state = unsafe { &(*Edt::slot(edt, slot)).state };
        state.store(slot_state::FREE, Ordering::Relaxed);
    }
    result
}

/// Continues a dependence that waited for a label, now that something was created under it.
///
/// # Errors
/// As for [`add_dependence`].
pub fn resume(w: &mut Worker, dependence: Dependence) -> Result<()> {
    if dependence.connected {
        return link(w, dependence);
    }
    let Dependence {
        source,
        destination,
        slot,
        mode,
        ..
    } = dependence;
    add_dependence(w, source, destination, slot, mode)
}

/// Connects the source to an existing destination; if that is a task, its slot is already taken.
fn link(w: &mut Worker, dependence: Dependence) -> Result<()> {
    let Dependence {
        source,
        destination,
        slot,
        connected,
        ..
    } = dependence;
    let Some(source) = label::resolve_or_await(w, source, dependence)? else {
        return Ok(());
    };
    let waiter = Waiter {
        to: destination,
        slot,
    };
    if !source.is_null() && !block::exists(w, source) {
        event::add_waiter(w, source, waiter)
    } else if connected {
        satisfy_slot(w, destination, slot, source)
    } else {
        event::satisfy(w, destination, source, slot)
    }
}

/// As [`add_dependence`] from contributor `from`'s side of a collective event.
///
/// # Errors
/// As for [`add_dependence`].
pub fn add_collective_dependence(
    w: &mut Worker,
    source: Guid,
    from: u32,
    destination: Guid,
    slot: u32,
    mode: u32,
) -> Result<()> {
    let source = label::resolve(w, source)?;
    let destination = label::resolve(w, destination)?;
    if let Ok(edt) = find(w, destination) {
        connect(edt, slot, mode)?;
    }
    let waiter = Waiter {
        to: destination,
        slot,
    };
    event::add_collective_waiter(w, source, from, waiter)
}

fn connect(edt: *mut Edt, slot: u32, mode: u32) -> Result<()> {
    if !matches!(
        mode,
        mode::NULL | mode::CONST | mode::RW | mode::EW | mode::RO
    ) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: alive, because one of its slots is not satisfied (if the program is wrong, the memory
    // is still that of an object).
    unsafe {
        if slot >= (*edt).depc {
            return Err(Errno::EINVAL);
        }
        let dep = Edt::slot(edt, slot);
        (*dep)
            .state
            .compare_exchange(
                slot_state::FREE,
                slot_state::CONNECTED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .map_err(|_| Errno::EINVAL)?;
        (*dep).mode = mode;
    }
    Ok(())
}

/// Satisfies a slot of a task. ENOENT: the GUID is not a task.
///
/// # Errors
/// ENOENT, and EINVAL: no such slot, or already satisfied.
pub fn satisfy_slot(w: &mut Worker, guid: Guid, slot: u32, payload: Guid) -> Result<()> {
    let edt = find(w, guid)?;
    // SAFETY: alive, because one of its slots is not satisfied yet.
    unsafe {
        if slot >= (*edt).depc {
            return Err(Errno::EINVAL);
        }
        let dep = Edt::slot(edt, slot);
        let before = (*dep).state.swap(slot_state::SATISFIED, Ordering::Relaxed);
        if before & slot_state::SATISFIED != 0 {
            (*dep).state.store(before, Ordering::Relaxed);
            return Err(Errno::EINVAL);
        }
        (*dep).guid = payload;
        if w.rt.recorder.is_some() {
            record::satisfied(w, &*edt);
        }
        if (*edt).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            ready(w, edt);
        }
    }
    Ok(())
}

/// Handles a task whose slots are all satisfied: acquires its data blocks, then schedules it.
fn ready(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: alive and, now that it is ready, owned by us.
    if unsafe { (*edt).depc } == 0 || block::acquire_all(w, edt) {
        w.schedule(edt);
    }
}

/// Runs a task on this thread to its end.
///
/// # Safety
/// `w` is this thread's worker, and no reference to it is in use; `edt` is ready and owned by the caller.
pub unsafe fn execute(w: *mut Worker, edt: *mut Edt) {
    // SAFETY: as the caller promises. References to the worker end before the program's code runs, because that code
    // makes its own.
    unsafe {
        let before = {
            let w = &mut *w;
            let before = (w.current, w.created_from);
            w.current = edt;
            (*edt).started = true;
            w.created_from = w.created.len();
            if w.rt.count_traffic {
                block::count_traffic(w, edt);
            }
            before
        };
        if (*w).rt.recorder.is_some() {
            record::before_run(&mut *w, edt);
        }
        let result = Edt::call(edt);
        let w = &mut *w;
        if w.rt.recorder.is_some() {
            record::after_run(w, edt);
        }
        finish(w, edt, result);
        (w.current, w.created_from) = before;
    }
}

/// # Safety
/// `edt` has run and is owned by the caller.
unsafe fn finish(w: &mut Worker, edt: *mut Edt, result: Guid) {
    // SAFETY: alive until released below.
    unsafe {
        if (*edt).depc > 0 {
            block::release_slots(w, edt);
        }
        while w.created.len() > w.created_from {
            let created: *mut Block = w.created.pop().expect("not empty");
            block::release(w, created, mode::RW);
        }
        let (output, scope, own_scope) = ((*edt).output, (*edt).scope, (*edt).own_scope);
        if !output.is_null() {
            let result = label::resolve(w, result).unwrap_or(Guid::NULL);
            event::satisfy_quietly(w, output, result, 0);
        }
        if w.rt.recorder.is_some() {
            let leaves = if own_scope.is_null() {
                scope
            } else {
                own_scope
            };
            record::task_left_scope(w, leaves as usize, &*edt);
        }
        w.counters.tasks += 1;
        if !w.storage.is_empty() {
            w.storage.retain(|(owner, _)| *owner != edt);
        }
        w.rt.arena.release(&mut w.lists, edt.cast());
        // A FINISH task's credit in the outer scope is returned when its own scope is done.
        scope::leave(
            w,
            if own_scope.is_null() {
                scope
            } else {
                own_scope
            },
        );
    }
}

/// Destroys a task that never ran.
///
/// # Errors
/// EINVAL: no such task; EPERM: it is ready or running.
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = label::resolve(w, guid)?;
    let edt = find(w, guid).map_err(|_| Errno::EINVAL)?;
    // SAFETY: alive.
    unsafe {
        if (*edt).pending.load(Ordering::Acquire) == 0 {
            return Err(Errno::EPERM);
        }
        let (scope, own_scope) = ((*edt).scope, (*edt).own_scope);
        w.rt.arena.release(&mut w.lists, edt.cast());
        scope::leave(
            w,
            if own_scope.is_null() {
                scope
            } else {
                own_scope
            },
        );
    }
    Ok(())
}

/// Whether the object at that offset is a task that has not started.
pub fn never_ran(rt: &Runtime, offset: usize) -> bool {
    let Some(edt) = rt.arena.at(offset).map(<*mut u8>::cast::<Edt>) else {
        return false;
    };
    // SAFETY: memory of objects is readable.
    unsafe { (*edt).header.kind() == Kind::Edt as u8 && !(*edt).started }
}

/// The GUID of a task.
pub fn guid(rt: &Runtime, edt: *mut Edt) -> Guid {
    // SAFETY: memory of objects is readable.
    guid_of(unsafe { &(*edt).header }, rt.arena.offset(edt.cast()))
}

/// The slots that are not satisfied yet.
pub fn open_slots(edt: *mut Edt) -> Vec<u32> {
    // SAFETY: alive, and nothing runs that would change it.
    unsafe {
        (0..(*edt).depc)
            .filter(|&at| {
                (*Edt::slot(edt, at)).state.load(Ordering::Relaxed) & slot_state::SATISFIED == 0
            })
            .collect()
    }
}

/// Number of slots of a task.
pub fn slot_count(edt: *mut Edt) -> u32 {
    // SAFETY: memory of objects is readable.
    unsafe { (*edt).depc }
}
