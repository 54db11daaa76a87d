//! libgomp's entry points, by the shape of their arguments. Each gets an address in its caller, by which the run-time
//! system is found that the call is meant for: the return address, or the function of a region.

use std::ffi::{CStr, c_long, c_uint, c_void};

use super::gomp::{
    Body, Described, Function, Next, RUNTIMES, Wanted, kind, left, next, parallel, start,
};

/// A name as a C string.
const fn named(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The function of libgomp whose name is that of the function with this number.
macro_rules! real {
    ($number:literal $name:ident $runtime:expr, $type:ty) => {{
        const REAL: Function = Function($number, named(concat!(stringify!($name), "\0")));
        // SAFETY: the function of this name has this type.
        unsafe { std::mem::transmute::<usize, $type>(REAL.required($runtime)) }
    }};
}

/// Calls `$inner` with the return address as one more argument in a register.
macro_rules! with_caller {
    ($name:ident $register:literal $inner:ident) => {
        /// An entry point; see the module.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $register, ", qword ptr [rsp]"),
                "jmp {inner}",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// Calls `$inner` with the return address as the seventh argument, which is on the stack.
macro_rules! with_seventh {
    ($name:ident $inner:ident) => {
        /// An entry point; see the module.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push qword ptr [rsp]",
                ".cfi_def_cfa_offset 16",
                "call {inner}",
                "add rsp, 8",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// Calls `$inner` with the return address as the eighth argument; the seventh is the caller's.
macro_rules! with_eighth {
    ($name:ident $inner:ident) => {
        /// An entry point; see the module.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 8",
                "push qword ptr [rsp + 8]",
                "push qword ptr [rsp + 24]",
                ".cfi_def_cfa_offset 32",
                "call {inner}",
                "add rsp, 24",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// `start` of a loop whose schedule is in the program.
macro_rules! starts {
    ($($number:literal $name:ident $inner:ident $kind:ident;)*) => {
        $(
            with_seventh!($name $inner);

            unsafe extern "C-unwind" fn $inner(
                first: c_long,
                end: c_long,
                step: c_long,
                chunk: c_long,
                from: *mut u64,
                to: *mut u64,
                caller: usize,
            ) -> bool {
                let runtime = RUNTIMES.of(caller);
                let chunk_of = u64::try_from(chunk).unwrap_or(1);
                let of = Described::Long(first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk: chunk_of };
                // SAFETY: guaranteed by the caller.
                if let Some(more) = unsafe { start(runtime, wanted, from, to, true, caller) } {
                    return more;
                }
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    c_long, c_long, c_long, c_long, *mut u64, *mut u64,
                ) -> bool);
                // SAFETY: with the caller's arguments.
                unsafe { real(first, end, step, chunk, from, to) }
            }
        )*
    };
}

/// `start` of a loop whose schedule is set outside of the program.
macro_rules! runtime_starts {
    ($($number:literal $name:ident $inner:ident $kind:ident;)*) => {
        $(
            with_caller!($name "r9" $inner);

            unsafe extern "C-unwind" fn $inner(
                first: c_long,
                end: c_long,
                step: c_long,
                from: *mut u64,
                to: *mut u64,
                caller: usize,
            ) -> bool {
                let runtime = RUNTIMES.of(caller);
                let of = Described::Long(first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk: 0 };
                // SAFETY: guaranteed by the caller.
                if let Some(more) = unsafe { start(runtime, wanted, from, to, true, caller) } {
                    return more;
                }
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    c_long, c_long, c_long, *mut u64, *mut u64,
                ) -> bool);
                // SAFETY: with the caller's arguments.
                unsafe { real(first, end, step, from, to) }
            }
        )*
    };
}

/// As `starts`, of unsigned values.
macro_rules! ull_starts {
    ($($number:literal $name:ident $inner:ident $kind:ident;)*) => {
        $(
            with_eighth!($name $inner);

            unsafe extern "C-unwind" fn $inner(
                up: bool,
                first: u64,
                end: u64,
                step: u64,
                chunk: u64,
                from: *mut u64,
                to: *mut u64,
                caller: usize,
            ) -> bool {
                let runtime = RUNTIMES.of(caller);
                let of = Described::Ull(up, first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk };
                // SAFETY: guaranteed by the caller.
                if let Some(more) = unsafe { start(runtime, wanted, from, to, false, caller) } {
                    return more;
                }
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    bool, u64, u64, u64, u64, *mut u64, *mut u64,
                ) -> bool);
                // SAFETY: with the caller's arguments.
                unsafe { real(up, first, end, step, chunk, from, to) }
            }
        )*
    };
}

/// As `runtime_starts`, of unsigned values.
macro_rules! ull_runtime_starts {
    ($($number:literal $name:ident $inner:ident $kind:ident;)*) => {
        $(
            with_seventh!($name $inner);

            unsafe extern "C-unwind" fn $inner(
                up: bool,
                first: u64,
                end: u64,
                step: u64,
                from: *mut u64,
                to: *mut u64,
                caller: usize,
            ) -> bool {
                let runtime = RUNTIMES.of(caller);
                let of = Described::Ull(up, first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk: 0 };
                // SAFETY: guaranteed by the caller.
                if let Some(more) = unsafe { start(runtime, wanted, from, to, false, caller) } {
                    return more;
                }
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    bool, u64, u64, u64, *mut u64, *mut u64,
                ) -> bool);
                // SAFETY: with the caller's arguments.
                unsafe { real(up, first, end, step, from, to) }
            }
        )*
    };
}

/// `next` of loops.
macro_rules! nexts {
    ($($number:literal $name:ident $inner:ident $is_long:literal;)*) => {
        $(
            with_caller!($name "rdx" $inner);

            unsafe extern "C-unwind" fn $inner(
                from: *mut u64,
                to: *mut u64,
                caller: usize,
            ) -> bool {
                // SAFETY: guaranteed by the caller.
                if let Some(more) = unsafe { next(from, to, $is_long, caller) } {
                    return more;
                }
                let real = real!($number $name RUNTIMES.of(caller), Next);
                // SAFETY: with the caller's arguments.
                unsafe { real(from, to) }
            }
        )*
    };
}

/// Regions with a loop whose schedule is in the program.
macro_rules! regions {
    ($($number:literal $name:ident $kind:ident;)*) => {
        $(
            /// An entry point; see the module.
            ///
            /// # Safety
            /// As for libgomp's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                body: Body,
                data: *mut c_void,
                threads: c_uint,
                first: c_long,
                end: c_long,
                step: c_long,
                chunk: c_long,
                flags: c_uint,
            ) {
                let chunk_of = u64::try_from(chunk).unwrap_or(1);
                let of = Described::Long(first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk: chunk_of };
                // SAFETY: guaranteed by the caller.
                if unsafe { parallel(body, data, threads, wanted, flags) }.is_some() {
                    return;
                }
                let runtime = RUNTIMES.of(body as usize);
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    Body, *mut c_void, c_uint, c_long, c_long, c_long, c_long, c_uint,
                ));
                // SAFETY: with the caller's arguments.
                unsafe { real(body, data, threads, first, end, step, chunk, flags) }
            }
        )*
    };
}

/// Regions with a loop whose schedule is set outside of the program.
macro_rules! runtime_regions {
    ($($number:literal $name:ident $kind:ident;)*) => {
        $(
            /// An entry point; see the module.
            ///
            /// # Safety
            /// As for libgomp's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                body: Body,
                data: *mut c_void,
                threads: c_uint,
                first: c_long,
                end: c_long,
                step: c_long,
                flags: c_uint,
            ) {
                let of = Described::Long(first, end, step);
                let wanted = Wanted { of, kind: kind::$kind, chunk: 0 };
                // SAFETY: guaranteed by the caller.
                if unsafe { parallel(body, data, threads, wanted, flags) }.is_some() {
                    return;
                }
                let runtime = RUNTIMES.of(body as usize);
                let real = real!($number $name runtime, unsafe extern "C-unwind" fn(
                    Body, *mut c_void, c_uint, c_long, c_long, c_long, c_uint,
                ));
                // SAFETY: with the caller's arguments.
                unsafe { real(body, data, threads, first, end, step, flags) }
            }
        )*
    };
}

/// Begins a loop with clauses that dealing does not know; `next` functions of other loops continue it. `$key` is where
/// the address is that identifies the loop.
macro_rules! lefts {
    ($($name:ident $is_long:literal $key:literal;)*) => {
        $(
            /// An entry point; see the module.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name() {
                continue_where!(
                    left,
                    concat!("mov rsi, ", $key),
                    concat!("mov edi, ", stringify!($is_long)),
                    "mov rdx, qword ptr [rsp + 56]",
                )
            }
        )*
    };
}

starts! {
    8 GOMP_loop_nonmonotonic_dynamic_start dynamic_start DYNAMIC;
    9 GOMP_loop_nonmonotonic_guided_start guided_start GUIDED;
}

runtime_starts! {
    10 GOMP_loop_nonmonotonic_runtime_start nonmonotonic_runtime_start NONMONOTONIC_RUNTIME;
    11 GOMP_loop_maybe_nonmonotonic_runtime_start runtime_start RUNTIME;
}

ull_starts! {
    12 GOMP_loop_ull_nonmonotonic_dynamic_start ull_dynamic_start DYNAMIC;
    13 GOMP_loop_ull_nonmonotonic_guided_start ull_guided_start GUIDED;
}

ull_runtime_starts! {
    14 GOMP_loop_ull_nonmonotonic_runtime_start ull_nonmonotonic_runtime_start NONMONOTONIC_RUNTIME;
    15 GOMP_loop_ull_maybe_nonmonotonic_runtime_start ull_runtime_start RUNTIME;
}

nexts! {
    16 GOMP_loop_nonmonotonic_dynamic_next dynamic_next true;
    17 GOMP_loop_nonmonotonic_guided_next guided_next true;
    18 GOMP_loop_nonmonotonic_runtime_next nonmonotonic_runtime_next true;
    19 GOMP_loop_maybe_nonmonotonic_runtime_next runtime_next true;
    20 GOMP_loop_ull_nonmonotonic_dynamic_next ull_dynamic_next false;
    21 GOMP_loop_ull_nonmonotonic_guided_next ull_guided_next false;
    22 GOMP_loop_ull_nonmonotonic_runtime_next ull_nonmonotonic_runtime_next false;
    23 GOMP_loop_ull_maybe_nonmonotonic_runtime_next ull_runtime_next false;
}

regions! {
    24 GOMP_parallel_loop_nonmonotonic_dynamic DYNAMIC;
    25 GOMP_parallel_loop_nonmonotonic_guided GUIDED;
}

runtime_regions! {
    26 GOMP_parallel_loop_nonmonotonic_runtime NONMONOTONIC_RUNTIME;
    27 GOMP_parallel_loop_maybe_nonmonotonic_runtime RUNTIME;
}

lefts! {
    GOMP_loop_start 1 "r9";
    GOMP_loop_ull_start 0 "qword ptr [rsp + 64]";
}
