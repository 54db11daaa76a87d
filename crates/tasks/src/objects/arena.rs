//! Memory for the runtime's objects (not for the contents of data blocks).
//!
//! One range of addresses is reserved at the start and handed out from the bottom, in size classes (two per power of
//! two from 64 bytes). Freed memory goes to a list of the worker that freed it; when that list is long, a batch of it
//! moves to a shared pool. It is reused for the same class only, so memory in use is bounded by the largest number of
//! objects ever alive at a time plus two batches per worker and class. All of it is returned to the system when the
//! runtime ends.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::header::{Header, Kind};
use crate::error::{Error, Result};
use crate::guid::{Guid, Tag};

/// Number of size classes: 64, 96, 128, 192, ... bytes.
const CLASSES: usize = 40;

fn class_size(class: usize) -> usize {
    (if class.is_multiple_of(2) { 64 } else { 96 }) << (class / 2)
}

#[inline]
fn class_of(size: usize) -> usize {
    if size <= 64 {
        return 0;
    }
    // The power of two at or above `size`, or three quarters of it if that is enough.
    let power = usize::BITS - (size - 1).leading_zeros();
    let class = 2 * (power as usize - 6);
    if size <= (3 << (power - 2)) {
        class - 1
    } else {
        class
    }
}

/// Number of objects of a class that move between a worker and the pool at a time.
fn batch(class: usize) -> usize {
    (16384 / class_size(class)).clamp(1, 128)
}

/// Free memory: the header of an object that was released, then the links.
#[repr(C)]
struct FreeObject {
    header: Header,
    next: AtomicPtr<FreeObject>,
    /// The object [`PREFETCH_DISTANCE`] further along the list if both went through the pool in one batch; else null.
    ahead: AtomicPtr<FreeObject>,
}

/// How many allocations in advance an object's memory is prefetched. Another thread may have freed it, so it may be in
/// that thread's cache, and following the list alone would take one cache miss per object.
const PREFETCH_DISTANCE: usize = 8;

/// Prefetches the first two lines of an object for writing.
#[inline]
pub fn prefetch<T>(object: *mut T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(object.cast::<i8>());
        _mm_prefetch::<_MM_HINT_ET0>(object.cast::<i8>().wrapping_add(64));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}

#[derive(Clone, Copy)]
struct List {
    head: *mut FreeObject,
    count: usize,
}

const EMPTY: List = List {
    head: ptr::null_mut(),
    count: 0,
};

/// A batch of free objects in the pool.
struct Batch {
    list: List,
    /// The first objects of the list, to which no `ahead` pointer leads.
    first: [*mut FreeObject; PREFETCH_DISTANCE],
}

struct Pool(Vec<Batch>);
// SAFETY: free memory has no owner; the lock around the pool passes it from thread to thread.
unsafe impl Send for Pool {}

/// The arena; see the module documentation.
pub struct Arena {
    base: *mut u8,
    reserved: usize,
    used: AtomicUsize,
    pools: [Mutex<Pool>; CLASSES],
    /// Memory carved so far: start and class of each batch.
    carved: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: `base` never changes; everything else is atomic or locked.
unsafe impl Sync for Arena {}
// SAFETY: as above.
unsafe impl Send for Arena {}

/// A worker's own free lists.
pub struct Lists([List; CLASSES]);

impl Default for Lists {
    fn default() -> Self {
        Self([EMPTY; CLASSES])
    }
}

impl Arena {
    /// Reserves as many addresses as the system allows, up to what a GUID can encode.
    ///
    /// # Errors
    /// If not even 64 MiB of addresses can be reserved.
    pub fn new() -> std::io::Result<Self> {
        let mut reserved = 1_usize << 39;
        loop {
            // SAFETY: a fresh private mapping; nothing of ours is touched.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    reserved,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                return Ok(Self {
                    base: base.cast(),
                    reserved,
                    // Offset 0 is never an object, because GUID 0 is NULL_GUID.
                    used: AtomicUsize::new(4096),
                    pools: std::array::from_fn(|_| Mutex::new(Pool(Vec::new()))),
                    carved: Mutex::default(),
                });
            }
            if reserved <= 1 << 26 {
                return Err(std::io::Error::last_os_error());
            }
            reserved /= 2;
        }
    }

    /// Bytes handed out so far; grows only when more objects are alive than ever before.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Offset of an address in the arena.
    #[inline]
    pub fn offset(&self, address: *const u8) -> usize {
        address as usize - self.base as usize
    }

    /// The memory at an offset, if it has been handed out: a header can be read there.
    #[inline]
    pub fn at(&self, offset: usize) -> Option<*mut u8> {
        (offset >= 4096 && offset < self.used.load(Ordering::Relaxed))
            // SAFETY: within the reservation.
            .then(|| unsafe { self.base.add(offset) })
    }

    /// Memory of the object that a GUID refers to; not checked for being that object still.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no GUID of an object.
    #[inline]
    pub fn object(&self, guid: Guid) -> Result<*mut Header> {
        match guid.place() {
            Some((offset, tag)) if tag == Tag::Object as i64 => {
                self.at(offset).map(<*mut u8>::cast).ok_or(Error::Invalid)
            }
            _ => Err(Error::Invalid),
        }
    }

    /// The live object of that kind behind a GUID.
    ///
    /// # Errors
    /// `gone`: it is of another kind, or no longer alive; [`Error::Invalid`]: no GUID of an object.
    #[inline]
    pub fn live(&self, guid: Guid, kind: Kind, gone: Error) -> Result<*mut Header> {
        let object = self.object(guid)?;
        // SAFETY: memory of objects is always readable as a header.
        let alive = unsafe { (*object).is(kind, guid) };
        alive.then_some(object).ok_or(gone)
    }

    /// Whether a GUID refers to a live object.
    pub fn is_alive(&self, guid: Guid) -> bool {
        self.object(guid).is_ok_and(|header| {
            // SAFETY: memory of objects is always readable as a header.
            let header = unsafe { &*header };
            [Kind::Edt, Kind::Event, Kind::Block, Kind::Template]
                .iter()
                .any(|&kind| header.is(kind, guid))
        })
    }

    /// The GUID of the object that begins with `header`.
    ///
    /// # Safety
    /// `header` is the memory of an object of this arena.
    #[inline]
    pub unsafe fn guid(&self, header: *const Header) -> Guid {
        // SAFETY: as the caller promises.
        unsafe { (*header).guid(self.offset(header.cast())) }
    }

    /// Offsets of all objects, alive or not.
    pub fn objects(&self) -> Vec<usize> {
        let carved = self.carved.lock().expect("no panic while locked");
        carved
            .iter()
            .flat_map(|&(start, class)| {
                (0..batch(class)).map(move |at| start + at * class_size(class))
            })
            .collect()
    }

    /// Allocates memory for an object of `size` bytes; the header is set up, the rest undefined. `None`: out of memory.
    #[inline]
    pub fn allocate(&self, lists: &mut Lists, size: usize) -> Option<*mut u8> {
        let class = class_of(size);
        let list = lists.0.get_mut(class)?;
        if list.head.is_null() {
            *list = self.refill(class)?;
        }
        let object = list.head;
        // SAFETY: free memory on our own list.
        let ahead = unsafe {
            list.head = (*object).next.load(Ordering::Relaxed);
            (*object).ahead.load(Ordering::Relaxed)
        };
        if !ahead.is_null() {
            prefetch(ahead);
        }
        list.count -= 1;
        Some(object.cast())
    }

    /// Ends the object's life and frees its memory.
    ///
    /// # Safety
    /// `object` came from `allocate` of this arena and is no longer used, except to detect that it is gone.
    #[inline]
    pub unsafe fn release(&self, lists: &mut Lists, object: *mut Header) {
        // SAFETY: as the caller promises.
        unsafe {
            debug_assert_ne!((*object).kind(), Kind::Free as u8);
            (*object).end();
            self.release_ended(lists, object);
        }
    }

    /// As [`Arena::release`], for an object whose life has already ended.
    ///
    /// # Safety
    /// As for [`Arena::release`].
    #[inline]
    pub unsafe fn release_ended(&self, lists: &mut Lists, object: *mut Header) {
        let object: *mut FreeObject = object.cast();
        // SAFETY: as the caller promises; the class is written once, before the first life.
        let class = unsafe { (*object).header.class as usize };
        let list = &mut lists.0[class];
        // SAFETY: as above.
        unsafe {
            (*object).next.store(list.head, Ordering::Relaxed);
            (*object).ahead.store(ptr::null_mut(), Ordering::Relaxed);
        }
        list.head = object;
        list.count += 1;
        if list.count >= 2 * batch(class) {
            self.give_back(class, list);
        }
    }

    /// Moves a batch from a worker's list to the pool.
    fn give_back(&self, class: usize, list: &mut List) {
        let (count, head) = (batch(class), list.head);
        let mut last = head;
        let mut recent = [head; PREFETCH_DISTANCE];
        let mut first = recent;
        for at in 1..count {
            // SAFETY: the list is at least that long.
            unsafe {
                last = (*last).next.load(Ordering::Relaxed);
                if at >= PREFETCH_DISTANCE {
                    (*recent[at % PREFETCH_DISTANCE])
                        .ahead
                        .store(last, Ordering::Relaxed);
                } else {
                    first[at] = last;
                }
            }
            recent[at % PREFETCH_DISTANCE] = last;
        }
        // SAFETY: as above.
        unsafe {
            list.head = (*last).next.load(Ordering::Relaxed);
            (*last).next.store(ptr::null_mut(), Ordering::Relaxed);
        }
        list.count -= count;
        self.pools[class]
            .lock()
            .expect("no panic while locked")
            .0
            .push(Batch {
                list: List { head, count },
                first,
            });
    }

    #[cold]
    fn refill(&self, class: usize) -> Option<List> {
        let pooled = self.pools[class]
            .lock()
            .expect("no panic while locked")
            .0
            .pop();
        if let Some(batch) = pooled {
            batch.first.into_iter().for_each(prefetch);
            return Some(batch.list);
        }
        let (size, count) = (class_size(class), batch(class));
        let start = self.used.fetch_add(size * count, Ordering::Relaxed);
        if start + size * count > self.reserved {
            self.used.fetch_sub(size * count, Ordering::Relaxed);
            return None;
        }
        self.carved
            .lock()
            .expect("no panic while locked")
            .push((start, class));
        let mut list = EMPTY;
        for at in (0..count).rev() {
            // SAFETY: freshly carved from the reservation, aligned to 32, zeroed by the system, so
            // that the header reads as free, unlocked and of generation 0.
            unsafe {
                let object: *mut FreeObject = self.base.add(start + at * size).cast();
                (*object).header.class = class as u8;
                (*object).next.store(list.head, Ordering::Relaxed);
                list.head = object;
            }
        }
        list.count = count;
        Some(list)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the arena is being dropped, so nobody uses it.
        unsafe { libc::munmap(self.base.cast(), self.reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_and_waste_at_most_a_third() {
        for size in 1..20_000 {
            let fits = class_size(class_of(size));
            assert!(fits >= size, "{size} in {fits}");
            assert!(size <= 64 || fits * 2 <= size * 3, "{size} in {fits}");
        }
    }

    #[test]
    fn memory_is_reused_and_old_guids_are_stale() {
        let arena = Arena::new().unwrap();
        let mut lists = Lists::default();
        let mut before = 0;
        for round in 0..10_000 {
            let object = arena.allocate(&mut lists, 100).unwrap();
            // SAFETY: freshly allocated.
            let header = unsafe { &*object.cast::<Header>() };
            header.begin(Kind::Event);
            let guid = header.guid(arena.offset(object));
            assert!(header.is(Kind::Event, guid));
            // SAFETY: ours, and no longer used.
            unsafe { arena.release(&mut lists, object.cast()) };
            assert!(!header.is(Kind::Event, guid));
            if round == 0 {
                before = arena.used_bytes();
            }
        }
        assert_eq!(arena.used_bytes(), before);
    }
}
