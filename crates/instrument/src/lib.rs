//! The run-time library of the instrumentation frontend.
//!
//! `numaloc cc -- gcc ...` compiles with `-fsanitize=thread`, so that the compiler inserts a call before every load,
//! store and atomic of the program, and links this library in place of the sanitizer's own. Each call goes directly to
//! the tracing engine (`numaloc-trace`). Without a recording (`NUMALOC_SETTINGS` not set) every call returns at once.
//!
//! | module | implements or replaces |
//! |---|---|
//! | [`tsan::access`] | `__tsan_read8` and similar: plain, unaligned, volatile, ranges, vptr |
//! | [`tsan::loops`] | the calls that our plugin for gcc inserts before and after loops |
//! | [`tsan::annotations`] | annotations of programs for a sanitizer |
//! | [`tsan::atomics`] | `__tsan_atomic32_fetch_add` and similar: executed, and marked as synchronisation |
//! | [`libc::copies`] | `memcpy` and similar: recorded as the ranges they read and write |
//! | [`libc::threads`] | `pthread_create`, `fork`, `_exit`: which thread accesses belong to |
//! | [`libc::sync`] | mutexes, condition variables, barriers, semaphores: the virtual clock |
//! | [`libc::memory`], [`libc::objects`] | `malloc` and `mmap`: which object a page belongs to |
//! | [`openmp::gomp`], [`openmp::gomp_tasks`], [`openmp::doacross`] | libgomp's entry points, by [`openmp::team`] and [`openmp::tasks`] |
//! | [`openmp::kmpc`], [`openmp::kmpc_tasks`] | libomp's entry points |
//! | [`openmp::sharing`] | loops and sections whose parts are handed out at run time: records that there are some |
//! | [`marks`] | `numaloc_mark`: records it, regions, barriers and the creation of threads as places that a run passes |
//! | [`process`], [`current`] | the recording of the process, and the calling thread's tracer |
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

mod clocks;
pub mod current;
mod heap;
pub mod libc;
mod lock;
pub mod marks;
pub mod openmp;
pub mod process;
mod real;
pub mod sites;
mod slot;
pub mod tsan;
