//! What the frontends of unmodified programs share. Runs inside the program under study.
//!
//! [`calls`] follows the system calls that create threads, processes and memory, or let threads wait for each other.
//! [`owners`] and [`sharing`] classify code by the file that it was mapped from, [`usage`] instructions by how they use
//! memory, [`affine`] their addresses. [`marks`] finds the functions whose calls are marks, [`allocators`] those that
//! allocate memory; [`unwind`] walks call stacks. [`images`] records what was
//! mapped for the program before its first instruction, [`memory`] reads the program's memory without faulting.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod affine;
pub mod allocators;
pub mod calls;
pub mod images;
pub mod marks;
pub mod memory;
pub mod owners;
pub mod sharing;
mod symbols;
pub mod unwind;
pub mod usage;
