//! This library's own heap. It keeps the program's blocks where they would be without us: the program's heap, its
//! threads' arenas and its mappings are left to the C library and the kernel.
//!
//! One `dlmalloc` for all threads, on mappings where Linux places nothing by itself ([`reservation`]), or where there
//! is room; the engine allocates rarely. Allocations of the C library on our behalf come from here, too. An allocation
//! in a signal handler that interrupted an allocation of the same thread gets a mapping of its own.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use dlmalloc::Dlmalloc;
use numaloc_trace::reservation;

use crate::lock::Lock;

const PAGE: usize = 4096;
/// Start of our memory, below the engine's tables.
const FIRST: usize = reservation::FRONTENDS.0 as usize;
/// Start of the blocks with a mapping each.
const SINGLE: usize = FIRST.midpoint(END);
const END: usize = reservation::FRONTENDS.1 as usize;

/// Preferred address of the next mapping.
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);
static NEXT_SINGLE: AtomicUsize = AtomicUsize::new(SINGLE);

/// Maps `size` bytes at `next`, if that is below `end`, or elsewhere; null if the system has no memory.
fn map(next: &AtomicUsize, end: usize, size: usize) -> *mut u8 {
    let place = next.fetch_add(size, Relaxed);
    let wish = if place < end - size { place } else { 0 };
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    reservation::map(wish as u64, size, kind, None).unwrap_or(null_mut())
}

/// # Safety
/// The bytes are from [`map`] and no longer used.
unsafe fn unmap(base: *mut u8, size: usize) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe { libc::syscall(libc::SYS_munmap, base, size) == 0 }
}

/// Source of `dlmalloc`'s memory.
struct Mappings;

// SAFETY: `alloc` returns new memory of the size it states, or null.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (map(&NEXT, SINGLE, size), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, base: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: `dlmalloc` returns the end of what it got.
        unsafe { unmap(base.add(new), old - new) }
    }

    fn free(&self, base: *mut u8, size: usize) -> bool {
        // SAFETY: `dlmalloc` returns what it got.
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

/// Start of the present heap in a process that was forked while the heap was in use: blocks outside of it, up to
/// [`SINGLE`], belong to the parent's heap.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// Begins a new heap in a forked child if the parent's may be inconsistent. Existing blocks stay as they are.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn renew() {
    // SAFETY: as the caller guarantees.
    if unsafe { BLOCKS.renew(|| Dlmalloc::new_with_allocator(Mappings)) } {
        OLDEST.store(NEXT.load(Relaxed), Relaxed);
    }
}

/// The global allocator of this library.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// Allocates a block for the C library when it works on our behalf; null if there is no memory.
pub(crate) fn allocate(size: usize) -> *mut c_void {
    let block = BLOCKS.with(|blocks| {
        // SAFETY: any size is allowed.
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

/// Changes the size of a block from [`allocate`]; null if that is not possible.
///
/// # Safety
/// As for `realloc`.
pub(crate) unsafe fn reallocate(block: *mut c_void, size: usize) -> *mut c_void {
    if is_elsewhere(block.cast()) {
        return null_mut();
    }
    // SAFETY: guaranteed by the caller.
    let moved = BLOCKS.with(|blocks| unsafe { blocks.c_realloc(block.cast(), size) });
    moved.unwrap_or(null_mut()).cast()
}

/// Frees a block from [`allocate`].
///
/// # Safety
/// As for `free`.
pub(crate) unsafe fn free(block: *mut c_void) {
    if !is_elsewhere(block.cast()) {
        // SAFETY: guaranteed by the caller. If the calling thread is in the allocator already, the block is leaked.
        BLOCKS.with(|blocks| unsafe { blocks.c_free(block.cast()) });
    }
}

/// Size in bytes of a block's own mapping.
fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE)
}

/// A block with its own mapping, recognisable by its address; null if there is no memory in that range.
fn single(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE {
        return null_mut();
    }
    let block = map(&NEXT_SINGLE, END, pages(layout));
    if block.is_null() || is_single(block) {
        return block;
    }
    // SAFETY: just mapped, and not used yet.
    unsafe { unmap(block, pages(layout)) };
    null_mut()
}

fn is_single(block: *mut u8) -> bool {
    (SINGLE..END).contains(&block.addr())
}

/// Whether a block is outside this process's present heap.
fn is_elsewhere(block: *mut u8) -> bool {
    let oldest = OLDEST.load(Relaxed);
    is_single(block) || oldest != 0 && !(oldest..SINGLE).contains(&block.addr())
}

// SAFETY: blocks are from `dlmalloc` or have their own mappings; their addresses tell which.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment is allowed.
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
                // SAFETY: from `single`, with the same layout, and no longer used (guaranteed by the caller).
                unsafe { unmap(block, pages(layout)) };
            }
            return;
        }
        // SAFETY: guaranteed by the caller. If the calling thread is in the allocator already, the block is leaked.
        BLOCKS.with(|blocks| unsafe { blocks.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let moved = match is_elsewhere(block) {
            true => None,
            // SAFETY: guaranteed by the caller.
            false => BLOCKS.with(|blocks| unsafe {
                blocks.realloc(block, layout.size(), layout.align(), size)
            }),
        };
        moved.unwrap_or_else(|| {
            // SAFETY: guaranteed by the caller: with that alignment `size` does not overflow.
            let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
            // SAFETY: as above.
            let target = unsafe { self.alloc(new) };
            if !target.is_null() {
                // SAFETY: both blocks are large enough, and distinct.
                unsafe {
                    target.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
            }
            target
        })
    }
}
