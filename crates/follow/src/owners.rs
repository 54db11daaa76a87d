//! Classifies code: which of it runs threads for a program, or allocates memory for it.
//!
//! Accesses of code that runs threads (team and task descriptors, barrier counters, the words of a mutex) are internal
//! to the run-time system: they count for pages, but are not communication of the program and take none of its time.
//! The loader is included: the first thread to call a function binds it for all, and the host decides which thread is
//! first.
//!
//! The host also decides which thread is first at the locks of the C library's allocator, which imply no order in the
//! program. They pass no clocks on; otherwise a thread that the host runs last would delay all threads that allocate
//! after it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numaloc_trace::identity::object::base_name;
use numaloc_trace::identity::routine;
use numaloc_trace::thread::{Values, follow_values, set_loader_range};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::memory;

const LOADER: &str = "ld-linux";

/// Base names of libraries that only run threads. `libomp-` is LLVM's with its version, `libnumaloc_deal` deals the
/// iterations of their loops.
const RUNTIMES: [&str; 9] = [
    "libnumaloc_deal.",
    "libgomp.",
    "libomp.",
    "libomp-",
    "libomp5.",
    "libiomp5.",
    "libtbb.",
    "libpthread",
    LOADER,
];

/// The C library, which contains the functions of POSIX threads (glibc 2.34 and later).
const C_LIBRARY: &str = "libc.so.";

/// Prefixes (after underscores) of the functions with which threads wait for each other. Code between one of them and
/// the next exported function belongs to their helpers.
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

/// Names (after underscores) of the functions that allocate memory. They are adjacent, with their helpers around them.
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

/// The owner of a piece of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The program, or any other library.
    Program,
    /// A threading run-time library.
    Runtime,
    /// The C library's allocator.
    Allocator,
}

/// Start, end and owner of functions, relative to their library's first byte in memory.
type Functions = Vec<(u64, u64, Owner)>;

/// The functions in C libraries that do not belong to the program, by file.
static C_LIBRARIES: Mutex<Option<HashMap<String, Functions>>> = Mutex::new(None);

/// The functions of a C library that do not belong to the program; empty if it cannot be read.
fn functions_of(file: &str) -> Functions {
    let Some(content) = memory::Content::of(file) else {
        return Vec::new();
    };
    let Ok(library) = object::File::parse(&*content) else {
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
    // Of several names of one function, keep one that determines an owner.
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
        // The allocator's first helpers come before its first exported function.
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

/// The owner of the C library's function with this exported name.
fn owner_of(name: &str) -> Owner {
    if WAITING.iter().any(|begin| name.starts_with(begin)) {
        Owner::Runtime
    } else if ALLOCATING.contains(&name.trim_start_matches("libc_")) {
        Owner::Allocator
    } else {
        Owner::Program
    }
}

/// Start, end and owner of code in memory.
type Ranged = Vec<(u64, u64, Owner)>;

/// What is known of executable addresses.
#[derive(Default)]
struct Ranges {
    /// Ranges of files and their owners; the first that contains an address counts.
    files: Ranged,
    /// Those of the C++ library.
    starters: Vec<(u64, u64)>,
    /// Other mappings with code: generated by the program. They count after those of files.
    generated: Vec<(u64, u64)>,
    /// By their start, ranges that were looked up: within each, the same one of the others counts everywhere. Every
    /// block of translated code is looked up.
    found: BTreeMap<u64, (u64, Owner)>,
}

impl Ranges {
    const fn new() -> Self {
        Self {
            files: Vec::new(),
            starters: Vec::new(),
            generated: Vec::new(),
            found: BTreeMap::new(),
        }
    }

    /// The owner of an address, if it is known.
    fn owner(&mut self, address: u64) -> Option<Owner> {
        if let Some((_, &(end, owner))) = self.found.range(..=address).next_back()
            && address < end
        {
            return Some(owner);
        }
        let mut within = 0..u64::MAX;
        let mut owner = None;
        let generated = self.generated.iter();
        let generated = generated.map(|&(start, end)| (start, end, Owner::Program));
        for (start, end, of_range) in self.files.iter().copied().chain(generated) {
            if (start..end).contains(&address) {
                owner = owner.or(Some(of_range));
            }
            for edge in [start, end] {
                match edge <= address {
                    true => within.start = within.start.max(edge),
                    false => within.end = within.end.min(edge),
                }
            }
        }
        let owner = owner?;
        self.found.insert(within.start, (within.end, owner));
        Some(owner)
    }

    /// Replaces the known ranges of files.
    fn set(&mut self, files: Ranged) {
        // Mostly they are the same: what is new is code that the program generated.
        if self.files != files {
            self.files = files;
            self.found.clear();
        }
    }

    /// Adds a mapping with code that the program generated.
    fn add_generated(&mut self, start: u64, end: u64) {
        // Programs that generate code may map each page of it by itself.
        const MOST: usize = 1 << 16;
        self.generated
            .retain(|known| known.0 < start || known.1 > end);
        if self.generated.len() >= MOST {
            self.generated.clear();
            self.found.clear();
        }
        self.generated.push((start, end));
    }

    /// Forgets what is known of some addresses.
    fn forget(&mut self, address: u64, length: u64) {
        let until = address.saturating_add(length);
        let overlaps = |start: u64, end: u64| start < until && address < end;
        let mut files = self.files.iter();
        if files.any(|&(start, end, _)| overlaps(start, end)) {
            self.set(Vec::new());
        }
        let before = self.generated.len();
        self.generated.retain(|&(start, end)| !overlaps(start, end));
        if self.generated.len() < before {
            self.found.clear();
        }
    }
}

static RANGES: Mutex<Ranges> = Mutex::new(Ranges::new());

fn ranges() -> MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn libraries() -> MutexGuard<'static, Option<HashMap<String, Functions>>> {
    C_LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the known ranges and libraries as they are until the result is dropped.
pub(crate) fn hold() -> impl Sized {
    // In the order in which they are taken below.
    let ranges = ranges();
    (ranges, libraries())
}

/// The owner of the code at `address`.
pub fn owner(address: u64) -> Owner {
    let mut ranges = ranges();
    if let Some(owner) = ranges.owner(address) {
        return owner;
    }
    let Read {
        files,
        starters,
        around,
    } = read_mappings(address);
    ranges.set(files);
    ranges.starters = starters;
    ranges.owner(address).unwrap_or_else(|| {
        // Generated code: its mapping is remembered, so that blocks on other pages need not read the mappings.
        let (start, end) = around.unwrap_or((address & !4095, (address & !4095) + 4096));
        ranges.add_generated(start, end);
        Owner::Program
    })
}

/// Sets the range of the program's loader to `loader` if it contains the code at `address`.
fn note_loader(loader: &Range<u64>, address: u64) {
    if loader.contains(&address) {
        set_loader_range(loader.start, loader.end);
    }
}

/// What the mappings say: ranges as in [`Ranges`], and the mapping around an address.
struct Read {
    files: Ranged,
    starters: Vec<(u64, u64)>,
    around: Option<(u64, u64)>,
}

/// Reads the mappings, because the code at `address` is not known.
fn read_mappings(address: u64) -> Read {
    // The program's code need not be executable in the process, so take every file mapping.
    let mut found = Vec::new();
    let mut starters = Vec::new();
    let mut libraries = libraries();
    let mut before = String::new();
    let mut loader = 0..0;
    let mut around = None;
    let (mut libgomp, mut libomp) = (false, false);
    for mapped in memory::mappings() {
        if (mapped.start..mapped.end).contains(&address) {
            around = Some((mapped.start, mapped.end));
        }
        let name = base_name(&mapped.file);
        if mapped.file.starts_with('/') && mapped.file != before {
            crate::sharing::mapped(&mapped.file, mapped.start);
            crate::marks::mapped(&mapped.file, mapped.start);
            crate::allocators::mapped(&mapped.file, mapped.start);
            crate::unwind::mapped(&mapped.file, mapped.start);
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
        // The frontend's own loader is mapped as well; the program's is the one with translated code. The mapping after
        // the file holds its last variables.
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
            if routine::starts_states(name) {
                starters.push((mapped.start, mapped.end));
            }
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
    Read {
        files: found,
        starters,
        around,
    }
}

/// Whether `address` is in the C++ library, among the ranges known so far: its start routine calls what a program gives
/// to `std::thread`.
pub(crate) fn starts_states(address: u64) -> bool {
    let ranges = ranges();
    let mut starters = ranges.starters.iter();
    starters.any(|&(start, end)| (start..end).contains(&address))
}

/// Whether `address` is in a mapped file, among the ranges known so far.
pub fn is_in_file(address: u64) -> bool {
    let ranges = ranges();
    let mut files = ranges.files.iter();
    files.any(|&(start, end, _)| (start..end).contains(&address))
}

/// Forgets the known ranges if what was unmapped or replaced is part of one: reading the mappings again takes long.
pub fn forget_ranges(address: u64, length: u64) {
    ranges().forget(address, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_range_that_contains_an_address_counts() {
        let all = vec![
            (10, 20, Owner::Runtime),
            (15, 25, Owner::Allocator),
            (0, 40, Owner::Program),
            (40, 50, Owner::Runtime),
        ];
        let mut ranges = Ranges::new();
        ranges.set(all.clone());
        // Twice: the second time they are found among those that were looked up.
        for address in (0..60).rev().chain(0..60) {
            let first = all.iter().find(|one| (one.0..one.1).contains(&address));
            assert_eq!(ranges.owner(address), first.map(|one| one.2), "{address}");
        }
        assert_eq!(ranges.found.len(), 6);
        ranges.set(Vec::new());
        assert_eq!(ranges.owner(12), None);
    }

    #[test]
    fn generated_code_stays_known_on_a_thousand_pages_of_their_own() {
        let mut ranges = Ranges::new();
        let files = || vec![(0, 100, Owner::Runtime)];
        let page = |at: u64| (1 << 20) + at * 8192;
        for at in 0..1000 {
            // As where an address is looked up that is not known.
            ranges.set(files());
            ranges.add_generated(page(at), page(at) + 4096);
            assert_eq!(ranges.owner(page(at)), Some(Owner::Program));
        }
        assert_eq!(ranges.found.len(), 1000, "looked up once each");
        for at in 0..1000 {
            assert_eq!(ranges.owner(page(at) + 7), Some(Owner::Program));
            assert_eq!(ranges.owner(page(at) + 4096), None);
        }
    }

    #[test]
    fn generated_code_stays_known_while_files_come_and_go() {
        let mut ranges = Ranges::new();
        ranges.set(vec![(0, 10, Owner::Runtime)]);
        ranges.add_generated(100, 200);
        ranges.add_generated(300, 310);
        assert_eq!(ranges.owner(305), Some(Owner::Program));
        ranges.set(vec![(0, 10, Owner::Runtime), (150, 160, Owner::Runtime)]);
        assert_eq!(ranges.owner(120), Some(Owner::Program));
        assert_eq!(ranges.owner(155), Some(Owner::Runtime));
        ranges.add_generated(300, 400);
        assert_eq!(ranges.generated.len(), 2);
        // Memory of generated code is given back: files stay known.
        ranges.forget(350, 10);
        assert_eq!(ranges.owner(305), None);
        assert_eq!(ranges.owner(5), Some(Owner::Runtime));
        ranges.forget(0, 1);
        assert_eq!(ranges.owner(5), None);
        assert_eq!(ranges.owner(120), Some(Owner::Program));
    }
}
