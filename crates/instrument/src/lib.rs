//! The run-time library of the instrumentation frontend.
//!
//! `numaloc cc -- gcc ...` compiles with `-fsanitize=thread`, so that the compiler inserts a call before every load,
//! store and atomic of the program, and links this library in place of the sanitizer's own. Each call goes directly to
//! the tracing engine (`numaloc-trace`). Without a recording (`NUMALOC_JOURNAL` not set) every call returns at once.
//!
//! | module | implements or replaces |
//! |---|---|
//! | [`access`] | `__tsan_read8` and similar: plain, unaligned, volatile, ranges, vptr |
//! | [`loops`] | the calls that our plugin for gcc inserts before and after loops |
//! | [`annotations`] | annotations of programs for a sanitizer |
//! | [`copies`] | `memcpy` and similar: recorded as the ranges they read and write |
//! | [`atomics`] | `__tsan_atomic32_fetch_add` and similar: executed, and marked as synchronisation |
//! | [`threads`] | `pthread_create`, `fork`, `_exit`: which thread accesses belong to |
//! | [`sync`] | mutexes, condition variables, barriers, semaphores: the virtual clock |
//! | [`gomp`], [`gomp_tasks`], [`doacross`] | libgomp's entry points: the same for OpenMP, by [`team`] and [`tasks`] |
//! | [`kmpc`], [`kmpc_tasks`] | libomp's entry points |
//! | [`sharing`] | loops and sections whose parts are handed out at run time: records that there are some |
//! | [`memory`] | `malloc` and `mmap`: which object a page belongs to |
//! | [`sites`] | allocation sites: the call stacks of allocations |
//! | [`heap`], [`lock`] | this library's own memory, separate from the program's, and locks for what its threads share |
//!
//! What the compiler does not see is not counted: libraries that were not compiled this way, inline assembly, and
//! register spills.
//!
//! # Re-entry
//! A thread's tracer is taken out of its slot while it works ([`current::with`]). So an access made by a signal
//! handler that interrupts another one, or by the engine's own allocations, finds no tracer and is not counted; it
//! never uses a half-updated tracer.

pub mod access;
pub mod annotations;
pub mod atomics;
pub mod copies;
pub mod current;
pub mod doacross;
pub mod gomp;
pub mod gomp_tasks;
mod heap;
pub mod kmpc;
pub mod kmpc_tasks;
mod lock;
pub mod loops;
pub mod memory;
mod real;
pub mod sharing;
pub mod sites;
mod slot;
pub mod sync;
pub mod tasks;
pub mod team;
pub mod threads;
mod variadic;
mod wide;
