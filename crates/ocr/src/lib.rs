//! `libnumaloc_ocr`: the task runtime as a C library. [`border`] has the calls; here is the `main` function that OCR
//! programs lack.

mod border;

use std::ffi::{c_char, c_int};

use border::abi::{Dep, Guid};

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
    unsafe { border::program::numaloc_ocr_run(argc, argv, Some(mainEdt)) }
}
