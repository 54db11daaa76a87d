//! Data blocks: creation, holds of tasks in access modes, destruction.
//!
//! A ready task acquires its blocks one at a time in the order of their addresses (duplicates are first merged to the
//! stronger mode), and waiting tasks are served first come, first served: no deadlock among tasks, no starvation. A
//! block destroyed while held is freed when its last hold ends.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use super::block::{Acquiring, Block, Wanted, merged, mode};
use super::header::Kind;
use super::labels;
use super::task::{self, Edt, Home, slot_state};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::machine::NO_NODE;
use crate::placement::place_block;
use crate::scheduler;
use crate::scheduler::ready::Ready;
use crate::state::{Runtime, Worker};

/// Parameters of a new block.
pub struct New {
    /// Size in bytes.
    pub size: u64,
    /// Whether the current task holds the block (RW) from the beginning.
    pub acquire: bool,
    /// The node that the program's hint asks for, or [`NO_NODE`].
    pub hinted: u16,
}

/// Creates a data block; returns its GUID and its memory.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn create(w: &mut Worker, new: &New) -> Result<(Guid, *mut u8)> {
    let parent = w.current;
    let node = place_block(w, parent, new.hinted, new.size);
    let (data, home) =
        w.rt.memory
            .allocate(new.size, node)
            .ok_or(Error::OutOfMemory)?;
    let block: *mut Block =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Block>())
            .ok_or(Error::OutOfMemory)?
            .cast();
    let held = new.acquire && !parent.is_null();
    let place = if w.rt.memory.places() {
        node
    } else if held {
        // First touch: assume that the task which creates and holds the block writes it first.
        w.node
    } else {
        NO_NODE
    };
    // SAFETY: fresh memory of that size; the header stays.
    let guid = unsafe {
        (*block).data = data;
        (*block).size = new.size;
        (*block).first_waiting = ptr::null_mut();
        (*block).last_waiting = ptr::null_mut();
        (*block).shared = u32::from(held);
        (*block).constant = 0;
        (*block).exclusive = false;
        (*block).destroyed = false;
        (*block).home = home;
        ptr::addr_of_mut!((*block).node).write(AtomicU16::new(place));
        if let Some(observer) = &w.rt.observer {
            observer.block_created(parent, &mut *block, new.hinted);
        }
        (*block).header.begin(Kind::Block);
        w.rt.arena.guid(block.cast())
    };
    if held {
        w.created.push(block);
    }
    Ok((guid, data))
}

/// Creates a block with the given contents, held by no task.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn create_filled(w: &mut Worker, contents: &[u8]) -> Result<Guid> {
    let new = New {
        size: contents.len() as u64,
        acquire: false,
        hinted: NO_NODE,
    };
    let (guid, data) = create(w, &new)?;
    // SAFETY: fresh memory of that size.
    unsafe { ptr::copy_nonoverlapping(contents.as_ptr(), data, contents.len()) };
    Ok(guid)
}

/// Copies a block; no task holds the copy.
///
/// # Errors
/// [`Error::Invalid`]: no such block; [`Error::OutOfMemory`].
pub fn copy(w: &mut Worker, guid: Guid) -> Result<Guid> {
    let block = find(w, guid)?;
    // SAFETY: alive; the program holds it, so the contents are there.
    let contents = unsafe { std::slice::from_raw_parts((*block).data, (*block).size as usize) };
    create_filled(w, contents)
}

/// Whether the GUID is that of a live block.
#[inline]
pub fn exists(w: &Worker, guid: Guid) -> bool {
    find(w, guid).is_ok()
}

/// The live block behind a GUID.
///
/// # Errors
/// [`Error::Invalid`]: no such block (any more).
#[inline]
pub(crate) fn find(w: &Worker, guid: Guid) -> Result<*mut Block> {
    Ok(w.rt.live(guid, Kind::Block, Error::Invalid)?.cast())
}

/// Acquires the blocks of a ready task. False: it waits for one, and continues when that one is released.
pub(crate) fn acquire_all(w: &mut Worker, edt: *mut Edt) -> bool {
    let mut wanted = std::mem::take(&mut w.order);
    wanted.clear();
    // SAFETY: ready, so ours alone.
    let depc = unsafe { (*edt).depc };
    for at in 0..depc {
        // SAFETY: within the slots.
        let dep = unsafe { &mut *Edt::slot(edt, at) };
        if dep.guid.is_null() || dep.mode == mode::NULL {
            continue;
        }
        match find(w, dep.guid) {
            Ok(block) => wanted.push(Wanted {
                block,
                slot: at,
                mode: dep.mode,
            }),
            Err(_) => w.complain("a task became ready", || {
                format!("the data block of its slot {at} was destroyed before")
            }),
        }
    }
    if wanted.len() > 1 {
        wanted.sort_unstable_by_key(|wanted| (wanted.block as usize, wanted.slot));
        wanted.dedup_by(|next, kept| {
            next.block == kept.block && {
                kept.mode = merged(kept.mode, next.mode);
                // The other slots of this block get their pointers just before the task runs.
                true
            }
        });
    }
    let (done, wanted) = continue_acquiring(w, edt, wanted, 0);
    if let Some(mut wanted) = wanted {
        wanted.clear();
        w.order = wanted;
    }
    done
}

/// Acquires `wanted[from..]`. Returns the list unless the task has to wait.
fn continue_acquiring(
    w: &mut Worker,
    edt: *mut Edt,
    wanted: Vec<Wanted>,
    from: usize,
) -> (bool, Option<Vec<Wanted>>) {
    for at in from..wanted.len() {
        let Wanted { block, mode, .. } = wanted[at];
        // SAFETY: a block in a satisfied slot is alive; if the program destroyed it too early, its memory is still that
        // of an object.
        let lock = unsafe { (*block).header.lock() };
        // SAFETY: locked.
        let state = unsafe { &mut *block };
        if state.first_waiting.is_null() && state.admits(mode) {
            state.admit(mode);
            drop(lock);
            continue;
        }
        // SAFETY: ready and not scheduled: owned by us, and in no inbox.
        unsafe {
            let ready = task::ready(edt);
            (*ready).link.store(ptr::null_mut(), Ordering::Relaxed);
            (*edt).acquiring = Box::into_raw(Box::new(Acquiring { wanted, at }));
            if state.first_waiting.is_null() {
                state.first_waiting = ready;
            } else {
                (*state.last_waiting).link.store(ready, Ordering::Relaxed);
            }
            state.last_waiting = ready;
        }
        return (false, None);
    }
    hand_over(w, edt, &wanted);
    (true, Some(wanted))
}

/// Writes pointers into the slots of a task that holds all its blocks.
fn hand_over(w: &mut Worker, edt: *mut Edt, wanted: &[Wanted]) {
    // SAFETY: we own the task, and it holds the blocks.
    unsafe {
        for wanted in wanted {
            let dep = &mut *Edt::slot(edt, wanted.slot);
            dep.ptr = (*wanted.block).data.cast();
            dep.state.store(
                slot_state::SATISFIED | slot_state::HELD | (wanted.mode << slot_state::MODE_SHIFT),
                Ordering::Relaxed,
            );
        }
        let depc = (*edt).depc;
        if wanted.len() < depc as usize {
            for at in 0..depc {
                let dep = &mut *Edt::slot(edt, at);
                if dep.ptr.is_null() && !dep.guid.is_null() && dep.mode != mode::NULL {
                    dep.ptr = find(w, dep.guid)
                        .map_or(ptr::null_mut(), |block| (*block).data.cast::<c_void>());
                }
            }
        }
    }
}

/// Queues a task that holds its blocks.
#[inline]
pub(crate) fn schedule(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: ready, so owned by us.
    if unsafe { (*edt).home != Home::Chosen } {
        go_to_data(w, edt);
    }
    scheduler::schedule(w, task::ready(edt));
}

/// Sets a task's node to that of most of its bytes, if it has any.
#[cold]
fn go_to_data(w: &Worker, edt: *mut Edt) {
    let mut bytes = vec![0; w.rt.machine.nodes()];
    for_each_held(w, edt, |_, block, _| {
        // SAFETY: held by the task, so alive.
        let block = unsafe { &*block };
        if let Some(node) = block.place() {
            bytes[usize::from(node)] += block.size;
        }
    });
    // SAFETY: ready, so owned by us.
    let node = unsafe { &mut (*edt).ready.node };
    let here = usize::from(*node);
    let most = (0..bytes.len()).max_by_key(|&at| (bytes[at], at == here, bytes.len() - at));
    if let Some(most) = most.filter(|&most| bytes[most] > 0) {
        *node = most as u16;
    }
}

/// Ends a hold and continues the tasks that can now acquire the block.
pub(crate) fn release(w: &mut Worker, block: *mut Block, mode: u32) {
    let mut granted: Vec<*mut Edt> = Vec::new();
    // SAFETY: held, so alive; the rest under its lock.
    let gone = unsafe {
        let lock = (*block).header.lock();
        let state = &mut *block;
        state.dismiss(mode);
        while !state.first_waiting.is_null() {
            let ready: *mut Ready = state.first_waiting;
            let edt: *mut Edt = ready.cast();
            let acquiring = &*(*edt).acquiring;
            let wanted = acquiring.wanted[acquiring.at].mode;
            if !state.admits(wanted) {
                break;
            }
            state.admit(wanted);
            state.first_waiting = (*ready).link.load(Ordering::Relaxed);
            granted.push(edt);
        }
        let gone = state.destroyed && state.is_free();
        if gone {
            state.header.end();
        }
        drop(lock);
        gone
    };
    if gone {
        free(w, block);
    }
    for edt in granted {
        // SAFETY: removed from the waiting list, so owned by us; made by `continue_acquiring`.
        let acquiring = unsafe {
            let boxed = Box::from_raw((*edt).acquiring);
            (*edt).acquiring = ptr::null_mut();
            *boxed
        };
        if continue_acquiring(w, edt, acquiring.wanted, acquiring.at + 1).0 {
            schedule(w, edt);
        }
    }
}

/// Frees the memory of a block whose life has ended.
fn free(w: &mut Worker, block: *mut Block) {
    // SAFETY: no task holds it, and no GUID leads to it any more.
    unsafe {
        w.rt.memory
            .free((*block).data, (*block).size, (*block).home);
        w.rt.arena.release_ended(&mut w.lists, block.cast());
    }
}

/// Ends all holds of a task that has run.
///
/// # Safety
/// `edt` has run and is owned by the caller.
pub(crate) unsafe fn release_slots(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: as the caller promises.
    unsafe {
        for at in 0..(*edt).depc {
            release_slot(w, edt, at);
        }
    }
}

/// # Safety
/// As for [`release_slots`], `at` below `depc`.
unsafe fn release_slot(w: &mut Worker, edt: *mut Edt, at: u32) -> bool {
    // SAFETY: as the caller promises.
    let dep = unsafe { &mut *Edt::slot(edt, at) };
    let state = dep.state.load(Ordering::Relaxed);
    if state & slot_state::HELD == 0 {
        return false;
    }
    dep.state.store(slot_state::SATISFIED, Ordering::Relaxed);
    let mode = state >> slot_state::MODE_SHIFT;
    // A held block is alive, so its GUID leads to it; but the program may have overwritten dep.guid.
    match find(w, dep.guid) {
        Ok(block) => release(w, block, mode),
        Err(_) => w.complain("the end of a task", || {
            format!(
                "the task changed the GUID in its slot {at}: the block in it cannot be released"
            )
        }),
    }
    true
}

/// Ends the current task's hold on a block.
///
/// # Errors
/// [`Error::Invalid`]: no such block, or the task does not hold it.
pub fn release_early(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = labels::resolve(w, guid)?;
    let block = find(w, guid)?;
    if let Some(at) = w.created.iter().position(|&b| b == block) {
        w.created.remove(at);
        release(w, block, mode::RW);
        return Ok(());
    }
    let edt = w.current;
    if edt.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: the current task is alive and this thread's.
    unsafe {
        for at in 0..(*edt).depc {
            if (*Edt::slot(edt, at)).guid == guid && release_slot(w, edt, at) {
                return Ok(());
            }
        }
    }
    Err(Error::Invalid)
}

/// Destroys a block, at once or when its last hold ends. The current task's own hold ends.
///
/// # Errors
/// [`Error::Invalid`]: no such block (any more); [`Error::NotNow`]: already destroyed, and still held by others.
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = labels::resolve(w, guid)?;
    let block = find(w, guid)?;
    // SAFETY: memory of objects is always readable as a header.
    let gone = unsafe {
        let lock = (*block).header.lock();
        if !(*block).header.is(Kind::Block, guid) {
            return Err(Error::Invalid);
        }
        if (*block).destroyed {
            return Err(Error::NotNow);
        }
        (*block).destroyed = true;
        let gone = (*block).is_free();
        if gone {
            (*block).header.end();
        }
        drop(lock);
        gone
    };
    if gone {
        free(w, block);
    } else {
        // The specification (ocrDbDestroy): a task that destroys a block it holds releases it.
        while release_early(w, guid).is_ok() {}
    }
    Ok(())
}

/// The blocks that the current task holds.
pub fn held_by_current(w: &Worker) -> Vec<Guid> {
    let created = w.created.iter().map(|&block| {
        // SAFETY: held, so alive.
        unsafe { w.rt.arena.guid(block.cast()) }
    });
    let mut held: Vec<Guid> = created.collect();
    if !w.current.is_null() {
        // SAFETY: the current task is alive and this thread's.
        unsafe { held.extend(Edt::held_slots(w.current).map(|(_, dep, _)| (*dep).guid)) };
    }
    held
}

/// The block that a ready task waits for, its slot and mode. Call only when nothing runs.
pub(crate) fn wanted_by(rt: &Runtime, edt: *mut Edt) -> Option<(Guid, u32, u32)> {
    // SAFETY: memory of objects is readable, and nothing runs that would change it.
    unsafe {
        let acquiring = (*edt).acquiring.as_ref()?;
        let wanted = acquiring.wanted.get(acquiring.at)?;
        let guid = rt.arena.guid(wanted.block.cast());
        Some((guid, wanted.slot, wanted.mode))
    }
}

/// The size of a block that the current task holds.
///
/// # Errors
/// [`Error::Invalid`]: no such block; [`Error::NotHeld`]: not held.
pub fn size_of_held(w: &Worker, guid: Guid) -> Result<u64> {
    let guid = labels::resolve(w, guid)?;
    let size = size(w, guid)?;
    if !held_by_current(w).contains(&guid) {
        return Err(Error::NotHeld);
    }
    Ok(size)
}

/// The size of a live block.
///
/// # Errors
/// [`Error::Invalid`]: no such block.
pub fn size(w: &Worker, guid: Guid) -> Result<u64> {
    let block = find(w, guid)?;
    // SAFETY: alive.
    Ok(unsafe { (*block).size })
}

/// The node of a live block's memory, if known.
///
/// # Errors
/// [`Error::Invalid`]: no such block.
pub fn node_of(w: &Worker, guid: Guid) -> Result<Option<u16>> {
    let block = find(w, guid)?;
    // SAFETY: alive.
    Ok(unsafe { (*block).place() })
}

/// Holds the block for the current task until the task ends, for legacy waiting.
///
/// # Errors
/// [`Error::Invalid`]: no such block; [`Error::HeldByAnother`]: held in an exclusive mode.
pub fn hold(w: &mut Worker, guid: Guid) -> Result<(*mut u8, u64)> {
    let block = find(w, guid)?;
    // SAFETY: memory of objects is always readable as a header; the rest under its lock.
    unsafe {
        let lock = (*block).header.lock();
        if !(*block).admits(mode::RW) {
            return Err(Error::HeldByAnother);
        }
        (*block).admit(mode::RW);
        drop(lock);
        w.created.push(block);
        Ok(((*block).data, (*block).size))
    }
}

/// Calls `each` with every block that a task holds, which is about to run on this thread, and the mode of the hold.
pub(crate) fn for_each_held(w: &Worker, edt: *mut Edt, mut each: impl FnMut(u32, *mut Block, u32)) {
    // SAFETY: about to run, so owned by this thread.
    for (slot, dep, mode) in unsafe { Edt::held_slots(edt) } {
        // SAFETY: as above.
        if let Ok(block) = find(w, unsafe { (*dep).guid }) {
            each(slot, block, mode);
        }
    }
}

/// Tells the queues how large the data of a task is that is about to run, if it has any.
#[cold]
pub(crate) fn sample(w: &Worker, edt: *mut Edt) {
    let mut bytes = 0;
    // SAFETY: held by the task, so alive.
    for_each_held(w, edt, |_, block, _| bytes += unsafe { (*block).size });
    if bytes > 0 {
        w.rt.queues.sample(bytes);
    }
}

/// Counts the bytes of the blocks of a task about to run, local or remote to this worker's node. A block that was never
/// touched is assumed to be placed where it is first written.
pub(crate) fn count_traffic(w: &mut Worker, edt: *mut Edt) {
    let (mut counters, here, machine) = (w.counters, w.node, &w.rt.machine);
    for_each_held(w, edt, |_, block, mode| {
        // SAFETY: held by the task, so alive.
        let block = unsafe { &*block };
        let mut node = block.node.load(Ordering::Relaxed);
        if node == NO_NODE && matches!(mode, mode::RW | mode::EW) {
            node = here;
            block.node.store(node, Ordering::Relaxed);
        }
        if node == NO_NODE || node == here {
            counters.local_bytes += block.size;
        } else {
            counters.remote_bytes += block.size;
            counters.weighted_remote_bytes +=
                block.size as f64 * machine.relative_distance(here, node);
        }
    });
    w.counters = counters;
}
