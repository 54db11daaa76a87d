//! Creation and destruction of ranges and maps, and dependences that wait for a label.

use std::sync::atomic::{AtomicI64, Ordering, fence};

use super::header::Kind;
use super::label::{self, Cell, Dependence, Map, MapFunction, Range};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::state::Worker;

/// Creates a range of `count` labels.
///
/// # Errors
/// [`Error::Invalid`] for none, [`Error::OutOfMemory`] for more than about three million.
pub fn create_range(w: &mut Worker, count: u64) -> Result<Guid> {
    let size = usize::try_from(count)
        .ok()
        .filter(|&count| count > 0)
        .and_then(|count| count.checked_mul(size_of::<Cell>()))
        .and_then(|cells| cells.checked_add(size_of::<Range>()))
        .ok_or(Error::Invalid)?;
    let range: *mut Range =
        w.rt.arena
            .allocate(&mut w.lists, size)
            .ok_or(Error::OutOfMemory)?
            .cast();
    // SAFETY: fresh memory of that size; the header stays.
    unsafe {
        let guid = w.rt.arena.guid(range.cast());
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

/// Creates a range whose labels are found from tuples by a function.
///
/// # Errors
/// As [`create_range`].
pub fn create_map(
    w: &mut Worker,
    count: u64,
    function: MapFunction,
    params: Vec<i64>,
) -> Result<Guid> {
    let range = create_range(w, count)?;
    let mut maps = w.rt.maps.lock().expect("no panic while locked");
    maps.insert(range, Map { function, params });
    Ok(range)
}

/// The label that the map's function gives for a tuple.
///
/// # Errors
/// [`Error::Invalid`]: no such map.
///
/// # Safety
/// `tuple` is what the function expects.
pub unsafe fn from_tuple(w: &Worker, map: Guid, tuple: *mut i64) -> Result<Guid> {
    let first = label(w, map, 0)?;
    let (function, mut params) = {
        let maps = w.rt.maps.lock().expect("no panic while locked");
        let map = maps.get(&map).ok_or(Error::Invalid)?;
        (map.function, map.params.clone())
    };
    // SAFETY: the program's own function, called with the arguments that ocr.h specifies.
    Ok(unsafe { function(first, size_of::<Cell>() as u64, params.as_mut_ptr(), tuple) })
}

/// Destroys a range; objects created under its labels stay.
///
/// # Errors
/// [`Error::Invalid`]: no such range.
pub fn destroy_range(w: &mut Worker, guid: Guid) -> Result<()> {
    let range = label::range(&w.rt.arena, guid)?;
    w.rt.maps
        .lock()
        .expect("no panic while locked")
        .remove(&guid);
    // SAFETY: alive; destroying it twice concurrently is an error of the program, which the check above may miss.
    unsafe { w.rt.arena.release(&mut w.lists, range.cast()) };
    Ok(())
}

/// Label number `at` of a range.
///
/// # Errors
/// [`Error::Invalid`]: no such range, or it has fewer labels.
pub fn label(w: &Worker, range: Guid, at: u64) -> Result<Guid> {
    label::label(&w.rt.arena, range, at)
}

/// The GUID of an object: the given one, or that of the object created under the label.
///
/// # Errors
/// [`Error::Invalid`]: a label under which nothing exists.
#[inline]
pub fn resolve(w: &Worker, guid: Guid) -> Result<Guid> {
    label::resolve(&w.rt.arena, guid)
}

/// As [`resolve`]. `None`: it is a label under which nothing exists yet, and `dependence` waits for it.
///
/// # Errors
/// [`Error::Invalid`]: a label of no range.
#[inline]
pub(crate) fn resolve_or_await(
    w: &Worker,
    guid: Guid,
    dependence: Dependence,
) -> Result<Option<Guid>> {
    if !guid.is_label() {
        return Ok(Some(guid));
    }
    resolve_label(w, guid, dependence)
}

fn resolve_label(w: &Worker, guid: Guid, dependence: Dependence) -> Result<Option<Guid>> {
    let found = label::target(&w.rt.arena, guid)?;
    if !found.is_null() {
        return Ok(Some(found));
    }
    // Counted before the second look-up: the creator reads the count after creating.
    let awaited = &w.rt.awaited;
    let mut by_label = awaited.by_label.lock().expect("no panic while locked");
    awaited.count.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let found = label::target(&w.rt.arena, guid)?;
    if !found.is_null() {
        awaited.count.fetch_sub(1, Ordering::SeqCst);
        return Ok(Some(found));
    }
    by_label.entry(guid).or_default().push(dependence);
    Ok(None)
}
