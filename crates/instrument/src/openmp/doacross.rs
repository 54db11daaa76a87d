//! Virtual time of loops with `ordered(n)`, whose iterations wait for others by `depend(sink)`, and libgomp's entry
//! points for them; libomp's are in [`crate::openmp::kmpc`].
//!
//! At its `depend(source)` an iteration leaves the clock at a token of its own, found by a hash of region, loop and
//! iteration, where those that wait for it take it. If two iterations share a token, one may continue later than
//! necessary.

use std::ffi::{c_int, c_uint};
use std::slice;

use crate::clocks::{acquire, release};
use crate::openmp::sharing::hands_out;
use crate::openmp::team::{self, tokens_of};
use crate::openmp::variadic::{Function, begin_frame, end_frame, pass_on};
use crate::real::{real, real_address};

/// Most nested loops; no program has as many.
const MOST: usize = 256;

/// Begins a loop nest of `depth` on the calling thread.
pub(crate) fn begin(depth: u32) {
    let mut place = team::place();
    place.ordered_loop.number = place.ordered_loop.number.wrapping_add(1);
    place.ordered_loop.depth = depth;
    team::go_to(place);
}

/// Number of numbers that identify an iteration, if known.
fn depth() -> Option<usize> {
    let depth = team::place().ordered_loop.depth as usize;
    (1..=MOST).contains(&depth).then_some(depth)
}

/// The token for an iteration of the calling thread's loop.
fn token(iteration: &[u64]) -> u64 {
    let place = team::place();
    let first = (place.region as u64).wrapping_add(u64::from(place.ordered_loop.number));
    let mix = |hash: u64, number: &u64| {
        (hash ^ number)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(29)
    };
    tokens_of(iteration.iter().fold(first, mix))[0]
}

/// # Safety
/// `numbers` points to those of an iteration of the calling thread's loop.
unsafe fn token_at(numbers: *const u64) -> Option<u64> {
    // SAFETY: guaranteed by the caller.
    depth().map(|depth| token(unsafe { slice::from_raw_parts(numbers, depth) }))
}

/// Records that the iteration with these numbers has reached its source.
///
/// # Safety
/// As for `token_at`.
pub(crate) unsafe fn post(numbers: *const u64) {
    // SAFETY: guaranteed by the caller.
    if let Some(token) = unsafe { token_at(numbers) } {
        release(token);
    }
}

/// Records that the calling thread has waited for the iteration with these numbers.
///
/// # Safety
/// As for `token_at`.
pub(crate) unsafe fn waited(numbers: *const u64) {
    // SAFETY: guaranteed by the caller.
    if let Some(token) = unsafe { token_at(numbers) } {
        acquire(token);
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
        pub unsafe extern "C-unwind" fn $name(depth: c_uint, $($argument: usize),*) -> bool {
            let real = real!($name: fn(c_uint, $(starts!(@word $argument)),*) -> bool);
            begin(depth);
            hands_out!($name);
            // SAFETY: guaranteed by the caller; all further arguments are words.
            unsafe { real(depth, $($argument),*) }
        }
    )*};
    (@word $argument:ident) => { usize };
}

starts! {
    GOMP_loop_doacross_start(counts, schedule, chunk, start, end, reductions, memory);
    GOMP_loop_doacross_static_start(counts, chunk, start, end);
    GOMP_loop_doacross_dynamic_start(counts, chunk, start, end);
    GOMP_loop_doacross_guided_start(counts, chunk, start, end);
    GOMP_loop_doacross_runtime_start(counts, start, end);
    GOMP_loop_ull_doacross_start(counts, schedule, chunk, start, end, reductions, memory);
    GOMP_loop_ull_doacross_static_start(counts, chunk, start, end);
    GOMP_loop_ull_doacross_dynamic_start(counts, chunk, start, end);
    GOMP_loop_ull_doacross_guided_start(counts, chunk, start, end);
    GOMP_loop_ull_doacross_runtime_start(counts, start, end);
}

macro_rules! posts {
    ($($name:ident;)*) => {$(
        /// Called when an iteration reaches its source.
        ///
        /// # Safety
        /// As libgomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(numbers: *const u64) {
            let real = real!($name: fn(*const u64));
            // SAFETY: guaranteed by the caller.
            unsafe {
                post(numbers);
                real(numbers);
            }
        }
    )*};
}

posts! {
    GOMP_doacross_post;
    GOMP_doacross_ull_post;
}

/// Number of registers that hold arguments.
const IN_REGISTERS: usize = 6;

/// Waits for an iteration by calling `real` with its numbers: six at `first`, the others at `rest`.
unsafe fn wait(real: usize, first: *const [u64; IN_REGISTERS], rest: *const u64) {
    let depth = depth().unwrap_or(IN_REGISTERS);
    let mut all;
    let mut numbers: *const u64 = first.cast();
    // SAFETY: the caller has passed as many numbers; the function takes them as words and reads no more.
    unsafe {
        if depth > IN_REGISTERS {
            let on_stack = slice::from_raw_parts(rest, depth - IN_REGISTERS);
            all = [0; MOST];
            all[..IN_REGISTERS].copy_from_slice(&*first);
            all[IN_REGISTERS..depth].copy_from_slice(on_stack);
            numbers = all.as_ptr();
        }
        pass_on(
            std::mem::transmute::<usize, Function>(real),
            *numbers as *mut c_int,
            *numbers.add(1) as *mut c_int,
            numbers.add(2).cast(),
            numbers.add(5).cast(),
            depth.saturating_sub(2),
        );
        waited(numbers);
    }
}

/// `pub fn $name(number, ...)`: stores the arguments from registers and continues in `$enter`.
macro_rules! waits {
    ($($name:ident: $enter:ident;)*) => {$(
        /// Waits until an iteration has reached its source.
        ///
        /// # Safety
        /// As libgomp's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(number: u64) {
            std::arch::naked_asm!(
                begin_frame!(),
                "sub rsp, 48",
                "mov qword ptr [rsp], rdi",
                "mov qword ptr [rsp + 8], rsi",
                "mov qword ptr [rsp + 16], rdx",
                "mov qword ptr [rsp + 24], rcx",
                "mov qword ptr [rsp + 32], r8",
                "mov qword ptr [rsp + 40], r9",
                "mov rdi, rsp",
                "lea rsi, [rbp + 16]",
                "call {enter}",
                end_frame!(),
                enter = sym $enter,
            )
        }

        unsafe extern "C-unwind" fn $enter(first: *const [u64; IN_REGISTERS], rest: *const u64) {
            // SAFETY: libgomp's function of that name, and the arguments of its caller.
            unsafe { wait(real_address!($name), first, rest) };
        }
    )*};
}

waits! {
    GOMP_doacross_wait: enter_wait;
    GOMP_doacross_ull_wait: enter_ull_wait;
}
