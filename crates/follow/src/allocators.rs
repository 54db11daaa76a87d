//! Finds the functions that allocate memory for the program, by the symbols of its files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numaloc_trace::identity::object::base_name;

use crate::address_map::AddressMap;
use crate::symbols;

/// A function that allocates: where its arguments have the size, and where the result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocator {
    /// `malloc`, `valloc`: the size is the first argument.
    Malloc,
    /// `calloc`: the product of both arguments.
    Calloc,
    /// `realloc`, `aligned_alloc`, `memalign`: the second argument.
    Second,
    /// `posix_memalign`: the third argument; the result is where the first one points to.
    PosixMemalign,
}

impl Allocator {
    fn of_symbol(name: &str) -> Option<Self> {
        // jemalloc, mimalloc and tcmalloc have these names too, for programs that call them by their own.
        let prefixed = ["je_", "mi_", "tc_"].iter();
        let own = prefixed
            .filter_map(|prefix| name.strip_prefix(prefix))
            .next();
        match own.unwrap_or(name) {
            "malloc" | "valloc" => Some(Self::Malloc),
            "calloc" => Some(Self::Calloc),
            "realloc" | "aligned_alloc" | "memalign" => Some(Self::Second),
            "posix_memalign" => Some(Self::PosixMemalign),
            _ => None,
        }
    }

    /// The size that is requested with these arguments.
    ///
    /// Without a jump table: the frontend's light functions have none.
    #[inline(always)]
    #[must_use]
    pub fn size(self, arguments: [u64; 3]) -> u64 {
        let position = match self {
            Self::Malloc => 0,
            Self::Calloc | Self::Second => 1,
            Self::PosixMemalign => 2,
        };
        let factor = match self {
            Self::Calloc => arguments[0],
            _ => 1,
        };
        arguments[position].saturating_mul(factor)
    }
}

/// Whether this frontend records allocations.
static RECORDED: AtomicBool = AtomicBool::new(false);
/// What the files seen so far contain.
#[derive(Default)]
struct Known {
    /// The files, by the address of their first byte.
    files: HashMap<u64, String>,
    /// The allocators, by the address of their first instruction.
    functions: AddressMap<Allocator>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files that are mapped from now on are searched for allocators: their symbols are read, which takes time.
pub fn record() {
    RECORDED.store(true, Relaxed);
}

/// Notes that `file` was mapped with its first byte at `start`.
pub(crate) fn mapped(file: &str, start: u64) {
    let name = base_name(file);
    // The loader has an allocator of its own, for itself.
    if !RECORDED.load(Relaxed) || symbols::is_frontend(name) || name.starts_with("ld-linux") {
        return;
    }
    let mut known = known();
    let known = known.get_or_insert_default();
    let before = known.files.insert(start, file.to_owned());
    if before.is_some_and(|before| before == file) {
        return;
    }
    let found = symbols::in_file(file, |image, first| {
        symbols::functions(image, first, Allocator::of_symbol)
    });
    for (offset, allocator) in found {
        known
            .functions
            .insert(start.wrapping_add(offset), allocator);
    }
}

/// Keeps the known files as they are until the result is dropped.
pub(crate) fn hold() -> impl Sized {
    known()
}

/// The allocator whose first instruction is at `address`.
pub fn at(address: u64) -> Option<Allocator> {
    known().as_ref()?.functions.get(&address).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_where_the_functions_have_them() {
        let arguments = [24, 100, 7];
        let sizes = |name| Allocator::of_symbol(name).map(|found| found.size(arguments));
        assert_eq!(sizes("malloc"), Some(24));
        assert_eq!(sizes("calloc"), Some(2400));
        assert_eq!(sizes("realloc"), Some(100));
        assert_eq!(sizes("posix_memalign"), Some(7));
        assert_eq!(sizes("je_malloc"), Some(24));
        assert_eq!(sizes("mi_calloc"), Some(2400));
        assert_eq!(sizes("tc_posix_memalign"), Some(7));
        for other in [
            "free",
            "je_free",
            "je_mallocx",
            "my_malloc",
            "mi_malloc_aligned",
        ] {
            assert_eq!(sizes(other), None, "{other}");
        }
    }
}
