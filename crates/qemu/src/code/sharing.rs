//! Functions by which the program hands work to its threads while it runs. One that is about to run is translated first: that
//! is when it is noticed, so that noticing costs a running program nothing.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use numaloc_trace::WorkSharing;
use numaloc_trace::identity::object::base_name;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

/// Base names of run-time systems that hand out work; programs that are linked statically have them themselves.
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

/// What is known of the files seen so far, and of the addresses where they lie.
#[derive(Default)]
struct Known {
    /// Offsets from a file's first byte in memory, by file.
    files: HashMap<String, Vec<(u64, String)>>,
    /// Addresses not reached yet.
    entries: HashMap<u64, String>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// A file's first byte lies at `start`.
pub fn mapped(file: &str, start: u64) {
    let name = base_name(file);
    let library = name.contains(".so");
    let of_interest = HANDING_OUT.iter().any(|begin| name.starts_with(begin));
    // The emulator is mapped as well.
    if (library && !of_interest) || name.starts_with("qemu-") {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let Known { files, entries } = known;
    let functions = files
        .entry(file.to_owned())
        .or_insert_with(|| functions_of(file));
    for (offset, name) in functions {
        entries.insert(start.wrapping_add(*offset), name.clone());
    }
}

/// The name of the function at `address` the first time it is about to run, if it hands out work.
pub fn reached(address: u64) -> Option<String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.as_mut()?.entries.remove(&address)
}

/// A file's functions that hand out work; of one that cannot be read, none.
fn functions_of(file: &str) -> Vec<(u64, String)> {
    let Ok(open) = File::open(file) else {
        return Vec::new();
    };
    let cache = object::ReadCache::new(open);
    let Ok(image) = object::File::parse(&cache) else {
        return Vec::new();
    };
    let first = image.segments().map(|segment| segment.address()).min();
    let first = first.unwrap_or(0) & !4095;
    if image.symbols().next().is_none()
        && let Some(name) = run_time_system(&image)
    {
        // No function of it can be told from another: the program's first instruction stands for them.
        return vec![(image.entry().wrapping_sub(first), name.to_owned())];
    }
    image
        .symbols()
        .chain(image.dynamic_symbols())
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| {
            let name = symbol.name().ok()?;
            WorkSharing::of_symbol(name)?;
            Some((symbol.address().wrapping_sub(first), name.to_owned()))
        })
        .collect()
}

/// Which run-time system a program without symbols contains: Go names a section for it, panics of Rayon name its sources.
fn run_time_system<'a>(image: &impl object::Object<'a>) -> Option<&'static str> {
    let constants = image.section_by_name(".rodata");
    let constants = constants.and_then(|section| section.data().ok());
    let constants = constants.unwrap_or_default();
    let found = WorkSharing::STRIPPED
        .iter()
        .find(|(mark, _)| match mark.strip_prefix('.') {
            Some(_) => image.section_by_name(mark).is_some(),
            None => constants
                .windows(mark.len())
                .any(|part| part == mark.as_bytes()),
        });
    found.map(|&(_, name)| name)
}
