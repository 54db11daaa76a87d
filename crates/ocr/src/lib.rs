//! `libnumaloc_ocr`: the task runtime as a C library. The calls are in numaloc-tasks; this crate adds the `main`
//! function that OCR programs lack.

use numaloc_tasks::abi::{Dep, Guid};
use std::ffi::{c_char, c_int};

pub use numaloc_tasks::api::*;

unsafe extern "C" {
    fn mainEdt(paramc: u32, paramv: *mut u64, depc: u32, depv: *mut Dep) -> Guid;
}

/// The program's `main`: starts the runtime with `mainEdt` as the first task.
///
/// # Safety
/// Called by the C start-up code with `argc` strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: argc and argv are those of a C `main`; mainEdt is the program's.
    unsafe { numaloc_ocr_run(argc, argv, Some(mainEdt)) }
}
