//! libomp's entry points (`kmp_dispatch.cpp` of LLVM describes them): a loop begins with an `init`, each `next` gives
//! inclusive bounds, and the loop ends when that returns 0.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};

use super::libomp::{Function, RUNTIMES, function, named};
use super::schedule::{GetSchedule, Schedule};
use super::team;
use crate::bounds::Bounds;
use crate::loops::{self, Dealt, Loop};
use crate::ranges::Portion;
use crate::real::Runtime;

/// `kmp_sch_dynamic_chunked`, and the forms of guided schedules, of `enum sched_type`.
const DYNAMIC: c_int = 35;
const GUIDED: [c_int; 3] = [36, 42, 43];
/// `kmp_sch_runtime`.
const RUNTIME: c_int = 37;
/// The modifier `nonmonotonic`: threads may get iterations in any order.
const NONMONOTONIC: c_int = 1 << 30;

thread_local! {
    /// Whether the loop that the thread has ended last was dealt.
    static ENDED_DEALT: Cell<bool> = const { Cell::new(false) };
}

/// The schedule of an `init`.
fn wanted(runtime: &Runtime, schedule: c_int, chunk: i64) -> Schedule {
    let chunk = u64::try_from(chunk).unwrap_or(0).max(1);
    match schedule & !NONMONOTONIC {
        _ if schedule & NONMONOTONIC == 0 => Schedule::Left,
        DYNAMIC => Schedule::Dealt(Portion::One, chunk),
        guided if GUIDED.contains(&guided) => Schedule::Dealt(Portion::Quarter, chunk),
        RUNTIME => {
            // SAFETY: the function of this name has this type.
            unsafe {
                let get = function::SCHEDULE.required(runtime);
                Schedule::of_runtime(std::mem::transmute::<usize, GetSchedule>(get))
            }
        }
        _ => Schedule::Left,
    }
}

/// Whether threads may deal loops of that schedule; equal in all threads of a team.
fn is_open(schedule: c_int) -> bool {
    let kind = schedule & !NONMONOTONIC;
    let known = kind == DYNAMIC || kind == RUNTIME || GUIDED.contains(&kind);
    schedule & NONMONOTONIC != 0 && known
}

/// Begins a loop that is dealt; `false` if it is left to the run-time system.
fn begin(runtime: &Runtime, schedule: c_int, bounds: Option<Bounds>, chunk: i64) -> bool {
    let dealt = || {
        let bounds = bounds.filter(|_| is_open(schedule))?;
        let member = team::member()?;
        let place = member.begin()?;
        let Schedule::Dealt(portion, chunk) = place.agreed.on(|| wanted(runtime, schedule, chunk))
        else {
            member.leave();
            return None;
        };
        Some(Dealt {
            shares: member.shares(place).as_ptr(),
            threads: member.threads(),
            rank: member.rank(),
            portion,
            bounds: bounds.in_chunks(chunk),
            end: 0,
        })
    };
    let Some(dealt) = dealt() else {
        loops::begin(0, Loop::Left);
        return false;
    };
    dealt.begin();
    loops::begin(0, Loop::Dealt(dealt));
    true
}

/// Removes the loop of the thread, which has got all its iterations.
fn end(key: usize) {
    loops::end(key);
    ENDED_DEALT.set(true);
    if let Some(member) = team::member() {
        member.leave();
    }
}

/// Ends a loop: called after it by newer compilers, also where it was cancelled.
///
/// # Safety
/// As for libomp's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_dispatch_deinit(location: *const c_void, thread: c_int) {
    if ENDED_DEALT.replace(false) || loops::end_dealt() {
        // The run-time system has not begun it.
        return;
    }
    let real = function::DEINIT.required(RUNTIMES.of(location as usize));
    // SAFETY: libomp's function of this name has this type.
    let real = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_void, c_int)>(real)
    };
    // SAFETY: with the caller's arguments.
    unsafe { real(location, thread) }
}

/// The thread begins a loop that only the run-time system knows. Returns the address of its function.
extern "C-unwind" fn left(number: usize, location: usize) -> usize {
    loops::begin(0, Loop::Left);
    let (number, name) = DISTRIBUTED[number];
    Function(number, name).required(RUNTIMES.of(location))
}

macro_rules! loops_of {
    ($($number:literal $init:ident $next:ident $type:ty, $step:ty;)*) => {
        $(
            /// Begins a loop.
            ///
            /// # Safety
            /// As for libomp's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $init(
                location: *const c_void,
                thread: c_int,
                schedule: c_int,
                first: $type,
                last: $type,
                step: $step,
                chunk: $step,
            ) {
                let runtime = RUNTIMES.of(location as usize);
                let bounds = Bounds::inclusive(first.into(), last.into(), step.into());
                if begin(runtime, schedule, bounds, chunk.into()) {
                    return;
                }
                // SAFETY: libomp's function of this name has this type.
                let real = unsafe {
                    std::mem::transmute::<
                        usize,
                        unsafe extern "C-unwind" fn(
                            *const c_void, c_int, c_int, $type, $type, $step, $step,
                        ),
                    >(Function($number, named(concat!(stringify!($init), "\0"))).required(runtime))
                };
                // SAFETY: with the caller's arguments.
                unsafe { real(location, thread, schedule, first, last, step, chunk) }
            }

            /// Gives the next iterations.
            ///
            /// # Safety
            /// As for libomp's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $next(
                location: *const c_void,
                thread: c_int,
                is_last: *mut c_int,
                first: *mut $type,
                last: *mut $type,
                step: *mut $step,
            ) -> c_int {
                let key = first as usize;
                let asking = loops::asking(key);
                if matches!(asking, Some(Loop::Done)) {
                    end(key);
                    return 0;
                }
                if let Some(Loop::Dealt(dealt)) = asking {
                    let Some(parts) = dealt.next(key) else {
                        end(key);
                        return 0;
                    };
                    let (from, to, whole) = dealt.bounds.closed(parts);
                    // SAFETY: variables of the caller; the first two are required.
                    unsafe {
                        first.write(from as $type);
                        last.write(to as $type);
                        // A thread that has had the last iteration may get earlier ones after it.
                        if whole && !is_last.is_null() {
                            is_last.write(1);
                        }
                        if !step.is_null() {
                            step.write(dealt.bounds.step() as $step);
                        }
                    }
                    return 1;
                }
                let runtime = RUNTIMES.of(location as usize);
                // SAFETY: libomp's function of this name has this type.
                let real = unsafe {
                    std::mem::transmute::<
                        usize,
                        unsafe extern "C-unwind" fn(
                            *const c_void, c_int, *mut c_int, *mut $type, *mut $type, *mut $step,
                        ) -> c_int,
                    >(Function($number + 1, named(concat!(stringify!($next), "\0"))).required(runtime))
                };
                // SAFETY: with the caller's arguments.
                let more = unsafe { real(location, thread, is_last, first, last, step) };
                if more == 0 {
                    loops::end(key);
                    ENDED_DEALT.set(false);
                }
                more
            }
        )*
    };
}

loops_of! {
    10 __kmpc_dispatch_init_4 __kmpc_dispatch_next_4 i32, i32;
    12 __kmpc_dispatch_init_4u __kmpc_dispatch_next_4u u32, i32;
    14 __kmpc_dispatch_init_8 __kmpc_dispatch_next_8 i64, i64;
    16 __kmpc_dispatch_init_8u __kmpc_dispatch_next_8u u64, i64;
}

/// Loops of `distribute`: `__kmpc_dispatch_next_...` continues them too.
macro_rules! distributed {
    ($($at:literal $number:literal $name:ident;)*) => {
        const DISTRIBUTED: &[(usize, &CStr)] =
            &[$(($number, named(concat!(stringify!($name), "\0"))),)*];

        $(
            /// Begins a loop that is left to the run-time system.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $name() {
                continue_where!(
                    left,
                    "mov rsi, rdi",
                    concat!("mov edi, ", stringify!($at)),
                )
            }
        )*
    };
}

distributed! {
    0 6 __kmpc_dist_dispatch_init_4;
    1 7 __kmpc_dist_dispatch_init_4u;
    2 8 __kmpc_dist_dispatch_init_8;
    3 9 __kmpc_dist_dispatch_init_8u;
}
