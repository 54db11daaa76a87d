//! GUIDs: names of objects, labels, affinities and workers, as programs see them.
//!
//! The GUID of an object encodes the object's position in the [arena](crate::objects::arena) and which of the objects
//! that have used this position it is: bits 0 to 3 are a tag (0 an object, 1 a label), bits 4 to 39 the position in
//! units of 16 bytes, bits 40 to 62 the generation, bit 63 is 0. Memory of objects is only reused for objects, so a
//! stale GUID is detected by its generation (23 bits: one chance in eight million to miss it after that many reuses of
//! the position) and answered with an error instead of a crash.

/// `ocrGuid_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub i64);

impl Guid {
    /// `NULL_GUID`.
    pub const NULL: Self = Self(0);
    /// `ERROR_GUID`.
    pub const ERROR: Self = Self(-1);
    /// `UNINITIALIZED_GUID`.
    pub const UNINITIALIZED: Self = Self(-2);

    /// Whether this is `NULL_GUID`.
    #[inline]
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Whether this is a label.
    #[inline]
    #[must_use]
    pub fn is_label(self) -> bool {
        self.0 & TAG == Tag::Label as i64 && self.0 > 0
    }

    /// The GUID of the object of that generation at `offset` in the arena.
    #[inline]
    #[must_use]
    pub(crate) fn of_object(generation: u32, offset: usize) -> Self {
        Self((i64::from(generation) << PLACE_BITS) | offset as i64)
    }

    /// The GUID of a label whose cell is at `offset` in the arena.
    #[must_use]
    pub(crate) fn of_label(offset: usize) -> Self {
        Self(offset as i64 | Tag::Label as i64)
    }

    /// The GUID of a node's affinity.
    #[must_use]
    pub fn of_affinity(node: u16) -> Self {
        Self((i64::from(node) << 4) | Tag::Affinity as i64)
    }

    /// The GUID of a worker, unique among workers.
    #[must_use]
    pub fn of_worker(index: usize) -> Self {
        Self(((index as i64) << 4) | Tag::Worker as i64)
    }

    /// The generation of the object that this GUID was made for.
    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> PLACE_BITS) as u32
    }

    /// Offset in the arena and tag; `None` if it can be neither an object nor a label.
    #[inline]
    pub(crate) fn place(self) -> Option<(usize, i64)> {
        (self.0 > 0).then_some((
            (self.0 & ((1 << PLACE_BITS) - 1) & !TAG) as usize,
            self.0 & TAG,
        ))
    }
}

/// Bits of a generation in a GUID.
pub(crate) const GENERATION_BITS: u32 = 23;
const PLACE_BITS: u32 = 40;
const TAG: i64 = 15;

/// Bits 0 to 3 of a GUID.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// An object.
    Object = 0,
    /// A cell of a range.
    Label = 1,
    /// An affinity; the rest of the GUID is the node.
    Affinity = 5,
    /// A worker; the rest is its number.
    Worker = 6,
}

/// The node that an affinity's GUID, or a hint value made of it, stands for.
#[must_use]
pub fn affinity_node(value: u64) -> Option<u16> {
    (value & 15 == Tag::Affinity as u64)
        .then(|| u16::try_from(value >> 4).ok())
        .flatten()
}
