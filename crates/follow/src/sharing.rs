//! Detects functions with which the program hands work to its threads at run time. They are detected when translated,
//! before their first execution, at no cost to running code.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numaloc_trace::WorkSharing;
use numaloc_trace::identity::object::base_name;
use object::{Object as _, ObjectSection as _};

use crate::address_map::AddressMap;
use crate::symbols;

/// Base names of run-time systems that hand out work; statically linked programs contain them.
const HANDING_OUT: [&str; 8] = [
    "libgomp.",
    "libomp.",
    "libomp-",
    "libomp5.",
    "libiomp5.",
    "libtbb.",
    "libcilkrts.",
    "libjvm.",
];

/// Functions of the files seen so far, and their addresses.
#[derive(Default)]
struct Known {
    /// Offsets of functions from the file's first byte in memory, by file.
    files: HashMap<String, Vec<(u64, String)>>,
    /// Addresses that were not translated yet.
    entries: AddressMap<String>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the known files as they are until the result is dropped.
pub(crate) fn hold() -> impl Sized {
    known()
}

/// Notes that `file` was mapped with its first byte at `start`.
pub fn mapped(file: &str, start: u64) {
    let name = base_name(file);
    let library = name.contains(".so");
    let of_interest = HANDING_OUT.iter().any(|begin| name.starts_with(begin));
    if (library && !of_interest) || symbols::is_frontend(name) {
        return;
    }
    let mut known = known();
    let known = known.get_or_insert_default();
    let Known { files, entries } = known;
    let functions = files
        .entry(file.to_owned())
        .or_insert_with(|| functions_of(file));
    for (offset, name) in functions {
        entries.insert(start.wrapping_add(*offset), name.clone());
    }
}

/// The name of the function at `address`, if it hands out work and is translated for the first time.
pub fn reached(address: u64) -> Option<String> {
    let mut known = known();
    let entries = &mut known.as_mut()?.entries;
    // Most programs have none, and every block of translated code asks.
    (!entries.is_empty()).then(|| entries.remove(&address))?
}

/// A file's functions that hand out work; empty if it cannot be read.
fn functions_of(file: &str) -> Vec<(u64, String)> {
    symbols::in_file(file, |image, first| {
        if image.symbols().next().is_none()
            && let Some(name) = run_time_system(image)
        {
            // Its functions cannot be distinguished: the program's first instruction stands for them.
            return vec![(image.entry().wrapping_sub(first), name.to_owned())];
        }
        symbols::functions(image, first, |name| {
            WorkSharing::of_symbol(name).map(|_| name.to_owned())
        })
    })
}

/// The run-time system contained in a program without symbols: Go has a section of its own, panics of Rayon name its
/// sources.
fn run_time_system<'a>(image: &impl object::Object<'a>) -> Option<&'static str> {
    let constants = image.section_by_name(".rodata");
    let constants = constants.and_then(|section| section.data().ok());
    let constants = constants.unwrap_or_default();
    let found = WorkSharing::STRIPPED
        .iter()
        .find(|(mark, _)| match mark.strip_prefix('.') {
            Some(_) => image.section_by_name(mark).is_some(),
            None => memchr::memmem::find(constants, mark.as_bytes()).is_some(),
        });
    found.map(|&(_, name)| name)
}
