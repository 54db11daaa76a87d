//! Memory for the runtime's objects (not for the contents of data blocks).
//!
//! One range of addresses is reserved at the start and handed out from the bottom, in size classes
//! (two per power of two from 64 bytes). What is freed goes to a list of the worker that freed it, in
//! batches to a shared pool when that list is long, and is used again for the same class: the memory
//! in use is bounded by the most objects ever alive at a time plus two batches per worker and class.
//! It goes back to the system when the runtime ends.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::object::{Header, Kind};

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
    // The power of two at or above, then the step of three quarters below it if that is enough.
    let power = usize::BITS - (size - 1).leading_zeros();
    let class = 2 * (power as usize - 6);
    if size <= (3 << (power - 2)) {
        class - 1
    } else {
        class
    }
}

/// How many objects of a class move at a time between a worker and the pool.
fn batch(class: usize) -> usize {
    (16384 / class_size(class)).clamp(1, 128)
}

/// Free memory: a header whose life has ended, then the links.
#[repr(C)]
struct FreeObject {
    header: Header,
    next: AtomicPtr<FreeObject>,
    /// The one [`AHEAD`] places further on, if both went through the pool together; else null.
    ahead: AtomicPtr<FreeObject>,
}

/// So many objects before its turn an object's memory is asked for: who freed it may have been another thread, whose cache
/// has it, and a list alone can be followed one miss at a time only.
const AHEAD: usize = 8;

/// Asks for the first two lines of an object, to be written soon.
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

/// Free objects on their way through the pool.
struct Batch {
    list: List,
    /// The first ones of the list, which no other is ahead of.
    first: [*mut FreeObject; AHEAD],
}

struct Pool(Vec<Batch>);
// SAFETY: free memory belongs to nobody; the lock around the pool hands it from thread to thread.
unsafe impl Send for Pool {}

/// The arena; see the module's text.
pub struct Arena {
    base: *mut u8,
    reserved: usize,
    used: AtomicUsize,
    pools: [Mutex<Pool>; CLASSES],
    /// What was carved: start and class of each batch.
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
    /// Reserves addresses: as many as the system lets us, up to what a GUID can say.
    ///
    /// # Errors
    /// When not even 64 MiB of addresses can be had.
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
                    // Offset 0 is never an object: GUID 0 is NULL_GUID.
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

    /// Bytes handed out so far; grows only while more objects are alive than ever before.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Where in the arena something is.
    #[inline]
    pub fn offset(&self, address: *const u8) -> usize {
        address as usize - self.base as usize
    }

    /// The memory at an offset, if that much was ever handed out: a header can be read there.
    #[inline]
    pub fn at(&self, offset: usize) -> Option<*mut u8> {
        (offset >= 4096 && offset < self.used.load(Ordering::Relaxed))
            // SAFETY: within the reservation.
            .then(|| unsafe { self.base.add(offset) })
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

    /// Memory for an object of `size` bytes, header set up, the rest undefined. `None`: out of memory.
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

    /// Ends the object's life and takes its memory back.
    ///
    /// # Safety
    /// `object` came from `allocate` of this arena and nobody uses it any more, except to find
    /// out that it is gone.
    #[inline]
    pub unsafe fn release(&self, lists: &mut Lists, object: *mut Header) {
        // SAFETY: as the caller promises.
        unsafe {
            debug_assert_ne!((*object).kind(), Kind::Free as u8);
            (*object).end();
            self.release_ended(lists, object);
        }
    }

    /// As [`Arena::release`], for an object whose life was ended already.
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
        let mut behind = [head; AHEAD];
        let mut first = behind;
        for at in 1..count {
            // SAFETY: the list is at least that long.
            unsafe {
                last = (*last).next.load(Ordering::Relaxed);
                if at >= AHEAD {
                    (*behind[at % AHEAD]).ahead.store(last, Ordering::Relaxed);
                } else {
                    first[at] = last;
                }
            }
            behind[at % AHEAD] = last;
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
        // SAFETY: our own mapping; whoever drops the arena has nobody using it.
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
    fn memory_is_used_again_and_old_guids_are_seen_to_be_stale() {
        let arena = Arena::new().unwrap();
        let mut lists = Lists::default();
        let mut before = 0;
        for round in 0..10_000 {
            let object = arena.allocate(&mut lists, 100).unwrap();
            // SAFETY: freshly allocated.
            let header = unsafe { &*object.cast::<Header>() };
            header.begin(Kind::Event);
            let guid = crate::object::guid_of(header, arena.offset(object));
            assert!(header.is(Kind::Event, guid));
            // SAFETY: ours, and not used any more.
            unsafe { arena.release(&mut lists, object.cast()) };
            assert!(!header.is(Kind::Event, guid));
            if round == 0 {
                before = arena.used_bytes();
            }
        }
        assert_eq!(arena.used_bytes(), before);
    }
}
