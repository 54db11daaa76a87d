//! Marks: records the places in the program that every run passes in the same order.

use std::ffi::{CStr, c_char};

use numaloc_trace::marks::{MarkKind, NAME_BYTES, region_entry};

use crate::current;

/// The calling thread enters a parallel region through the entry point `name`; `function` is the program's.
pub(crate) fn region(name: &'static str, function: u64) {
    current::with(|tracer| tracer.pass(MarkKind::Region, region_entry(name), function));
}

/// The calling thread calls the barrier `name`.
pub(crate) fn barrier(name: &str) {
    current::with(|tracer| tracer.pass(MarkKind::Barrier, name, 0));
}

/// The calling thread creates a thread through the entry point `name`.
pub(crate) fn creation(name: &str) {
    current::with(|tracer| tracer.pass(MarkKind::Thread, name, 0));
}

/// The program calls `numaloc_mark` (`shims/include/numaloc.h`).
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numaloc_mark_received(name: *const c_char) {
    if name.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    current::with(|tracer| {
        let mut name = name.to_string_lossy().into_owned();
        name.truncate(name.floor_char_boundary(NAME_BYTES));
        tracer.pass(MarkKind::User, &name, 0);
    });
}
