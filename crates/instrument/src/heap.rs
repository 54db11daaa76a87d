//! Memory of our own, so that the program's blocks lie where they lie without us: its heap, the arenas of its threads and its mappings
//! are the C library's and the kernel's business with the program alone.
//!
//! `dlmalloc`, one for all threads, on mappings where Linux puts nothing by itself ([`reservation`]), or where the
//! system has room; the engine allocates seldom. What the C library allocates to answer our questions comes from here, too. What a signal
//! handler asks for that came in the middle of an allocation of the same thread gets a mapping for each block.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use dlmalloc::Dlmalloc;
use numaloc_trace::reservation;

use crate::lock::Lock;

const PAGE: usize = 4096;
/// Where our memory begins, below the engine's tables.
const FIRST: usize = 24 << 40;
/// Where blocks begin that have a mapping each.
const SINGLE: usize = 28 << 40;
const END: usize = reservation::BEGIN as usize;

/// Where the next mapping should be.
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);
static NEXT_SINGLE: AtomicUsize = AtomicUsize::new(SINGLE);

/// Maps `size` bytes where `next` says, below `end`, or elsewhere; null when the system has none.
fn map(next: &AtomicUsize, end: usize, size: usize) -> *mut u8 {
    let place = next.fetch_add(size, Relaxed);
    let wish = if place < end - size { place } else { 0 };
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    reservation::map(wish as u64, size, kind, None).unwrap_or(null_mut())
}

/// # Safety
/// The bytes are from [`map`] and not used any more.
unsafe fn unmap(base: *mut u8, size: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_munmap, base, size) == 0 }
}

/// What `dlmalloc` gets its memory from.
struct Mappings;

// SAFETY: `alloc` returns new memory of the size it says, or null.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (map(&NEXT, SINGLE, size), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, base: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: `dlmalloc` gives back the end of what it got.
        unsafe { unmap(base.add(new), old - new) }
    }

    fn free(&self, base: *mut u8, size: usize) -> bool {
        // SAFETY: `dlmalloc` gives back what it got.
        unsafe { unmap(base, size) }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

static BLOCKS: Lock<Dlmalloc<Mappings>> = Lock::new(Dlmalloc::new_with_allocator(Mappings));

/// In a process that was forked while the heap was in use, blocks that lie elsewhere than from here to [`SINGLE`] are of the parent's heap.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: begins a new heap if the parent's cannot be relied on. What there is stays as it is.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn renew() {
    // SAFETY: as the caller promises.
    if unsafe { BLOCKS.renew(|| Dlmalloc::new_with_allocator(Mappings)) } {
        OLDEST.store(NEXT.load(Relaxed), Relaxed);
    }
}

/// The allocator of this library.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// A block for the C library, for what it does at our behest; null if there is none to be had.
pub(crate) fn allocate(size: usize) -> *mut c_void {
    let block = BLOCKS.with(|blocks| {
        // SAFETY: any size will do.
        let block = unsafe { blocks.c_malloc(size) };
        if has(block.cast()) {
            return block;
        }
        // SAFETY: just allocated.
        unsafe { blocks.c_free(block) };
        null_mut()
    });
    block.unwrap_or(null_mut()).cast()
}

/// Whether a block is from [`allocate`].
pub(crate) fn has(block: *const c_void) -> bool {
    (FIRST..SINGLE).contains(&block.addr())
}

/// Changes the size of a block from [`allocate`]; null if that cannot be.
///
/// # Safety
/// As `realloc`.
pub(crate) unsafe fn reallocate(block: *mut c_void, size: usize) -> *mut c_void {
    if is_elsewhere(block.cast()) {
        return null_mut();
    }
    // SAFETY: the caller's promise.
    let moved = BLOCKS.with(|blocks| unsafe { blocks.c_realloc(block.cast(), size) });
    moved.unwrap_or(null_mut()).cast()
}

/// Frees a block from [`allocate`].
///
/// # Safety
/// As `free`.
pub(crate) unsafe fn free(block: *mut c_void) {
    if !is_elsewhere(block.cast()) {
        // SAFETY: the caller's promise. Where the calling thread is in there already, the block is lost.
        BLOCKS.with(|blocks| unsafe { blocks.c_free(block.cast()) });
    }
}

/// Bytes of a block's own mapping.
fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE)
}

/// A block with a mapping of its own, which its address tells; null when there is none to be had there.
fn single(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE {
        return null_mut();
    }
    let block = map(&NEXT_SINGLE, END, pages(layout));
    if block.is_null() || is_single(block) {
        return block;
    }
    // SAFETY: just mapped, and nobody's yet.
    unsafe { unmap(block, pages(layout)) };
    null_mut()
}

fn is_single(block: *mut u8) -> bool {
    (SINGLE..END).contains(&block.addr())
}

/// Whether it is none of this process's heap.
fn is_elsewhere(block: *mut u8) -> bool {
    let oldest = OLDEST.load(Relaxed);
    is_single(block) || oldest != 0 && !(oldest..SINGLE).contains(&block.addr())
}

// SAFETY: blocks are from `dlmalloc`, or mappings of their own; their addresses tell which.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment will do.
        BLOCKS
            .with(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) })
            .unwrap_or_else(|| single(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        BLOCKS
            .with(|blocks| unsafe { blocks.calloc(layout.size(), layout.align()) })
            .unwrap_or_else(|| single(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_elsewhere(block) {
            if is_single(block) {
                // SAFETY: from `single`, of the same layout, and not used any more (the caller's promise).
                unsafe { unmap(block, pages(layout)) };
            }
            return;
        }
        // SAFETY: the caller's promise. Where the calling thread is in there already, the block is lost.
        BLOCKS.with(|blocks| unsafe { blocks.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let moved = match is_elsewhere(block) {
            true => None,
            // SAFETY: the caller's promise.
            false => BLOCKS.with(|blocks| unsafe {
                blocks.realloc(block, layout.size(), layout.align(), size)
            }),
        };
        moved.unwrap_or_else(|| {
            // SAFETY: the caller's promise: with that alignment `size` does not overflow.
            let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
            // SAFETY: as above.
            let target = unsafe { self.alloc(new) };
            if !target.is_null() {
                // SAFETY: both blocks are as long, and apart.
                unsafe {
                    target.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
            }
            target
        })
    }
}
