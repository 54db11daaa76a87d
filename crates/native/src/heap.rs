//! The engine's memory: separate from the program's break and mappings, with a lock that can be held across a fork.
//!
//! Small blocks come from lists of free blocks of the same size: translation allocates and frees many.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dlmalloc::Dlmalloc;

use crate::lock::{Guard, Lock};
use crate::sys;

/// First address of our memory: Linux places no mapping there by itself.
const FIRST: u64 = numaloc_trace::reservation::FRONTENDS.0;

/// Minimum size and alignment of a mapping in bytes: a large page, since most of it is used soon.
const LEAST: usize = sys::LARGE_PAGE as usize;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// Maps memory for the engine: in our own range at a multiple of `align`, or anywhere else with room. Null if there is
/// none.
pub fn map(len: usize, align: usize) -> *mut u8 {
    let (len, align) = (len as u64, align as u64);
    let at = NEXT.fetch_add(len + align, Relaxed).next_multiple_of(align);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let found = sys::map(at, len, prot, libc::MAP_FIXED_NOREPLACE)
        .or_else(|_| sys::map(0, len, prot, 0))
        .inspect(|&at| sys::keep_out_of_dumps(at, len));
    found.map_or(null_mut(), |at| at as *mut u8)
}

/// The source of memory for `dlmalloc`.
struct Mappings;

// SAFETY: `alloc` returns new, zeroed memory of the given size, or null.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(LEAST);
        let base = map(size, LEAST);
        if !base.is_null() {
            sys::prefer_large_pages(base as u64, size as u64);
        }
        (base, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, base: *mut u8, size: usize) -> bool {
        // SAFETY: `dlmalloc` frees only what it was given.
        unsafe { sys::call(libc::SYS_munmap, [base as u64, size as u64, 0, 0, 0, 0]) == 0 }
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        sys::PAGE as usize
    }
}

/// Bytes by which the sizes of small blocks differ; their alignment.
const UNIT: usize = 16;
/// Number of sizes of small blocks.
const SIZES: usize = 32;
/// Bytes that are divided into small blocks at once.
const CHUNK: usize = 8 << 10;

/// All memory.
struct Memory {
    large: Dlmalloc<Mappings>,
    /// For each size of small blocks, the address of a free one, or 0; each contains the address of the next.
    free: [usize; SIZES],
}

/// The list of free blocks for a layout, if its blocks are small.
fn list(size: usize, align: usize) -> Option<usize> {
    (align <= UNIT && size <= UNIT * SIZES).then(|| size.saturating_sub(1) / UNIT)
}

impl Memory {
    fn take(&mut self, size: usize, align: usize) -> *mut u8 {
        let Some(list) = list(size, align) else {
            // SAFETY: a layout's size and alignment.
            return unsafe { self.large.malloc(size, align) };
        };
        if self.free[list] == 0 {
            self.fill(list);
        }
        let block = self.free[list] as *mut usize;
        if !block.is_null() {
            // SAFETY: a free block, which contains the address of the next.
            self.free[list] = unsafe { block.read() };
        }
        block.cast()
    }

    /// Makes free blocks for a list, unless there is no memory.
    #[cold]
    fn fill(&mut self, list: usize) {
        // SAFETY: a power of two as the alignment.
        let chunk = unsafe { self.large.malloc(CHUNK, UNIT) };
        if chunk.is_null() {
            return;
        }
        let size = (list + 1) * UNIT;
        for at in (0..CHUNK / size).rev() {
            // SAFETY: within the chunk, in which nothing else is.
            unsafe { self.give(chunk.add(at * size), size, UNIT) };
        }
    }

    /// # Safety
    /// A block from [`Memory::take`] for this size and alignment, or part of a chunk, that nothing refers to.
    unsafe fn give(&mut self, block: *mut u8, size: usize, align: usize) {
        match list(size, align) {
            // SAFETY: the block is at least a word, and aligned to one.
            Some(list) => unsafe {
                block.cast::<usize>().write(self.free[list]);
                self.free[list] = block as usize;
            },
            // SAFETY: as the caller promises.
            None => unsafe { self.large.free(block, size, align) },
        }
    }
}

static HEAP: Lock<Memory> = Lock::new(Memory {
    large: Dlmalloc::new_with_allocator(Mappings),
    free: [0; SIZES],
});

/// Rust's allocator in this program.
pub struct Heap;

// SAFETY: blocks are disjoint, of the size and alignment asked for, and the lock serialises threads.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.lock().take(layout.size(), layout.align())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if list(size, align).is_none() {
            // SAFETY: as the caller promises.
            return unsafe { HEAP.lock().large.calloc(size, align) };
        }
        let block = HEAP.lock().take(size, align);
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.write_bytes(0, size) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { HEAP.lock().give(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (before, align) = (layout.size(), layout.align());
        let mut heap = HEAP.lock();
        match (list(before, align), list(size, align)) {
            // SAFETY: as the caller promises.
            (None, None) => unsafe { heap.large.realloc(block, before, align, size) },
            (one, other) if one == other => block,
            _ => {
                let moved = heap.take(size, align);
                if !moved.is_null() {
                    // SAFETY: both blocks have at least this size; the old one is not used any more.
                    unsafe {
                        moved.copy_from_nonoverlapping(block, before.min(size));
                        heap.give(block, before, align);
                    }
                }
                moved
            }
        }
    }
}

/// Locks the heap, so that it is consistent across a fork.
pub fn hold() -> impl Drop {
    struct Held(
        #[expect(dead_code, reason = "the lock is free when it is dropped")] Guard<'static, Memory>,
    );
    impl Drop for Held {
        fn drop(&mut self) {}
    }
    Held(HEAP.lock())
}
