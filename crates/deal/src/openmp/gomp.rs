//! libgomp's entry points (`libgomp_g.h` of gcc describes them): a loop begins with a `start`, or with its region; each
//! `next` gives a first value and the value at which to stop, and the loop ends when that returns `false`.
//!
//! The memory that the threads of a loop share belongs to libgomp: `GOMP_loop_start` (since gcc 9) gives each loop
//! memory of its own, and frees it when all threads have left, also after `cancel`. Programs with an older libgomp, and
//! programs of gcc that run with libomp, keep their own schedules.

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::ptr::null_mut;

use super::schedule::{Agreed, GetSchedule, Schedule};
use crate::bounds::Bounds;
use crate::loops::{self, Dealt, Loop};
use crate::ranges::{Portion, Share};
use crate::real::{Runtime, Runtimes};
use crate::settings;

pub(super) static RUNTIMES: Runtimes = Runtimes::with(c"GOMP_parallel");

/// `enum gomp_schedule_type`.
pub(super) mod kind {
    use std::ffi::c_long;

    pub const RUNTIME: c_long = 0;
    pub const DYNAMIC: c_long = 2;
    pub const GUIDED: c_long = 3;
    /// `runtime` with the modifier `nonmonotonic`.
    pub const NONMONOTONIC_RUNTIME: c_long = 4;
}

/// A function of libgomp: its number and name.
#[derive(Clone, Copy)]
pub(super) struct Function(pub usize, pub &'static CStr);

const PARALLEL: Function = Function(0, c"GOMP_parallel");
const NUM_THREADS: Function = Function(1, c"omp_get_num_threads");
const THREAD_NUM: Function = Function(2, c"omp_get_thread_num");
const GET_SCHEDULE: Function = Function(3, c"omp_get_schedule");
const START: Function = Function(4, c"GOMP_loop_start");
const START_ULL: Function = Function(5, c"GOMP_loop_ull_start");
const NEXT: Function = Function(6, c"GOMP_loop_runtime_next");
const NEXT_ULL: Function = Function(7, c"GOMP_loop_ull_runtime_next");

type Start = unsafe extern "C-unwind" fn(
    c_long,
    c_long,
    c_long,
    c_long,
    c_long,
    *mut c_long,
    *mut c_long,
    *mut usize,
    *mut *mut c_void,
) -> bool;
type StartUll = unsafe extern "C-unwind" fn(
    bool,
    u64,
    u64,
    u64,
    c_long,
    u64,
    *mut u64,
    *mut u64,
    *mut usize,
    *mut *mut c_void,
) -> bool;
pub(super) type Next = unsafe extern "C-unwind" fn(*mut u64, *mut u64) -> bool;
pub(super) type Body = unsafe extern "C-unwind" fn(*mut c_void);
type Parallel = unsafe extern "C-unwind" fn(Body, *mut c_void, c_uint, c_uint);

impl Function {
    fn find(self, runtime: &Runtime) -> usize {
        runtime.find(self.0, self.1)
    }

    /// Its address. A program that calls it has it.
    pub(super) fn required(self, runtime: &Runtime) -> usize {
        match self.find(runtime) {
            0 => std::process::abort(),
            found => found,
        }
    }

    /// Calls it as a function without arguments that returns a number.
    fn ask(self, runtime: &Runtime) -> c_int {
        // SAFETY: used for such functions alone (`omp_get_...`).
        let real = unsafe {
            std::mem::transmute::<usize, extern "C" fn() -> c_int>(self.required(runtime))
        };
        real()
    }
}

/// A loop as its threads describe it.
#[derive(Clone, Copy)]
pub(super) enum Described {
    /// From `first` while below (above, for a negative step) `end`, by `step`.
    Long(c_long, c_long, c_long),
    /// The same for unsigned values; `up` is the direction.
    Ull(bool, u64, u64, u64),
}

/// A loop and how its iterations are to be handed out.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The loop.
    pub of: Described,
    /// Its schedule, of [`kind`].
    pub kind: c_long,
    /// The chunk that the program asks for.
    pub chunk: u64,
}

/// The first iterations of a thread: first value and end; `None` if there are none for it.
type First = Option<(u64, u64)>;

/// A loop that libgomp has begun.
struct Begun {
    /// Memory that its threads share.
    memory: *mut c_void,
    first: First,
}

impl Wanted {
    fn schedule(&self, runtime: &Runtime) -> Schedule {
        match self.kind {
            kind::DYNAMIC => Schedule::Dealt(Portion::One, self.chunk),
            kind::GUIDED => Schedule::Dealt(Portion::Quarter, self.chunk),
            _ => {
                let get = GET_SCHEDULE.required(runtime);
                // SAFETY: the function of this name has this type.
                unsafe { Schedule::of_runtime(std::mem::transmute::<usize, GetSchedule>(get)) }
            }
        }
    }

    /// Has libgomp begin the loop, with `bytes` of memory that its threads share. Of an unsigned loop it gives its
    /// first iterations at once, which count if the loop is left to libgomp.
    ///
    /// # Safety
    /// The thread begins a loop, and ends it as libgomp expects.
    unsafe fn start(&self, runtime: &Runtime, bytes: usize) -> Begun {
        let (mut memory, mut from, mut to) = (bytes as *mut c_void, 0, 0);
        let mut more = true;
        let place: *mut *mut c_void = match bytes {
            0 => null_mut(),
            _ => &raw mut memory,
        };
        match self.of {
            Described::Long(first, end, step) => {
                // SAFETY: the function of this name has this type.
                let real = unsafe { std::mem::transmute::<usize, Start>(START.required(runtime)) };
                let chunk = c_long::try_from(self.chunk).unwrap_or(c_long::MAX);
                let none = null_mut();
                // SAFETY: as the caller guarantees; without a place for bounds it gives none.
                unsafe {
                    real(
                        first,
                        end,
                        step,
                        self.kind,
                        chunk,
                        none,
                        none,
                        null_mut(),
                        place,
                    )
                };
            }
            Described::Ull(up, first, end, step) => {
                // SAFETY: the function of this name has this type.
                let real =
                    unsafe { std::mem::transmute::<usize, StartUll>(START_ULL.required(runtime)) };
                let (kind, chunk) = (self.kind, self.chunk);
                let (from, to) = (&raw mut from, &raw mut to);
                // SAFETY: as above.
                more = unsafe {
                    real(
                        up,
                        first,
                        end,
                        step,
                        kind,
                        chunk,
                        from,
                        to,
                        null_mut(),
                        place,
                    )
                };
            }
        }
        Begun {
            memory,
            first: more.then_some((from, to)),
        }
    }

    /// The thread, one of several, begins the loop, which `key` identifies. If it is left to libgomp, the first
    /// iterations of an unsigned loop.
    ///
    /// # Safety
    /// As for [`Wanted::start`].
    unsafe fn begin(&self, runtime: &Runtime, threads: u32, key: usize) -> Option<First> {
        let bytes = 2 * size_of::<Share>() + threads as usize * size_of::<Share>();
        // SAFETY: guaranteed by the caller.
        let begun = unsafe { self.start(runtime, bytes) };
        let memory = (begun.memory as usize).next_multiple_of(align_of::<Share>());
        // SAFETY: aligned; all zeroes at first, which is the value of a loop on which nobody has agreed.
        let agreed = unsafe { &*(memory as *const Agreed) };
        let of = match agreed.on(|| self.schedule(runtime)) {
            Schedule::Left => {
                loops::begin(key, Loop::Left);
                return match self.of {
                    Described::Long(..) => None,
                    Described::Ull(..) => Some(begun.first),
                };
            }
            Schedule::Dealt(portion, chunk) => {
                let (bounds, end) = match self.of {
                    Described::Long(first, end, step) => {
                        (Bounds::of_signed(first, end, step), end as u64)
                    }
                    Described::Ull(up, first, end, step) => {
                        (Bounds::of_unsigned(up, first, end, step), end)
                    }
                };
                let dealt = Dealt {
                    shares: (memory + size_of::<Share>()) as *const Share,
                    threads,
                    rank: THREAD_NUM.ask(runtime) as u32,
                    portion,
                    bounds: bounds.in_chunks(chunk),
                    end,
                };
                dealt.begin();
                Loop::Dealt(dealt)
            }
        };
        loops::begin(key, of);
        None
    }
}

/// Whether loops of this run-time system can be dealt.
fn is_known(runtime: &Runtime) -> bool {
    settings::deals() && {
        let start = START_ULL.find(runtime);
        start != 0 && runtime.is_libgomp(start)
    }
}

/// The next iterations of the loop that asks with `first`; `None` if it is not one of ours.
///
/// # Safety
/// As for libgomp's `GOMP_loop_..._next`; `caller` is an address in the caller.
#[inline]
pub(super) unsafe fn next(
    first: *mut u64,
    end: *mut u64,
    is_long: bool,
    caller: usize,
) -> Option<bool> {
    let key = first as usize;
    match loops::asking(key)? {
        Loop::Dealt(dealt) => {
            let Some(parts) = dealt.next(key) else {
                loops::end(key);
                return Some(false);
            };
            let (from, to) = dealt.bounds.open(parts, dealt.end);
            // SAFETY: variables of the caller.
            unsafe {
                first.write(from);
                end.write(to);
            }
            Some(true)
        }
        Loop::Done => {
            loops::end(key);
            Some(false)
        }
        Loop::Left => {
            let function = if is_long { NEXT } else { NEXT_ULL };
            let real = function.required(RUNTIMES.of(caller));
            // SAFETY: the functions of these names have this type, and libgomp has begun the loop.
            let more = unsafe { std::mem::transmute::<usize, Next>(real)(first, end) };
            if !more {
                loops::end(key);
            }
            Some(more)
        }
    }
}

/// A region with a loop, as its threads begin it.
struct Region {
    body: Body,
    data: *mut c_void,
    wanted: Wanted,
    runtime: &'static Runtime,
}

/// A thread of the region: begins the loop before the program's function, which asks for iterations at once.
///
/// # Safety
/// For libgomp: `region` is a [`Region`] that lives until all threads have returned.
unsafe extern "C-unwind" fn enter(region: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    let region = unsafe { &*region.cast::<Region>() };
    let depth = loops::depth();
    let threads = NUM_THREADS.ask(region.runtime) as u32;
    // SAFETY: the program's function ends the loop, in both cases.
    unsafe {
        match threads {
            0 | 1 => {
                region.wanted.start(region.runtime, 0);
                loops::begin(0, Loop::Left);
            }
            _ => {
                region.wanted.begin(region.runtime, threads, 0);
            }
        }
        (region.body)(region.data);
    }
    // A cancelled region leaves its loop without a call.
    loops::cut(depth);
}

/// Starts a region with a loop; `None` if it is to be left to libgomp.
///
/// # Safety
/// As for libgomp's `GOMP_parallel_loop_...`.
pub(super) unsafe fn parallel(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    wanted: Wanted,
    flags: c_uint,
) -> Option<()> {
    let runtime = RUNTIMES.of(body as usize);
    if !is_known(runtime) {
        return None;
    }
    let mut region = Region {
        body,
        data,
        wanted,
        runtime,
    };
    // SAFETY: the function of this name has this type.
    let real = unsafe { std::mem::transmute::<usize, Parallel>(PARALLEL.required(runtime)) };
    // SAFETY: `enter` gets the region, which lives until all threads have returned.
    unsafe { real(enter, (&raw mut region).cast(), threads, flags) };
    Some(())
}

/// Begins a loop and gives the first iterations; `None` if it is left to libgomp.
///
/// # Safety
/// As for libgomp's `GOMP_loop_..._start`.
pub(super) unsafe fn start(
    runtime: &'static Runtime,
    wanted: Wanted,
    from: *mut u64,
    to: *mut u64,
    is_long: bool,
    caller: usize,
) -> Option<bool> {
    let key = from as usize;
    if !settings::deals() {
        return None;
    }
    let threads = NUM_THREADS.ask(runtime) as u32;
    if threads < 2 || !is_known(runtime) {
        loops::forget(key);
        return None;
    }
    // SAFETY: guaranteed by the caller; the variables are its own.
    unsafe {
        let Some(first) = wanted.begin(runtime, threads, key) else {
            return next(from, to, is_long, caller);
        };
        let Some(first) = first else {
            loops::end(key);
            return Some(false);
        };
        from.write(first.0);
        to.write(first.1);
        Some(true)
    }
}

/// The thread begins a loop that only libgomp knows. Returns the address of its function.
pub(super) extern "C-unwind" fn left(is_long: bool, key: usize, caller: usize) -> usize {
    if key != 0 {
        loops::forget(key);
    }
    let function = if is_long { START } else { START_ULL };
    function.required(RUNTIMES.of(caller))
}
