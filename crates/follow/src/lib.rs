//! What the frontends of unmodified programs share. Runs inside the program under study.
//!
//! [`calls`] follows the system calls that create threads, processes and memory, or let threads wait for each other;
//! `faults` those that decide which thread places a page, `stores` what the kernel stores for a thread.
//! [`owners`] and [`sharing`] classify code by the file that it was mapped from, [`usage`] instructions by how they use
//! memory, [`affine`] their addresses. [`marks`] finds the functions whose calls are marks, [`allocators`] those that
//! allocate memory, [`address_map`] finds them; [`unwind`] walks call stacks. [`images`] records what was
//! mapped for the program before its first instruction, [`titles`] the names of threads, processes and memory,
//! `routines` what threads run,
//! [`memory`] reads the program's memory without faulting.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod address_map;
pub mod affine;
pub mod allocators;
pub mod calls;
mod faults;
pub mod images;
pub mod marks;
pub mod memory;
pub mod owners;
mod routines;
pub mod sharing;
mod stores;
mod symbols;
pub mod titles;
mod traced;
pub mod unwind;
pub mod usage;

/// Keeps everything this crate knows as it is until the result is dropped: a process that is forked meanwhile finds it
/// complete, and its locks free. Must be called outside this crate's other functions, before memory is locked.
pub fn hold() -> impl Sized {
    // `owners` calls the others while it holds its own.
    let owners = owners::hold();
    let others = (sharing::hold(), marks::hold(), allocators::hold());
    (owners, others, unwind::hold())
}
