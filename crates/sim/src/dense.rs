//! Maps from numbers of pages and words to dense numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes a page or word number by one multiplication, because they differ in their low bits.
#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Dense number of each number.
pub(crate) type Dense = HashMap<u64, u32, BuildHasherDefault<Multiply>>;
