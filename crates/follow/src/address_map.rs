//! Maps and sets of addresses, with a hash of one multiplication: addresses are not chosen by an attacker.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes an address.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

type Hashed = BuildHasherDefault<AddressHasher>;

const HASHED: Hashed = BuildHasherDefault::new();

/// A map from addresses.
pub type AddressMap<V> = HashMap<u64, V, Hashed>;
/// A set of addresses.
pub type AddressSet = HashSet<u64, Hashed>;

/// An empty map.
pub const fn map<V>() -> AddressMap<V> {
    HashMap::with_hasher(HASHED)
}

/// An empty set.
pub const fn set() -> AddressSet {
    HashSet::with_hasher(HASHED)
}
