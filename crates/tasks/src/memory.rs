//! Memory for the contents of data blocks.
//!
//! `numa`: pools per node. Blocks up to 64 KiB come from chunks of 2 MiB in size classes (powers of two), larger ones
//! are mapped individually; freed ones are kept for reuse, up to 64 MiB of large ones per node. Every mapping is bound
//! to its node (preferred: a full node spills over instead of killing the program), if the machine is this one
//! and has more than one node.
//! `system`: the C library's allocator; pages are placed by first touch.
//! `tbb`: oneTBB's scalable allocator (libtbbmalloc), with pools per thread and pages placed by first touch: the
//! allocator of the paper's rows /TBB.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::{Machine, NO_NODE};

/// Allocator of data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// Per-node pools.
    Numa,
    /// The C library's, first touch.
    System,
    /// oneTBB's scalable allocator, first touch.
    Tbb,
}

/// Whether this build found libtbbmalloc.
pub const HAS_TBB: bool = cfg!(numaloc_tbbmalloc);

#[cfg(numaloc_tbbmalloc)]
mod scalable {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn scalable_aligned_malloc(size: usize, alignment: usize) -> *mut c_void;
        fn scalable_aligned_free(memory: *mut c_void);
    }

    pub fn allocate(size: usize) -> *mut u8 {
        // SAFETY: 64 is a power of two.
        unsafe { scalable_aligned_malloc(size, 64) }.cast()
    }

    /// # Safety
    /// `memory` came from `allocate` and is no longer used.
    pub unsafe fn free(memory: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { scalable_aligned_free(memory.cast()) };
    }
}

#[cfg(not(numaloc_tbbmalloc))]
mod scalable {
    pub fn allocate(_: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    /// # Safety
    /// None; same signature as the real one.
    pub unsafe fn free(_: *mut u8) {}
}

const SMALLEST_BITS: u32 = 6;
const LARGEST_BITS: u32 = 16;
const CLASSES: usize = (LARGEST_BITS - SMALLEST_BITS + 1) as usize;
const CHUNK: usize = 2 << 20;
const KEPT_BYTES: usize = 64 << 20;
const PAGE: usize = 4096;

#[derive(Default)]
struct Pool {
    free: [Vec<usize>; CLASSES],
    chunk: usize,
    chunk_left: usize,
    chunks: Vec<usize>,
    kept: Vec<(usize, usize)>,
    kept_bytes: usize,
}

/// Memory for data blocks; see the module documentation.
pub struct Memory {
    allocator: Allocator,
    pools: Vec<Mutex<Pool>>,
    /// OS indexes of the nodes to bind to; `None` if binding has no effect.
    os_nodes: Option<Vec<u32>>,
    refused: AtomicU64,
}

fn class_of(size: usize) -> usize {
    (usize::BITS - (size.max(1) - 1).leading_zeros()).saturating_sub(SMALLEST_BITS) as usize
}

impl Memory {
    /// Creates the allocator for a machine.
    pub fn new(allocator: Allocator, machine: &Machine) -> Self {
        Self {
            allocator,
            pools: (0..machine.nodes()).map(|_| Mutex::default()).collect(),
            os_nodes: machine.bindable_nodes(),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether memory is bound to the requested node.
    pub fn places(&self) -> bool {
        self.allocator == Allocator::Numa
    }

    /// Number of mappings the kernel refused to bind.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Allocates memory aligned to 64 bytes; also returns the node to pass to [`Memory::free`].
    pub fn allocate(&self, size: u64, node: u16) -> Option<(*mut u8, u16)> {
        let size = usize::try_from(size).ok()?;
        if self.allocator == Allocator::Tbb {
            let size = size.max(1).checked_next_multiple_of(64)?;
            let memory = scalable::allocate(size);
            return (!memory.is_null()).then_some((memory, NO_NODE));
        }
        if self.allocator == Allocator::System || node == NO_NODE {
            // SAFETY: 64 is a power of two, the size a multiple of it.
            let memory =
                unsafe { libc::aligned_alloc(64, size.max(1).checked_next_multiple_of(64)?) };
            return (!memory.is_null()).then_some((memory.cast(), NO_NODE));
        }
        let class = class_of(size);
        let mut pool = self.pools[usize::from(node)]
            .lock()
            .expect("no panic while locked");
        if class >= CLASSES {
            let size = size.checked_next_multiple_of(PAGE)?;
            if let Some(at) = pool.kept.iter().position(|&(_, kept)| kept == size) {
                let (memory, _) = pool.kept.swap_remove(at);
                pool.kept_bytes -= size;
                return Some((memory as *mut u8, node));
            }
            drop(pool);
            return self.map(size, node).map(|memory| (memory, node));
        }
        if let Some(memory) = pool.free[class].pop() {
            return Some((memory as *mut u8, node));
        }
        let size = 1 << (class as u32 + SMALLEST_BITS);
        if pool.chunk_left < size {
            pool.chunk = self.map(CHUNK, node)? as usize;
            pool.chunk_left = CHUNK;
            let chunk = pool.chunk;
            pool.chunks.push(chunk);
        }
        let memory = pool.chunk;
        pool.chunk += size;
        pool.chunk_left -= size;
        Some((memory as *mut u8, node))
    }

    /// Frees memory.
    ///
    /// # Safety
    /// `memory` came from `allocate` with that size and returned node, and is no longer used.
    pub unsafe fn free(&self, memory: *mut u8, size: u64, node: u16) {
        if self.allocator == Allocator::Tbb {
            // SAFETY: with this allocator, all memory comes from there.
            unsafe { scalable::free(memory) };
            return;
        }
        if node == NO_NODE {
            // SAFETY: from the C library's allocator.
            unsafe { libc::free(memory.cast()) };
            return;
        }
        let size = size as usize;
        let class = class_of(size);
        let mut pool = self.pools[usize::from(node)]
            .lock()
            .expect("no panic while locked");
        if class < CLASSES {
            pool.free[class].push(memory as usize);
            return;
        }
        let size = size.next_multiple_of(PAGE);
        if pool.kept_bytes + size <= KEPT_BYTES {
            pool.kept.push((memory as usize, size));
            pool.kept_bytes += size;
        } else {
            drop(pool);
            // SAFETY: our own mapping of that length.
            unsafe { libc::munmap(memory.cast(), size) };
        }
    }

    fn map(&self, size: usize, node: u16) -> Option<*mut u8> {
        // SAFETY: a fresh private mapping.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return None;
        }
        if let Some(os_nodes) = &self.os_nodes
            && let os_node = os_nodes[usize::from(node)]
            && numaloc_sys::memory::prefer(memory as usize, size, os_node).is_err()
        {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        Some(memory.cast())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for pool in &mut self.pools {
            let pool = pool.get_mut().expect("no panic while locked");
            for &chunk in &pool.chunks {
                // SAFETY: our own mapping; the runtime has ended.
                unsafe { libc::munmap(chunk as *mut libc::c_void, CHUNK) };
            }
            for &(memory, size) in &pool.kept {
                // SAFETY: as above.
                unsafe { libc::munmap(memory as *mut libc::c_void, size) };
            }
        }
    }
}
