//! The functions of libomp that are called.

use std::ffi::{CStr, c_int};

use crate::real::{Runtime, Runtimes};

/// The run-time systems with these entry points.
pub static RUNTIMES: Runtimes = Runtimes::with(c"__kmpc_fork_call");

/// A function of a run-time system: its number and name.
pub struct Function(pub usize, pub &'static CStr);

/// The functions that are called.
pub mod function {
    use super::Function;

    pub const FORK_CALL: Function = Function(0, c"__kmpc_fork_call");
    pub const LEVEL: Function = Function(1, c"omp_get_level");
    pub const THREAD_NUM: Function = Function(2, c"omp_get_thread_num");
    pub const NUM_THREADS: Function = Function(3, c"omp_get_num_threads");
    pub const SCHEDULE: Function = Function(4, c"omp_get_schedule");
    pub const DEINIT: Function = Function(5, c"__kmpc_dispatch_deinit");
}

impl Function {
    /// Its address, 0 if there is none.
    fn find(&self, runtime: &Runtime) -> usize {
        runtime.find(self.0, self.1)
    }

    /// Its address. A program that calls it has it.
    pub fn required(&self, runtime: &Runtime) -> usize {
        match self.find(runtime) {
            0 => std::process::abort(),
            found => found,
        }
    }

    /// Calls it as a function without arguments that returns a number.
    #[inline]
    pub fn ask(&self, runtime: &Runtime) -> c_int {
        // SAFETY: used for such functions alone (`omp_get_...`).
        let real = unsafe {
            std::mem::transmute::<usize, extern "C" fn() -> c_int>(self.required(runtime))
        };
        real()
    }
}

/// A name as a C string.
pub const fn named(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}
