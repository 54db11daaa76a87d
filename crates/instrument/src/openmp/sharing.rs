//! Records calls of functions that hand work to threads at run time: with these, a thread may get other work in
//! another run.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use numaloc_trace::Record;
use numaloc_trace::WorkSharing;

use crate::current::ours;
use crate::openmp::ident::Ident;
use crate::real::real;

/// `hands_out!(name)`: notes a call of the wrapped function `name`.
macro_rules! hands_out {
    ($name:ident) => {{
        static SEEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !SEEN.load(std::sync::atomic::Ordering::Relaxed) {
            $crate::openmp::sharing::first_call(&SEEN, stringify!($name));
        }
    }};
}
pub(crate) use hands_out;

/// Records the first call of `name` in this process, if it hands out work.
#[cold]
pub(crate) fn first_call(seen: &AtomicBool, name: &'static str) {
    if !seen.swap(true, Ordering::Relaxed) && WorkSharing::of_symbol(name).is_some() {
        ours(|engine| engine.write(&Record::Sharing(name.to_owned())));
    }
}

macro_rules! starts {
    ($($name:ident($($argument:ident),*);)*) => {$(
        /// Begins a loop; returns whether the calling thread has a part of it.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> bool {
            let real = real!($name: fn($(starts!(@word $argument)),*) -> bool);
            hands_out!($name);
            // SAFETY: guaranteed by the caller; all arguments are words, or passed as such.
            unsafe { real($($argument),*) }
        }
    )*};
    (@word $argument:ident) => { usize };
}

starts! {
    GOMP_loop_dynamic_start(start, end, step, chunk, first, last);
    GOMP_loop_guided_start(start, end, step, chunk, first, last);
    GOMP_loop_nonmonotonic_dynamic_start(start, end, step, chunk, first, last);
    GOMP_loop_nonmonotonic_guided_start(start, end, step, chunk, first, last);
    GOMP_loop_ordered_dynamic_start(start, end, step, chunk, first, last);
    GOMP_loop_ordered_guided_start(start, end, step, chunk, first, last);
    GOMP_loop_runtime_start(start, end, step, first, last);
    GOMP_loop_nonmonotonic_runtime_start(start, end, step, first, last);
    GOMP_loop_maybe_nonmonotonic_runtime_start(start, end, step, first, last);
    GOMP_loop_ordered_runtime_start(start, end, step, first, last);
    GOMP_loop_ull_dynamic_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_guided_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_nonmonotonic_dynamic_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_nonmonotonic_guided_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_ordered_dynamic_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_ordered_guided_start(up, start, end, step, chunk, first, last);
    GOMP_loop_ull_runtime_start(up, start, end, step, first, last);
    GOMP_loop_ull_nonmonotonic_runtime_start(up, start, end, step, first, last);
    GOMP_loop_ull_maybe_nonmonotonic_runtime_start(up, start, end, step, first, last);
    GOMP_loop_ull_ordered_runtime_start(up, start, end, step, first, last);
}

/// Begins sections; returns the calling thread's first one, 0 for none.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_sections_start(count: c_uint) -> c_uint {
    let real = real!(GOMP_sections_start: fn(c_uint) -> c_uint);
    hands_out!(GOMP_sections_start);
    // SAFETY: guaranteed by the caller.
    unsafe { real(count) }
}

/// libomp's schedules (`enum sched_type`) that give each thread the same iterations in every run, with and without
/// `ordered`, and those that must not be merged.
const STATIC: [c_int; 11] = [33, 34, 40, 41, 45, 65, 66, 161, 162, 193, 194];
/// `schedule(runtime)`, in the same four forms.
const RUNTIME: [c_int; 4] = [37, 69, 165, 197];
/// Mask without the bits for `monotonic` and `nonmonotonic`.
const SCHEDULE: c_int = !(3 << 29);

/// Whether a loop with this schedule hands out its parts at run time. In libomp `schedule(runtime)` is static unless
/// `OMP_SCHEDULE` is set.
fn is_dynamic(schedule: c_int) -> bool {
    let schedule = schedule & SCHEDULE;
    if RUNTIME.contains(&schedule) {
        // SAFETY: a C string; the environment is the program's, which must not change it concurrently.
        let chosen = unsafe { libc::getenv(c"OMP_SCHEDULE".as_ptr()) };
        return !chosen.is_null();
    }
    !STATIC.contains(&schedule)
}

macro_rules! dispatches {
    ($($name:ident;)*) => {$(
        /// Begins a loop whose parts are handed out.
        ///
        /// # Safety
        /// As libomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            ident: Ident,
            thread: c_int,
            schedule: c_int,
            lower: usize,
            upper: usize,
            step: usize,
            chunk: usize,
        ) {
            let real = real!($name: fn(Ident, c_int, c_int, usize, usize, usize, usize));
            if is_dynamic(schedule) {
                hands_out!($name);
            }
            // SAFETY: guaranteed by the caller; narrower numbers are passed as words.
            unsafe { real(ident, thread, schedule, lower, upper, step, chunk) }
        }
    )*};
}

dispatches! {
    __kmpc_dispatch_init_4;
    __kmpc_dispatch_init_4u;
    __kmpc_dispatch_init_8;
    __kmpc_dispatch_init_8u;
}
