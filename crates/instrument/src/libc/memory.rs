//! The C library's functions for memory: executed, and recorded as mappings, arenas and allocation sites.
//!
//! The kernel's view is reconstructed from inside the process: the program's own `mmap` calls, and glibc's flags in
//! front of each block (mapped on its own, or in a thread's arena). [`super::objects`] records what no call shows.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use numaloc_trace::cross_process::Backing;
use numaloc_trace::identity::object;
use numaloc_trace::{Engine, Record, locked, pages};

use super::objects::map;
use crate::{current, heap, sites};

const PAGE: u64 = 4096;
/// Size and alignment in bytes of the reservations for glibc's arenas.
const ARENA: u64 = 64 << 20;
/// Flags in a block's size word: mapped on its own; not in the main heap.
const IS_MMAPPED: u64 = 2;
const NON_MAIN_ARENA: u64 = 4;

/// Hash table of the arenas recorded so far, with open addressing; glibc has 8 for each core.
static ARENAS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// Adds `arena` to the table; returns whether it is new.
fn is_new(arena: u64) -> bool {
    let start = (arena / ARENA) as usize;
    for at in 0..ARENAS.len() {
        match ARENAS[(start + at) % ARENAS.len()].compare_exchange(0, arena, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(known) if known == arena => return false,
            Err(_) => {}
        }
    }
    false
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
}

/// Start and length of a block's own mapping, if the C library has mapped it on its own.
///
/// # Safety
/// `block` was returned by the C library's allocator and not freed.
unsafe fn own_mapping(block: *mut c_void) -> Option<(u64, u64)> {
    // SAFETY: glibc keeps the block's size word directly in front of it, and for a block mapped on its own the
    // distance to the mapping's start in front of that.
    let (gap, size) = unsafe {
        let words = block.cast::<u64>();
        (*words.sub(2), *words.sub(1))
    };
    (size & IS_MMAPPED != 0).then(|| {
        let chunk = block as u64 - 16;
        (chunk - gap, (size & !7) + gap)
    })
}

/// Records a new block of `asked` bytes: its mapping or arena, and its allocation site.
fn record_block(block: *mut c_void, asked: usize) -> *mut c_void {
    if !block.is_null() {
        current::ours(|_| {
            in_mapping(block);
            sites::note(block as u64, asked as u64);
        });
    }
    block
}

/// Records the mapping or arena of a new block.
fn in_mapping(block: *mut c_void) {
    // SAFETY: the block has just been allocated by glibc.
    let size = unsafe { *block.cast::<u64>().sub(1) };
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: as above.
    if let Some((start, length)) = unsafe { own_mapping(block) } {
        map(start, length, 3, anonymous, String::new(), 0);
    } else if size & NON_MAIN_ARENA != 0 {
        let arena = block as u64 / ARENA * ARENA;
        // Only if it can be recorded now: the first block may be the tracer's own.
        current::with(|tracer| {
            if let Some(engine) = current::engine().filter(|_| is_new(arena)) {
                tracer.record(&Record::Map {
                    sequence: engine.sequence(),
                    thread: tracer.number(),
                    address: arena,
                    length: ARENA,
                    protection: 0,
                    flags: (anonymous | libc::MAP_NORESERVE) as u64,
                    file: String::new(),
                    offset: 0,
                    moved_from: 0,
                });
            }
        });
    } else if let Some(engine) = current::engine() {
        // The main heap may have grown; the break is recorded only when it has moved.
        static BREAK: AtomicU64 = AtomicU64::new(0);
        let end = block as u64 + (size & !7);
        if BREAK.fetch_max(end, Relaxed) < end {
            // SAFETY: sbrk(0) only asks.
            let here = unsafe { libc::sbrk(0) } as u64;
            BREAK.fetch_max(here, Relaxed);
            current::with(|tracer| {
                let record = Record::Break {
                    sequence: engine.sequence(),
                    address: here,
                };
                tracer.record(&record);
            });
        }
    }
}

/// Clears the state of memory that was unmapped or replaced.
fn forget(engine: &Engine, address: u64, length: u64) {
    let mut handled = false;
    current::with(|tracer| {
        tracer.forget(address, length);
        handled = true;
    });
    if !handled {
        engine.forget(address, length);
    }
}

/// Clears the state of a block with its own mapping that is about to be freed.
///
/// # Safety
/// As for `free`.
unsafe fn record_free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    current::ours(|engine| {
        // SAFETY: guaranteed by the caller.
        if let Some((start, length)) = unsafe { own_mapping(block) } {
            forget(engine, start / PAGE * PAGE, length);
        }
    });
}

/// Allocates.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if let Some(block) = for_recorder(size) {
        return block;
    }
    // SAFETY: guaranteed by the caller.
    record_block(unsafe { __libc_malloc(size) }, size)
}

/// A block for the C library if it works on the recorder's behalf; `None` if it works for the program.
fn for_recorder(size: usize) -> Option<*mut c_void> {
    let block = current::is_in_ours().then(|| heap::allocate(size))?;
    (!block.is_null()).then_some(block)
}

/// Allocates zeroed memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if let Some(bytes) = count.checked_mul(size)
        && let Some(block) = for_recorder(bytes)
    {
        // SAFETY: the block has this size and is not used yet.
        unsafe { block.write_bytes(0, bytes) };
        return block;
    }
    // SAFETY: guaranteed by the caller.
    record_block(
        unsafe { __libc_calloc(count, size) },
        count.wrapping_mul(size),
    )
}

/// Changes a block's size.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if heap::has(block) {
        // SAFETY: guaranteed by the caller.
        return unsafe { heap::reallocate(block, size) };
    }
    if block.is_null()
        && let Some(block) = for_recorder(size)
    {
        return block;
    }
    // SAFETY: guaranteed by the caller.
    let new = unsafe { __libc_realloc(block, size) };
    if new == block {
        if !new.is_null() {
            current::ours(|_| sites::note(new as u64, size as u64));
        }
        return new;
    }
    record_block(new, size)
}

/// Frees.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if heap::has(block) {
        // SAFETY: guaranteed by the caller.
        return unsafe { heap::free(block) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        record_free(block);
        __libc_free(block);
    }
}

/// Allocates aligned memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    record_block(unsafe { __libc_memalign(alignment, size) }, size)
}

/// Allocates aligned memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    record_block(unsafe { __libc_memalign(alignment, size) }, size)
}

/// Allocates aligned memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller; errno is the program's and stays unchanged.
    unsafe {
        let errno = *libc::__errno_location();
        let block = record_block(__libc_memalign(alignment, size), size);
        *libc::__errno_location() = errno;
        if block.is_null() {
            return libc::ENOMEM;
        }
        *result = block;
    }
    0
}

/// Maps memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the system call itself, with the caller's arguments.
    let found = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            file,
            offset,
        )
    };
    if found != -1 {
        current::ours(|engine| {
            let start = found as u64;
            forget(engine, start, length as u64);
            let name = if flags & libc::MAP_ANONYMOUS != 0 {
                String::new()
            } else {
                std::fs::read_link(format!("/proc/self/fd/{file}")).map_or_else(
                    |_| "?".to_owned(),
                    |path| path.to_string_lossy().into_owned(),
                )
            };
            map(start, length as u64, protection, flags, name, offset as u64);
            sites::note(start, length as u64);
            if flags & libc::MAP_SHARED != 0 {
                let (backing, offset) = if flags & libc::MAP_ANONYMOUS != 0 {
                    (Backing::of_address(start), 0)
                } else {
                    (Backing::of_file(file, start), offset as u64)
                };
                // Changes of the protection are not seen.
                engine.shared(backing, start, length as u64, offset, true);
            }
        });
    }
    found as *mut c_void
}

/// Maps memory; the same function under its other name.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { mmap(address, length, protection, flags, file, offset) }
}

/// Changes the size of a mapping, and its address if necessary.
///
/// # Safety
/// As the C library's, which takes the last argument only with `MREMAP_FIXED`; a caller that omits it passes whatever
/// its register holds, which the system then ignores.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    length: usize,
    flags: c_int,
    place: *mut c_void,
) -> *mut c_void {
    let mut shared = None;
    current::ours(|engine| shared = engine.shared_at(old as u64));
    // SAFETY: the system call itself, with the caller's arguments.
    let found = unsafe { libc::syscall(libc::SYS_mremap, old, old_length, length, flags, place) };
    if found != -1 {
        current::ours(|engine| {
            if found as u64 != old as u64 {
                forget(engine, old as u64, old_length as u64);
            }
            current::with(|tracer| {
                let record = Record::Map {
                    sequence: engine.sequence(),
                    thread: tracer.number(),
                    address: found as u64,
                    length: length as u64,
                    protection: 3,
                    flags: (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
                    file: String::new(),
                    offset: 0,
                    moved_from: old as u64,
                };
                tracer.record(&record);
            });
            if let Some((object, offset)) = shared {
                engine.map_shared(object, found as u64, length as u64, offset);
            }
        });
    }
    found as *mut c_void
}

/// Unmaps memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let (start, bytes) = (address as u64, length as u64);
    let mut sequence = None;
    if pages::are_unmapped(start, bytes) {
        current::ours(|engine| {
            forget(engine, start, bytes);
            sequence = Some(engine.sequence());
        });
    }
    // SAFETY: the system call itself, with the caller's arguments.
    let status = unsafe { libc::syscall(libc::SYS_munmap, address, length) } as c_int;
    if let Some(sequence) = sequence.filter(|_| status == 0) {
        current::ours(|engine| {
            engine.write(&Record::Unmap {
                sequence,
                address: start,
                length: bytes,
            });
        });
    }
    status
}

fn status(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the thread's own word.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

/// Locks all memory: the program's.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    let mut result = None;
    current::ours(|_| result = Some(locked::lock_all(flags)));
    // SAFETY: the system call itself, with the caller's arguments, where nothing is recorded.
    result.map_or_else(
        || unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int },
        status,
    )
}

/// Unlocks all memory.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    status(locked::unlock_all())
}

/// Attaches a System V segment.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(
    segment: c_int,
    address: *const c_void,
    flags: c_int,
) -> *mut c_void {
    // SAFETY: the system call itself, with the caller's arguments.
    let found = unsafe { libc::syscall(libc::SYS_shmat, segment, address, flags) };
    if found != -1 {
        current::ours(|engine| {
            let start = found as u64;
            // SAFETY: the call fills the structure it is given.
            let size = unsafe {
                let mut about: libc::shmid_ds = std::mem::zeroed();
                libc::shmctl(segment, libc::IPC_STAT, &raw mut about);
                about.shm_segsz as u64
            }
            .next_multiple_of(PAGE);
            forget(engine, start, size);
            map(
                start,
                size,
                3,
                libc::MAP_SHARED,
                object::SYSTEM_V.to_owned(),
                0,
            );
            engine.shared(Backing::of_address(start), start, size, 0, true);
        });
    }
    found as *mut c_void
}

/// Detaches a System V segment.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(address: *const c_void) -> c_int {
    // SAFETY: the system call itself, with the caller's arguments.
    let status = unsafe { libc::syscall(libc::SYS_shmdt, address) } as c_int;
    if status == 0 {
        current::ours(|engine| {
            engine.detached(address as u64);
        });
    }
    status
}
