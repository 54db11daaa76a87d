//! Labels: ranges of GUIDs reserved before the objects they name exist. A label stands for the object last created
//! under it and can be used wherever a GUID can; creating under it with GUID_PROP_CHECK is an atomic get-or-create.

use std::collections::HashMap;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering, fence};

use crate::abi::{Errno, Guid, Result, property};
use crate::object::{Header, Kind, Tag, guid_of, label_guid, place_of};
use crate::runtime::Runtime;
use crate::stuck;
use crate::worker::Worker;

/// A range: the header of an object, then its cells.
#[repr(C)]
struct Range {
    header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    count: u64,
    _unused: u64,
}

/// A label's cell.
#[repr(C)]
struct Cell {
    /// GUID of the object the label stands for; 0: none, -1: being created.
    target: AtomicI64,
    /// The range this cell belongs to, to detect labels of destroyed ranges.
    range: Guid,
}

const BEING_CREATED: i64 = -1;

/// A program's function that maps tuples to labels: first label, distance between labels, parameters, tuple.
pub type MapFunction = unsafe extern "C" fn(Guid, u64, *mut i64, *mut i64) -> Guid;

/// The function and parameters that make a range a map.
pub struct Map {
    function: MapFunction,
    params: Vec<i64>,
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
    count: AtomicUsize,
    by_label: Mutex<HashMap<Guid, Vec<Dependence>>>,
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
/// EINVAL: no such map.
///
/// # Safety
/// `tuple` is what the function expects.
pub unsafe fn from_tuple(w: &Worker, map: Guid, tuple: *mut i64) -> Result<Guid> {
    let first = label(w, map, 0)?;
    let (function, mut params) = {
        let maps = w.rt.maps.lock().expect("no panic while locked");
        let map = maps.get(&map).ok_or(Errno::EINVAL)?;
        (map.function, map.params.clone())
    };
    // SAFETY: the program's own function, called with the arguments that ocr.h specifies.
    Ok(unsafe { function(first, size_of::<Cell>() as u64, params.as_mut_ptr(), tuple) })
}

fn live_range(rt: &Runtime, guid: Guid) -> Result<*mut Range> {
    Ok(rt.live(guid, Kind::Range, Errno::EINVAL)?.cast())
}

/// Destroys a range; objects created under its labels stay.
///
/// # Errors
/// EINVAL: no such range.
pub fn destroy_range(w: &mut Worker, guid: Guid) -> Result<()> {
    let range = live_range(w.rt, guid)?;
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
/// EINVAL: no such range, or it has fewer labels.
pub fn label(w: &Worker, range: Guid, at: u64) -> Result<Guid> {
    let object = live_range(w.rt, range)?;
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

fn cell(rt: &Runtime, guid: Guid) -> Result<&'static Cell> {
    let (offset, _) = place_of(guid).ok_or(Errno::EINVAL)?;
    let cell: *const Cell = rt.arena.at(offset).ok_or(Errno::EINVAL)?.cast();
    // SAFETY: within the arena and aligned; if the range is gone, these bytes belong to another object, which is
    // detected next.
    let range = unsafe { ptr::addr_of!((*cell).range).read_volatile() };
    let object = live_range(rt, range)?;
    let start = rt.arena.offset(object.cast()) + size_of::<Range>();
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

/// The GUID of an object: the given one, or that of the object created under the label.
///
/// # Errors
/// EINVAL: a label under which nothing exists.
#[inline]
pub fn resolve(w: &Worker, guid: Guid) -> Result<Guid> {
    if !is_label(guid) {
        return Ok(guid);
    }
    match target(w.rt, guid)? {
        Guid::NULL => Err(Errno::EINVAL),
        target => Ok(target),
    }
}

/// The object last created under a label; NULL_GUID: none.
///
/// # Errors
/// EINVAL: no label of a live range.
pub fn target(rt: &Runtime, guid: Guid) -> Result<Guid> {
    let cell = cell(rt, guid)?;
    loop {
        match cell.target.load(Ordering::Acquire) {
            BEING_CREATED => std::thread::yield_now(),
            target => return Ok(Guid(target)),
        }
    }
}

/// As [`resolve`]. `None`: it is a label under which nothing exists yet, and `dependence` waits for it.
///
/// # Errors
/// EINVAL: a label of no range.
pub fn resolve_or_await(w: &Worker, guid: Guid, dependence: Dependence) -> Result<Option<Guid>> {
    if !is_label(guid) {
        return Ok(Some(guid));
    }
    let found = target(w.rt, guid)?;
    if !found.is_null() {
        return Ok(Some(found));
    }
    // Counted before the second look-up: the creator reads the count after creating.
    let awaited = &w.rt.awaited;
    let mut by_label = awaited.by_label.lock().expect("no panic while locked");
    awaited.count.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let found = target(w.rt, guid)?;
    if !found.is_null() {
        awaited.count.fetch_sub(1, Ordering::SeqCst);
        return Ok(Some(found));
    }
    by_label.entry(guid).or_default().push(dependence);
    Ok(None)
}

/// Continues the dependences that waited for something under this label.
fn created(w: &mut Worker, guid: Guid) {
    fence(Ordering::SeqCst);
    let awaited = &w.rt.awaited;
    if awaited.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    let waited = awaited
        .by_label
        .lock()
        .expect("no panic while locked")
        .remove(&guid)
        .unwrap_or_default();
    awaited.count.fetch_sub(waited.len(), Ordering::SeqCst);
    for dependence in waited {
        if crate::edt::resume(w, dependence).is_err() {
            w.complain("an object was created under a label", || {
                format!(
                    "the dependence of {} slot {} on {} cannot be added",
                    stuck::describe(w.rt, dependence.destination),
                    dependence.slot,
                    stuck::describe(w.rt, guid)
                )
            });
        }
    }
}

/// Creates an object under a label as `properties` say. Without CHECK and BLOCK an existing object is replaced, unless
/// `shared` says that all creators mean the same one.
///
/// # Errors
/// EGUIDEXISTS with CHECK if an object exists there; EINVAL if the GUID is not a label; errors of `create`.
pub fn create_under(
    w: &mut Worker,
    guid: Guid,
    properties: u16,
    shared: impl Fn(&Worker, Guid) -> bool,
    create: impl FnOnce(&mut Worker) -> Result<Guid>,
) -> Result<()> {
    let cell = cell(w.rt, guid)?;
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
                let free = |w: &mut Worker| {
                    let now = cell.target.load(Ordering::Acquire);
                    (now != BEING_CREATED && !w.rt.is_alive(Guid(now))).then_some(())
                };
                crate::legacy::until(w, guid, &mut { free });
                continue;
            }
            if shared(w, Guid(old)) {
                return Ok(());
            }
        }
        let claim =
            cell.target
                .compare_exchange(old, BEING_CREATED, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_ok() {
            break old;
        }
    };
    let new = create(w);
    let now = new.map_or(old, |guid| guid.0);
    cell.target.store(now, Ordering::Release);
    if new.is_ok() {
        created(w, guid);
    }
    new.map(|_| ())
}
