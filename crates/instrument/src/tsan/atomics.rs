//! Atomic operations. Instrumented code leaves them to the sanitizer, so they are executed here, always sequentially
//! consistent (never weaker than requested), and recorded as synchronisation.

use std::ffi::c_void;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::current;
use crate::tsan::wide::AtomicU128;

/// Records an atomic load after it was made: the clock it takes is the one that belongs to the value.
#[inline(always)]
fn loaded(address: *const c_void, size: u32) {
    current::with(|tracer| {
        tracer.synchronise::<false, false>(address as u64, size);
    });
}

/// Records an atomic store before it is made, so that a thread that sees the value finds the clock.
#[inline(always)]
fn storing(address: *const c_void, size: u32) {
    current::with(|tracer| {
        tracer.synchronise::<true, false>(address as u64, size);
    });
}

/// Records a read-modify-write: its store before it is made, its load afterwards.
#[inline(always)]
fn updating<T>(address: *const c_void, size: u32, operation: impl FnOnce() -> T) -> T {
    current::with(|tracer| {
        tracer.synchronise::<false, false>(address as u64, size);
        tracer.synchronise::<true, false>(address as u64, size);
    });
    let result = operation();
    current::with(|tracer| tracer.acquire(address as u64));
    result
}

/// The entry points of one size; the trailing arguments are C's `memory_order`.
macro_rules! atomics {
    ($type:ty, $atomic:ty, $size:literal, $load:ident, $store:ident, $exchange:ident,
     $strong:ident, $weak:ident, $value:ident, [$($fetch:ident: $method:ident),* $(,)?]) => {
        /// Atomic load.
        ///
        /// # Safety
        /// `address` is valid and aligned: the program's own operation.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $load(address: *const $type, _order: i32) -> $type {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { <$atomic>::from_ptr(address.cast_mut()) }.load(SeqCst);
            loaded(address.cast(), $size);
            value
        }

        /// Atomic store.
        ///
        /// # Safety
        /// As for the load.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $store(address: *mut $type, value: $type, _order: i32) {
            storing(address.cast(), $size);
            // SAFETY: guaranteed by the caller.
            unsafe { <$atomic>::from_ptr(address) }.store(value, SeqCst);
        }

        /// Atomic exchange; returns the old value.
        ///
        /// # Safety
        /// As for the load.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exchange(address: *mut $type, value: $type, _order: i32) -> $type {
            // SAFETY: guaranteed by the caller.
            updating(address.cast(), $size, || unsafe { <$atomic>::from_ptr(address) }.swap(value, SeqCst))
        }

        $(
            /// Atomic read-modify-write; returns the old value.
            ///
            /// # Safety
            /// As for the load.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fetch(address: *mut $type, value: $type, _order: i32) -> $type {
                // SAFETY: guaranteed by the caller.
                updating(address.cast(), $size, || unsafe { <$atomic>::from_ptr(address) }.$method(value, SeqCst))
            }
        )*

        /// Atomic compare and exchange; returns 1 if it happened, otherwise stores the value found to `expected`.
        ///
        /// # Safety
        /// As for the load; `expected` is valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $strong(
            address: *mut $type,
            expected: *mut $type,
            value: $type,
            _success: i32,
            _failure: i32,
        ) -> i32 {
            updating(address.cast(), $size, || {
                // SAFETY: guaranteed by the caller.
                let (atomic, old) = unsafe { (<$atomic>::from_ptr(address), *expected) };
                match atomic.compare_exchange(old, value, SeqCst, SeqCst) {
                    Ok(_) => 1,
                    Err(found) => {
                        // SAFETY: guaranteed by the caller.
                        unsafe { *expected = found };
                        0
                    }
                }
            })
        }

        /// Like the strong one, which is allowed.
        ///
        /// # Safety
        /// As for the strong one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $weak(
            address: *mut $type,
            expected: *mut $type,
            value: $type,
            success: i32,
            failure: i32,
        ) -> i32 {
            // SAFETY: guaranteed by the caller.
            unsafe { $strong(address, expected, value, success, failure) }
        }

        /// Atomic compare and exchange that returns the value found.
        ///
        /// # Safety
        /// As for the load.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $value(
            address: *mut $type,
            mut expected: $type,
            value: $type,
            success: i32,
            failure: i32,
        ) -> $type {
            // SAFETY: guaranteed by the caller; `expected` is ours.
            unsafe { $strong(address, &raw mut expected, value, success, failure) };
            expected
        }
    };
}

atomics! {
    u8, AtomicU8, 1, __tsan_atomic8_load, __tsan_atomic8_store, __tsan_atomic8_exchange,
    __tsan_atomic8_compare_exchange_strong, __tsan_atomic8_compare_exchange_weak, __tsan_atomic8_compare_exchange_val,
    [__tsan_atomic8_fetch_add: fetch_add, __tsan_atomic8_fetch_sub: fetch_sub, __tsan_atomic8_fetch_and: fetch_and, __tsan_atomic8_fetch_or: fetch_or, __tsan_atomic8_fetch_xor: fetch_xor, __tsan_atomic8_fetch_nand: fetch_nand]
}

atomics! {
    u16, AtomicU16, 2, __tsan_atomic16_load, __tsan_atomic16_store, __tsan_atomic16_exchange,
    __tsan_atomic16_compare_exchange_strong, __tsan_atomic16_compare_exchange_weak, __tsan_atomic16_compare_exchange_val,
    [__tsan_atomic16_fetch_add: fetch_add, __tsan_atomic16_fetch_sub: fetch_sub, __tsan_atomic16_fetch_and: fetch_and, __tsan_atomic16_fetch_or: fetch_or, __tsan_atomic16_fetch_xor: fetch_xor, __tsan_atomic16_fetch_nand: fetch_nand]
}

atomics! {
    u32, AtomicU32, 4, __tsan_atomic32_load, __tsan_atomic32_store, __tsan_atomic32_exchange,
    __tsan_atomic32_compare_exchange_strong, __tsan_atomic32_compare_exchange_weak, __tsan_atomic32_compare_exchange_val,
    [__tsan_atomic32_fetch_add: fetch_add, __tsan_atomic32_fetch_sub: fetch_sub, __tsan_atomic32_fetch_and: fetch_and, __tsan_atomic32_fetch_or: fetch_or, __tsan_atomic32_fetch_xor: fetch_xor, __tsan_atomic32_fetch_nand: fetch_nand]
}

atomics! {
    u64, AtomicU64, 8, __tsan_atomic64_load, __tsan_atomic64_store, __tsan_atomic64_exchange,
    __tsan_atomic64_compare_exchange_strong, __tsan_atomic64_compare_exchange_weak, __tsan_atomic64_compare_exchange_val,
    [__tsan_atomic64_fetch_add: fetch_add, __tsan_atomic64_fetch_sub: fetch_sub, __tsan_atomic64_fetch_and: fetch_and, __tsan_atomic64_fetch_or: fetch_or, __tsan_atomic64_fetch_xor: fetch_xor, __tsan_atomic64_fetch_nand: fetch_nand]
}

atomics! {
    u128, AtomicU128, 16, __tsan_atomic128_load, __tsan_atomic128_store, __tsan_atomic128_exchange,
    __tsan_atomic128_compare_exchange_strong, __tsan_atomic128_compare_exchange_weak, __tsan_atomic128_compare_exchange_val,
    [__tsan_atomic128_fetch_add: fetch_add, __tsan_atomic128_fetch_sub: fetch_sub, __tsan_atomic128_fetch_and: fetch_and, __tsan_atomic128_fetch_or: fetch_or, __tsan_atomic128_fetch_xor: fetch_xor, __tsan_atomic128_fetch_nand: fetch_nand]
}

/// A fence between threads.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_thread_fence(_order: i32) {
    std::sync::atomic::fence(SeqCst);
}

/// A fence against a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_signal_fence(_order: i32) {
    std::sync::atomic::compiler_fence(SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_do_what_c_says() {
        let mut cell = 5u32;
        let at = &raw mut cell;
        let mut expected = 4;
        // SAFETY: `at` and `expected` are valid for the whole test.
        unsafe {
            assert_eq!(__tsan_atomic32_fetch_add(at, 3, 5), 5);
            assert_eq!(__tsan_atomic32_fetch_nand(at, 12, 5), 8);
            assert_eq!(__tsan_atomic32_exchange(at, 7, 5), !8);
            assert_eq!(
                __tsan_atomic32_compare_exchange_strong(at, &raw mut expected, 1, 5, 5),
                0
            );
            assert_eq!(expected, 7);
            assert_eq!(
                __tsan_atomic32_compare_exchange_weak(at, &raw mut expected, 1, 5, 5),
                1
            );
            assert_eq!(__tsan_atomic32_compare_exchange_val(at, 1, 9, 5, 5), 1);
            assert_eq!(__tsan_atomic32_load(at, 5), 9);
        }
    }

    #[test]
    fn sixteen_bytes_are_one_operation() {
        #[repr(align(16))]
        struct Cell(u128);
        let mut cell = Cell(u128::MAX - 1);
        let at = &raw mut cell.0;
        // SAFETY: `at` is valid and aligned for the whole test.
        unsafe {
            assert_eq!(__tsan_atomic128_fetch_add(at, 3, 5), u128::MAX - 1);
            assert_eq!(__tsan_atomic128_load(at, 5), 1);
            __tsan_atomic128_store(at, 1 << 100, 5);
            let mut expected = 0;
            assert_eq!(
                __tsan_atomic128_compare_exchange_strong(at, &raw mut expected, 0, 5, 5),
                0
            );
            assert_eq!(expected, 1 << 100);
        }
    }
}
