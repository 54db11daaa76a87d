//! What compilers call in instrumented code: the thread sanitizer's entry points, and those of our plugin for gcc.

pub mod access;
pub mod annotations;
pub mod atomics;
pub mod loops;
pub mod ranges;
mod wide;
