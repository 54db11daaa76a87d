//! The names of threads and objects in a running program, by the rules of `docs/identity.md`.
//!
//! Pure: fed with what the tracer sees, it says who that is. Only what follows from the program's own
//! order of calls enters a name, never an address or a kernel id.

use numaloc_model::plan::ObjectKey;
use numaloc_model::profile::ObjectKind;
use std::collections::HashMap;

/// Size of a glibc malloc arena's reservation, and its alignment.
pub const ARENA_BYTES: u64 = 64 << 20;
/// Size by which the first thread's stack is known, whatever its mapping has grown to.
pub const MAIN_STACK_BYTES: u64 = 8 << 20;
/// Unit of "rounded up to pages".
const PAGE: u64 = 4096;

/// Hands out the paths of what one thread creates.
#[derive(Clone, Debug)]
pub struct Creator {
    path: String,
    threads: u32,
    processes: u32,
}

impl Creator {
    /// A thread of that path that has created nothing yet.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            threads: 0,
            processes: 0,
        }
    }

    /// Its own path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of the next thread it creates.
    pub fn next_thread(&mut self) -> String {
        self.threads += 1;
        format!("{}.{}", self.path, self.threads)
    }

    /// The path of the next process it creates.
    pub fn next_process(&mut self) -> String {
        self.processes += 1;
        format!("{}/{}", self.path, self.processes)
    }
}

/// What kind of memory a `mmap` call asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapCall<'a> {
    /// Bytes asked for.
    pub length: u64,
    /// `PROT_*`.
    pub protection: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// Base name of the file, `None` for anonymous memory.
    pub file: Option<&'a str>,
}

/// An object without its order number, and where its first byte is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Born {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Address of its first byte.
    pub base: u64,
}

/// The object that a successful `mmap` made at `address`, if it is one.
#[must_use]
pub fn mapped(call: &MapCall, address: u64) -> Option<Born> {
    let size = call.length.checked_next_multiple_of(PAGE)?;
    let shared = call.flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let born = |kind, name: &str, size, base| {
        Some(Born {
            kind,
            name: name.to_owned(),
            size,
            base,
        })
    };
    let Some(file) = call.file else {
        if shared {
            return born(ObjectKind::Shared, "[anon]", size, address);
        }
        let reserved = call.protection == libc::PROT_NONE && call.flags & libc::MAP_NORESERVE != 0;
        if reserved && size == 2 * ARENA_BYTES {
            let base = address.next_multiple_of(ARENA_BYTES);
            return born(ObjectKind::Mapping, "[arena]", ARENA_BYTES, base);
        }
        if reserved && size == ARENA_BYTES {
            // Unaligned: glibc unmaps it again and takes twice as much.
            return if address.is_multiple_of(ARENA_BYTES) {
                born(ObjectKind::Mapping, "[arena]", ARENA_BYTES, address)
            } else {
                None
            };
        }
        return born(ObjectKind::Mapping, "[anon]", size, address);
    };
    let kind = if shared {
        ObjectKind::Shared
    } else {
        ObjectKind::Mapping
    };
    born(kind, file, size, address)
}

/// Counts the objects of one process that agree in kind, name, creator and size.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    next: HashMap<(ObjectKind, String, Option<String>, u64), u32>,
}

impl Orders {
    /// The identity of the next object like this.
    pub fn name(&mut self, born: &Born, creator: &str) -> ObjectKey {
        let key = (
            born.kind,
            born.name.clone(),
            Some(creator.to_owned()),
            born.size,
        );
        let next = self.next.entry(key).or_default();
        let order = *next;
        *next += 1;
        ObjectKey {
            kind: born.kind,
            name: born.name.clone(),
            creator: Some(creator.to_owned()),
            size: born.size,
            order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_creator_not_the_clock() {
        let mut main = Creator::new("0");
        assert_eq!(main.next_thread(), "0.1");
        assert_eq!(main.next_process(), "0/1");
        assert_eq!(main.next_thread(), "0.2");
        let mut second = Creator::new("0.2");
        assert_eq!(second.next_thread(), "0.2.1");
        assert_eq!(Creator::new("0/1").next_thread(), "0/1.1");
    }

    #[test]
    fn arenas_are_one_object_however_glibc_came_by_them() {
        let call = |length| MapCall {
            length,
            protection: libc::PROT_NONE,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            file: None,
        };
        let aligned = mapped(&call(64 << 20), 0x7f00_0000_0000).unwrap();
        assert_eq!(
            (aligned.name.as_str(), aligned.base),
            ("[arena]", 0x7f00_0000_0000)
        );
        assert_eq!(mapped(&call(64 << 20), 0x7f00_0000_1000), None);
        let trimmed = mapped(&call(128 << 20), 0x7f00_0000_1000).unwrap();
        assert_eq!((trimmed.size, trimmed.base), (64 << 20, 0x7f00_0400_0000));
    }

    #[test]
    fn order_counts_objects_that_agree_in_all_else() {
        let mut orders = Orders::default();
        let call = MapCall {
            length: 5000,
            protection: libc::PROT_READ | libc::PROT_WRITE,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            file: None,
        };
        let born = mapped(&call, 0x1000).unwrap();
        assert_eq!(born.size, 8192);
        assert_eq!(orders.name(&born, "0").order, 0);
        assert_eq!(orders.name(&born, "0.1").order, 0);
        assert_eq!(orders.name(&born, "0").order, 1);
        let shared = MapCall {
            flags: libc::MAP_SHARED,
            file: Some("grid"),
            ..call
        };
        let born = mapped(&shared, 0x1000).unwrap();
        assert_eq!(
            (born.kind, born.name.as_str()),
            (ObjectKind::Shared, "grid")
        );
    }
}
