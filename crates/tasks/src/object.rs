//! Objects and their GUIDs.
//!
//! A GUID encodes the object's position in the [arena](crate::arena) and which of the objects that have used this
//! position it is: bits 0 to 3 are a tag (0 an object, 1 a label), bits 4 to 39 the position in units of 16 bytes, bits
//! 40 to 62 the generation, bit 63 is 0. Memory of objects is only reused for objects, so a stale GUID is detected by
//! its generation (23 bits: one chance in eight million to miss it after that many reuses of the position) and answered
//! with OCR_EINVAL instead of a crash.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::abi::Guid;

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

const GENERATION_BITS: u32 = 23;
const PLACE_BITS: u32 = 40;
const TAG: i64 = 15;

/// Bits 0 to 3 of a GUID.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// An object.
    Object = 0,
    /// A cell of a range.
    Label = 1,
    /// An affinity; the rest of the GUID is the node.
    Affinity = 5,
    /// A worker; the rest is its number.
    Worker = 6,
}

impl Header {
    /// The current kind.
    pub fn kind(&self) -> u8 {
        self.kind.load(Ordering::Relaxed)
    }

    /// Whether the object has that kind and is the one the GUID was made for.
    #[inline]
    pub fn is(&self, kind: Kind, guid: Guid) -> bool {
        self.kind.load(Ordering::Acquire) == kind as u8
            && self.generation() == (guid.0 >> PLACE_BITS) as u32
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

/// The GUID of the object that begins with `header` at `offset` in the arena.
#[inline]
pub fn guid_of(header: &Header, offset: usize) -> Guid {
    Guid((i64::from(header.generation()) << PLACE_BITS) | offset as i64)
}

/// Offset in the arena and tag of a GUID; `None` if it can be neither an object nor a label.
#[inline]
pub fn place_of(guid: Guid) -> Option<(usize, i64)> {
    (guid.0 > 0).then_some((
        (guid.0 & ((1 << PLACE_BITS) - 1) & !TAG) as usize,
        guid.0 & TAG,
    ))
}

/// The GUID of a label cell at `offset`.
#[must_use]
pub fn label_guid(offset: usize) -> Guid {
    Guid(offset as i64 | Tag::Label as i64)
}

/// The GUID of a node's affinity.
#[must_use]
pub fn affinity_guid(node: u16) -> Guid {
    Guid((i64::from(node) << 4) | Tag::Affinity as i64)
}

/// The GUID of a worker, unique among workers.
#[must_use]
pub fn worker_guid(index: usize) -> Guid {
    Guid(((index as i64) << 4) | Tag::Worker as i64)
}

/// The node an affinity GUID (or a hint value made of it) stands for.
#[must_use]
pub fn affinity_node(value: u64) -> Option<u16> {
    (value & 15 == Tag::Affinity as u64)
        .then(|| u16::try_from(value >> 4).ok())
        .flatten()
}
