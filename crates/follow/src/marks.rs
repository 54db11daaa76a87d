//! Finds the functions whose calls are marks, by the symbols of the program, its threading libraries and the C library.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numaloc_trace::identity::object::base_name;
use numaloc_trace::marks::{MarkKind, is_region_function};

use crate::address_map::AddressMap;
use crate::symbols;

/// Base names of libraries with entry points; statically linked programs contain them.
const LIBRARIES: [&str; 7] = [
    "libgomp.",
    "libomp.",
    "libomp-",
    "libomp5.",
    "libiomp5.",
    "libpthread",
    "libc.so.",
];

/// A function whose calls are marks, or part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// An entry point of a library, by its symbol.
    Entry(MarkKind, &'static str),
    /// The program's function of a parallel region.
    Region,
}

/// Functions of the files seen so far.
#[derive(Default)]
struct Known {
    files: HashSet<(String, u64)>,
    entries: AddressMap<Function>,
    /// Whether the functions of regions have names.
    names_regions: bool,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the known files as they are until the result is dropped.
pub(crate) fn hold() -> impl Sized {
    known()
}

/// Whether this frontend records marks.
static RECORDED: AtomicBool = AtomicBool::new(false);

/// Files that are mapped from now on are searched for marks: their symbols are read, which takes time.
pub fn record() {
    RECORDED.store(true, Ordering::Relaxed);
}

/// Notes that `file` was mapped with its first byte at `start`.
pub fn mapped(file: &str, start: u64) {
    if !RECORDED.load(Ordering::Relaxed) {
        return;
    }
    let name = base_name(file);
    let of_interest = LIBRARIES.iter().any(|begin| name.starts_with(begin));
    if (name.contains(".so") && !of_interest) || symbols::is_frontend(name) {
        return;
    }
    let mut known = known();
    let known = known.get_or_insert_default();
    if !known.files.insert((file.to_owned(), start)) {
        return;
    }
    for (offset, function) in functions_of(file) {
        known.names_regions |= function == Function::Region;
        known.entries.insert(start.wrapping_add(offset), function);
    }
}

/// The function at `address`, if its calls are marks.
pub fn at(address: u64) -> Option<Function> {
    known().as_ref()?.entries.get(&address).copied()
}

/// Whether a region's function is found after its entry point.
pub fn names_regions() -> bool {
    known().as_ref().is_some_and(|known| known.names_regions)
}

/// A file's functions, by offset from its first byte in memory; empty if it cannot be read.
fn functions_of(file: &str) -> Vec<(u64, Function)> {
    symbols::in_file(file, |image, first| {
        symbols::functions(image, first, |name| match MarkKind::entry_point(name) {
            Some((name, kind)) => Some(Function::Entry(kind, name)),
            None => is_region_function(name).then_some(Function::Region),
        })
    })
}
