//! A queue for tasks sent to a node by other nodes: any thread pushes, and a worker of the node takes all.
//!
//! A linked list threaded through the elements: a push is one compare-and-swap, and taking swaps out the whole list, so
//! the ABA problem cannot arise. Elements are returned oldest first.

use crate::sync::atomic::{AtomicPtr, Ordering};
use std::ptr;

/// An element with a link field for the inbox.
///
/// # Safety
/// `link` must always return the same field of the element, unused by others while the element is in an inbox.
pub unsafe trait Linked: Sized {
    /// The link field.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// The inbox; see the module documentation. Holds pointers, owns nothing.
pub struct Inbox<T> {
    head: AtomicPtr<T>,
}

impl<T: Linked> Default for Inbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Inbox<T> {
    /// An empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Adds an element; callable from any thread.
    ///
    /// # Safety
    /// `item` is alive, in no inbox, and stays alive until it is taken.
    pub unsafe fn push(&self, item: *mut T) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller keeps it alive, and it is not published yet.
            unsafe { (*item).link().store(head, Ordering::Relaxed) };
            match self
                .head
                .compare_exchange_weak(head, item, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all elements, oldest first; callable from any thread.
    pub fn take_all(&self) -> Drain<T> {
        if self.head.load(Ordering::Relaxed).is_null() {
            return Drain {
                next: ptr::null_mut(),
            };
        }
        let mut newest = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        let mut next = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: the list is ours since the swap, and its elements are alive (contract of `push`).
            let older = unsafe { (*newest).link().load(Ordering::Relaxed) };
            // SAFETY: as above.
            unsafe { (*newest).link().store(next, Ordering::Relaxed) };
            next = newest;
            newest = older;
        }
        Drain { next }
    }

    /// Whether the inbox was empty at the time of the call; callable from any thread.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }
}

/// Elements taken from an inbox, oldest first.
pub struct Drain<T> {
    next: *mut T,
}

impl<T: Linked> Iterator for Drain<T> {
    type Item = *mut T;

    fn next(&mut self) -> Option<*mut T> {
        let item = self.next;
        if item.is_null() {
            return None;
        }
        // SAFETY: the elements belong to the taker, and are alive (contract of `push`).
        self.next = unsafe { (*item).link().load(Ordering::Relaxed) };
        Some(item)
    }
}
