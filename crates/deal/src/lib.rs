//! The dealer: a library that `numaloc run --deal node` and `numaloc record --deal node` preload into OpenMP programs.
//! It replaces the loops that libgomp and libomp hand to whichever thread is free (`schedule(dynamic)`, `(guided)`, and
//! `(runtime)` where that means one of the two).
//!
//! Each thread of a team begins with the block of iterations that its rank gives it, as with a static schedule, so the
//! same iterations come back to the same thread in each loop over the same data. A thread that has finished takes half
//! of what another has left: from threads of its own node first, then from the nearest node ([`ranges`]). This is
//! affinity scheduling (Markatos and LeBlanc, "Using processor affinity in loop scheduling on shared-memory
//! multiprocessors", IEEE Transactions on Parallel and Distributed Systems 5(4), 1994, doi:10.1109/71.273046) with
//! nodes in the choice of whom to take from, and half of the rest instead of 1/P.
//!
//! What a loop requires of its order is kept: loops that are `ordered` or `monotonic`, and all that this library does
//! not know, are left to the run-time system. The program must not notice: no signal handler, no output, and no memory
//! of the program's but what the run-time system itself allocates for a loop.

#![deny(unsafe_op_in_unsafe_fn)]

mod bounds;
mod loops;
mod nodes;
mod openmp;
mod ranges;
mod real;
mod settings;
