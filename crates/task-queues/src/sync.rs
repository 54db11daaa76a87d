//! The primitives everything here is made of: the standard library's, or the model checker's.

#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(loom))]
pub use std::sync::atomic;
