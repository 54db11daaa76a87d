//! Requests of table entries ahead of their use, because tables of the size of a trace's memory are rarely in the
//! host's caches.

#![allow(unsafe_code)]

/// Asks the processor for the entry at `at`; without effect behind the end of the table.
#[inline(always)]
pub(crate) fn prefetch<T>(table: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(entry) = table.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: x86-64 includes SSE; the address is that of an entry of the table, and a prefetch changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (table, at);
}
