//! The run-time library of the instrumentation frontend.
//!
//! `numaloc cc -- gcc ...` compiles with `-fsanitize=thread`, so that the compiler puts a call before
//! every load, store and atomic of the program, and links this library where the sanitizer's own
//! would be. Each call goes straight into the tracing engine (`numaloc-trace`). Without a recording
//! (`NUMALOC_JOURNAL` not set) every call returns at once.
//!
//! | module | stands in for |
//! |---|---|
//! | [`access`] | `__tsan_read8` and its kind: plain, unaligned, volatile, ranges, vptr |
//! | [`loops`] | nothing: the calls that our plugin for gcc puts before and after loops |
//! | [`annotations`] | what programs tell a sanitizer by hand |
//! | [`copies`] | `memcpy` and its kind: as the ranges they read and write |
//! | [`atomics`] | `__tsan_atomic32_fetch_add` and its kind: done for real, and marked as synchronisation |
//! | [`threads`] | `pthread_create`, `fork`, `_exit`: whose accesses they are |
//! | [`sync`] | mutexes, condition variables, barriers, semaphores: the virtual clock |
//! | [`gomp`], [`gomp_tasks`], [`doacross`] | libgomp's entry points: the same for OpenMP, as [`team`] and [`tasks`] have it |
//! | [`kmpc`], [`kmpc_tasks`] | libomp's |
//! | [`sharing`] | loops and sections whose parts go to whichever thread is free: that there are some |
//! | [`memory`] | `malloc` and `mmap`: which object a page belongs to |
//! | [`sites`] | who asked for a block: the call stack of its allocation |
//! | [`heap`], [`lock`] | nothing: our own memory, apart from the program's, and what its threads share |
//!
//! What the compiler does not see is not counted: libraries that were not compiled this way, inline
//! assembly, and register spills.
//!
//! # Re-entry
//! A thread's tracer is taken out of its slot while it works ([`current::with`]), so an access made by a
//! signal handler in the middle of another, or by the engine's own allocations, finds nothing and is
//! not counted; it never meets a half-updated tracer.

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
