//! An MPI rank file, written from its description, and damage that its checksums do not find.

use crate::damage::{Random, bytes};

const HEADER: usize = 64;
const STRINGS: &[u8] = b"job0hostname\x03";

/// A header and three blocks: two slices and an end.
pub fn good() -> Vec<u8> {
    let mut file = b"NLMPIRNK".to_vec();
    let whole = (HEADER + STRINGS.len() + 4) as u32;
    for value in [1, whole, 1, 4, 4242, 2] {
        file.extend(u32::to_le_bytes(value));
    }
    for value in [1_700_000_000_000_000_000u64, 1_000_000] {
        file.extend(value.to_le_bytes());
    }
    for value in [4u32, 8, 1, 0] {
        file.extend(value.to_le_bytes());
    }
    file.extend(STRINGS);
    close(&mut file, 0);
    let entry = |peer: u32, kind: u32, events: u64, size: u64| {
        let mut entry = Vec::new();
        entry.extend(peer.to_le_bytes());
        entry.extend(kind.to_le_bytes());
        entry.extend(events.to_le_bytes());
        entry.extend(size.to_le_bytes());
        entry
    };
    let first = [entry(0, 0, 10, 1000), entry(2, 4, 3, 300)].concat();
    block(&mut file, 1, 0, 1_000_000, &first);
    block(&mut file, 1, 2_000_000, 3_000_000, &entry(3, 3, 1, 8));
    let mut totals = vec![0; 8 * 16 + 8];
    totals[..8].copy_from_slice(&10u64.to_le_bytes());
    block(&mut file, 2, 3_000_000, 0, &totals);
    file
}

/// [`good`] with a world of `ranks` ranks.
pub fn of_world(ranks: u32) -> Vec<u8> {
    let mut file = good();
    file[20..24].copy_from_slice(&ranks.to_le_bytes());
    repair(&mut file);
    file
}

fn block(file: &mut Vec<u8>, kind: u32, start: u64, end: u64, payload: &[u8]) {
    let from = file.len();
    file.extend(kind.to_le_bytes());
    file.extend((payload.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend(end.to_le_bytes());
    file.extend(payload);
    close(file, from);
}

/// Adds the checksum of what stands from `from` on.
fn close(file: &mut Vec<u8>, from: usize) {
    let sum = crc32fast::hash(&file[from..]);
    file.extend(sum.to_le_bytes());
}

/// Damages header fields and blocks; in two of three cases every checksum that can be found is made right again.
pub fn damage(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bad = bytes(good, random);
    if random.below(3) > 0 {
        repair(&mut bad);
    }
    bad
}

fn repair(file: &mut [u8]) {
    let number = |file: &[u8], at: usize| -> Option<usize> {
        let bytes = file.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let mut from = 0_usize;
    let mut length = number(file, 12).and_then(|whole| whole.checked_sub(4));
    while let Some(sum_at) = length.and_then(|length| from.checked_add(length)) {
        let Some(content) = file.get(from..sum_at) else {
            return;
        };
        let sum = crc32fast::hash(content).to_le_bytes();
        let Some(place) = file.get_mut(sum_at..sum_at + 4) else {
            return;
        };
        place.copy_from_slice(&sum);
        from = sum_at + 4;
        length = number(file, from + 4).map(|payload| payload + 24);
    }
}
