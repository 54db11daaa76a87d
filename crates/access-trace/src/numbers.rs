//! LEB128 numbers: seven bits per byte, the lowest first.

/// Appends a number.
#[inline(always)]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a column of numbers, as [`put`] does.
#[inline(always)]
pub fn put_all(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let mut ready = [0; 512];
    let mut length = 0;
    for value in values {
        if value < 0x80 {
            ready[length] = value as u8;
            length += 1;
        } else if value >> 56 == 0 {
            let (bytes, used) = spread(value);
            ready[length..length + 8].copy_from_slice(&bytes);
            length += used;
        } else {
            out.extend_from_slice(&ready[..length]);
            length = 0;
            put(out, value);
        }
        if length > ready.len() - 8 {
            out.extend_from_slice(&ready[..length]);
            length = 0;
        }
    }
    out.extend_from_slice(&ready[..length]);
}

/// The bytes of a number below 2^56 as [`put`] writes them, and their count. Branchless: lengths are hard to predict.
#[inline(always)]
fn spread(value: u64) -> ([u8; 8], usize) {
    // Halves of four groups of seven bits are spread to four bytes apart, quarters to two, single groups to one.
    let halves = value & 0x0fff_ffff | (value & 0x0fff_ffff << 28) << 4;
    let quarters = halves & 0x3fff_0000_3fff | (halves & 0x3fff_0000_3fff << 14) << 2;
    let groups = quarters & 0x7f_007f_007f_007f | (quarters & 0x7f_007f_007f_007f << 7) << 1;
    let length = (70 - (value | 1).leading_zeros()) / 7;
    let more = 0x8080_8080_8080_8080 & ((1 << (8 * (length - 1))) - 1);
    ((groups | more).to_le_bytes(), length as usize)
}

/// Takes a number off the front of `bytes`; `None` at the end or above 64 bits.
#[inline(always)]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A difference as a number that is small when the difference is, whatever its sign.
#[inline(always)]
#[must_use]
pub fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

/// The end value of a difference coded by [`zigzag`].
#[inline(always)]
#[must_use]
pub fn unzigzag(from: u64, coded: u64) -> u64 {
    from.wrapping_add(coded >> 1 ^ (coded & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_differences_come_back(values in proptest::collection::vec(any::<u64>(), 0..20), from: u64) {
            let mut bytes = Vec::new();
            for &value in &values {
                put(&mut bytes, value);
                put(&mut bytes, zigzag(from, value));
            }
            let mut rest = &bytes[..];
            for &value in &values {
                prop_assert_eq!(take(&mut rest), Some(value));
                prop_assert_eq!(unzigzag(from, take(&mut rest).unwrap()), value);
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn many_are_written_as_one_by_one(values in proptest::collection::vec((any::<u64>(), 0u32..64), 0..300)) {
            let values = values.iter().map(|(value, shift)| value >> shift);
            let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
            values.clone().for_each(|value| put(&mut one_by_one, value));
            put_all(&mut together, values);
            prop_assert_eq!(together, one_by_one);
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        assert_eq!(take(&mut &[0xff; 9][..]), None);
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]),
            None
        );
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]),
            Some(u64::MAX)
        );
    }
}
