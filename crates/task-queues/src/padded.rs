//! Values that must not share a cache line.

use std::ops::Deref;

/// Separates `T` from its neighbours by 128 bytes, because x86-64 prefetches cache lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
