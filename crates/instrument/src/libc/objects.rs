//! Memory objects with the same identities as in the other frontends (`docs/identity.md`): mappings, and what exists
//! without a call of the program's: files in `/proc/self/maps`, the heap, thread-local variables, and thread stacks as
//! seen by the thread itself.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use numaloc_trace::identity::object;
use numaloc_trace::maps::{self, MapsLine};
use numaloc_trace::{Engine, Record};

use crate::current;
use crate::lock::Lock;

const PAGE: u64 = 4096;
/// Bytes stored at the beginning and at the end of a thread's descriptor, approximately.
const SOME: u64 = 64;

/// Files recorded so far: name, first and last address.
static IMAGES: Lock<Vec<(String, u64, u64)>> = Lock::new(Vec::new());
/// Offsets of thread-local variables, from [`find_thread_locals`].
static THREAD_LOCALS: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

/// Records a mapping.
pub(super) fn map(
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    file: String,
    offset: u64,
) {
    let Some(engine) = current::engine() else {
        return;
    };
    current::with(|tracer| {
        let record = Record::Map {
            sequence: engine.sequence(),
            thread: tracer.number(),
            address,
            length,
            protection: protection as u64,
            flags: flags as u64,
            file,
            offset,
            moved_from: 0,
        };
        tracer.record(&record);
    });
}

/// The lines of `/proc/self/maps`: start, end, executable, file.
fn parsed(maps: &str) -> Vec<(u64, u64, bool, &str)> {
    maps.lines()
        .filter_map(|line| {
            let found = MapsLine::parse(line)?;
            Some((found.start, found.end, found.is_executable(), found.name))
        })
        .collect()
}

/// Records the mapped files with code that were not recorded yet.
fn describe_files(engine: &Engine, parsed: &[(u64, u64, bool, &str)]) {
    IMAGES.with(|recorded| {
        for (_, _, executable, file) in parsed {
            if *executable
                && file.starts_with('/')
                && !recorded.iter().any(|(name, ..)| name == file)
            {
                let parts = parsed.iter().filter(|(_, _, _, other)| other == file);
                let start = parts.clone().map(|(start, ..)| *start).min().unwrap_or(0);
                let end = parts.map(|(_, end, ..)| *end).max().unwrap_or(0);
                recorded.push(((*file).to_owned(), start, end));
                engine.write(&Record::Image {
                    file: (*file).to_owned(),
                    start,
                    end,
                });
            }
        }
    });
}

/// In a forked child, which inherits the recorded files: forgets them if another thread was adding one.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn renew_files() {
    // SAFETY: as the caller guarantees.
    unsafe { IMAGES.renew(Vec::new) };
}

/// Records the file that contains a thread's start routine, if it was loaded after the start: the loader's own
/// mappings are not observed.
pub(crate) fn describe_file_of(routine: u64) {
    current::ours(|engine| {
        let known = IMAGES.with(|recorded| {
            let holds = |(_, start, end): &(_, u64, u64)| (*start..*end).contains(&routine);
            recorded.iter().any(holds)
        });
        if known == Some(false) {
            let maps = maps::text(std::fs::read("/proc/self/maps").unwrap_or_default());
            describe_files(engine, &parsed(&maps));
        }
    });
}

/// Records what exists before the program's first instruction: its files, its heap, its stack.
pub(crate) fn describe_process() {
    current::ours(describe_to);
}

fn describe_to(engine: &Engine) {
    let maps = maps::text(std::fs::read("/proc/self/maps").unwrap_or_default());
    let parsed = parsed(&maps);
    describe_files(engine, &parsed);
    let heap = parsed.iter().find(|(_, _, _, file)| *file == object::HEAP);
    // SAFETY: sbrk(0) changes nothing.
    let here = unsafe { libc::sbrk(0) } as u64;
    let first = heap.map_or(here, |(start, ..)| *start);
    for address in [first, here] {
        engine.write(&Record::Break {
            sequence: engine.sequence(),
            address,
        });
    }
    if let Some((start, end, ..)) = parsed.iter().find(|(_, _, _, file)| *file == object::STACK) {
        map(
            *start,
            end - start,
            3,
            libc::MAP_PRIVATE,
            object::STACK.to_owned(),
            0,
        );
        let from = start_of_stack().filter(|from| (*start..*end).contains(from));
        if let Some(from) = from {
            current::with(|tracer| tracer.stored_by_kernel(from, end - from));
        }
    }
    describe_thread_locals(&parsed);
}

/// The address to which the stack pointer pointed at the program's start; above it lies what `execve` has stored:
/// arguments, environment, auxiliary vector.
fn start_of_stack() -> Option<u64> {
    /// `startstack` of `/proc/self/stat`, counted from the state, which follows the name in parentheses.
    const FIELD: usize = 25;
    let status = std::fs::read("/proc/self/stat").ok()?;
    let end_of_name = status.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(&status[end_of_name + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(FIELD)?.parse().ok()
}

/// Records the mapping in which the loader keeps the first thread's variables; the program did not map it.
fn describe_thread_locals(parsed: &[(u64, u64, bool, &str)]) {
    let descriptor = descriptor();
    THREAD_LOCALS.get_or_init(find_thread_locals);
    let mapping = parsed
        .iter()
        .find(|(start, end, _, file)| file.is_empty() && (*start..*end).contains(&descriptor));
    let Some((start, end, ..)) = mapping else {
        return;
    };
    let locals = thread_locals(descriptor).map(|(from, _)| from);
    // The kernel may have merged the mapping with a file's below it.
    let first = locals
        .filter(|from| start <= from && *from <= descriptor)
        .min();
    let first = first.unwrap_or(descriptor) / PAGE * PAGE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    map(first, end - first, 3, anonymous, String::new(), 0);
}

/// Records the calling thread's stack, and what its `creator` (by number) has stored there; called once by each new
/// thread.
pub(crate) fn describe_stack(creator: u32) {
    current::ours(|engine| describe_stack_to(engine, creator));
}

fn describe_stack_to(engine: &Engine, creator: u32) {
    let (mut address, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the attributes are initialised by the first call and destroyed by the last.
    let found = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0 {
            libc::pthread_attr_getstack(&raw const attributes, &raw mut address, &raw mut size);
            libc::pthread_attr_getguardsize(&raw const attributes, &raw mut guard);
            libc::pthread_attr_destroy(&raw mut attributes);
            true
        } else {
            false
        }
    };
    if !found {
        return;
    }
    // The mapping includes the guard below the stack.
    let (start, length) = (address as u64 - guard as u64, (size + guard) as u64);
    map(
        start,
        length,
        3,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
        String::new(),
        0,
    );
    current::with(|tracer| {
        let record = Record::Stack {
            sequence: engine.sequence(),
            path: tracer.path().to_owned(),
            pointer: start + length - 64,
        };
        tracer.record(&record);
        tracer.prepared(creator, &prepared(start, start + length));
    });
}

/// Address ranges that the C library's `pthread_create` has stored to in the calling thread's stack, from `start` to
/// `end`: its thread-local variables, initialised or cleared, and its descriptor, both at the stack's end.
fn prepared(start: u64, end: u64) -> Vec<(u64, u64)> {
    let descriptor = descriptor();
    let mut found: Vec<(u64, u64)> = thread_locals(descriptor).collect();
    found.retain(|&(from, to)| start <= from && to <= end);
    // Fields at the beginning and the end of the descriptor.
    found.extend([(descriptor, descriptor + SOME), (end - SOME, end)]);
    found
}

/// Address of the calling thread's descriptor.
fn descriptor() -> u64 {
    // SAFETY: pthread_self cannot fail.
    unsafe { libc::pthread_self() }
}

/// Start and end of the thread-local variables of each file loaded at the program's start, for the thread with this
/// `descriptor`. Those of libraries loaded later are in the heap, unless they fit into the C library's reserve.
fn thread_locals(descriptor: u64) -> impl Iterator<Item = (u64, u64)> {
    let below = THREAD_LOCALS.get().map_or(&[][..], Vec::as_slice);
    below
        .iter()
        .map(move |(from, to)| (descriptor - from, descriptor - to))
}

/// Distances from the start and the end of each file's thread-local variables to the descriptor, in the calling
/// thread.
///
/// Called once, by the first thread: the loader lists its files under a lock, which a child of `fork` could find
/// locked for ever.
fn find_thread_locals() -> Vec<(u64, u64)> {
    unsafe extern "C" fn add(
        module: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the argument of `dl_iterate_phdr` below, and a module that it describes.
        let (found, module) = unsafe { (&mut *found.cast::<Vec<(u64, u64)>>(), &*module) };
        let at = module.dlpi_tls_data as u64;
        for header in 0..usize::from(module.dlpi_phnum) {
            // SAFETY: the index is below the number of headers.
            let header = unsafe { &*module.dlpi_phdr.add(header) };
            if at != 0 && header.p_type == libc::PT_TLS {
                found.push((at, at + header.p_memsz));
            }
        }
        0
    }
    let mut found: Vec<(u64, u64)> = Vec::new();
    // SAFETY: the callback gets the vector.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    let descriptor = descriptor();
    // Variables of the initial files are below the descriptor; others are not needed.
    found.retain(|&(_, to)| to <= descriptor);
    let below = |(from, to): (u64, u64)| (descriptor - from, descriptor - to);
    found.into_iter().map(below).collect()
}
