//! Synchronisation primitives of this crate: the standard library's, or the model checker's.

#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(loom))]
pub use std::sync::atomic;
