//! The header of every object: its lock, its kind, and its generation, which stale GUIDs do not have.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::guid::{GENERATION_BITS, Guid};

/// The kind of an object.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: free memory.
    Free = 0,
    /// A task.
    Edt,
    /// An event of any type.
    Event,
    /// A data block.
    Block,
    /// A task template.
    Template,
    /// A finish scope; has no GUID.
    Scope,
    /// A range of labels.
    Range,
}

/// The header of every object.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    lock: AtomicU8,
    kind: AtomicU8,
    /// Size class, set once when the memory is carved.
    pub(crate) class: u8,
    _unused: u8,
    generation: AtomicU32,
}

impl Header {
    /// The current kind.
    pub fn kind(&self) -> u8 {
        self.kind.load(Ordering::Relaxed)
    }

    /// Whether the object has that kind and is the one the GUID was made for.
    #[inline]
    pub fn is(&self, kind: Kind, guid: Guid) -> bool {
        self.kind.load(Ordering::Acquire) == kind as u8 && self.generation() == guid.generation()
    }

    /// The GUID of the object that begins with this header, at `offset` in the arena.
    #[inline]
    pub fn guid(&self, offset: usize) -> Guid {
        Guid::of_object(self.generation(), offset)
    }

    fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed) & ((1 << GENERATION_BITS) - 1)
    }

    /// Marks the object as alive.
    #[inline]
    pub fn begin(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Release);
    }

    /// Ends the object's life: all GUIDs given out for it become stale.
    #[inline]
    pub fn end(&self) {
        self.kind.store(Kind::Free as u8, Ordering::Relaxed);
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        self.generation.store(next, Ordering::Release);
    }

    /// Locks the object. Locks are held for a few instructions only, so this spins first, then yields.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        let mut spins = 0;
        while self
            .lock
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spins += 1;
            if spins % 64 == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Locked { header: self }
    }
}

/// A locked object; unlocks when dropped.
pub struct Locked<'a> {
    header: &'a Header,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.header.lock.store(0, Ordering::Release);
    }
}
