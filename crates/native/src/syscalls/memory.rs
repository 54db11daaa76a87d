//! Mappings: tracks what the program may execute, and keeps the host's mappings non-executable.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::{all_memory, code, error, maps, personality};
use crate::cache::{ENGINE, Engine};
use crate::changes::FileId;
use crate::crossing::INTERRUPTED;
use crate::layout::{self, IMAGES};
use crate::state::State;
use crate::sys::{self, PAGE, page_down, page_up};
use crate::{invalidate, record};

const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXEC: u64 = libc::PROT_EXEC as u64;
const FIXED: u64 = (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64;

/// Address for the next library.
static NEXT: AtomicU64 = AtomicU64::new(IMAGES.start);

/// Whether the program has mapped memory that processes share; [`mprotect`] may make it writable.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Sets the lowest address for libraries.
pub fn images_from(at: u64) {
    NEXT.fetch_max(at, Relaxed);
}

/// The host's protection: code is readable data.
fn host_prot(prot: u64) -> u64 {
    if prot & EXEC == 0 {
        prot
    } else {
        prot & !EXEC | READ
    }
}

/// Makes a call that does not block, with the engine's lock held, so without checking for signals.
fn host(number: i64, a: [u64; 6]) -> i64 {
    // SAFETY: the program's own mappings; ours are in ranges it does not request.
    unsafe { sys::call(number, a) }
}

/// The pages of a mapping; `None` if the kernel will reject them.
fn pages(at: u64, len: u64) -> Option<(u64, u64)> {
    Some((at, page_up(at.checked_add(len)?)?))
}

/// Who may write memory without the addresses at which it is mapped.
struct Origin {
    /// Others may.
    shared: bool,
    /// Who opens this file for writing may.
    file: Option<FileId>,
}

impl Origin {
    /// Of a mapping with these flags, of a descriptor's file.
    fn of(flags: u64, descriptor: u64) -> Self {
        let shared = flags & libc::MAP_PRIVATE as u64 == 0;
        let anonymous = flags & libc::MAP_ANONYMOUS as u64 != 0;
        let found = (!anonymous).then(|| code::file(descriptor)).flatten();
        let Some(found) = found else {
            return Self { shared, file: None };
        };
        Self {
            // A file without a name is made to be written, by whoever has it.
            shared: shared || found.links == 0 || code::may_write(descriptor),
            file: Some(found.id),
        }
    }
}

/// Notes that the program has mapped memory.
fn note(engine: &mut Engine, start: u64, end: u64) {
    if start < end {
        engine.source.mapped.insert(start..end);
    }
}

/// Notes that the program has mapped memory with this protection.
fn mapped(engine: &mut Engine, range: Range<u64>, prot: u64, origin: &Origin) {
    let Range { start, end } = range;
    note(engine, start, end);
    engine.source.regions.remove(start, end);
    if prot & EXEC != 0 {
        engine.source.regions.insert(start, end, prot & WRITE != 0);
    }
    let file = origin.file.filter(|_| prot & EXEC != 0);
    engine.source.changes.replaced(range, origin.shared, file);
}

/// Notes that the program unmaps memory.
fn forget(engine: &mut Engine, start: u64, end: u64) {
    if start < end {
        engine.source.mapped.remove(start..end);
        engine.source.changes.forget(&(start..end));
    }
}

/// The addresses of the engine's tables, if a call puts memory there: natively, they are free.
pub fn over_tables(number: i64, a: [u64; 6]) -> Option<Range<u64>> {
    let has = |flags: u64, all: i32, flag: i32| flags & (all | flag) as u64 == flag as u64;
    let wanted = match number {
        libc::SYS_mmap if has(a[3], libc::MAP_FIXED_NOREPLACE, libc::MAP_FIXED) => {
            pages(a[0], a[1])
        }
        libc::SYS_mremap if has(a[3], 0, libc::MREMAP_FIXED) => pages(a[4], a[2]),
        libc::SYS_shmat if a[1] != 0 => segment_bytes(a[0]).and_then(|len| pages(a[1], len)),
        _ => None,
    };
    let taken = match record::is_on() {
        true => layout::TAKEN,
        false => layout::TABLES..layout::CODE.end,
    };
    let (start, end) = wanted?;
    (start < end && start < taken.end && end > taken.start).then_some(taken)
}

/// Bytes of a segment of shared memory.
fn segment_bytes(id: u64) -> Option<u64> {
    let mut found = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    let at = found.as_mut_ptr() as u64;
    let result = host(libc::SYS_shmctl, [id, libc::IPC_STAT as u64, at, 0, 0, 0]);
    // SAFETY: all zeros are a value, which the kernel has replaced.
    (result >= 0).then(|| unsafe { found.assume_init() }.shm_segsz as u64)
}

/// `mmap`: places libraries and memory for generated code within reach of the cache.
pub fn mmap(state: &State, a: [u64; 6]) -> i64 {
    let [at, len, prot, flags, fd, offset] = a;
    let (prot, flags) = (personality::given(prot), all_memory::flags(flags));
    if flags & libc::MAP_SHARED as u64 != 0 {
        SHARED.store(true, Relaxed);
        if prot & WRITE != 0 {
            invalidate::join_others(state);
        }
    }
    let prot_host = host_prot(prot);
    let origin = Origin::of(flags, fd);
    if flags & FIXED != 0 {
        let Some((start, end)) = pages(at, len) else {
            return host(libc::SYS_mmap, a);
        };
        let replaces = flags & libc::MAP_FIXED_NOREPLACE as u64 == 0;
        let mut engine = ENGINE.lock();
        if replaces {
            invalidate::dropped(&mut engine, start, end);
        }
        let result = host(libc::SYS_mmap, [at, len, prot_host, flags, fd, offset]);
        if result >= 0 {
            mapped(&mut engine, start..end, prot, &origin);
            drop(engine);
            // What was there is gone already.
            let _ = all_memory::mapped(start, end);
        }
        return result;
    }
    let private = flags & libc::MAP_SHARED as u64 == 0;
    let file = flags & libc::MAP_ANONYMOUS as u64 == 0;
    let mut result = error(libc::ENOMEM);
    if at == 0 && ((file && private) || prot & EXEC != 0) && len < 256 << 20 {
        result = low([at, len, prot_host, flags, fd, offset]);
    }
    if result < 0 {
        result = host(libc::SYS_mmap, [at, len, prot_host, flags, fd, offset]);
    }
    if result >= 0
        && let Some((start, end)) = pages(result as u64, len)
    {
        let mut engine = ENGINE.lock();
        mapped(&mut engine, start..end, prot, &origin);
        drop(engine);
        if let Err(failed) = all_memory::mapped(start, end) {
            munmap([start, end - start, 0, 0, 0, 0]);
            return failed;
        }
    }
    result
}

/// Maps at the next free addresses below 2 GiB.
fn low(a: [u64; 6]) -> i64 {
    const TRIES: usize = 64;
    let Some(len) = page_up(a[1]) else {
        return error(libc::ENOMEM);
    };
    let step = (len + 0xffff) & !0xffff;
    for _ in 0..TRIES {
        let at = NEXT.fetch_add(step, Relaxed);
        if at + len > IMAGES.end {
            // Start over: libraries may have been unmapped.
            NEXT.store(IMAGES.start, Relaxed);
            continue;
        }
        let flags = a[3] | libc::MAP_FIXED_NOREPLACE as u64;
        let result = host(libc::SYS_mmap, [at, a[1], a[2], flags, a[4], a[5]]);
        if result != error(libc::EEXIST) {
            return result;
        }
    }
    error(libc::ENOMEM)
}

/// `mprotect` and `pkey_mprotect`.
pub fn mprotect(state: &State, number: i64, a: [u64; 6]) -> i64 {
    let [at, len, prot, ..] = a;
    let prot = personality::given(prot);
    if prot & WRITE != 0 && SHARED.load(Relaxed) {
        invalidate::join_others(state);
    }
    let Some((mut start, end)) = pages(at, len) else {
        return host(number, a);
    };
    let mut changed = a;
    changed[2] = host_prot(prot);
    let grows = match prot & libc::PROT_GROWSDOWN as u64 {
        0 => None,
        _ => maps::room_below(start),
    };
    let mut engine = ENGINE.lock();
    if let Some(low) = grows {
        start = low;
        // Parts of the mapping have different protection now, and the call changes one of them.
        invalidate::rewritten(&mut engine, start, end);
    }
    invalidate::dropped(&mut engine, page_down(start), end);
    let result = host(number, changed);
    if result >= 0 {
        engine.source.changes.protected(&(start..end));
        engine.source.regions.remove(start, end);
        if prot & EXEC != 0 {
            engine.source.regions.insert(start, end, prot & WRITE != 0);
        }
    }
    result
}

/// `brk`: what is added to the heap may be executable, and what is given back may have been.
pub fn set_break(a: [u64; 6]) -> i64 {
    let Some(before) = page_up(host(libc::SYS_brk, [0; 6]) as u64) else {
        return all_memory::set_break(a);
    };
    if page_up(a[0]).is_some_and(|wanted| wanted < before) {
        // With the lock, so that what others map there is noted later. The kernel may refuse.
        let mut engine = ENGINE.lock();
        let result = host(libc::SYS_brk, a);
        if let Some(now) = page_up(result as u64).filter(|&now| now < before) {
            invalidate::dropped(&mut engine, now, before);
            engine.source.regions.remove(now, before);
        }
        return result;
    }
    let result = all_memory::set_break(a);
    let added = personality::given(READ | WRITE) & EXEC != 0 && result != INTERRUPTED;
    if let Some(now) = page_up(result as u64).filter(|now| added && before < *now) {
        ENGINE.lock().source.regions.insert(before, now, true);
    }
    result
}

/// `munmap`.
pub fn munmap(a: [u64; 6]) -> i64 {
    let Some((start, end)) = pages(a[0], a[1]) else {
        return host(libc::SYS_munmap, a);
    };
    let mut engine = ENGINE.lock();
    // Before the call: afterwards another thread may have mapped the same pages.
    if start % PAGE == 0 {
        forget(&mut engine, start, end);
    }
    if !engine.source.regions.overlap(start, end) {
        drop(engine);
        return host(libc::SYS_munmap, a);
    }
    invalidate::dropped(&mut engine, page_down(start), end);
    let result = host(libc::SYS_munmap, a);
    if result >= 0 {
        engine.source.regions.remove(start, end);
    }
    result
}

/// `mremap`: moves code to its new address.
pub fn mremap(a: [u64; 6]) -> i64 {
    let [old, old_len, new_len, flags, ..] = a;
    let Some((start, end)) = pages(old, old_len) else {
        return host(libc::SYS_mremap, a);
    };
    let mut engine = ENGINE.lock();
    let region = engine.source.regions.find(start);
    invalidate::dropped(&mut engine, start, end);
    let result = host(libc::SYS_mremap, a);
    if result >= 0 {
        let moved = result as u64;
        engine.source.regions.remove(start, end);
        if let Some((to, until)) = pages(moved, new_len) {
            engine.source.changes.moved(&(start..end), to..until);
        }
        if flags & libc::MREMAP_DONTUNMAP as u64 == 0 && start < end {
            engine.source.mapped.remove(start..end);
        }
        if let Some((start, end)) = pages(moved, new_len) {
            note(&mut engine, start, end);
            invalidate::dropped(&mut engine, start, end);
            engine.source.regions.remove(start, end);
            if let Some(region) = region {
                engine.source.regions.insert(start, end, region.writable);
            }
        }
    }
    result
}

/// `shmat`: others may write the code that it maps.
pub fn shmat(state: &State, a: [u64; 6]) -> i64 {
    invalidate::join_others(state);
    let [id, at, flags, ..] = a;
    let has = |flag: i32| flags & flag as u64 != 0;
    let mut engine = ENGINE.lock();
    if has(libc::SHM_REMAP) {
        // How much is replaced is known afterwards.
        invalidate::rewritten(&mut engine, page_down(at), u64::MAX);
    }
    let host_flags = flags & !(libc::SHM_EXEC as u64);
    let result = host(libc::SYS_shmat, [id, at, host_flags, 0, 0, 0]);
    let start = result as u64;
    if result >= 0
        && let Some(end) = maps::end_of(start)
    {
        let mut prot = READ;
        if !has(libc::SHM_RDONLY) {
            prot |= WRITE;
        }
        if has(libc::SHM_EXEC) {
            prot |= EXEC;
        }
        prot = personality::given(prot);
        let origin = Origin {
            shared: true,
            file: None,
        };
        mapped(&mut engine, start..end, prot, &origin);
        drop(engine);
        all_memory::attached(start, end);
    }
    result
}

/// `shmdt`.
pub fn shmdt(a: [u64; 6]) -> i64 {
    let at = a[0];
    let mut engine = ENGINE.lock();
    let end = maps::end_of(at);
    let result = host(libc::SYS_shmdt, a);
    if result >= 0
        && let Some(end) = end
    {
        invalidate::rewritten(&mut engine, at, end);
        engine.source.regions.remove(at, end);
        forget(&mut engine, at, end);
    }
    result
}
