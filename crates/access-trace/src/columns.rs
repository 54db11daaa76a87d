//! The columns of a block: kinds (two per byte), distances of dependent loads, work, values.
//!
//! Values of a sort (lines fetched, lines written back, synchronisation words) are near each other, so each is written
//! as its difference from the last one of its sort. Differences start from 0 in each block, so that a block can be
//! read alone.

use crate::numbers::{put_all, take, unzigzag, zigzag};
use crate::{BLOCK_BYTES, BLOCK_RECORDS, Kind, MOST_AFTER, Record};

/// In the column of kinds: a load with a distance in the next column.
const DEPENDENT: u8 = 10;

/// The number of a record in the column of kinds.
#[inline(always)]
fn code(record: &Record) -> u8 {
    match record.after() {
        0 => record.kind() as u8,
        _ => DEPENDENT,
    }
}

/// The last value of each sort.
#[derive(Clone, Copy, Debug, Default)]
struct Last([u64; 3]);

impl Last {
    /// The value from which a value of `kind` is written as a difference; `None` for kinds written as they are.
    #[inline(always)]
    fn of(&mut self, kind: Kind) -> Option<&mut u64> {
        let sort = match kind {
            Kind::Read | Kind::Write | Kind::Own => 0,
            Kind::WriteBack => 1,
            Kind::Acquire | Kind::Release => 2,
            Kind::Create | Kind::Clock | Kind::Omitted | Kind::Part => 3,
        };
        self.0.get_mut(sort)
    }
}

/// Packs records into the columns of a block.
#[derive(Clone, Debug, Default)]
pub struct Packer {
    kinds: Vec<u8>,
    after: Vec<u8>,
    work: Vec<u8>,
    values: Vec<u8>,
    count: usize,
    last: Last,
}

impl Packer {
    /// Number of records packed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds records; a block has at most [`BLOCK_RECORDS`].
    pub fn extend(&mut self, records: &[Record]) {
        let (second, pairs) = records.split_at(records.len().min(self.count % 2));
        if let (Some(record), Some(pair)) = (second.first(), self.kinds.last_mut()) {
            *pair |= code(record) << 4;
        }
        self.kinds.extend(pairs.chunks(2).map(|pair| {
            let high = pair.get(1).map_or(0, code);
            code(&pair[0]) | high << 4
        }));
        let after = records.iter().map(|record| record.after());
        self.after.extend(after.filter(|&after| after != 0));
        self.count += records.len();
        put_all(&mut self.work, records.iter().map(|record| record.work));
        let values = records.iter().map(|record| {
            let value = record.value();
            match self.last.of(record.kind()) {
                Some(before) => zigzag(std::mem::replace(before, value), value),
                None => value,
            }
        });
        put_all(&mut self.values, values);
    }

    /// Appends the columns to `out` and begins the next block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let columns = [
            &mut self.kinds,
            &mut self.after,
            &mut self.work,
            &mut self.values,
        ];
        for column in columns {
            out.append(column);
        }
        (self.count, self.last) = (0, Last::default());
    }
}

/// Appends the columns of `records`, at most [`BLOCK_RECORDS`].
pub fn encode(records: &[Record], out: &mut Vec<u8>) {
    let mut packer = Packer::default();
    packer.extend(records);
    packer.finish(out);
}

/// Reads the records of a block in order. Ends early at bytes that [`encode`] does not write: see [`Columns::done`].
#[derive(Clone, Debug)]
pub struct Columns {
    bytes: Vec<u8>,
    count: usize,
    next: usize,
    /// Offsets of the next distance, the next work and the next value.
    after: usize,
    work: usize,
    value: usize,
    last: Last,
}

impl Columns {
    /// Reads a block of `count` records; `None` if the bytes cannot be one.
    #[must_use]
    pub fn new(bytes: Vec<u8>, count: usize) -> Option<Self> {
        if count > BLOCK_RECORDS || bytes.len() > BLOCK_BYTES {
            return None;
        }
        let after = count.div_ceil(2);
        let dependent =
            |byte: u8| usize::from(byte & 0xf == DEPENDENT) + usize::from(byte >> 4 == DEPENDENT);
        let kinds = bytes.get(..after)?;
        let work = after + kinds.iter().map(|&byte| dependent(byte)).sum::<usize>();
        let mut rest = bytes.get(work..)?;
        for _ in 0..count {
            take(&mut rest)?;
        }
        let value = bytes.len() - rest.len();
        Some(Self {
            bytes,
            count,
            next: 0,
            after,
            work,
            value,
            last: Last::default(),
        })
    }

    /// Whether all records were read and no bytes are left over.
    #[must_use]
    pub fn done(&self) -> bool {
        self.next == self.count && self.value == self.bytes.len()
    }
}

impl Iterator for Columns {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        if self.next == self.count {
            return None;
        }
        let nibble = self.bytes[self.next / 2] >> (self.next % 2 * 4) & 0xf;
        let (kind, after) = match nibble {
            DEPENDENT => (Kind::Read, self.bytes[self.after]),
            nibble => (*Kind::ALL.get(nibble as usize)?, 0),
        };
        let is_dependent = nibble == DEPENDENT;
        if is_dependent != (1..=MOST_AFTER).contains(&after) {
            return None;
        }
        let mut rest = &self.bytes[self.work..];
        let work = take(&mut rest)?;
        self.work = self.bytes.len() - rest.len();
        let mut rest = &self.bytes[self.value..];
        let coded = take(&mut rest)?;
        let value = match self.last.of(kind) {
            Some(before) => {
                *before = unzigzag(*before, coded);
                *before
            }
            None => coded,
        };
        if value >> 60 != 0 {
            return None;
        }
        self.value = self.bytes.len() - rest.len();
        self.next += 1;
        self.after += usize::from(is_dependent);
        Some(match kind {
            Kind::Read => Record::load(value, work, after.into()),
            kind => Record::new(kind, value, work),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn any_record() -> impl Strategy<Value = Record> {
        let value = prop_oneof![0u64..1000, any::<u64>().prop_map(|value| value >> 4)];
        let work = prop_oneof![0u64..200, any::<u64>()];
        (0usize..Kind::ALL.len(), value, work, 0u64..70).prop_map(|(kind, value, work, after)| {
            match Kind::ALL[kind] {
                Kind::Read => Record::load(value, work, after),
                kind => Record::new(kind, value, work),
            }
        })
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(records, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn records_come_back(records in proptest::collection::vec(any_record(), 0..100)) {
            let mut columns = Columns::new(encoded(&records), records.len()).unwrap();
            let read: Vec<Record> = columns.by_ref().collect();
            prop_assert_eq!(read, records);
            prop_assert!(columns.done());
        }

        #[test]
        fn records_may_be_added_in_parts(
            records in proptest::collection::vec(any_record(), 0..100),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(records.len() + 1)).collect();
            cuts.extend([0, records.len()]);
            cuts.sort();
            let (mut packer, mut bytes) = (Packer::default(), Vec::new());
            // Twice: the packer keeps nothing from the block before.
            for _ in 0..2 {
                cuts.windows(2).for_each(|cut| packer.extend(&records[cut[0]..cut[1]]));
                prop_assert_eq!(packer.count(), records.len());
                bytes.clear();
                packer.finish(&mut bytes);
                prop_assert_eq!(&bytes, &encoded(&records));
            }
        }

        /// For any bytes, reading ends and reports whether it was complete.
        #[test]
        fn altered_bytes_are_read_or_refused(
            records in proptest::collection::vec(any_record(), 1..60),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<proptest::sample::Index>(),
            count in 0usize..70,
        ) {
            let mut bytes = encoded(&records);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(mut columns) = Columns::new(bytes, count) {
                let read = columns.by_ref().count();
                prop_assert!(read <= count);
                if columns.done() {
                    prop_assert_eq!(read, count);
                }
            }
        }
    }

    #[test]
    fn a_stream_takes_two_and_a_half_bytes_a_record() {
        // Consecutive lines with 8 accesses each, every second one written back 16384 lines later: kinds take half a
        // byte, work one, differences one.
        let records: Vec<Record> = (0..1000)
            .map(|at| {
                Record::new(
                    if at % 2 == 0 {
                        Kind::Read
                    } else {
                        Kind::WriteBack
                    },
                    1 << 40 | at,
                    8,
                )
            })
            .collect();
        // The first line and the first line written back are written in full: 6 bytes instead of one.
        assert_eq!(encoded(&records).len(), 500 + 1000 + 1000 + 2 * 5);
    }

    #[test]
    fn more_than_a_block_is_refused() {
        assert!(Columns::new(vec![0; BLOCK_BYTES + 1], 1).is_none());
        assert!(Columns::new(vec![0; BLOCK_BYTES], BLOCK_RECORDS + 1).is_none());
    }
}
