//! Data blocks: memory on a node, held by tasks in access modes.
//!
//! | held \ wanted | RW, RO | CONST | EW |
//! |---|---|---|---|
//! | RW, RO | together | waits | waits |
//! | CONST | waits | together | waits |
//! | EW | waits | waits | waits |
//!
//! A ready task acquires its blocks one at a time in the order of their addresses (duplicates are first merged to the
//! stronger mode), and waiting tasks are served first come, first served: no deadlock among tasks, no starvation. A
//! block destroyed while held is freed when its last hold ends.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::abi::{Errno, Guid, Result, mode, property};
use crate::edt::{Edt, slot_state};
use crate::object::{Header, Kind, guid_of};
use crate::runtime::Runtime;
use crate::worker::{NO_NODE, Worker};
use crate::{label, plan, record};

/// A data block's header. Its contents are stored elsewhere.
#[repr(C)]
pub struct Block {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) data: *mut u8,
    pub(crate) size: u64,
    /// Waiting tasks, oldest first, as an intrusive list.
    first_waiting: *mut Edt,
    last_waiting: *mut Edt,
    /// Number in creation order; only while recording.
    pub(crate) id: u64,
    shared: u32,
    constant: u32,
    exclusive: bool,
    destroyed: bool,
    /// The node whose pool the memory came from, for freeing it.
    home: u16,
    /// Node of the memory; `NO_NODE` until first touch.
    pub(crate) node: AtomicU16,
}

/// A block that a task has to acquire.
#[derive(Clone, Copy)]
pub struct Wanted {
    block: *mut Block,
    slot: u32,
    mode: u32,
}

/// How far a waiting task is in acquiring its blocks.
pub struct Acquiring {
    wanted: Vec<Wanted>,
    at: usize,
}

/// Parameters of a new block.
pub struct New {
    pub(crate) size: u64,
    pub(crate) flags: u16,
    pub(crate) hinted: u16,
}

/// Creates a data block; the current task holds it (RW), unless NO_ACQUIRE is set.
///
/// # Errors
/// ENOMEM.
pub fn create(w: &mut Worker, new: &New) -> Result<(Guid, *mut u8)> {
    let parent = w.current;
    let (planned, node) = plan::place_block(w, parent, new.hinted);
    let (data, home) = w.rt.memory.allocate(new.size, node).ok_or(Errno::ENOMEM)?;
    let block: *mut Block =
        w.rt.arena
            .allocate(&mut w.lists, size_of::<Block>())
            .ok_or(Errno::ENOMEM)?
            .cast();
    let held = new.flags & property::DB_NO_ACQUIRE == 0 && !parent.is_null();
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
        if w.rt.recorder.is_some() {
            record::block_created(w, parent, &mut *block, new, planned);
        }
        (*block).header.begin(Kind::Block);
        guid_of(&(*block).header, w.rt.arena.offset(block.cast()))
    };
    if held {
        w.created.push(block);
    }
    Ok((guid, data))
}

/// Creates a block with the given contents, held by no task.
///
/// # Errors
/// ENOMEM.
pub fn create_filled(w: &mut Worker, contents: &[u8]) -> Result<Guid> {
    let new = New {
        size: contents.len() as u64,
        flags: property::DB_NO_ACQUIRE,
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
/// EINVAL: no such block; ENOMEM.
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
/// EINVAL: no such block (any more).
#[inline]
pub fn find(w: &Worker, guid: Guid) -> Result<*mut Block> {
    Ok(w.rt.live(guid, Kind::Block, Errno::EINVAL)?.cast())
}

fn merged(a: u32, b: u32) -> u32 {
    match (a.min(b), a.max(b)) {
        (a, b) if a == b => a,
        (_, mode::EW) | (mode::EW, _) => mode::EW,
        (mode::CONST, mode::RW) => mode::EW,
        (mode::CONST, _) => mode::CONST,
        _ => mode::RW,
    }
}

impl Block {
    fn admits(&self, mode: u32) -> bool {
        !self.exclusive
            && match mode {
                mode::EW => self.shared == 0 && self.constant == 0,
                mode::CONST => self.shared == 0,
                _ => self.constant == 0,
            }
    }

    fn admit(&mut self, mode: u32) {
        match mode {
            mode::EW => self.exclusive = true,
            mode::CONST => self.constant += 1,
            _ => self.shared += 1,
        }
    }

    fn is_free(&self) -> bool {
        !self.exclusive && self.shared == 0 && self.constant == 0 && self.first_waiting.is_null()
    }
}

/// Acquires the blocks of a ready task. False: it waits for one, and continues when that one is released.
pub fn acquire_all(w: &mut Worker, edt: *mut Edt) -> bool {
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
            (*edt).link.store(ptr::null_mut(), Ordering::Relaxed);
            (*edt).acquiring = Box::into_raw(Box::new(Acquiring { wanted, at }));
            if state.first_waiting.is_null() {
                state.first_waiting = edt;
            } else {
                (*state.last_waiting).link.store(edt, Ordering::Relaxed);
            }
        }
        state.last_waiting = edt;
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

/// Ends a hold and continues the tasks that can now acquire the block.
pub fn release(w: &mut Worker, block: *mut Block, mode: u32) {
    let mut granted: Vec<*mut Edt> = Vec::new();
    // SAFETY: held, so alive; the rest under its lock.
    let gone = unsafe {
        let lock = (*block).header.lock();
        let state = &mut *block;
        match mode {
            mode::EW => state.exclusive = false,
            mode::CONST => state.constant -= 1,
            _ => state.shared -= 1,
        }
        while !state.first_waiting.is_null() {
            let edt = state.first_waiting;
            let acquiring = &*(*edt).acquiring;
            let wanted = acquiring.wanted[acquiring.at].mode;
            if !state.admits(wanted) {
                break;
            }
            state.admit(wanted);
            state.first_waiting = (*edt).link.load(Ordering::Relaxed);
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
            w.schedule(edt);
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
pub unsafe fn release_slots(w: &mut Worker, edt: *mut Edt) {
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
/// EINVAL: no such block, or the task does not hold it.
pub fn release_early(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = label::resolve(w, guid)?;
    let block = find(w, guid)?;
    if let Some(at) = w.created[w.created_from..].iter().position(|&b| b == block) {
        w.created.remove(w.created_from + at);
        release(w, block, mode::RW);
        return Ok(());
    }
    let edt = w.current;
    if edt.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the current task is alive and this thread's.
    unsafe {
        for at in 0..(*edt).depc {
            if (*Edt::slot(edt, at)).guid == guid && release_slot(w, edt, at) {
                return Ok(());
            }
        }
    }
    Err(Errno::EINVAL)
}

/// Destroys a block, at once or when its last hold ends. The current task's own hold ends.
///
/// # Errors
/// EINVAL: no such block (any more); EPERM: already destroyed, and still held by others.
pub fn destroy(w: &mut Worker, guid: Guid) -> Result<()> {
    let guid = label::resolve(w, guid)?;
    let block = find(w, guid)?;
    // SAFETY: memory of objects is always readable as a header.
    let gone = unsafe {
        let lock = (*block).header.lock();
        if !(*block).header.is(Kind::Block, guid) {
            return Err(Errno::EINVAL);
        }
        if (*block).destroyed {
            return Err(Errno::EPERM);
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
    let created = w.created[w.created_from..].iter().map(|&block| {
        // SAFETY: held, so alive.
        guid_of(unsafe { &(*block).header }, w.rt.arena.offset(block.cast()))
    });
    let mut held: Vec<Guid> = created.collect();
    let edt = w.current;
    if !edt.is_null() {
        // SAFETY: the current task is alive and this thread's.
        unsafe {
            for at in 0..(*edt).depc {
                let dep = &*Edt::slot(edt, at);
                if dep.state.load(Ordering::Relaxed) & slot_state::HELD != 0 {
                    held.push(dep.guid);
                }
            }
        }
    }
    held
}

/// The block that a ready task waits for, its slot and mode. Call only when nothing runs.
pub fn wanted_by(rt: &Runtime, edt: *mut Edt) -> Option<(Guid, u32, u32)> {
    // SAFETY: memory of objects is readable, and nothing runs that would change it.
    unsafe {
        let acquiring = (*edt).acquiring.as_ref()?;
        let wanted = acquiring.wanted.get(acquiring.at)?;
        let offset = rt.arena.offset(wanted.block.cast());
        let guid = guid_of(&(*wanted.block).header, offset);
        Some((guid, wanted.slot, wanted.mode))
    }
}

/// The size of a block that is held.
pub fn size_of_live(block: *const Block) -> u64 {
    // SAFETY: alive, as the caller knows.
    unsafe { (*block).size }
}

/// Holds the block for the current task until the task ends, for legacy waiting.
///
/// # Errors
/// EINVAL: no such block; EACQ: held in an exclusive mode.
pub fn hold(w: &mut Worker, guid: Guid) -> Result<(*mut u8, u64)> {
    let block = find(w, guid)?;
    // SAFETY: memory of objects is always readable as a header; the rest under its lock.
    unsafe {
        let lock = (*block).header.lock();
        if !(*block).admits(mode::RW) {
            return Err(Errno::EACQ);
        }
        (*block).admit(mode::RW);
        drop(lock);
        w.created.push(block);
        Ok(((*block).data, (*block).size))
    }
}

/// Size and node of each block held by a task about to run.
pub fn held(w: &Worker, edt: *mut Edt) -> impl Iterator<Item = (u64, Option<u16>)> {
    // SAFETY: about to run, so owned by this thread, its blocks held.
    let depc = unsafe { (*edt).depc };
    (0..depc).filter_map(move |at| unsafe {
        // SAFETY: as above.
        let dep = &*Edt::slot(edt, at);
        if dep.state.load(Ordering::Relaxed) & slot_state::HELD == 0 {
            return None;
        }
        let block = find(w, dep.guid).ok()?;
        Some(((*block).size, plan::node_of(&*block)))
    })
}

/// Counts the bytes of the blocks of a task about to run, local or remote to this worker's node. A block that was never
/// touched is assumed to be placed where it is first written.
pub fn count_traffic(w: &mut Worker, edt: *mut Edt) {
    // SAFETY: about to run, so owned by us, its blocks held.
    unsafe {
        for at in 0..(*edt).depc {
            let dep = &*Edt::slot(edt, at);
            let state = dep.state.load(Ordering::Relaxed);
            if state & slot_state::HELD == 0 {
                continue;
            }
            let Ok(block) = find(w, dep.guid) else {
                continue;
            };
            let writes = matches!(state >> slot_state::MODE_SHIFT, mode::RW | mode::EW);
            let mut node = (*block).node.load(Ordering::Relaxed);
            if node == NO_NODE && writes {
                node = w.node;
                (*block).node.store(node, Ordering::Relaxed);
            }
            if node == NO_NODE || node == w.node {
                w.counters.local_bytes += (*block).size;
            } else {
                w.counters.remote_bytes += (*block).size;
                w.counters.weighted_remote_bytes +=
                    (*block).size as f64 * w.rt.machine.relative_distance(w.node, node);
            }
        }
    }
}
