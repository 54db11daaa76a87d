//! Memory of ranges and labels, and look-up of labels.
//!
//! A range is GUIDs reserved before the objects they name exist. A label stands for the object last created under it
//! and can be used wherever a GUID can.

use std::collections::HashMap;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use super::arena::Arena;
use super::header::{Header, Kind};
use crate::error::{Error, Result};
use crate::guid::Guid;

/// A range: the header of an object, then its cells.
#[repr(C)]
pub(crate) struct Range {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) count: u64,
    _unused: u64,
}

/// A label's cell.
#[repr(C)]
pub(crate) struct Cell {
    /// GUID of the object the label stands for; 0: none, -1: being created.
    pub(crate) target: AtomicI64,
    /// The range this cell belongs to, to detect labels of destroyed ranges.
    pub(crate) range: Guid,
}

/// A cell's target while the object under the label is being created.
pub(crate) const BEING_CREATED: i64 = -1;

/// A program's function that maps tuples to labels: first label, distance between labels, parameters, tuple.
pub type MapFunction = unsafe extern "C" fn(Guid, u64, *mut i64, *mut i64) -> Guid;

/// The function and parameters that make a range a map.
pub struct Map {
    pub(crate) function: MapFunction,
    pub(crate) params: Vec<i64>,
}

/// Maps by the GUID of their range.
pub type Maps = Mutex<HashMap<Guid, Map>>;

/// A dependence as given by the program.
#[derive(Clone, Copy)]
pub struct Dependence {
    pub(crate) source: Guid,
    pub(crate) destination: Guid,
    pub(crate) slot: u32,
    pub(crate) mode: u32,
    /// The destination is a task, and this dependence has taken its slot.
    pub(crate) connected: bool,
}

/// Dependences that wait until something is created under a label.
#[derive(Default)]
pub struct Awaited {
    pub(crate) count: AtomicUsize,
    pub(crate) by_label: Mutex<HashMap<Guid, Vec<Dependence>>>,
}

impl Awaited {
    /// Slots of a task that wait for a label.
    pub fn of(&self, task: Guid) -> Vec<(u32, Guid)> {
        let by_label = self.by_label.lock().expect("no panic while locked");
        let dependences = by_label.iter().flat_map(|(&label, all)| {
            all.iter()
                .filter(|dependence| dependence.destination == task)
                .map(move |dependence| (dependence.slot, label))
        });
        dependences.collect()
    }
}

/// The live range behind a GUID.
///
/// # Errors
/// [`Error::Invalid`]: no such range.
pub(crate) fn range(arena: &Arena, guid: Guid) -> Result<*mut Range> {
    Ok(arena.live(guid, Kind::Range, Error::Invalid)?.cast())
}

/// Label number `at` of a range.
///
/// # Errors
/// [`Error::Invalid`]: no such range, or it has fewer labels.
pub(crate) fn label(arena: &Arena, guid: Guid, at: u64) -> Result<Guid> {
    let object = range(arena, guid)?;
    // SAFETY: alive.
    if at >= unsafe { (*object).count } {
        return Err(Error::Invalid);
    }
    let offset = arena.offset(object.cast());
    Ok(Guid::of_label(
        offset + size_of::<Range>() + at as usize * size_of::<Cell>(),
    ))
}

/// The cell of a label.
///
/// # Errors
/// [`Error::Invalid`]: no label of a live range.
pub(crate) fn cell(arena: &Arena, guid: Guid) -> Result<&'static Cell> {
    let (offset, _) = guid.place().ok_or(Error::Invalid)?;
    let cell: *const Cell = arena.at(offset).ok_or(Error::Invalid)?.cast();
    // SAFETY: within the arena and aligned; if the range is gone, these bytes belong to another object, which is
    // detected next.
    let of = unsafe { ptr::addr_of!((*cell).range).read_volatile() };
    let object = range(arena, of)?;
    let start = arena.offset(object.cast()) + size_of::<Range>();
    // SAFETY: the range is alive.
    let cells = unsafe { (*object).count } as usize * size_of::<Cell>();
    if offset < start
        || offset >= start + cells
        || !(offset - start).is_multiple_of(size_of::<Cell>())
    {
        return Err(Error::Invalid);
    }
    // SAFETY: a cell of a live range.
    Ok(unsafe { &*cell })
}

/// The GUID of an object: the given one, or that of the object created under the label.
///
/// # Errors
/// [`Error::Invalid`]: a label under which nothing exists.
#[inline]
pub(crate) fn resolve(arena: &Arena, guid: Guid) -> Result<Guid> {
    if !guid.is_label() {
        return Ok(guid);
    }
    match target(arena, guid)? {
        Guid::NULL => Err(Error::Invalid),
        target => Ok(target),
    }
}

/// The object last created under a label; NULL_GUID: none.
///
/// # Errors
/// [`Error::Invalid`]: no label of a live range.
pub(crate) fn target(arena: &Arena, guid: Guid) -> Result<Guid> {
    let cell = cell(arena, guid)?;
    loop {
        match cell.target.load(Ordering::Acquire) {
            BEING_CREATED => std::thread::yield_now(),
            target => return Ok(Guid(target)),
        }
    }
}
