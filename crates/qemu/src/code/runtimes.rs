//! Which code runs threads for a program, or hands it memory.
//!
//! What the code that runs threads reads and writes (team and task descriptors, barrier counters, the words of a mutex) is the
//! run-time system talking to itself: it counts for pages, but is no communication of the program and takes none of its time. The
//! loader is one of them: the first thread to call a function binds it for all, and which thread that is, the host decides.
//!
//! So it decides who comes first at the locks of the C library's allocator, which say nothing of the program's order: they hand no
//! time on, or a thread that the host runs last would let all that allocate after it begin as late as itself.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

use numaloc_trace::identity::object::base_name;
use numaloc_trace::thread::{Values, follow_values, set_loader_range};
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
const WAITING: &[&str] = &[
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

/// The names (after underscores) of the functions that allocate memory, which lie side by side; their helpers lie around them.
const ALLOCATING: &[&str] = &[
    "default_morecore",
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
];

/// Whose code it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The program's, or any library's.
    Program,
    /// A threading run-time library's.
    Runtime,
    /// The C library's allocator's.
    Allocator,
}

/// Where functions begin and end, from their library's first byte in memory, and whose they are.
type Functions = Vec<(u64, u64, Owner)>;

/// The functions of the C libraries seen so far that are not the program's, by file.
static C_LIBRARIES: Mutex<Option<HashMap<String, Functions>>> = Mutex::new(None);

/// Reads a C library; of one that cannot be read, nothing.
fn functions_of(file: &str) -> Functions {
    let bytes = std::fs::read(file).unwrap_or_default();
    let Ok(library) = object::File::parse(&*bytes) else {
        return Vec::new();
    };
    let first = library.segments().map(|segment| segment.address()).min();
    let first = first.unwrap_or(0) & !4095;
    let functions = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text);
    let mut functions: Vec<(u64, u64, Owner)> = functions
        .map(|symbol| {
            let start = symbol.address().saturating_sub(first);
            let owner = owner_of(symbol.name().unwrap_or("").trim_start_matches('_'));
            (start, start.saturating_add(symbol.size()), owner)
        })
        .collect();
    functions.sort_unstable_by_key(|&(start, ..)| start);
    // Of several names of a function, the one that says most.
    functions.dedup_by(|name, kept| {
        let same = name.0 == kept.0;
        if same && kept.2 == Owner::Program {
            kept.2 = name.2;
        }
        same
    });
    let mut owned = Vec::new();
    for around in functions.windows(3) {
        let &[(_, before_ends, before), (start, _, owner), (next, ..)] = around else {
            continue;
        };
        // The allocator's first helpers come before the first function of it that is exported.
        let start = match (before, owner) {
            (Owner::Program, Owner::Allocator) => before_ends.min(start),
            _ => start,
        };
        if owner != Owner::Program {
            owned.push((start, next, owner));
        }
    }
    owned
}

/// Whose function of the C library it is that is exported by that name.
fn owner_of(name: &str) -> Owner {
    if WAITING.iter().any(|begin| name.starts_with(begin)) {
        Owner::Runtime
    } else if ALLOCATING.contains(&name.trim_start_matches("libc_")) {
        Owner::Allocator
    } else {
        Owner::Program
    }
}

/// Executable ranges seen so far and whose they are.
static RANGES: Mutex<Vec<(u64, u64, Owner)>> = Mutex::new(Vec::new());

/// Whose the code at `address` is.
pub fn owner(address: u64) -> Owner {
    let mut ranges = RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let find = |ranges: &[(u64, u64, Owner)]| {
        ranges
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&address))
            .map(|range| range.2)
    };
    if let Some(owner) = find(&ranges) {
        return owner;
    }
    *ranges = look(address);
    match find(&ranges) {
        Some(owner) => owner,
        None => {
            // Generated code: remember its page, so that the next block there costs no look at the mappings.
            ranges.push((address & !4095, (address | 4095) + 1, Owner::Program));
            Owner::Program
        }
    }
}

/// Tells of the loader that lies at `loader`, if the code at `address` belongs to it.
fn note_loader(loader: &Range<u64>, address: u64) {
    if loader.contains(&address) {
        set_loader_range(loader.start, loader.end);
    }
}

/// Looks at what is mapped, because of the code at `address`.
fn look(address: u64) -> Vec<(u64, u64, Owner)> {
    // Guest code need not be executable in the host, so take every file mapping.
    let mut found = Vec::new();
    let mut libraries = C_LIBRARIES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut before = String::new();
    let mut loader = 0..0;
    let (mut libgomp, mut libomp) = (false, false);
    for mapped in guest::mappings() {
        let name = base_name(&mapped.file);
        if mapped.file.starts_with('/') && mapped.file != before {
            super::sharing::mapped(&mapped.file, mapped.start);
        }
        if name.starts_with(C_LIBRARY) && mapped.file != before {
            let known = libraries.get_or_insert_default();
            let functions = known
                .entry(mapped.file.clone())
                .or_insert_with(|| functions_of(&mapped.file));
            let at = |offset: u64| mapped.start.saturating_add(offset);
            found.extend(
                functions
                    .iter()
                    .map(|&(start, end, owner)| (at(start), at(end), owner)),
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
            let owner = match RUNTIMES.iter().any(|runtime| name.starts_with(runtime)) {
                true => Owner::Runtime,
                false => Owner::Program,
            };
            found.push((mapped.start, mapped.end, owner));
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
