//! Functions of the C library that are replaced: executed by the real ones, and recorded.

pub mod copies;
pub mod memory;
pub mod objects;
pub mod sync;
pub mod threads;
