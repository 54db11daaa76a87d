//! A work-stealing deque of pointers: the owner pushes and pops at the bottom (last in, first out, so that a creation
//! tree runs depth first and stays small); thieves take the oldest element from the top.
//!
//! The algorithm is Chase and Lev's (SPAA 2005) with the memory orders of Le, Pop, Cohen and Zappa Nardelli (PPoPP
//! 2013). Deviations: outgrown buffers are kept until the deque is dropped (together smaller than the last one), so a
//! slow thief never reads freed memory; every store to the bottom is a release store, where theirs are relaxed after a
//! release fence: equally cheap, and visible to ThreadSanitizer, which does not support fences; the owner caches the
//! top for its check for free space.

use crate::padded::Padded;
use crate::sync::atomic::{AtomicIsize, AtomicPtr, Ordering, fence};
use std::cell::UnsafeCell;
use std::ptr;

/// The result of a steal.
#[derive(Debug, PartialEq, Eq)]
pub enum Steal<T> {
    /// The deque was empty.
    Empty,
    /// Another thread was faster; there may be more elements.
    Retry,
    /// The oldest element.
    Success(*mut T),
}

struct Buffer<T> {
    slots: Box<[AtomicPtr<T>]>,
}

impl<T> Buffer<T> {
    fn new(capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two());
        Self {
            slots: (0..capacity)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
        }
    }

    fn slot(&self, at: isize) -> &AtomicPtr<T> {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }
}

/// The deque; see the module documentation. Grows without bound; holds pointers, owns nothing.
pub struct Deque<T> {
    bottom: Padded<AtomicIsize>,
    top: Padded<AtomicIsize>,
    buffer: AtomicPtr<Buffer<T>>,
    owner: Padded<UnsafeCell<Owner<T>>>,
}

/// The owner's private state, kept off the cache lines that thieves write.
struct Owner<T> {
    /// Every buffer ever used, the current one last.
    buffers: Vec<*mut Buffer<T>>,
    /// The top as last read by the owner: never above the current top, so a deque that seems full is checked again.
    top: isize,
}

// SAFETY: `owner` is touched only by the owner (contract of `push`) and by `drop`; the rest is atomic.
unsafe impl<T> Sync for Deque<T> {}
// SAFETY: the deque holds plain pointers and owns only its buffers.
unsafe impl<T> Send for Deque<T> {}

impl<T> Deque<T> {
    /// An empty deque with room for `capacity` elements (rounded up to a power of two) before it grows.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let first = Box::into_raw(Box::new(Buffer::new(capacity.next_power_of_two().max(2))));
        Self {
            bottom: Padded(AtomicIsize::new(0)),
            top: Padded(AtomicIsize::new(0)),
            buffer: AtomicPtr::new(first),
            owner: Padded(UnsafeCell::new(Owner {
                buffers: vec![first],
                top: 0,
            })),
        }
    }

    /// Adds an element at the owner's end.
    ///
    /// # Safety
    /// Only the owning worker calls `push` and `pop`, never two threads at a time.
    pub unsafe fn push(&self, item: *mut T) {
        let bottom = self.bottom.load(Ordering::Relaxed);
        let mut buffer = self.buffer.load(Ordering::Relaxed);
        // SAFETY: the current buffer lives until the deque is dropped.
        let room = unsafe { &*buffer }.slots.len() as isize;
        // SAFETY: the caller is the owner, and the reference ends with this statement.
        let owner = unsafe { &mut *self.owner.0.get() };
        // Thieves write the top frequently, so the owner reads it only if the deque seems full.
        if bottom - owner.top >= room {
            owner.top = self.top.load(Ordering::Acquire);
            if bottom - owner.top >= room {
                buffer = Self::grow(&self.buffer, owner, bottom);
            }
        }
        // SAFETY: as above.
        unsafe { (*buffer).slot(bottom).store(item, Ordering::Relaxed) };
        self.bottom.store(bottom + 1, Ordering::Release);
    }

    /// Takes the newest element.
    ///
    /// # Safety
    /// As for [`Deque::push`].
    pub unsafe fn pop(&self) -> Option<*mut T> {
        let bottom = self.bottom.load(Ordering::Relaxed) - 1;
        // Thieves only remove elements, so an empty deque is detected without the fence.
        if self.top.load(Ordering::Relaxed) > bottom {
            return None;
        }
        let buffer = self.buffer.load(Ordering::Relaxed);
        self.bottom.store(bottom, Ordering::Release);
        fence(Ordering::SeqCst);
        let top = self.top.load(Ordering::Relaxed);
        if top > bottom {
            self.bottom.store(bottom + 1, Ordering::Release);
            return None;
        }
        // SAFETY: the current buffer lives until the deque is dropped.
        let item = unsafe { (*buffer).slot(bottom).load(Ordering::Relaxed) };
        if top < bottom {
            return Some(item);
        }
        // The last element: a thief may try to take it too.
        let won = self
            .top
            .compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        self.bottom.store(bottom + 1, Ordering::Release);
        won.then_some(item)
    }

    /// Takes the oldest element; callable from any thread.
    pub fn steal(&self) -> Steal<T> {
        let top = self.top.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let bottom = self.bottom.load(Ordering::Acquire);
        if top >= bottom {
            return Steal::Empty;
        }
        let buffer = self.buffer.load(Ordering::Acquire);
        // SAFETY: outgrown buffers are kept until the deque is dropped, and the slot is atomic; a value read too late
        // is discarded below.
        let item = unsafe { (*buffer).slot(top).load(Ordering::Relaxed) };
        match self
            .top
            .compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => Steal::Success(item),
            Err(_) => Steal::Retry,
        }
    }

    /// Whether the deque was empty at the time of the call; callable from any thread.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.top.load(Ordering::SeqCst) >= self.bottom.load(Ordering::SeqCst)
    }

    /// Number of elements at about the time of the call; callable from any thread.
    #[must_use]
    pub fn len(&self) -> usize {
        let count = self.bottom.load(Ordering::Relaxed) - self.top.load(Ordering::Relaxed);
        usize::try_from(count).unwrap_or(0)
    }

    /// Takes up to half of the elements, the oldest first and at most `most`, into `taken`; callable from any thread.
    /// False: another thread was faster before one was taken.
    ///
    /// Elements are taken one by one: the owner pops its newest elements without synchronisation as long as it sees
    /// two, so taking several at once could take some twice. It is still worthwhile, because the shared cache lines
    /// stay with the thief meanwhile.
    pub fn steal_half(&self, taken: &mut Vec<*mut T>, most: usize) -> bool {
        match self.steal() {
            Steal::Success(item) => taken.push(item),
            Steal::Empty => return true,
            Steal::Retry => return false,
        }
        let more = self.len() / 2;
        for _ in 0..more.min(most.saturating_sub(1)) {
            let Steal::Success(item) = self.steal() else {
                break;
            };
            taken.push(item);
        }
        true
    }

    fn grow(current: &AtomicPtr<Buffer<T>>, owner: &mut Owner<T>, bottom: isize) -> *mut Buffer<T> {
        // SAFETY: the current buffer is alive.
        let old = unsafe { &*current.load(Ordering::Relaxed) };
        let new = Buffer::new(old.slots.len() * 2);
        for at in owner.top..bottom {
            new.slot(at)
                .store(old.slot(at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let new = Box::into_raw(Box::new(new));
        owner.buffers.push(new);
        current.store(new, Ordering::Release);
        new
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        for buffer in self.owner.0.get_mut().buffers.drain(..) {
            // SAFETY: made by `Box::into_raw`, dropped once, and no other reference exists.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }
}
