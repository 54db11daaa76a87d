//! The engine's memory: separate from the program's break and mappings, with a lock that can be held across a fork.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dlmalloc::Dlmalloc;

use crate::lock::{Guard, Lock};
use crate::sys;

/// First address of our memory: Linux places no mapping there by itself.
const FIRST: u64 = 0x1800_0000_0000;

/// Minimum size of a mapping in bytes.
const LEAST: usize = 1 << 20;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// Maps memory for the engine: in our own range, or anywhere else with room. Null if there is none.
pub fn map(len: usize) -> *mut u8 {
    let len = len as u64;
    let at = NEXT.fetch_add(len + (1 << 16), Relaxed) & !0xffff;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    sys::map(at, len, prot, libc::MAP_FIXED_NOREPLACE)
        .or_else(|_| sys::map(0, len, prot, 0))
        .map_or(null_mut(), |at| at as *mut u8)
}

/// The source of memory for `dlmalloc`.
struct Mappings;

// SAFETY: `alloc` returns new, zeroed memory of the given size, or null.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.max(LEAST);
        (map(size), size, 0)
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

static HEAP: Lock<Dlmalloc<Mappings>> = Lock::new(Dlmalloc::new_with_allocator(Mappings));

/// Rust's allocator in this program.
pub struct Heap;

// SAFETY: `dlmalloc` satisfies `GlobalAlloc`'s contract, and the lock serialises threads.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { HEAP.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { HEAP.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { HEAP.lock().free(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            HEAP.lock()
                .realloc(block, layout.size(), layout.align(), size)
        }
    }
}

/// Locks the heap, so that it is consistent across a fork.
pub fn hold() -> impl Drop {
    struct Held(
        #[expect(dead_code, reason = "held, not looked at")] Guard<'static, Dlmalloc<Mappings>>,
    );
    impl Drop for Held {
        fn drop(&mut self) {}
    }
    Held(HEAP.lock())
}
