//! Damage to files of frames (magic, length, checksum, payload: journals and access traces) that gets past the
//! checksums.

use crate::damage::{Random, bytes};

const HEAD: usize = 12;

/// Damages bytes; in two of three cases every checksum that can be found is made right again.
pub fn damage(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bad = bytes(good, random);
    if random.below(3) > 0 {
        repair(&mut bad);
    }
    bad
}

fn repair(mut rest: &mut [u8]) {
    while let Some((head, after)) = rest.split_at_mut_checked(HEAD) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        // The last frame may be cut: it becomes a shorter one.
        let length = length.min(after.len());
        head[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        let (payload, next) = after.split_at_mut(length);
        head[8..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        rest = next;
    }
}
