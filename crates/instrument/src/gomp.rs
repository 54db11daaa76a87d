//! libgomp's entry points: regions, barriers and locks of OpenMP, told to the virtual clock.
//!
//! A region's function runs through [`region`], which takes the clock the master left at the start and
//! leaves its own at the end. Explicit tasks run wherever libgomp puts them; their accesses count for
//! the thread that runs them, and their start is not joined to their creator.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr::null;

use crate::real::real;
use crate::sync::{acquire, release};

type Body = unsafe extern "C-unwind" fn(*mut c_void);

/// One parallel region; its clocks lie in the table's entries of four lines of their own.
#[repr(C, align(64))]
struct Region {
    start: [u8; 64],
    barrier: [[u8; 64]; 2],
    end: [u8; 64],
    body: Body,
    data: *mut c_void,
}

impl Region {
    fn new(body: Body, data: *mut c_void) -> Self {
        Self {
            start: [0; 64],
            barrier: [[0; 64]; 2],
            end: [0; 64],
            body,
            data,
        }
    }
}

thread_local! {
    /// The region this thread works in, and how many barriers it has passed there.
    static TEAM: Cell<(*const Region, usize)> = const { Cell::new((null(), 0)) };
}

fn at<T>(token: &T) -> u64 {
    std::ptr::from_ref(token) as u64
}

unsafe extern "C-unwind" fn region(argument: *mut c_void) {
    // SAFETY: `enter` passes a Region that outlives the real call, which returns only when all are done.
    let region = unsafe { &*argument.cast::<Region>() };
    let outer = TEAM.replace((region, 0));
    acquire(at(&region.start));
    // SAFETY: the program's own function and data.
    unsafe { (region.body)(region.data) };
    release(at(&region.end));
    TEAM.set(outer);
}

/// Runs `call` with a region around the program's function.
fn enter(body: Body, data: *mut c_void, call: impl FnOnce(Body, *mut c_void)) {
    let team = Region::new(body, data);
    release(at(&team.start));
    call(region, std::ptr::from_ref(&team).cast_mut().cast());
    acquire(at(&team.end));
}

/// Entry points that run a region: function and data first, then what only libgomp reads.
macro_rules! regions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Runs a parallel region.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(body: Body, data: *mut c_void, $($argument: $type),*) {
            let real = real!($name: fn(Body, *mut c_void, $($type),*));
            // SAFETY: the caller's promises, with our function in front of the program's.
            enter(body, data, |body, data| unsafe { real(body, data, $($argument),*) });
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

/// Runs `wait` as a barrier of the calling thread's team.
fn barrier(wait: impl FnOnce()) {
    let (team, passed) = TEAM.get();
    // SAFETY: a thread leaves its region before the Region does.
    let Some(region) = (unsafe { team.as_ref() }) else {
        return wait();
    };
    TEAM.set((team, passed + 1));
    // Alternate tokens: a fast thread's next arrival is not taken for this one.
    let token = at(&region.barrier[passed % 2]);
    release(token);
    wait();
    acquire(token);
}

macro_rules! barriers {
    ($($name:ident;)*) => {$(
        /// Waits for the team.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            let real = real!($name: fn());
            // SAFETY: the caller's promises.
            barrier(|| unsafe { real() });
        }
    )*};
}

barriers! {
    GOMP_barrier;
    GOMP_loop_end;
    GOMP_sections_end;
}

/// One address for all unnamed critical sections, one for all fallback atomics.
static UNNAMED: [u64; 16] = [0; 16];

macro_rules! unnamed {
    ($($start:ident, $end:ident, $cell:literal;)*) => {$(
        /// Enters.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $start() {
            let real = real!($start: fn());
            // SAFETY: the caller's promises.
            unsafe { real() };
            acquire(at(&UNNAMED[$cell]));
        }

        /// Leaves.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $end() {
            let real = real!($end: fn());
            release(at(&UNNAMED[$cell]));
            // SAFETY: the caller's promises.
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
        /// Takes a lock.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $lock(lock: *mut c_void) {
            let real = real!($lock: fn(*mut c_void));
            // SAFETY: the caller's promises.
            unsafe { real(lock) };
            acquire(lock as u64);
        }

        /// Gives a lock back.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $unlock(lock: *mut c_void) {
            let real = real!($unlock: fn(*mut c_void));
            release(lock as u64);
            // SAFETY: the caller's promises.
            unsafe { real(lock) };
        }
    )*};
}

locks! {
    GOMP_critical_name_start, GOMP_critical_name_end;
    omp_set_lock, omp_unset_lock;
    omp_set_nest_lock, omp_unset_nest_lock;
}

/// Tries a lock.
///
/// # Safety
/// As libgomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_test_lock(lock: *mut c_void) -> c_int {
    let real = real!(omp_test_lock: fn(*mut c_void) -> c_int);
    // SAFETY: the caller's promises.
    let taken = unsafe { real(lock) };
    if taken != 0 {
        acquire(lock as u64);
    }
    taken
}
