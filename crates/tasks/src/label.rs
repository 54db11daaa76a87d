//! Labels: ranges of GUIDs that exist before what they name. A label stands for whatever was last
//! created under it; it can be used wherever a GUID can, and creating under it with GUID_PROP_CHECK
//! is an atomic get-or-create.

use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::abi::{Errno, Guid, Result, property};
use crate::object::{Header, Kind, Tag, guid_of, label_guid, place_of};
use crate::worker::Worker;

/// A range: the header of an object, then its cells.
#[repr(C)]
struct Range {
    header: Header,
    // The free list's link lies here between two lives.
    _link: usize,
    count: u64,
    _unused: u64,
}

/// A label's cell.
#[repr(C)]
struct Cell {
    /// What the label stands for; 0 nothing, -1 being created.
    target: AtomicI64,
    /// The range it belongs to, so that a label of a destroyed range is recognised.
    range: Guid,
}

const BEING_CREATED: i64 = -1;

/// Creates a range of `count` labels.
///
/// # Errors
/// EINVAL for none, ENOMEM for more than about three million.
pub fn create_range(w: &mut Worker, count: u64) -> Result<Guid> {
    let size = usize::try_from(count)
        .ok()
        .filter(|&count| count > 0)
        .and_then(|count| count.checked_mul(size_of::<Cell>()))
        .and_then(|cells| cells.checked_add(size_of::<Range>()))
        .ok_or(Errno::EINVAL)?;
    let range: *mut Range =
        w.rt.arena
            .allocate(&mut w.lists, size)
            .ok_or(Errno::ENOMEM)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays.
    unsafe {
        let guid = guid_of(&(*range).header, w.rt.arena.offset(range.cast()));
        (*range).count = count;
        let cells: *mut Cell = range.add(1).cast();
        for at in 0..count as usize {
            cells.add(at).write(Cell {
                target: AtomicI64::new(0),
                range: guid,
            });
        }
        (*range).header.begin(Kind::Range);
        Ok(guid)
    }
}

fn live_range(w: &Worker, guid: Guid) -> Result<*mut Range> {
    Ok(w.rt.live(guid, Kind::Range, Errno::EINVAL)?.cast())
}

/// Destroys a range; what was created under its labels stays.
///
/// # Errors
/// EINVAL: no such range.
pub fn destroy_range(w: &mut Worker, guid: Guid) -> Result<()> {
    let range = live_range(w, guid)?;
    // SAFETY: alive; destroying it twice at the same time is the program's error, seen above at best.
    unsafe { w.rt.arena.release(&mut w.lists, range.cast()) };
    Ok(())
}

/// Label number `at` of a range.
///
/// # Errors
/// EINVAL: no such range, or it has fewer labels.
pub fn label(w: &Worker, range: Guid, at: u64) -> Result<Guid> {
    let object = live_range(w, range)?;
    // SAFETY: alive.
    if at >= unsafe { (*object).count } {
        return Err(Errno::EINVAL);
    }
    let offset = w.rt.arena.offset(object.cast());
    Ok(label_guid(
        offset + size_of::<Range>() + at as usize * size_of::<Cell>(),
    ))
}

/// Whether a GUID is a label.
#[inline]
pub fn is_label(guid: Guid) -> bool {
    guid.0 & 15 == Tag::Label as i64 && guid.0 > 0
}

fn cell(w: &Worker, guid: Guid) -> Result<&'static Cell> {
    let (offset, _) = place_of(guid).ok_or(Errno::EINVAL)?;
    let cell: *const Cell = w.rt.arena.at(offset).ok_or(Errno::EINVAL)?.cast();
    // SAFETY: within the arena and aligned; if the range is gone these are some other object's bytes,
    // and what they claim to be is checked next.
    let range = unsafe { ptr::addr_of!((*cell).range).read_volatile() };
    let object = live_range(w, range)?;
    let start = w.rt.arena.offset(object.cast()) + size_of::<Range>();
    // SAFETY: the range is alive.
    let cells = unsafe { (*object).count } as usize * size_of::<Cell>();
    if offset < start
        || offset >= start + cells
        || !(offset - start).is_multiple_of(size_of::<Cell>())
    {
        return Err(Errno::EINVAL);
    }
    // SAFETY: a cell of a live range.
    Ok(unsafe { &*cell })
}

/// What a GUID stands for: itself, or what was created under the label.
///
/// # Errors
/// EINVAL: a label under which nothing exists.
#[inline]
pub fn resolve(w: &Worker, guid: Guid) -> Result<Guid> {
    if !is_label(guid) {
        return Ok(guid);
    }
    let cell = cell(w, guid)?;
    loop {
        match cell.target.load(Ordering::Acquire) {
            0 => return Err(Errno::EINVAL),
            BEING_CREATED => std::thread::yield_now(),
            target => return Ok(Guid(target)),
        }
    }
}

/// Creates something under a label as `properties` say.
///
/// # Errors
/// EGUIDEXISTS with CHECK when something exists there; EINVAL for what is no label; what `create` says.
pub fn create_under(
    w: &mut Worker,
    guid: Guid,
    properties: u16,
    create: impl FnOnce(&mut Worker) -> Result<Guid>,
) -> Result<()> {
    let cell = cell(w, guid)?;
    let old = loop {
        let old = cell.target.load(Ordering::Acquire);
        if old == BEING_CREATED {
            std::thread::yield_now();
            continue;
        }
        if old != 0 && w.rt.is_alive(Guid(old)) {
            if properties & property::LABEL_CHECK == property::LABEL_CHECK {
                return Err(Errno::EGUIDEXISTS);
            }
            if properties & property::LABEL_BLOCK == property::LABEL_BLOCK {
                crate::legacy::run_something_else(w);
                continue;
            }
        }
        let claim =
            cell.target
                .compare_exchange(old, BEING_CREATED, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_ok() {
            break old;
        }
    };
    let created = create(w);
    let now = created.map_or(old, |guid| guid.0);
    cell.target.store(now, Ordering::Release);
    created.map(|_| ())
}
