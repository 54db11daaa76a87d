//! Which code runs threads for a program.
//!
//! What that code reads and writes (team and task descriptors, barrier counters, the words of a mutex) is the run-time system
//! talking to itself: it counts for pages, but is no communication of the program and takes none of its time. The loader is
//! one of them: the first thread to call a function binds it for all, and which thread that is, the host decides.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

use numaloc_trace::thread::{Values, follow_values, loader_lies};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::guest;

const LOADER: &str = "ld-linux";

/// Base names of libraries that are nothing else. `libomp-` is LLVM's with its version.
const RUNTIMES: [&str; 8] = [
    "libgomp.",
    "libomp.",
    "libomp-",
    "libomp5.",
    "libiomp5.",
    "libtbb.",
    "libpthread",
    LOADER,
];

/// The C library, where it has the functions of POSIX threads (glibc from 2.34 on).
const C_LIBRARY: &str = "libc.so.";

/// What the names of functions begin with (after underscores) by which threads wait for each other. What lies between one of
/// them and the next function that the library exports is their helpers.
const WAITING: [&str; 10] = [
    "lll_",
    "nptl_",
    "pthread_mutex_",
    "pthread_cond_",
    "pthread_rwlock_",
    "pthread_barrier_",
    "pthread_spin_",
    "sem_",
    "mtx_",
    "cnd_",
];

/// Where functions begin and end, from their library's first byte in memory.
type Functions = Vec<(u64, u64)>;

/// The functions in [`WAITING`] of the C libraries seen so far, by file.
static C_LIBRARIES: Mutex<Option<HashMap<String, Functions>>> = Mutex::new(None);

/// Reads a C library; of one that cannot be read, nothing.
fn waiting_in(file: &str) -> Functions {
    let bytes = std::fs::read(file).unwrap_or_default();
    let Ok(library) = object::File::parse(&*bytes) else {
        return Vec::new();
    };
    let first = library.segments().map(|segment| segment.address()).min();
    let first = first.unwrap_or(0) & !4095;
    let functions = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text);
    let mut functions: Vec<(u64, bool)> = functions
        .map(|symbol| {
            let name = symbol.name().unwrap_or("").trim_start_matches('_');
            let waits = WAITING.iter().any(|begin| name.starts_with(begin));
            (symbol.address().saturating_sub(first), waits)
        })
        .collect();
    functions.sort_unstable();
    let waiting = functions.windows(2).filter(|pair| pair[0].1);
    waiting.map(|pair| (pair[0].0, pair[1].0)).collect()
}

/// Executable ranges seen so far and whether each belongs to a run-time library.
static RANGES: Mutex<Vec<(u64, u64, bool)>> = Mutex::new(Vec::new());

/// Whether the code at `address` belongs to a threading run-time library.
pub fn is_runtime(address: u64) -> bool {
    let mut ranges = RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let find = |ranges: &[(u64, u64, bool)]| {
        ranges
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&address))
            .map(|range| range.2)
    };
    if let Some(runtime) = find(&ranges) {
        return runtime;
    }
    *ranges = look(address);
    match find(&ranges) {
        Some(runtime) => runtime,
        None => {
            // Generated code: remember its page, so that the next block there costs no look at the mappings.
            ranges.push((address & !4095, (address | 4095) + 1, false));
            false
        }
    }
}

/// Tells of the loader that lies at `loader`, if the code at `address` belongs to it.
fn note_loader(loader: &Range<u64>, address: u64) {
    if loader.contains(&address) {
        loader_lies(loader.start, loader.end);
    }
}

/// Looks at what is mapped, because of the code at `address`.
fn look(address: u64) -> Vec<(u64, u64, bool)> {
    // Guest code need not be executable in the host, so take every file mapping.
    let mut found = Vec::new();
    let mut libraries = C_LIBRARIES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut before = String::new();
    let mut loader = 0..0;
    let (mut libgomp, mut libomp) = (false, false);
    for mapped in guest::mappings() {
        let name = mapped.file.rsplit('/').next().unwrap_or("");
        if name.starts_with(C_LIBRARY) && mapped.file != before {
            let known = libraries.get_or_insert_default();
            let waiting = known
                .entry(mapped.file.clone())
                .or_insert_with(|| waiting_in(&mapped.file));
            let at = |offset: u64| mapped.start.saturating_add(offset);
            found.extend(
                waiting
                    .iter()
                    .map(|&(start, end)| (at(start), at(end), true)),
            );
        }
        // QEMU's own is there too; the program's is where code of it is translated. What follows the file are its last variables.
        if name.starts_with(LOADER) && loader.end != mapped.start {
            note_loader(&loader, address);
            loader = mapped.start..mapped.end;
        } else if loader.end == mapped.start && (name.starts_with(LOADER) || mapped.file.is_empty())
        {
            loader.end = mapped.end;
        }
        if mapped.file.starts_with('/') {
            let runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
            found.push((mapped.start, mapped.end, runtime));
            libgomp |= name.starts_with("libgomp.");
            libomp |= name.starts_with("libomp") || name.starts_with("libiomp");
        }
        before = mapped.file;
    }
    note_loader(&loader, address);
    follow_values(match (libgomp, libomp) {
        (_, true) => Values::Guarded,
        (true, false) => Values::All,
        (false, false) => Values::None,
    });
    found
}

/// Whether `address` lies in a mapped file, as far as code has been seen.
pub fn is_in_file(address: u64) -> bool {
    let ranges = RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    ranges
        .iter()
        .any(|&(start, end, _)| (start..end).contains(&address))
}

/// Code was unmapped or replaced: ask again.
pub fn forget_ranges() {
    RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clear();
}
