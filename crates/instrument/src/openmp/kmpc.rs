//! libomp's entry points (LLVM's, also used by Intel's compilers), which move the virtual clock: the calls of clang,
//! flang and icx for OpenMP's regions, barriers, reductions and locks. Tasks are in [`crate::openmp::kmpc_tasks`].
//!
//! `__kmpc_fork_call` takes any number of arguments and passes them to the program's function in each thread. We pass
//! libomp a single one, a [`Call`], and [`region`] passes the program's function its own arguments, which stay in the
//! caller's memory until the call returns.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null;

use crate::clocks::{acquire, release};
use crate::marks;
use crate::openmp::doacross;
use crate::openmp::ident::Ident;
use crate::openmp::team::{self, Region};
use crate::openmp::variadic::{self, begin_frame, end_frame, pass_on};
use crate::real::{real, real_address};

/// A region's function: pointers to the thread's numbers, then the arguments of the call.
type Micro = variadic::Function;
/// Type of our own region function.
type Fixed = unsafe extern "C-unwind" fn(*mut c_int, *mut c_int, *const Call);
/// Combines one thread's part of a reduction with another's.
type Combine = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// Number of registers with arguments of `__kmpc_fork_call` after its first three.
const IN_REGISTERS: usize = 3;

/// A parallel region and the program's function for it, with arguments.
struct Call {
    region: Region,
    micro: Micro,
    count: usize,
    /// The arguments: those from registers, then the others.
    first: *const [usize; IN_REGISTERS],
    rest: *const usize,
}

unsafe extern "C-unwind" fn region(thread: *mut c_int, bound: *mut c_int, call: *const Call) {
    // SAFETY: `enter` passes a Call that outlives the real call, which returns only when all threads are done.
    let call = unsafe { &*call };
    // SAFETY: the program's own function and arguments.
    call.region.work(|| unsafe {
        pass_on(call.micro, thread, bound, call.first, call.rest, call.count);
    });
}

/// `pub fn $name(place, count, micro, ...)`: stores the arguments from registers, so that all are in memory, and
/// continues in `$enter`.
macro_rules! forks {
    ($($name:ident: $enter:ident;)*) => {$(
        /// Runs a function with the arguments that follow it in each thread of a team.
        ///
        /// # Safety
        /// As libomp's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(ident: Ident, count: c_int, micro: Micro) {
            std::arch::naked_asm!(
                begin_frame!(),
                "sub rsp, 32",
                "mov qword ptr [rsp], rcx",
                "mov qword ptr [rsp + 8], r8",
                "mov qword ptr [rsp + 16], r9",
                "mov rcx, rsp",
                "lea r8, [rbp + 16]",
                "call {enter}",
                end_frame!(),
                enter = sym $enter,
            )
        }

        unsafe extern "C-unwind" fn $enter(
            ident: Ident,
            count: c_int,
            micro: Micro,
            first: *const [usize; IN_REGISTERS],
            rest: *const usize,
        ) {
            type Fork = unsafe extern "C-unwind" fn(Ident, c_int, Micro, ...);
            let found = real_address!($name);
            marks::region(stringify!($name), micro as usize as u64);
            let call = Call {
                region: Region::new(),
                micro,
                count: count.max(0) as usize,
                first,
                rest,
            };
            // SAFETY: libomp's function of that name; `region` is called with the two numbers and the one
            // argument given here.
            unsafe {
                let real = std::mem::transmute::<usize, Fork>(found);
                let ours = std::mem::transmute::<Fixed, Micro>(region);
                call.region.enter(|| real(ident, 1, ours, &raw const call));
            }
        }
    )*};
}

forks! {
    __kmpc_fork_call: enter;
    __kmpc_fork_teams: enter_teams;
}

/// Runs a function in each thread of a team, with one argument unless that is null; in the calling thread alone if
/// `condition` is 0. In libomp since LLVM 16.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_fork_call_if(
    ident: Ident,
    _count: c_int,
    micro: Micro,
    condition: c_int,
    argument: *mut c_void,
) {
    let real = real!(__kmpc_fork_call_if: fn(Ident, c_int, Fixed, c_int, *const Call));
    marks::region("__kmpc_fork_call_if", micro as usize as u64);
    let first = [argument as usize, 0, 0];
    let call = Call {
        region: Region::new(),
        micro,
        count: usize::from(!argument.is_null()),
        first: &raw const first,
        rest: null(),
    };
    // SAFETY: guaranteed by the caller; `region` is called with the two numbers and the one argument given here.
    call.region
        .enter(|| unsafe { real(ident, 1, region, condition, &raw const call) });
}

macro_rules! wrap {
    ($($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?: $how:expr;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As libomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            let real = real!($name: fn($($type),*) $(-> $result)?);
            // SAFETY: guaranteed by the caller.
            let real = || team::inside(|| unsafe { real($($argument),*) });
            let how: fn(&dyn Fn() $(-> $result)?, &[u64]) $(-> $result)? = $how;
            how(&real, &[$($argument as u64),*])
        }
    )*};
}

wrap! {
    /// Begins a region of one thread.
    __kmpc_serialized_parallel(ident: Ident, thread: c_int): |real, _| {
        team::begin_alone();
        real();
    };
    /// Ends a region of one thread.
    __kmpc_end_serialized_parallel(ident: Ident, thread: c_int): |real, _| {
        real();
        team::end_alone();
    };
    /// Waits for the team.
    __kmpc_barrier(ident: Ident, thread: c_int): |real, _| {
        marks::barrier("__kmpc_barrier");
        team::barrier(real);
    };
    /// Waits for the team, or until the region is cancelled.
    __kmpc_cancel_barrier(ident: Ident, thread: c_int) -> c_int: |real, _| team::barrier(real);
    /// Passes data of one thread to the team.
    __kmpc_copyprivate(ident: Ident, thread: c_int, size: usize, data: *mut c_void, copy: *mut c_void, did: c_int):
        |real, _| team::barrier(real);
    /// Waits until the previous iteration's ordered part has ended.
    __kmpc_ordered(ident: Ident, thread: c_int): |real, _| {
        real();
        team::begin_ordered();
    };
    /// Ends the ordered part of an iteration.
    __kmpc_end_ordered(ident: Ident, thread: c_int): |real, _| {
        team::end_ordered();
        real();
    };
    /// Begins a loop whose iterations wait for others.
    __kmpc_doacross_init(ident: Ident, thread: c_int, depth: c_int, bounds: *const c_void): |real, arguments| {
        doacross::begin(arguments[2] as u32);
        real();
    };
    /// Called when an iteration reaches its source.
    __kmpc_doacross_post(ident: Ident, thread: c_int, numbers: *const u64): |real, arguments| {
        // SAFETY: guaranteed by the caller.
        unsafe { doacross::post(arguments[2] as *const u64) };
        real();
    };
    /// Waits until an iteration has reached its source.
    __kmpc_doacross_wait(ident: Ident, thread: c_int, numbers: *const u64): |real, arguments| {
        real();
        // SAFETY: guaranteed by the caller.
        unsafe { doacross::waited(arguments[2] as *const u64) };
    };
    /// Enters a critical section.
    __kmpc_critical(ident: Ident, thread: c_int, name: *mut c_void): acquires;
    /// Enters a critical section, with a hint.
    __kmpc_critical_with_hint(ident: Ident, thread: c_int, name: *mut c_void, hint: c_uint): acquires;
    /// Leaves a critical section.
    __kmpc_end_critical(ident: Ident, thread: c_int, name: *mut c_void): releases;
    /// Acquires a lock.
    __kmpc_set_lock(ident: Ident, thread: c_int, lock: *mut c_void): acquires;
    /// Acquires a lock, possibly again.
    __kmpc_set_nest_lock(ident: Ident, thread: c_int, lock: *mut c_void): acquires;
    /// Releases a lock.
    __kmpc_unset_lock(ident: Ident, thread: c_int, lock: *mut c_void): releases;
    /// Releases a lock, possibly not for the last time.
    __kmpc_unset_nest_lock(ident: Ident, thread: c_int, lock: *mut c_void): releases;
    /// Tries to acquire a lock.
    __kmpc_test_lock(ident: Ident, thread: c_int, lock: *mut c_void) -> c_int: try_acquires;
    /// Tries to acquire a lock, possibly again.
    __kmpc_test_nest_lock(ident: Ident, thread: c_int, lock: *mut c_void) -> c_int: try_acquires;
    /// Ends a reduction without a barrier.
    __kmpc_end_reduce_nowait(ident: Ident, thread: c_int, lock: *mut c_void): releases;
    /// Ends a reduction with a barrier.
    __kmpc_end_reduce(ident: Ident, thread: c_int, lock: *mut c_void): |real, arguments| {
        release(arguments[2]);
        team::barrier(real);
    };
}

/// Calls `real`, which acquires the lock in the third argument.
fn acquires(real: &dyn Fn(), arguments: &[u64]) {
    real();
    acquire(arguments[2]);
}

/// Calls `real`, which releases the lock in the third argument.
fn releases(real: &dyn Fn(), arguments: &[u64]) {
    release(arguments[2]);
    real();
}

/// Calls `real`, which returns whether it has acquired the lock in the third argument.
fn try_acquires(real: &dyn Fn() -> c_int, arguments: &[u64]) -> c_int {
    let taken = real();
    if taken != 0 {
        acquire(arguments[2]);
    }
    taken
}

thread_local! {
    /// The combining function of the calling thread's present reduction.
    static COMBINE: Cell<Option<Combine>> = const { Cell::new(None) };
}

/// Combines the calling thread's part with another's.
unsafe extern "C-unwind" fn combine(ours: *mut c_void, theirs: *mut c_void) {
    acquire(theirs as u64);
    if let Some(combine) = COMBINE.get() {
        // SAFETY: the program's own function, called as libomp does.
        team::outside(|| unsafe { combine(ours, theirs) });
    }
    release(ours as u64);
}

macro_rules! reductions {
    ($($(#[$about:meta])* $name:ident: $waits:literal;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As libomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            ident: Ident,
            thread: c_int,
            count: c_int,
            size: usize,
            data: *mut c_void,
            function: Option<Combine>,
            lock: *mut c_void,
        ) -> c_int {
            let real = real!($name: fn(Ident, c_int, c_int, usize, *mut c_void, Option<Combine>, *mut c_void) -> c_int);
            release(data as u64);
            if $waits {
                team::arrive();
            }
            let outer = COMBINE.replace(function);
            // SAFETY: guaranteed by the caller, with our function in place of the program's.
            let how = team::inside(|| unsafe { real(ident, thread, count, size, data, function.map(|_| combine as Combine), lock) });
            COMBINE.set(outer);
            match how {
                // Another thread has combined all parts; with a barrier, the calling thread has waited for it.
                0 if $waits => team::leave(),
                // The calling thread must add its part, or the parts of all, under the lock.
                1 => acquire(lock as u64),
                // The calling thread must add its part with atomic instructions.
                _ => {}
            }
            how
        }
    )*};
}

reductions! {
    /// Begins a reduction: returns what the calling thread must do with its part.
    __kmpc_reduce: true;
    /// Begins a reduction without a barrier.
    __kmpc_reduce_nowait: false;
}
