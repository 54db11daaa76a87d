//! `libnumaloc_ocr`: the task runtime as a C library. All calls are in numaloc-tasks; here is only
//! the `main` that programs written for OCR do not have.

use numaloc_tasks::abi::{Dep, Guid};
use std::ffi::{c_char, c_int};

pub use numaloc_tasks::api::*;

unsafe extern "C" {
    fn mainEdt(paramc: u32, paramv: *mut u64, depc: u32, depv: *mut Dep) -> Guid;
}

/// The program's `main`: starts the runtime with `mainEdt` as the first task.
///
/// # Safety
/// Called by the C start-up code with `argc` strings at `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: argc and argv are as C promises them; mainEdt is the program's.
    unsafe { numaloc_ocr_run(argc, argv, Some(mainEdt)) }
}
