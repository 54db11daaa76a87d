//! Classifies the memory that a process maps, loads or is given as an object.

use std::borrow::Cow;

use numaloc_model::plan::ObjectKey;
use numaloc_model::profile::ObjectKind;

/// Name of anonymous memory.
pub const ANONYMOUS: &str = "[anon]";
/// Name of a malloc arena of the C library.
pub const ARENA: &str = "[arena]";
/// Name of the program break's heap; also the file by which `/proc/PID/maps` names it.
pub const HEAP: &str = "[heap]";
/// Name of a thread's stack; also the file by which `/proc/PID/maps` names the first thread's.
pub const STACK: &str = "[stack]";
/// Name of attached System V memory.
pub const SYSTEM_V: &str = "[shm]";

/// Bytes of the C library's reservation for a malloc arena, and its alignment.
pub const ARENA_BYTES: u64 = 64 << 20;
/// Fixed size of the first thread's stack object, however large its mapping has grown.
pub const MAIN_STACK_BYTES: u64 = 8 << 20;
/// Page size for rounding, independent of the machine's.
pub const PAGE_BYTES: u64 = 4096;

/// `PROT_NONE`.
const NO_ACCESS: u64 = 0;
/// `MAP_TYPE`, the bits that say whether a mapping is shared, and `MAP_PRIVATE`, their value for a private one.
const MAP_TYPE: u64 = 0xf;
const MAP_PRIVATE: u64 = 2;
/// `MAP_NORESERVE`.
const MAP_NORESERVE: u64 = 0x4000;

/// The last component of a file's path, by which objects are named.
#[must_use]
pub fn base_name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// The name of a section of a loaded file.
#[must_use]
pub fn section_name(file: &str, section: &str) -> String {
    format!("{file}:{section}")
}

/// A successful `mmap` call for a file that is not a loaded program or library, or for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapCall<'a> {
    /// Bytes requested.
    pub length: u64,
    /// `PROT_*`.
    pub protection: u64,
    /// `MAP_*`.
    pub flags: u64,
    /// Base name of the file, `None` for anonymous memory.
    pub file: Option<&'a str>,
}

/// A new object: its identity except for creator and order, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject<'a> {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Size in its identity, in bytes.
    pub size: u64,
    /// Address of its first byte.
    pub base: u64,
}

impl<'a> NewObject<'a> {
    /// The object that a successful `mmap` created at `address`; `None` if the C library returns the memory at once, to
    /// get an arena aligned to its size.
    #[must_use]
    pub fn of_map(call: &MapCall<'a>, address: u64) -> Option<Self> {
        let size = rounded(call.length)?;
        let is_shared = call.flags & MAP_TYPE != MAP_PRIVATE;
        let kind = if is_shared {
            ObjectKind::Shared
        } else {
            ObjectKind::Mapping
        };
        let is_reserved = call.protection == NO_ACCESS && call.flags & MAP_NORESERVE != 0;
        if call.file.is_none() && !is_shared && is_reserved {
            if size == 2 * ARENA_BYTES {
                return Some(Self::arena(address.checked_next_multiple_of(ARENA_BYTES)?));
            }
            if size == ARENA_BYTES {
                return address
                    .is_multiple_of(ARENA_BYTES)
                    .then(|| Self::arena(address));
            }
        }
        Some(Self::at(
            kind,
            call.file.unwrap_or(ANONYMOUS),
            size,
            address,
        ))
    }

    fn at(kind: ObjectKind, name: &'a str, size: u64, base: u64) -> Self {
        Self {
            kind,
            name: Cow::Borrowed(name),
            size,
            base,
        }
    }

    fn arena(base: u64) -> Self {
        Self::at(ObjectKind::Mapping, ARENA, ARENA_BYTES, base)
    }

    /// System V memory of `size` bytes, attached at `address`; `None` if it exceeds the address space.
    #[must_use]
    pub fn attached(size: u64, address: u64) -> Option<Self> {
        Some(Self::at(
            ObjectKind::Shared,
            SYSTEM_V,
            rounded(size)?,
            address,
        ))
    }

    /// The stack of a created thread: the mapping `start..end`. Its creator is the new thread.
    #[must_use]
    pub fn stack(start: u64, end: u64) -> Self {
        Self::at(ObjectKind::Stack, STACK, end.saturating_sub(start), start)
    }

    /// The stack of a process's first thread, whose mapping ends at `end`.
    #[must_use]
    pub fn main_stack(end: u64) -> Self {
        let base = end.saturating_sub(MAIN_STACK_BYTES);
        Self::at(ObjectKind::Stack, STACK, MAIN_STACK_BYTES, base)
    }

    /// The heap; `initial` is the first program break.
    #[must_use]
    pub fn heap(initial: u64) -> Self {
        Self::at(
            ObjectKind::Heap,
            HEAP,
            0,
            initial.next_multiple_of(PAGE_BYTES),
        )
    }

    /// The part of the program or library of base name `file`, loaded at `start..end`, that is no writable section.
    #[must_use]
    pub fn image(file: &'a str, start: u64, end: u64) -> Self {
        Self::at(ObjectKind::Mapping, file, end.saturating_sub(start), start)
    }

    /// A writable section, of `size` bytes at `base`, of the program or library of base name `file`.
    #[must_use]
    pub fn section(file: &str, section: &str, size: u64, base: u64) -> Self {
        Self {
            kind: ObjectKind::Static,
            name: Cow::Owned(section_name(file, section)),
            size,
            base,
        }
    }

    /// Its identity if it is the first with its kind, name, creator and size.
    #[must_use]
    pub fn first_key(&self, creator: &str) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            name: self.name.clone().into_owned(),
            creator: Some(creator.to_owned()),
            size: self.size,
            order: 0,
        }
    }
}

fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MAP_ANONYMOUS: u64 = 0x20;

    /// `malloc`'s call for `length` bytes.
    pub(crate) fn anonymous(length: u64) -> MapCall<'static> {
        MapCall {
            length,
            protection: 3,
            flags: MAP_PRIVATE | MAP_ANONYMOUS,
            file: None,
        }
    }

    #[test]
    fn arenas_are_one_object_however_the_c_library_allocates_them() {
        let reserve = |length| MapCall {
            protection: NO_ACCESS,
            flags: MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            ..anonymous(length)
        };
        let aligned = NewObject::of_map(&reserve(64 << 20), 0x7f00_0000_0000).unwrap();
        assert_eq!((&*aligned.name, aligned.base), (ARENA, 0x7f00_0000_0000));
        assert_eq!(
            NewObject::of_map(&reserve(64 << 20), 0x7f00_0000_1000),
            None
        );
        let trimmed = NewObject::of_map(&reserve(128 << 20), 0x7f00_0000_1000).unwrap();
        assert_eq!((trimmed.size, trimmed.base), (64 << 20, 0x7f00_0400_0000));
    }

    #[test]
    fn files_and_sharing_decide_kind_and_name() {
        let of = |flags, file| {
            let call = MapCall {
                flags,
                file,
                ..anonymous(1)
            };
            let object = NewObject::of_map(&call, 0x5000).unwrap();
            assert_eq!((object.size, object.base), (4096, 0x5000));
            (object.kind, object.name.into_owned())
        };
        let shared = ObjectKind::Shared;
        assert_eq!(of(0x22, None), (ObjectKind::Mapping, ANONYMOUS.to_owned()));
        assert_eq!(
            of(0x02, Some("grid")),
            (ObjectKind::Mapping, "grid".to_owned())
        );
        assert_eq!(of(0x01, Some("grid")), (shared, "grid".to_owned()));
        assert_eq!(of(0x03, Some("grid")), (shared, "grid".to_owned()));
        assert_eq!(of(0x21, None), (shared, ANONYMOUS.to_owned()));
    }

    #[test]
    fn lengths_beyond_the_address_space_are_no_objects() {
        assert_eq!(NewObject::of_map(&anonymous(u64::MAX - 5), 0x1000), None);
        assert_eq!(NewObject::attached(u64::MAX, 0x1000), None);
    }
}
