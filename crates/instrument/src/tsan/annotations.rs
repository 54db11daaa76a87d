//! Annotations with which programs inform a thread sanitizer (`sanitizer/tsan_interface.h`), and similar calls of
//! compilers.
//!
//! Programs call these if the sanitizer's feature is enabled (clang's `__has_feature`). Annotated synchronisation
//! moves the virtual clock; calls that only serve the sanitizer's reports do nothing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::clocks::{acquire, release};
use crate::tsan::ranges::range;

/// `fn $name(object, ..)`: takes the clock of `object`, or leaves it there.
macro_rules! clocks {
    ($($name:ident($($more:ty),*): $how:ident;)*) => {$(
        /// Announces synchronisation through `object`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(object: *mut c_void $(, _: $more)*) {
            $how(object as u64);
        }
    )*};
}

clocks! {
    __tsan_acquire(): acquire;
    __tsan_release(): release;
    __tsan_mutex_post_lock(c_uint, c_int): acquire;
    __tsan_mutex_pre_signal(c_uint): release;
}

/// `fn $name(..)`: nothing to count.
macro_rules! ignored {
    ($($name:ident($($argument:ty),*) $(-> $type:ty = $value:expr)?;)*) => {$(
        /// Nothing to count.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $argument),*) $(-> $type)? {
            $($value)?
        }
    )*};
}

ignored! {
    __tsan_ignore_thread_begin();
    __tsan_ignore_thread_end();
    __tsan_flush_memory();
    __tsan_mutex_create(*mut c_void, c_uint);
    __tsan_mutex_destroy(*mut c_void, c_uint);
    __tsan_mutex_pre_lock(*mut c_void, c_uint);
    __tsan_mutex_post_unlock(*mut c_void, c_uint);
    __tsan_mutex_post_signal(*mut c_void, c_uint);
    __tsan_mutex_pre_divert(*mut c_void, c_uint);
    __tsan_mutex_post_divert(*mut c_void, c_uint);
    __tsan_external_register_tag(*const c_char) -> *mut c_void = null_mut();
    __tsan_external_register_header(*mut c_void, *const c_char);
    __tsan_external_assign_tag(*mut c_void, *mut c_void);
    __tsan_external_read(*mut c_void, *mut c_void, *mut c_void);
    __tsan_external_write(*mut c_void, *mut c_void, *mut c_void);
    // A fiber's accesses count for the thread that runs it.
    __tsan_get_current_fiber() -> *mut c_void = null_mut();
    __tsan_create_fiber(c_uint) -> *mut c_void = null_mut();
    __tsan_destroy_fiber(*mut c_void);
    __tsan_switch_to_fiber(*mut c_void, c_uint);
    __tsan_set_fiber_name(*mut c_void, *const c_char);
}

/// Announces the release of a user-defined lock; returns its recursion depth.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_mutex_pre_unlock(object: *mut c_void, _: c_uint) -> c_int {
    release(object as u64);
    1
}

/// `fn $name(address, pc)`: an annotated access.
macro_rules! annotated {
    ($($name:ident: $write:literal, $size:literal;)*) => {$(
        /// Records an access; `_pc` is the instruction that makes it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(address: *const c_void, _pc: *const c_void) {
            range::<$write>(address, $size);
        }
    )*};
}

annotated! {
    __tsan_read1_pc: false, 1;
    __tsan_read2_pc: false, 2;
    __tsan_read4_pc: false, 4;
    __tsan_read8_pc: false, 8;
    __tsan_read16_pc: false, 16;
    __tsan_write1_pc: true, 1;
    __tsan_write2_pc: true, 2;
    __tsan_write4_pc: true, 4;
    __tsan_write8_pc: true, 8;
    __tsan_write16_pc: true, 16;
}

/// Records a load of many bytes; `_pc` is the instruction that makes it.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_read_range_pc(address: *const c_void, size: usize, _pc: *const c_void) {
    range::<false>(address, size);
}

/// Records a store of many bytes; `_pc` is the instruction that makes it.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_write_range_pc(address: *const c_void, size: usize, _pc: *const c_void) {
    range::<true>(address, size);
}
