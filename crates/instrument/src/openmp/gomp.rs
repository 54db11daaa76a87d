//! libgomp's entry points for OpenMP's regions, barriers and locks, which move the virtual clock.
//!
//! A region's function runs through [`region`]. Tasks are in [`crate::openmp::gomp_tasks`]; libomp's entry points are
//! in [`crate::openmp::kmpc`]. Both libraries share the locks here.

use std::ffi::{c_int, c_long, c_uint, c_void};

use crate::clocks::{acquire, release};
use crate::marks;
use crate::openmp::sharing::hands_out;
use crate::openmp::team::{self, Region, at};
use crate::real::real;

pub(crate) type Body = unsafe extern "C-unwind" fn(*mut c_void);

/// A parallel region and the program's function for it.
#[repr(C)]
struct Call {
    /// Description of the reductions, which libgomp reads: the first word of the data of a region with task
    /// reductions.
    reductions: usize,
    region: Region,
    body: Body,
    data: *mut c_void,
}

unsafe extern "C-unwind" fn region(argument: *mut c_void) {
    // SAFETY: `enter` passes a Call that outlives the real call, which returns only when all threads are done.
    let call = unsafe { &*argument.cast::<Call>() };
    // SAFETY: the program's own function and data.
    call.region.work(|| unsafe { (call.body)(call.data) });
}

/// Runs `call` with a region around the program's function.
fn enter(body: Body, data: *mut c_void, reductions: usize, call: impl FnOnce(Body, *mut c_void)) {
    let ours = Call {
        reductions,
        region: Region::new(),
        body,
        data,
    };
    ours.region
        .enter(|| call(region, std::ptr::from_ref(&ours).cast_mut().cast()));
}

/// Entry points that run a region: function and data first, then arguments for libgomp alone.
macro_rules! regions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Runs a parallel region.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(body: Body, data: *mut c_void, $($argument: $type),*) {
            let real = real!($name: fn(Body, *mut c_void, $($type),*));
            hands_out!($name);
            marks::region(stringify!($name), body as usize as u64);
            // SAFETY: guaranteed by the caller, with our function in place of the program's.
            enter(body, data, 0, |body, data| unsafe { real(body, data, $($argument),*) });
        }
    )*};
}

regions! {
    GOMP_parallel(threads: c_uint, flags: c_uint);
    GOMP_parallel_sections(threads: c_uint, count: c_uint, flags: c_uint);
    GOMP_parallel_loop_static(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_dynamic(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_guided(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_dynamic(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_guided(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_maybe_nonmonotonic_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
}

/// Runs a parallel region with task reductions.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel_reductions(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) -> c_uint {
    let real = real!(GOMP_parallel_reductions: fn(Body, *mut c_void, c_uint, c_uint) -> c_uint);
    marks::region("GOMP_parallel_reductions", body as usize as u64);
    let mut team = 0;
    // SAFETY: guaranteed by the caller, with our function in place of the program's; the data begins with the address
    // of the reductions' description, which libgomp reads.
    unsafe {
        let reductions = data.cast::<usize>().read();
        enter(body, data, reductions, |body, data| {
            team = real(body, data, threads, flags);
        });
    }
    team
}

/// Ends a construct's task reductions: waits for the team unless it was cancelled.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_workshare_task_reduction_unregister(cancelled: bool) {
    let real = real!(GOMP_workshare_task_reduction_unregister: fn(bool));
    // SAFETY: guaranteed by the caller.
    team::barrier(|| unsafe { real(cancelled) });
}

macro_rules! barriers {
    ($($name:ident $(-> $result:ty)?;)*) => {$(
        /// Waits for the team.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() $(-> $result)? {
            let real = real!($name: fn() $(-> $result)?);
            marks::barrier(stringify!($name));
            // SAFETY: guaranteed by the caller.
            team::barrier(|| unsafe { real() })
        }
    )*};
}

barriers! {
    GOMP_barrier;
    GOMP_barrier_cancel -> bool;
    GOMP_loop_end;
    GOMP_loop_end_cancel -> bool;
    GOMP_sections_end;
    GOMP_sections_end_cancel -> bool;
}

/// Returns null if the calling thread is to execute the `single` block; the others wait here for the data it passes to
/// them.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_single_copy_start() -> *mut c_void {
    let real = real!(GOMP_single_copy_start: fn() -> *mut c_void);
    team::arrive();
    // SAFETY: guaranteed by the caller.
    let handed = unsafe { real() };
    if !handed.is_null() {
        team::leave();
    }
    handed
}

/// Passes the data of the `single` block to the other threads.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_single_copy_end(data: *mut c_void) {
    let real = real!(GOMP_single_copy_end: fn(*mut c_void));
    // SAFETY: guaranteed by the caller.
    team::barrier(|| unsafe { real(data) });
}

/// Waits until the previous iteration's ordered part has ended.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_ordered_start() {
    let real = real!(GOMP_ordered_start: fn());
    // SAFETY: guaranteed by the caller.
    unsafe { real() };
    team::begin_ordered();
}

/// Ends the ordered part of an iteration.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_ordered_end() {
    let real = real!(GOMP_ordered_end: fn());
    team::end_ordered();
    // SAFETY: guaranteed by the caller.
    unsafe { real() };
}

/// One address for all unnamed critical sections, and one for all fallback atomics.
static UNNAMED: [u64; 16] = [0; 16];

macro_rules! unnamed {
    ($($start:ident, $end:ident, $cell:literal;)*) => {$(
        /// Enters the section.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $start() {
            let real = real!($start: fn());
            // SAFETY: guaranteed by the caller.
            unsafe { real() };
            acquire(at(&UNNAMED[$cell]));
        }

        /// Leaves the section.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $end() {
            let real = real!($end: fn());
            release(at(&UNNAMED[$cell]));
            // SAFETY: guaranteed by the caller.
            unsafe { real() };
        }
    )*};
}

unnamed! {
    GOMP_critical_start, GOMP_critical_end, 0;
    GOMP_atomic_start, GOMP_atomic_end, 8;
}

macro_rules! locks {
    ($($lock:ident, $unlock:ident;)*) => {$(
        /// Acquires a lock.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $lock(lock: *mut c_void) {
            let real = real!($lock: fn(*mut c_void));
            // SAFETY: guaranteed by the caller.
            unsafe { real(lock) };
            acquire(lock as u64);
        }

        /// Releases a lock.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $unlock(lock: *mut c_void) {
            let real = real!($unlock: fn(*mut c_void));
            release(lock as u64);
            // SAFETY: guaranteed by the caller.
            unsafe { real(lock) };
        }
    )*};
}

locks! {
    GOMP_critical_name_start, GOMP_critical_name_end;
    omp_set_lock, omp_unset_lock;
    omp_set_nest_lock, omp_unset_nest_lock;
    omp_set_lock_, omp_unset_lock_;
    omp_set_nest_lock_, omp_unset_nest_lock_;
}

macro_rules! tried_locks {
    ($($name:ident;)*) => {$(
        /// Tries to acquire a lock.
        ///
        /// # Safety
        /// As the real one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(lock: *mut c_void) -> c_int {
            let real = real!($name: fn(*mut c_void) -> c_int);
            // SAFETY: guaranteed by the caller.
            let taken = unsafe { real(lock) };
            if taken != 0 {
                acquire(lock as u64);
            }
            taken
        }
    )*};
}

tried_locks! {
    omp_test_lock;
    omp_test_nest_lock;
    omp_test_lock_;
    omp_test_nest_lock_;
}
